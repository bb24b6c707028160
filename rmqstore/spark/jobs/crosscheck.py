"""Compares commitlog and consume queues in a distributed join, for queries of your own.

`jobs.crosscheck` reports problem codes as `verify` does; `crosscheck_rows` has one row for every unit that is missing,
dangling or wrong.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rmqstore.errors import RmqStoreError
from rmqstore.formats.consumequeue import EXT_MAX_ADDRESS
from rmqstore.spark.jobs.jobs import Paths
from rmqstore.spark.jobs.views import load
from rmqstore.views.stores import logs_of, store_refs

_KEY = ("store", "topic", "queue_id", "queue_offset")
_FIELDS = ("commitlog_offset", "size", "tags_code")


def crosscheck_rows(spark: Any, paths: Paths, *, config: Path | None = None, split_size: str = "64m") -> Any:
    """Return a DataFrame of the units that disagree with the log: store, topic, queue_id, queue_offset, status.

    `status` is `missing` (a message without a unit), `dangling` (a unit without a message, except for expired
    messages) or `wrong` (both exist and differ). Columns `log_…` have the values that the log requires, `unit_…` those
    of the unit. Simple consume queues only.
    """
    from pyspark.sql import functions as f

    refs = store_refs(paths, config)
    named = {ref.label: str(ref.path) for ref in refs}
    starts = []
    for ref in refs:
        try:
            logs = logs_of(ref.open())
        except (RmqStoreError, OSError):
            continue
        starts.append((ref.label, min((queue.start for _, queue, _ in logs), default=0)))
    options = {"missing": "skip", "splitSize": split_size} | ({"config": str(config)} if config else {})
    log = load(spark, "dispatched", named, **options).where("batch_size is null")
    unit = load(spark, "consumequeue", named, **options)
    left = log.select(*_KEY, *(f.col(c).alias(f"log_{c}") for c in _FIELDS))
    right = unit.select(*_KEY, *(f.col(c).alias(f"unit_{c}") for c in _FIELDS))
    both = left.join(right, list(_KEY), "full_outer")
    known = spark.createDataFrame(starts, "store string, log_start long")
    same_tag = (f.col("log_tags_code") == f.col("unit_tags_code")) | (f.col("unit_tags_code") <= EXT_MAX_ADDRESS)
    same = (f.col("log_commitlog_offset") == f.col("unit_commitlog_offset")) & (f.col("log_size") == f.col("unit_size"))
    status = (
        f.when(f.col("unit_size").isNull(), "missing")
        .when(f.col("log_size").isNull(), "dangling")
        .when(~(same & same_tag), "wrong")
    )
    rows = both.withColumn("status", status).where("status is not null").join(f.broadcast(known), "store", "left")
    rows = rows.where("status <> 'dangling' or unit_commitlog_offset >= coalesce(log_start, 0)").drop("log_start")
    return rows.select(*_KEY, "status", *(f"log_{c}" for c in _FIELDS), *(f"unit_{c}" for c in _FIELDS))
