"""One session for all tests of the Spark pipeline; skipped, with the reason, where Spark cannot run."""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rmqstore.errors import install_command
from tests.stores import ROOT

HERE = Path(__file__).parent


def why_not() -> str:
    """Why Spark cannot run here; empty when it can."""
    for module in ("pyspark", "pyarrow"):
        if importlib.util.find_spec(module) is None:
            return f"{module} is not installed: {install_command('spark')}"
    from rmqstore.spark import SparkMissing
    from rmqstore.spark.session import find_java

    try:
        find_java(os.environ)
    except SparkMissing as missing:
        return missing.message
    return ""


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs a session carries the marker, and runs in one process: a session takes seconds and a gigabyte."""
    reason = why_not()
    for item in items:
        if item.path.is_relative_to(HERE) and {"spark", "needs_spark"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.xdist_group("spark"))
            if reason:
                item.add_marker(pytest.mark.skip(reason=f"Spark: {reason}"))


@dataclass(frozen=True, slots=True)
class _ClassArchive:
    """A class data archive (AppCDS), with which Spark starts in half the CPU time.

    `building` is where this run makes one. To make it costs as much as one run with it saves, so CI does not.
    """

    path: Path
    building: Path | None

    @property
    def option(self) -> str:
        if self.building is not None:
            return f"-XX:ArchiveClassesAtExit={self.building}"
        return f"-XX:SharedArchiveFile={self.path}" if self.path.exists() else ""

    def keep(self) -> None:
        """Call it after Java's end. A Java before 13 makes no archive."""
        if self.building is not None and self.building.exists():
            self.building.rename(self.path)


def _class_archive() -> _ClassArchive:
    """The archive of this PySpark and this Java, which the first run makes."""
    from rmqstore.spark.session import find_java

    pyspark = importlib.util.find_spec("pyspark")
    assert pyspark is not None
    assert pyspark.origin is not None
    java = find_java(os.environ).resolve()
    what = f"{pyspark.origin} {Path(pyspark.origin).stat().st_mtime_ns} {java} {java.stat().st_mtime_ns}"
    path = ROOT / ".cache" / f"spark-{hashlib.sha256(what.encode()).hexdigest()[:12]}.jsa"
    if path.exists() or os.environ.get("CI"):
        return _ClassArchive(path, None)
    path.parent.mkdir(exist_ok=True)
    return _ClassArchive(path, path.with_suffix(f".{os.getpid()}"))


@pytest.fixture(scope="session")
def needs_spark() -> None:
    """For tests that start Sparks of their own: the same marks, and no session."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session `local[2]` with the sources registered."""
    from rmqstore.spark.session import open_session

    archive = _class_archive()
    quick = {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.codegen.wholeStage": "false",  # compiling takes longer than reading small stores
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.driver.memory": "1g",
        "spark.python.daemon.module": "tests.spark.daemon",
        "spark.network.timeout": "3600s",  # a slow machine is not a lost executor
        "spark.sql.broadcastTimeout": "3600s",
        "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {archive.option}",
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(HERE / "preload"), prepend=os.pathsep)
        session = open_session("local[2]", quick, "rmqstore tests")
    gateway = session.sparkContext._gateway
    yield session
    session.stop()
    if archive.building is not None:
        gateway.proc.stdin.close()  # Java ends, and writes the archive
        gateway.proc.wait(timeout=600)
        archive.keep()
