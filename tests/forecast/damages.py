"""Kinds of damage to a plain store: to its log, queues and small files, and files that do not belong there."""

from __future__ import annotations

import shutil
import struct
from dataclasses import replace
from pathlib import Path

from rmqstore.formats import consumequeue
from rmqstore.formats.checkpoint import parse_checkpoint
from rmqstore.formats.message import BLANK, BLANK_MAGIC, HEAD
from tests.damage import cut, flip, overwrite, zero
from tests.forecast.places import LOG_SIZE, UNIT, Damage, log_files, queue_end, records, topic

BODY_AT = HEAD.size


def abort(store: Path) -> None:
    (store / "abort").write_bytes(b"")


def extension(length: int) -> Damage:
    """Create a file of zeros in place of the extension units of queue 0."""

    def damage(store: Path) -> None:
        folder = store / "consumequeue_ext" / topic(store).name / "0"
        folder.mkdir(parents=True)
        (folder / "00000000000000000000").write_bytes(bytes(length))

    return damage


def no_checkpoint_times(store: Path) -> None:
    path = store / "checkpoint"
    path.write_bytes(bytes(path.stat().st_size))


def body(file: int, record: int = 10) -> Damage:
    """Flip a bit of the first body at or after a record."""

    def damage(store: Path) -> None:
        path = log_files(store)[file]
        at = next(at for at in records(path)[record:] if HEAD.parse(path.read_bytes(), at)["body_length"] > 0)
        flip(path, at + BODY_AT)

    return damage


def header(file: int, record: int, name: str, byte: int = -1, bit: int = 0) -> Damage:
    """Flip a bit of a header field; a negative `byte` counts from the end of the field."""

    def damage(store: Path) -> None:
        path = log_files(store)[file]
        size = next(f.size for f in HEAD if f.name == name)
        flip(path, records(path)[record] + HEAD.at(name) + byte % size, bit)

    return damage


def size_is(file: int, record: int, size: int) -> Damage:
    def damage(store: Path) -> None:
        path = log_files(store)[file]
        overwrite(path, records(path)[record], struct.pack(">i", size))

    return damage


def zeros(file: int, record: int, length: int) -> Damage:
    def damage(store: Path) -> None:
        path = log_files(store)[file]
        zero(path, records(path)[record], length)

    return damage


def blank(file: int, record: int, size: int) -> Damage:
    """Overwrite the head of a record with a BLANK of the given size."""

    def damage(store: Path) -> None:
        path = log_files(store)[file]
        overwrite(path, records(path)[record], BLANK.build(size=size, magic=BLANK_MAGIC))

    return damage


def blank_at_end(store: Path) -> None:
    path = log_files(store)[-1]
    last = records(path)[-1]
    at = last + HEAD.parse(path.read_bytes(), last)["size"]
    overwrite(path, at, BLANK.build(size=LOG_SIZE - at, magic=BLANK_MAGIC))


def delay_no_number(store: Path) -> None:
    for path in reversed(log_files(store)):
        at = path.read_bytes().find(b"DELAY\x01")
        if at >= 0:
            overwrite(path, at + 6, b"x")
            return
    raise AssertionError("no delayed message")


def no_log_file(file: int) -> Damage:
    return lambda store: log_files(store)[file].unlink()


def no_log_files(store: Path) -> None:
    for path in log_files(store):
        path.unlink()


def swapped_log_files(one: int, other: int) -> Damage:
    """Swap the content of two log files."""

    def damage(store: Path) -> None:
        first, second = (log_files(store)[n] for n in (one, other))
        content = first.read_bytes()
        first.write_bytes(second.read_bytes())
        second.write_bytes(content)

    return damage


def more_log(content: int | None) -> Damage:
    """Add a log file of zeros, or with the bytes of file `content`, like a recycled file."""

    def damage(store: Path) -> None:
        files = log_files(store)
        name = f"{int(files[-1].name) + LOG_SIZE:020d}"
        files[-1].with_name(name).write_bytes(bytes(LOG_SIZE) if content is None else files[content].read_bytes())

    return damage


def last_is_old(store: Path) -> None:
    files = log_files(store)
    files[-1].write_bytes(files[0].read_bytes())


def no_topic(store: Path) -> None:
    shutil.rmtree(topic(store))


