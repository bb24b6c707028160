"""JSON output of `rmqstore pipeline` conforms to the schemas."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from rmqstore.json_reference import DOCUMENTS
from tests.json_outputs import Document, damaged, documents, schema_problems
from tests.stores import copy_store, unpack

JOBS = ("export", "verify", "crosscheck", "rebuild", "du", "compare", "sql")


@pytest.mark.usefixtures("spark")
def test_output_of_pipeline_is_as_the_schemas_say(tmp_path: Path) -> None:
    stores = [unpack("5.4.0-dledger3-n0"), unpack("5.4.0-dledger3-n1"), tmp_path / "none"]
    stores.append(damaged(copy_store("5.4.0-killed", tmp_path / "damaged")))
    stores[2].mkdir()
    found: list[Document] = []
    for job in JOBS:
        query: list[str | Path] = ["select * from messages limit 2"] if job == "sql" else []
        target: list[str | Path] = ["-o", tmp_path / job] if job in ("export", "rebuild") else []
        found += documents(f"pipeline-{job}", "pipeline", job, *stores, *query, *target, "--json")
    names, wrong = schema_problems(found)
    assert wrong == []
    assert names == {name for name in DOCUMENTS if name.startswith("pipeline-")}


@pytest.mark.slow
@pytest.mark.usefixtures("needs_spark")
def test_pipeline_starts_and_ends_a_session_of_its_own() -> None:
    command = [sys.executable, "-m", "rmqstore", "pipeline", "verify", str(unpack("5.4.0-clean")), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert schema_problems([("pipeline-verify", json.loads(done.stdout))])[1] == []
