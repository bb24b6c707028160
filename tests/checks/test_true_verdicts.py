"""A clean verdict is true: each message that a broker would not serve has a finding; skipped parts are unchecked."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqstore.checks.examine import examine, verify
from rmqstore.checks.log.stored_units import UnitFiles
from rmqstore.checks.options import VerifyOptions
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.config import batch_topics, configured_types
from rmqstore.files.files import LOCAL
from rmqstore.files.store import Store, open_store
from rmqstore.formats import index
from rmqstore.formats.message import BLANK_MAGIC, HEAD
from rmqstore.formats.text import many
from rmqstore.repair.migrate_to_dledger import Target, preflight
from rmqstore.repair.plan.recover_options import RecoverOptions
from rmqstore.repair.recover import plan_recovery
from rmqstore.scan.records import scan_file
from rmqstore.scan.tiling import Kind
from tests.checks.looks import Units, unit
from tests.damage import cut, flip, overwrite, zero
from tests.planning import loss_of, plan_of
from tests.repair.salvaging import rows
from tests.stores import copy_store, meta

TIMER_UNITS = 129  # in 5.4.0-formats
DLEDGER = [f"{v}-{kind}" for v in ("4.9.7", "5.1.4", "5.4.0") for kind in ("dledger", "dledger-mixed")]


def timer_units(root: Path) -> list[tuple[int, int, int, int, int]]:
    """Return (link to the previous unit, magic, time due in ms, log offset, size) of the units of the timer log."""
    with (root / "timerlog" / "00000000000000000000").open("rb") as file:
        raw = file.read(TIMER_UNITS * 52)
    rows = struct.iter_unpack(">iqiqiqi12x", raw)
    return [(prev, magic, written + delay, offset, size) for _, prev, magic, written, delay, offset, size in rows]


def verdict_of(root: Path) -> tuple[str, dict[str, int]]:
    report = verify(open_store(root))
    return report.verdict, dict(report.findings.counts)


def test_timed_messages_before_a_wrong_read_time_are_never_delivered(tmp_path: Path) -> None:
    root = copy_store("5.4.0-formats", tmp_path)
    flip(root / "config" / "timercheck", 1, 6)
    log = verify(open_store(root)).commitlog
    assert log is not None
    latest = log["last_timestamp"]
    waiting = sum(due > latest for _, _, due, _, _ in timer_units(root))
    assert waiting > 0
    assert verdict_of(root) == (
        f"RocketMQ 5.4.0 would start and never deliver {waiting} timed messages",
        {"TM-CHECK": 1},
    )


def test_timed_messages_after_a_wrong_link_are_part_of_the_verdict(tmp_path: Path) -> None:
    root = copy_store("5.4.0-formats", tmp_path)
    units = timer_units(root)
    due = max(unit[2] for unit in units)
    mine = [k for k, unit in enumerate(units) if unit[2] == due]
    assert len(mine) > 1
    overwrite(root / "timerlog" / "00000000000000000000", mine[-1] * 52 + 4, (-1).to_bytes(8, "big", signed=True))
    expected = many(len(mine) - 1, "timed message")
    assert verdict_of(root) == (f"RocketMQ 5.4.0 would start and never deliver up to {expected}", {"TM-CHAIN": 1})


def test_a_timer_log_without_a_first_unit_delivers_nothing(tmp_path: Path) -> None:
    root = copy_store("5.4.0-formats", tmp_path)
    flip(root / "timerlog" / "00000000000000000000", 0, 7)
    verdict, counts = verdict_of(root)
    assert counts["TM-LOG"] == 1
    assert verdict == f"RocketMQ 5.4.0 would start and never deliver up to {TIMER_UNITS} timed messages"


def test_delayed_messages_that_an_offset_skips_are_part_of_the_verdict(tmp_path: Path) -> None:
    root = copy_store("5.4.0-clean", tmp_path)
    path = root / "config" / "delayOffset.json"
    path.write_text(path.read_text().replace("18:0", "18:9"))
    assert verdict_of(root) == (
        "RocketMQ 5.4.0 would start and never deliver 2 delayed messages",
        {"CFG-DELAY-BEYOND": 1},
    )
    path.write_text(path.read_text().replace("18:9", "18:0").replace("1:18", "1:99"))  # all of level 1 are delivered
    assert verdict_of(root) == ("RocketMQ 5.4.0 would start and lose nothing", {"CFG-DELAY-BEYOND": 1})


def close_early(store: Store, file_index: int, count: int) -> list[tuple[int, int]]:
    """Replace the last records of a commitlog file by a correct BLANK, and return their (offset, size)."""
    assert store.commitlog is not None
    file = store.commitlog.files[file_index]
    records: list[tuple[int, int]] = []
    for run in scan_file(file):
        if run.kind is Kind.RECORDS and run.columns is not None:
            records += zip(run.columns.offset.tolist(), run.columns.size.tolist(), strict=True)
    gone = records[-count:]
    at = gone[0][0] - file.start
    left = file.file_size - at
    blank = left.to_bytes(4, "big") + (BLANK_MAGIC & 0xFFFFFFFF).to_bytes(4, "big")
    overwrite(file.path, at, blank.ljust(left, b"\0"))
    return gone


@pytest.mark.parametrize(
    ("version", "settings", "most"),
    [("5.4.0", {}, 18), ("5.5.1", {}, 25), ("5.5.1", {"iteratorWhenUseRocksdbConsumeQueue": "false"}, 18)],
)
def test_no_consumer_gets_past_a_queue_offset_that_a_start_gives_no_row(
    version: str, settings: dict[str, str], most: int, tmp_path: Path
) -> None:
    """Observed: 5.4.0 sends a consumer at queue offset 7 back to 0; 5.5.1 fails each pull that meets 7."""
    root = copy_store("5.5.1-rocksdb", tmp_path)
    config = BrokerConfig({**meta("5.5.1-rocksdb").oracle_args, **settings})
    move_to_another_queue(root)
    with_row = verify(open_store(root, config), VerifyOptions(broker=version))
    assert with_row.verdict == f"1 message is damaged; RocketMQ {version} would start and cut nothing"
    shutil.rmtree(root / "consumequeue")
    (root / "abort").touch()  # recovery after a crash dispatches every message
    report = verify(open_store(root, config), VerifyOptions(broker=version))
    lacks = f"never deliver up to {most} messages of 1 queue, because a queue offset has no row in RocksDB"
    assert report.verdict == f"RocketMQ {version} would start and {lacks}"


def move_to_another_queue(root: Path) -> None:
    """Change the QUEUEID of the message at queue offset 7 of Pay_11_Topic/0, so that none has this queue offset."""
    row = next(row for row in rows(root) if row.slot == ("Pay_11_Topic", 0, 7))
    overwrite(row.path, row.at + HEAD.at("queue_id"), (1).to_bytes(4, "big"))


def test_a_blank_over_messages_is_named_with_what_it_hides(tmp_path: Path) -> None:
    store = open_store(copy_store("5.4.0-dledger-mixed", tmp_path))
    gone = close_early(store, -1, 5)
    report = verify(open_store(store.path))
    (finding,) = report.findings.listed
    assert (finding.code, finding.offset) == ("CL-FALSE-BLANK", gone[0][0])
    assert finding.facts["messages"] == 5
    assert report.verdict.endswith("but the log lacks 5 messages of 2 queues")


def test_one_wrong_unit_into_a_blank_does_not_make_it_a_false_one(tmp_path: Path) -> None:
    store = open_store(copy_store("5.4.0-clean", tmp_path))
    assert store.commitlog is not None
    blank = next(r for r in scan_file(store.commitlog.files[1]) if r.kind is Kind.BLANK)
    Units(store.root / "consumequeue/Order_11/0").write(10, unit(blank.start, blank.stop - blank.start))
    report = verify(open_store(store.path))
    assert dict(report.findings.counts) == {"CQ-DANGLING-UNIT": 1}
    assert report.verdict.endswith("but 1 consume queue unit points to no message")


def test_units_after_the_end_of_the_log_are_part_of_the_verdict(tmp_path: Path) -> None:
    store = open_store(copy_store("5.4.0-clean", tmp_path))
    close_early(store, -1, 5)
    report = verify(open_store(store.path))
    assert report.findings.counts["CQ-BEYOND-LOG"] == 2
    assert report.verdict.endswith("but the log lacks 5 messages of 2 queues")


@pytest.mark.parametrize(
    ("gone", "words"),
    [
        (("consumequeue",), "but the log lacks at least 14 messages"),
        (("consumequeue", "index"), "but the log lacks at least 9 messages of 4 queues"),
        (
            ("consumequeue", "index", "config"),
            "but the checkpoint has the time of a later message, but it does not know 3 topics, and 1 consumer group "
            "starts over",
        ),
    ],
)
def test_index_and_checkpoint_after_the_end_are_part_of_the_verdict(
    gone: tuple[str, ...], words: str, tmp_path: Path
) -> None:
    """The last 14 messages are gone; without consume queues, "lose nothing" alone would hide it."""
    root = copy_store("5.4.0-clean", tmp_path)
    first = rows(root)[-14]
    zero(first.path, first.at, first.path.stat().st_size - first.at)
    for name in gone:
        shutil.rmtree(root / name)
    assert verify(open_store(root)).verdict == f"RocketMQ 5.4.0 would start and lose nothing, {words}"


def test_index_entries_that_point_into_the_log_show_no_later_message(tmp_path: Path) -> None:
    root = copy_store("5.4.0-clean", tmp_path)
    path = min((root / "index").iterdir())
    overwrite(path, index.unit_at(5, 100) + index.UNIT.at("phy_offset"), (1001).to_bytes(8, "big"))
    report = verify(open_store(root))
    assert report.findings.counts["IX-DANGLING-ENTRY"] == 1
    assert report.verdict == "RocketMQ 5.4.0 would start and lose nothing"


@pytest.mark.parametrize("name", DLEDGER)
def test_a_log_without_any_queue_and_configuration_is_not_clean(name: str, tmp_path: Path) -> None:
    root = copy_store(name, tmp_path)
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "config")
    version = name[:5]
    report = verify(open_store(root), VerifyOptions(broker=version))
    delivered = (
        3 if "mixed" in name else 1
    )  # delay levels (1 s, 10 s, 1 min) that were due before the log's last message
    expected_counts = {"CQ-MISSING-QUEUE": 21, "CFG-LOST-TOPICS": 1, "CFG-NO-OFFSETS": 1, "CFG-NO-DELAYS": delivered}
    assert dict(report.findings.counts) == expected_counts
    assert report.exit_code == 1
    expected = sum(q.expected_max for q in report.queues.values())
    assert report.broker is not None
    if version == "4.9.7":  # it dispatches the whole log again
        assert sum(report.broker["redispatched"].values()) == expected
    else:
        assert report.verdict.startswith(f"RocketMQ {version} would start and never deliver {expected} messages")


def shift_entries(store: Store, by: int) -> None:
    """Add to the queue offsets of Order_11/0 in DLedger's part; the legacy part contains 42 of its messages."""
    assert store.dledger is not None
    for file in store.dledger.data.files:
        for run in scan_file(file, body_offset=48):
            columns = run.columns
            if run.kind is not Kind.RECORDS or columns is None:
                continue
            for i in range(len(columns)):
                if columns.topic(i) == b"Order_11" and columns.queue_id[i] == 0:
                    value = int(columns.queue_offset[i]) + by
                    overwrite(file.path, int(columns.offset[i]) - file.start + 20, value.to_bytes(8, "big"))


