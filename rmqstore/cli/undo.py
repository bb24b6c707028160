"""`rmqstore undo`."""

from __future__ import annotations

from pathlib import Path

import click

from rmqstore.cli.options import broker_is_stopped, command
from rmqstore.cli.output import Output
from rmqstore.cli.quantities import many


@command(
    "undo",
    store=False,
    report=True,
    examples=(
        "rmqstore undo /data/rocketmq/store/.rmqstore/20260301T101500.405722Z",
        "rmqstore undo /backup/journals/20260301T101500.405722Z --json",
        "ls /data/rocketmq/store/.rmqstore",
    ),
)
@click.argument("journal", type=click.Path(path_type=Path))
@broker_is_stopped
def undo(out: Output, journal: Path, stopped: bool) -> int:
    """Undo a repair: restore every byte, name, size, owner, mode and time.

    JOURNAL is the directory that the repair printed. Refused (exit code 5) if anything that the repair changed has
    changed again since, for example after a broker ran: undoing would destroy those changes. Also works after a crash
    in the middle of a repair.
    """
    from rmqstore.cli.apply_command import after_change
    from rmqstore.repair.journal.journal import undo as take_back

    out.check()
    done = take_back(journal, stopped=stopped)
    with after_change(f"{done.store} is restored", "run `rmqstore verify`"):
        if out.as_json:
            out.report({"schema": "rmqstore.undo/1", "restored": done.restored, "store": str(done.store)})
        else:
            said = f"restored: {many(done.restored, 'step')} undone" if done.restored else "was already restored"
            out.lines([f"{done.store} {said}"])
    return 0
