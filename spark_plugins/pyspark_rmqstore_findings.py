"""Automatic registration of the data source `rmqstore.findings`; see pyspark_rmqstore.py."""

from __future__ import annotations

from rmqstore.spark.sources import FindingsSource as DefaultSource

__all__ = ["DefaultSource"]
