"""The text of `rmqstore pipeline`, without Spark."""

from __future__ import annotations

from typing import Any

import pytest

from rmqstore.cli.pipeline import _text, _write_sql
from rmqstore.cli.printing.output import Output
from rmqstore.spark.jobs import JobResult


@pytest.mark.parametrize(
    ("counts", "unchecked", "state"),
    [
        ({}, [], "clean"),
        ({"CK-MISSING": 1}, [], "clean"),
        ({}, ["consumequeue/"], "not completely checked"),
        ({"CL-BODY-CRC": 2}, ["consumequeue/"], "problems"),
    ],
)
def test_a_store_that_was_not_checked_completely_says_so(
    counts: dict[str, int], unchecked: list[str], state: str
) -> None:
    sound: dict[str, Any] = {"store": "a", "clean": True, "messages": 1, "counts": {}, "findings": [], "unchecked": []}
    clean = state == "clean"
    store = sound | {"store": "b", "clean": clean, "counts": counts, "unchecked": unchecked}
    lines = list(_text(JobResult("verify", [store, sound])))
    assert lines[0] == f"b: {state}, 1 message"
    assert [line for line in lines if "not checked" in line] == [f"  not checked: {text}" for text in unchecked]


class _Frame:
    """The rows of a query, as Spark's DataFrame has them."""

    def __init__(self, columns: list[str], rows: list[tuple[object, ...]]) -> None:
        self.columns = columns
        self._rows = rows

    def limit(self, count: int) -> _Frame:
        return _Frame(self.columns, self._rows[:count])

    def collect(self) -> list[tuple[object, ...]]:
        return self._rows


@pytest.mark.parametrize(
    ("rows", "text", "note"),
    [
        ([("Order", 1200), (None, 3)], "topic      n\nOrder  1,200\n-          3\n", ""),
        ([], "", "note: the query returned no rows\n"),
    ],
)
def test_rows_of_a_query_are_the_table_of_the_local_sql(
    rows: list[tuple[object, ...]], text: str, note: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _write_sql(Output(), _Frame(["topic", "n"], rows), [], None) == 0
    assert capsys.readouterr() == (text, note)
