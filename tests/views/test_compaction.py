"""What compaction keeps when the commitlog has deleted it: dump, get, find, account, expire, du."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmqstore.checks.examine import examine
from rmqstore.checks.options import VerifyOptions
from rmqstore.files.store import open_store
from rmqstore.scan.compaction import kept
from tests.command import run, run_json
from tests.damage import flip
from tests.stores import copy_store, unpack

FORMATS = "5.5.1-formats"
TOPIC = "Compact_11"


@pytest.fixture
def expired(tmp_path: Path) -> Path:
    """A store whose log begins after the compacted messages."""
    store = copy_store(FORMATS, tmp_path)
    for path in sorted((store / "commitlog").iterdir())[:3]:
        path.unlink()
    return store


def rows(*words: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(*words, "--format", "ndjson").stdout.splitlines()]


@pytest.mark.parametrize("version", ["5.1.4", "5.4.0", "5.5.1"])
def test_both_halves_are_dumped(version: str) -> None:
    store = str(unpack(f"{version}-formats"))
    units = rows("dump", store, "--what", "compaction-queue", "--topic", TOPIC)
    messages = rows("dump", store, "--what", "compaction-log", "--topic", TOPIC)
    assert [unit["queue_offset"] for unit in units] == list(range(20))
    assert [(one["offset"], one["size"]) for one in messages] == [(one["log_offset"], one["size"]) for one in units]
    assert [one["keys"] for one in messages[:2]] == ["ck0", "ck1"]


def test_a_filter_selects_and_damage_is_named(tmp_path: Path) -> None:
    store = copy_store(FORMATS, tmp_path)
    assert [
        unit["queue_offset"] for unit in rows("dump", str(store), "--what", "compaction-queue", "--from", "18")
    ] == [
        18,
        19,
    ]
    assert run("dump", str(store), "--what", "compaction-log", "--topic", "Order_11").stdout == ""
    flip(store / "compaction/compactionLog" / TOPIC / "0/00000000000000000000", 284 + 88)
    result = run("dump", str(store), "--what", "compaction-log")
    assert result.exit_code == 1
    assert "compaction/Compact_11/0 284 to 568: the body does not match its CRC" in result.stderr
    assert len(result.stdout.splitlines()) == 19


def test_get_shows_what_only_compaction_has(expired: Path) -> None:
    by_place = run_json("get", str(expired), f"{TOPIC}/0/3", exit_code=0)
    by_key = run_json("get", str(expired), "ck3", exit_code=0)
    for answer in (by_place, by_key):
        message: Any = answer["message"]
        assert (message["keys"], message["queue_offset"]) == (
            "ck3",
            3 if answer is by_place else message["queue_offset"],
        )
        assert message["file"] == f"compaction/compactionLog/{TOPIC}/0/00000000000000000000"
    assert "compaction keeps it" in " ".join(run("get", str(expired), f"{TOPIC}/0/3").stderr.split())
    assert run("get", str(expired), f"{TOPIC}/0/99").exit_code == 1


def test_find_names_the_last_value_of_a_key(expired: Path) -> None:
    messages = rows("dump", str(expired), "--what", "compaction-log")
    last = max(one["queue_offset"] for one in messages if one["keys"] == "ck3")
    found: Any = run_json("find", str(expired), "ck3", "no-such-key", exit_code=0)
    assert [one["queue_offset"] for one in found["compacted"]] == [last]
    assert {tuple(one["texts"]): one["state"] for one in found["answers"]} == {
        ("ck3",): "compacted",
        ("no-such-key",): "never",
    }
    assert "compaction keeps the last message" in " ".join(run("find", str(expired), "ck3").stdout.split())
    place: Any = run_json("find", str(expired), f"{TOPIC}/0/{last}", exit_code=0)
    assert place["answers"][0]["state"] == "compacted"


def test_the_account_does_not_count_as_gone_what_compaction_keeps(expired: Path) -> None:
    store = open_store(expired)
    assert {name: len(numbers) for name, numbers in kept(store).items()} == {(TOPIC, 0): 20}
    with_it = examine(store, VerifyOptions()).report.account
    (expired / "compaction").rename(expired.parent / "compaction")
    without = examine(open_store(expired), VerifyOptions()).report.account
    assert with_it is not None
    assert without is not None
    assert not with_it.queues[TOPIC, 0].before
    assert len(without.queues[TOPIC, 0].before) == 20
    assert without.gone_before_begin - with_it.gone_before_begin == 20


def test_expire_does_not_lose_what_compaction_keeps(tmp_path: Path) -> None:
    store = copy_store(FORMATS, tmp_path)
    words = ("expire", str(store), "--reserved", "0", "--any-hour")
    plan: Any = run_json(*words, exit_code=1)
    assert f"{TOPIC}/0" not in plan["facts"]["expire"]["queues"]
    assert "compaction/ keeps 20 messages of the files that go" in " ".join(run(*words).stdout.split())


def test_du_tells_logs_from_queues() -> None:
    usage: Any = run_json("du", str(unpack(FORMATS)), "--files", exit_code=0)
    parts = {one["part"]: one["bytes"] for one in usage["files"]["parts"]}
    assert (parts["compaction logs"], parts["compaction queues"]) == (23_000, 4_600)
