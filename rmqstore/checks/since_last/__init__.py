"""What the last run of verify found, for log files that have not changed since (`--since-last`)."""
