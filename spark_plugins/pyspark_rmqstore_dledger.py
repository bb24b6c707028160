"""Automatic registration of the data source `rmqstore.dledger`; see pyspark_rmqstore.py."""

from __future__ import annotations

from rmqstore.spark.sources import DLedgerSource as DefaultSource

__all__ = ["DefaultSource"]
