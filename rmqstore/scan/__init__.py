"""Scan log files into runs and columns: the hot path. It describes the bytes and leaves judging them to `checks`."""
