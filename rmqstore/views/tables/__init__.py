"""Stores as Arrow batches, for Spark sources and `rmqstore sql`. Needs pyarrow, not Spark."""
