"""Tests of the writing side."""