@pytest.mark.parametrize(("by", "code"), [(3, "CL-QUEUE-OFFSET-GAP"), (-42, "CL-QUEUE-RESTARTED")])
def test_queue_offsets_are_judged_over_the_border_of_legacy_log_and_dledger(by: int, code: str, tmp_path: Path) -> None:
    store = open_store(copy_store("5.4.0-dledger-mixed", tmp_path))
    shift_entries(store, by)
    report = verify(open_store(store.path))
    assert dict(report.findings.counts) == {code: 1, "CQ-SHIFTED": 1}
    (finding,) = [f for f in report.findings.listed if f.code == code]
    assert (finding.queue, finding.offset) == ("dledger", 541277)


def test_a_store_without_queues_is_not_migrated_to_dledger(tmp_path: Path) -> None:
    root = copy_store("5.4.0-clean", tmp_path)
    shutil.rmtree(root / "consumequeue")
    for file in (root / "config").glob("topics.json*"):
        file.unlink()
    store = open_store(root)
    refusals, _ = preflight(store, examine(store), Target(str(root), "n0"), [])
    assert "21 × CQ-MISSING-QUEUE" in refusals[0].reason
    assert refusals[0].advice.startswith(f"run `rmqstore recover {root} --apply`")  # topics.json is missing, too


