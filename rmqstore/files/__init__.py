"""Read-only access to a store's files: its directories, its mapped file queues, RocksDB and broker.conf."""
