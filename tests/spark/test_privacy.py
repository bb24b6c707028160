"""What jobs write is private, whatever the umask of the driver and of the executors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hostile.test_privacy import UMASKS, closed, open_to_others
from tests.stores import copy_store

STORE = "5.4.0-clean"
ROOT = Path(__file__).parents[2]
PROGRAM = """
import os, sys
os.umask(int(sys.argv[1], 8))
from rmqstore.cli.main import cli
from rmqstore.spark.session import open_session
store, out = sys.argv[2:]
settings = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "1", "spark.local.dir": out + "/../spark"}
spark = open_session("local[1]", settings)
for words in (
    ["export", store, "--output", out + "/messages", "--body", "plain"],
    ["rebuild", store, "--output", out + "/queues"],
    ["sql", store, "select topic, body from messages", "--output", out + "/rows", "--body", "plain"],
    ["crosscheck", store, "--output", out + "/units"],
):
    try:
        cli(["pipeline", *words])
    except SystemExit as ended:
        if ended.code:
            sys.exit(f"{words[0]}: {ended.code}")
spark.stop()
"""


@pytest.mark.parametrize(
    "umask",
    [pytest.param(mask, marks=[pytest.mark.slow] if mask else [], id=f"{mask:03o}") for mask in UMASKS],
)
def test_outputs_of_jobs_are_private(needs_spark: None, umask: int, tmp_path: Path) -> None:
    store, out = closed(copy_store(STORE, tmp_path)), tmp_path / "out"
    out.mkdir()
    out.chmod(0o755)
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-c", PROGRAM, f"{umask:o}", str(store), str(out)]
    done = subprocess.run(words, env=environ, capture_output=True, text=True, cwd=tmp_path, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in out.iterdir()) == ["messages", "queues", "rows", "units"]
    assert len(list(out.rglob("*.parquet"))) > 3
    assert open_to_others(out) == []
