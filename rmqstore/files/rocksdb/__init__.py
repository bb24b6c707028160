"""RocksDB directories of a store, read without changing a byte."""
