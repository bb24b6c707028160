"""Plan files: what they cost is measured, what they say about themselves is not shown, where they lead is checked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.command import run, run_json
from tests.stores import copy_store

ESCAPE, OVERRIDE = "\x1b[31m", "\u202e"


def first_log(store: Path) -> Path:
    return min((store / "commitlog").iterdir())


def damage(store: Path) -> None:
    with first_log(store).open("r+b") as file:
        file.seek(2000)
        file.write(b"\xff" * 64)


def plan_file(store: Path, *steps: Mapping[str, Any], **head: object) -> Path:
    path = store.parent / "plan.json"
    document = {
        "schema": "rmqstore.plan/1",
        "store": str(store),
        "roots": [],
        "loss": {"messages": 0, "bytes": 0},
        "cures": ["CL-DIRTY-TAIL"],
        "notes": [f"all is well{ESCAPE}{OVERRIDE}"],
        "brakes": [],
        "spans": [],
        "facts": {"strategy": "salvage"},
        "steps": list(steps),
    }
    path.write_text(json.dumps({**document, **head}))
    return path


def zeroes(store: Path, length: int, why: str = "harmless") -> dict[str, Any]:
    """Return a step that zeroes the first bytes of the log."""
    log = first_log(store)
    expect = f"sha256:{hashlib.sha256(log.read_bytes()[:length]).hexdigest()}"
    name = log.relative_to(store).as_posix()
    return {"do": "overwrite", "path": name, "at": 0, "expect": expect, "why": why, "content": {"zeros": length}}


def test_what_a_plan_costs_is_measured_and_needs_a_decision(tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    plan = plan_file(store, zeroes(store, 4096, f"harmless{ESCAPE}{OVERRIDE}"))
    before = first_log(store).read_bytes()
    shown = run("recover", str(store), "--plan", str(plan))
    assert shown.exit_code == 1
    for claim in ("No data will be lost", "harmless", "all is well", "CL-DIRTY-TAIL", ESCAPE, OVERRIDE):
        assert claim not in shown.output
    answer = run_json("recover", str(store), "--plan", str(plan), exit_code=1)
    loss: Any = answer["loss"]
    assert loss["messages"] > 0 and sum(loss["queues"].values()) == loss["messages"] and loss["bytes"] >= 4000
    brakes: Any = answer["brakes"]
    assert f"{loss['messages']} messages that the store has now would be lost" in brakes
    refused = run("recover", str(store), "--plan", str(plan), "--apply")
    assert refused.exit_code == 5 and "this plan needs a decision" in refused.stderr
    assert first_log(store).read_bytes() == before
    forced = run("recover", str(store), "--plan", str(plan), "--apply", "--force", str(answer["digest"]))
    assert f"{loss['messages']} messages lost" in forced.output and "no message lost" not in forced.output
    assert run("undo", str(store), "--last").exit_code == 0
    assert first_log(store).read_bytes() == before


def test_a_plan_that_discards_the_whole_log_loses_all_messages(tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    every = run_json("compare", str(store), str(copy_store("5.4.0-clean", tmp_path, rename="b")), exit_code=0)
    steps = []
    for log in sorted((store / "commitlog").iterdir()):
        digest = hashlib.sha256(log.read_bytes()).hexdigest()
        name = log.relative_to(store).as_posix()
        steps.append({"do": "discard", "path": name, "expect": f"sha256:{digest}", "length": 0, "why": ""})
    answer = run_json("recover", str(store), "--plan", str(plan_file(store, *steps)), exit_code=1)
    loss: Any = answer["loss"]
    assert loss["messages"] == every["equal_messages"] != 0


def test_a_plan_of_our_own_is_applied_exactly(tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    damage(store)
    plan = tmp_path / "own.json"
    shown = run_json("recover", str(store), "--plan-out", str(plan), exit_code=1)
    again = run_json("recover", str(store), "--plan", str(plan), exit_code=1)
    for name in ("digest", "loss", "cures", "notes", "brakes", "steps", "facts"):
        assert again[name] == shown[name], name
    force = ("--force", str(shown["digest"])) if shown["brakes"] else ()
    done = run("recover", str(store), "--plan", str(plan), "--apply", *force)
    assert done.exit_code == 0, done.output
    assert run("verify", str(store)).exit_code == 0


def test_an_own_plan_with_forged_claims_is_shown_with_the_right_ones(tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    damage(store)
    plan = tmp_path / "own.json"
    shown = run_json("recover", str(store), "--plan-out", str(plan), exit_code=1)
    document = json.loads(plan.read_text())
    document |= {"loss": {"messages": 7, "bytes": 1, "queues": {}}, "notes": ["forged"], "cures": ["FORGED"]}
    plan.write_text(json.dumps(document))
    again = run_json("recover", str(store), "--plan", str(plan), exit_code=1)
    assert (again["loss"], again["notes"], again["cures"]) == (shown["loss"], shown["notes"], shown["cures"])


@pytest.mark.parametrize(
    "path",
    ["../victim", "/etc/passwd", "commitlog/../../victim", ".rmqstore/x", "lock", "", ".", "a\0b", "commitlog//x"],
)
def test_a_path_outside_of_the_store_is_refused(tmp_path: Path, path: str) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    plan = plan_file(store, {"do": "create", "path": path, "size": 1, "content": {"zeros": 1}, "why": ""})
    refused = run("recover", str(store), "--plan", str(plan), "--apply")
    assert refused.exit_code == 2 and len(refused.stderr.splitlines()) == 1
    assert not (store / ".rmqstore").exists() and not (tmp_path / "victim").exists()


def test_a_root_that_only_the_plan_names_is_refused(tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    victim = tmp_path / "victim"
    victim.mkdir()
    step = {"do": "create", "path": f"{victim}/x", "size": 1, "content": {"zeros": 1}, "why": ""}
    refused = run("recover", str(store), "--plan", str(plan_file(store, step, roots=[str(victim)])), "--apply")
    assert refused.exit_code == 2 and f"{victim} is not a data path of" in refused.stderr
    (store / "evil").symlink_to(victim)
    step = {**step, "path": "evil/x"}
    words = ("recover", str(store), "--plan", str(plan_file(store, step)), "--apply")
    refused = run(*words)
    if "needs a decision" in refused.stderr:
        digest = run_json(*words[:-1], exit_code=1)["digest"]
        refused = run(*words, "--force", str(digest))
    assert refused.exit_code == 5
    assert f"{store}/evil is a link that leads out of the store, to {victim}" in refused.stderr
    assert list(victim.iterdir()) == []


def test_offsets_that_a_saved_plan_moves_are_counted(tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    name = "config/consumerOffset.json"
    old, new = b'@CID_RMQ_SYS_TRANS":{\n\t\t\t0:44', b'@CID_RMQ_SYS_TRANS":{\n\t\t\t0:40'
    before = (store / name).read_bytes()
    assert before.count(old) == 1
    at = before.index(old)
    expect = f"sha256:{hashlib.sha256(old).hexdigest()}"
    step = {"do": "overwrite", "path": name, "at": at, "expect": expect, "why": "", "content": {"hex": new.hex()}}
    plan = plan_file(store, step, facts={"command": "offsets"})
    answer = run_json("offsets", str(store), "--plan", str(plan), exit_code=1)
    changes: Any = answer["changes"]
    assert [(row["group"], row["topic"], row["queue_id"], row["old"], row["new"], row["again"]) for row in changes] == [
        ("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC", 0, 44, 40, 4)
    ]
