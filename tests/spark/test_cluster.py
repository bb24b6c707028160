"""On a cluster: results equal the local ones, --py-files ships rmqstore, and a lost worker changes nothing."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from rmqstore.checks.examine import verify
from rmqstore.checks.options import VerifyOptions
from rmqstore.files.store import open_store
from tests.spark.cluster import job, package_zip, python_without_rmqstore, running, spark_environment
from tests.spark.stores import damaged_copy, local_rows
from tests.stores import ROOT, unpack

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("needs_spark")]

HERE = Path(__file__).parent
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": QUICK,
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": QUICK,
    "spark.sql.shuffle.partitions": "4",
    "spark.network.timeout": "600s",  # an executor on a slow machine is not lost
    "spark.executor.heartbeatInterval": "60s",
    "spark.sql.broadcastTimeout": "3600s",
    "spark.python.authenticate.socketTimeout": "600s",
}
SUBMITTED = """
import json, sys
import rmqstore
from rmqstore.spark import register
from rmqstore.spark.jobs import verify
from pyspark.sql import SparkSession

spark = register(SparkSession.builder.getOrCreate())
load = lambda source: spark.read.format(source).option("splitSize", "64k").load(sys.argv[1])
codes = [row["code"] for row in load("rmqstore.findings").collect()]
counts = {name: load(f"rmqstore.{name}").count() for name in ("commitlog", "consumequeue", "index")}
said = {"from": rmqstore.__file__, "codes": codes, "clean": verify(spark, [sys.argv[1]]).stores[0]["clean"]}
print(json.dumps({**said, **counts}))
spark.stop()
"""


def said(done: Any) -> dict[str, Any]:
    """Return the JSON object in the last line of a driver's output."""
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_a_cluster_gives_the_local_answers_with_rmqstore_by_py_files_only(tmp_path: Path) -> None:
    python, package = python_without_rmqstore(tmp_path / "venv"), package_zip(tmp_path / "rmqstore.zip")
    store = unpack("5.4.0-killed")
    with running(tmp_path) as cluster:
        more = [word for k, v in SETTINGS.items() for word in ("--conf", f"{k}={v}")]
        code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from benchmarks.equal import main; main()"
        words = ["--size", "6M", "--file-size", "2M", "--topics", "2", "--split-size", "64K,1M", "--json"]
        master = ["--master", cluster.master, "--conf", f"spark.submit.pyFiles={package}"]
        found = said(
            job([sys.executable, "-c", code, *words, "--data", str(tmp_path), *master, *more], tmp_path, python)
        )
        assert found["wrong"] == {"64K": [], "1M": []}
        assert found["counts"][0] == {}
        assert len(found["counts"][1]) >= 4
        assert len(found["executors"]) == 2
        assert min(found["executors"].values()) > 20  # both workers ran a share of the tasks
        assert found["rmqstore"]
        assert all("rmqstore.zip" in place for place in found["rmqstore"])

        # the command of docs/pipeline.md
        words = ["pipeline", "verify", str(store), "--master", cluster.master, "--py-files", str(package)]
        done = job([sys.executable, "-m", "rmqstore", *words, "--split-size", "64K", "--json", *more], tmp_path, python)
        expected = verify(open_store(store), VerifyOptions(jobs=1))
        assert done.returncode == expected.exit_code, done.stderr[-3000:]
        (answer,) = json.loads(done.stdout)["stores"]
        assert answer["counts"] == dict(expected.findings.counts)
        assert answer["messages"] == len(local_rows(store))

        # rmqstore is not installed, not even for the driver: spark-submit ships it
        script = tmp_path / "submitted.py"
        script.write_text(SUBMITTED)
        submit = [Path(spark_environment()["SPARK_HOME"]) / "bin" / "spark-submit", "--master", cluster.master]
        conf = [word for k, v in SETTINGS.items() for word in ("--conf", f"{k}={v}")]
        found = said(job([*submit, "--py-files", package, *conf, script, store], tmp_path, python))
        assert "rmqstore.zip" in found["from"]
        assert found["codes"] == [f.code for f in expected.ordered()]
        assert found["clean"] is expected.clean
        assert found["commitlog"] == len(local_rows(store))
        assert found["consumequeue"] > 900
        assert found["index"] > 0


@pytest.mark.parametrize("who", ["executor", "worker"])
def test_a_job_that_loses_an_executor_or_a_worker_gives_the_same(who: str, tmp_path: Path) -> None:
    store, mark = damaged_copy("5.4.0-killed", tmp_path), tmp_path / "mark"
    settings = [f"{k}={v}" for k, v in SETTINGS.items()]

    def lossy(master: str) -> dict[str, Any]:
        command = [sys.executable, HERE / "loses_a_worker.py", master, store, mark, who]
        return said(job([*command, *settings], tmp_path))

    if who == "executor":
        found = lossy("local-cluster[2,1,1024]")
    else:
        with running(tmp_path) as cluster:
            found = lossy(cluster.master)
            assert sum(process.poll() is None for process in cluster.processes) == 2  # the master and one worker
    assert mark.exists()  # it was killed
    expected = verify(open_store(store), VerifyOptions(jobs=1))
    assert found["counts"] == dict(expected.findings.counts)
    assert found["rows"] == len(local_rows(store))
