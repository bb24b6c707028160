"""Index entries compared with the messages of the log."""
