"""`rmqstore verify STORE STORE…`: one line for each store, worst first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rmqstore.cli.printing.json_text import quote_wide
from rmqstore.cli.printing.output import Output, json_bytes
from rmqstore.cli.printing.styled import Styled
from rmqstore.cli.shared.reading import note_live
from rmqstore.errors import RmqStoreError
from rmqstore.texts import Text

if TYPE_CHECKING:
    from rmqstore.checks.problems.report import Report
    from rmqstore.checks.verify import VerifyOptions
    from rmqstore.files.broker_config import BrokerConfig

_RANKS = {0: 0, 4: 1, 3: 2, 1: 3}
"""Exit codes, worst last: problems go before a store that cannot be opened, and both before an incomplete check."""


@dataclass(frozen=True, slots=True)
class _Result:
    """The report of a store, or why there is none."""

    store: Path
    report: Report | None
    error: RmqStoreError | None = None

    @property
    def exit_code(self) -> int:
        return self.report.exit_code if self.report is not None else (self.error or RmqStoreError("")).exit_code

    @property
    def badness(self) -> tuple[int, bool, int, int]:
        """Greatest for the worst store."""
        broker = (self.report.broker if self.report is not None else None) or {"starts": True}
        lost = int(broker.get("messages_lost") or 0)
        worst = self.report.findings.worst if self.report is not None else None
        return _RANKS.get(self.exit_code, 3), not broker["starts"], lost, worst or 0

    def line(self) -> str:
        """Return the answer in one line."""
        from rmqstore.cli.printing.verify_text import verdict_sentence

        if self.report is not None:
            return f"{self.store}: {verdict_sentence(self.report)}"
        assert self.error is not None
        return Text("{store}: not checked: {message}", store=self.store, message=self.error.message)

    def to_json(self) -> dict[str, object]:
        """Return the object of this store."""
        if self.report is not None:
            return self.report.to_json()
        assert self.error is not None
        error = {"code": self.error.code, "message": self.error.message, "advice": self.error.advice}
        return {"store": str(self.store), "error": error}


def verify_several(
    out: Output, stores: Sequence[tuple[Path, BrokerConfig]], options: VerifyOptions, *, mailed: bool
) -> int:
    """Verify stores one after the other; return the exit code of the worst.

    `mailed`: print only the stores with which something is wrong, as -q does for cron.
    """
    from dataclasses import replace

    from rmqstore.backup.derived import after_one_pass
    from rmqstore.checks.verify import examine_lasting
    from rmqstore.cli.shared.stores import FOR_VERIFY, open_named
    from rmqstore.files.store import while_files_expire

    results: list[_Result] = []
    for path, config in stores:
        try:
            opened = open_named(path, config, FOR_VERIFY)
            note_live(out, opened, Text("records that it is writing now are not reported as damage"))
            with out.progress("verify", opened.log_bytes) as progress:
                how = after_one_pass(opened, replace(options, progress=progress.add))
                _, verified = while_files_expire(opened, lambda look, how=how: examine_lasting(look, how))  # type: ignore[misc]
            results.append(_Result(path, verified.report))
        except RmqStoreError as error:
            results.append(_Result(path, None, error))
    results.sort(key=lambda result: result.badness, reverse=True)
    if out.as_json:
        with out.stream() as file:
            for result in results:
                value = result.to_json()
                file.write(json_bytes(quote_wide(value) if out.string_ints else value) + b"\n")
    else:
        shown = (result for result in results if result.exit_code or not mailed)
        out.lines(Styled(result.line(), style="red" if result.exit_code else "green") for result in shown)
    return results[0].exit_code