@pytest.mark.parametrize(
    "part", ["consumequeue/Order_11/0", "consumequeue/Order_11/0/00000000000000000000", "index", "checkpoint", "config"]
)
def test_a_part_without_its_log_is_unchecked(part: str, tmp_path: Path) -> None:
    report = verify(open_store(copy_store("5.4.0-clean", tmp_path) / part))
    assert (report.clean, report.exit_code) == (False, 4)
    assert report.unchecked == [f"{Path(part).name} was checked without a log, so not against messages"]


def test_a_log_alone_is_checked(tmp_path: Path) -> None:
    assert verify(open_store(copy_store("5.4.0-clean", tmp_path) / "commitlog")).exit_code == 0


def test_a_queue_outside_of_its_tree_has_the_name_of_its_directory(store: Path, tmp_path: Path) -> None:
    shutil.copytree(store / "consumequeue/Order_11/0", tmp_path / "w")
    assert list(verify(open_store(tmp_path / "w")).queues) == ["w"]
    assert list(verify(open_store(tmp_path / "w/00000000000000000000")).queues) == ["w"]
    shutil.copytree(store / "consumequeue/Order_11", tmp_path / "Order_11")
    assert list(verify(open_store(tmp_path / "Order_11/0")).queues) == ["Order_11/0"]


