"""Reads and checks any number of stores with PySpark: data sources `rmqstore.*` and the jobs of `rmqstore pipeline`.

    from rmqstore.spark import register
    register(spark)
    spark.read.format("rmqstore.commitlog").option("topics", "Order").load("/data/broker-*/store").show()

Spark's workers run the same scan as the local commands; this package parses no bytes itself.
"""

from __future__ import annotations

from typing import Any

from rmqstore.errors import RmqStoreError, install_command


class SparkMissing(RmqStoreError):
    """PySpark, pyarrow or a suitable Java is missing, or Spark could not start."""

    code = "spark-missing"
    exit_code = 3
    advice = install_command("spark")


def register(spark: Any) -> Any:
    """Register the sources rmqstore.commitlog, consumequeue, dledger, index, findings and dispatched with a session.

    Executors need rmqstore too: installed, or sent with `--py-files`. Returns the session.
    """
    from rmqstore.spark.sources import SOURCES, DispatchedSource

    for source in (*SOURCES, DispatchedSource):
        spark.dataSource.register(source)
    return spark
