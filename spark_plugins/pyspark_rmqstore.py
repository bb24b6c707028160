"""Automatic registration of the data source `rmqstore.commitlog`, so that no call to `register` is needed.

Spark imports every top-level module named `pyspark_*` and registers its `DefaultSource`. A module can have only one
source, so each of the other four sources has its own module beside this one.
"""

from __future__ import annotations

from rmqstore.spark.sources import CommitLogSource as DefaultSource

__all__ = ["DefaultSource"]
