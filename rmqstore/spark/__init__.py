"""Stores of any size and any number through PySpark: data sources `rmqstore.*` and the jobs of `rmqstore pipeline`.

    from rmqstore.spark import register
    register(spark)
    spark.read.format("rmqstore.commitlog").option("topics", "Order").load("/data/broker-*/store").show()

Nothing here reads bytes by itself: the same scan runs in Spark's workers as on one machine.
"""

from __future__ import annotations

from typing import Any

from rmqstore.errors import RmqStoreError


class SparkMissing(RmqStoreError):
    """PySpark, pyarrow or a Java to run Spark with is not there, or Spark could not start."""

    code = "spark-missing"
    exit_code = 3
    advice = "pip install 'rmqstore[spark]' brings PySpark, pyarrow and a Java"


def register(spark: Any) -> Any:
    """Makes the sources known to a session: rmqstore.commitlog, consumequeue, dledger, index, findings, dispatched.

    Executors need rmqstore too: installed, or sent with `--py-files`. Returns the session.
    """
    from rmqstore.spark.sources.dispatched import DispatchedSource
    from rmqstore.spark.sources.sources import SOURCES

    for source in (*SOURCES, DispatchedSource):
        spark.dataSource.register(source)
    return spark
