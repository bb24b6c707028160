"""Damaged stores for which a forecast must say exactly what the real broker does.

A case is a store, what is done to a copy of it, the version that then starts and its settings. The real answers are
recorded in `answers.json` (by `tests/broker/test_simulation.py --record`), so that they can be checked without Java.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from rmqstore.files.mapped_file_queue import MappedFile
from rmqstore.formats import consumequeue, dledger
from rmqstore.formats.message import BLANK, BLANK_MAGIC, HEAD
from rmqstore.scan.records import scan_file
from rmqstore.scan.tiling import Kind
from tests.damage import cut, flip, overwrite, zero
from tests.stores import VERSIONS

Damage = Callable[[Path], None]
LOG_SIZE = 65536
UNIT = consumequeue.UNIT.size
BODY_AT = HEAD.size
DLEDGER = {"enableDLegerCommitLog": "true", "dLegerGroup": "g", "dLegerSelfId": "n0", "dLegerPeers": "n0-127.0.0.1:0"}


@dataclass(frozen=True, slots=True)
class Case:
    """One start: `name` is unique, `store` a fixture, `version` of the classes that start on the damaged copy."""

    name: str
    store: str
    version: str
    damages: tuple[Damage, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    start: bool = True
    """Whether the store is started too (re-dispatch), or only loaded: in DLedger mode what follows depends on time."""
    sample: bool = False
    """Whether it belongs to the fixed sample that runs the real classes every time."""

    def damage(self, store: Path) -> None:
        for one in self.damages:
            one(store)

    def __str__(self) -> str:
        return self.name


# --- what is in a store -------------------------------------------------------------------------------------------


def log_files(store: Path) -> list[Path]:
    return sorted(p for p in (store / "commitlog").iterdir() if p.name.isdigit())


def records(path: Path) -> list[int]:
    """Positions of the good records of a commitlog file."""
    runs = scan_file(MappedFile(path, int(path.name), LOG_SIZE, LOG_SIZE))
    return [
        at - int(path.name) for r in runs if r.kind is Kind.RECORDS and r.columns for at in r.columns.offset.tolist()
    ]


def entries(path: Path) -> list[int]:
    """Positions of the entries of a DLedger data file."""
    out, at, data = [], 0, path.read_bytes()
    while at + dledger.ENTRY.size <= len(data):
        entry = dledger.ENTRY.parse(data, at)
        if entry["magic"] != dledger.MAGIC:
            break
        out.append(at)
        at += entry["size"]
    return out


def topic(store: Path) -> Path:
    return next(p for p in sorted((store / "consumequeue").iterdir()) if p.name.startswith("Order"))


def queue_end(store: Path) -> tuple[Path, int]:
    """File and position of the first free unit of queue 0 of the topic."""
    for path in sorted((topic(store) / "0").iterdir()):
        units = consumequeue.UNIT.array(path.read_bytes())
        free = [i for i, size in enumerate(units["size"].tolist()) if size <= 0]
        if free:
            return path, free[0] * UNIT
    raise AssertionError("the queue has no free unit")


def group(store: Path) -> Path:
    return next(store.glob("dledger-*"))


def data_files(store: Path) -> list[Path]:
    return sorted((group(store) / "data").iterdir())


# --- damages ------------------------------------------------------------------------------------------------------


def abort(store: Path) -> None:
    (store / "abort").write_bytes(b"")


def no_checkpoint_times(store: Path) -> None:
    path = store / "checkpoint"
    path.write_bytes(bytes(path.stat().st_size))


def body(file: int, record: int = 10) -> Damage:
    """Flips a byte of the first body from a record on."""

    def damage(store: Path) -> None:
        path = log_files(store)[file]
        at = next(at for at in records(path)[record:] if HEAD.parse(path.read_bytes(), at)["body_length"] > 0)
        flip(path, at + BODY_AT)

    return damage


def header(file: int, record: int, name: str, byte: int = -1, bit: int = 0) -> Damage:
    """Flips a bit of a header field; `byte` counts from the field's end when negative."""

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
    """A BLANK that says `size` over the head of a record."""

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


def more_log(content: int | None) -> Damage:
    """One file more: zeros, or the bytes of file `content`, as a recycled file has them."""

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


def no_queues(store: Path) -> None:
    shutil.rmtree(store / "consumequeue")


