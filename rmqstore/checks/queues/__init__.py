"""Consume queues of every kind, checked against the log."""
