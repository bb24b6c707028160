"""PROBLEMS: the table of everything that can be wrong with a store.

Checks report only codes of this table. Every row has a two-pass case in the tests, and the manual page
rmqstore-problems(7) is generated from it. `Area` lists the prefixes of the codes. The rows are in `log.py`, `queues.py`
and `beside.py`. Other code uses the attributes of a row instead of sets of codes.
"""

from __future__ import annotations

from collections.abc import Mapping

from rmqstore.checks.problems.beside import BROKER, CHECKPOINT, CONFIG, DIRECTORY, POP, ROWS, TIMER
from rmqstore.checks.problems.log import COMMITLOG, DLEDGER
from rmqstore.checks.problems.problem import Problem, Rows, Severity
from rmqstore.checks.problems.queues import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, INDEX
from rmqstore.texts import Text

__all__ = ["PROBLEMS", "Problem", "Severity"]


def _table(*parts: Rows) -> Mapping[str, Problem]:
    rows = [row for part in parts for row in part]
    table = {row.code: row for row in rows}
    if len(table) != len(rows):
        raise ValueError(Text("a problem code is in the table twice"))
    return table


# in the order of the manual page
PROBLEMS: Mapping[str, Problem] = _table(
    DIRECTORY,
    COMMITLOG,
    CONSUME_QUEUE,
    BATCH_CONSUME_QUEUE,
    INDEX,
    CHECKPOINT,
    CONFIG,
    DLEDGER,
    TIMER,
    ROWS,
    POP,
    BROKER,
)
