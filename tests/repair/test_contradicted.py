"""Messages that their index units or unit contradict: recover lists them, and keeps this only trace of the damage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmqstore.formats.properties import parse_properties
from tests import damage
from tests.cases.case import make, read_case
from tests.command import run, run_json
from tests.repair.salvaging import pick
from tests.stores import STORES, copy_store, unpack

PLACE = {"topic": "log-15445", "queue_id": 0, "queue_offset": 12, "offset": 166170}


def _dict(value: object) -> dict[str, Any]:
    assert isinstance(value, dict)
    return value


def test_finding_names_the_message_its_time_and_its_keys(tmp_path: Path) -> None:
    report = run_json("verify", str(make(read_case("CL-CONTRADICTED"), tmp_path)), exit_code=1)
    (finding,) = [_dict(f) for f in report["findings"]]  # type: ignore[attr-defined]
    facts = finding["facts"]
    assert (finding["queue"], finding["offset"], finding["length"]) == ("commitlog", 166_170, 292)
    assert {name: facts[name] for name in ("topic", "queue_id", "queue_offset", "entries")} == {
        "topic": "log-15445",
        "queue_id": 0,
        "queue_offset": 12,
        "entries": 1,
    }
    assert facts["unique_key"] == "FD00000000000000000000000000000255244E0E2F2A688941B600D5"
    assert facts["keys"] == "broken147 用户29 k73"
    assert facts["store_timestamp"] // 1000 == 1795245025


def test_recover_plans_nothing_by_itself_and_lists_the_message(tmp_path: Path) -> None:
    store = make(read_case("CL-CONTRADICTED"), tmp_path)
    plan = run_json("recover", str(store), exit_code=1)
    facts = _dict(plan["facts"])
    (row,) = facts["damaged"]
    assert {name: row[name] for name in PLACE} == PLACE
    assert (plan["steps"], plan["cures"]) == ([], [])
    assert "add --only CL-CONTRADICTED" in facts["stays"]["CL-CONTRADICTED"]["do"]
    text = run("recover", str(store)).stdout
    assert "No data will be lost" not in text
    assert "Damaged: 1 message, whose properties cannot be recovered from the store:" in text
    assert "log-15445/0 12 at 166170, stored 2026-11-21 07:10:25 UTC" in text


@pytest.mark.parametrize("command", [("recover",), ("rebuild", "index")])
def test_index_that_is_made_again_keeps_the_entries(command: tuple[str, ...], tmp_path: Path) -> None:
    store = make(read_case("CL-CONTRADICTED--kept"), tmp_path)
    first = run_json("verify", str(store), exit_code=1)
    assert first["counts"] == {"CL-CONTRADICTED": 1, "IX-HEADER": 1}
    name, *part = command
    run_json(name, str(store), *part, "--apply", exit_code=1)
    assert run_json("verify", str(store), exit_code=1)["counts"] == {"CL-CONTRADICTED": 1}


def test_unit_whose_code_may_be_right_is_kept_by_default(tmp_path: Path) -> None:
    store = make(read_case("CQ-WRONG-TAG--tags-in-doubt"), tmp_path)
    plan = run_json("recover", str(store), exit_code=1)
    facts = _dict(plan["facts"])
    assert (plan["steps"], plan["cures"]) == ([], [])
    assert [row["offset"] for row in facts["damaged"]] == [177_145]
    assert "nothing proves which" in facts["stays"]["CQ-WRONG-TAG"]["why"]
    assert run_json("rebuild", str(store), "cq", exit_code=1)["steps"] == []
    assert run_json("verify", str(store), exit_code=1)["counts"] == {"CQ-WRONG-TAG": 1}
    asked = run_json("recover", str(store), "--only", "CQ-WRONG-TAG", "--apply", exit_code=0)
    assert asked["cures"] == ["CQ-WRONG-TAG"]
    assert run_json("verify", str(store), exit_code=0)["counts"] == {}


def test_lost_tags_are_replaced_by_those_that_fit_the_unit(tmp_path: Path) -> None:
    """With zeros in the properties, including TAGS, salvage takes the TAGS of another message with the same code."""
    store = copy_store("5.1.4-clean", tmp_path)
    row = pick(store, lambda row: b"TAGS\1" in row.message.properties and row.message.topic == b"log-15445", 3)
    raw = row.path.read_bytes()[row.at : row.at + row.message.size]
    at = row.at + raw.rindex(b"TAGS\1")
    damage.overwrite(row.path, at, bytes(row.at + len(raw) - at))
    first = run_json("verify", str(store), exit_code=1)
    assert first["counts"] == {"CL-PROPERTIES": 1, "CQ-WRONG-TAG": 1}
    plan = run_json("recover", str(store), "--role", "single", "--apply", exit_code=0)
    facts = _dict(plan["facts"])
    assert plan["cures"] == ["CL-PROPERTIES", "CQ-WRONG-TAG"]
    assert [row["offset"] for row in facts["damaged"]] == [row.offset]
    assert run_json("verify", str(store), exit_code=0)["counts"] == {}
    shown = run_json("get", str(store), str(row.offset), exit_code=0)
    assert _dict(shown["message"])["tags"] == parse_properties(row.message.properties)["TAGS"]


@pytest.mark.quick_rows(6)
@pytest.mark.parametrize("name", STORES)
def test_sound_stores_have_no_contradicted_message(name: str) -> None:
    result = run("verify", str(unpack(name)), "--json", "--jobs", "1")
    assert not any(code in result.stdout for code in ("CL-CONTRADICTED", "CL-PROPERTIES", "CL-CONTROL-CHARACTERS"))
