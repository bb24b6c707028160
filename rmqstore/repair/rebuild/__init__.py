"""Consume queues, batch queues and index files, rebuilt from the log."""
