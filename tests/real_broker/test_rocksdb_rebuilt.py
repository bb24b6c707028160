"""Repaired consume queues in RocksDB: the real broker reads every message and appends; undo restores everything."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from rmqstore.files.config import OFFSETS
from rmqstore.files.files import LOCAL
from rmqstore.files.rocksdb.queues import RocksDBQueues
from rmqstore.files.rocksdb.rows import table_rows
from rmqstore.repair.journal.journal import apply, undo
from tests import damage
from tests.cases.case import locate_record
from tests.command import run_json
from tests.planning import counts_of, loss_of, opened, plan_of, rebuild_of, report_of
from tests.real_broker.oracle import Oracle, OracleResult, StoredMessage
from tests.real_broker.oracle_server import OracleServers
from tests.real_broker.reading import messages
from tests.real_broker.whole_broker import WholeBroker
from tests.repair.salvaging import rows
from tests.rocksdb_rows import changing, need_rocksdict
from tests.stores import clone, copy_store, meta, unpack, write_broker_conf
from tests.untouched import content

need_rocksdict()
Real = Callable[[str], Oracle]
Messages = Mapping[tuple[str, int], StoredMessage]


@dataclass(frozen=True, slots=True)
class Made:
    """A fixture with its queues in RocksDB: the number of its messages, and the directory of the database."""

    name: str
    messages: int
    place: str = "consumequeue"

    @property
    def version(self) -> str:
        return self.name[:5]

    @property
    def settings(self) -> Mapping[str, str]:
        return meta(self.name).oracle_args

    def copy(self, folder: Path) -> Path:
        return copy_store(self.name, folder / "store")

    def reads(self, store: Path, servers: OracleServers, *, crash: bool = False, put: int = 0) -> OracleResult:
        """Return what a broker reads from a copy; `crash`: with a scan of the whole log as after a crash."""
        cell = (self.version, crash)
        more = {"commitLogRecoverMaxNum": "1000"} if crash else {}
        return servers.read(store, {**self.settings, **more, "put": put}, [cell])[cell]


@pytest.fixture(
    scope="module",
    params=[
        Made("5.4.0-rocksdb", 292),
        pytest.param(Made("5.5.1-rocksdb", 293), marks=pytest.mark.slow),
        pytest.param(Made("5.5.1-rocksdb-separate", 293, "consumequeue_rocksdb"), marks=pytest.mark.slow),
    ],
    ids=lambda made: made.name,
)
def made(request: pytest.FixtureRequest) -> Made:
    assert isinstance(request.param, Made)
    return request.param


@pytest.fixture(scope="module")
def sound(made: Made, oracle_servers: OracleServers) -> Messages:
    """The messages that a broker reads from the undamaged store."""
    return messages(made.reads(unpack(made.name), oracle_servers))


def no_manifest(queues: Path) -> None:
    next(queues.glob("MANIFEST-*")).unlink()


def torn_manifest(queues: Path) -> None:
    damage.garble(next(queues.glob("MANIFEST-*")), 0, 100)


def torn_table(queues: Path) -> None:
    damage.garble(max(queues.glob("*.sst"), key=lambda p: p.stat().st_size), 200, 4000)


def other_current(queues: Path) -> None:
    (queues / "CURRENT").write_bytes(b"MANIFEST-0")


def long_current(queues: Path) -> None:
    (queues / "CURRENT").write_bytes(b"MANIFEST-000099\nand more\n")


def nothing_left(queues: Path) -> None:
    shutil.rmtree(queues)


def no_rows_in_the_middle(queues: Path) -> None:
    with changing(queues.parent, queues.name) as changed:
        for index in range(3, 7):
            changed.drop("Order_11", 1, index)


def rows_astray(queues: Path) -> None:
    with changing(queues.parent, queues.name) as changed:
        changed.put("Order_11", 1, 4, commitlog_offset=77)
        changed.put("Order_11", 2, 5, size=1, tags_code=9)


def too_short(queues: Path) -> None:
    with changing(queues.parent, queues.name) as changed:
        changed.end("Order_11", 1, 9, 40_000)


DAMAGES = [
    *(no_manifest, torn_manifest, torn_table, other_current, long_current, nothing_left),
    *(no_rows_in_the_middle, rows_astray, too_short),
]


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("broken", DAMAGES, ids=lambda broken: broken.__name__)
def test_every_message_of_a_sound_log_is_read_again(
    broken: Callable[[Path], None], tmp_path: Path, made: Made, oracle_servers: OracleServers, sound: Messages
) -> None:
    store = made.copy(tmp_path)
    broken(store / made.place)
    before = content(store)
    assert len(messages(made.reads(store, oracle_servers))) < made.messages
    plan = plan_of(store, made.settings)
    assert (plan.decisions, loss_of(store, made.settings).messages) == ((), 0)
    assert plan.digest == plan_of(store, made.settings).digest
    result = apply(plan)
    report = report_of(store, made.settings)
    assert (report.exit_code, dict(report.findings.counts), report.unchecked) == (0, {}, [])
    assert plan_of(store, made.settings).empty
    after = made.reads(store, oracle_servers, put=40)
    assert (after.load, after.shutdown, after.readable) == (True, "clean", made.messages + 40)
    found = messages(after)
    assert {place: found[place] for place in sound} == sound
    assert made.reads(store, oracle_servers, crash=True, put=3).readable == made.messages + 3
    assert result.journal is not None
    undo(result.journal)
    assert content(store) == before


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("length", [1, 3000])
def test_a_damaged_log_is_salvaged_and_its_rows_fit(
    length: int, crash: bool, tmp_path: Path, made: Made, oracle_servers: OracleServers, sound: Messages
) -> None:
    store = made.copy(tmp_path)
    path, at = locate_record(store / "commitlog", "record 100 body")
    if length == 1:
        damage.flip(path, at + 1, 3)
    else:
        damage.garble(path, at - 20, length)
    if crash:
        (store / "abort").touch()
    before = content(store)
    plan, lost = plan_of(store, made.settings), loss_of(store, made.settings).messages
    result = apply(plan, force_digest=plan.digest)
    report = report_of(store, made.settings)
    assert (report.exit_code, dict(report.findings.counts), report.unchecked) == (0, {}, [])
    assert (lost == 0) == (length == 1)
    for after_crash in (False, True):
        after = made.reads(store, oracle_servers, crash=after_crash, put=20)
        found = messages(after)
        kept = {place: found[place] for place in sound if found.get(place) == sound[place]}
        assert (after.load, after.readable, len(kept)) == (True, after.offsets, made.messages - lost)
    assert result.journal is not None
    undo(result.journal)
    assert content(store) == before


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("strategy", ["truncate", "salvage"])
def test_rows_after_an_earlier_end_of_the_log_are_removed(
    strategy: str, made: Made, tmp_path: Path, oracle_servers: OracleServers
) -> None:
    """The broker finds no rows after the end, and numbers new messages from there on."""
    store = made.copy(tmp_path)
    conf = write_broker_conf(made.name, store)
    last = rows(store)[-12]
    if strategy == "truncate":
        damage.garble(last.path, last.at + 4, 4)
    else:
        damage.cut(last.path, last.at + 50)
    words = ("recover", str(store), "-c", str(conf), "--strategy", strategy)
    digest = run_json(*words, exit_code=1)["digest"]
    run_json(*words, "--apply", "--force", str(digest), exit_code=0)
    after = made.reads(store, oracle_servers, put=30)
    assert (after.load, after.readable, after.offsets) == (True, made.messages - 12 + 30, made.messages - 12 + 30)
    again = made.reads(store, oracle_servers, crash=True, put=3)
    assert (again.load, again.readable, again.offsets) == (True, made.messages - 12 + 3, made.messages - 12 + 3)


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("broken", [torn_table, no_manifest], ids=lambda broken: broken.__name__)
def test_queues_whose_messages_have_expired_keep_their_ends(
    broken: Callable[[Path], None], made: Made, tmp_path: Path, oracle_servers: OracleServers
) -> None:
    """They come from the database; if it cannot be read, from the offsets of the consumers, if there are any."""
    store = made.copy(tmp_path)
    for path in sorted((store / "commitlog").iterdir())[:-1]:
        path.unlink()
    before = made.reads(store, oracle_servers, put=9)
    ends = {name: q.max for name, q in before.queues.items()}
    broken(store / made.place)
    plan = rebuild_of(store, "cq", made.settings)
    consumed = [name for name in ends if name.startswith("Order_11/")]
    noted = [note for note in plan.notes if "offsets of consumers give" in note]
    apply(plan)
    after = made.reads(store, oracle_servers, put=9)
    assert (after.load, after.readable) == (True, before.readable)
    now = {name: q.max for name, q in after.queues.items()}
    if broken is torn_table:
        assert (noted, {name: now[name] for name in ends}) == ([], ends)
    else:
        assert (len(noted), {n: now[n] for n in consumed}) == (1, {n: ends[n] for n in consumed})


def test_a_database_of_many_tables_is_read_like_one(
    made: Made, tmp_path: Path, oracle_servers: OracleServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmqstore.append.rocksdb._ROWS_PER_FILE", 7)
    store = made.copy(tmp_path)
    no_manifest(store / made.place)
    apply(plan_of(store, made.settings))
    assert len(list((store / made.place).glob("*.sst"))) > 10
    after = made.reads(store, oracle_servers, put=40)
    assert (after.load, after.readable, after.offsets) == (True, made.messages + 40, made.messages + 40)


def test_one_queue_is_rebuilt_and_the_rows_of_others_are_copied(
    made: Made, tmp_path: Path, oracle_servers: OracleServers
) -> None:
    store = made.copy(tmp_path)
    with changing(store, made.place) as changed:
        changed.put("Order_11", 1, 4, commitlog_offset=77)
        changed.put("Order_11", 2, 5, commitlog_offset=78)
    apply(rebuild_of(store, "cq", made.settings, queues=frozenset([("Order_11", 2)])))
    rows_now = RocksDBQueues(opened(store, made.settings))
    units = {q: next(rows_now.queue("Order_11", q).runs(4, 6))[1]["commitlog_offset"].tolist() for q in (1, 2)}
    assert (units[1][0], units[2][1] > 78) == (77, True)
    assert made.reads(store, oracle_servers).readable == made.messages - 1
    apply(rebuild_of(store, "cq", made.settings))
    assert made.reads(store, oracle_servers).readable == made.messages


def test_a_saved_plan_is_applied_though_the_library_makes_other_bytes_each_time(
    made: Made, tmp_path: Path, oracle_servers: OracleServers
) -> None:
    store = made.copy(tmp_path)
    conf = write_broker_conf(made.name, store)
    rows_astray(store / made.place)
    saved = tmp_path / "plan.json"
    run_json("recover", str(store), "-c", str(conf), "--plan-out", str(saved), exit_code=1)
    assert json.loads(saved.read_text())["digest"] == plan_of(store, made.settings).digest
    run_json("recover", str(store), "-c", str(conf), "--plan", str(saved), "--apply", exit_code=0)
    assert made.reads(store, oracle_servers).readable == made.messages


@pytest.mark.slow
@pytest.mark.other_processes
def test_a_whole_broker_continues_with_truncated_queues_and_consumer_offsets(
    made: Made, tmp_path: Path, whole_broker: Callable[..., WholeBroker]
) -> None:
    """The broker loads both databases and numbers new messages from the new ends on, and its groups skip none."""
    store = made.copy(tmp_path)
    conf = write_broker_conf(made.name, store)
    last = rows(store)[-30]
    damage.garble(last.path, last.at + 4, 4)
    words = ("recover", str(store), "-c", str(conf), "--strategy", "truncate")
    run_json(*words, "--apply", "--force", str(run_json(*words, exit_code=1)["digest"]), exit_code=0)
    cut = offsets_of(store)
    assert cut != offsets_of(unpack(made.name))
    ends = {label: state.max for label, state in report_of(store, made.settings).queues.items()}
    kept = sum(end for label, end in ends.items() if label.startswith("Order_11/"))
    with whole_broker(made.version, store, meta(made.name).broker_conf) as broker:
        assert len(broker.produce("Order_11", 20)) == 20
        places = sorted((m.queue_id, m.queue_offset) for m in broker.read("Order_11"))
    assert len(places) >= kept + 20  # a delayed message may be delivered meanwhile
    assert places == [(q, at) for q in range(4) for at in range(sum(queue_id == q for queue_id, _ in places))]
    assert {key: table for key, table in offsets_of(store).items() if key in cut} == cut
    report = report_of(store, made.settings)
    assert (report.exit_code, dict(report.findings.counts)) == (0, {})


def offsets_of(store: Path) -> dict[str, object]:
    """Return the consumed offsets by `topic@group`."""
    found = table_rows(LOCAL, store / "config" / "consumerOffsets", OFFSETS)
    pairs = (pair for keys, values in found for pair in zip(keys, values, strict=True))
    return {key.decode(): json.loads(value)["offsetTable"] for key, value in pairs}


LIGHT = {"enableLmq": "true", "enableMultiDispatch": "true"}
UNKNOWN_TOPIC = {"CFG-UNKNOWN-TOPICS": 1}  # new messages have the topic Order; only a whole broker would create it


def test_light_queues_are_read_again(made: Made, tmp_path: Path, oracle: Real, oracle_servers: OracleServers) -> None:
    """New messages are also in two light queues, whose rows are written by a real broker, and then by rmqstore."""
    store = made.copy(tmp_path)

    settings = {**made.settings, **LIGHT}
    cell = (made.version, False)

    def read() -> dict[tuple[str, int], str]:
        answer = oracle_servers.read(store, settings, [cell])[cell]
        return {place: message.digest for place, message in messages(answer).items()}

    more = {**settings, "light": "%LMQ%one,%LMQ%two"}
    assert oracle(made.version).load(store, more, start=True, shutdown=True, put=30).load
    assert counts_of(store, made.settings) == UNKNOWN_TOPIC
    sound = read()
    assert [sum(queue == f"%LMQ%{name}/0" for queue, _ in sound) for name in ("one", "two")] == [30, 30]
    with changing(store, made.place) as changed:
        for index in range(3, 9):
            changed.drop("%LMQ%two", 0, index)
        changed.put("%LMQ%one", 0, 4, commitlog_offset=77)
    damaged = next(row for row in rows(store) if row.slot == ("Order", 1, 4))
    damage.flip(damaged.path, damaged.at + 84 + 8, 3)  # the body
    assert read() != sound
    apply(plan_of(store, made.settings))
    assert counts_of(store, made.settings) == UNKNOWN_TOPIC
    assert read() == sound
    no_manifest(store / made.place)
    clone(store, tmp_path / "damaged")  # the RocksDB opened by `changing` continues to write its LOG
    store = tmp_path / "damaged"
    before = content(store)
    journal = apply(rebuild_of(store, "cq", made.settings)).journal
    light = {place: digest for place, digest in sound.items() if place[0].startswith("%LMQ%")}
    assert {place: digest for place, digest in read().items() if place in light} == light
    assert journal is not None
    undo(journal)
    assert content(store) == before
