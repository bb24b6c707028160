"""`rmqstore get`: every kind of address finds the record that a full scan finds there."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from rmqstore.files.store import open_store
from rmqstore.formats.message import HEAD, build_message
from rmqstore.views.dump.messages import dump_messages
from tests.cli.test_lost import damaged
from tests.command import run, run_json
from tests.stores import copy_store, unpack

STORES = ("4.9.7-clean", "5.4.0-dledger", "5.1.4-dledger-mixed", "5.4.0-rocksdb", "5.4.0-ipv6", "5.1.4-formats")


def some_messages(store: Path, count: int) -> Sequence[Mapping[str, Any]]:
    rows = list(dump_messages(open_store(store)))
    return rows[:: max(1, len(rows) // count)]


def got(store: Path, where: str, *options: str) -> Mapping[str, Any]:
    answer = run_json("get", str(store), where, *options, exit_code=0)
    message = answer["message"]
    assert answer["schema"] == "rmqstore.get/1"
    assert isinstance(message, dict)
    return message


@pytest.mark.parametrize("name", STORES)
def test_offset_and_message_id_lead_to_the_record_of_the_scan(name: str) -> None:
    store = unpack(name)
    for row in some_messages(store, 5):
        for where in (str(row["offset"]), row["msg_id"]):
            found = got(store, where, "--body", "none")
            assert {key: found[key] for key in row if key != "file"} == {k: v for k, v in row.items() if k != "file"}
            assert found["file"].endswith(row["file"])


@pytest.mark.parametrize("name", STORES)
def test_queue_offset_leads_to_the_record_that_consumers_get(name: str) -> None:
    store = unpack(name)
    plain = [row for row in some_messages(store, 40) if not row["sys_flag"] & 0xC and row["topic"].startswith("Order")]
    assert plain
    for row in plain[:5]:
        found = got(store, f"{row['topic']}/{row['queue_id']}/{row['queue_offset']}")
        assert found["offset"] == row["offset"]


def test_a_dledger_entry_leads_to_its_message() -> None:
    store = unpack("5.4.0-dledger")
    row = some_messages(store, 3)[1]
    assert got(store, str(row["offset"] - 48))["offset"] == row["offset"]


@pytest.mark.parametrize("name", ["5.4.0-clean", "5.4.0-dledger"])
def test_unique_id_and_key_are_found_by_the_index(name: str) -> None:
    store = unpack(name)
    keyed = [row for row in dump_messages(open_store(store)) if row["keys"] and row["topic"].startswith("Order")]
    row = keyed[len(keyed) // 2]
    assert got(store, row["unique_key"])["offset"] == row["offset"]
    key = row["keys"].split()[0]
    assert key in got(store, key)["keys"].split()


def test_unique_id_is_found_in_the_log_when_no_index_has_it(store: Path) -> None:
    for file in (store / "index").iterdir():
        file.unlink()
    row = some_messages(store, 3)[1]
    result = run("get", str(store), row["unique_key"], "--json")
    assert result.exit_code == 0
    assert f'"offset":{row["offset"]}' in result.stdout
    assert "reading the log" in result.stderr


@pytest.mark.parametrize("where", ["99999999999", "Order_11/0/999999", "Nobody/0/0", "no-such-id", "1"])
def test_a_missing_message_is_exit_code_1(where: str) -> None:
    result = run("get", str(unpack("5.4.0-clean")), where)
    assert result.exit_code == 1
    assert f"no such message: {where}" in result.stderr
    assert result.stdout == ""


def test_a_damaged_body_is_shown_and_named(store: Path) -> None:
    row = next(row for row in dump_messages(open_store(store)) if row["body_length"] > 20 and row["sys_flag"] == 0)
    path = store / "commitlog" / row["file"]
    raw = bytearray(path.read_bytes())
    raw[row["offset"] - int(row["file"]) + HEAD.size + 3] ^= 1
    path.write_bytes(raw)
    result = run("get", str(store), str(row["offset"]))
    assert result.exit_code == 1
    assert "damaged: the body does not match its CRC" in result.stdout


def test_body_styles_and_saved_body(tmp_path: Path) -> None:
    store = unpack("5.4.0-clean")
    row = next(r for r in dump_messages(open_store(store), body="base64") if r["body_length"] > 4096)
    where, saved = str(row["offset"]), tmp_path / "body.bin"
    assert got(store, where, "--body", "base64", "--save-body", str(saved))["body_base64"] == row["body_base64"]
    assert got(store, where, "--body", "hex")["body_hex"] == saved.read_bytes().hex()
    assert not {"body", "body_base64", "body_hex"} & got(store, where, "--body", "none").keys()


def test_a_long_binary_body_is_shortened_unless_asked_for() -> None:
    store = unpack("5.4.0-clean")
    row = next(r for r in dump_messages(open_store(store), body="text") if len(r.get("body_base64", "")) > 1000)
    short, whole = (run("get", str(store), str(row["offset"]), *body).stdout for body in ((), ("--body", "base64")))
    assert f"base64: {row['body_base64'][:200]}…" in short
    assert "all of it: --body base64, --body hex or --save-body FILE" in short
    assert row["body_base64"] in whole
    assert row["body_base64"] not in short
    assert got(store, str(row["offset"]))["body_base64"] == row["body_base64"]


def test_a_body_is_never_saved_into_the_store(store: Path) -> None:
    result = run("get", str(store), "0", "--save-body", str(store / "commitlog" / "body.bin"))
    assert result.exit_code == 2
    assert not (store / "commitlog" / "body.bin").exists()


def test_a_file_of_lost_and_found_is_read_as_one_record(tmp_path: Path) -> None:
    file = tmp_path / "4096.bin"
    file.write_bytes(build_message(topic="Order", body=b"saved", queue_id=3, queue_offset=17, physical_offset=4096))
    found = got(unpack("5.4.0-clean"), str(file))
    assert (found["topic"], found["queue_id"], found["queue_offset"], found["body"]) == ("Order", 3, 17, "saved")


def test_a_queue_place_that_is_not_a_number_is_wrong_usage() -> None:
    result = run("get", str(unpack("5.4.0-clean")), "Order_11/x/5")
    assert result.exit_code == 2
    assert "Order_11/x/5 is not TOPIC/QUEUE/OFFSET" in result.stderr


def test_control_characters_of_a_message_do_not_reach_the_terminal(tmp_path: Path) -> None:
    file = tmp_path / "1.bin"
    file.write_bytes(build_message(topic="T\x1b]0;x\x07", body=b"\x1b[31mred", properties=b"a\x01\x1b[2J\x02"))
    result = run("get", str(unpack("5.4.0-clean")), str(file))
    assert result.exit_code == 0
    assert "\x1b" not in result.stdout and "\x07" not in result.stdout


def test_several_messages_are_listed(tmp_path: Path) -> None:
    store = unpack("5.4.0-clean")
    result = run("get", str(store), "ord11_42", "--utc")
    assert result.exit_code == 0
    assert result.stdout.startswith("3 messages for ord11_42, the newest first:\n")
    for place in ("%RETRY%CG_part_11/0 offset 8", "SCHEDULE_TOPIC_XXXX/0 offset 14", "Order_11/2 offset 4"):
        assert place in result.stdout
    answer: Any = run_json("get", str(store), "ord11_42", exit_code=0)
    assert len(answer["messages"]) == 3
    assert answer["message"] == answer["messages"][0]


def test_get_says_what_is_at_an_offset_without_a_message() -> None:
    store = str(unpack("5.4.0-clean"))
    for where, words in (
        ("65600", "it is inside the record at 65,536 (6,622 bytes, Order_11)"),
        ("99999999", "the log ends at 479,958"),
        ("Order_11/2/500", "the queue has the offsets 0 to 40"),
        ("Order_11/77/1", "there is no queue Order_11/77"),
    ):
        result = run("get", store, where)
        assert result.exit_code == 1
        assert result.stderr == f"no such message: {where}: {words}\n"
    result = run("get", store, "")
    assert result.exit_code == 2
    assert "WHERE is empty" in result.stderr


def test_times_have_milliseconds() -> None:
    result = run("get", str(unpack("5.4.0-clean")), "65536", "--utc")
    assert "stored 2026-11-21 07:10:25.417 UTC" in result.stdout
    assert "2026-11-21 07:10:25.416 UTC by" in result.stdout


@pytest.mark.parametrize("name", ["5.4.0-clean", "5.4.0-dledger"])
def test_a_lost_message_is_not_shown_as_the_filler_in_its_place(name: str, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    kept, gone, _ = damaged(store)
    run("recover", str(store), "--apply", "--accept-fillers")
    (journal,) = (store / ".rmqstore").iterdir()
    for record in (kept, gone):
        place = f"{record.topic}/{record.queue_id}/{record.queue_offset}"
        for where in (str(record.position), place, record.msg_id, record.properties["UNIQ_KEY"]):
            result = run("get", str(store), where)
            assert result.exit_code == 1
            assert result.stdout.startswith(f"{where}: LOST: replaced by a filler in repair {journal.name}\n")
            answer: Any = run_json("get", str(store), where, exit_code=1)
            assert answer["lost"]["repair"] == journal.name
            assert (answer["message"] is None) == (record is gone)
    assert "filler" not in run("get", str(store), str(kept.position)).stdout.split("\n", 1)[1]


def test_without_a_log_there_is_no_message(store: Path) -> None:
    shutil.rmtree(store / "commitlog")
    for where in ("ord11_222", "0"):
        result = run("get", str(store), where)
        assert result.exit_code == 1 and result.stderr.endswith(f"no such message: {where}: the store has no log\n")
