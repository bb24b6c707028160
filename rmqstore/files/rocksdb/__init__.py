"""Read-only access to the RocksDB databases of a store."""