def rows_damaged(store: Path) -> None:
    """Damage the manifest of rocksdbstore/, so that no broker can open it."""
    manifest = next((store / "rocksdbstore").glob("MANIFEST-*"))
    raw = bytearray(manifest.read_bytes())
    raw[len(raw) // 2] ^= 0xFF
    manifest.write_bytes(raw)


def rows_not_a_directory(store: Path) -> None:
    """Put a file in place of rocksdbstore/."""
    shutil.rmtree(store / "rocksdbstore")
    (store / "rocksdbstore").write_text("x")


def no_rocksdb_queues(store: Path) -> None:
    """Remove the database of the consume queues, in whichever place it is."""
    for folder in ("consumequeue", "consumequeue_rocksdb"):
        for path in (store / folder).glob("*"):
            if path.is_file():
                path.unlink()


def no_queues(store: Path) -> None:
    shutil.rmtree(store / "consumequeue")


def queue_empty_file(store: Path) -> None:
    cut(sorted((topic(store) / "0").iterdir())[-1], 0)


def queue_units(address: int) -> Damage:
    """Add five units without messages after the end of a queue."""

    def damage(store: Path) -> None:
        path, at = queue_end(store)
        for i in range(5):
            overwrite(path, at + i * UNIT, consumequeue.UNIT.build(commitlog_offset=address + i * 200, size=150))

    return damage


def queue_last_unit(store: Path) -> None:
    path, at = queue_end(store)
    zero(path, at - UNIT, UNIT)


def queue_middle_unit(store: Path) -> None:
    path, at = queue_end(store)
    zero(path, at // 2 // UNIT * UNIT, UNIT)


def queue_early_unit(store: Path) -> None:
    path, at = queue_end(store)
    zero(path, at // 4 // UNIT * UNIT, UNIT)


def queue_zero_file(store: Path) -> None:
    last = sorted((topic(store) / "0").iterdir())[-1]
    last.with_name(f"{int(last.name) + 2000:020d}").write_bytes(bytes(2000))


def queue_full_then_zero_file(store: Path) -> None:
    path, at = queue_end(store)
    unit = path.read_bytes()[at - UNIT : at]
    overwrite(path, at, unit * ((2000 - at) // UNIT))
    queue_zero_file(store)


def queue_of_pre_blanks(store: Path) -> None:
    queue = topic(store) / "0"
    shutil.rmtree(queue)
    queue.mkdir()
    (queue / f"{0:020d}").write_bytes((consumequeue.PRE_BLANK * 10).ljust(2000, b"\0"))


def queue_stray(store: Path) -> None:
    (topic(store) / "0" / "x.txt").write_bytes(b"1")


def put(path: str, content: bytes | None = b"") -> Damage:
    """Create a file, or with None a directory, that does not belong to the store."""

    def damage(store: Path) -> None:
        target = store / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            target.mkdir()
        else:
            target.write_bytes(content)

    return damage


def checkpoint_is(times: bytes) -> Damage:
    return lambda store: overwrite(store / "checkpoint", 0, times)


def checkpoint_has(**values: int) -> Damage:
    """Set fields of the checkpoint."""

    def damage(store: Path) -> None:
        path = store / "checkpoint"
        path.write_bytes(replace(parse_checkpoint(path.read_bytes()), **values).build())

    return damage


def checkpoint_gone(store: Path) -> None:
    (store / "checkpoint").unlink()


def checkpoint_directory(store: Path) -> None:
    (store / "checkpoint").unlink()
    (store / "checkpoint").mkdir()


def no_index(store: Path) -> None:
    shutil.rmtree(store / "index")


def file_in_place(place: str) -> Damage:
    def damage(store: Path) -> None:
        path = store / place.format(topic=topic(store).name)
        shutil.rmtree(path)
        path.write_text("not a directory", "utf-8")

    return damage


def no_batch_queues(store: Path) -> None:
    shutil.rmtree(store / "batchconsumequeue")


def batch_last_unit(store: Path) -> None:
    path = next((store / "batchconsumequeue").glob("*/0/*"))
    size = consumequeue.BATCH_UNIT.size
    units = consumequeue.BATCH_UNIT.array(path.read_bytes())["size"].tolist()
    zero(path, max(i for i, n in enumerate(units) if n > 0) * size, size)


def no_topics_json(store: Path) -> None:
    for path in (store / "config").glob("topics.json*"):
        path.unlink()
