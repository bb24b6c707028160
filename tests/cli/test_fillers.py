"""Fillers are not messages: rows show them as fillers, and exports and counts leave them out. Mended messages are."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rmqstore
from rmqstore.files.journals import repairs
from rmqstore.files.store import Store, open_store
from rmqstore.formats.message import is_filler
from rmqstore.scan.columns import Repaired, filler_mask, mended_mask
from rmqstore.scan.records import scan_file
from tests.cli.test_lost import damaged
from tests.command import run, run_json
from tests.planning import log_of
from tests.stores import copy_store, unpack
from tests.views.decoder import Record

NAMES = ("5.4.0-clean", "5.4.0-dledger", "4.9.7-clean")


def repaired(name: str, place: Path) -> tuple[Path, list[Record]]:
    """Return a store with two fillers, and the messages that they replace."""
    store = copy_store(name, place)
    first, second, _ = damaged(store)
    run("recover", str(store), "--apply", "--accept-fillers")
    return store, [first, second]


@pytest.fixture(scope="module", params=NAMES)
def lost_two(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Record]]:
    return repaired(request.param, tmp_path_factory.mktemp("fillers"))


def rows(*words: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in run(*words).stdout.splitlines()]


@pytest.mark.quick_rows(1)
def test_dump_marks_fillers(lost_two: tuple[Path, list[Record]]) -> None:
    store, lost = lost_two
    dumped = rows("dump", str(store), "--format", "ndjson")
    assert [row["offset"] for row in dumped if row["filler"]] == [r.position for r in lost]
    table = list(csv.DictReader(io.StringIO(run("dump", str(store), "--format", "csv").stdout)))
    assert [row["filler"] for row in table] == [str(row["filler"]).lower() for row in dumped]


@pytest.mark.quick_rows(3)
@pytest.mark.parametrize("columns", ["80", "120"])
def test_a_table_of_dump_says_what_a_repair_did(
    lost_two: tuple[Path, list[Record]], columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _ = lost_two
    dumped = rows("dump", str(store), "--format", "ndjson")
    monkeypatch.setenv("COLUMNS", columns)
    head, *table = run("dump", str(store), "--format", "table").stdout.splitlines()
    at = head.index("repair")
    shown = [line[at : at + 6].strip() for line in table]
    assert shown == ["filler" if row["filler"] else "mended" if row["mended"] else "-" for row in dumped]
    assert {"filler", "mended", "-"} == set(shown)
    assert " repair" not in run("dump", str(unpack("5.4.0-clean")), "--format", "table").stdout.splitlines()[0]


def test_a_table_of_dump_reads_the_journals_once(
    lost_two: tuple[Path, list[Record]], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Store] = []

    def counted(store: Store) -> Iterator[tuple[str, Mapping[str, Any]]]:
        read.append(store)
        return repairs(store)

    monkeypatch.setattr("rmqstore.messages.repaired.repairs", counted)
    assert " repair" in run("dump", str(lost_two[0]), "--format", "table").stdout.splitlines()[0]
    assert len(read) == 1


def test_get_shows_the_record_in_lost_and_found_as_it_was(lost_two: tuple[Path, list[Record]]) -> None:
    store, (first, _) = lost_two
    answer: Any = run_json("get", str(store), first.properties["UNIQ_KEY"], exit_code=1)
    assert answer["lost"]["filler"] is True
    assert (answer["message"]["filler"], answer["message"]["mended"]) == (False, False)


def test_exports_and_counts_leave_fillers_out_unless_asked_for(lost_two: tuple[Path, list[Record]]) -> None:
    store, lost = lost_two
    places = {(r.topic, r.queue_id, r.queue_offset) for r in lost}
    exported = rows("export", str(store))
    assert not [row for row in exported if (row["topic"], row["queue_id"], row["queue_offset"]) in places]
    every = rows("export", str(store), "--fillers")
    assert len(every) == len(exported) + 2
    assert {(r["topic"], r["queue_id"], r["queue_offset"]) for r in every if r.get("filler")} == places
    used = run_json("du", str(store), exit_code=0)
    assert (used["messages"], used["fillers"]) == (len(exported), 2)
    assert run_json("du", str(store), "--fillers", exit_code=0)["messages"] == len(every)
    assert "2 fillers of earlier repairs" in run("du", str(store)).stderr
    opened = rmqstore.open(store)
    assert sum(1 for _ in opened.messages()) == len(exported)
    assert [m.offset for m in opened.messages(fillers=True) if m.filler] == [r.position for r in lost]


def test_sql_leaves_fillers_out_unless_asked_for(lost_two: tuple[Path, list[Record]]) -> None:
    pytest.importorskip("duckdb")
    store, lost = lost_two
    query = 'select "offset" from messages where filler order by 1'
    assert rows("sql", str(store), query) == []
    assert rows("sql", str(store), query, "--fillers") == [{"offset": r.position} for r in lost]


@pytest.mark.parametrize("text", ["{", "[" * 100_000])
def test_a_journal_whose_plan_is_damaged_tells_nothing_about_fillers(text: str, tmp_path: Path) -> None:
    store, _ = repaired("5.4.0-clean", tmp_path)
    (plan,) = store.glob(".rmqstore/*/plan.json")
    plan.write_text(text)
    assert run_json("verify", str(store), exit_code=0)["fillers"] == [{"count": 2, "repair": None}]


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("name", NAMES)
def test_a_mended_message_is_marked_until_the_repair_is_undone(name: str, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    _, _, mended = damaged(store)
    run("recover", str(store), "--apply", "--accept-fillers")
    place, where = (mended.topic, mended.queue_id, mended.queue_offset), str(mended.position)
    own = ("--from", where, "--to", str(mended.position + 1))  # few records are rendered in another way
    for words in ((), own):
        dumped = rows("dump", str(store), "--format", "ndjson", *words)
        assert [row["offset"] for row in dumped if row["mended"]] == [mended.position]
        table = list(csv.DictReader(io.StringIO(run("dump", str(store), "--format", "csv", *words).stdout)))
        assert [row["mended"] for row in table] == [str(row["mended"]).lower() for row in dumped]
    exported = [row for row in rows("export", str(store)) if row.get("mended")]
    assert [(row["topic"], row["queue_id"], row["queue_offset"]) for row in exported] == [place]
    table = list(csv.DictReader(io.StringIO(run("export", str(store), "--format", "csv").stdout)))
    assert [row["queue_offset"] for row in table if row["mended"]] == [str(mended.queue_offset)]
    assert run_json("get", str(store), where, exit_code=0)["message"]["mended"] is True  # type: ignore[index]
    found = run_json("find", str(store), "{}/{}/{}".format(*place), exit_code=0)
    assert [row["mended"] for row in found["messages"]] == [True]  # type: ignore[attr-defined]
    assert run("undo", str(store), "--last").exit_code == 0
    assert not any(row["mended"] for row in rows("dump", str(store), "--format", "ndjson"))


def test_sql_and_arrow_mark_mended_messages(tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    arrow = pytest.importorskip("pyarrow.parquet")
    store = copy_store("5.4.0-clean", tmp_path)
    _, _, mended = damaged(store)
    run("recover", str(store), "--apply", "--accept-fillers")
    assert rows("sql", str(store), 'select "offset" from messages where mended') == [{"offset": mended.position}]
    run("export", str(store), "--format", "parquet", "-o", str(tmp_path / "all.parquet"))
    marked = [row for row in arrow.read_table(tmp_path / "all.parquet").to_pylist() if row["mended"]]
    assert [row["queue_offset"] for row in marked] == [mended.queue_offset]


def test_a_message_that_was_stored_after_a_repair_is_not_mended() -> None:
    store = unpack("5.4.0-clean")
    log = log_of(store)
    columns = next(run.columns for run in scan_file(log.files[0], start=0, body_offset=0) if run.columns is not None)
    second, time = int(columns.offset[1]), int(columns.store_timestamp[1])
    for made, expected in ((time, [1]), (time - 1, [])):
        repaired = Repaired(written=((second + 5, second + 6, made),))
        mask = mended_mask(columns, repaired, None)
        assert ([] if mask is None else np.flatnonzero(mask).tolist()) == expected
        size = int(columns.size[1])
        assert repaired.wrote(second, second + size, time) is bool(expected)
        assert not repaired.wrote(second + 6, second + size, time)


def test_a_filler_without_a_mark_is_known_by_its_journal(tmp_path: Path) -> None:
    store, lost = repaired("5.4.0-clean", tmp_path)
    (journal,) = (store / ".rmqstore").iterdir()
    plan = json.loads((journal / "plan.json").read_text())
    other = next(r for r in rows("export", str(store), "--offsets") if r["topic"] == "Order_11")
    names = ("topic", "queue_id", "queue_offset", "offset")
    plan["facts"]["fillers"].append({name: other[name] for name in names} | {"length": other["size"], "marked": ""})
    (journal / "plan.json").write_text(json.dumps(plan))
    positions = {r["offset"] for r in rows("dump", str(store), "--format", "ndjson") if r["filler"]}
    assert positions == {*(r.position for r in lost), other["offset"]}
    assert run_json("du", str(store), exit_code=0)["fillers"] == 3


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("name", NAMES)
def test_columns_give_the_same_fillers_as_records(name: str, tmp_path: Path) -> None:
    store, lost = repaired(name, tmp_path)
    found = []
    for log, body_offset in open_store(store).logs:
        for file in log.files:
            for run_ in scan_file(file, body_offset=body_offset):
                columns = run_.columns
                if columns is None:
                    continue
                mask = filler_mask(columns)
                mask = np.zeros(len(columns), dtype=np.bool_) if mask is None else mask
                assert mask.tolist() == [is_filler(columns.message(i)) for i in range(len(columns))]
                found += columns.offset[mask].tolist()
    assert found == [r.position for r in lost]


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize(
    "rows_of_plan",
    [
        [{"topic": 1, "queue_id": {}, "queue_offset": [], "offset": None}, 3, None],
        [{"topic": "a", "queue_id": 0, "queue_offset": 1 << 200, "offset": 1 << 70, "length": -5, "marked": ""}],
        "no list",
    ],
)
def test_a_journal_is_not_trusted(rows_of_plan: object, tmp_path: Path) -> None:
    store, (kept, _) = repaired("5.4.0-clean", tmp_path)
    (journal,) = (store / ".rmqstore").iterdir()
    plan = json.loads((journal / "plan.json").read_text())
    plan["facts"]["fillers"] = rows_of_plan
    (journal / "plan.json").write_text(json.dumps(plan))
    assert run("find", str(store), kept.properties["UNIQ_KEY"]).exit_code == 1
    assert "LOST" in run("get", str(store), str(kept.position)).stdout
    assert run_json("du", str(store), exit_code=0)["fillers"] == 2
    assert run("report", str(store), "-o", str(tmp_path / "page.html")).exit_code == 0
