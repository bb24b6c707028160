"""Jobs on snapshots have the results of the jobs on their stores; executors read objects themselves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from rmqstore.spark import jobs
from rmqstore.spark.compare import compare
from rmqstore.spark.export import ExportJob, export
from rmqstore.spark.jobs import Tasks
from rmqstore.spark.rebuild import rebuild
from rmqstore.spark.views import sql
from tests.backup.s3_server import BUCKET, s3_server
from tests.command import run, run_json
from tests.spark.stores import read_export
from tests.stores import unpack
from tests.untouched import assert_untouched

NAMES = ("5.4.0-clean", "5.4.0-dledger")
QUERIES = (
    "select count(*), sum(size), max(queue_offset) from messages",
    "select topic, queue_id, count(*), max(commitlog_offset) from consumequeue group by topic, queue_id order by 1, 2",
    "select key_hash, phy_offset from indexfile order by 1, 2",
    "select `group`, topic, queue_id, offset from consumer_offsets order by 1, 2, 3",
    "select count(*) from findings",
)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("snapshots") / "repo"
    for name in NAMES:
        assert run("backup", str(unpack(name)), str(path), "--name", name).exit_code == 0
    return path


@pytest.mark.parametrize("tasks", [Tasks(), Tasks(0, 65_536)], ids=["whole", "split"])
def test_verify_is_as_the_local_one(tasks: Tasks, spark: Any, repository: Path) -> None:
    addresses = [f"{repository}::{name}" for name in NAMES]
    with assert_untouched(repository):
        found = jobs.verify(spark, addresses, tasks=tasks)
    assert found.exit_code == 0
    for address, answer in zip(addresses, found.stores, strict=True):
        here = run_json("verify", address, exit_code=0)
        for key in ("counts", "queues", "commitlog", "dledger", "verdict", "unchecked"):
            assert answer.get(key) == here.get(key), (address, key)


@pytest.mark.parametrize("query", QUERIES)
def test_sql_on_a_snapshot_is_as_on_its_store(query: str, spark: Any, repository: Path) -> None:
    found = []
    for stores in ([f"{repository}::{name}" for name in NAMES], [str(unpack(name)) for name in NAMES]):
        frame, lost = sql(spark, query, stores)
        assert lost == []
        found.append([tuple(row) for row in frame.collect()])
    assert found[0] == found[1]
    assert found[0]


def test_other_jobs(spark: Any, repository: Path, tmp_path: Path) -> None:
    name = NAMES[0]
    address, store = f"{repository}::{name}", str(unpack(name))
    used = [jobs.du(spark, [one]).stores[0] | {"store": ""} for one in (address, store)]
    assert used[0] == used[1]
    [same] = compare(spark, [store, address]).stores
    assert same["relation"] == "equal"
    assert jobs.crosscheck(spark, [address]).exit_code == 0
    export(spark, [address], str(tmp_path / "rows"), ExportJob())
    assert read_export(spark, tmp_path / "rows").count() == used[0]["messages"]
    assert rebuild(spark, [address], tmp_path / "queues").exit_code == 0
    made = {path.relative_to(tmp_path / "queues") for path in (tmp_path / "queues").rglob("0*") if path.is_file()}
    assert made


@pytest.mark.slow
def test_executors_read_objects(needs_spark: None, tmp_path: Path) -> None:
    """Only the repository is there: the broker's disk is not needed."""
    with s3_server(tmp_path) as given:
        env = {**os.environ, **given}
        repository = f"s3://{BUCKET}/fleet"

        def command(*words: str) -> Any:
            program = (sys.executable, "-m", "rmqstore", *words)
            done = subprocess.run(program, env=env, check=False, capture_output=True, timeout=300)
            assert done.returncode == 0, done.stderr.decode()
            return json.loads(done.stdout)

        for name in NAMES:
            command("backup", str(unpack(name)), repository, "--name", name, "--json")
        addresses = [f"{repository}::{name}" for name in NAMES]
        found = command("pipeline", "verify", *addresses, "--split-size", "64k", "--json")
        assert [one["clean"] for one in found["stores"]] == [True, True]
        query = (
            "select count(*) from messages m join consumequeue c on m.store = c.store and m.offset = c.commitlog_offset"
        )
        rows = command("pipeline", "sql", *addresses, query, "--json")["rows"]
        here = [
            command("sql", address, "select count(*) from consumequeue", "--format", "ndjson") for address in addresses
        ]
        assert next(iter(rows[0].values())) == sum(value for row in here for value in row.values())
