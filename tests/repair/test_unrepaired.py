"""The text of an empty plan: it lists the remaining problems with reasons and advice, and no "nothing is lost"."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest

from rmqstore.documents.plan import Plan
from rmqstore.repair.plan.plan_text import describe
from tests import damage
from tests.cases.case import make, options, read_case
from tests.command import run, run_json
from tests.stores import copy_store

CASES = (
    *("CFG-DELAY-BEYOND", "CFG-UNREADABLE", "CL-MISSING-FILE", "CL-NO-MESSAGES--no-file", "CL-SYSFLAG--unproved"),
    *("DIR-DUPLICATE-FILE", "DIR-FILE-SIZE", "DIR-OPEN-JOURNAL", "TM-COMPACTION", "TM-DANGLING"),
)
"""Each leads to a plan without steps another way."""


@pytest.mark.quick_rows(5)
@pytest.mark.parametrize("name", CASES)
def test_a_plan_without_steps_has_a_reason_and_advice(name: str, tmp_path: Path) -> None:
    case = read_case(name)
    store = make(case, tmp_path)
    words = ("recover", str(store), *options(case, store))
    answer = json.loads(run(*words, "--json").stdout)
    assert answer["steps"] == []
    rows = answer["facts"]["stays"]
    assert {code: row["count"] for code, row in rows.items()} == answer["remaining"]["counts"]
    assert set(rows) <= set(case.verify.counts)
    lines = run(*words).stdout.splitlines()
    assert "No data will be lost." not in lines
    assert "Nothing to do." not in lines
    assert not any("--force" in line for line in lines)  # there is nothing to confirm
    for code, row in rows.items():
        counted, why = f"{code} x {row['count']}", f": {row['why']}"  # codes with the same reason share a line
        (at,) = [i for i, line in enumerate(lines) if counted in line.strip().removesuffix(why).split(", ")]
        assert lines[at + 1] == f"    -> {row['do']}"


def test_the_advice_works(tmp_path: Path) -> None:
    case = read_case("CFG-DELAY-BEYOND")
    store = make(case, tmp_path)
    row = json.loads(run("recover", str(store), "--json").stdout)["facts"]["stays"]["CFG-DELAY-BEYOND"]
    assert row["do"] == "add --only CFG-DELAY-BEYOND"
    done = run("recover", str(store), *row["do"].split()[1:], "--apply")
    assert done.exit_code == 0
    assert done.stdout.splitlines()[-1] == "Verified again: no problems."


@pytest.mark.parametrize("name", ["CL-BLANK-SIZE", "CL-SYSFLAG"])
def test_a_replica_gets_the_advice_to_use_salvage(name: str, tmp_path: Path) -> None:
    case = read_case(name)
    store = make(case, tmp_path)
    plan = json.loads(run("recover", str(store), "--role", "slave", "--json").stdout)
    assert plan["steps"] == []
    assert "--strategy salvage" in plan["facts"]["stays"][name]["do"]
    mended = run("recover", str(store), "--role", "slave", "--strategy", "salvage", "--apply")
    assert mended.exit_code == 0, mended.output


def test_unplanned_problems_are_listed_beside_the_steps(tmp_path: Path) -> None:
    case = read_case("CFG-DELAY-BEYOND")
    store = make(case, tmp_path)
    damage.flip(next((store / "consumequeue" / "Order_11").glob("*/*")), 3)
    result = run("recover", str(store), "--apply")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert "No data will be lost." in lines
    row = (
        "  CFG-DELAY-BEYOND x 1: the delay offsets may be right and the queue too short: `recover` lowers them only on "
        "request"
    )
    assert lines[lines.index("This plan does not repair:") + 1] == row
    assert lines[lines.index("Verified again. Problems that remain:") :] == [
        "Verified again. Problems that remain:",
        row,
        "    -> add --only CFG-DELAY-BEYOND",
    ]


def test_rebuilding_a_part_does_not_call_a_damaged_log_a_store_without_loss(store: Path) -> None:
    damage.garble(store / "commitlog" / "00000000000000065536", 120, 4)
    result = run("rebuild", str(store), "checkpoint")
    assert result.exit_code == 1
    assert "No data will be lost." not in result.stdout
    assert "-> run `rmqstore recover`, which plans for the whole store" in result.stdout


def test_a_clean_store_has_nothing_to_do(tmp_path: Path) -> None:
    result = run("recover", str(copy_store("5.4.0-clean", tmp_path)))
    assert result.exit_code == 0
    assert result.stdout.endswith("No data will be lost.\nNothing to do.\n")


@pytest.mark.parametrize("facts", [5, [1], {"CL-MAGIC": 3}, {"CL-MAGIC": {"why": [1]}}])
def test_facts_of_a_saved_plan_can_be_anything(facts: object) -> None:
    plan = Plan("/store", (), facts={"stays": facts})  # type: ignore[dict-item]
    assert describe(plan)[0] == "Nothing is planned: no file would be changed."


def test_a_replica_is_not_cut_at_control_characters_that_are_allowed(tmp_path: Path) -> None:
    case = read_case("CL-CONTROL-CHARACTERS")
    store = make(case, tmp_path)
    plan = json.loads(run("recover", str(store), "--role", "slave", "--json").stdout)
    assert plan["facts"]["strategy"] == "truncate"
    assert plan["steps"] == []
    assert plan["loss"]["messages"] == 0


def test_damage_in_a_log_file_that_is_a_link_stays_and_the_rest_is_repaired(tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path / "store")
    first, second, *_ = sorted((store / "commitlog").iterdir())
    target = tmp_path / "disk 2" / "file"
    target.parent.mkdir()
    first.rename(target)
    first.symlink_to(target)
    damage.flip(target, 88, 0)
    damage.flip(second, 88, 0)
    before = target.read_bytes()
    plan = run_json("recover", str(store), "--apply", exit_code=1)
    assert any("commitlog/00000000000000000000 is a symbolic link" in note for note in plan["notes"])  # type: ignore[attr-defined]
    assert plan["facts"]["stays"]["CL-BODY-CRC"]["count"] == 1  # type: ignore[index]
    assert first.is_symlink() and target.read_bytes() == before
    left = json.loads(run("verify", str(store), "--json").stdout)["findings"]
    assert [(row["code"], row["file"]) for row in left] == [("CL-BODY-CRC", first.name), ("DIR-LINK", first.name)]
    first.unlink()
    shutil.copy2(target, first)
    assert run_json("recover", str(store), "--apply", exit_code=0)["cures"] == ["CL-BODY-CRC"]


def test_a_compressed_log_file_must_be_decompressed_before_its_messages_are_given_up(store: Path) -> None:
    name = "00000000000000131072"
    path = store / "commitlog" / name
    original = path.read_bytes()
    packed = path.with_name(f"{name}.gz")
    packed.write_bytes(gzip.compress(original))
    path.unlink()
    words = f"commitlog/{name}.gz may be {name}, compressed: decompress it there, and run this command again"
    assert words in str(run_json("recover", str(store), "--accept-fillers", exit_code=1)["brakes"])
    assert run("recover", str(store), "--accept-fillers", "--apply").exit_code == 5
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    plan = run_json("recover", str(store), exit_code=1)
    assert plan["brakes"] == []
    assert plan["cures"] == ["DIR-STRAY-FILE"]


def test_the_named_role_decides_what_is_a_problem(tmp_path: Path) -> None:
    """A slave gets topics and offsets from its master, so they may be ahead of its own queues, or not there yet."""
    store = copy_store("5.4.0-slave", tmp_path)
    offsets = {"offsetTable": {"Order_11@Group": {"0": 100_000}}}
    (store / "config" / "consumerOffset.json").write_text(json.dumps(offsets))
    (store / "config" / "topics.json").write_text('{"topicConfigTable":{"Other":{"topicName":"Other"}}}')
    master = run_json("recover", str(store), "--role", "master", exit_code=1)
    assert set(master["remaining"]["counts"]) == {"CFG-OFFSET-BEYOND", "CFG-UNKNOWN-TOPICS"}  # type: ignore[index]
    assert run_json("recover", str(store), "--role", "slave", exit_code=0)["remaining"] == {"counts": {}}
