"""Damaged stores for which a forecast must predict exactly what the real broker does.

A case consists of a store, damage to a copy of it, the version that then starts, and its settings. The results of the
real classes are recorded in `answers.json` (`tests/real_broker/test_simulation.py --record`), so that the tests need no
Java.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from tests.forecast.damages import (
    abort,
    batch_last_unit,
    blank,
    blank_at_end,
    body,
    checkpoint_directory,
    checkpoint_gone,
    checkpoint_has,
    checkpoint_is,
    delay_no_number,
    extension,
    file_in_place,
    header,
    last_is_old,
    more_log,
    no_batch_queues,
    no_checkpoint_times,
    no_index,
    no_log_file,
    no_log_files,
    no_queues,
    no_rocksdb_queues,
    no_topic,
    no_topics_json,
    put,
    queue_early_unit,
    queue_empty_file,
    queue_full_then_zero_file,
    queue_last_unit,
    queue_middle_unit,
    queue_of_pre_blanks,
    queue_stray,
    queue_units,
    queue_zero_file,
    rows_damaged,
    rows_not_a_directory,
    size_is,
    swapped_log_files,
    zeros,
)
from tests.forecast.dledger_damages import DLEDGER_DAMAGES, both
from tests.forecast.places import LOG_SIZE, Damage
from tests.stores import VERSIONS

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
_ABORT_ONLY = {  # cases in which a kept checkpoint makes a difference
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
    """Yield all cases; their names are unique."""
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
            for exit_name, more in _EXITS[:1] if version in ("4.9.7", "5.1.4") else _EXITS[::2]:
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
        for exit_name, more in _EXITS[::2]:
            for store in (f"{version}-dledger", f"{version}-dledger-killed", "5.4.0-dledger3-n2"):
                case = f"{version} duplication in DLedger mode on {store}, {exit_name}"
                yield Case(case, store, version, more, {"duplicationEnable": "true"}, start=False)
        if version in ("5.4.0", "5.5.1"):
            for exit_name, more in _EXITS[::2]:
                settings = {**DLEDGER, "writeWithoutMmap": "true"}
                case = f"{version} first DLedger start without mapping, {exit_name}"
                yield Case(case, f"{version}-before-dledger", version, more, settings, start=False)
    yield from _other_stores()
    yield from _settings()
    yield from _in_the_way()
    yield from _swapped()
    yield from _by_logics_offset()
    yield from _new_settings()
    yield from _with_rocksdb()
    yield from _queues_in_rocksdb()
    yield from _light_queues()
    yield from _dledger_offset()


def _other_stores() -> Iterator[Case]:
    killed = [f"{version}-killed" for version in VERSIONS]
    for store in (*killed, "4.9.7-ipv6", "5.4.0-ipv6", "5.5.1-ipv6", "5.4.0-slave"):
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
    for store in ("5.1.4-formats", "5.4.0-formats", "5.5.1-formats"):
        for what, damage in batch.items():
            for exit_name, more in _EXITS[::2]:
                damages = (*((damage,) if damage else _NOTHING), *more)
                yield Case(f"{store} {what}, {exit_name}", store, store.split("-")[0], damages)
    for store in (*(f"{version}-dledger-mixed" for version in VERSIONS), "5.4.0-dledger3-n2"):
        for exit_name, more in _EXITS:
            yield Case(f"{store} undamaged, {exit_name}", store, store.split("-")[0], more, start=False)
    for version, store in (
        ("4.9.7", "5.4.0-clean"),
        ("4.9.7", "5.1.4-formats"),
        ("5.1.4", "4.9.7-killed"),
        ("5.4.0", "5.1.4-killed"),
        ("5.4.0", "5.5.1-flushed-killed"),
        ("5.5.1", "5.4.0-killed"),
        ("5.5.1", "4.9.7-clean"),
    ):
        for exit_name, more in _EXITS:
            yield Case(f"{version} over {store}, {exit_name}", store, version, more)


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
        again = {"recheckReputOffsetFromCq": "true"} if version != "4.9.7" else {}  # re-dispatch of the whole log
        half = both(no_queues, header(1, 20, "size"))
        yield from each("queues, size of an old record", store, half, again)
        yield from each("queues, sizes of old records", store, both(half, header(1, 60, "magic")), again)
        yield from each("topic, sync flush", store, no_topic, {"flushDiskType": "SYNC_FLUSH"})
        if version != "4.9.7":
            yield from each("duplicationEnable", store, None, {"duplicationEnable": "true"})
            recheck = {"recheckReputOffsetFromCq": "true"}
            yield from each("queues, recheck", store, no_queues, recheck)
            yield from each("last unit, recheck", store, queue_last_unit, recheck)
            yield from each("topic, recheck", store, no_topic, recheck)
        extended = {"enableConsumeQueueExt": "true", "mappedFileSizeConsumeQueueExt": "2000"}
        yield from each("extension of the wrong length", store, extension(2001), extended)
        yield from each("empty extension", store, extension(0), extended)
        yield from each("extension of the wrong length, switched off", store, extension(2001), {})
    newest = "5.4.0-clean"
    yield from each("forceVerifyPropCRC without the property", newest, None, {"forceVerifyPropCRC": "true"})
    for most in ("0", "1", "3"):
        cap = {"commitLogRecoverMaxNum": most}
        for what in ("undamaged", "all queues missing", "first record's body", "zero file behind"):
            yield from each(f"{what}, commitLogRecoverMaxNum={most}", newest, _PLAIN[what], cap)
    both_kinds = {"rocksdbCQDoubleWriteEnable": "true"}  # the first start with it creates the RocksDB
    yield from each("topic, first double write", newest, no_topic, both_kinds)
    yield from each("last unit, first double write", newest, queue_last_unit, both_kinds)
    ended = ("5.4.0-dledger", "5.4.0", (abort,), both_kinds)
    yield Case("5.4.0-dledger first double write, abort", *ended, start=False)
    force = {"forceVerifyPropCRC": "true"}
    yield from each("forceVerifyPropCRC", "5.4.0-formats", None, force)
    yield from each("forceVerifyPropCRC, queue id", "5.4.0-formats", header(-1, 4, "queue_id"), force)


def _in_the_way() -> Iterator[Case]:
    """Yield cases with a file in place of a directory: dispatch stops at the first message that needs the directory.

    The broker tries that message 30 times, one second apart, so there are few of these cases.
    """
    for store in ("4.9.7-clean", "5.4.0-clean"):
        name = f"{store} file in place of the queues, clean"
        yield Case(name, store, store.split("-")[0], (file_in_place("consumequeue"),))
    for store in ("5.1.4-clean", "5.4.0-killed"):
        damages = (file_in_place("consumequeue/{topic}"), *_EXITS[2][1])
        yield Case(f"{store} file in place of a topic, {_EXITS[2][0]}", store, store.split("-")[0], damages)


def _swapped() -> Iterator[Case]:
    """Yield cases in which units of the later file are added too early to a truncated queue, and truncated again."""
    for version in VERSIONS:
        for label, exit_ in _EXITS:
            name = f"{version}-killed swapped files and an early unit zero, {label}"
            damages = (swapped_log_files(-5, -2), queue_early_unit, *exit_)
            yield Case(name, f"{version}-killed", version, damages)


_ACCELERATED = {"enableAcceleratedRecovery": "true"}
_BOUNDED = {"checkCommitLogOffsetOnRecover": "true"}
_BOTH_KINDS = {"rocksdbCQDoubleWriteEnable": "true", "combineCQUseRocksdbForLmq": "true"}
_PREFERS = {"combineCQPreferCQType": "defaultRocksDB"}
_ASSIGNS = {"combineAssignOffsetCQType": "defaultRocksDB"}
_SELECTS = {"rocksdbCQSelectiveDoubleWriteEnable": "true"}
_AT = checkpoint_has
_LATE, _LAST = 412_368, 445_945 - 1_000  # of 5.5.1-clean: the start of a record in the last file, and an odd offset


def _by_logics_offset() -> Iterator[Case]:
    """Yield cases of the rules that 5.5.0 changed, on stores of 5.5.1."""
    flushed: dict[str, tuple[Damage, ...]] = {
        "undamaged": (),
        "all queues missing": (no_queues,),
        "topic's queues missing": (no_topic,),
        "last unit missing": (queue_last_unit,),
        "last log file missing": (no_log_file(-1),),
        "body in the file before the last": (body(-2),),
    }
    for store in ("5.5.1-flushed", "5.5.1-flushed-killed"):
        for what, damages in flushed.items():
            for exit_name, more in _EXITS[: 1 if store == "5.5.1-flushed" else 0] + _EXITS[1:2]:
                for name, settings in (("", {}), (", accelerated", _ACCELERATED)):
                    case = f"{store} {what}{name}, {exit_name}"
                    yield Case(case, store, "5.5.1", (*damages, *more), settings)
        yield Case(f"5.4.0 on {store}, queues missing, abort", store, "5.4.0", (no_queues, abort))
        settings = {"messageIndexSafe": "true", **_ACCELERATED}
        yield Case(f"{store} accelerated, messageIndexSafe, abort", store, "5.5.1", (abort,), settings)


def _new_settings() -> Iterator[Case]:
    """Yield cases of the checkpoint's offset, and of settings that 5.5.0 added or changed, on a store without it."""
    table: dict[str, tuple[tuple[Damage, ...], Mapping[str, str]]] = {
        "offset in the last file": ((_AT(logics_physical_offset=_LATE), no_queues), {}),
        "offset in an old file": ((_AT(logics_physical_offset=70_000), no_queues), {}),
        "offset after the log": ((_AT(logics_physical_offset=1 << 40), no_queues), {}),
        "offset negative": ((_AT(logics_physical_offset=-5), no_queues), {}),
        "no offset, logics time of the log": ((_AT(logics_msg_timestamp=1 << 42), no_queues), {}),
        "accelerated, no offset": ((), _ACCELERATED),
        "accelerated, no offset, no time": ((_AT(physic_msg_timestamp=0),), _ACCELERATED),
        "accelerated": ((_AT(logics_physical_offset=_LATE),), _ACCELERATED),
        "accelerated, queues missing": ((_AT(logics_physical_offset=_LATE), no_queues), _ACCELERATED),
        "accelerated, inside a record": ((_AT(logics_physical_offset=_LAST),), _ACCELERATED),
        "accelerated, after the log": ((_AT(logics_physical_offset=450_000),), _ACCELERATED),
        "accelerated, after the files": ((_AT(logics_physical_offset=1 << 20),), _ACCELERATED),
        "accelerated, one file": (
            (_AT(logics_physical_offset=70_000),),
            {**_ACCELERATED, "commitLogRecoverMaxNum": "1"},
        ),
        "accelerated, first record bad": ((_AT(logics_physical_offset=_LATE), body(-1, 0)), _ACCELERATED),
        "accelerated, queues reach further": ((_AT(logics_physical_offset=200_000),), _ACCELERATED),
        "offset check": ((header(-2, 20, "physical_offset", 4),), _BOUNDED),
        "offset check, in the same file": ((header(-2, 20, "physical_offset", -1, 4),), _BOUNDED),
        "offset check, old file behind": ((last_is_old,), _BOUNDED),
        "half messages in RocksDB": ((), {"transRocksDBEnable": "true"}),
        "index in RocksDB": ((no_queues,), {"indexRocksDBEnable": "true"}),
        "first double write": ((no_topic,), _BOTH_KINDS),
        "first double write, separate": (
            (queue_last_unit,),
            {**_BOTH_KINDS, "useSeparateStorePathForRocksdbCQ": "true"},
        ),
        "selective, prefers RocksDB": ((), {**_BOTH_KINDS, **_SELECTS, **_PREFERS}),
        "selective, assigns by RocksDB": ((), {**_BOTH_KINDS, **_SELECTS, **_ASSIGNS}),
        "light queues, assigns by RocksDB": ((), {**_BOTH_KINDS, **_ASSIGNS}),
        "loads no kind": ((), {**_BOTH_KINDS, "combineCQLoadingCQTypes": ";"}),
        "loads files only": ((), {**_BOTH_KINDS, "combineCQLoadingCQTypes": "default"}),
    }
    for version in ("5.5.0", "5.5.1"):
        for what, (damages, settings) in table.items():
            if version == "5.5.0" and "elective" in what:
                continue
            for exit_name, more in _EXITS[:2]:
                if exit_name == "clean" and "queues reach" in what:
                    continue
                case = f"{version} on 5.5.1-clean, {what}, {exit_name}"
                yield Case(case, "5.5.1-clean", version, (*damages, *more), settings)
        yield Case(
            f"{version} on 5.5.1-clean, zero queue file, abort",
            "5.5.1-clean",
            version,
            (queue_full_then_zero_file, abort),
        )