def queue_empty_file(store: Path) -> None:
    cut(sorted((topic(store) / "0").iterdir())[-1], 0)


def queue_units(address: int) -> Damage:
    """Five units that no message has, behind the end of a queue."""

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
    """A file, or with None a directory, that does not belong."""

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


def checkpoint_gone(store: Path) -> None:
    (store / "checkpoint").unlink()


def checkpoint_directory(store: Path) -> None:
    (store / "checkpoint").unlink()
    (store / "checkpoint").mkdir()


def no_index(store: Path) -> None:
    shutil.rmtree(store / "index")


def entry(file: int, number: int, name: str, byte: int = -1, bit: int = 0) -> Damage:
    """Flips a bit in the header of a DLedger entry."""

    def damage(store: Path) -> None:
        path = data_files(store)[file]
        size = next(f.size for f in dledger.ENTRY if f.name == name)
        flip(path, entries(path)[number] + dledger.ENTRY.at(name) + byte % size, bit)

    return damage


def entry_body(file: int, number: int, at: int = 100) -> Damage:
    def damage(store: Path) -> None:
        path = data_files(store)[file]
        flip(path, entries(path)[number] + dledger.ENTRY.size + at)

    return damage


def entry_zeros(file: int, number: int, length: int) -> Damage:
    def damage(store: Path) -> None:
        path = data_files(store)[file]
        zero(path, entries(path)[number], length)

    return damage


def no_data_file(file: int) -> Damage:
    return lambda store: data_files(store)[file].unlink()


def more_data(store: Path) -> None:
    last = data_files(store)[-1]
    last.with_name(f"{int(last.name) + LOG_SIZE:020d}").write_bytes(bytes(LOG_SIZE))


def index_unit(number: int, name: str) -> Damage:
    def damage(store: Path) -> None:
        path = next((group(store) / "index").iterdir())
        flip(path, number * dledger.INDEX_UNIT.size + dledger.INDEX_UNIT.at(name) + 3)

    return damage


def no_dledger_index(store: Path) -> None:
    for path in (group(store) / "index").iterdir():
        path.unlink()


def dledger_checkpoint(text: str | None) -> Damage:
    def damage(store: Path) -> None:
        path = group(store) / "checkpoint"
        if text is None:
            path.unlink()
        else:
            path.write_text(text)

    return damage


def in_group(path: str, content: bytes = b"") -> Damage:
    def damage(store: Path) -> None:
        (group(store) / path).write_bytes(content)

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


# --- cases --------------------------------------------------------------------------------------------------------

_EXITS: tuple[tuple[str, tuple[Damage, ...]], ...] = (
    ("clean", ()),
    ("abort", (abort,)),
    ("abort, no checkpoint", (abort, no_checkpoint_times)),
)
_NOTHING: tuple[Damage, ...] = ()

