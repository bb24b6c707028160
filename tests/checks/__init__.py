"""Tests of rmqstore.checks: real stores, sound and broken."""