def _with_rocksdb() -> Iterator[Case]:
    """Yield cases of rows in RocksDB that recovery considers: index, half messages, queues written twice."""
    for store in ("5.5.1-index-rocksdb", "5.5.1-trans-rocksdb", "5.4.0-index-rocksdb", "5.4.0-trans-rocksdb"):
        for version in ("5.4.0", "5.5.1"):
            for exit_name, more in _EXITS:
                for what, damage in (("undamaged", ()), ("queues missing", (no_queues,))):
                    case = f"{version} on {store}, {what}, {exit_name}"
                    yield Case(case, store, version, (*damage, *more))
    originals = {"transWriteOriginTransHalfEnable": "true"}
    for store in ("5.5.1-trans-rocksdb", "5.4.0-trans-rocksdb"):
        for version in ("5.4.0", "5.5.1"):
            for exit_name, more in _EXITS[:2]:
                for what, damage in (("rows damaged", (rows_damaged,)), ("no rows", (rows_not_a_directory,))):
                    for name, settings in (("", {}), (", originals too", originals)):
                        case = f"{version} on {store}, {what}{name}, {exit_name}"
                        yield Case(case, store, version, (*damage, *more), settings)
    for exit_name, more in _EXITS[:2]:  # there are no half messages
        settings = {"transRocksDBEnable": "true"}
        case = f"5.4.0-clean rows damaged, half messages in RocksDB, {exit_name}"
        yield Case(case, "5.4.0-clean", "5.4.0", (rows_damaged, *more), settings)
    for store in ("5.5.1-rocksdb-double", "5.5.1-rocksdb-double-separate", "5.5.1-rocksdb-double-killed"):
        for exit_name, more in _EXITS[:2]:
            for what, damage in (("undamaged", ()), ("topic's queues missing", (no_topic,))):
                for name, settings in (("", {}), (", accelerated", _ACCELERATED)):
                    full = {**_BOTH_KINDS, **settings}
                    yield Case(f"{store} {what}{name}, {exit_name}", store, "5.5.1", (*damage, *more), full)
    other = {**_BOTH_KINDS, "useSeparateStorePathForRocksdbCQ": "true"}
    yield Case("5.5.1-rocksdb-double in the other place", "5.5.1-rocksdb-double", "5.5.1", (), other)
    other = {**_BOTH_KINDS, "useSeparateStorePathForRocksdbCQ": "false"}
    separate = "5.5.1-rocksdb-double-separate"
    yield Case("5.5.1-rocksdb-double-separate in the other place", separate, "5.5.1", (), other)