_PLAIN: dict[str, Damage | None] = {
    "undamaged": None,
    "body in an old file": body(-4),
    "body in the file before the last": body(-2),
    "body in the last file": body(-1, 5),
    "magic": header(-2, 20, "magic", 0),
    "body length": header(-2, 20, "body_length"),
    "body length negative": header(-2, 20, "body_length", 0, 7),
    "physical offset": header(-2, 20, "physical_offset"),
    "queue offset": header(-2, 20, "queue_offset"),
    "queue id": header(-2, 20, "queue_id"),
    "IPv6 flag": header(-2, 20, "sys_flag", -1, 4),
    "prepared flag": header(-2, 20, "sys_flag", -1, 2),
    "size one off": header(-2, 20, "size"),
    "size negative": size_is(-2, 20, -200),
    "size largest": size_is(-2, 20, 0x7FFFFFFF),
    "size 500 MiB": size_is(-2, 20, 500 << 20),
    "size 1 MiB": size_is(-2, 20, 1 << 20),
    "size 0": size_is(-2, 20, 0),
    "zero page": zeros(-2, 20, 4096),
    "200 zeros": zeros(-3, 20, 200),
    "first record's magic": header(-2, 0, "magic", 0),
    "first record's size": header(-1, 0, "size"),
    "first record's body": body(-2, 0),
    "BLANK at the end": blank_at_end,
    "BLANK in the middle": blank(-3, 20, 1234),
    "BLANK with a huge size": blank(-3, 20, 0x7FFFFFF0),
    "BLANK with a negative size": blank(-3, 20, -5),
    "DELAY no number": delay_no_number,
    "zero file behind": more_log(None),
    "old file behind": more_log(0),
    "last file is an old one": last_is_old,
    "first log file missing": no_log_file(0),
    "middle log file missing": no_log_file(3),
    "log file before the last missing": no_log_file(-2),
    "last log file missing": no_log_file(-1),
    "no log file": no_log_files,
    "topic's queues missing": no_topic,
    "all queues missing": no_queues,
    "0-byte queue file": queue_empty_file,
    "bogus units beyond the log": queue_units(10_000_000),
    "bogus units inside the log": queue_units(100),
    "last unit missing": queue_last_unit,
    "unit in the middle zero": queue_middle_unit,
    "zero queue file behind": queue_zero_file,
    "full queue file, then a zero one": queue_full_then_zero_file,
    "pre-blanks only": queue_of_pre_blanks,
    "stray file in a queue": queue_stray,
    "stray file in consumequeue": put("consumequeue/stray.txt", b"x"),
    "stray directory in a topic": put("consumequeue/Foo/notnum/x", b"1"),
    "file for a queue": put("consumequeue/Foo/7", b"1"),
    "empty queue": put("consumequeue/Foo/3", None),
    "batch queue of a simple topic": put(f"batchconsumequeue/Foo/0/{0:020d}", bytes(4600)),
    "checkpoint garbage": checkpoint_is(b"\x7f" + b"\xff" * 23),
    "checkpoint negative": checkpoint_is(b"\x80" + bytes(23)),
    "checkpoint missing": checkpoint_gone,
    "checkpoint a directory": checkpoint_directory,
    "no index": no_index,
    "directory in index": put("index/20260101000000000", None),
    "stray file in index": put("index/abc", b"x"),
    "stray file": put("commitlog/notes.txt", b"hello"),
    "0-byte file that sorts last": put("commitlog/zzz"),
    "0-byte file that sorts first": put("commitlog/0a"),
    "right length, wrong name": put("commitlog/00000000000000000000.bak", bytes(LOG_SIZE)),
    "directory in commitlog": put("commitlog/sub", None),
}
_ABORT_ONLY = {  # where it makes a difference that the checkpoint is kept
    *("body in an old file", "body in the file before the last", "first record's body", "old file behind"),
    *("last log file missing", "topic's queues missing", "all queues missing", "0-byte queue file"),
    *("last unit missing", "unit in the middle zero", "full queue file, then a zero one", "pre-blanks only"),
    *(
        "checkpoint garbage",
        "checkpoint negative",
        "checkpoint missing",
        "directory in index",
        "bogus units inside the log",
    ),
}
_ONE_EXIT = {  # the parser's business: the same whatever the exit was
    *("magic", "body length", "body length negative", "physical offset", "queue offset", "queue id", "IPv6 flag"),
    *("prepared flag", "size one off", "size negative", "size largest", "size 500 MiB", "size 1 MiB", "size 0"),
    *("200 zeros", "first record's size", "BLANK in the middle", "BLANK with a huge size", "DELAY no number"),
    *("BLANK with a negative size", "BLANK at the end", "no index", "stray file in index", "empty queue"),
    *("stray file", "0-byte file that sorts last", "0-byte file that sorts first", "right length, wrong name"),
    *("directory in commitlog", "stray file in consumequeue", "stray directory in a topic", "file for a queue"),
    *("stray file in a queue", "batch queue of a simple topic"),
}
_SAMPLE = {
    ("body in an old file", "abort, no checkpoint"),
    ("topic's queues missing", "abort"),
    ("0-byte queue file", "clean"),
    ("bogus units inside the log", "abort, no checkpoint"),
    ("zero page", "clean"),
    ("size largest", "clean"),
    ("last file is an old one", "clean"),
    ("last log file missing", "abort"),
    ("all queues missing", "clean"),
    ("pre-blanks only", "abort"),
}

