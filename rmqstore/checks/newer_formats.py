"""What a store has that an older broker version cannot read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rmqstore.brokers.rules.forecast import StartForecast
from rmqstore.brokers.rules.versions import rules_for
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Finding
from rmqstore.files.store import QueueKind, Store, StoreKind
from rmqstore.formats.message import BORN_HOST_V6, MAGIC_V2, STORE_HOST_V6, SYS_FLAG_AT


class NewerFormat(NamedTuple):
    """A format, in words that follow "cannot read", and the first version that reads it."""

    words: str
    since: str


_V2 = NewerFormat("records of version 2 (topic names of more than 127 bytes)", "5.1.0")
_IPV6 = NewerFormat("records with IPv6 addresses", "4.6.0")
_BATCH = NewerFormat("queues of type BatchCQ", "5.0.0")
_ROCKSDB = NewerFormat("consume queues in RocksDB", "5.2.0")


def newer_formats(store: Store, forecast: StartForecast) -> list[NewerFormat]:
    """Return what stops the forecast's version in the log, and the kinds of queues that it does not know."""
    rules = rules_for(forecast.version)
    found: list[NewerFormat] = []
    for magic, sys_flag in _at_stop(store, forecast):
        if magic == MAGIC_V2 and not rules.v2:
            found.append(_V2)
        if sys_flag & (BORN_HOST_V6 | STORE_HOST_V6) and not rules.ipv6:
            found.append(_IPV6)
    if not rules.batch_queues and any(files.queue.files for files in store.consume_queues(QueueKind.BATCH)):
        found.append(_BATCH)
    if not rules.rocksdb_queues and store.kind is StoreKind.ROCKSDB:
        found.append(_ROCKSDB)
    return list(dict.fromkeys(found))


def _at_stop(store: Store, forecast: StartForecast) -> Iterator[tuple[int, int]]:
    """Yield magic and SYSFLAG of the record at which the start stops, in each log that has that offset."""
    if forecast.commitlog_stop is None:
        return
    for log, before in store.logs:
        at = forecast.commitlog_stop + before
        raw = log.pread(SYS_FLAG_AT + 4, at) if log.find(at) is not None else b""
        if len(raw) == SYS_FLAG_AT + 4:
            yield int.from_bytes(raw[4:8], "big", signed=True), int.from_bytes(raw[SYS_FLAG_AT:], "big")


def newer_finding(newer: list[NewerFormat], forecast: StartForecast) -> Finding:
    """Return BR-TOO-OLD for a version that cannot read these formats."""
    since = max((one.since for one in newer), key=lambda version: tuple(map(int, version.split("."))))
    facts: dict[str, Fact] = {"cannot_read": "; ".join(one.words for one in newer), "readable_from": since}
    return Finding(codes.BR_TOO_OLD, "store", facts=facts | {"broker": forecast.version})
