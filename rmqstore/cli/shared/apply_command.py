"""Shared by commands that change a store: print the plan, save it, apply it, verify again, list what remains."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqstore.cli.printing.output import Output, tell_error, warn
from rmqstore.errors import (
    AppliedUnchecked,
    BrokenPlan,
    NoSpace,
    PlanStale,
    Refused,
    RmqStoreError,
    StoreIsLive,
    UsageError,
)
from rmqstore.files.disk import real_path
from rmqstore.texts import Placed, Text, joined

if TYPE_CHECKING:
    from rmqstore.checks.options import VerifyOptions
    from rmqstore.checks.problems.report import Report
    from rmqstore.checks.verified import Verified
    from rmqstore.cli.shared.options import Applying
    from rmqstore.documents.outcome import Outcome
    from rmqstore.documents.plan import Plan
    from rmqstore.files.broker_config import BrokerConfig
    from rmqstore.files.store import Store
    from rmqstore.repair.journal.journal import Applied
    from rmqstore.repair.migrate_to_dledger import MigrationRefusal
    from rmqstore.repair.rebuild.unit_buffer import KeptUnits

_SHOWN_QUEUES = 3
_SHOWN_DIFFERENCES = 5
_MAX_PLAN = 1 << 30  # bytes; a plan contains the bytes that it will write


@dataclass(frozen=True, slots=True)
class Change:
    """A plan for a store, and the report on which it is based.

    `options`: how the store was verified; `outcome`: what a verification after the plan will find, if it was measured.
    """

    schema: str
    store: Store
    plan: Plan
    report: Report
    wrote: Mapping[str, Any]
    options: VerifyOptions
    outcome: Outcome | None = None
    verdict: str | None = None
    """The first line of the text, if the forecast of the next start does not answer the question."""
    questions: tuple[str, ...] | None = None
    """With --safe: why the plan is not applied without a person; empty if it is."""


def open_for(out: Output, path: Path, config: BrokerConfig, applying: Applying) -> Store:
    """Open the store of a command that may change it; with --apply, refuse at once a store in use.

    Errors: NotReadable, NotAStore, StoreIsLive; OSError for an output that cannot be written.
    """
    from rmqstore.files.store import open_store
    from rmqstore.repair.journal.lock import refuse_in_use

    store = open_store(path, config)
    if applying.apply_it:
        if store.part is None:
            refuse_in_use(store.places[0], store.places, stopped=applying.stopped)
        out.check()
    return store


def open_other(store: Store, path: Path, option: str) -> Store:
    """Open the store of another node, given with an option; its files have the sizes of this store's.

    Errors: UsageError for this store itself; as `open_store`.
    """
    from rmqstore.cli.shared.reading import open_named
    from rmqstore.files.broker_config import BrokerConfig

    if real_path(path) == real_path(store.path):
        raise UsageError(
            Text("{option} {path} is the store itself", option=option, path=path), Text("give the other node's store")
        )
    return open_named(path, BrokerConfig(store.config.file_sizes()))


def read_plan(path: Path, store: Store, roots: Collection[Path] | None = None, *, may_delete: bool = False) -> Plan:
    """Read a saved plan of this store; `roots`: other directories that it may write to (default: those of its logs).

    `may_delete`: the command may delete files for ever.
    Errors: NotReadable; UsageError for a file that is not a plan, and for a plan of another store or of a deletion.
    """
    from rmqstore.documents.plan import plan_from_json
    from rmqstore.files.files import read_given

    text = read_given(path, _MAX_PLAN)
    if roots is None:
        logs = [d for d in store.commitlog_directories if store.files.is_directory(d)]
        roots = [*logs, *(store.dledger.data.directories if store.dledger is not None else ())]
    plan = plan_from_json(text, store=store.root, roots=roots)
    if plan.deletes and not may_delete:
        raise UsageError(
            Text("{path} deletes files for ever, which only `rmqstore expire STORE --delete` does", path=path),
            Text("add --delete to the `rmqstore expire` that made it"),
        )
    return plan


def read_plan_of(path: Path, store: Store, fact: str, value: object = None, *, may_delete: bool = False) -> Plan:
    """Read a saved plan that has a fact of its command, with this value unless None.

    Errors: as `read_plan`; UsageError for a plan of another command.
    """
    plan = read_plan(path, store, may_delete=may_delete)
    if fact not in plan.facts or value not in (None, plan.facts[fact]):
        raise UsageError(
            Text("{path} is a plan of another command", path=path), Text("apply it with the command that made it")
        )
    return plan


def save_plan(out: Output, plan: Plan, store: Path, applying: Applying) -> None:
    """Write a plan to --plan-out, if that is given, outside the store. Errors: UsageError, NotReadable."""
    if applying.plan_out is None:
        return
    with Output(path=applying.plan_out).keep_out_of(store).stream() as file:
        for piece in plan.iter_json():
            file.write(piece.encode())
    out.note(Text("plan saved to {plan_out}", plan_out=applying.plan_out))


def how_to_apply(plan: Plan) -> Text:
    """Say that nothing was written, and which options apply the plan."""
    force = f" --force {plan.digest}" if plan.decisions or plan.deletes else ""
    if not plan.deletes:
        return Text("Nothing was written. To apply the plan, add --apply{force}", force=force)
    journal = "" if _has_room(plan) else " --journal DIR"
    options = f"--apply{force}{journal}"
    if journal:
        return Text(
            "Nothing was deleted. To delete these files for ever, add {options}, where DIR is on another file system: "
            "this one has no room for the journal",
            options=options,
        )
    return Text("Nothing was deleted. To delete these files for ever, add {options}", options=options)


def _has_room(plan: Plan) -> bool:
    """Return whether the journal of a plan that only deletes fits beside the store."""
    from rmqstore.repair.journal.folder import free_bytes
    from rmqstore.repair.journal.staging import journal_bytes

    return free_bytes(Path(plan.store)) >= journal_bytes(plan)


def plan_change(
    out: Output,
    schema: str,
    store: Store,
    options: VerifyOptions,
    plan: Callable[[Store, Verified], Plan],
    *,
    keep_units: Callable[[], KeptUnits] | None = None,
    cures: bool = True,
) -> Change:
    """Verify a store and plan a change. Arguments and errors: as `examine_and_plan`."""
    from rmqstore.cli.shared.saved_plan import measured
    from rmqstore.documents.outcome import with_before
    from rmqstore.repair.examined import NOTE, examine_and_plan
    from rmqstore.repair.store_guard import wrote_positions

    with out.progress("verify", store.log_bytes) as progress:
        watched = replace(options, progress=progress.add)
        look, verified, made, outcome = examine_and_plan(store, watched, plan, keep_units=keep_units, cures=cures)
        made = measured(look, verified, made, outcome)
    if verified.report.live:
        out.note(Text("note: {note}", note=NOTE))
    made = with_before(made, look, verified.report)
    return Change(schema, look, made, verified.report, wrote_positions(verified), options, outcome)


def finish(out: Output, change: Change, applying: Applying) -> int:
    """Print, save or apply the plan; return the exit code."""
    from rmqstore.documents.outcome import Outcome

    if applying.safe:
        return _finish_safely(out, change, replace(applying, safe=False))

    plan = change.plan
    save_plan(out, plan, change.store.path, applying)
    digest = plan.digest if out.as_json else ""
    if not applying.apply_it or plan.empty:
        if applying.force is not None and not applying.apply_it:
            raise UsageError(Text("--force needs --apply"), Text("add --apply, or leave --force out"))
        _print(out, change, digest)
        if not plan.empty or plan.decisions:
            return 1
        return change.report.exit_code  # problems may remain that it does not repair, or that were not checked
    shown = not out.as_json and out.path is None
    if shown:
        out.lines(_plan_lines(change, out.verbose), wrap=True)
    again = replace(change.options, quick=False)
    with _refusal_shown(out, shown), apply_and_verify(out, change.store, plan, applying, again) as (applied, after):
        differs = change.outcome.differences(Outcome.of(after)) if change.outcome is not None else []
        _print(out, change, digest, applied, after, differs)
    return tell_differences(differs, applied) or after.exit_code


def _finish_safely(out: Output, change: Change, applying: Applying) -> int:
    """Apply a plan that loses nothing and needs no decision, or else change nothing; return the exit code of --safe."""
    from rmqstore.repair.unattended import open_questions

    report = change.report
    change = replace(change, questions=tuple(open_questions(change.plan, report, change.outcome)))
    if not change.questions and report.has_problems and not change.plan.empty and not report.unchecked:
        code = finish(out, change, applying)
        return 0 if code == 1 else code  # what remains keeps no broker from starting
    if out.as_json:
        out.report(_json(change, change.plan.digest, None, None) | {"differs": []})
    else:
        out.lines(_safe_lines(change), wrap=True)
    return 1 if change.questions else 4 if report.unchecked else 0


def _safe_lines(change: Change) -> Iterator[str]:
    """Yield why nothing was changed."""
    from rmqstore.checks.problems.report import problem_counts, store_words

    report = change.report
    if report.headline:
        yield Placed("{verdict}.", verdict=report.headline)
    if not change.questions:
        sound, doubt = Text("no problem keeps the broker from starting"), Text("not everything could be checked")
        yield Text("Nothing was changed: {why}.", why=doubt if report.unchecked else sound)
        yield from (f"  {code} x {count:,}" for code, count in problem_counts(report).items())
        yield from _unchecked(report)
        return
    yield Text("A decision is needed. Nothing was changed:")
    yield from (Placed("  {question}", question=question) for question in change.questions)
    yield Text("Next: rmqstore recover {store}", store=store_words(report.repairable, report.config))
    yield Text("      shows the whole plan, and what each decision costs.")


@contextlib.contextmanager
def _refusal_shown(out: Output, shown: bool) -> Iterator[None]:
    """After a plan that was shown, say on stdout, too, that it is not applied: `| tail` shows only the end."""
    try:
        yield
    except (Refused, PlanStale, StoreIsLive, NoSpace) as error:
        if shown and out.terminal_width is None:
            out.lines(["", Text("Not applied: {why}", why=error.message)], wrap=True)
        raise


def tell_differences(differs: Sequence[str], applied: Applied) -> int:
    """Say what verify found otherwise than the plan said; return the exit code, 0 if nothing differs."""
    if not differs:
        return 0
    shown: str = joined(differs[:_SHOWN_DIFFERENCES], "; ")
    if len(differs) > _SHOWN_DIFFERENCES:
        shown = Text("{differs}; and {more:,} more", differs=shown, more=len(differs) - _SHOWN_DIFFERENCES)
    message = Text("the store is not as this plan said that it would be: {shown}", shown=shown)
    advice: str = Text("this is a bug in rmqstore: please report this line")
    if not applied.for_ever:
        undo = Text("this is a bug in rmqstore: please report this line; to undo the repair, run `{command}`")
        advice = undo.format(command=undo_command(applied))
    tell_error("bug", message, advice, as_json=False)
    return BrokenPlan.exit_code


@contextlib.contextmanager
def apply_and_verify(
    out: Output, store: Store, plan: Plan, applying: Applying, options: VerifyOptions
) -> Iterator[tuple[Applied, Report]]:
    """Apply a plan and verify the store again with these options; the block reports on it.

    Errors: as `apply`; AppliedUnchecked.
    """
    from rmqstore.checks.examine import verify
    from rmqstore.files.store import open_store
    from rmqstore.repair.journal.journal import apply

    with out.progress("apply", None, unit=Text("batch")) as progress:
        applied = apply(plan, **applying.how, progress=progress)
    with after_apply(out, applied):
        store = open_store(store.path, store.config.changed(plan.settings), store.files)
        with out.progress(Text("verify again"), store.log_bytes) as progress:
            report = verify(store, replace(options, progress=progress.add))
        yield applied, report


def undo_command(applied: Applied) -> str:
    """Return the command that undoes a repair, quoted for a shell."""
    from rmqstore.files.disk import named_options

    return f"rmqstore undo {shlex.quote(str(applied.journal))}{named_options(applied.roots)}"


@contextlib.contextmanager
def after_apply(out: Output, applied: Applied) -> Iterator[None]:
    """Say that the store was changed and how to undo it, whatever happens in the block. Errors: AppliedUnchecked."""
    told = out.tell_now(_applied(applied))
    try:
        with after_change(Text("the plan was applied"), look_again(applied)):
            yield
    except KeyboardInterrupt:
        if told and applied.for_ever:
            warn(Text("the plan was applied, and its files are gone for ever"))
        elif told:
            warn(Text("the plan was applied; to undo it: {undo}", undo=undo_command(applied)))
        raise


def look_again(applied: Applied) -> Text:
    """Return what to do if something fails after a change."""
    if applied.for_ever:
        return Text("run `rmqstore verify`")
    return Text("run `rmqstore verify`, or `{undo}`", undo=undo_command(applied))


def _applied(applied: Applied) -> Text:
    if applied.for_ever:
        return Text(
            "Deleted for ever: no `undo` brings the files back. The journal {journal} says what they were.",
            journal=applied.journal,
        )
    return Text("Applied. To undo: {undo}", undo=undo_command(applied))


@contextlib.contextmanager
def after_change(what: str, advice: str) -> Iterator[None]:
    """Turn errors of the block into AppliedUnchecked: their exit codes would say that nothing was changed."""
    try:
        yield
    except (OSError, RmqStoreError) as error:
        raise AppliedUnchecked(Text("{what}, but then: {said}", what=what, said=error), advice) from error


def _print(
    out: Output,
    change: Change,
    digest: str,
    applied: Applied | None = None,
    after: Report | None = None,
    differs: Sequence[str] = (),
) -> None:
    """Print a plan; if it was applied, `after` is what verify found then."""
    journal = applied.journal if applied is not None else None
    if out.as_json:
        out.report(_json(change, digest, journal, after) | {"differs": list(differs)})
        return
    from rmqstore.repair.plan.plan_text import loss_words

    plan_shown = after is not None and out.path is None
    lines = [] if plan_shown else _plan_lines(change, out.verbose)
    if after is not None and applied is not None:
        lines += [] if plan_shown else [_applied(applied)]
        lines.append(Text("Result: {loss}; journal {journal}", loss=loss_words(change.plan), journal=journal))
        lines += _left_lines(after, change.plan)
    elif change.plan.empty and not change.report.clean:
        lines += _unsaid_lines(change.report, change.plan)
    elif not change.plan.empty:
        lines += ["", Text("This plan: {loss}.", loss=loss_words(change.plan)), how_to_apply(change.plan)]
    out.lines(lines, wrap=True)


def _json(change: Change, digest: str, journal: Path | None, after: Report | None) -> dict[str, Any]:
    plan, report = change.plan, after or change.report
    loss = {"visible_fillers": 0, "groups_that_will_see_them": {}, **plan.loss.to_json()}
    return {
        "schema": change.schema,
        "store": str(change.store.path),
        "applied": after is not None,
        "strategy": plan.facts.get("strategy"),
        "role": plan.facts.get("role"),
        "journal": None if journal is None else str(journal),
        "digest": digest,
        "wrote": _wrote(change, after),
        "broker": report.broker,
        "loss": loss,
        "accounts": {
            "before": None if change.report.account is None else change.report.account.to_json(),
            "after": None if change.outcome is None else change.outcome.account,
        },
        "cures": list(plan.cures),
        "notes": list(plan.notes),
        "brakes": list(plan.decisions),
        "undoable": not plan.deletes,
        "steps": plan.summaries(),
        "remaining": {"counts": _remaining(change, after)},
        "forecast": after.headline if after is not None else change.outcome.headline if change.outcome else None,
        "facts": dict(plan.facts),
        **({"settings": plan.settings} if plan.settings else {}),
        **({"questions": list(change.questions)} if change.questions is not None else {}),
    }


def _remaining(change: Change, after: Report | None) -> dict[str, int]:
    """Return the problems that remain: found after the plan, or as measured before it."""
    from rmqstore.checks.problems.report import problem_counts

    if after is None and change.outcome is not None:
        return dict(change.outcome.problems)
    return problem_counts(after or change.report) if after is not None or change.plan.empty else {}


def _wrote(change: Change, after: Report | None) -> dict[str, Any]:
    if after is None:
        return dict(change.wrote)
    return {
        "commitlog": after.commitlog["wrote"] if after.commitlog else None,
        "dledger": after.dledger["wrote"] if after.dledger else None,
        **{k: v for k, v in change.wrote.items() if k not in ("commitlog", "dledger", "consumequeue")},
        "consumequeue": {label: state.max for label, state in sorted(after.queues.items())},
    }


def _plan_lines(change: Change, verbose: int) -> list[str]:
    from rmqstore.repair.plan.plan_text import describe

    verdict = change.report.headline if change.verdict is None else change.verdict
    lines = [verdict, ""] if verdict else []
    lines += describe(change.plan, grouped=not verbose)
    if change.verdict is not None or (change.plan.empty and not verbose):
        return lines
    ends = list(_wrote_lines(change, verbose))
    before = Text("Before this repair:") if "strategy" in change.plan.facts else Text("Before this change:")
    return [*lines, "", before, *ends] if ends else lines


def _wrote_lines(change: Change, verbose: int) -> Iterator[str]:
    """Yield where the parts of the store really end, and what file lengths and checkpoint say."""
    from rmqstore.cli.printing.quantities import many, queue_time_text, time_text

    report, store = change.report, change.store
    for name, part, queue in (
        ("commitlog", "commitlog", store.commitlog),
        ("dledger", "dledger", store.dledger.data if store.dledger else None),
        (Text("timer log"), "timerlog", store.timer_log),
        (Text("DLedger index"), "dledger_index", store.dledger.index if store.dledger else None),
    ):
        at = change.wrote.get(part)
        if queue is not None and at is not None:
            yield Text("{name} ends at {at:,}; its files extend to {stop:,}", name=name, at=at, stop=queue.stop)
    index = change.wrote.get("index") or {}
    if index:
        one, several = Text("{files} holds {entries}"), Text("{files} hold {entries}")
        held, words = many(sum(index.values()), "entry", "entries"), one if len(index) == 1 else several
        yield words.format(files=many(len(index), "index file"), entries=held)
    checkpoint = store.checkpoint
    last = max((int(log.get("last_timestamp") or 0) for log in report.logs), default=0)
    if checkpoint is not None and last:
        from rmqstore.formats.checkpoint import FILE_SIZE, parse_checkpoint

        said = parse_checkpoint(store.files.read_at(checkpoint.path, FILE_SIZE, 0))
        newest, log = map(time_text, (last, said.physic_msg_timestamp))
        times = Text("last message {last}; checkpoint: log {log}, queues {queues}")
        yield times.format(last=newest, log=log, queues=queue_time_text(said.logics_msg_timestamp))
    rows = [(label, state) for label, state in sorted(report.queues.items()) if state.max != state.expected_max]
    shown = rows if verbose else rows[:_SHOWN_QUEUES]
    for label, state in shown:
        end, required = state.max, state.expected_max
        yield Text("{label} ends at {end:,}; the log requires {required:,}", label=label, end=end, required=required)
    if len(rows) > len(shown):
        yield Text("… and {queues} (-v)", queues=many(len(rows) - len(shown), "more queue"))


def tell_refusals(out: Output, store: str, document: dict[str, Any], refusals: Sequence[MigrationRefusal]) -> int:
    """Print why a store is not migrated; return the exit code."""
    error = {"code": Refused.code, "message": refusals[0].reason, "advice": refusals[0].advice}
    out.answer(document | {"error": error}, _refusal_lines(store, refusals))
    return Refused.exit_code


def _refusal_lines(store: str, refusals: Iterable[MigrationRefusal]) -> Iterator[str]:
    yield Text("Refused: {store} cannot be migrated as it is. Nothing was written.", store=store)
    for refusal in refusals:
        yield ""
        yield Placed("  {reason}", reason=refusal.reason)
        yield Placed("    -> {advice}", advice=refusal.advice)


def _left_lines(report: Report, plan: Plan) -> Iterator[str]:
    from rmqstore.checks.problems.report import problem_counts

    left = problem_counts(report)
    if not left and not report.unchecked:
        yield Text("Verified again: no problems.")
        return
    said = _said(plan)
    yield Text("Verified again. Problems that remain:")
    for code, count in left.items():
        why, do = said.get(code, ("", ""))
        yield Placed("  {code} x {count:,}{why}", code=code, count=count, why=Placed(": {why}", why=why) if why else "")
        if do:
            yield Placed("    -> {do}", do=do)
    yield from _unchecked(report)


def _unsaid_lines(report: Report, plan: Plan) -> Iterator[str]:
    """Yield problems that an empty plan does not list; a saved plan knows only those of its time."""
    from rmqstore.checks.problems.report import problem_counts

    said = _said(plan)
    left = [f"  {code} x {count:,}" for code, count in problem_counts(report).items() if code not in said]
    if left:
        yield Text("Problems that this plan does not repair (see `rmqstore verify`):")
        yield from left
    yield from _unchecked(report)


def _said(plan: Plan) -> Mapping[str, tuple[str, str]]:
    """Code → (why the plan does not repair it, what to do). The facts of a saved plan are untrusted."""
    rows = plan.facts.get("stays")
    found = rows.items() if isinstance(rows, Mapping) else ()
    return {code: (str(row.get("why")), str(row.get("do"))) for code, row in found if isinstance(row, Mapping)}


def _unchecked(report: Report) -> Iterator[str]:
    yield from (Text("  not checked: {line}", line=line) for line in report.unchecked)
