"""DLedgerMmapFileStore, writable."""
