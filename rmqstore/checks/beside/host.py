"""Limits and the clock of this host, which may keep a broker on it from serving the store. Notes: the broker may run
elsewhere, with other limits.

A broker maps every file of its logs, queues and index, and keeps each of them open. With more mappings than
vm.max_map_count its log has `java.io.IOException: Map failed`, with more open files than allowed `Too many open files`.
An index file is named by the local time of its creation. The files are loaded in the order of their names, and a query
goes back from the last one to the first that begins before the time asked for.

Source: DefaultMappedFile#init, IndexService#load, #queryOffset (RocketMQ 4.9.7 to 5.5.1)
"""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from rmqstore.files.store import Store
from rmqstore.formats import index
from rmqstore.formats.text import many
from rmqstore.texts import Text

MAX_MAP_COUNT = Path("/proc/sys/vm/max_map_count")
OF_JAVA = 3000
"""Mappings and open files that a broker has besides those of its store, about: libraries, threads, connections."""
_LATE = 60_000  # ms; the clock of another host may differ by some seconds
_QUARTER = 15 * 60_000  # ms; time zones differ by multiples of it
_DIGITS = 17


def host_notes(store: Store, last_time: int) -> Iterator[str]:
    """Yield what of this host may stop or mislead a broker; `last_time`: store time of the last message (ms)."""
    if store.part is not None or not store.files.on_this_machine:
        return
    files = mapped_files(store)
    mappings = max_map_count()
    if mappings is not None and files + OF_JAVA > mappings:
        yield Text(
            "a broker maps the {files} of this store; this host allows {limit:,} mappings (vm.max_map_count), of which "
            'Java needs some, too: a start here may end with "Map failed"',
            files=many(files, "file"),
            limit=mappings,
        )
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if allowed != resource.RLIM_INFINITY and files + OF_JAVA > allowed:
        yield Text(
            "a broker keeps the {files} of this store open; this user may have {limit:,} open files here (ulimit -Hn)",
            files=many(files, "file"),
            limit=allowed,
        )
    now = time.time_ns() // 1_000_000
    if last_time > now + _LATE:
        yield Text(
            "the last message was stored after the present time of this host: its clock, or that of the broker, is "
            "wrong, and until then a broker here deletes no file by its age and delivers delayed messages late"
        )
    if len(zones := index_zones(store)) > 1:
        yield Text(
            "the index files were named in different time zones ({first} and {second}): a broker searches them in the "
            "order of their names, and a query by key and time may miss messages",
            first=_zone(zones[0]),
            second=_zone(zones[1]),
        )


def max_map_count() -> int | None:
    """Return vm.max_map_count; None if this host does not tell it."""
    try:
        return int(MAX_MAP_COUNT.read_text("ascii"))
    except (OSError, ValueError):
        return None


def mapped_files(store: Store) -> int:
    """Count the files that a broker maps: of logs, queues, index and timer."""
    logs = [log for log, _ in store.logs]
    if store.dledger is not None:
        logs.append(store.dledger.index)
    if store.timer_log is not None:
        logs.append(store.timer_log)
    queues = sum(len(files.queue.files) for files in store.consume_queues())
    return sum(len(log.files) for log in logs) + queues + len(store.index_files)


def index_zones(store: Store) -> list[int]:
    """Return the time zones in which index files were named, as distances from UTC (ms), in the order of the files.

    A file is named when the first message is indexed, which was stored shortly before; what differs by more than a
    minute from a quarter of an hour is no time zone.
    """
    found: dict[int, None] = {}
    for entry in store.index_files:
        name = entry.path.name
        if len(name) != _DIGITS or not (name.isascii() and name.isdigit()):
            continue
        raw = store.files.read_at(entry.path, index.HEADER.size, 0)
        begin = int(index.HEADER.array(raw)[0]["begin_timestamp"]) if len(raw) == index.HEADER.size else 0
        try:
            named = datetime.strptime(name[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC)
        except ValueError:
            continue
        distance = int(named.timestamp()) * 1000 + int(name[14:]) - begin
        zone = round(distance / _QUARTER) * _QUARTER
        if begin > 0 and abs(distance - zone) < _LATE and abs(zone) <= 14 * 4 * _QUARTER:
            found[zone] = None
    return list(found)


def _zone(distance: int) -> str:
    sign, minutes = "-" if distance < 0 else "+", abs(distance) // 60_000
    return f"UTC{sign}{minutes // 60:02d}:{minutes % 60:02d}"
