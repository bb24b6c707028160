"""Stores as Arrow batches, for Spark's sources and for `rmqstore sql`. Needs pyarrow, not Spark."""
