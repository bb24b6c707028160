"""Tests of rmqstore.append."""