DLEDGER_DAMAGES: dict[str, Damage | None] = {
    "undamaged": None,
    **{f"pos in file {n}": entry(n, 5, "pos") for n in (-1, -2, -3, -4)},
    **{f"{f} of an entry": entry(-1, 5, f) for f in ("magic", "size", "index", "term", "channel", "body_length")},
    **{f"{f} in the file before": entry(-2, 5, f) for f in ("magic", "size", "index", "term", "body_length")},
    "term rises": entry(-1, 5, "term", 4, 4),
    "first entry of the last file": entry(-1, 0, "pos"),
    "first entry of the third file": entry(-3, 0, "pos"),
    "message body": entry_body(-1, 5),
    "message magic": entry_body(-2, 5, HEAD.at("magic") + 3),
    "zero page in the data": entry_zeros(-2, 10, 4096),
    "zero entry header": entry_zeros(-1, 3, 48),
    "no DLedger checkpoint": dledger_checkpoint(None),
    "empty DLedger checkpoint": dledger_checkpoint(""),
    "committed index too large": dledger_checkpoint("committedIndex=99999\n"),
    "committed index small": dledger_checkpoint("endIndex=5\ncommittedIndex=5\n"),
    "committed index -1": dledger_checkpoint("committedIndex=-1\n"),
    "index unit": index_unit(100, "magic"),
    "late index unit": index_unit(500, "size"),
    "no DLedger index": no_dledger_index,
    "first data file missing": no_data_file(0),
    "middle data file missing": no_data_file(3),
    "data file before the last missing": no_data_file(-2),
    "last data file missing": no_data_file(-1),
    "stray file in data": in_group("data/x.txt", b"1"),
    "stray file in the DLedger index": in_group("index/zz"),
    "right length, wrong name in data": in_group("data/a.bak", bytes(LOG_SIZE)),
    "zero data file behind": more_data,
    "all queues missing": no_queues,
    "topic's queues missing": no_topic,
    "last unit missing": queue_last_unit,
    "bogus units beyond the log": queue_units(10_000_000),
}
_DLEDGER_SAMPLE = {
    ("pos in file -2", "clean"),
    ("pos in file -4", "clean"),
    ("no DLedger index", "abort, no checkpoint"),
}
_FIRST_START: dict[str, Damage | None] = {
    "undamaged": None,
    "zero file behind": more_log(None),
    "BLANK at the end": blank_at_end,
    "body in an old file": body(-4),
    "body in the file before the last": body(-2),
    "no log file": no_log_files,
    "last log file missing": no_log_file(-1),
    "stray file": put("commitlog/x", b"1"),
    "topic's queues missing": no_topic,
}


def cases() -> Iterator[Case]:
    """All cases; names are unique."""
    for version in VERSIONS:
        for what, damage in _PLAIN.items():
            for exit_name, more in _EXITS:
                if (what.startswith("checkpoint") and len(more) > 1) or (
                    exit_name == "abort" and what not in _ABORT_ONLY
                ):
                    continue
                yield Case(
                    f"{version} {what}, {exit_name}",
                    f"{version}-clean",
                    version,
                    (*((damage,) if damage else _NOTHING), *more),
                    sample=(what, exit_name) in _SAMPLE,
                )
        for what, damage in DLEDGER_DAMAGES.items():
            # up to 5.1.4 a crash makes no difference in DLedger mode
            for exit_name, more in _EXITS[:1] if version != "5.4.0" else _EXITS[::2]:
                yield Case(
                    f"{version} DLedger {what}, {exit_name}",
                    f"{version}-dledger",
                    version,
                    (*((damage,) if damage else _NOTHING), *more),
                    start=False,
                    sample=(what, exit_name) in _DLEDGER_SAMPLE,
                )
        for what, damage in _FIRST_START.items():
            for exit_name, more in _EXITS[::2]:
                yield Case(
                    f"{version} first DLedger start {what}, {exit_name}",
                    f"{version}-before-dledger",
                    version,
                    (*((damage,) if damage else _NOTHING), *more),
                    DLEDGER,
                    start=False,
                    sample=(what, exit_name) == ("undamaged", "clean"),
                )
    yield from _other_stores()
    yield from _settings()
    yield from _in_the_way()


