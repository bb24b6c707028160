"""A writable store: log, consume queues, index and checkpoint."""
