"""How to end an interrupted repair, as text: the end of a report of `verify` for a store that has one."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Report, store_words
from rmqstore.cli.printing.output import Styled
from rmqstore.cli.printing.verify_text import below, command_line, wrapped_lines
from rmqstore.documents.journal import open_journal
from rmqstore.errors import RmqStoreError
from rmqstore.texts import Text


def lines(report: Report, width: int) -> Iterator[Styled]:
    """Yield how to end an interrupted repair, which comes before everything else."""
    for finding in report.findings.listed:
        if finding.code != codes.DIR_OPEN_JOURNAL:
            continue
        if finding.facts.get("state") == "missing":
            path = finding.facts["journal"]
            place = Text("Next: mount the disk of {path}, the journal of an earlier repair.", path=path)
            yield from wrapped_lines(Text("{place} If it is gone for good:", place=place), width)
            yield Styled(f"      rmqstore journals {store_words(report.repairable)} --prune --missing --apply")
            yield from below(Text("That repair can then no longer be undone."), width)
            continue
        journal = shlex.quote(str(finding.facts["journal"]))
        refusal = _refusal(Path(str(finding.facts["journal"])))
        if refusal is not None:
            yield from wrapped_lines(
                Text("Next: an interrupted repair is not to be trusted: {why}", why=refusal.message), width
            )
            yield from below(refusal.advice, width)
            continue
        if report.live:
            yield from wrapped_lines(Text("Next: stop the broker and keep its service stopped. Then:"), width)
        yield command_line(f"rmqstore resume {journal}")
        yield from below(Text("finishes an interrupted repair, or"), width)
        yield Styled(f"      rmqstore undo {journal}")
        yield from below(Text("undoes it. Do not change the store before that. Then verify it again."), width)


def _refusal(journal: Path) -> RmqStoreError | None:
    """Return why undo and resume would refuse a journal at once; None if they would not."""
    try:
        return open_journal(journal).refusal()
    except RmqStoreError as error:
        return error