def _no_topics_json(root: Path) -> None:
    for file in (root / "config").glob("topics.json*"):
        file.unlink()


def _only_bak(root: Path) -> None:
    config = root / "config"
    shutil.copy(config / "topics.json", config / "topics.json.bak")
    cut(config / "topics.json", 100)


def _no_directory(root: Path) -> None:
    shutil.rmtree(root / "batchconsumequeue")


@pytest.mark.parametrize("damage", [[], [_only_bak, _no_directory], [_no_topics_json], [_no_directory]])
def test_batch_topics_are_known_from_topics_json_its_bak_or_their_directories(
    damage: list[Callable[[Path], None]], tmp_path: Path
) -> None:
    root = copy_store("5.4.0-formats", tmp_path)
    for step in damage:
        step(root)
    store = open_store(root)
    assert batch_topics(store, configured_types(LOCAL, root)) == {"BatchCq_11"}
    assert examine(store).batch_topics == {"BatchCq_11"}


def test_inner_batches_prove_a_batch_topic_where_nothing_else_is_left(tmp_path: Path) -> None:
    root = copy_store("5.4.0-formats", tmp_path)
    _no_topics_json(root)
    _no_directory(root)
    store = open_store(root)
    assert batch_topics(store, configured_types(LOCAL, root)) == frozenset()
    verified = examine(store)
    assert verified.batch_topics == {"BatchCq_11"}
    counts = verified.report.findings.counts
    assert (counts["BCQ-MISSING-UNIT"], counts["CFG-NO-TOPICS"], counts["CQ-MISSING-QUEUE"]) == (2, 1, 0)
    plan = plan_recovery(store, verified, RecoverOptions())
    assert [step.path for step in plan.steps if "batchconsumequeue" in step.path] == []


def test_the_loss_of_a_cut_counts_batches_also_without_topics_json(tmp_path: Path) -> None:
    losses = []
    for number, damage in enumerate([[], [_no_topics_json]]):
        root = copy_store("5.4.0-formats", tmp_path, rename=str(number))
        for step in damage:
            step(root)
        overwrite(root / "commitlog/00000000000000131072", 100, b"\xff" * 64)
        queues = loss_of(root, options=RecoverOptions(strategy="truncate")).queues
        losses.append({q: n for q, n in queues.items() if q.startswith("BatchCq_11/")})
    assert losses[0] == losses[1] == {"BatchCq_11/0": 25, "BatchCq_11/1": 24}


def test_a_checkpoint_in_the_future_does_not_make_a_loss_a_lower_bound(tmp_path: Path) -> None:
    losses = []
    for number in range(2):
        root = copy_store("5.4.0-clean", tmp_path, rename=str(number))
        store = open_store(root)
        assert store.commitlog is not None
        last = [r for f in store.commitlog.files for r in scan_file(f) if r.kind is Kind.RECORDS][-1]
        file = store.commitlog.find(last.start)
        assert file is not None
        shutil.rmtree(root / "consumequeue/Order_11/0")
        overwrite(file.path, last.start - file.start + 40, b"\xee" * 400)
        if number:
            overwrite(root / "checkpoint", 0, (4_102_444_800_000).to_bytes(8, "big"))
        loss = loss_of(root)
        losses.append((loss.messages, loss.more.get("at_least")))
    assert losses[0] == losses[1]


def test_a_message_that_two_spans_may_have_held_is_lost_once(tmp_path: Path) -> None:
    root = copy_store("5.4.0-clean", tmp_path)
    zero(root / "commitlog/00000000000000000000", 58_966, 65_536 - 58_966)  # within one message, to the file's end
    zero(root / "commitlog/00000000000000065536", 0, 1_795)  # within the next one
    for queue in ("Order_11/2", "SCHEDULE_TOPIC_XXXX/4", "SCHEDULE_TOPIC_XXXX/17"):
        shutil.rmtree(root / "consumequeue" / queue)
    plan, loss = plan_of(root), loss_of(root)
    assert (loss.messages, loss.more.get("at_least")) == (1, True)
    assert "the message at 58,715 is kept, but its properties are unknown" in plan.notes


def test_a_look_lists_each_queue_directory_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = copy_store("5.4.0-clean", tmp_path)
    listed: list[str] = []
    opened = UnitFiles.queue

    def count(self: UnitFiles, topic: str, queue_id: int) -> object:
        if (topic, queue_id) not in self._kept:
            listed.append(f"{topic}/{queue_id}")
        return opened(self, topic, queue_id)

    monkeypatch.setattr(UnitFiles, "queue", count)
    verify(open_store(root), VerifyOptions(jobs=1))
    assert len(listed) == len(set(listed)) == 21
