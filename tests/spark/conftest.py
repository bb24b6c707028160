"""One session for all tests of the Spark pipeline; the tests are skipped with a reason if Spark cannot run."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqstore.errors import install_command

HERE = Path(__file__).parent


def why_not() -> str:
    """Return why Spark cannot run here; an empty string if it can."""
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
    """Mark the tests that need a session, and run them in one process: a session takes seconds and a gigabyte."""
    reason = why_not()
    for item in items:
        if {"spark", "needs_spark"}.intersection(getattr(item, "fixturenames", ())) and item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.xdist_group("spark"))
            if reason:
                item.add_marker(pytest.mark.skip(reason=f"Spark: {reason}"))


@pytest.fixture(scope="session")
def needs_spark() -> None:
    """Mark tests that start their own Spark like those with a session, but without one."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session `local[2]` with the sources registered."""
    from rmqstore.spark.session import open_session

    folder = tmp_path_factory.mktemp("spark")
    quick = {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.codegen.wholeStage": "false",  # compiling takes longer than reading small stores
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder),
        "spark.driver.memory": "1g",
        "spark.python.daemon.module": "tests.spark.daemon",
        "spark.network.timeout": "3600s",  # an executor on a slow machine is not lost
        "spark.sql.broadcastTimeout": "3600s",
        "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djava.io.tmpdir={folder}",
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(HERE / "preload"), prepend=os.pathsep)
        session = open_session("local[2]", quick, "rmqstore tests")
    yield session
    session.stop()
