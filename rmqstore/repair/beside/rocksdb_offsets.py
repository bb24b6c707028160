"""Reduces offsets of consumers in a RocksDB of the configuration to the end of their queues."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rmqstore.append.rocksdb.new_database import NewDatabase
from rmqstore.files.config_databases import OFFSETS
from rmqstore.files.rocksdb.config import build_offsets, family_of, parse_row
from rmqstore.files.rocksdb.database import CannotRead, Database, is_readable, open_database
from rmqstore.formats.configjson import JsonValue
from rmqstore.repair.journal.disk import ScratchFolder
from rmqstore.repair.plan.plan_builder import PlanBuilder
from rmqstore.repair.rebuild.rocksdb_swap import Made, swap_in, unwritten

_WHY = "offsets reduced to the end of their queues"
Clamp = Callable[[dict[str, JsonValue]], int]


def clamp_rows(draft: PlanBuilder, directory: Path, clamp: Clamp) -> bool:
    """Plan a new database with the offsets that `clamp` reduces; return whether any of them changes.

    `clamp` gets tables in the form of consumerOffset.json. A database that cannot be read stays unchanged: no broker
    starts with it. Errors: NoSpace, NotReadable.
    Source: RocksDBConsumerOffsetManager#decodeOffset, #putWriteBatch (RocketMQ 5.4.0)
    """
    if not is_readable():
        return False
    folder = ScratchFolder()
    try:
        old = open_database(directory)
        new = NewDatabase(folder.path / "database", old.families)
        changed = sum(_copy(old, new, family, clamp) for family in old.families)
    except CannotRead as e:
        draft.notes.append(f"offsets in {draft.path(directory)}/ stay unchanged: {e}")
        return False
    if not changed:
        return False
    try:
        files = new.finish()
    except CannotRead as e:
        raise unwritten(e) from e
    swap_in(draft, directory, Made(new, files, folder), _WHY)
    return True


def _copy(old: Database, new: NewDatabase, family: str, clamp: Clamp) -> int:
    changed = 0
    for keys, values in old.chunks(family):
        if family == family_of(old.directory.name, OFFSETS):
            clamped = [_clamped(old.directory.name, key, value, clamp) for key, value in zip(keys, values, strict=True)]
            changed += sum(a != b for a, b in zip(values, clamped, strict=True))
            values = clamped
        new.put(family, keys, values)
    return changed


def _clamped(directory: str, key: bytes, value: bytes, clamp: Clamp) -> bytes:
    row = parse_row(directory, OFFSETS, key, value)
    if row is None or not clamp({"offsetTable": dict([row])}):
        return value
    return build_offsets(directory, row[1])