def _queues_in_rocksdb() -> Iterator[Case]:
    """Yield cases of stores whose queues are only in RocksDB, in both places, and of databases that are gone."""
    table: dict[str, tuple[tuple[Damage, ...], Mapping[str, str]]] = {
        "undamaged": ((), {}),
        "accelerated": ((), _ACCELERATED),
        "no database": ((no_rocksdb_queues,), {}),
        "no database, every file": ((no_rocksdb_queues,), {"commitLogRecoverMaxNum": "1000"}),
        "no database, accelerated": ((no_rocksdb_queues,), _ACCELERATED),
        "body in the file before the last": ((body(-2),), {}),
        "last log file missing": ((no_log_file(-1),), {}),
    }
    for store in ("5.4.0-rocksdb", "5.5.1-rocksdb", "5.5.1-rocksdb-separate"):
        for what, (damages, settings) in table.items():
            for exit_name, more in _EXITS[:2]:
                case = f"{store} {what}, {exit_name}"
                yield Case(case, store, store.split("-")[0], (*damages, *more), settings)
    for version, store, separate in (
        ("5.5.1", "5.5.1-rocksdb", "true"),
        ("5.5.1", "5.5.1-rocksdb-separate", "false"),
        ("5.5.0", "5.5.1-rocksdb-separate", "true"),
        ("5.5.0", "5.5.1-rocksdb-separate", "false"),
        ("5.4.0", "5.5.1-rocksdb-separate", "true"),
        ("5.4.0", "5.5.1-rocksdb", "false"),
        ("5.5.1", "5.4.0-rocksdb", "false"),
    ):
        for exit_name, more in _EXITS[:2]:
            case = f"{version} over {store}, separate={separate}, {exit_name}"
            yield Case(case, store, version, more, {"useSeparateStorePathForRocksdbCQ": separate})


