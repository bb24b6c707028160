"""Benchmarks against the real broker, mqadmin, a C loop and Spark: see README.md in this folder."""
