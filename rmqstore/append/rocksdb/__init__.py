"""Create a RocksDB from rows in key order."""
