"""PROBLEMS: everything that can be wrong, each a row of one closed table.

A check may only report codes of this table; every row has a two-pass case in the tests, and the manual page
rmqstore-problems(7) is made from it. The prefix says where: DIR directory, CL commitlog, CQ consume queue, BCQ batch
consume queue, IX index, CK store checkpoint, CFG config, DL DLedger, TM timer, BR what a broker
of this version does to a sound store. The rows are in `log.py`, `queues.py`
and `beside.py`. Other code asks a row for its attributes instead of keeping sets of codes.
"""

from __future__ import annotations

from collections.abc import Mapping

from rmqstore.checks.problems.beside import BROKER, CHECKPOINT, CONFIG, DIRECTORY, TIMER
from rmqstore.checks.problems.log import COMMITLOG, DLEDGER
from rmqstore.checks.problems.problem import Problem, Rows, Severity
from rmqstore.checks.problems.queues import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, INDEX

__all__ = ["PROBLEMS", "Problem", "Severity"]


def _table(*parts: Rows) -> Mapping[str, Problem]:
    rows = [row for part in parts for row in part]
    table = {row.code: row for row in rows}
    if len(table) != len(rows):
        raise ValueError("a problem code is in the table twice")
    return table


# in the order of the manual page
PROBLEMS: Mapping[str, Problem] = _table(
    DIRECTORY, COMMITLOG, CONSUME_QUEUE, BATCH_CONSUME_QUEUE, INDEX, CHECKPOINT, CONFIG, DLEDGER, TIMER, BROKER
)
