"""The attributes of each row of the table of problems are consistent."""

from __future__ import annotations

from rmqstore.checks.problems.problem import Area, Extent, Severity
from rmqstore.checks.problems.report import Finding
from rmqstore.checks.problems.table import PROBLEMS


def test_an_unsafe_repair_has_one_reason_for_asking() -> None:
    for row in PROBLEMS.values():
        unsafe = row.remedy == "recover" and not row.safe
        reasons = [bool(row.asked), row.option != "", row.needs_operator is not None]
        assert sum(reasons) == 1 if unsafe else not row.asked and not row.option, row.code


def test_a_problem_without_a_repair_has_advice_for_the_operator() -> None:
    for row in PROBLEMS.values():
        if row.remedy is None and row.severity > Severity.NOTE:
            assert row.needs_operator is not None, row.code
            assert row.needs_operator.why and row.needs_operator.do, row.code


def test_only_problems_of_a_log_damage_it() -> None:
    for row in PROBLEMS.values():
        if row.damages_log or row.extent is not Extent.NOTHING or row.renames_only:
            assert row.of_log and row.severity is Severity.ERROR, row.code
        assert not (row.damages_log and row.renames_only), row.code


def test_ranks_of_problems_that_explain_others() -> None:
    ranks = {row.explains: row.code for row in PROBLEMS.values() if row.explains}
    assert list(dict(sorted(ranks.items())).items()) == [
        (1, "DIR-MISSING-PATH"),
        (2, "DIR-FILE-SIZE"),
        (3, "CL-FOREIGN-FILE"),
        (4, "CL-NO-MESSAGES"),
        (5, "CQ-FOREIGN"),
        (6, "CL-MISSING-FILE"),
        (7, "DL-OVERLAP"),
    ]


def test_nothing_is_planned_before_these_are_settled() -> None:
    stopping = {code for code, row in PROBLEMS.items() if row.needs_operator and row.needs_operator.stops_all}
    assert stopping == {
        "CL-FOREIGN-FILE",
        "DIR-DUPLICATE-FILE",
        "DIR-FILE-SIZE",
        "DIR-MISSING-PATH",
        "DIR-OPEN-JOURNAL",
        "DL-OVERLAP",
    }


def test_every_area_has_problems() -> None:
    assert {row.area for row in PROBLEMS.values()} == set(Area)


def test_a_finding_damages_the_log_only_in_the_log() -> None:
    assert Finding("CL-BODY-CRC", "commitlog").damages_log
    assert not Finding("CL-BODY-CRC", "Order_11/0").damages_log
    assert not Finding("CL-DIRTY-TAIL", "commitlog").damages_log
    assert not Finding("CL-QUEUE-OFFSET", "commitlog").damages_log
