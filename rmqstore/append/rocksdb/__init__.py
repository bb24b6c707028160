"""Create a RocksDB database from rows in key order."""
