"""The pass over the log, and what it finds."""
