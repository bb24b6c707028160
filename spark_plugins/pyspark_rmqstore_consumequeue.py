"""Automatic registration of the data source `rmqstore.consumequeue`; see pyspark_rmqstore.py."""

from __future__ import annotations

from rmqstore.spark.sources import ConsumeQueueSource as DefaultSource

__all__ = ["DefaultSource"]
