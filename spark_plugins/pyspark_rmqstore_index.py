"""Automatic registration of the data source `rmqstore.index`; see pyspark_rmqstore.py."""

from __future__ import annotations

from rmqstore.spark.sources import IndexSource as DefaultSource

__all__ = ["DefaultSource"]
