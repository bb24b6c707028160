"""A new RocksDB, made from rows that come in the order of their keys."""
