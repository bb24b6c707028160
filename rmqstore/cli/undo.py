"""`rmqstore undo`."""

from __future__ import annotations

from pathlib import Path

import click

from rmqstore.cli.printing.output import Output
from rmqstore.cli.printing.quantities import many
from rmqstore.cli.shared.options import broker_is_stopped, command
from rmqstore.texts import Text


@command(
    "undo",
    store=False,
    report=True,
    examples=(
        "rmqstore undo /data/rocketmq/store/.rmqstore/20260301T101500.405722Z",
        "rmqstore undo /data/rocketmq/store --last",
        "rmqstore undo /backup/journals/20260301T101500.405722Z --json",
    ),
)
@click.argument("journal", type=click.Path(path_type=Path), metavar="JOURNAL|STORE")
@click.option("--last", is_flag=True, help="Undo the newest repair of STORE that is not yet undone.")
@broker_is_stopped
def undo(out: Output, journal: Path, last: bool, stopped: bool) -> int:
    """Undo a repair: restore every byte, name, size, owner, mode and time.

    JOURNAL is the directory that the repair printed; `rmqstore journals STORE` lists all. With --last, name the STORE
    instead. Undo is refused (exit code 5) if anything that the repair changed has changed again, as by a broker: it
    would destroy those changes. It also works after a crash in the middle of a repair.
    """
    from rmqstore.cli.shared.apply_command import after_change
    from rmqstore.repair.journal.journal import last_journal
    from rmqstore.repair.journal.journal import undo as take_back

    out.check()
    if last:
        journal = last_journal(_store(journal)).path
        out.note(Text("note: the newest repair is {journal}", journal=journal))
    done = take_back(journal, stopped=stopped)
    with after_change(Text("{store} is restored", store=done.store), Text("run `rmqstore verify`")):
        if out.as_json:
            out.report({"schema": "rmqstore.undo/1", "restored": done.restored, "store": str(done.store)})
        else:
            if done.restored:
                out.lines(
                    [Text("{store} restored: {steps} undone", store=done.store, steps=many(done.restored, "step"))]
                )
            else:
                out.lines([Text("{store} was already restored", store=done.store)])
    return 0


def _store(path: Path) -> Path:
    """Return the root of the store that a path belongs to. Errors: NotReadable, NotAStore; UsageError for a journal."""
    from rmqstore.errors import UsageError
    from rmqstore.files.store import open_store

    if (path / "state").is_file():
        raise UsageError(
            Text("{path} is a journal, and --last needs a store", path=path),
            Text("leave --last out, or name the store"),
        )
    return open_store(path).root
