"""Stores of RocketMQ 5.5.1 with its new settings and files: what the commands say, and what a real 5.5.1 then reads.

Each row is a store, a change to a copy of it, settings, and commands with parts of their output. `{store}` in a command
is the copy; all commands but those of `without_conf` get a broker.conf with the settings of the store's broker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests import damage
from tests.command import run
from tests.forecast.damages import (
    abort,
    checkpoint_gone,
    checkpoint_has,
    no_log_file,
    no_queues,
    queue_full_then_zero_file,
    queue_last_unit,
)
from tests.forecast.places import Damage, log_files
from tests.real_broker.oracle import Oracle
from tests.rocksdb_rows import need_rocksdict
from tests.stores import copy_store, meta, write_broker_conf
from tests.untouched import snapshot

need_rocksdict()


@dataclass(frozen=True, slots=True)
class Said:
    """A command, its exit code, and parts of what it prints; `absent` must not be printed."""

    command: str
    parts: tuple[str, ...]
    exit_code: int = 0
    absent: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Real:
    """What a real 5.5.1 reads after the commands; `readable` None: its whole broker does not start."""

    readable: int | None
    settings: Mapping[str, str] = field(default_factory=dict)
    change: Damage | None = None


@dataclass(frozen=True, slots=True)
class Row:
    store: str
    commands: tuple[Said, ...]
    changes: tuple[Damage, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    without_conf: bool = False
    real: Real | None = None


def no_last_file(store: Path) -> None:
    path = log_files(store)[-1]
    damage.zero(path, 0, path.stat().st_size)


def wrong_physical_offset(store: Path) -> None:
    """Write the PHYSICALOFFSET of another file into the record at 301,624 of 5.5.1-clean."""
    damage.overwrite(store / "commitlog" / f"{262_144:020d}", 301_624 - 262_144 + 28, (5).to_bytes(8, "big"))


FINE = ("Nothing is wrong with this store.",)
NO_REPAIR = Said("recover {store} --apply", ("Nothing to do.",))
PREFERS = {"combineCQPreferCQType": "defaultRocksDB"}
BOTH_KINDS = {"rocksdbCQDoubleWriteEnable": "true", "combineCQUseRocksdbForLmq": "true"}
ACCELERATED = {"enableAcceleratedRecovery": "true"}
ROWS = {
    "separate RocksDB": Row(
        "5.5.1-rocksdb-separate",
        (
            Said("verify {store}", ("RocketMQ 5.5.1 would start and lose nothing", *FINE)),
            NO_REPAIR,
            Said("rebuild {store} cq --apply", ("Nothing to do.",)),
            Said("find {store} Order_11/0/3", ("queue entry present, tag matches",), absent=("missing",)),
            Said("info {store}", ("11 topics, 44 queues, 293 messages", "Order_11")),
        ),
        without_conf=True,
        real=Real(293),
    ),
    "separate RocksDB, with its broker.conf": Row(
        "5.5.1-rocksdb-separate",
        (Said("verify {store}", FINE), NO_REPAIR, Said("rebuild {store} cq --apply", ("Nothing to do.",))),
        real=Real(293),
    ),
    **{
        f"light queues in RocksDB, {name}{', without broker.conf' if without_conf else ''}": Row(
            name,
            (Said("verify {store}", ("RocketMQ 5.5.1 would start and lose nothing", *FINE)), NO_REPAIR),
            without_conf=without_conf,
            real=Real(count),
        )
        for name, count in (("5.5.1-lmq", 205), ("5.5.1-lite", 223))
        for without_conf in (True, False)
    },
    "a light queue in RocksDB": Row(
        "5.5.1-lmq", (Said("find {store} %LMQ%all_11/0/3", ("queue entry present, tag matches",)),)
    ),
    "RocksDB in the other place": Row(
        "5.5.1-rocksdb",
        (Said("verify {store}", ("RocketMQ 5.5.1 would not start (exit 253)", "but consumequeue/ contains"), 1),),
        settings={"useSeparateStorePathForRocksdbCQ": "true"},
        real=Real(None),
    ),
    "double write without light queues in RocksDB": Row(
        "5.5.1-rocksdb-double",
        (Said("verify {store}", ("RocketMQ 5.5.1 would not start (exit 253)", "combineCQUseRocksdbForLmq=true"), 1),),
        settings={"combineCQUseRocksdbForLmq": "false"},
    ),
    "selective double write that prefers RocksDB": Row(
        "5.5.1-lite",
        (Said("verify {store}", ("RocketMQ 5.5.1 would not start (exit 253)", "combineCQPreferCQType=default"), 1),),
        settings={"combineCQPreferCQType": "defaultRocksDB"},
        real=Real(None),
    ),
    "accelerated recovery without logicsPhysicalOffset": Row(
        "5.5.1-clean",
        (Said("verify {store}", ("RocketMQ 5.5.1 would not start (exit 253)", "logicsPhysicalOffset"), 1),),
        (abort,),
        ACCELERATED,
        real=Real(None, change=abort),
    ),
    "no queues, a late logicsPhysicalOffset": Row(
        "5.5.1-clean",
        (Said("verify {store}", ("would start and never deliver 464 messages of 18 queues",), 1),),
        (abort, checkpoint_has(logics_physical_offset=412_368), no_queues),
        real=Real(90, change=abort),
    ),
    "no queues, as flushed": Row(
        "5.5.1-flushed-killed",
        (Said("verify {store}", ("would start and never deliver 323 messages of 18 queues",), 1),),
        (no_queues,),
        real=Real(269, change=abort),
    ),
    "the last log file destroyed": Row(
        "5.5.1-flushed",
        (Said("recover {store} --apply", ("25 messages lost", "Verified again: no problems.")),),
        (no_last_file,),
        real=Real(268, ACCELERATED, change=abort),
    ),
    "no checkpoint": Row(
        "5.5.1-flushed",
        (Said("rebuild {store} checkpoint --apply", ("Verified again: no problems.",)),),
        (checkpoint_gone,),
        real=Real(293, ACCELERATED, change=abort),
    ),
    "a zero queue file after a full one": Row(
        "5.5.1-clean", (Said("verify {store}", ("RocketMQ 5.5.1 would start",), 1),), (queue_full_then_zero_file,)
    ),
    "a wrong PHYSICALOFFSET, and recovery that compares it": Row(
        "5.5.1-clean",
        (Said("verify {store}", ("would start and lose 185 messages of 9 topics (commitlog cut at 301,624)",), 1),),
        (abort, wrong_physical_offset),
        {"checkCommitLogOffsetOnRecover": "true"},
        real=Real(368, change=abort),
    ),
    "the first double write, read from RocksDB": Row(
        "5.5.1-clean",
        (Said("verify {store}", ("would start and never deliver 464 messages of 18 queues",), 4),),
        settings=BOTH_KINDS | PREFERS,
        real=Real(90),
    ),
    "queues that end elsewhere in RocksDB, which is read": Row(
        "5.5.1-rocksdb-double",
        (
            Said(
                "verify {store}", ("would not start (exit 255): Order_11/0 ends at another queue offset in RocksDB",), 1
            ),
        ),
        (queue_last_unit,),
        PREFERS,
        real=Real(None),
    ),
    "queues that end elsewhere in RocksDB, which is not read": Row(
        "5.5.1-rocksdb-double",
        (Said("verify {store}", ("RocketMQ 5.5.1 would start",), 1),),
        (queue_last_unit,),
        real=Real(292),
    ),
    "rows in RocksDB that no start cuts": Row(
        "5.5.1-rocksdb-double",
        (Said("verify {store}", ("would not start (exit 255): TRANS_CHECK_MAX_TIME_TOPIC/0 ends at another",), 1),),
        (no_log_file(-1),),
        PREFERS,
        real=Real(None),
    ),
    "index rows of a destroyed file": Row(
        "5.5.1-index-rocksdb",
        (Said("recover {store} --apply", ("48 rows of the index will be removed", "Verified again: no problems.")),),
        (no_last_file,),
        real=Real(278),
    ),
    "timed messages without timeline_checkpoint": Row(
        "5.5.1-timer-rocksdb-pending",
        (
            Said("verify {store}", ("RDB-NO-TIMELINE", "would start and never deliver 14 timed messages"), 1),
            Said("recover {store} --apply", ("Verified again: no problems.",)),
        ),
        without_conf=True,
    ),
    "remains of the write buffer": Row(
        "5.5.1-nommap", (Said("verify {store}", FINE, absent=("CL-DIRTY-TAIL",)),), without_conf=True, real=Real(293)
    ),
    "a broker's first minute": Row(
        "5.5.1-clean",
        (
            Said("info {store}", ("queues none (5.5 writes it every minute, with queues in files)",)),
            Said("verify {store}", FINE),
        ),
    ),
    "a group that pops, popped and not acknowledged": Row(
        "5.5.1-pop",
        (Said("find {store} pr45", ("received by PopRawGroup_11 and not acknowledged",), absent=("has consumed it",)),),
        without_conf=True,
    ),
    "a group that pops, with the KV service": Row(
        "5.5.1-pop-kv",
        (Said("find {store} pr45", ("received by PopRawGroup_11 and not acknowledged",), absent=("has consumed it",)),),
        without_conf=True,
    ),
}


SLOW = {
    "separate RocksDB, with its broker.conf",
    "light queues in RocksDB, 5.5.1-lmq",
    "light queues in RocksDB, 5.5.1-lite, without broker.conf",
    "the first double write, read from RocksDB",  # it may be half done on a busy machine
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in ROWS])
def test_commands_tell_what_the_real_broker_does(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    row = ROWS[name]
    store = copy_store(row.store, tmp_path)
    for change in row.changes:
        change(store)
    before = snapshot(store)
    conf = () if row.without_conf else ("-c", str(write_broker_conf(row.store, store, **row.settings)))
    for said in row.commands:
        done = run(*said.command.replace("{store}", str(store)).split(), *conf)
        output = " ".join(done.output.split())
        assert done.exit_code == said.exit_code, output
        assert [part for part in said.parts if part not in output] == [], output
        assert [part for part in said.absent if part in output] == [], output
    if not any("--apply" in said.command for said in row.commands):
        assert snapshot(store) == before
    if row.real is not None:
        _compare(row, row.real, store, request.getfixturevalue("oracle"))


def _compare(row: Row, expected: Real, store: Path, oracle: Callable[[str], Oracle]) -> None:
    if expected.change is not None:
        expected.change(store)
    settings = {**meta(row.store).oracle_args, **row.settings, **expected.settings}
    answer = oracle("5.5.1").load(store, settings, start=True)
    starts = answer.load and answer.crash is None
    assert starts == (expected.readable is not None), answer.log[-2000:]
    if expected.readable is not None:
        assert answer.readable == expected.readable


def test_every_new_key_is_known(tmp_path: Path) -> None:
    """The settings that 5.5.0 and 5.5.1 added: none is reported as unknown, and none gets a similar name as advice."""
    store = copy_store("5.5.1-clean", tmp_path)
    done = run("verify", str(store), "-c", str(write_broker_conf("5.5.1-clean", store, **NEW_KEYS)))
    assert "unknown" not in done.output
    assert "did you mean" not in done.output


NEW_KEYS = {
    "useSeparateStorePathForRocksdbCQ": "false",
    "checkCommitLogOffsetOnRecover": "false",
    "combineCQUseRocksdbForLmq": "false",
    "rocksdbCQSelectiveDoubleWriteEnable": "false",
    "enableLmqQuota": "false",
    "iteratorWhenUseRocksdbConsumeQueue": "true",
    "timerReputServiceCorePoolSize": "6",
    "timerReputServiceMaxPoolSize": "6",
    "timerReputServiceQueueCapacity": "10000",
    "maxCheckMessageReuseBufferSize": "1048576",
    "correctMinOffsetMadviseEnable": "false",
    "rocksdbMaxSizeAmplificationPercent": "25",
    "popRocksdbBlockCacheSize": "268435456",
    "popRocksdbWriteBufferSize": "33554432",
    "popReviveSkipIfGroupAbsent": "true",
    "persistConsumerOffsetIncrementally": "false",
    "minLiteTTl": "900000",
    "liteTtlCheckInterval": "120000",
}
