"""`rmqstore journals`."""

from __future__ import annotations

import shlex
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqstore.cli.printing.output import Output
from rmqstore.cli.printing.quantities import DURATION, bytes_text, many, time_text
from rmqstore.cli.shared.options import command, gathered, renamed, root_option
from rmqstore.errors import CouldNotCheck, RmqStoreError, UsageError
from rmqstore.formats.times import parse_stamp
from rmqstore.texts import Placed, Text, joined

if TYPE_CHECKING:
    from rmqstore.documents.journal import Journal
    from rmqstore.documents.plan import Plan
    from rmqstore.files.broker_config import BrokerConfig

_STATES = {
    "preparing": Text("never started"),
    "importing": Text("an unfinished import: run it again, or undo it"),
    "applying": Text("unfinished: undo or resume it"),
    "done": Text("applied"),
    "undoing": Text("unfinished: undo it again"),
    "undone": Text("undone"),
    "pruning": Text("being removed"),
    "missing": Text("missing or damaged: mount its disk"),
}


def _accounts(plan: Plan) -> dict[str, Any]:
    """Return the accounts of the messages before and after a plan, as far as it has them."""
    found = {name: plan.facts.get(name) for name in ("before", "after")}
    return {name: fact.get("account") if isinstance(fact, Mapping) else None for name, fact in found.items()}


@dataclass(frozen=True, slots=True)
class ListedJournal:
    """A journal to list. `bytes`: on disk; `kept`: files in its quarantine and lost+found; `made`: ms.

    `refusal`: why undo and resume would refuse it at once. `deleted`: the files that it has deleted for ever.
    """

    folder: Journal
    plan: Plan | None
    bytes: int
    kept: int
    refusal: RmqStoreError | None
    deleted: tuple[str, ...] = ()

    @property
    def state(self) -> str:
        return self.folder.record.state.value

    @property
    def words(self) -> Text:
        """The state in words."""
        return _STATES["importing" if self.folder.being_made else self.state]

    @property
    def changed_since(self) -> str:
        """The path of a file of the repair that was written to after it, for which undo is refused; "" if none was."""
        from rmqstore.documents.journal import STATE
        from rmqstore.documents.paths import status_of

        end = status_of(self.folder.path / STATE)
        if self.plan is None or end is None or not self.folder.record.times_kept:
            return ""
        for step in self.plan.steps:
            status = status_of(self.folder.store / step.path)
            if status is not None and stat.S_ISREG(status.st_mode) and status.st_mtime_ns > end.st_mtime_ns:
                return step.path
        return ""

    @property
    def made(self) -> int:
        return parse_stamp(self.folder.name) or 0

    @property
    def command(self) -> str:
        """The command that made the plan, "" if its facts do not tell."""
        if self.folder.being_made:
            return "import"
        facts: Mapping[str, Any] = self.plan.facts if self.plan is not None else {}
        if "command" in facts:
            return str(facts["command"])
        names = {"strategy": "recover", "part": "rebuild", "expire": "expire"}
        return next((name for fact, name in names.items() if fact in facts), "")

    def to_json(self) -> dict[str, Any]:
        """Return the row of `journals --json`."""
        loss = self.plan.loss.to_json() if self.plan is not None else None
        return self.folder.to_json() | {
            "made": self.made,
            "command": self.command or None,
            "bytes": self.bytes,
            "files_kept": self.kept,
            "deleted": list(self.deleted),
            "loss": loss,
            "accounts": None if self.plan is None else _accounts(self.plan),
            "cures": list(self.plan.cures) if self.plan is not None else [],
        }


@dataclass(frozen=True, slots=True)
class Selected:
    """The journals that --prune removes, apart from those that are undone."""

    keep: int | None
    older_than: float | None
    missing: bool


