"""A writable DLedgerMmapFileStore."""
