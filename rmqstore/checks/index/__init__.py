"""The index files against the messages of the log."""
