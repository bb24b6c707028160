"""Job `sql`: SQL over the views messages, consumequeue, indexfile, dledger, consumer_offsets, pop and findings.

`crosscheck_rows` joins commitlog and consume queues, for queries of your own: one row for every unit that is missing,
dangling or wrong.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from rmqstore.checks.beside.config import ConsumerOffsets
from rmqstore.errors import UsageError
from rmqstore.files.store import Store
from rmqstore.formats.consumequeue import EXT_MAX_ADDRESS
from rmqstore.spark import jobs
from rmqstore.spark.jobs import Paths, Progress
from rmqstore.texts import Text
from rmqstore.views.progress import PopProgress
from rmqstore.views.stores import open_each, store_refs
from rmqstore.views.tables import VIEWS, offset_rows, popped_rows

_SOURCES = {
    "messages": "rmqstore.commitlog",
    "consumequeue": "rmqstore.consumequeue",
    "indexfile": "rmqstore.index",
    "dledger": "rmqstore.dledger",
}
_OFFSETS = "store string, group string, topic string, queue_id int, offset long"
_POP = (
    "store string, group string, topic string, queue_id int, queue_offset long, state string, pop_time long, "
    "visible_time long, times int"
)


def load(spark: Any, source: str, stores: Any, **options: Any) -> Any:
    """Return a DataFrame of a source (`commitlog`, `consumequeue`, …) over many stores.

    `stores` is a path, a list of paths and globs, a dict of label to path, or a DataFrame with a column `path` and
    optionally a column `store` with labels. Options that are None are left out. Errors: UsageError.
    """
    named: dict[str, str] = {}
    if isinstance(stores, dict):
        named = {str(k): str(v) for k, v in stores.items()}
    elif hasattr(stores, "collect"):
        if "path" not in stores.columns:
            raise UsageError(
                Text("a table of stores needs a column `path`"), Text("a column `store` with labels is optional")
            )
        for row in stores.collect():
            named[str(row["store"] if "store" in stores.columns else row["path"])] = str(row["path"])
    else:
        given = [stores] if isinstance(stores, str | Path) else list(stores)
        named = {ref.label: str(ref.path) for ref in store_refs(given)}
    reader = spark.read.format(source if source.startswith("rmqstore.") else f"rmqstore.{source}")
    for name, value in options.items():
        if value is not None:
            reader = reader.option(name, str(value).lower() if isinstance(value, bool) else str(value))
    return reader.option("stores", json.dumps(named)).load()


def register_views(
    spark: Any,
    paths: jobs.Paths,
    names: tuple[str, ...] = VIEWS,
    *,
    config: Path | None = None,
    body: str = "",
    fillers: bool = False,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Create the named temporary views; return an entry for each store that could not be opened and has no rows.

    `fillers`: `messages` has the records that repairs put in the place of lost messages, too. `findings` verifies the
    stores immediately. Errors: UsageError; NotReadable for the list of stores itself.
    """
    refs = store_refs(paths, config)
    stores, lost = [], []
    for ref, found in open_each(refs):
        if isinstance(found, Store):
            stores.append((ref.label, found))
        else:
            lost.append(jobs.lost_store(ref, found))
    named = {ref.label: str(ref.path) for ref in refs}
    for name in names:
        if name in _SOURCES:
            extra: dict[str, Any] = {"properties": True, "body": body} if name in ("messages", "dledger") else {}
            if name == "messages":
                extra["fillers"] = fillers
            frame = load(spark, _SOURCES[name], named, missing="skip", config=config, **extra)
        elif name == "consumer_offsets":
            offsets = ((label, ConsumerOffsets.read(store)) for label, store in stores)
            frame = spark.createDataFrame([row for one in offsets for row in offset_rows(*one)], _OFFSETS)
        elif name == "pop":
            popped = ((label, PopProgress.read(store, newest=None)) for label, store in stores)
            frame = spark.createDataFrame([row for one in popped for row in popped_rows(*one)], _POP)
        elif name == "findings":
            frame = jobs.findings_frame(spark, jobs.verify(spark, paths, config=config, progress=progress))
        else:
            raise UsageError(Text("unknown view {name}", name=name), f"views: {', '.join(VIEWS)}")
        frame.createOrReplaceTempView(name)
    return lost


def sql(
    spark: Any,
    query: str,
    paths: jobs.Paths,
    *,
    config: Path | None = None,
    body: str = "",
    fillers: bool = False,
    progress: Progress | None = None,
) -> tuple[Any, list[dict[str, Any]]]:
    """Run a query; return its DataFrame, and an entry for each store that could not be opened.

    Only views that the query names are created. Errors: UsageError for a query that Spark rejects.
    """
    words = set(re.findall(r"\w+", query.lower()))
    wanted = tuple(name for name in VIEWS if name in words)
    lost = register_views(spark, paths, wanted, config=config, body=body, fillers=fillers, progress=progress)
    try:
        return spark.sql(query), lost
    except Exception as e:
        if type(e).__name__ in ("AnalysisException", "ParseException"):
            first = next((line for line in str(e).splitlines() if line.strip()), "")
            raise UsageError(f"sql: {first}", f"views: {', '.join(VIEWS)}") from None
        raise


_KEY = ("store", "topic", "queue_id", "queue_offset")
_FIELDS = ("commitlog_offset", "size", "tags_code")


def crosscheck_rows(spark: Any, paths: Paths, *, config: Path | None = None, split_size: int | None = None) -> Any:
    """Return a DataFrame of the units that disagree with the log: store, topic, queue_id, queue_offset, status.

    `status` is `missing` (a message without a unit), `dangling` (a unit without a message, except for expired
    messages) or `wrong` (both exist and differ). Columns `log_…` have the values that the log requires, `unit_…` those
    of the unit. Simple consume queues only.
    """
    from pyspark.sql import functions as f

    refs = store_refs(paths, config)
    named = {ref.label: str(ref.path) for ref in refs}
    starts = []
    for ref, found in open_each(refs):
        if isinstance(found, Store):
            starts.append((ref.label, min((log.start for log, _ in found.logs), default=0)))
    options = {"missing": "skip", "splitSize": split_size or jobs.TASK_BYTES, "config": config}
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
