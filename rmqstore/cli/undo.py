"""`rmqstore undo` and `rmqstore resume`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqstore.cli.printing.output import Output
from rmqstore.cli.printing.quantities import many
from rmqstore.cli.shared.options import PATH, broker_is_stopped, command, config_option, read_config, root_option
from rmqstore.texts import Placed, Text

if TYPE_CHECKING:
    from rmqstore.repair.journal.journal import Undone


@command(
    "undo",
    store=False,
    report=True,
    examples=(
        "rmqstore undo /data/rocketmq/store/.rmqstore/20260301T101500.405722Z",
        "rmqstore undo /data/rocketmq/store --last",
        "rmqstore undo /data/rocketmq/store --last --root /disk2/commitlog",
    ),
)
@click.argument("journal", type=PATH, metavar="JOURNAL|STORE")
@click.option(
    "--last",
    is_flag=True,
    help="Undo the newest repair of STORE that is not yet undone, or give up an unfinished import.",
)
@config_option()
@root_option
@broker_is_stopped
def undo(
    out: Output, journal: Path, last: bool, broker_conf: Path | None, roots: tuple[Path, ...], stopped: bool
) -> int:
    """Undo a repair: restore every byte, name, size, owner, mode and time.

    JOURNAL is the directory that the repair printed; `rmqstore journals STORE` lists all. With --last, name the STORE
    instead. Undo is refused (exit code 5) if anything that the repair changed has changed again, as by a broker: it
    would destroy those changes. It also works after a crash in the middle of a repair.

    What `rmqstore expire STORE --delete` has deleted is gone for ever: undo names the files, and is refused. If that
    deletion was interrupted, undo ends it, so that the rest of the files stays; exit code 1 then, if some of them are
    gone.

    A journal that somebody else may have written is refused. If the repair changed directories outside of STORE, name
    them again, with -c or --root: what the journal says about them is not believed.
    """
    from rmqstore.cli.shared.apply_command import after_change
    from rmqstore.documents.journal import last_journal
    from rmqstore.repair.journal.journal import undo as take_back

    out.check()
    if last:
        journal = last_journal(_store(journal)).path
        out.note(Text("note: the newest repair is {journal}", journal=journal))
    done = take_back(journal, stopped=stopped, roots=_roots(out, broker_conf, roots))
    if done.gone or done.kept:
        out.answer(_ended_json(done), _ended(done), wrap=False)
        return 1 if done.gone else 0
    with after_change(Text("{store} is restored", store=done.store), Text("run `rmqstore verify`")):
        now, before = Text("{store} restored: {steps} undone"), Text("{store} was already restored")
        words = (now if done.restored else before).format(store=done.store, steps=many(done.restored, "step"))
        document = {"schema": "rmqstore.undo/1", "restored": done.restored, "store": str(done.store)}
        out.answer(document, [words], wrap=False)
    return 0


def _ended_json(done: Undone) -> dict[str, object]:
    return {
        "schema": "rmqstore.undo/1",
        "restored": 0,
        "store": str(done.store),
        "gone": list(done.gone),
        "kept": list(done.kept),
    }


def _ended(done: Undone) -> Iterator[str]:
    """Yield what is gone for ever, and what stays, after a deletion that was interrupted."""
    if done.gone:
        yield Text("Gone for ever from {store}: {files}:", files=many(len(done.gone), "file"), store=done.store)
        yield from (Placed("  {name}", name=name) for name in done.gone)
    else:
        yield Text("{store}: nothing had been deleted.", store=done.store)
    yield Text("The deletion is ended; kept: {files}.", files=many(len(done.kept), "file"))


def _roots(out: Output, broker_conf: Path | None, roots: tuple[Path, ...]) -> list[Path]:
    """Return the directories outside of the store that the user named. Errors: as `read_config`."""
    return [*roots, *read_config(out, broker_conf).directories]


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
@click.argument("journal", type=PATH)
@config_option()
@root_option
@broker_is_stopped
def resume(out: Output, journal: Path, broker_conf: Path | None, roots: tuple[Path, ...], stopped: bool) -> int:
    """Continue an interrupted repair to its end, also a deletion by `expire --delete`.

    JOURNAL is the directory that the repair printed; `rmqstore journals STORE` lists all. Resume is refused (exit code
    5) if files of the repair have changed since, or if it was undone. A journal that somebody else may have written is
    refused; directories outside of STORE are named as for `undo`.
    """
    from rmqstore.cli.shared.apply_command import after_change, look_again
    from rmqstore.repair.journal.journal import resume as go_on

    out.check()
    with out.progress("resume", None, unit=Text("batch")) as progress:
        done = go_on(journal, progress=progress, stopped=stopped, roots=_roots(out, broker_conf, roots))
    with after_change(Text("the repair is complete"), look_again(done)):
        document = {"schema": "rmqstore.resume/1", "steps": done.steps, "journal": str(done.journal or journal)}
        words = Text("{steps} done; the repair is complete", steps=many(done.steps, "step"))
        if done.for_ever:
            words = Text("{files} deleted for ever; the deletion is complete", files=many(done.steps, "file"))
        out.answer(document, [words], wrap=False)
    return 0