def _light_queues() -> Iterator[Case]:
    """Yield cases of double write: parts that differ or are gone, light queues, the switch; and of an unmapped log."""
    table: dict[str, tuple[tuple[Damage, ...], Mapping[str, str]]] = {
        "undamaged": ((), {}),
        "no database": ((no_rocksdb_queues,), {}),
        "last unit missing": ((queue_last_unit,), {}),
        "body in the file before the last": ((body(-2),), {}),
        "without double write": ((), {"rocksdbCQDoubleWriteEnable": "false"}),
    }
    for store in ("5.5.1-lmq", "5.5.1-lite", "5.5.1-rocksdb-double", "5.5.1-rocksdb-double-separate", "5.5.1-nommap"):
        for what, (damages, settings) in table.items():
            double = store.startswith("5.5.1-rocksdb-double")
            if (double and what == "undamaged") or ("nommap" in store and ("data" in what or "double" in what)):
                continue
            for exit_name, more in _EXITS[:2]:
                both = _BOTH_KINDS if double else {}
                yield Case(f"{store} {what}, {exit_name}", store, "5.5.1", (*damages, *more), {**both, **settings})
    for what, damage in (("last unit missing", queue_last_unit), ("last log file missing", no_log_file(-1))):
        settings = {**_BOTH_KINDS, **_PREFERS}
        case = f"5.5.1-rocksdb-double {what}, prefers RocksDB"
        yield Case(case, "5.5.1-rocksdb-double", "5.5.1", (damage,), settings)
    for version in ("5.4.0", "5.5.0"):
        for store in ("5.5.1-lmq", "5.5.1-nommap"):
            for exit_name, more in _EXITS[:2]:
                yield Case(f"{version} over {store}, {exit_name}", store, version, more)
    for what in ("size negative", "size largest"):
        for exit_name, more in _EXITS[:2]:
            damages = (*((size_damage,) if (size_damage := _PLAIN[what]) else _NOTHING), *more)
            yield Case(f"5.5.0 on 5.5.1-clean, {what}, {exit_name}", "5.5.1-clean", "5.5.0", damages)


def _dledger_offset() -> Iterator[Case]:
    """Yield cases of DLedger mode, in which the checkpoint's offset decides too."""
    dledger: dict[str, tuple[Damage, ...]] = {
        "offset in the last file": (_AT(logics_physical_offset=400_000), no_queues),
        "no offset": (no_queues,),
    }
    for what, damages in dledger.items():
        name = f"5.5.1-dledger {what}, abort"
        yield Case(name, "5.5.1-dledger", "5.5.1", (*damages, abort), start=False)


CASES = tuple(cases())
BY_NAME = {case.name: case for case in CASES}
assert len(BY_NAME) == len(CASES), [a.name for a, b in pairwise(sorted(CASES, key=str)) if a.name == b.name]
