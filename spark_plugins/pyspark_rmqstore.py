"""Spark's automatic registration: `spark.read.format("rmqstore.commitlog")` without a call to `register`.

Spark imports every top-level module named `pyspark_*` and registers its `DefaultSource`: one source for one module,
hence the four siblings of this file.
"""

from __future__ import annotations

from rmqstore.spark.sources.sources import CommitLogSource as DefaultSource

__all__ = ["DefaultSource"]
