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
        register_source(spark, source)
    return spark


def register_source(spark: Any, source: Any) -> None:
    """Register one source, unless Spark has found it in an installed module `pyspark_*` by itself.

    Spark 4.0 refuses to register such a source again; later versions replace it.
    Source: DataSourceManager.registerDataSource of Spark 4.0
    """
    from pyspark.errors import AnalysisException

    try:
        spark.dataSource.register(source)
    except AnalysisException as e:
        if e.getErrorClass() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
