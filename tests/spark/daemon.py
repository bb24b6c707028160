"""Spark's daemon for Python workers, which imports the modules that every worker of the tests needs.

Spark forks its workers from the daemon, a new one for almost every plan, and the imports would take each of them almost
a second. `preload/` does the same for the daemons that Spark starts for planning.
"""

from __future__ import annotations

import importlib
from contextlib import suppress

import pyarrow.compute  # noqa: F401
from pyspark.daemon import manager

import rmqstore.spark.jobs
import rmqstore.spark.sources  # noqa: F401

MODULES = (
    "pyspark.worker",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.data_source_pushdown_filters",  # since 4.1
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.python_streaming_sink_runner",
)
for module in MODULES:
    with suppress(ModuleNotFoundError):
        importlib.import_module(module)

if __name__ == "__main__":
    manager()
