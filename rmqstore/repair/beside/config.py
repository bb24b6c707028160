"""Repairs the broker's configuration, in files and in a RocksDB.

A broken file is replaced by its .bak, or the reverse; offsets after the end of their queue are reduced to it. A
database with changed offsets is replaced as a whole.

Source: RocksDBConsumerOffsetManager#decodeOffset, #putWriteBatch, ConsumerOffsetManagerV2#commitOffset (RocketMQ 5.5.1)
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Literal

from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Finding
from rmqstore.checks.verified import Verified
from rmqstore.files.config import LARGEST, OFFSETS, Committed, committed_offsets, directory_of
from rmqstore.files.rocksdb.database import CannotRead, is_readable, open_database
from rmqstore.files.rocksdb.rows import build_offsets, family_of, offset_key, parse_row, stored_table
from rmqstore.formats.configuration import (
    ConfigJsonError,
    JsonValue,
    build_config_json,
    integer_keys,
    parse_config_object,
)
from rmqstore.formats.properties import SCHEDULE_TOPIC
from rmqstore.repair.plan.plan_builder import PlanBuilder
from rmqstore.repair.rebuild.rocksdb import replace_database, writing
from rmqstore.repair.recovery import LogAfter, Recovery
from rmqstore.texts import Text

_REDUCED = Text("offsets reduced to the end of their queues")
_OFFSETS, _DELAY = codes.CFG_OFFSET_BEYOND, codes.CFG_DELAY_BEYOND
_OFFSET_FILES = ("consumerOffset.json", "delayOffset.json")  # a topic or group may have a number as its name
_ONE_LINE = re.compile(rb"\{\d+:\d+[,}]")
Ends = Callable[[str, int], int | None]


def plan_configs(case: Recovery, draft: PlanBuilder, log: LogAfter) -> None:
    """Add the steps for CFG-BROKEN, CFG-BROKEN-BAK and CFG-SYNTAX: each file from the copy beside it."""
    options, cut = case.options, log.lost_from
    for finding in case.verified.report.findings.listed:
        if finding.code == codes.CFG_SYNTAX and options.wants(finding.code):
            _rewrite(draft, finding)
        if finding.code not in (codes.CFG_BROKEN, codes.CFG_BROKEN_BAK) or not options.wants(finding.code):
            continue
        folder = draft.store.root / finding.queue if finding.queue != "store" else draft.store.root
        path = folder / finding.file
        bak = finding.code == codes.CFG_BROKEN_BAK
        source = folder / finding.file.removesuffix(".bak") if bak else folder / f"{finding.file}.bak"
        try:
            content = draft.store.files.read_small(source, LARGEST)
        except OSError:
            continue
        why = Text("a copy of {source}", source=source.name)
        if cut is not None and not bak and (within := _within(content, path.name, queue_ends(draft, case.verified))):
            content, why = within, Text("{why}, with offsets reduced to the end of their queues", why=why)
        draft.replace(path, content, why, old=Text("not readable as configuration"), like=source)


def _rewrite(draft: PlanBuilder, finding: Finding) -> None:
    """Write a file with the same values in the form that every version reads."""
    path = (draft.store.root / finding.queue if finding.queue != "store" else draft.store.root) / finding.file
    try:
        raw = draft.store.files.read_small(path, LARGEST)
        table = parse_config_object(raw)
        offsets = path.name.removesuffix(".bak") in _OFFSET_FILES
        content = build_offsets_json(table, raw) if offsets else build_config_json(table, _style(raw))
    except (OSError, ConfigJsonError, ValueError):
        return
    old = Text("has {syntax}", syntax=finding.facts["syntax"])
    draft.replace(path, content, Text("the same values, as every version reads them"), old=old, like=path)


def build_offsets_json(table: dict[str, JsonValue], like: bytes) -> bytes:
    """Return a file of offsets in the style of an old one: broker versions quote and indent differently."""
    return build_config_json(_with_integer_keys(table), _style(like))


def _style(raw: bytes) -> Literal["fastjson1", "fastjson2"]:
    return "fastjson1" if _ONE_LINE.search(raw) else "fastjson2"


def plan_offsets(case: Recovery, draft: PlanBuilder, log: LogAfter) -> None:
    """Reduce offsets of consumers and delay levels that are after the end of their queue to that end.

    Only with `--only`, or if the log is truncated: with a later offset, a consumer would skip the next messages.
    """
    cut = log.lost_from
    wanted = [code for code in (_OFFSETS, _DELAY) if cut is not None or code in case.options.only]
    if not wanted or (cut is None and not any(code in case.counts for code in wanted)):
        return
    ends = queue_ends(draft, case.verified)
    config = draft.store.root / "config"
    if _OFFSETS in wanted:
        for name in ("consumerOffset.json", "lmqConsumerOffset.json"):
            _clamp(draft, config / name, ends)
        if (database := directory_of(draft.store, OFFSETS)) is not None:
            reduce_offsets(draft, config / database, ends)
    if _DELAY in wanted:
        _clamp(draft, config / "delayOffset.json", ends)


def queue_ends(draft: PlanBuilder, verified: Verified) -> Ends:
    """Return a function that returns the maximum offset of a queue after the repair, None for an unknown queue."""
    states = verified.report.queues

    def end(topic: str, queue_id: int) -> int | None:
        label = f"{topic}/{queue_id}"
        if label in draft.ends:
            return draft.ends[label]
        state = states.get(label)
        return None if state is None else max(state.max, state.expected_max)

    return end


def _within(content: bytes, name: str, ends: Ends) -> bytes | None:
    """Return a file of offsets without any after the end of its queue; None if there are none, or for another file."""
    change = _clamp_delays if name == "delayOffset.json" else _clamp_consumers
    if name not in (*_OFFSET_FILES, "lmqConsumerOffset.json"):
        return None
    try:
        table = parse_config_object(content)
    except ConfigJsonError:
        return None
    return build_offsets_json(table, content) if change(table, ends) else None


def _clamp(draft: PlanBuilder, path: Path, ends: Ends) -> None:
    try:
        content = _within(draft.store.files.read_small(path, LARGEST), path.name, ends)
    except OSError:
        return
    if content is not None and draft.path(path) not in draft.gone:
        draft.replace(path, content, _REDUCED, old=Text("offsets after the end of their queues"))


def _clamp_consumers(table: dict[str, JsonValue], ends: Ends) -> int:
    changed = 0
    groups = table.get("offsetTable")
    for key, offsets in groups.items() if isinstance(groups, dict) else ():
        if isinstance(offsets, dict):
            topic = key.partition("@")[0]
            changed += _clamp_table(offsets, lambda queue_id, topic=topic: ends(topic, queue_id))  # type: ignore[misc]
    lmq = table.get("lmqOffsetTable")
    for key, offset in list(lmq.items()) if isinstance(lmq, dict) else ():
        end = ends(key.partition("@")[0], 0)
        if end is not None and isinstance(offset, int) and offset > end and isinstance(lmq, dict):
            lmq[key] = end
            changed += 1
    return changed


def _clamp_delays(table: dict[str, JsonValue], ends: Ends) -> int:
    offsets = table.get("offsetTable")
    return _clamp_table(offsets, lambda level: ends(SCHEDULE_TOPIC, level - 1)) if isinstance(offsets, dict) else 0


def _clamp_table(offsets: dict[str, JsonValue], end_of: Callable[[int], int | None]) -> int:
    changed = 0
    for key, offset in list(offsets.items()):
        if not re.fullmatch(r"\d{1,10}", key) or isinstance(offset, bool) or not isinstance(offset, int):
            continue
        end = end_of(int(key))
        if end is not None and offset > end:
            offsets[key] = end
            changed += 1
    return changed


def _with_integer_keys(value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        return integer_keys({k: _with_integer_keys(v) for k, v in value.items()})  # type: ignore[return-value]
    return [_with_integer_keys(v) for v in value] if isinstance(value, list) else value


Rows = Iterator[tuple[bytes, bytes]]


def reduce_offsets(draft: PlanBuilder, directory: Path, end_of: Callable[[str, int], int | None]) -> None:
    """Plan a new database in which no offset is after `end_of` its queue.

    A database that cannot be read stays unchanged: no broker starts with it. Errors: NoSpace, NotReadable.
    """
    if not is_readable():
        return
    try:
        table = stored_table(draft.store, directory.name, OFFSETS)
    except CannotRead as e:
        draft.notes.append(Text("offsets in {path}/ stay unchanged: {e}", path=draft.path(directory), e=e))
        return
    reduced = []
    for one in committed_offsets(table.as_json) or ():
        end = end_of(one.topic, one.queue_id)
        if end is not None and one.offset > end:
            reduced.append(one._replace(offset=end))
    if reduced:
        change_offsets(draft, directory, reduced, _REDUCED)


def change_offsets(draft: PlanBuilder, directory: Path, offsets: Iterable[Committed], why: str) -> None:
    """Plan a new database with the rows of the old one and these offsets. Errors: NoSpace, NotReadable."""
    with writing():
        old = open_database(draft.store.files, directory)
    rows = {family: old.rows(family) for family in old.families}
    own = family_of(directory.name, OFFSETS)
    rows[own] = _changed(rows.get(own, iter(())), directory.name, offsets)
    replace_database(draft, directory, rows, why)


def _changed(rows: Rows, directory: str, offsets: Iterable[Committed]) -> Rows:
    """Yield the rows in key order with the new offsets; other queues in the same row keep theirs."""
    new: dict[bytes, dict[str, JsonValue]] = defaultdict(dict)
    for one in offsets:
        new[offset_key(directory, one.group, one.topic, one.queue_id)][str(one.queue_id)] = one.offset
    left = sorted(new, reverse=True)
    for key, value in rows:
        while left and left[-1] < key:
            added = left.pop()
            yield added, build_offsets(directory, new[added])
        if left and left[-1] == key:
            left.pop()
            found = parse_row(directory, OFFSETS, key, value)
            known = found[1] if found is not None and isinstance(found[1], dict) else {}
            yield key, build_offsets(directory, known | new[key])
        else:
            yield key, value
    for added in reversed(left):
        yield added, build_offsets(directory, new[added])