@renamed(keep="--keep-last")
@command(
    "journals",
    report=True,
    examples=(
        "rmqstore journals /data/rocketmq/store",
        "rmqstore journals /data/rocketmq/store --prune --older-than 30d",
        "rmqstore journals /data/rocketmq/store --prune --keep-last 1 --apply",
    ),
)
@click.option(
    "--prune", is_flag=True, help="Remove journals that are undone, and those that --keep-last or --older-than selects."
)
@click.option(
    "--keep-last",
    "keep",
    type=click.IntRange(0),
    metavar="N",
    help="With --prune: remove all but the N newest repairs, too.",
)
@click.option(
    "--older-than",
    type=DURATION,
    metavar="TIME",
    help="With --prune: also remove repairs older than this, such as 30d.",
)
@click.option(
    "--missing",
    is_flag=True,
    help="With --prune: also forget journals that are gone for good. A journal whose disk is only not mounted is lost "
    "with it.",
)
@click.option("--apply", "apply_it", is_flag=True, help="With --prune: remove them. Without it, nothing is removed.")
@root_option
@gathered("selected", Selected)
def journals(
    out: Output,
    store: Path,
    config: BrokerConfig,
    prune: bool,
    apply_it: bool,
    roots: tuple[Path, ...],
    selected: Selected,
) -> int:
    """List the journals of repairs, newest last: when each was made, what it did, its size, and how to undo it.

    --prune removes journals that are undone or never started, and with --keep-last or --older-than also those of
    repairs. A repair without its journal cannot be undone, and its quarantine and lost+found are gone. Unfinished
    journals are never removed, and unfinished imports only with --older-than; --missing removes what the store has of a
    journal that was kept elsewhere (--journal) and is gone.
    Exit code 1: there is something to prune, but --apply was not given.
    """
    from rmqstore.cli.shared.reading import refuse_part
    from rmqstore.documents.journal import list_journals
    from rmqstore.files.store import open_store
    from rmqstore.repair.journal.pruning import prune as remove
    from rmqstore.repair.journal.pruning import prune_missing

    if not prune and (selected != Selected(None, None, False) or apply_it):
        raise UsageError(Text("--keep-last, --older-than, --missing and --apply need --prune"), Text("add --prune"))
    opened = open_store(store, config)
    refuse_part(opened, Text("name the whole store, which has the journals"))
    named = [*roots, *config.directories]
    found = [_read(folder) for folder in list_journals(opened.root, named)]
    going = list(_going(found, selected)) if prune else []
    if apply_it:
        out.check()
        for one in going:
            if one.state == "missing":
                prune_missing(one.folder)
            else:
                remove(one.folder.path, roots=named)
    removed = {one.folder.path for one in going}
    rows = [one.to_json() | {"prune": one.folder.path in removed} for one in found]
    document = {"schema": "rmqstore.journals/1", "store": str(store), "pruned": apply_it, "journals": rows}
    out.answer(document, _text(found, going, prune, apply_it))
    return 1 if going and not apply_it else 0


def _read(folder: Journal) -> ListedJournal:
    from rmqstore.documents.journal import LOST_FOUND, QUARANTINE

    size = kept = 0
    missing = folder.record.state.value == "missing"
    for file, status in folder.files():
        size += status.st_blocks * 512
        kept += file.parent.name in (QUARANTINE, LOST_FOUND)
    try:
        plan = folder.load_plan() if not missing else None
    except CouldNotCheck:
        plan = None
    deleted = folder.deleted_of(plan) if plan is not None else []
    return ListedJournal(folder, plan, size, kept, folder.refusal(), tuple(deleted))


def _going(found: list[ListedJournal], selected: Selected) -> Iterator[ListedJournal]:
    """Yield what to prune; of repairs only the oldest ones, because the newest must be undone first."""
    if selected.missing:
        yield from (one for one in found if one.state == "missing")
    keep, older_than = selected.keep, selected.older_than
    now = time.time() * 1000
    done = [one for one in found if one.state == "done"]
    limit = 0 if keep is None and older_than is None else len(done) - (keep or 0)
    staying = False
    for one in found:
        if one.folder.being_made:
            if older_than is not None and one.made < now - older_than * 1000:
                yield one
        elif one.state in ("undone", "preparing", "pruning"):
            yield one
        elif one.state == "done":
            old = older_than is None or one.made < now - older_than * 1000
            if staying or done.index(one) >= limit or not old:
                staying = True
            else:
                yield one
        else:
            staying = True


