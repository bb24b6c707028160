"""`rmqstore resume`."""

from __future__ import annotations

from pathlib import Path

import click

from rmqstore.cli.printing.output import Output
from rmqstore.cli.printing.quantities import many
from rmqstore.cli.shared.options import broker_is_stopped, command
from rmqstore.texts import Text


@command(
    "resume",
    store=False,
    report=True,
    examples=(
        "rmqstore resume /data/rocketmq/store/.rmqstore/20260301T101500.405722Z",
        "rmqstore resume /backup/journals/20260301T101500.405722Z --json",
        "rmqstore info /data/rocketmq/store   # shows unfinished repairs",
    ),
)
@click.argument("journal", type=click.Path(path_type=Path))
@broker_is_stopped
def resume(out: Output, journal: Path, stopped: bool) -> int:
    """Continue an interrupted repair to its end.

    JOURNAL is the directory that the repair printed; `rmqstore journals STORE` lists all. Resume is refused (exit code
    5) if files of the repair have changed since, or if it was undone.
    """
    from rmqstore.cli.shared.apply_command import after_change, undo_command
    from rmqstore.repair.journal.journal import resume as go_on

    out.check()
    with out.progress("resume", None, unit=Text("batch")) as progress:
        done = go_on(journal, progress=progress, stopped=stopped)
    with after_change(
        Text("the repair is complete"),
        Text("run `rmqstore verify`, or `{undo_command}`", undo_command=undo_command(done.journal or journal)),
    ):
        if out.as_json:
            out.report({"schema": "rmqstore.resume/1", "steps": done.steps, "journal": str(done.journal or journal)})
        else:
            out.lines([Text("{steps} done; the repair is complete", steps=many(done.steps, "step"))])
    return 0
