"""The comparison of Spark's results with those of the local commands finds every difference."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa

from benchmarks.answers import JOBS, Answers, differences, local_answers
from benchmarks.equal import make_stores


def answers() -> Answers:
    """Return made-up results of all jobs, in the form of real ones."""
    rows = {"offset": pa.chunked_array([[0, 100]]), "topic": pa.chunked_array([["a", "b"]])}
    results = {job: [{"counts": {"CQ-GAP": 1}, "findings": ["x", "y"]}] for job in JOBS}
    return Answers({**results, "export": [{"exit": 0, "rows": rows}]})


def test_equal_answers_have_no_difference() -> None:
    assert differences(answers(), copy.deepcopy(answers())) == []


@pytest.mark.parametrize("job", [job for job in JOBS if job != "export"])
def test_an_additional_finding_is_a_difference(job: str) -> None:
    other = answers()
    other.results[job][0]["findings"].append("z")
    assert [line.partition(":")[0] for line in differences(answers(), other)] == [job]


def test_one_cell_of_an_export_is_a_difference() -> None:
    other = answers()
    other.results["export"][0]["rows"]["topic"] = pa.chunked_array([["a", "c"]])
    (line,) = differences(answers(), other)
    assert line.startswith("export")


@pytest.mark.slow
def test_generated_stores_are_sound_and_damaged(tmp_path: Path) -> None:
    stores = make_stores(tmp_path, 3 << 20, 1 << 20, "1024", 2, seed=17)
    local = local_answers(stores, tmp_path)
    sound, damaged = local.results["verify"]
    assert sound["counts"] == {}
    assert {code.partition("-")[0] for code in damaged["counts"]} == {"CL", "CQ"}
    bare, rebuilt = local.results["rebuild"]
    assert len(bare) == len(rebuilt) == 8
    whole, less = local.results["export"]
    assert len(whole["rows"]["offset"]) > len(less["rows"]["offset"]) > 2000
    assert (whole["exit"], less["exit"]) == (0, 1)
    assert local.results["compare"]["equal"] is False
