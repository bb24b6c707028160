"""What commands with --only share."""

from __future__ import annotations

from collections.abc import Iterable

from rmqstore.checks.problems.table import PROBLEMS
from rmqstore.cli.shared.settings import closest
from rmqstore.errors import UsageError
from rmqstore.texts import Text


def refuse_unknown_codes(codes: Iterable[str]) -> None:
    """Errors: UsageError for the first --only that is not a problem code; suggests a similar one."""
    for code in codes:
        if code not in PROBLEMS:
            close = closest(code.upper(), PROBLEMS, 0.5)
            hint = Text(", did you mean {close}?", close=close) if close else ""
            raise UsageError(
                Text("--only {code}: no such problem code{hint}", code=code, hint=hint),
                Text("`man rmqstore-problems` lists all codes"),
            )
