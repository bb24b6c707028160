"""Conversion to DLedger and back."""
