"""Forecasts compared with the recorded results of the real classes for the same damage, and their own properties."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path

import pytest

from rmqstore.brokers.forecast import StartForecast, StartOptions
from rmqstore.brokers.load import HIDDEN
from rmqstore.brokers.rules import rules_for
from rmqstore.brokers.simulate import simulate_start
from rmqstore.errors import UsageError
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.mapped_file_queue import MappedFileQueue
from rmqstore.files.store import Store, open_store
from rmqstore.files.versions import VERSIONS
from rmqstore.formats import dledger
from rmqstore.formats.checkpoint import StoreCheckpoint
from rmqstore.formats.message import HEAD
from rmqstore.scan.records import scan_file
from rmqstore.scan.tiling import Kind, Run, Tiling
from tests.damage import garble
from tests.forecast.answers import HEAP, as_far_as_simulated, load_answers, of_forecast
from tests.forecast.cases import BY_NAME, CASES, Case
from tests.forecast.damages import abort, body, no_checkpoint_times, no_log_files, no_topic, put
from tests.forecast.places import data_files, entries, log_files, records
from tests.stores import BROKER_STORES, copy_store, meta, unpack

ANSWERS = load_answers()
SAMPLE = [case for case in CASES if case.sample]


def opened(case: Case, folder: Path) -> tuple[Store, Path]:
    path = copy_store(case.store, folder)
    case.damage(path)
    return open_store(path, BrokerConfig({**meta(case.store).oracle_args, **case.settings})), path


def forecast_of(case: Case, store: Store, tiling: Tiling | None = None, *, thorough: bool = True) -> StartForecast:
    return simulate_start(store, tiling, version=case.version, options=StartOptions(thorough, case.start, HEAP))


def tiling_of(queue: MappedFileQueue, body_offset: int = 0) -> Tiling:
    tiling = Tiling(queue.start)
    tiling.breaks = frozenset(f.start for f in queue.files)
    for file in queue.files:
        tiling.add(Run(Kind.HOLE, tiling.stop, file.start))
        tiling.extend(scan_file(file, body_offset=body_offset))
    return tiling


def clean(version: str, folder: Path) -> tuple[Path, BrokerConfig]:
    return copy_store(f"{version}-clean", folder), BrokerConfig(meta(f"{version}-clean").oracle_args)


def test_every_case_has_a_recorded_answer() -> None:
    assert set(ANSWERS) == set(BY_NAME)


@pytest.mark.quick_rows(180)
@pytest.mark.parametrize("name", sorted(ANSWERS))
def test_forecast_is_what_the_broker_did(name: str, tmp_path: Path) -> None:
    case = BY_NAME[name]
    store, path = opened(case, tmp_path)
    forecast = forecast_of(case, store)
    assert of_forecast(forecast, path) == as_far_as_simulated(ANSWERS[name], forecast, store)


@pytest.mark.quick_rows(20)
@pytest.mark.parametrize("case", SAMPLE, ids=str)
def test_forecast_is_the_same_with_a_tiling(case: Case, tmp_path: Path) -> None:
    store, _ = opened(case, tmp_path)
    alone = forecast_of(case, store)
    if store.dledger is not None and store.dledger.data.files:
        tiling = tiling_of(store.dledger.data, dledger.ENTRY.size)
    else:
        assert store.commitlog is not None
        tiling = tiling_of(store.commitlog)
    assert forecast_of(case, store, tiling) == alone


def test_quick_forecast_counts_the_same_and_leaves_topics_out(tmp_path: Path) -> None:
    case = BY_NAME["5.1.4 zero page, clean"]
    store, _ = opened(case, tmp_path)
    assert store.commitlog is not None
    whole = forecast_of(case, store)
    quick = forecast_of(case, store, tiling_of(store.commitlog), thorough=False)
    assert (quick.messages_lost, quick.max_offset, quick.queue_ends) == (
        whole.messages_lost,
        whole.max_offset,
        whole.queue_ends,
    )
    assert sum(whole.lost_by_topic.values()) == whole.messages_lost == 72
    assert quick.lost_by_topic == {}


@pytest.mark.quick_rows(12)
@pytest.mark.parametrize("name", BROKER_STORES)
def test_forecast_changes_nothing(name: str) -> None:
    store = unpack(name)

    def state() -> dict[str, tuple[int, int, str]]:
        return {
            p.relative_to(store).as_posix(): (
                p.stat().st_mtime_ns,
                p.stat().st_size,
                hashlib.sha256(p.read_bytes()).hexdigest() if p.stat().st_size < 1 << 22 else "",
            )
            for p in store.rglob("*")
            if p.is_file()
        }

    before = state()
    for version in ("4.9.7", "5.4.0"):
        assert simulate_start(open_store(store, BrokerConfig(meta(name).oracle_args)), version=version).starts
    assert state() == before


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_gives_a_forecast(version: str, tmp_path: Path) -> None:
    path, config = clean("4.9.7", tmp_path)
    for damage in (body(-2), abort, no_checkpoint_times):
        damage(path)
    forecast = simulate_start(open_store(path, config), version=version)
    assert (forecast.starts, forecast.messages_lost, forecast.commitlog_stop) == (True, 117, 339366)
    assert forecast.evidence == rules_for(version).evidence
    json.dumps(forecast.to_json())


def test_wrong_length_stops_loading_silently_in_4_9_2(tmp_path: Path) -> None:
    path, config = clean("4.9.7", tmp_path)
    put("commitlog/00000000000000196608x", b"1")(path)
    assert not simulate_start(open_store(path, config), version="4.9.3").starts
    ignoring = simulate_start(open_store(path, config), version="4.9.2")
    files = log_files(path)
    fourth = files[3].read_bytes()
    last = records(files[3])[-1]
    behind = int(files[3].name) + last + HEAD.parse(fourth, last)["size"]
    assert (ignoring.starts, ignoring.max_offset, ignoring.files_deleted) == (True, behind, ())
    assert "does not load" in ignoring.notes[0]


@pytest.mark.parametrize(
    ("version", "killed", "deleted"),
    [("4.4.0", False, False), ("4.4.0", True, True), ("4.5.1", False, True), ("4.5.1", True, True)],
)
def test_queues_of_a_missing_log_are_kept_only_by_old_versions_after_a_clean_exit(
    version: str, killed: bool, deleted: bool, tmp_path: Path
) -> None:
    path, config = clean("4.9.7", tmp_path)
    no_log_files(path)
    if killed:
        abort(path)
    forecast = simulate_start(open_store(path, config), version=version)
    assert any(high for _, high in forecast.queue_ends.values()) is not deleted
    assert any("all consume queues are deleted" in note for note in forecast.notes) is deleted


def test_sentences_say_what_happens(tmp_path: Path) -> None:
    path, config = clean("5.4.0", tmp_path)
    assert simulate_start(open_store(path, config)).sentence() == "RocketMQ 5.4.0 would start and lose nothing"
    put("commitlog/notes.txt", b"hello")(path)
    stray = simulate_start(open_store(path, config))
    assert stray.sentence() == "RocketMQ 5.4.0 would not start (exit 253): stray file commitlog/notes.txt"
    assert (stray.exit_code, stray.log_line) == (
        253,
        "length not matched message store config value, please check it manually",
    )
    (path / "commitlog" / "notes.txt").unlink()
    for damage in (body(4), abort, no_checkpoint_times):
        damage(path)
    lost = simulate_start(open_store(path, config))
    assert lost.sentence() == (
        "RocketMQ 5.4.0 would start and lose 225 messages of 9 topics (commitlog cut at 274,274)"
    )
    assert lost.files_deleted == ("00000000000000327680", "00000000000000393216", "00000000000000458752")
    assert (lost.start_file, lost.clean_exit, lost.stop_reason) == ("00000000000000000000", False, "CRC check failed")
    assert 0 < lost.stale_tail < lost.messages_lost
    assert sum(lost.ghost_units.values()) > 0


@pytest.mark.parametrize("number", range(8))
def test_recovery_begins_with_the_last_file_whose_first_message_the_checkpoint_covers(
    number: int, tmp_path: Path
) -> None:
    path, config = clean("5.4.0", tmp_path)
    abort(path)
    file = log_files(path)[number]
    time = HEAD.parse(file.read_bytes())["store_timestamp"] + 3000  # the broker subtracts three seconds
    (path / "checkpoint").write_bytes(StoreCheckpoint(time, time, time).build())
    assert simulate_start(open_store(path, config), version="5.4.0").start_file == file.name


def test_redispatched_units_are_counted_by_topic(tmp_path: Path) -> None:
    path, config = clean("5.4.0", tmp_path)
    for damage in (no_topic, abort, no_checkpoint_times):
        damage(path)
    forecast = simulate_start(open_store(path, config))
    assert forecast.redispatched == {"Order_11": 168}
    assert not forecast.shifted_units


@pytest.mark.parametrize("version", ["5.1.4", "5.4.0"])
def test_in_controller_mode_a_slave_dispatches_after_the_confirm_offset_when_it_gets_a_role(
    version: str, tmp_path: Path
) -> None:
    """Observed on 5.1.4: a killed replica was elected, and all messages after the confirm offset got units."""
    path, config = clean(version, tmp_path)
    for damage in (no_topic, abort, no_checkpoint_times):
        damage(path)
    confirmed = records(log_files(path)[0])[20]
    (path / "checkpoint").write_bytes(StoreCheckpoint(confirm_phy_offset=confirmed).build())
    given = {"enableControllerMode": "true"}
    slave = simulate_start(open_store(path, config), version=version, settings={**given, "brokerRole": "SLAVE"})
    assert slave.redispatched == {"Order_11": 168}
    assert any(f"from {confirmed:,} on" in note for note in slave.notes)
    other = simulate_start(open_store(path, config), version=version, settings=given)
    assert sum(other.redispatched.values()) < 20


def test_dledger_mode_needs_a_version_that_has_it(tmp_path: Path) -> None:
    store = open_store(copy_store("4.9.7-dledger", tmp_path))
    with pytest.raises(UsageError, match="has no DLedger mode"):
        simulate_start(store, version="4.4.0")


def test_dledger_mode_may_be_switched_off(tmp_path: Path) -> None:
    store = open_store(copy_store("5.4.0-dledger-mixed", tmp_path), BrokerConfig({"mappedFileSizeCommitLog": "65536"}))
    on = simulate_start(store)
    off = simulate_start(store, settings={"enableDLegerCommitLog": "false"})
    assert on.max_offset is not None
    assert off.max_offset is not None
    assert on.max_offset > off.max_offset


def test_queues_in_rocksdb_are_reported_not_to_be_simulated() -> None:
    name = "5.4.0-rocksdb"
    forecast = simulate_start(open_store(unpack(name), BrokerConfig(meta(name).oracle_args)))
    assert (forecast.consume_queues_simulated, forecast.max_offset) == (False, meta(name).oracle_load.max_phy)
    assert any("RocksDB" in note for note in forecast.notes)


@pytest.mark.parametrize(("version", "code"), [("5.0.0", 255), ("5.1.4", 255), ("5.3.1", 253), ("5.4.0", 253)])
def test_a_timer_wheel_of_the_wrong_length_stops_brokers_that_open_it(version: str, code: int, tmp_path: Path) -> None:
    path, config = clean("5.4.0", tmp_path)
    (path / "timerwheel").write_bytes(bytes(1000))
    store = open_store(path, config)
    stopped = simulate_start(store, version=version)
    assert (stopped.starts, stopped.exit_code) == (False, code)
    assert stopped.log_line == "Timer wheel length:1000 != expected:38707200"
    assert simulate_start(store, version=version, settings={"timerWheelEnable": "false"}).starts
    assert simulate_start(store, version="4.9.7").starts


def test_the_newest_snapshot_of_the_timer_wheel_is_the_one_that_is_opened(tmp_path: Path) -> None:
    path, config = clean("5.4.0", tmp_path)
    (path / "timerwheel").write_bytes(bytes(1000))
    (path / "timerwheel.9").write_bytes(bytes(1000))
    (path / "timerwheel.10").write_bytes(b"")
    store = open_store(path, config)
    assert simulate_start(store, settings={"timerWheelSnapshotFlush": "true"}).starts
    assert not simulate_start(store).starts


def test_versions_that_fail_in_their_own_shutdown_are_reported_with_that_exit_code(tmp_path: Path) -> None:
    path, config = clean("5.4.0", tmp_path)
    put("commitlog/notes.txt", b"hello")(path)
    store = open_store(path, config)
    codes = {
        version: simulate_start(store, version=version).exit_code for version in ("4.9.7", "5.1.1", "5.1.2", "5.4.0")
    }
    assert codes == {"4.9.7": 253, "5.1.1": 253, "5.1.2": 255, "5.4.0": 253}
    assert HIDDEN in simulate_start(store, version="5.1.2").notes
    assert simulate_start(store, version="5.1.2", settings={"timerWheelEnable": "false"}).exit_code == 253


def test_broken_configuration_stops_the_broker(tmp_path: Path) -> None:
    path, config = clean("5.4.0", tmp_path)
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        (path / "config" / name).write_bytes(b"{{{")
    forecast = simulate_start(open_store(path, config))
    assert forecast.sentence() == (
        "RocketMQ 5.4.0 would not start (exit 253): neither config/consumerOffset.json nor its .bak can be parsed"
    )
    (path / "config" / "consumerOffset.json.bak").unlink()
    assert simulate_start(open_store(path, config)).starts


ENDS = {"4.9.7-clean": 443387, "5.4.0-dledger": 477461, "5.4.0-formats": 421889, "5.1.4-dledger-mixed": 717485}
GARBLED = {
    0: [(255, None, 0)] * 3,  # after the committed position
    2: [(0, 310121, 144), (0, 310121, 144), (0, 443387, 0)],
    11: [(253, 717485, 0), (255, 717485, 0), (253, 717485, 0)],  # config
}
"""Exit code (0: starts), end of the log and messages lost, per version; other seeds end at ENDS and lose nothing."""


@pytest.mark.parametrize("seed", range(12))
def test_garbled_store_gives_the_forecast_of_each_version(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    name = rng.choice(["4.9.7-clean", "5.4.0-dledger", "5.4.0-formats", "5.1.4-dledger-mixed"])
    path = copy_store(name, tmp_path)
    files = sorted(p for p in path.rglob("*") if p.is_file() and 0 < p.stat().st_size < 1 << 20)
    for file in rng.sample(files, min(12, len(files))):
        size = file.stat().st_size
        at = rng.randrange(size)
        garble(file, at, min(size - at, rng.choice([1, 8, 200, 5000])), seed)
    if seed % 2:
        abort(path)
    found: list[tuple[int | None, int | None, int]] = []
    for version in ("4.4.0" if "dledger" not in name else "4.9.7", "5.1.4", "5.4.0"):
        forecast = simulate_start(open_store(path, BrokerConfig(meta(name).oracle_args)), version=version)
        found.append((forecast.exit_code if forecast.reason else 0, forecast.commitlog_stop, forecast.messages_lost))
        assert forecast.starts is (forecast.reason is None) is (forecast.log_line is None)
    assert found == GARBLED.get(seed, [(0, ENDS[name], 0)] * 3)


def test_dledger_loses_what_is_after_a_wrong_header(tmp_path: Path) -> None:
    case = BY_NAME["5.4.0 DLedger pos in file -2, clean"]
    whole = unpack(case.store)
    before, last = (len(entries(path)) for path in data_files(whole)[-2:])
    store, path = opened(case, tmp_path)
    forecast = forecast_of(case, store)
    damaged = entries(data_files(whole)[-2])[5]
    assert forecast.commitlog_stop == int(data_files(path)[-2].name) + damaged
    assert forecast.stop_reason.startswith("pos ")
    # the damaged entry itself is no longer a good record
    assert forecast.messages_lost == before - 5 - 1 + last
    assert f"dledger-n0/data/{data_files(path)[-1].name}" in forecast.other_files_deleted


def test_dledger_exits_when_older_files_are_damaged(tmp_path: Path) -> None:
    case = BY_NAME["5.4.0 DLedger pos in file -4, abort, no checkpoint"]
    store, path = opened(case, tmp_path)
    assert forecast_of(case, store).starts  # the damage is before the files that recovery reads
    (path / "dledger-n0" / "index" / f"{0:020d}").unlink()
    forecast = forecast_of(case, open_store(path, store.config))
    assert (forecast.starts, forecast.exit_code) == (False, 255)
    assert forecast.log_line == "[MONITOR]The processOffset is too small, you should check it manually"


def test_tiling_of_another_queue_is_not_used(tmp_path: Path) -> None:
    path, config = clean("5.1.4", tmp_path)
    store = open_store(path, config)
    assert simulate_start(store, Tiling(1 << 30), version="5.1.4") == simulate_start(store, version="5.1.4")


def test_tiling_that_ends_early_is_gone_beyond(tmp_path: Path) -> None:
    path, config = clean("5.1.4", tmp_path)
    store = open_store(path, config)
    assert store.commitlog is not None
    short = Tiling(0)
    for file in store.commitlog.files[:-1]:
        short.extend(scan_file(file))
    assert simulate_start(store, short, version="5.1.4") == simulate_start(store, version="5.1.4")


def test_dledger_after_a_crash_drops_the_newest_messages_from_queues(tmp_path: Path) -> None:
    clean_exit = BY_NAME["5.4.0 DLedger undamaged, clean"]
    assert not forecast_of(clean_exit, opened(clean_exit, tmp_path / "clean")[0]).units_cut
    case = BY_NAME["5.4.0 DLedger undamaged, abort, no checkpoint"]
    forecast = forecast_of(case, opened(case, tmp_path / "abort")[0])
    assert forecast.units_cut == {
        ("Pay_11_Topic", 3): 1,
        ("TRANS_CHECK_MAX_TIME_TOPIC", 0): 1,
        ("log-15445", 1): 1,
        ("log-15445", 3): 1,
    }
    assert forecast.sentence() == "RocketMQ 5.4.0 would start and drop 4 messages from 4 consume queues"


def test_units_after_the_committed_position_come_back_by_themselves() -> None:
    store = open_store(unpack("5.4.0-dledger3-n2"))  # committed: 69 of 300 entries
    forecast = simulate_start(store, version="5.4.0")
    assert (forecast.starts, forecast.units_cut) == (True, {})


@pytest.mark.parametrize(
    ("version", "ends"), [("4.9.7", (0, 0)), ("5.1.4", (0, 0)), ("5.4.0", (0, 0)), ("5.5.1", (22, 37))]
)
def test_queue_directory_without_files_gets_units_from_5_5_1_on(
    version: str, ends: tuple[int, int], tmp_path: Path
) -> None:
    """Observed on each version: the truncation after a clean exit moves the end of the empty queue to that of the log,
    and only 5.5.1 takes that back, so that it gets units of the entries that a leader commits."""
    name = "5.5.1-dledger-killed"
    path = copy_store(name, tmp_path)
    (path / "abort").unlink(missing_ok=True)
    (path / "consumequeue/Pay_11_Topic/2" / f"{0:020}").unlink()
    forecast = simulate_start(open_store(path, BrokerConfig(meta(name).oracle_args)), version=version)
    assert forecast.queue_ends["Pay_11_Topic", 2] == ends


def test_part_of_a_store_has_no_forecast() -> None:
    with pytest.raises(UsageError, match="part of a store"):
        simulate_start(open_store(unpack("5.4.0-clean") / "commitlog"))