def _other_stores() -> Iterator[Case]:
    for store in ("4.9.7-killed", "5.1.4-killed", "5.4.0-killed", "4.9.7-ipv6", "5.4.0-ipv6", "5.4.0-slave"):
        version = store.split("-")[0]
        for what in ("undamaged", "all queues missing", "topic's queues missing", "bogus units inside the log"):
            damage = _PLAIN[what]
            if damage is not None and not store.endswith("killed") and what != "all queues missing":
                continue
            for exit_name, more in _EXITS[::2]:
                damages = (*((damage,) if damage else _NOTHING), *more)
                yield Case(f"{store} {what}, {exit_name}", store, version, damages)
    batch: dict[str, Damage | None] = {
        "undamaged": None,
        "all queues missing": no_queues,
        "no batch queues": no_batch_queues,
        "last batch unit missing": batch_last_unit,
        "no topics.json": no_topics_json,
        "body in the last file": body(-1, 3),
    }
    for store in ("5.1.4-formats", "5.4.0-formats"):
        for what, damage in batch.items():
            for exit_name, more in _EXITS[::2]:
                damages = (*((damage,) if damage else _NOTHING), *more)
                yield Case(f"{store} {what}, {exit_name}", store, store.split("-")[0], damages)
    for store in ("4.9.7-dledger-mixed", "5.1.4-dledger-mixed", "5.4.0-dledger-mixed", "5.4.0-dledger3-n2"):
        for exit_name, more in _EXITS:
            yield Case(f"{store} undamaged, {exit_name}", store, store.split("-")[0], more, start=False)
    for version, store in (
        ("4.9.7", "5.4.0-clean"),
        ("4.9.7", "5.1.4-formats"),
        ("5.1.4", "4.9.7-killed"),
        ("5.4.0", "5.1.4-killed"),
    ):
        for exit_name, more in _EXITS:
            yield Case(f"{version} over {store}, {exit_name}", store, version, more)


def file_in_place(place: str) -> Damage:
    def damage(store: Path) -> None:
        path = store / place.format(topic=topic(store).name)
        shutil.rmtree(path)
        path.write_text("not a directory", "utf-8")

    return damage


def _settings() -> Iterator[Case]:
    def each(name: str, store: str, damage: Damage | None, settings: Mapping[str, str]) -> Iterator[Case]:
        for exit_name, more in _EXITS[::2]:
            damages = (*((damage,) if damage else _NOTHING), *more)
            yield Case(f"{store} {name}, {exit_name}", store, store.split("-")[0], damages, settings)

    for version in VERSIONS:
        store = f"{version}-clean"
        yield from each("body, no CRC check", store, body(-2), {"checkCRCOnRecover": "false"})
        yield from each("body, messageIndexSafe", store, body(-3), {"messageIndexSafe": "true"})
        yield from each("messageIndexSafe", store, None, {"messageIndexSafe": "true"})
        yield from each("topic, sync flush", store, no_topic, {"flushDiskType": "SYNC_FLUSH"})
        if version != "4.9.7":
            yield from each("duplicationEnable", store, None, {"duplicationEnable": "true"})
            recheck = {"recheckReputOffsetFromCq": "true"}
            yield from each("queues, recheck", store, no_queues, recheck)
            yield from each("last unit, recheck", store, queue_last_unit, recheck)
            yield from each("topic, recheck", store, no_topic, recheck)
    newest = "5.4.0-clean"
    yield from each("forceVerifyPropCRC without the property", newest, None, {"forceVerifyPropCRC": "true"})
    for most in ("0", "1", "3"):
        cap = {"commitLogRecoverMaxNum": most}
        for what in ("undamaged", "all queues missing", "first record's body", "zero file behind"):
            yield from each(f"{what}, commitLogRecoverMaxNum={most}", newest, _PLAIN[what], cap)
    force = {"forceVerifyPropCRC": "true"}
    yield from each("forceVerifyPropCRC", "5.4.0-formats", None, force)
    yield from each("forceVerifyPropCRC, queue id", "5.4.0-formats", header(-1, 4, "queue_id"), force)


def _in_the_way() -> Iterator[Case]:
    """A file in the place of a directory: nothing is put from the first message on that no file can be made for.

    The broker tries that one 30 times, a second each, so there are few of these.
    """
    for store in ("4.9.7-clean", "5.4.0-clean"):
        name = f"{store} file in place of the queues, clean"
        yield Case(name, store, store.split("-")[0], (file_in_place("consumequeue"),))
    for store in ("5.1.4-clean", "5.4.0-killed"):
        damages = (file_in_place("consumequeue/{topic}"), *_EXITS[2][1])
        yield Case(f"{store} file in place of a topic, {_EXITS[2][0]}", store, store.split("-")[0], damages)


CASES = tuple(cases())
BY_NAME = {case.name: case for case in CASES}
assert len(BY_NAME) == len(CASES), [a.name for a, b in pairwise(sorted(CASES, key=str)) if a.name == b.name]
