"""The broker's configuration files and their .bak files; offsets compared with the queues."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rmqstore.checks.beside.config import ConfigFacts, check_config
from rmqstore.checks.examine import verify
from rmqstore.checks.problems.report import Findings
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import open_store
from tests.checks.sound import above_note, check_configuration, located, opened, queue_range
from tests.command import run_json
from tests.damage import cut, garble, zero
from tests.stores import copy_store


def check(path: Path, *, live: bool = False) -> tuple[Findings, ConfigFacts]:
    store = open_store(path)
    findings = Findings()
    facts = check_configuration(store, findings, live=live)
    return findings, facts


def test_queue_types_are_read() -> None:
    facts = check_config(opened("5.1.4-formats"), Findings())
    assert facts.queue_types is not None
    assert facts.queue_types["BatchCq_11"] == "BatchCQ"
    assert facts.queue_types["Order_11"] == "SimpleCQ"


def test_without_topics_json_queue_types_are_not_known() -> None:
    assert check_config(opened("head_clean"), Findings()).queue_types is None
    assert check_config(opened("5.4.0-rocksdb"), Findings()).queue_types is None


@pytest.mark.parametrize(
    ("break_it", "condition"),
    [
        (lambda p: cut(p, 0), "empty"),
        (lambda p: zero(p, 0, p.stat().st_size), "nul-filled"),
        (lambda p: cut(p, p.stat().st_size // 2), "cut"),
        (lambda p: garble(p, 0, 40), "broken"),
        (lambda p: p.unlink(), "missing"),
    ],
)
def test_a_broken_file_with_a_good_bak_is_a_warning(
    store: Path, break_it: Callable[[Path], None], condition: str
) -> None:
    break_it(store / "config" / "topics.json")
    findings, facts = check(store)
    assert [(f.code, f.file, f.facts["condition"]) for f in findings.listed] == [
        ("CFG-BROKEN", "topics.json", condition)
    ]
    assert facts.queue_types is not None  # read from the .bak file
    assert "Order_11" in facts.queue_types


def test_a_broken_file_with_a_broken_bak_is_unreadable(tmp_path: Path) -> None:
    store = copy_store("5.1.4-clean", tmp_path)
    cut(store / "config" / "subscriptionGroup.json", 87)
    cut(store / "config" / "subscriptionGroup.json.bak", 0)
    findings, _ = check(store)
    assert located(findings) == [("CFG-UNREADABLE", "config", "subscriptionGroup.json", 87)]
    assert findings.listed[0].facts["bak"] == "empty"


def test_a_null_in_place_of_the_offset_table_is_found_and_repaired_from_the_bak(store: Path) -> None:
    """Brokers of 4.9.7, 5.1.4 and 5.4.0 start with it, but then every query and commit of an offset throws."""
    path = store / "config" / "consumerOffset.json"
    backup = path.with_name("consumerOffset.json.bak").read_bytes()
    path.write_bytes(b'{"offsetTable":null}')
    findings, _ = check(store)
    assert [(f.code, f.file, f.facts["problem"]) for f in findings.listed] == [
        ("CFG-BROKEN", "consumerOffset.json", "offsetTable is null")
    ]
    done = run_json("recover", str(store), "--apply", exit_code=0)
    assert (done["remaining"], path.read_bytes()) == ({"counts": {}}, backup)


def test_a_broken_bak_beside_a_good_file_is_a_note(tmp_path: Path) -> None:
    store = copy_store("5.1.4-clean", tmp_path)
    zero(store / "config" / "delayOffset.json.bak", 0, 50)
    findings, _ = check(store)
    assert [(f.code, f.file) for f in findings.listed] == [("CFG-BROKEN-BAK", "delayOffset.json.bak")]
    assert above_note(findings) == []


def test_a_half_written_file_beside_a_live_broker_is_not_a_finding(tmp_path: Path) -> None:
    store = copy_store("5.1.4-clean", tmp_path)
    cut(store / "config" / "consumerOffset.json", 30)
    assert located(check(store, live=True)[0]) == []
    assert [c for c, *_ in located(check(store)[0])] == ["CFG-BROKEN"]


def test_a_half_written_bak_beside_a_live_broker_is_not_a_finding(tmp_path: Path) -> None:
    store = copy_store("4.9.7-clean", tmp_path)
    cut(store / "config" / "subscriptionGroup.json.bak", 30)
    assert [f.code for f in check(store, live=True)[0].listed] == []
    assert [f.code for f in check(store)[0].listed] == ["CFG-BROKEN-BAK"]


def test_position_checkpoint_is_checked_too(tmp_path: Path) -> None:
    store = copy_store("5.1.4-clean", tmp_path)
    cut(store / "compaction" / "position-checkpoint", 20)
    assert located(check(store)[0]) == [("CFG-UNREADABLE", "compaction", "position-checkpoint", 18)]


def _set(store: Path, name: str, old: str, new: str) -> None:
    path = store / "config" / name
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))


def test_a_consumer_offset_beyond_the_queue_is_named(store: Path) -> None:
    top = queue_range(open_store(store), "Order_11", 0)
    assert top is not None
    (store / "config" / "consumerOffset.json").write_text(
        f'{{"offsetTable":{{"Order_11@GroupA":{{0:{top[1] + 1},1:0}},"Gone@GroupA":{{0:99}}}}}}'
    )
    findings, _ = check(store)
    assert located(findings) == [("CFG-OFFSET-BEYOND", "Order_11/0", "consumerOffset.json", 0)]
    assert findings.listed[0].facts == {
        "topic": "Order_11",
        "queue_id": 0,
        "offset": top[1] + 1,
        "max": top[1],
        "group": "GroupA",
    }
    assert "CFG-OFFSET-BEYOND" in verify(open_store(store)).findings.counts
    slave = BrokerConfig({"brokerRole": "SLAVE"})  # a slave copies the offsets of its master, which may be ahead
    assert "CFG-OFFSET-BEYOND" not in verify(open_store(store, slave)).findings.counts


def test_an_offset_at_the_end_is_normal(store: Path) -> None:
    top = queue_range(open_store(store), "Order_11", 0)
    assert top is not None
    (store / "config" / "consumerOffset.json").write_text(f'{{"offsetTable":{{"Order_11@GroupA":{{0:{top[1]}}}}}}}')
    assert located(check(store)[0]) == []


def test_a_delay_offset_beyond_its_queue_is_named(store: Path) -> None:
    _set(store, "delayOffset.json", "3:", "3:9")
    findings, _ = check(store)
    assert located(findings) == [("CFG-DELAY-BEYOND", "SCHEDULE_TOPIC_XXXX/2", "delayOffset.json", 0)]


def test_an_epoch_file_with_a_wrong_crc_is_named(tmp_path: Path) -> None:
    from rmqstore.formats.controller import EpochEntry, EpochFile

    store = copy_store("5.4.0-clean", tmp_path)
    sound = EpochFile((EpochEntry(1, 0), EpochEntry(2, 4096))).build()
    path = store / "epochFileCheckpoint"
    path.write_bytes(sound)
    assert located(check(store)[0]) == []
    path.write_bytes(sound.replace(b"2-4096", b"2-4097"))
    assert located(check(store)[0]) == [("CFG-UNREADABLE", "store", "epochFileCheckpoint", 0)]
    (store / "epochFileCheckpoint.bak").write_bytes(sound)
    assert located(check(store)[0]) == [("CFG-BROKEN", "store", "epochFileCheckpoint", 0)]


def test_an_empty_broker_identity_is_named(store: Path) -> None:
    (store / "brokerIdentity").write_bytes(b"DefaultCluster#broker-a#1")
    assert located(check(store)[0]) == []
    (store / "brokerIdentity").write_bytes(b"")
    assert located(check(store)[0]) == [("CFG-UNREADABLE", "store", "brokerIdentity", 0)]


@pytest.mark.parametrize("part", ["config", "config/topics.json"])
def test_a_part_of_a_store_is_checked_alone(store: Path, part: str) -> None:
    cut(store / "config" / "topics.json", 99)
    findings = Findings()
    check_config(open_store(store / part), findings)
    assert located(findings) == [("CFG-BROKEN", "config", "topics.json", 87)]


@pytest.mark.parametrize(
    "junk", [b"[]", b"null", b"7", b"[" * 100_000, b'{"offsetTable":[1,2]}', b'{"offsetTable":{"a":1}}']
)
def test_any_json_is_handled_without_an_exception(tmp_path: Path, junk: bytes) -> None:
    store = copy_store("4.9.7-clean", tmp_path)
    for name in ("consumerOffset.json", "delayOffset.json", "topics.json"):
        (store / "config" / name).write_bytes(junk)
        (store / "config" / f"{name}.bak").write_bytes(junk)
    findings, facts = check(store)
    assert {c for c, *_ in located(findings)} <= {"CFG-UNREADABLE"}
    assert facts.queue_types is None
