"""What goes wrong in Spark ends with its real reason, and paths do not depend on the directory of a process."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import AnalysisException

from rmqstore.errors import NotReadable
from rmqstore.files.store import Store
from rmqstore.spark import jobs, register, session
from rmqstore.spark.failures import advice_for, failed, reason_of, unknown_settings, unreachable
from rmqstore.spark.session import with_absolute_paths
from rmqstore.spark.views import load
from rmqstore.views import stores
from rmqstore.views.stores import StoreRef, open_each, store_refs
from tests.command import run
from tests.stores import copy_store, unpack

STORE = "5.4.0-killed"
JAVA = """An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.
: java.io.FileNotFoundException: File file:/tmp/nope.tar.gz does not exist
\tat org.apache.hadoop.fs.RawLocalFileSystem.deprecatedGetFileStatus(RawLocalFileSystem.java:917)
\tat org.apache.spark.SparkContext.addFile(SparkContext.scala:1799)
"""
NO_PYTHON = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times
Caused by: java.io.IOException: Cannot run program "/nope/python": error=2, No such file or directory
\tat java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1143)
Caused by: java.io.IOException: error=2, No such file or directory
\tat java.base/java.lang.ProcessImpl.forkAndExec(Native Method)
"""
NO_MODULE = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/opt/spark/python/lib/pyspark.zip/pyspark/worker.py", line 1826, in main
    func, profiler, deserializer, serializer = read_command(pickleSer, infile)
  File "/opt/spark/python/lib/pyspark.zip/pyspark/serializers.py", line 471, in loads
    return cloudpickle.loads(obj, encoding=encoding)
ModuleNotFoundError: No module named 'rmqstore'

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
"""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (JAVA, "FileNotFoundException: File file:/tmp/nope.tar.gz does not exist"),
        (NO_PYTHON, 'IOException: Cannot run program "/nope/python": error=2, No such file or directory'),
        (NO_MODULE, "ModuleNotFoundError: No module named 'rmqstore'"),
        ("[SOME_CLASS] a line of PySpark itself", "[SOME_CLASS] a line of PySpark itself"),
        ("", "RuntimeError"),
    ],
)
def test_the_reason_is_the_innermost_one(text: str, reason: str) -> None:
    assert reason_of(RuntimeError(text)) == reason


def test_advice_follows_from_the_reason() -> None:
    assert "--py-files" in failed(RuntimeError(NO_MODULE)).advice
    assert "PYSPARK_PYTHON" in failed(RuntimeError(NO_PYTHON)).advice
    assert "another version" in advice_for("ModuleNotFoundError: No module named 'rmqstore.scan.other'")
    assert "spark.archives" in advice_for("ModuleNotFoundError: No module named 'numpy'")


def test_files_to_send_are_absolute_and_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.zip").touch()
    given = {"spark.submit.pyFiles": "a.zip,hdfs:///b.zip", "spark.archives": "a.zip#env", "spark.x": "a.zip"}
    assert with_absolute_paths(given) == {
        "spark.submit.pyFiles": f"{tmp_path}/a.zip,hdfs:///b.zip",
        "spark.archives": f"{tmp_path}/a.zip#env",
        "spark.x": "a.zip",
    }
    with pytest.raises(NotReadable) as found:
        with_absolute_paths({"spark.archives": "nope.tar.gz#env"})
    assert found.value.message == "nope.tar.gz: no such file"


def test_a_missing_archive_is_not_a_master_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_active_session", lambda: None)  # other tests of this process leave one
    result = run(
        *("pipeline", "verify", str(unpack(STORE)), "--master", "spark://127.0.0.1:1"),
        *("--conf", f"spark.archives={tmp_path}/nope.tar.gz#env"),
    )
    assert result.exit_code == 3
    assert result.stderr == (
        f"error: {tmp_path}/nope.tar.gz: no such file — name a file or directory of this machine\n"
    )


def test_a_master_that_does_not_answer_is_named_at_once() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # nobody listens
        master = f"spark://127.0.0.1:{free.getsockname()[1]}"
        assert unreachable(master) == "Connection refused"
        free.listen()
        assert unreachable(master) == ""
        assert unreachable(f"spark://127.0.0.1:1,127.0.0.1:{free.getsockname()[1]}") == ""
    assert unreachable("yarn") == ""


def test_relative_paths_are_those_of_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fleet.txt").write_text("one\nsecond\ttwo\n")
    expected = [(str(tmp_path / "one"), "one"), (str(tmp_path / "two"), "second")]
    assert [(str(ref.path), ref.label) for ref in store_refs(["@fleet.txt"])] == expected
    assert [(str(ref.path), ref.label) for ref in store_refs(["repo::n0"])] == [(f"{tmp_path}/repo::n0", "repo::n0")]
    assert str(store_refs(["s3://bucket/repo::n0"])[0].path).startswith("s3:/")


def test_a_relative_path_is_read_by_executors_elsewhere(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = copy_store(STORE, tmp_path)
    monkeypatch.chdir(store.parent)
    assert load(spark, "commitlog", [store.name]).count() == 929
    assert jobs.verify(spark, [store.name]).stores[0]["messages"] == 929


def test_stores_are_opened_at_the_same_time_and_keep_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = threading.Barrier(stores.OPENED)
    opened = StoreRef.open

    def waiting(ref: StoreRef, *parts: Any) -> Store:
        together.wait(60)
        return opened(ref, *parts)

    monkeypatch.setattr(StoreRef, "open", waiting)
    path = unpack(STORE)
    refs = [StoreRef(path if i % 3 else tmp_path / "none", str(i)) for i in range(3 * stores.OPENED)]
    found = list(open_each(refs))
    assert [ref.label for ref, _ in found] == [ref.label for ref in refs]
    assert [isinstance(one, Store) for _, one in found] == [i % 3 > 0 for i in range(len(refs))]


def test_settings_that_spark_does_not_have_are_named(spark: Any) -> None:
    keys = ["spark.executor.memory", "spark.executor.memry", "foo", "spark.hadoop.fs.x", "spark.sql.shuffle.partitions"]
    assert unknown_settings(spark, keys) == ["spark.executor.memry", "foo"]


class RefusedByManager(AnalysisException):  # type: ignore[misc]
    def __init__(self, condition: str) -> None:
        self.condition = condition

    def getErrorClass(self) -> str:
        return self.condition


class Refusing:
    """A session of Spark 4.0, which has found installed sources by itself, and refuses them."""

    def __init__(self, condition: str) -> None:
        self.dataSource = self
        self.condition = condition
        self.asked: list[str] = []

    def register(self, source: Any) -> None:
        self.asked.append(source.name())
        raise RefusedByManager(self.condition)


def test_an_installed_source_may_be_registered_again(spark: Any) -> None:
    assert register(register(spark)) is spark
    refusing = Refusing("DATA_SOURCE_ALREADY_EXISTS")
    register(refusing)
    assert len(refusing.asked) == 6
    with pytest.raises(AnalysisException):
        register(Refusing("ANOTHER"))
