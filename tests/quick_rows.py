"""The marker `@pytest.mark.quick_rows(N)`: `make test` runs N rows of a test's parameters; the others are slow tests.

Without N, `make test` runs as many rows as are needed for every value of every parameter to occur.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Hashable, Mapping

import pytest

Rows = Mapping[str, Mapping[str, Hashable]]
"""Node id of a row, and the value of each parameter."""


def choose(rows: Rows, count: int | None) -> set[str]:
    """Choose `count` rows in which as many values of the parameters occur as possible, and return their node ids.

    With None, choose enough rows for all values to occur. The choice is the same in every run of the same table.
    """
    left = dict(sorted(rows.items(), key=lambda row: zlib.crc32(row[0].encode())))
    missing = {value for row in rows.values() for value in row.items()}
    chosen: set[str] = set()
    while left and (missing if count is None else len(chosen) < count):
        # max returns the first of equal rows; when every value has occurred, all rows are equal
        row = max(left, key=lambda name: len(left[name].items() & missing)) if missing else next(iter(left))
        missing -= left.pop(row).items()
        chosen.add(row)
    return chosen


def mark_slow(items: Collection[pytest.Item]) -> None:
    """Mark the rows that a quick run leaves out as slow; rows that are already slow do not count."""
    tables: dict[str, tuple[int | None, dict[str, pytest.Function]]] = {}
    for item in items:
        mark = item.get_closest_marker("quick_rows")
        if mark is not None and isinstance(item, pytest.Function) and not item.get_closest_marker("slow"):
            _, rows = tables.setdefault(item.nodeid.partition("[")[0], (mark.args[0] if mark.args else None, {}))
            rows[item.nodeid] = item
    for count, rows in tables.values():
        chosen = choose({name: _values(row) for name, row in rows.items()}, count)
        for name in rows.keys() - chosen:
            rows[name].add_marker(pytest.mark.slow)


def _values(row: pytest.Function) -> Mapping[str, Hashable]:
    return {name: repr(value) for name, value in row.callspec.params.items()}
