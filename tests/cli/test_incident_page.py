"""`rmqstore report --incident`: the page and the list of one repair say what is true of it today."""

from __future__ import annotations

import csv
import html
import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqstore.documents.plan import plan_from_json
from rmqstore.errors import HalfApplied, Refused
from rmqstore.repair.journal import journal
from tests.cli.test_report_page import broken, read
from tests.command import run, run_json
from tests.repair.trees import failing_at
from tests.stores import copy_store, unpack

STORE = "5.4.0-clean"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store of which a start would lose hundreds of messages: two are damaged for good, one can be mended."""
    return broken(tmp_path)


def repaired(store: Path, *words: str) -> Path:
    """Repair a store; return the journal."""
    answer = run_json("recover", str(store), "--apply", *words, exit_code=0)
    return Path(str(answer["journal"]))


def page_of(store: Path, path: Path, folder: Path, exit_code: int = 0) -> tuple[str, list[dict[str, str]]]:
    """Return the text of the page of a repair, without markup, and the rows of its list."""
    target, listed = folder / "incident.html", folder / "incident.csv"
    target.unlink(missing_ok=True)
    listed.unlink(missing_ok=True)
    words = ("--incident", str(path), "-o", str(target), "--csv", str(listed), "--utc")
    result = run("report", str(store), *words)
    assert result.exit_code == exit_code, result.output
    text = target.read_text("utf-8")
    with listed.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return " ".join(" ".join(read(text).text).split()), rows


def state_of_banner(folder: Path) -> str:
    found = re.search(r'class="verdict (\w+)"', (folder / "incident.html").read_text("utf-8"))
    assert found is not None
    return found[1]


def test_the_page_tells_what_was_lost_given_back_and_would_have_been_lost(store: Path, tmp_path: Path) -> None:
    before = run_json("verify", str(store), exit_code=1)
    path = repaired(store)
    text, rows = page_of(store, path, tmp_path)
    lost: Any = run_json("lost", str(store), "--journal", str(path), exit_code=1)["messages"]
    assert [(r["topic"], int(r["queue_id"]), int(r["queue_offset"])) for r in rows if r["lost"] == "true"] == [
        (m["topic"], m["queue_id"], m["queue_offset"]) for m in lost if not m["mended"]
    ]
    assert "2 messages lost. The rest of the store is sound today." in text
    assert state_of_banner(tmp_path) == "warning"
    broker: Any = before["broker"]
    assert (
        str(before["verdict"]) in text
        and f"{broker['messages_lost']:,} messages that the next start would have deleted without it" in text
    )
    brokers: Any = before["brokers"]
    assert brokers and all(row["words"] in text for row in brokers)
    for code in ("CL-BODY-CRC × 2", "CL-ZERO-HOLE × 1"):
        assert code in text
    for row in rows:
        assert re.fullmatch(r"2026-11-21T07:10:2\d\.\d{3}Z", row["stored"])
        assert row["stored"][:19].replace("T", " ") + " UTC" in text
        assert row["keys"] in text and row["unique_key"] in text
    assert "1 damaged message mended" in text
    assert [row["now"] for row in rows] == ["filler", "filler", "present"]
    assert "CG_dlq_11" in text
    nameless = sum(row["lost"] == "true" and not row["keys"] for row in rows)
    advice = f"rmqstore lost {store} --expected acknowledged.txt"
    assert nameless == 1
    assert "No key is left of 1 message: compare" in text and advice in text


def test_groups_are_those_before_the_repair(store: Path, tmp_path: Path) -> None:
    place = store / "config" / "consumerOffset.json"
    place.write_text('{"offsetTable": {"log-15445@CG_before": {"0": 12}}}')
    path = repaired(store)
    place.write_text('{"offsetTable": {"log-15445@CG_before": {"0": 28}, "log-15445@CG_later": {"0": 28}}}')
    _, rows = page_of(store, path, tmp_path)
    assert {row["queue_offset"]: row["consumed_by"] for row in rows} == {"10": "CG_before", "16": "", "26": ""}
    lost: Any = run_json("lost", str(store), "--journal", str(path), exit_code=1)["messages"]
    assert {m["queue_offset"]: m["consumed_by"] for m in lost} == {10: ["CG_before"], 16: [], 26: []}
    plan = json.loads((path / "plan.json").read_text())
    del plan["facts"]["before"]
    (path / "plan.json").write_text(json.dumps(plan))
    text, rows = page_of(store, path, tmp_path)
    assert "offsets of today, and may have read a filler" in text and "journal is of an earlier rmqstore" in text
    assert {row["queue_offset"]: row["consumed_by"] for row in rows}["16"] == "CG_before CG_later"


def test_after_an_undo_nothing_is_in_effect(store: Path, tmp_path: Path) -> None:
    path = repaired(store)
    assert run("undo", str(path)).exit_code == 0
    text, rows = page_of(store, path, tmp_path, exit_code=1)
    assert "This repair was undone" in text and "messages that the next start would have deleted without it" not in text
    assert "Messages that the repair would not have kept" in text and "What was planned" in text
    assert {row["now"] for row in rows} == {"damaged"}
    assert f"rmqstore recover {store}" in text and "rmqstore undo" not in text.partition("What to do now")[2][:400]


def test_the_page_says_how_to_finish_a_partly_applied_repair(store: Path, tmp_path: Path) -> None:
    plan_file = tmp_path / "plan.json"
    assert run("recover", str(store), "--plan-out", str(plan_file)).exit_code == 1
    plan = plan_from_json(plan_file.read_bytes(), store=store, roots=[store / "commitlog"])
    for writes in range(40, 400, 20):
        try:
            journal.apply(plan, disk=failing_at(writes, for_good=True))
        except HalfApplied:
            break
        except Refused:  # nothing was changed yet
            continue
    [info] = journal.find_unfinished(store)
    text, _ = page_of(store, info.path, tmp_path, exit_code=1)
    assert "This repair is unfinished" in text and state_of_banner(tmp_path) == "error"
    assert f"rmqstore resume {info.path}" in text and f"rmqstore undo {info.path}" in text
    assert "Start the broker" not in text


def test_a_journal_elsewhere_and_of_another_store(store: Path, tmp_path: Path) -> None:
    path = repaired(store, "--journal", str(tmp_path / "journals"))
    assert path.parent == tmp_path / "journals"
    text, rows = page_of(store, path, tmp_path)
    assert str(path) in text and len(rows) == 3
    assert page_of(store, store / ".rmqstore" / path.name, tmp_path)[1] == rows  # by the pointer in the store
    other = shutil.copytree(unpack(STORE), tmp_path / "other")
    result = run("report", str(other), "--incident", str(path), "-o", str(tmp_path / "x.html"))
    assert result.exit_code == 2 and "another store" in result.stderr
    result = run("report", str(store), "--incident", str(tmp_path), "-o", str(tmp_path / "x.html"))
    assert result.exit_code == 3 and not (tmp_path / "x.html").exists()
    assert run("report", str(store), "--csv", "x.csv", "-o", str(tmp_path / "x.html")).exit_code == 2


def test_what_a_replica_gave_back_later_is_no_longer_lost(store: Path, tmp_path: Path) -> None:
    path = repaired(store)
    repaired(store, "--replica", str(unpack(STORE)), "--heal-fillers")
    text, rows = page_of(store, path, tmp_path)
    assert "No message is lost any more." in text and "given back since" in text
    assert state_of_banner(tmp_path) == "ok"
    assert [row["lost"] for row in rows] == ["false"] * 3
    assert "Changed again since, by 1 later repair" in text
    assert run("report", str(store), "-o", str(tmp_path / "store.html")).exit_code == 0
    page = (tmp_path / "store.html").read_text("utf-8")
    assert 'class="verdict ok"' in page and "could not be kept" not in page


def test_lost_by_truncation_only_the_number_is_known(store: Path, tmp_path: Path) -> None:
    (store / "abort").unlink()
    path = repaired(store, "--strategy", "truncate")
    text, rows = page_of(store, path, tmp_path)
    lost = re.search(r"([\d,]+) messages lost\. The rest", text)
    assert lost is not None and int(lost[1]) > 300
    assert "of which only the number is known" in text
    assert state_of_banner(tmp_path) == "warning"
    assert [row for row in rows if row["lost"] == "true"] == []


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_command_on_the_page_runs(store: Path, tmp_path: Path, lang: str) -> None:
    path = repaired(store)
    target = tmp_path / "x.html"
    result = run("report", str(store), "--incident", str(path), "-o", str(target), "--lang", lang)
    assert result.exit_code == 0
    replica = str(shutil.copytree(unpack(STORE), tmp_path / "replica"))
    commands = [html.unescape(words) for words in re.findall(r"<pre>(.*?)</pre>", target.read_text("utf-8"))]
    assert len(commands) == 5
    (tmp_path / "acknowledged.txt").write_text("ord11_42\n")
    for words in commands:
        program, *arguments = shlex.split(words.replace("DIR", replica))
        assert program == "rmqstore"
        arguments = [
            str(tmp_path / w) if w in ("lost.csv", "lost-bodies", "acknowledged.txt") else w for w in arguments
        ]
        assert run(*arguments).exit_code in (0, 1), words
    assert len((tmp_path / "lost.csv").read_text().splitlines()) == 4
    assert len(list((tmp_path / "lost-bodies").iterdir())) == 2


def test_nothing_of_a_plan_is_markup(store: Path, tmp_path: Path) -> None:
    path = repaired(store)
    plan = json.loads((path / "plan.json").read_text())
    evil = "<script>alert(1)</script>"
    plan["facts"]["before"] |= {"verdict": evil, "counts": {evil: 1}, "findings": [{"code": evil}], "brokers": [evil]}
    plan["facts"]["before"]["offsets"] = {evil: 3}
    plan["facts"]["fillers"][0]["topic"] = evil
    plan["cures"] = [evil]
    (path / "plan.json").write_text(json.dumps(plan))
    text, _ = page_of(store, path, tmp_path)
    assert evil in text  # as text: `read` accepts no script


def test_a_change_of_offsets_has_a_page_too(tmp_path: Path) -> None:
    store = copy_store(STORE, tmp_path)
    words = ("--set", "CG_tag_11", "Order_11", "--to", "2026-11-21 07:10:26")
    assert run("offsets", str(store), *words, "--apply").exit_code == 0
    (path,) = (store / ".rmqstore").iterdir()
    text, rows = page_of(store, path, tmp_path)
    assert "No message is lost. The rest of the store is sound today." in text and rows == []
    assert "the store was not examined before it" in text and "earlier rmqstore" not in text
