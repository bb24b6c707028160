"""A real broker cuts a damaged log and appends to it: `lost --stale` lists exactly what it has not overwritten."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.test_lost import body_at, file_of
from tests.command import run, run_json
from tests.damage import garble
from tests.real_broker.oracle import Oracle
from tests.stores import copy_store, meta
from tests.views.decoder import Record, find_records


def cut_by_a_broker(store: Path, oracle: Oracle, name: str, puts: int) -> tuple[list[Record], int]:
    """Damage a record, start a broker that cuts the log there, and let it append `puts` messages.

    Returns the messages after the new end that the broker has not overwritten, and that end.
    """
    records = list(find_records(store))
    size = 65536
    late = records[len(records) // 2].position
    bad = next(r for r in records if r.position > late and r.position % size < size // 2 and len(r.body) > 30)
    path, at = file_of(store, bad)
    garble(path, at + body_at(bad), 10)
    (store / "abort").touch()
    (store / "checkpoint").write_bytes(bytes(4096))
    seen = oracle.load(store, meta(name).oracle_args, start=True, shutdown=True, put=puts)
    assert (seen.load, seen.crash, len(seen.puts)) == (True, None, puts)
    assert seen.puts[0][2] == bad.position
    end = seen.max_phy or 0
    after = {record.position: record for record in find_records(store)}
    # with writeWithoutMmap, a broker overwrites whole pages
    return [r for r in records if end <= r.position < int(path.name) + size and after.get(r.position) == r], end


@pytest.mark.parametrize(
    "name",
    [
        "5.4.0-clean",
        pytest.param("4.9.7-killed", marks=pytest.mark.slow),
        pytest.param("5.1.4-killed", marks=pytest.mark.slow),
        pytest.param("5.5.1-nommap", marks=pytest.mark.slow),
    ],
)
def test_old_records_after_the_end_of_a_log(name: str, tmp_path: Path, oracle: Callable[[str], Oracle]) -> None:
    store = copy_store(name, tmp_path)
    left, end = cut_by_a_broker(store, oracle(meta(name).version), name, 7)
    assert left
    answer = run_json("lost", str(store), "--stale", exit_code=0)
    rows = answer["messages"]
    assert isinstance(rows, list)
    found = [(r["offset"], r["topic"], r["queue_id"], r["queue_offset"], r["unique_key"]) for r in rows]
    assert found == [(r.position, r.topic, r.queue_id, r.queue_offset, r.properties.get("UNIQ_KEY")) for r in left]
    assert {(r["why"], r["where"], r["stale"]) for r in rows} == {("cut", "after-end", True)}
    assert all(r["older_by"] > 0 for r in rows)
    assert answer["logs"] == [
        {"log": "commitlog", "end": end, "last_timestamp": rows[0]["store_timestamp"] + rows[0]["older_by"]}
    ]

    exported = [json.loads(line) for line in run("export", str(store), "--stale", "--offsets").stdout.splitlines()]
    assert [(row["offset"], row["stale"]) for row in exported] == [(r.position, True) for r in left]
    log = [json.loads(line) for line in run("export", str(store), "--offsets").stdout.splitlines()]
    assert not any("stale" in row or row["offset"] >= end for row in log)

    run("recover", str(store), "--apply")
    assert run_json("lost", str(store), "--stale", exit_code=0)["messages"] == []
    assert [json.loads(line) for line in run("export", str(store), "--offsets").stdout.splitlines()] == log
