"""Simulates the start of a broker in DLedger mode."""
