"""Spark's daemon for Python workers, with the modules that every worker of the tests needs already imported.

Spark forks its workers from the daemon, and a new one for almost every plan: each would import for most of a second.
"""

from __future__ import annotations

import pyarrow.compute  # noqa: F401
import pyspark.sql.worker.plan_data_source_read
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import rmqstore.spark.jobs.jobs
import rmqstore.spark.sources.sources  # noqa: F401

if __name__ == "__main__":
    manager()
