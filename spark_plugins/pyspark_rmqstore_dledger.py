"""Spark's automatic registration of `rmqstore.dledger`; see pyspark_rmqstore.py."""

from __future__ import annotations

from rmqstore.spark.sources.sources import DLedgerSource as DefaultSource

__all__ = ["DefaultSource"]
