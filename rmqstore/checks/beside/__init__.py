"""Checks of everything beside the log and the queues, one file for each part of a store."""
