"""`rmqstore lost`: the lost messages before and after a repair, and what remains of each message."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rmqstore.formats.index import key_hash
from rmqstore.formats.properties import SCHEDULE_TOPIC
from tests.command import run, run_json
from tests.damage import flip, garble, zero
from tests.stores import copy_store, unpack, write_broker_conf
from tests.views.decoder import Record, find_records

STORE = "5.4.0-clean"


def file_of(store: Path, record: Record) -> tuple[Path, int]:
    """Return the file of a record, and its position in the file."""
    for folder in (*store.glob("dledger-*/data"), store / "commitlog"):
        for path in sorted(folder.iterdir(), reverse=True) if folder.is_dir() else ():
            if int(path.name) <= record.position < int(path.name) + path.stat().st_size:
                return path, record.position - int(path.name)
    raise AssertionError(record)


def damaged(store: Path, folder: str = "") -> tuple[Record, Record, Record]:
    """Damage three records, and return them: ten wrong bytes in a body, only zeros, and one flipped bit in a body."""
    records = [r for r in find_records(store) if r.topic.startswith(("Order", "log-", "Pay")) and len(r.body) > 30]
    if folder:
        records = [r for r in records if folder in str(file_of(store, r)[0])]
    first, second, third = (records[len(records) * n // 4] for n in (1, 2, 3))
    path, at = file_of(store, first)
    garble(path, at + body_at(first) + 7, 10)
    path, at = file_of(store, second)
    zero(path, at, second.size)
    path, at = file_of(store, third)
    flip(path, at + body_at(third) + 4)
    return first, second, third


def body_at(record: Record) -> int:
    """Return the position of the body in a record: an IPv6 host takes 12 bytes more than an IPv4 host."""
    return 88 + 12 * bool(record.sys_flag & 0x10) + 12 * bool(record.sys_flag & 0x20)


def lost(store: Path, *words: str, exit_code: int = 1) -> Mapping[str, Any]:
    answer = run_json("lost", str(store), *words, exit_code=exit_code)
    assert answer["schema"] == "rmqstore.lost/1"
    return answer


def place(record: Record) -> tuple[str, int, int, int]:
    return record.topic, record.queue_id, record.queue_offset, record.position


def places(answer: Mapping[str, Any], **wanted: object) -> list[tuple[str, int, int, int]]:
    return [
        (m["topic"], m["queue_id"], m["queue_offset"], m["offset"])
        for m in answer["messages"]
        if all(m[name] == value for name, value in wanted.items())
    ]


@pytest.mark.quick_rows(2)
@pytest.mark.parametrize(
    ("name", "folder"),
    [
        (STORE, ""),
        ("4.9.7-clean", ""),
        ("5.1.4-dledger", ""),
        ("5.4.0-dledger-mixed", "dledger-n0"),
        ("5.4.0-ipv6", ""),
    ],
)
def test_before_and_after_the_repair_the_same_messages_are_lost(name: str, folder: str, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    first, second, third = damaged(store, folder)
    before = lost(store)
    assert (before["when"], before["journal"]) == ("next start", None)
    assert set(places(before, cause="damage", mended=False)) == {place(first), place(second)}
    assert places(before, mended=True) == [place(third)]
    rows = {m["offset"]: m for m in before["messages"] if m["cause"] == "damage"}
    assert (rows[first.position]["body"], rows[second.position]["body"]) == ("damaged", "gone")
    assert rows[first.position]["keys"] == first.properties.get("KEYS")
    assert rows[first.position]["unique_key"] == first.properties.get("UNIQ_KEY")
    assert rows[first.position]["store_timestamp"] == first.store_timestamp
    assert rows[second.position]["size"] == second.size
    assert key_hash(f"{second.topic}#{second.properties['UNIQ_KEY']}") in rows[second.position]["key_hashes"]
    assert 0 <= second.store_timestamp - rows[second.position]["indexed_time"] < 1000

    assert run("recover", str(store), "--apply").exit_code == 0
    after = lost(store)
    assert after["when"] == "repair"
    assert Path(after["journal"]).parent == store / ".rmqstore"
    assert set(places(after, mended=False)) == {place(first), place(second)}
    assert places(after, mended=True) == [place(third)]
    again = {m["offset"]: m for m in after["messages"]}
    for offset in (first.position, second.position):
        assert again[offset] == rows[offset]
    assert again[third.position]["body"] == "intact"
    assert lost(store, "--next-start", exit_code=0)["messages"] == []


def test_sound_messages_that_the_next_start_deletes_are_listed(store: Path) -> None:
    (store / "abort").touch()
    zero(store / "checkpoint", 0, 40)
    records = list(find_records(store))
    record, _, _ = damaged(store)
    verified = run_json("verify", str(store), exit_code=1)
    broker = verified["broker"]
    assert isinstance(broker, dict) and broker["messages_lost"] > 100
    answer = lost(store)
    cut = places(answer, cause="cut")
    assert len(cut) == broker["messages_lost"]
    hit = {m["offset"] for m in answer["messages"] if m["cause"] == "damage"}
    assert record.position in hit
    assert len(hit) == 3
    assert cut == [place(r) for r in records if r.position >= broker["commitlog_stop"] and r.position not in hit]
    assert answer["cut_from"] == broker["commitlog_stop"]
    assert {m["body"] for m in answer["messages"] if m["cause"] == "cut"} == {"intact"}
    assert answer["verdict"].startswith(f"RocketMQ 5.4.0 would start and lose {len(cut)} messages of 9 topics")


@pytest.mark.parametrize("name", [STORE, "5.4.0-dledger", "5.4.0-rocksdb", "5.1.4-dledger-mixed"])
def test_a_sound_store_loses_nothing(name: str) -> None:
    assert lost(unpack(name), exit_code=0)["messages"] == []
    assert run("lost", str(unpack(name)), "--format", "table").stdout.endswith("No messages are lost.\n")


def test_keys_are_matched_by_the_record_and_by_the_hashes_of_the_index(store: Path, tmp_path: Path) -> None:
    first, second, _ = damaged(store)
    wanted = tmp_path / "keys.txt"
    keys = {one.position: one.properties["KEYS"].split(" ")[0] for one in (first, second)}
    wanted.write_text("\n".join([*keys.values(), "not-lost", ""]))
    answer = lost(store, "--keys", str(wanted))
    assert {(m["offset"], *m["matched_keys"]) for m in answer["messages"]} == set(keys.items())
    assert run("recover", str(store), "--apply").exit_code == 0
    assert [m["offset"] for m in lost(store, "--keys", str(wanted))["messages"]] == [first.position, second.position]
    wanted.write_text("not-lost\n")
    assert lost(store, "--keys", str(wanted), exit_code=0)["messages"] == []


def test_lost_saves_the_bytes_of_damaged_bodies_if_asked(store: Path, tmp_path: Path) -> None:
    first, second, _ = damaged(store)
    path, at = file_of(store, first)
    left = path.read_bytes()[at + body_at(first) : at + body_at(first) + len(first.body)]
    result = run("lost", str(store), "--json")
    assert not any("body_" in key for message in json.loads(result.stdout)["messages"] for key in message)
    place = tmp_path / "bodies"
    lost(store, "--bodies", str(place))
    names = sorted(path.name for path in place.iterdir())
    assert f"{first.topic}-{first.queue_id}-{first.queue_offset}-{first.position}.damaged.body" in names
    assert not any(str(second.position) in name for name in names)
    assert run("recover", str(store), "--apply").exit_code == 0
    result = run("lost", str(store), "--bodies", str(place))
    assert result.exit_code == 5 and "exists" in result.stderr
    lost(store, "--bodies", str(tmp_path / "after"))
    (saved,) = (tmp_path / "after").glob(f"{first.topic}-{first.queue_id}-{first.queue_offset}-*")
    if not first.sys_flag & 1:
        assert saved.read_bytes() == left
    assert run("lost", str(store), "--bodies", str(store / "bodies")).exit_code == 2


def test_csv_and_ndjson_have_a_row_for_each_message(store: Path) -> None:
    first, second, third = damaged(store)
    rows = list(csv.DictReader(io.StringIO(run("lost", str(store), "--format", "csv").stdout)))
    assert [int(row["offset"]) for row in rows] == [first.position, second.position, third.position]
    assert rows[0]["key_hashes"].split(" ")[0].isdigit()
    lines = run("lost", str(store), "--format", "ndjson").stdout.splitlines()
    assert [json.loads(line)["offset"] for line in lines] == [first.position, second.position, third.position]


@pytest.mark.parametrize("width", ["80", "120"])
def test_the_table_fits_the_terminal(width: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", width)
    store = copy_store(STORE, tmp_path)
    damaged(store)
    result = run("lost", str(store), "--format", "table", "--utc")
    assert result.exit_code == 1
    table = result.stdout.partition("\n\n")[2]
    assert table.splitlines()[0].startswith("queue ")
    assert ("stored" in table) == (width == "120")
    assert max(map(len, table.splitlines())) <= int(width)
    assert "Lost to damage: 2 messages; 1 body left" in result.stdout


def test_lost_names_the_groups_that_consumed_a_message(store: Path) -> None:
    first, *_ = damaged(store)
    table = {f"{first.topic}@CG_old": {str(first.queue_id): first.queue_offset + 1}, f"{first.topic}@CG_new": {"0": 0}}
    (store / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))
    row = next(m for m in lost(store)["messages"] if m["offset"] == first.position)
    assert row["consumed_by"] == ["CG_old"]


def test_a_journal_outside_of_the_store_is_named(store: Path, tmp_path: Path) -> None:
    first, second, _ = damaged(store)
    assert run("recover", str(store), "--apply", "--journal", str(tmp_path / "journals")).exit_code == 0
    (journal,) = (tmp_path / "journals").iterdir()
    for words in ((), ("--journal", str(journal))):
        assert set(places(lost(store, *words), mended=False)) == {place(first), place(second)}
    assert run("undo", str(journal)).exit_code == 0
    assert lost(store)["when"] == "next start"


def test_a_slave_that_is_to_be_truncated_has_the_same_losses(store: Path) -> None:
    first, second, _ = damaged(store)
    config = write_broker_conf(STORE, store, brokerRole="SLAVE", brokerId="1")  # no broker starts as a slave with id 0
    answer = lost(store, "-c", str(config))
    assert set(places(answer, mended=False)) == {place(first), place(second)}
    assert run("recover", str(store), "-c", str(config), "--apply").exit_code == 0
    answer = lost(store, "-c", str(config))
    assert sum(answer["unlisted"].values()) + len(places(answer)) > 100


def test_with_queues_in_a_rocksdb_the_damaged_messages_are_named(tmp_path: Path) -> None:
    store = copy_store("5.4.0-rocksdb", tmp_path)
    first, second, _ = damaged(store)
    answer = lost(store)
    assert answer["at_least"] is False
    assert set(places(answer, mended=False)) == {place(first), place(second)}


def test_wrong_usage(tmp_path: Path) -> None:
    store = str(unpack(STORE))
    assert run("lost", store, "--journal", str(tmp_path), "--next-start").exit_code == 2
    assert run("lost", store, "--journal", str(tmp_path)).exit_code == 3
    assert run("lost", store, "--keys", str(tmp_path / "none")).exit_code == 3
    shutil.rmtree(tmp_path)


def test_lost_needs_the_whole_store() -> None:
    assert run("lost", str(unpack(STORE) / "commitlog")).exit_code == 3


def test_a_record_in_the_place_of_another_message_is_one_loss(store: Path) -> None:
    """Only the unit of the lost message remains; it points to the record that verify reports as damaged."""
    records = {record.position: record for record in find_records(store)}
    lost, other = records[20_737], records[22_248]
    assert (lost.size, lost.topic) == (other.size, "log-15445")
    path, at = file_of(store, lost)
    raw = bytearray(path.read_bytes())
    raw[at : at + lost.size] = raw[at + 1511 : at + 1511 + other.size]
    raw[at + 28 : at + 36] = lost.position.to_bytes(8, "big")
    path.write_bytes(raw)
    answer = run("lost", str(store), "--format", "table")
    assert answer.exit_code == 1
    assert "Lost to damage: 1 message\n" in answer.output
    assert "log-15445/2       4      20,737  gone" in answer.output


def test_messages_in_the_place_of_a_file_of_another_broker_are_lost(store: Path) -> None:
    name = f"{131072:020}"
    lost_there = [r for r in find_records(store) if 131072 <= r.position < 196608 and r.sys_flag & 0xC in (0, 8)]
    shutil.copy(unpack("5.4.0-killed") / "commitlog" / name, store / "commitlog" / name)
    answer: Any = lost(store)
    gone = [r for r in answer["messages"] if r["cause"] == "damage"]
    assert {(r["topic"], r["queue_id"], r["queue_offset"], r["offset"]) for r in gone} == {place(r) for r in lost_there}
    assert answer["at_least"]
    verified: Any = run_json("verify", str(store), exit_code=1)
    (foreign,) = [f for f in verified["findings"] if f["code"] == "CL-FOREIGN-FILE"]
    assert foreign["facts"]["units"] == len(gone)
    held = [r for r in answer["messages"] if r["cause"] in ("no-unit", "same-offset")]
    assert verified["account"]["undelivered"] == len(held) > 0  # of the other broker, whose queues are not here
    assert verified["account"]["lost_already"] == len(gone)
    assert "the log lacks at least 59 messages of 12 queues" in verified["verdict"]


def test_a_queue_directory_with_the_units_of_another_queue_shows_no_lost_message_of_its_own(store: Path) -> None:
    gone = store / "commitlog" / f"{393216:020}"
    true = {place(r) for r in find_records(store) if file_of(store, r)[0] == gone}
    queues = store / "consumequeue"
    shutil.rmtree(queues / SCHEDULE_TOPIC / "0")
    shutil.copytree(queues / "log-15445" / "1", queues / SCHEDULE_TOPIC / "0")
    gone.unlink()
    answer = lost(store)
    listed: Any = [r for r in answer["messages"] if r["size"] and r["cause"] == "damage"]
    by_units = {(r["topic"], r["queue_id"], r["queue_offset"], r["offset"]) for r in listed}
    assert {one[0] for one in by_units} >= {"log-15445", "Order_11", "Pay_11_Topic"}
    assert by_units <= true
    verified: Any = run_json("verify", str(store), exit_code=1)
    (missing,) = [f for f in verified["findings"] if f["code"] == "CL-MISSING-FILE"]
    assert missing["facts"]["messages"] == len(by_units)


# --- what producers had acknowledged ---------------------------------------------------------------------------------


def expected(store: Path, texts: list[str], place: Path, exit_code: int = 1) -> dict[str, tuple[str, str | None]]:
    file = place / "acknowledged.txt"
    file.write_text("\n".join(texts) + "\n")
    answer = run_json("lost", str(store), "--expected", str(file), exit_code=exit_code)
    assert answer["schema"] == "rmqstore.lost-expected/1"
    rows: Any = answer["messages"]
    assert answer["counts"] == {
        state: [row["state"] for row in rows].count(state) for state in ("present", "damaged", "lost", "nowhere")
    }
    return {row["expected"]: (row["state"], row["cause"]) for row in rows}


@pytest.mark.quick_rows(2)
@pytest.mark.parametrize("name", [STORE, "5.4.0-dledger", "5.4.0-rocksdb", "4.9.7-clean"])
def test_every_acknowledged_message_of_a_sound_store_is_in_it(name: str, tmp_path: Path) -> None:
    store = unpack(name)
    ids = sorted({r.properties["UNIQ_KEY"] for r in find_records(store) if r.properties.get("UNIQ_KEY")})
    found = expected(store, ids, tmp_path, exit_code=0)
    assert found == dict.fromkeys(ids, ("present", None))
    assert expected(store, ["never-sent"], tmp_path) == {"never-sent": ("nowhere", None)}


@pytest.mark.parametrize("name", [STORE, "5.4.0-dledger"])
def test_acknowledged_messages_are_damaged_or_lost_before_and_after_a_repair(name: str, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    kept, gone, mended = damaged(store)
    ids = [record.properties["UNIQ_KEY"] for record in (kept, gone, mended)]
    key = gone.properties["KEYS"].split()[0]
    before = expected(store, [*ids, key, gone.msg_id, "never-sent"], tmp_path)
    assert before[ids[0]] == before[ids[2]] == ("damaged", None)
    assert before[ids[1]] == before[key] == before[gone.msg_id] == ("lost", "damage")
    run("recover", str(store), "--apply", "--accept-fillers")
    after = expected(store, [json.dumps({"msgId": ids[0], "topic": "x"}), *ids[1:], key, gone.msg_id], tmp_path)
    assert [after[text] for text in (*ids[:2], key, gone.msg_id)] == [("lost", "filler")] * 4
    assert after[ids[2]] == ("present", None)
    (journal,) = (store / ".rmqstore").iterdir()
    text = run("lost", str(store), "--expected", str(tmp_path / "acknowledged.txt"), "--format", "table").stdout
    assert text.splitlines()[0] == "5 messages expected: 1 in the store, 4 lost"
    assert f"LOST: replaced by a filler in repair {journal.name}" in text.replace("\n", " ").replace("  ", " ")


@pytest.mark.parametrize("content", ["", '{"a": 1}\n', "{\n", "topic,keys\nOrder_11,\n"])
def test_a_list_of_expected_messages_that_names_none_is_refused(content: str, tmp_path: Path) -> None:
    file = tmp_path / "list"
    file.write_text(content)
    result = run("lost", str(unpack(STORE)), "--expected", str(file))
    assert result.exit_code == 2
    assert "names no message" in result.stderr


def test_lines_of_a_list_that_name_no_message_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "list"
    file.write_text('ord11_3\n\n{"msgId": 5}\n{broken\n{"keys": "ord11_4 x"}\n')
    result = run("lost", str(unpack(STORE)), "--expected", str(file), "--format", "table")
    assert result.exit_code == 4
    assert result.stdout == "2 messages expected: 2 in the store\n"
    assert "note: 2 lines of " in result.stderr and result.stderr.endswith(": 3, 4\n")
    assert run_json("lost", str(unpack(STORE)), "--expected", str(file), exit_code=4)["unread_lines"] == 2


def test_a_line_that_is_too_long_for_csv_is_an_id_like_others(tmp_path: Path) -> None:
    file = tmp_path / "acknowledged.txt"
    file.write_text("x" * 200_000 + "\n")
    answer = run_json("lost", str(unpack(STORE)), "--expected", str(file), exit_code=1)
    assert answer["counts"] == {"present": 0, "damaged": 0, "lost": 0, "nowhere": 1}


@pytest.mark.parametrize("head", ["topic,msgId", "unique_key,keys"])
def test_a_list_of_expected_messages_may_be_csv_with_a_header(head: str, tmp_path: Path) -> None:
    file = tmp_path / "list.csv"
    unique = next(r.properties["UNIQ_KEY"] for r in find_records(unpack(STORE)) if r.properties.get("UNIQ_KEY"))
    row = f'"Order, 11",{unique}' if head.startswith("topic") else f"{unique},some keys"
    file.write_text(f"{head}\n{row}\n")
    answer = run_json("lost", str(unpack(STORE)), "--expected", str(file), exit_code=0)
    assert answer["counts"] == {"present": 1, "damaged": 0, "lost": 0, "nowhere": 0}


def test_a_topic_that_only_topics_json_lacks_is_listed_too(store: Path) -> None:
    """A broker does not serve its queues: so it is after an older topics.json was restored."""
    assert lost(store, exit_code=0)["deleted_topics"] == []
    topics = store / "config" / "topics.json"
    table = json.loads(topics.read_text())
    del table["topicConfigTable"]["Order_11"]
    topics.write_text(json.dumps(table))
    (deleted,) = lost(store, exit_code=0)["deleted_topics"]
    messages = [r for r in find_records(store) if r.topic == "Order_11"]
    assert (deleted["topic"], deleted["messages"], deleted["queues"]) == ("Order_11", len(messages), 4)
    assert deleted["first_offset"] == min(r.position for r in messages)
    assert deleted["last_offset"] == max(r.position for r in messages)


def test_messages_of_a_deleted_topic_are_listed_and_can_be_brought_back(store: Path) -> None:
    before = run("dump", str(store), "--what", "consumequeue", "--topic", "Order_11", "--format", "ndjson").stdout
    topics = store / "config" / "topics.json"
    table = json.loads(topics.read_text())
    del table["topicConfigTable"]["Order_11"]
    topics.write_text(json.dumps(table))
    shutil.rmtree(store / "consumequeue" / "Order_11")
    answer = lost(store, exit_code=0)
    (deleted,) = answer["deleted_topics"]
    messages = [r for r in find_records(store) if r.topic == "Order_11"]
    offsets = [r.position for r in messages]
    assert (deleted["topic"], deleted["messages"]) == ("Order_11", len(messages))
    assert (deleted["first_offset"], deleted["last_offset"]) == (min(offsets), max(offsets))
    text = run("lost", str(store), "--format", "table").stdout
    assert (
        f"topics.json does not have the topic Order_11: {len(messages)} messages in the log until they expire" in text
    )

    table["topicConfigTable"]["Order_11"] = deleted["topic_config"]
    topics.write_text(json.dumps(table))
    run("recover", str(store), "--apply")
    after = run("dump", str(store), "--what", "consumequeue", "--topic", "Order_11", "--format", "ndjson").stdout
    assert after == before
    assert lost(store, "--next-start", exit_code=0)["deleted_topics"] == []


@pytest.mark.quick_rows(2)
@pytest.mark.parametrize("name", [STORE, "5.4.0-dledger", "5.4.0-rocksdb", "5.5.1-trans-rocksdb", "5.5.1-formats"])
def test_without_the_log_every_message_is_lost(name: str, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    key = next(key for r in find_records(store) for key in r.properties.get("KEYS", "").split())
    used: Any = run_json("du", str(store), exit_code=0)
    count = used["messages"]
    for path in (store / "commitlog", *store.glob("dledger-*")):
        shutil.rmtree(path, ignore_errors=True)
    answer: Any = lost(store)
    assert len(answer["messages"]) == count and f"none of the {count} messages" in answer["verdict"]
    assert {one["body"] for one in answer["messages"]} == {"gone"}
    assert expected(store, [key, "never-sent"], tmp_path) == {key: ("lost", "damage"), "never-sent": ("nowhere", None)}
