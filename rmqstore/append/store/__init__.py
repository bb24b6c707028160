"""The writable store: CommitLog, consume queues, index, DLedger, checkpoint."""
