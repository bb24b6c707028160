"""`lost` lists what the first line of `verify` and the metrics count: one account, and its numbers add up."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rmqstore.views.expected import read_expected
from tests.cases.case import case_names, make, options, read_case, recover_words
from tests.command import run, run_json
from tests.damage import garble
from tests.repair.salvaging import rows
from tests.rocksdb_rows import without_extra
from tests.stores import copy_store, unpack, write_broker_conf

NUMBERS = ("lost_already", "lost_at_next_start", "undelivered")


def answers(
    store: Path, *words: str, metrics: str = ""
) -> tuple[dict[str, int], list[dict[str, object]], dict[str, int]]:
    """Return the account of `verify`, and of `lost` its messages and what it counts without listing it."""
    more = ("--metrics", metrics) if metrics else ()
    report = json.loads(run("verify", str(store), *words, *more, "--json").stdout)
    listed = json.loads(run("lost", str(store), *words, "--next-start", "--json").stdout)
    account, messages, unlisted = report["account"], listed["messages"], listed["unlisted"]
    assert (listed["account"], listed["at_least"]) == (account, account["at_least"])
    numbers = {int(number.replace(",", "")) for number in re.findall(r"(?<![\w.])\d[\d,]*", report["verdict"])}
    assert numbers.issuperset(filter(None, (account[name] for name in NUMBERS))), report["verdict"]
    return account, messages, unlisted


@pytest.mark.quick_rows(5)
@pytest.mark.parametrize("name", case_names())
def test_the_list_the_metrics_and_the_plan_say_what_the_first_line_says(name: str, tmp_path: Path) -> None:
    case = read_case(name)
    store = make(case, tmp_path)
    words = options(case, store)
    metrics = tmp_path / "out.prom"
    account, messages, unlisted = answers(store, *words, metrics=str(metrics))
    causes = Counter(str(row["cause"]) for row in messages)
    listed = causes["damage"] + sum(unlisted.values()), causes["cut"], causes["no-unit"] + causes["same-offset"]
    assert dict(zip(NUMBERS, listed, strict=True)) == {name: account[name] for name in NUMBERS}
    lines = [line for line in metrics.read_text().splitlines() if "{" in line]
    found = {line.partition("{")[0]: line.rpartition(" ")[2] for line in lines}
    assert [int(found[f"rmqstore_messages_{name}"]) for name in NUMBERS] == [account[name] for name in NUMBERS]
    if case.recover is not None and case.recover.command[0] == "recover":
        plan = json.loads(run(*recover_words(case, store), "--json").stdout)
        assert plan["accounts"]["before"] == account


def test_messages_after_the_end_are_listed_one_by_one(tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    gone = {row.slot for row in rows(store) if row.path.name == "00000000000000458752"}
    (store / "commitlog" / "00000000000000458752").unlink()
    account, messages, unlisted = answers(store)
    assert {(row["topic"], row["queue_id"], row["queue_offset"]) for row in messages} == gone
    assert (account["lost_already"], len(messages), unlisted) == (20, 20, {})


def test_undelivered_messages_are_listed(tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    held = {row.slot for row in rows(store) if row.slot[:2] == ("Order_11", 2)}
    shutil.rmtree(store / "consumequeue" / "Order_11" / "2")
    account, messages, _ = answers(store)
    assert {(row["topic"], row["queue_id"], row["queue_offset"]) for row in messages} == held
    assert {(row["cause"], row["body"]) for row in messages} == {("no-unit", "intact")}
    assert account["undelivered"] == len(held)
    text = run("lost", str(store), "--format", "table").stdout
    assert f"In the log, but no consumer gets them: {len(held)} messages" in text
    assert "No messages are lost" not in text


def test_what_is_gone_before_the_begin_is_listed_on_request(tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    gone = {row.slot for row in rows(store) if row.path.name == "00000000000000000000"}
    (store / "commitlog" / "00000000000000000000").unlink()
    assert run_json("lost", str(store), exit_code=0)["messages"] == []
    words = run("lost", str(store), "--format", "table").stdout
    assert "Before the begin of the log at 65,536, 120 messages (--expired lists them)" in words
    listed = run_json("lost", str(store), "--expired", exit_code=0)["messages"]
    assert isinstance(listed, list)
    assert {(row["topic"], row["queue_id"], row["queue_offset"]) for row in listed} == gone
    assert {row["cause"] for row in listed} == {"expired"}


def test_the_ids_of_a_batch_are_ids_of_their_own() -> None:
    one, other = "7F000001000000000000000000000000", "7F000001000000000000000000000001"
    batch = f'{{"msgId": "{one},{other}"}}\n{other}\na,b\n'
    assert read_expected(batch.encode()).texts == [one, other, "a,b"]


def test_after_a_repair_nothing_of_a_filler_is_told_of_its_message(tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    hit = [row for row in rows(store) if row.slot[0] == "Order_11"][40:42]  # side by side
    for row in hit:
        garble(row.path, row.at, row.size)
    shutil.rmtree(store / "consumequeue")
    shutil.rmtree(store / "index")
    conf = write_broker_conf("5.4.0-clean", store)
    run_json("recover", str(store), "-c", str(conf), "--apply", exit_code=0)
    answer = run_json("lost", str(store), exit_code=1)
    messages: Any = answer["messages"]
    assert answer["at_least"]
    assert {(row["topic"], row["queue_id"], row["queue_offset"]) for row in messages} == {row.slot for row in hit}
    unknown: dict[str, Any] = {
        "offset": None,
        "size": None,
        "key_hashes": [],
        "store_timestamp": None,
        "indexed_time": None,
    }
    assert [{name: row[name] for name in unknown} for row in messages] == [unknown, unknown]
    assert "at least 2 messages lost" in run("journals", str(store)).stdout


def test_what_was_not_checked_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    without_extra(monkeypatch)
    done = run("lost", str(unpack("5.4.0-pop-kv")))
    assert done.exit_code == 4
    assert "note: not checked: kvStore/" in done.stderr
