"""The choice of tests and seeds for a run."""

from __future__ import annotations

import pytest

from tests import seeds
from tests.quick_rows import choose
from tests.slow_parts import belongs, parse_part


def test_every_slow_test_is_in_exactly_one_part() -> None:
    tests = [f"tests/real_broker/test_matrix.py::test_every_version[{number}]" for number in range(1200)]
    parts = [[test for test in tests if belongs(test, (number, 12))] for number in range(1, 13)]
    assert sorted(test for part in parts for test in part) == sorted(tests)
    assert all(70 <= len(part) <= 130 for part in parts), [len(part) for part in parts]


@pytest.mark.parametrize("text", ["", "3", "0/4", "5/4", "1/0", "a/b", "1/2/3", "-1/4"])
def test_a_part_that_is_not_k_of_n_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not K/N"):
        parse_part(text)
    assert parse_part("4/12") == (4, 12)


def test_seeds_are_fixed_without_the_variable_and_follow_it_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(seeds.NAME, raising=False)
    assert seeds.chosen() == 0
    monkeypatch.setenv(seeds.NAME, "77")
    assert seeds.chosen() == 77
    monkeypatch.setattr(seeds, "SEED", 0)
    assert [*seeds.seeds(3)] == [0, 1, 2]
    monkeypatch.setattr(seeds, "SEED", 77)
    assert [seed % 12 for seed in seeds.seeds(12)] == [*range(12)], "one seed of each kind, whatever the run's seed"
    assert min(seeds.seeds(12)) > 12


def test_new_seeds_differ_and_are_left_for_worker_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = set()
    for _ in range(20):
        monkeypatch.setenv(seeds.NAME, "new")
        drawn.add(seeds.chosen())
        assert seeds.chosen() in drawn, "the variable holds the number now"
    assert len(drawn) > 15 and 0 not in drawn


def test_chosen_rows_have_every_value_of_every_parameter() -> None:
    table = {f"t[{a}-{b}]": {"a": a, "b": b} for a in range(5) for b in range(3)}
    chosen = choose(table, None)
    assert len(chosen) == 5
    assert {table[row]["a"] for row in chosen} == {*range(5)}
    assert {table[row]["b"] for row in chosen} == {*range(3)}
    assert choose(table, None) == chosen
    assert choose(dict(reversed(table.items())), None) == chosen, "the order of collection does not matter"


def test_as_many_rows_are_chosen_as_are_wanted() -> None:
    table = {f"t[{number}]": {"number": number} for number in range(40)}
    assert len(choose(table, 12)) == 12
    assert choose(table, 40) == choose(table, 99) == choose(table, None) == set(table)
    assert choose(table, 11) < choose(table, 12)


@pytest.mark.quick_rows(2)
@pytest.mark.parametrize("a", [1, 2, pytest.param(3, marks=pytest.mark.slow), 4])
def test_rows_that_are_not_chosen_are_slow(a: int, request: pytest.FixtureRequest) -> None:
    """Use the parameters of this test as the table: the third row is slow by its own marker, and one of the others."""
    here = request.node.nodeid.partition("[")[0]
    rows = {
        item.callspec.params["a"]: item
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.nodeid.startswith(f"{here}[")
    }
    slow = [a for a, item in rows.items() if item.get_closest_marker("slow")]
    if len(rows) == 1:
        pytest.skip("the command line asks for this row")
    assert (len(rows), len(slow)) in ((4, 2), (2, 0), (2, 2)), "all tests, `-m 'not slow'`, `-m slow`"
