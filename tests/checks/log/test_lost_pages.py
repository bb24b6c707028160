"""A damaged record in pages that are all zeros: the finding says that a page is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqstore.checks.examine import examine
from rmqstore.checks.options import VerifyOptions
from rmqstore.files.store import open_store
from tests import damage
from tests.stores import copy_store

FILE = "commitlog/00000000000000131072"


def zero_bytes(store: Path) -> list[object]:
    findings = examine(open_store(store), VerifyOptions(jobs=1)).report.findings.listed
    return [f.facts.get("zero_bytes") for f in findings if f.in_log and f.problem.damages_log]


@pytest.mark.parametrize(
    ("spans", "told"),
    [
        ([(8192, 4096)], ["4,096 from 139,264 on: a lost page"]),
        ([(20480, 8192)], ["8,192 from 151,552 on: lost pages"]),
        ([(8192, 4096), (45056, 4096)], ["4,096 from 139,264 on: a lost page", "4,096 from 176,128 on: a lost page"]),
        ([(8192 + 100, 4096)], [None]),  # no page of the file is zero as a whole
        ([(8192, 3000)], [None]),
    ],
)
def test_a_lost_page_is_named(spans: list[tuple[int, int]], told: list[str | None], tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    for at, length in spans:
        damage.zero(store / FILE, at, length)
    assert zero_bytes(store) == told


def test_other_damage_is_no_lost_page(tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    damage.garble(store / FILE, 8192, 4096)
    assert set(zero_bytes(store)) == {None}
