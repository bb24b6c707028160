"""Bytes to runs and columns: the hot path over a log. No opinion on what is right."""
