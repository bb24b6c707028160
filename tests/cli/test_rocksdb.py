"""`verify`, `info` and `dump` on a store with its consume queues in RocksDB, with the extra and without."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmqstore.errors import install_command
from tests.command import run, run_json
from tests.rocksdb_rows import changing, need_rocksdict, without_extra
from tests.stores import copy_store, meta, unpack
from tests.untouched import assert_untouched

need_rocksdict()
STORE = "5.4.0-rocksdb"


def units(store: Path, *words: str, exit_code: int = 0) -> list[dict[str, object]]:
    result = run("dump", str(store), "--what", "consumequeue", "--format", "ndjson", *words)
    assert result.exit_code == exit_code, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_verify_is_clean() -> None:
    report = run_json("verify", str(unpack(STORE)), exit_code=0)
    assert (report["clean"], report["kind"], report["unchecked"]) == (True, "rocksdb", [])


def test_info_shows_the_queues_that_the_broker_has() -> None:
    with assert_untouched(unpack(STORE)):
        seen = run_json("info", str(unpack(STORE)), exit_code=0)
    told = {name: (q.min, q.max) for name, q in meta(STORE).oracle_load.queues.items()}
    queues = seen["queues"]
    assert isinstance(queues, dict)
    assert {name: (q["min"], q["max"]) for name, q in queues.items()} == told
    assert {q["kind"] for q in queues.values()} == {"rocksdb"}
    config = seen["config"]
    assert isinstance(config, dict)
    assert {n: config[n]["entries"] for n in config if n.endswith("/")} == {
        "topics/": 22,
        "subscriptionGroups/": 11,
        "consumerOffsets/": 5,
    }


def test_dump_gives_every_unit_with_its_store_time() -> None:
    with assert_untouched(unpack(STORE)):
        rows = units(unpack(STORE))
    assert len(rows) == 292
    assert rows[0] == {
        "topic": "%DLQ%CG_dlq_11",
        "queue_id": 0,
        "queue_offset": 0,
        "commitlog_offset": 164685,
        "size": 420,
        "tags_code": 1129459,
        "store_timestamp": 1795245523304,
    }


def test_dump_chooses_and_turns_round() -> None:
    words = ("--topic", "Order_11", "--queue", "1", "--from", "3", "--to", "8")
    there = units(unpack(STORE), *words)
    assert [row["queue_offset"] for row in there] == [3, 4, 5, 6, 7]
    assert units(unpack(STORE), *words, "--reverse") == there[::-1]
    assert units(unpack(STORE), *words, "--reverse", "--limit", "2") == there[:-3:-1]


def test_dump_backwards_passes_wide_gaps(store: Path) -> None:
    with changing(store) as rows:
        rows.put("Order_11", 1, 1 << 50, size=7)
    rows_ = units(store, "--topic", "Order_11", "--queue", "1", "--reverse")
    assert [row["queue_offset"] for row in rows_] == [1 << 50, *range(18, -1, -1)]


@pytest.mark.parametrize(("command", "words"), [("verify", ()), ("info", ()), ("dump", ("--what", "consumequeue"))])
def test_without_the_extra_the_exit_code_is_4(
    command: str, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    without_extra(monkeypatch)
    result = run(command, str(unpack(STORE)), *words)
    assert result.exit_code == 4
    assert f"`{install_command('rocksdb')}`" in result.output  # not wrapped, so that it can be pasted


@pytest.mark.parametrize(
    ("command", "words", "code"), [("verify", (), 1), ("info", (), 4), ("dump", ("--what", "consumequeue"), 4)]
)
def test_commands_report_a_broken_database(command: str, words: tuple[str, ...], code: int, store: Path) -> None:
    (store / "consumequeue" / "CURRENT").write_bytes(b"MANIFEST-0")
    result = run(command, str(store), *words)
    assert result.exit_code == code, result.output
    assert "CURRENT file" in " ".join(result.output.split())


def test_recover_that_plans_nothing_distinguishes_wrong_from_not_checked(tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    (store / "kvStore").mkdir()
    (store / "kvStore" / "CURRENT").touch()  # of messages received through POP; nothing can be read
    (store / "kvStore" / "MANIFEST-000001").touch()
    answer = run_json("recover", str(store), exit_code=4)
    assert (answer["steps"], answer["brakes"]) == ([], [])
    assert run_json("verify", str(store), exit_code=4)["clean"] is False
    for path in (store / "config").glob("topics.json*"):
        path.write_bytes(b"{")  # so that there is no source to restore it from
    run_json("recover", str(store), exit_code=1)
