"""Stores for the Spark tests: damaged copies, and the results of the local commands for them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import open_store
from rmqstore.formats.message import HEAD
from rmqstore.views.dump.messages import Job, Skipped, read_messages
from rmqstore.views.dump.selection import Selection
from tests import damage
from tests.stores import copy_store, meta

NAMES = ("5.4.0-killed", "5.4.0-dledger-mixed", "5.4.0-formats", "4.9.7-dledger", "5.4.0-ipv6")


def first_log_file(store: Path) -> Path:
    """Return the first file of the log that contains the messages."""
    opened = open_store(store)
    queue = opened.commitlog if opened.commitlog is not None and opened.commitlog.files else None
    if queue is None:
        assert opened.dledger is not None
        queue = opened.dledger.data
    return queue.files[0].path


def damaged_copy(name: str, target: Path) -> Path:
    """Copy a store with damage in its log and in three consume queues.

    The damage of the log crosses borders of splits, and is in a body and in two topics, which the units prove.
    """
    store = copy_store(name, target)
    log, rows = first_log_file(store), local_rows(store)
    body = next(r for r in rows if r["file"] == log.name and r["offset"] > 12_000 and r["body_length"] > 50)
    damage.flip(log, body["offset"] - int(log.name) + HEAD.size + 20)
    sent = [r for r in rows if r["topic"].startswith("Order")]
    for row in (next(r for r in sent if r["offset"] > 50_000), sent[-20]):
        part = next(f for queue, _ in open_store(store).logs if (f := queue.find(row["offset"])) is not None)
        topic = row["topic"].encode()
        at = part.path.read_bytes().index(bytes([len(topic)]) + topic, row["offset"] - part.start)
        damage.flip(part.path, at + 1)
    damage.garble(log, 5000, 300, seed=3)
    damage.garble(log, 29_900, 1200, seed=4)
    for number, file in enumerate(sorted((store / "consumequeue").glob("*/0/0*"))[:3]):
        damage.garble(file, 20, 20, seed=number)
    return store


def without_queues(name: str, target: Path, rename: str) -> Path:
    """Copy a store without its consume queues."""
    store = copy_store(name, target, rename=rename)
    for folder in ("consumequeue", "batchconsumequeue"):
        shutil.rmtree(store / folder, ignore_errors=True)
    return store


def settings_of(name: str) -> dict[str, str]:
    """Return the file sizes of a store's broker, and delay levels that it did not have."""
    sizes = {k: v for k, v in meta(name).broker_conf.items() if k.startswith("mappedFileSize")}
    return {**sizes, "mapperFileSizeBatchConsumeQueue": "13800000", "messageDelayLevel": "2s 3s 4s 5s"}


def conf_file(name: str, target: Path) -> Path:
    """Write these settings to a broker.conf."""
    path = target / f"{name}.conf"
    path.write_text("".join(f"{k}={v}\n" for k, v in settings_of(name).items()), "utf-8")
    return path


def local_rows(store: Path) -> list[dict[str, Any]]:
    """Return the messages as printed by `dump`."""
    job = Job(Selection(), form="row")
    return [
        row for rows in read_messages(open_store(store, BrokerConfig()), "messages", job, Skipped()) for row in rows
    ]


def read_export(spark: Any, output: Path) -> Any:
    """The exported messages as a DataFrame; topics that look like numbers stay text."""
    key = "spark.sql.sources.partitionColumnTypeInference.enabled"
    before = spark.conf.get(key)
    spark.conf.set(key, "false")
    try:
        return spark.read.parquet(str(output))
    finally:
        spark.conf.set(key, before)
