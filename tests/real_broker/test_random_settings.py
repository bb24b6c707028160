"""Random starts: one to three changed settings, on all kinds of stores, after a clean exit or a crash.

    store, version, settings → forecast = the real store: whether it starts, the ends of log and queues, deleted files
    …, a broker.conf → the same; the file lacks lines, or has values that Java reads otherwise than people

RMQSTORE_ROUNDS is the number of starts for each part (3), each with a new seed. A start that differs does not end the
others; it prints the seed that repeats it (RMQSTORE_SEED).
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from rmqstore.brokers.forecast import StartOptions
from rmqstore.brokers.rules import rules_for
from rmqstore.brokers.simulate import as_configured, in_dledger_mode, simulate_start
from rmqstore.files.broker_config import FILE_SIZES, BrokerConfig
from rmqstore.files.store import open_store
from tests.forecast.answers import HEAP, Answer, as_far_as_simulated, files_of, of_forecast, of_oracle
from tests.real_broker.oracle import TIMEOUT_SECONDS, Oracle
from tests.seeds import seeds
from tests.stores import BROKER_STORES, VERSIONS, copy_store, meta

STORES = tuple(name for name in BROKER_STORES if meta(name).version in VERSIONS)
SETTINGS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("checkCRCOnRecover", ("false", "FALSE")),
    ("duplicationEnable", ("true",)),
    ("forceVerifyPropCRC", ("true",)),
    ("enabledAppendPropCRC", ("true",)),
    ("messageIndexEnable", ("false",)),
    ("messageIndexSafe", ("true", "True")),
    ("commitLogRecoverMaxNum", ("1", "3", "1000")),
    ("recheckReputOffsetFromCq", ("true",)),
    ("enableConsumeQueueExt", ("true",)),
    ("enableLmq", ("true", "false")),
    ("enableMultiDispatch", ("true", "false")),
    ("enableDLegerCommitLog", ("true", "false")),
    ("dLegerSelfId", ("n0", "n1", "n2")),
    ("dLegerPeers", ("n0:40911", "n0-127.0.0.1:0", "n0-127.0.0.1:0;n1-127.0.0.1:1", "n1-127.0.0.1:0", "n0-h")),
    ("storeType", ("default", "defaultRocksDB")),
    ("rocksdbCQDoubleWriteEnable", ("true", "false")),
    ("combineCQUseRocksdbForLmq", ("true", "false")),
    ("combineCQPreferCQType", ("default", "defaultRocksDB")),
    ("combineAssignOffsetCQType", ("default", "defaultRocksDB")),
    ("combineCQLoadingCQTypes", ("default", "defaultRocksDB", "default;defaultRocksDB")),
    ("useSeparateStorePathForRocksdbCQ", ("true", "false")),
    ("indexRocksDBEnable", ("true",)),
    ("transRocksDBEnable", ("true",)),
    ("transWriteOriginTransHalfEnable", ("false",)),
    ("enableAcceleratedRecovery", ("true",)),
    ("checkCommitLogOffsetOnRecover", ("true",)),
    ("mappedFileSizeCommitLog", ("131072", "0", "-1")),
    ("mappedFileSizeConsumeQueue", ("4000", "0", "-5", "-25")),
    ("maxHashSlotNum", ("0", "-5", "-2000000000", "1073741824")),
    ("maxIndexNum", ("0", "1", "200000000")),
    ("indexFileWriteEnable", ("false",)),
    ("flushDiskType", ("SYNC_FLUSH",)),
    ("writeWithoutMmap", ("true",)),
    ("brokerRole", ("SLAVE", "SYNC_MASTER")),
    ("fileReservedTime", ("1",)),
)
_BY_TEST: Mapping[str, str] = {
    "storePathRootDir": "{store}",
    "storePathCommitLog": "{store}/commitlog",
    "dLegerSelfId": "n0",
    "dLegerPeers": "n0-127.0.0.1:0",
    "brokerId": "1",
}
"""Lines that every broker.conf has: without them a whole broker does not start, but the store, which is compared."""
_ROOT, _LOG = "storePathRootDir", "storePathCommitLog"
_LOGS = (
    *(",", " , ", "", "{store}/commitlog/", "{store}/commitlog,", ",{store}/commitlog", "{store}/absent"),
    *("{store}/commitlog,{store}/absent", "{store}/absent,,{store}/commitlog", "{store}/commitlog,{store}/commitlog/"),
    *("{store}/commitlog , {store}/absent", "{store}/absent, {store}/commitlog", "{store}/commitlog\\u00a0,"),
)
"""Places of the log, with which some brokers open nothing."""
_ENDLESS = 60  # s; after so long, a start that is forecast not to end is stopped
_AFTER_THE_ROOT = (" ", "\t", "\\u00a0", "\\u3000 ")
"""Blanks, of which brokers since 5.2.0 trim some, but not all: with the others they open another directory."""
_HALVES = frozenset({"transRocksDBEnable", "transWriteOriginTransHalfEnable"})
_OF_WHOLE_BROKERS = "unexpected, rocksdbCQ is not ready for LMQ."
"""A start that only a whole broker refuses: the store, which the oracle starts, does not."""
_PARTS = 8
_ROUNDS = int(os.environ.get("RMQSTORE_ROUNDS", "3"))


_SPELLINGS: tuple[Callable[[str, str], tuple[str, ...]], ...] = (
    lambda key, value: (f"{key}={value}",),
    lambda key, value: (f"{key}={value}",),
    lambda key, value: (f"{key} : {value}",),
    lambda key, value: (f"{key}={value} ",),
    lambda key, value: (f"{key}={value}\\u00a0",),
    lambda key, value: (f"{key}={value.upper()}",),
    lambda key, value: (f"{key}={value[:1]}\\", f"   {value[1:]}"),
    lambda key, value: (f"{key}=x", f"{key}={value}"),
    lambda key, value: (f"{key}={value}", f"{key}="),
    lambda key, value: (f"{key.replace('mapped', 'maped')}={value}",),
    lambda key, value: (f"#{key}={value}",),
)
"""How a line of broker.conf may be written; some of them a broker does not read as they look."""


def choose(seed: int) -> tuple[str, str, dict[str, str], bool]:
    """Return store, version, changed settings, and whether the broker was killed; the same for a given seed."""
    choice = random.Random(seed)
    store, version = choice.choice(STORES), choice.choice(VERSIONS)
    settings = {key: choice.choice(values) for key, values in choice.sample(SETTINGS, choice.randint(1, 3))}
    return store, version, settings, choice.random() < 0.5


def unknown(version: str) -> frozenset[str]:
    """Return settings with which the oracle asks for a class that the version does not have; brokers ignore them."""
    rules = rules_for(version)
    halves = frozenset() if rules.message_rows_limit_start else _HALVES
    return halves if rules.rocksdb_queues else halves | {"storeType"}


def broker_conf(seed: int, path: Path, store: Path, settings: Mapping[str, str]) -> None:
    """Write a broker.conf with these settings, some of them in an odd spelling; one line may be missing."""
    choice = random.Random(seed)
    lines: list[str] = []
    settings = dict(settings)
    if choice.random() < 0.2:
        settings[_ROOT] += choice.choice(_AFTER_THE_ROOT)
        if choice.random() < 0.5:
            settings.pop(_LOG, None)
    elif choice.random() < 0.2:
        settings[_LOG] = choice.choice(_LOGS)
    for key, value in settings.items():
        value = value.replace("{store}", str(store))
        plain = key in _BY_TEST or choice.random() < 0.5
        lines += (f"{key}={value}",) if plain else choice.choice(_SPELLINGS)(key, value)
    path.write_text("".join(f"{line}\n" for line in lines), "latin-1")


def difference(seed: int, folder: Path, oracle: Callable[[str], Oracle], *, by_file: bool = False) -> str:
    """Make one start; return how forecast and real store differ, or ""."""
    name, version, changed, killed = choose(seed)
    store = copy_store(name, folder)
    if killed:
        (store / "abort").touch()
    else:
        (store / "abort").unlink(missing_ok=True)
    settings = {key: str(value) for key, value in meta(name).oracle_args.items()} | changed
    settings = {key: value for key, value in settings.items() if key not in unknown(version)}
    if settings.get("enableDLegerCommitLog") == "true":  # a forecast without a file takes an absent node as unknown
        settings = {key: _BY_TEST[key] for key in ("dLegerSelfId", "dLegerPeers")} | settings
    if not by_file:  # a size that no file can have says nothing about the store, only about its broker
        settings = {key: value for key, value in settings.items() if key not in FILE_SIZES or int(value) > 0}
    config = BrokerConfig(settings)
    if by_file:
        broker_conf(seed, folder / "broker.conf", store, {**_BY_TEST, **settings})
        config = BrokerConfig.read(folder / "broker.conf", version)
        settings = {key: value for key, value in config.given.items() if key in {*settings, _LOG}}
    given = as_configured(config, version)
    root = Path(given.directory_beside(store) or store)
    opened = open_store(store, config)
    start = not in_dledger_mode(opened, given)  # in DLedger mode, what follows depends on time
    forecast = simulate_start(opened, version=version, options=StartOptions(dispatch=start, heap=HEAP))
    if forecast.log_line == _OF_WHOLE_BROKERS:
        return ""
    told, before = of_forecast(forecast, store), files_of(store)
    never_ends = not forecast.starts and forecast.exit_code is None
    timeout = _ENDLESS if never_ends else TIMEOUT_SECONDS
    result = oracle(version).load(root, settings, start=start, timeout=timeout)
    real = of_oracle(result, before - files_of(store))
    if result.crash is not None and result.crash.startswith("construct:"):
        told = replace(told, dies=False)  # the exit code is that of a whole broker
    real = as_far_as_simulated(real, forecast, opened)
    if told == real:
        return ""
    what = [
        f"{key}: {getattr(told, key)!s:.300} | {getattr(real, key)!s:.300}"
        for key in Answer.__slots__
        if getattr(told, key) != getattr(real, key)
    ]
    reason = f"{forecast.reason or 'starts'} | {result.crash or 'starts'}"
    text = (folder / "broker.conf").read_text("latin-1") if by_file else ""
    return f"seed {seed}: {version} on {name}, killed={killed}, {changed}: {'; '.join(what)} ({reason:.400})\n{text}"


@pytest.mark.slow
@pytest.mark.parametrize("part", range(_PARTS))
@pytest.mark.parametrize("by_file", [False, True], ids=["settings", "file"])
def test_a_start_with_random_settings_is_forecast(
    by_file: bool, part: int, tmp_path: Path, oracle: Callable[[str], Oracle]
) -> None:
    found = []
    for seed in seeds(_PARTS * _ROUNDS):
        if seed % _PARTS == part:
            folder = tmp_path / str(seed)
            folder.mkdir()
            found.append(difference(seed, folder, oracle, by_file=by_file))
    assert not any(found), "\n".join(filter(None, found))
