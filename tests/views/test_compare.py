"""compare: replicas compared directly and by fingerprints, with real groups and with changed copies."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from rmqstore.cli.compare import ranges_text
from rmqstore.formats.message import parse_message
from tests.command import run, run_json
from tests.damage import flip
from tests.repair.migration_stores import Record, all_records
from tests.stores import copy_store, unpack
from tests.untouched import assert_untouched

N0, N1, N2 = "5.4.0-dledger3-n0", "5.4.0-dledger3-n1", "5.4.0-dledger3-n2"
MASTER, SLAVE = "5.4.0-master", "5.4.0-slave"


def _compare(store: Path, other: Path, exit_code: int) -> Mapping[str, object]:
    return run_json("compare", str(store), str(other), "--jobs", "1", exit_code=exit_code)


def _fingerprint(store: Path, file: Path) -> Path:
    assert run("compare", str(store), "--fingerprint-out", str(file)).exit_code == 0
    return file


def _against(store: Path, file: Path, exit_code: int) -> Mapping[str, object]:
    return run_json("compare", str(store), "--against", str(file), "--jobs", "1", exit_code=exit_code)


def test_two_nodes_of_a_group_are_equal_and_neither_is_written() -> None:
    with assert_untouched(unpack(N0)), assert_untouched(unpack(N1)):
        answer = _compare(unpack(N0), unpack(N1), 0)
    assert (answer["equal"], answer["relation"], answer["first_divergence"]) == (True, "equal", None)
    assert answer["common"] == {"start": 0, "stop": 401717, "messages": 402}


def test_killed_follower_is_a_prefix_and_what_it_lacks_is_named() -> None:
    answer = _compare(unpack(N0), unpack(N2), 1)
    assert answer["relation"] == "other-is-prefix"
    first = answer["first_divergence"]
    assert isinstance(first, dict)
    assert (first["log"], first["offset"], first["other"]) == ("dledger", 297124, None)
    assert (first["store"]["index"], first["store"]["term"]) == (301, 1)
    lacking = all_records(unpack(N0))[301:]
    only = answer["only_in_store"]
    assert isinstance(only, dict)
    assert only["messages"] == len(lacking) == 101
    assert [row["offset"] + 48 for row in only["listed"]] == [record.address for record in lacking][:100]
    assert sum(queue["messages"] for queue in only["queues"].values()) == 101
    assert answer["only_in_other"] == {"messages": 0, "queues": {}, "listed": []}


def test_killed_slave_is_a_prefix_of_its_master_seen_from_both_sides() -> None:
    answer = _compare(unpack(SLAVE), unpack(MASTER), 1)
    assert (answer["relation"], answer["common"]) == ("store-is-prefix", {"start": 0, "stop": 288160, "messages": 380})
    only = answer["only_in_other"]
    assert isinstance(only, dict)
    assert only["messages"] == 151
    assert only["queues"]["Order_11/0"] == {"first": 24, "messages": 14, "ranges": [[24, 37]]}
    assert answer["queues"]["Order_11/0"] == {"first_divergence": 24}  # type: ignore[index]


def _damage(store: Path, offset: int, data: bytes) -> None:
    path = store / "commitlog" / f"{offset // 65536 * 65536:020d}"
    with path.open("r+b") as file:
        file.seek(offset % 65536)
        file.write(data)


def _parts(answer: Mapping[str, object]) -> dict[str, int]:
    """Return the number of messages in each part of the result, without empty parts."""
    names = ("changed", "damaged_in_store", "damaged_in_other", "only_in_store", "only_in_other")
    counts = {name: answer[name]["messages"] for name in names}  # type: ignore[index]
    return {name: n for name, n in counts.items() if n} | ({"moved": answer["moved"]} if answer["moved"] else {})


def test_two_histories_are_ended_by_making_one_store_again(tmp_path: Path) -> None:
    """One record of the slave differs far before its end: recover would refuse to extend it."""
    store, master = copy_store(SLAVE, tmp_path), unpack(MASTER)
    record = all_records(store)[200]
    flip(store / "commitlog" / f"{record.address // 65536 * 65536:020}", record.address % 65536 + 48)
    answer = _compare(store, master, 1)
    seeds = [f"rmqstore seed {path} DIR --role slave" for path in (store, master)]
    assert (answer["heal"], answer["seed"]) == ([], seeds)
    shown = run("compare", str(store), str(master)).stdout.splitlines()
    assert [line.rpartition(": ")[2] for line in shown if line.startswith("Next, if ")] == seeds
    made = _fingerprint(master, tmp_path / "master.fingerprint")
    shown = run("compare", str(store), "--against", str(made)).stdout.splitlines()
    assert [line.rpartition(": ")[2] for line in shown if line.startswith("Next, if ")] == seeds
    assert _compare(unpack(SLAVE), master, 1)["seed"] == []


def test_changed_byte_is_different_content_at_the_same_offset(tmp_path: Path) -> None:
    store = copy_store(MASTER, tmp_path)
    record = all_records(store)[200]
    _damage(store, record.address + 16, b"\0\0\0\7")  # another FLAG, which is valid
    answer = _compare(store, unpack(MASTER), 1)
    first = answer["first_divergence"]
    assert isinstance(first, dict)
    assert first["offset"] == record.address
    assert first["store"] == first["other"]
    assert (first["store_state"], first["other_state"]) == ("message", "message")
    assert (answer["relation"], answer["common"]["messages"], answer["equal_messages"]) == ("diverged", 200, 530)  # type: ignore[index]
    assert _parts(answer) == {"changed": 1}


def test_flipped_bits_are_damage_on_one_side_and_all_else_is_equal(tmp_path: Path) -> None:
    store = copy_store(MASTER, tmp_path)
    records = all_records(store)
    hit = [records[i] for i in (100, 200, 300, 400)]
    for record in hit:
        at = record.address + 88  # in the body
        flip(store / "commitlog" / f"{at // 65536 * 65536:020d}", at % 65536)
    for first, second, name in ((store, unpack(MASTER), "store"), (unpack(MASTER), store, "other")):
        answer = _compare(first, second, 1)
        assert _parts(answer) == {f"damaged_in_{name}": 4}
        damaged = answer[f"damaged_in_{name}"]
        assert isinstance(damaged, dict)
        assert [row["offset"] for row in damaged["listed"]] == [record.address for record in hit]
        divergence = answer["first_divergence"]
        assert isinstance(divergence, dict)
        assert (divergence["offset"], divergence[f"{name}_state"], divergence[name]) == (
            hit[0].address,
            "damaged",
            None,
        )
        assert (answer["relation"], answer["equal_messages"]) == ("diverged", 527)


def test_damaged_last_record_is_damaged_and_not_the_end_of_the_log(tmp_path: Path) -> None:
    store = copy_store(MASTER, tmp_path)
    record = all_records(store)[-1]
    _damage(store, record.address + 88, b"\xff\xff")
    answer = _compare(store, unpack(MASTER), 1)
    assert (answer["relation"], _parts(answer)) == ("diverged", {"damaged_in_store": 1})


def _queue(record: Record) -> tuple[bytes, int, int]:
    message, _ = parse_message(record.data)
    assert message is not None
    return message.topic, message.queue_id, message.queue_offset


def test_text_lists_the_queue_offsets_that_are_hit_and_no_others(tmp_path: Path) -> None:
    store = copy_store(MASTER, tmp_path)
    mine = [r for r in all_records(store) if _queue(r) in ((b"Order_11", 0, 17), (b"Order_11", 0, 23))]
    for record in mine:
        _damage(store, record.address + 88, b"\xff\xff")
    lines = run("compare", str(unpack(MASTER)), str(store)).stdout.splitlines()
    assert lines[0].startswith("The stores differ: ")
    assert "Damaged in OTHER, good in STORE: 2 messages of 1 queue" in lines
    assert "  Order_11/0: 2 messages, queue offsets 17 and 23" in lines
    assert f"First difference: commitlog, offset {mine[0].address:,}" in lines
    assert "  OTHER  damaged" in lines
    assert "different offsets" not in "\n".join(lines)


@pytest.mark.parametrize("same", [True, False])
def test_place_that_is_damaged_on_both_sides_is_named(same: bool, tmp_path: Path) -> None:
    store, other = copy_store(MASTER, tmp_path / "a"), copy_store(MASTER, tmp_path / "b")
    record = all_records(store)[200]
    _damage(store, record.address + 88, b"\xff\xff")
    _damage(other, record.address + 88, b"\xff\xff" if same else b"\xff\xfe")
    answer = _compare(store, other, 0 if same else 1)
    place = {"offset": record.address, "until": record.address + len(record.data), "same_bytes": same}
    assert answer["damaged_in_both"] == [place]
    assert (answer["relation"], _parts(answer)) == ("equal" if same else "diverged", {})


@pytest.mark.parametrize(
    ("ranges", "text"),
    [
        ([(17, 17)], "queue offset 17"),
        ([(17, 17), (23, 23)], "queue offsets 17 and 23"),
        ([(24, 1037)], "queue offsets 24 to 1,037"),
        ([(1, 2), (4, 4), (6, 9)], "queue offsets 1 to 2, 4 and 6 to 9"),
        ([(i, i) for i in range(0, 20, 2)], "queue offsets 0, 2, 4, 6, 8, 10, 12, 14 and 2 more ranges"),
    ],
)
def test_ranges_of_queue_offsets_in_words(ranges: list[tuple[int, int]], text: str) -> None:
    assert ranges_text(ranges) == text


@pytest.mark.parametrize("missing", [0, 3, 6])
def test_missing_file_leaves_its_messages_on_the_other_side_only(missing: int, tmp_path: Path) -> None:
    store = copy_store(N1, tmp_path)
    files = sorted((store / "dledger-n1" / "data").iterdir())
    start = int(files[missing].name)
    files[missing].unlink()
    lost = [r for r in all_records(unpack(N1)) if start <= r.address < start + 65536]
    if missing == 0:  # each node expires files on its own, so files that only one still has are not a difference
        answer = _compare(store, unpack(N0), 0)
        assert answer["common"]["start"] == 65536  # type: ignore[index]
        return
    answer = _compare(store, unpack(N0), 1)
    assert answer["only_in_other"]["messages"] == len(lost)  # type: ignore[index]
    assert _parts(answer) == {"only_in_other": len(lost)}
    first = answer["first_divergence"]
    assert isinstance(first, dict)
    state = "ended" if start == int(files[-1].name) else "missing-file"
    assert (first["offset"], first["store_state"]) == (lost[0].address - 48, state)


def test_messages_before_the_begin_of_the_other_log_are_counted_and_can_be_restored(tmp_path: Path) -> None:
    whole = unpack("5.4.0-clean")
    store = copy_store("5.4.0-clean", tmp_path)
    (store / "commitlog" / f"{0:020}").unlink()
    answer = _compare(store, whole, 0)
    assert (answer["relation"], answer["earlier"]) == ("equal", {"store": 0, "other": 120})
    assert _compare(whole, store, 0)["earlier"] == {"store": 120, "other": 0}
    text = run("compare", str(store), str(whole)).stdout
    assert text.startswith("Equal from offset 65,536 on. Only OTHER has 120 messages before that.")
    command = f"rmqstore recover {store} --replica {whole} --extend"
    assert command in text.replace("\n", "")
    offer = run("recover", str(store), "--replica", str(whole))
    assert "still has what precedes it, from 0 on: --extend restores these files" in " ".join(offer.stderr.split())
    assert run("recover", str(store), "--replica", str(whole), "--extend", "--apply").exit_code == 0
    assert _compare(store, whole, 0)["earlier"] == {"store": 0, "other": 0}


def test_other_store_has_everything_on_one_side_only() -> None:
    answer = _compare(unpack("5.4.0-clean"), unpack("5.1.4-clean"), 1)
    assert (answer["relation"], answer["moved"]) == ("diverged", 0)
    assert (answer["only_in_store"]["messages"], answer["only_in_other"]["messages"]) == (553, 553)  # type: ignore[index]


def test_same_messages_at_other_places_are_moved_not_missing(tmp_path: Path) -> None:
    source, plain = unpack("5.4.0-dledger-mixed"), tmp_path / "plain"
    assert run("migrate-to-commitlog", str(source), "--output", str(plain), "--jobs", "1").exit_code == 0
    answer = _compare(source, plain, 1)
    assert (answer["relation"], answer["moved"]) == ("moved", 203)
    assert (answer["only_in_store"]["messages"], answer["only_in_other"]["messages"]) == (0, 0)  # type: ignore[index]


def test_text_names_the_first_difference_and_the_queues() -> None:
    text = run("compare", str(unpack(N0)), str(unpack(N2))).stdout
    assert "OTHER is shorter: all its messages are equal, and STORE continues." in text
    assert "First difference: dledger, offset 297,124" in text
    assert "  OTHER  the log ends before it" in text
    assert "  Order_11/0: 9 messages, queue offsets 32 to 40" in text


# --- fingerprints ---------------------------------------------------------------------------------------------------


def test_fingerprint_of_an_equal_replica_is_equal(tmp_path: Path) -> None:
    file = _fingerprint(unpack(N1), tmp_path / "n1")
    answer = _against(unpack(N0), file, 0)
    assert (answer["equal"], answer["equal_until"], answer["queues"]) == (True, 401717, [])
    assert file.stat().st_size < 100_000


@pytest.mark.parametrize(
    ("store", "other", "relation"),
    [(N0, N2, "other-is-prefix"), (N2, N0, "store-is-prefix"), (MASTER, SLAVE, "other-is-prefix")],
)
def test_fingerprint_identifies_a_prefix_exactly(store: str, other: str, relation: str, tmp_path: Path) -> None:
    answer = _against(unpack(store), _fingerprint(unpack(other), tmp_path / "file"), 1)
    assert (answer["relation"], answer["equal"]) == (relation, False)
    assert answer["equal_until"] == (297124 if N2 in (store, other) else 288160)


@pytest.mark.parametrize("number", [0, 200, 379])
def test_changed_message_is_found_within_its_range(number: int, tmp_path: Path) -> None:
    slave = copy_store(SLAVE, tmp_path)
    record = all_records(slave)[number]
    file = _fingerprint(unpack(MASTER), tmp_path / "master")
    _damage(slave, record.address + 16, b"\0\0\0\7")
    answer = _against(slave, file, 1)
    assert answer["relation"] == "diverged"
    first = answer["first_divergence"]
    assert isinstance(first, dict)
    assert first["offset"] <= record.address < first["until"]
    mine = _fingerprint(slave, tmp_path / "slave")
    back = _against(unpack(MASTER), mine, 1)
    assert back["relation"] == "diverged"


def test_end_that_the_fingerprint_does_not_name_is_undecided(tmp_path: Path) -> None:
    file = _fingerprint(unpack(MASTER), tmp_path / "master")
    document = json.loads(file.read_text())
    document["tail"] = document["tail"][-20:]
    file.write_text(json.dumps(document))
    answer = _against(unpack(SLAVE), file, 1)
    assert (answer["relation"], answer["equal_until"]) == ("undecided", 262144)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"schema": "rmqstore.fingerprint/1"}',
        '{"schema": "rmqstore.fingerprint/1", "side": {}, "step": 65536, "ranges": [], "queues": {}, "tail": []}',
        "[" * 100_000,
        "\0\xff",
    ],
)
def test_file_that_is_no_fingerprint_is_wrong_usage(text: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text(text, "latin-1")
    assert run("compare", str(unpack(SLAVE)), "--against", str(file)).exit_code == 2


@pytest.mark.parametrize("value", [None, [], {}, "x", -1, 1 << 70, [[0, 1, 2]], [[]], {"Order/0": [0, 1]}])
def test_any_value_in_a_fingerprint_is_answered(value: object, tmp_path: Path) -> None:
    file = _fingerprint(unpack(MASTER), tmp_path / "master")
    document = json.loads(file.read_text())
    for part in (document, document["side"]):
        for name, kept in part.items():
            part[name] = value
            file.write_text(json.dumps(document))
            result = run("compare", str(unpack(SLAVE)), "--against", str(file))
            assert result.exit_code in (0, 1, 2, 4), (name, result.stderr)
            part[name] = kept


@pytest.mark.parametrize("words", [(), ("OTHER", "--against", "FILE")])
def test_exactly_one_thing_is_compared_with(words: tuple[str, ...]) -> None:
    assert run("compare", str(unpack(SLAVE)), *words).exit_code == 2


def test_fingerprint_is_not_written_into_the_store(tmp_path: Path) -> None:
    store = copy_store(SLAVE, tmp_path)
    assert run("compare", str(store), "--fingerprint-out", str(store / "commitlog" / "f")).exit_code == 2


def test_path_without_a_log_is_no_store(tmp_path: Path) -> None:
    assert run("compare", str(unpack(SLAVE)), str(tmp_path)).exit_code == 3
    assert run("compare", str(unpack(SLAVE)), str(tmp_path / "nothing")).exit_code == 3