def _text(found: list[ListedJournal], going: list[ListedJournal], prune: bool, applied: bool) -> Iterator[str]:
    from rmqstore.documents.journal import QUARANTINE

    if not found:
        yield Text("No journals: there is no repair to undo.")
        return
    last = max((one.folder.name for one in found if one.deleted), default="")
    for one in found:
        size = bytes_text(one.bytes)
        yield Placed("{name}   {state}   {size}", name=one.folder.name, state=one.words, size=size)
        yield Placed("  {time}: {did}", time=time_text(one.made), did=_did(one))
        if one.folder.path.parent.parent != one.folder.store:
            yield Text("  in {path}", path=one.folder.path)
        yield from _undo_lines(one, last)
        if one.state == "missing":
            yield Text("  without it, this repair can be neither undone nor resumed")
            if one.kept:
                yield Text("  files that it moved away: {path}", path=one.folder.in_store / QUARANTINE)
            store = shlex.quote(str(one.folder.store))
            yield Text("  if it is gone for good: rmqstore journals {store} --prune --missing --apply", store=store)
    if not prune:
        return
    yield ""
    if not going:
        yield Text("Nothing to prune.")
        return
    removed, to_remove = Text("Removed: {journals}, {total}"), Text("To remove: {journals}, {total}")
    total = bytes_text(sum(one.bytes for one in going))
    yield (removed if applied else to_remove).format(journals=many(len(going), "journal"), total=total)
    for one in going:
        lasting: str = ""
        if one.state in ("done", "missing"):
            now, after = Text(": it can no longer be undone"), Text(": it can no longer be undone after that")
            lasting = now if applied else after
            if one.kept:
                single, several = Text("{lasting}, and {files} is gone"), Text("{lasting}, and {files} are gone")
                words = single if one.kept == 1 else several
                lasting = words.format(lasting=lasting, files=many(one.kept, "saved file"))
        name, state = one.folder.name, one.words
        yield Placed("  {name} ({state}){lasting}", name=name, state=state, lasting=lasting)
    if not applied:
        yield Text("Nothing was removed. To remove them, add --apply")


def _undo_lines(one: ListedJournal, last: str) -> Iterator[str]:
    """Yield how a repair is undone, or why it cannot be. `last`: the newest journal that has deleted files for ever."""
    if one.refusal is not None:
        yield Text("  would be refused: {why}", why=one.refusal.message)
        yield Placed("    -> {do}", do=one.refusal.advice)
    elif one.deleted:
        yield Text("  deleted {files} for ever: this cannot be undone", files=many(len(one.deleted), "file"))
        if one.folder.record.kept:
            stay = many(len(one.folder.record.kept), "file")
            yield Text("  ended half-way: {files} of its plan stay", files=stay)
    elif one.state == "done" and one.folder.name < last:
        yield Text("  can no longer be undone: {last} has deleted files for ever after it", last=last)
    elif one.state == "done" and (changed := one.changed_since):
        yield Text("  can no longer be undone: {path} was written to after it", path=changed)
    elif one.folder.to_undo and one.state != "missing":
        yield Text("  to undo: {command}", command=one.folder.command("undo"))
        if one.state == "applying":
            yield Text("  to finish: {command}", command=one.folder.command("resume"))


def _did(one: ListedJournal) -> str:
    plan = one.plan
    if one.state == "missing":
        return Text("what it did is not known here")
    if one.folder.being_made:
        return Text("import --into, which has not changed the store yet")
    if plan is None:
        return Text("its plan cannot be read") if one.state != "preparing" else Text("nothing")
    words: list[str] = [one.command or Text("a plan"), many(len(plan.steps), "step")]
    restored = plan.facts.get("restored")
    if isinstance(restored, dict) and isinstance(restored.get("messages"), int):
        words.append(Text("{messages} restored from a replica", messages=many(restored["messages"], "message")))
    mended = plan.facts.get("mended")
    if isinstance(mended, list):
        words.append(Text("{messages} mended", messages=many(len(mended), "message")))
    if plan.loss.messages:
        count = many(plan.loss.messages, "message")
        open_end = bool(plan.loss.more.get("at_least"))
        words.append(
            Text("at least {messages} lost", messages=count) if open_end else Text("{messages} lost", messages=count)
        )
    if plan.cures:
        more = " …" if len(plan.cures) > 4 else ""
        words.append(Text("cured {cures}{more}", cures=joined(plan.cures[:4]), more=more))
    return joined(words)
