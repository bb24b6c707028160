"""What a store has that an older broker version cannot read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from rmqstore.brokers.rules.forecast import StartForecast
from rmqstore.brokers.rules.versions import rules_for, version_number
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Finding
from rmqstore.files.config import METADATA, OFFSETS, V2, directory_of
from rmqstore.files.store import QueueKind, Store, StoreKind
from rmqstore.formats.message import BORN_HOST_V6, MAGIC_V2, STORE_HOST_V6, SYS_FLAG_AT
from rmqstore.formats.rocksdbstore import SCAN_OFFSET, TIMER_FAMILY, TRANS_FAMILY
from rmqstore.formats.text import many
from rmqstore.formats.timer import TIMERCHECK_FILE_SIZE, parse_timercheck
from rmqstore.texts import Text, joined

if TYPE_CHECKING:
    from rmqstore.checks.rows.message_rows import MessageRowFacts
    from rmqstore.checks.verified import Verified


class NewerFormat(NamedTuple):
    """A format, in words that follow "cannot read", and the first version that reads it."""

    words: str
    since: str


_V2 = NewerFormat(Text("records of version 2 (topic names of more than 127 bytes)"), "5.1.0")
_IPV6 = NewerFormat(Text("records with IPv6 addresses"), "4.6.0")
_BATCH = NewerFormat(Text("queues of type BatchCQ"), "5.0.0")
_ROCKSDB = NewerFormat(Text("consume queues in RocksDB"), "5.2.0")
_CONFIG = Text("topics, groups and consumer offsets in RocksDB")
_CONFIG_SINCE = {METADATA: "5.4.0", V2: "5.3.2"}
_ROWS_SINCE = "5.4.0"


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
    database = directory_of(store, OFFSETS)
    since = _CONFIG_SINCE.get(database, "5.2.0") if database is not None else forecast.version
    if version_number(forecast.version) < version_number(since):
        found.append(NewerFormat(Text("{config} (config/{database}/)", config=_CONFIG, database=database), since))
    return list(dict.fromkeys(found))


def unserved_messages(store: Store, verified: Verified, version: str) -> list[NewerFormat]:
    """Return messages that wait for a service that `version` does not have: it never delivers them, or decides on them.

    Source: TimerMessageStore (5.0.0), PopConsumerRocksdbStore (5.3.2), TimerMessageRocksDBStore and
    TransMessageRocksDBStore (5.4.0)
    """
    rows = verified.rows
    timed = verified.timer.waiting if verified.timer is not None else 0
    timer_rows = rows.pending_timers if rows is not None else 0
    halves = rows.counts.get(TRANS_FAMILY, 0) if rows is not None else 0
    open_halves = many(halves, "half message in rocksdbstore/", "half messages in rocksdbstore/")
    popped = verified.popped
    not_acknowledged = many(
        popped, "message that POP consumers did not acknowledge", "messages that POP consumers did not acknowledge"
    )
    in_rows = many(timer_rows, "timed message in rocksdbstore/", "timed messages in rocksdbstore/")
    waiting = (
        (timed, NewerFormat(many(timed, "timed message"), "5.0.0")),
        (timer_rows, NewerFormat(in_rows, _timer_since(store, rows))),
        (halves, NewerFormat(open_halves, _ROWS_SINCE)),
        (popped, NewerFormat(not_acknowledged, "5.3.2")),
    )
    return [one for count, one in waiting if count and version_number(version) < version_number(one.since)]


def _timer_since(store: Store, rows: MessageRowFacts | None) -> str:
    """Return the first version that delivers the timed messages that have rows in rocksdbstore/.

    From 5.0.0 on, a broker without these rows reads the timer queue from the position in timercheck on, where it finds
    them if the position is before them (TimerMessageStore#enqueue).
    """
    scanned = rows.positions.get(TIMER_FAMILY, {}).get(SCAN_OFFSET) if rows is not None else None
    raw = store.files.read_at(store.root / "config" / "timercheck", TIMERCHECK_FILE_SIZE, 0)
    return "5.0.0" if parse_timercheck(raw)["last_timer_queue_offset"] < (scanned or 0) else _ROWS_SINCE


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
    since = max((one.since for one in newer), key=version_number)
    facts: dict[str, Fact] = {"cannot_read": joined((one.words for one in newer), "; "), "readable_from": since}
    return Finding(codes.BR_TOO_OLD, "store", facts=facts | {"broker": forecast.version})
