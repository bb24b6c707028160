"""A plan as lines for a person: what is lost, what needs a decision, and what is done, file by file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from rmqstore.repair.content import Json, Zeros
from rmqstore.repair.steps import (
    Create,
    Discard,
    Extend,
    MakeDirectory,
    Overwrite,
    RemoveEmptyDirectory,
    Rename,
    SetAside,
    Step,
    Truncate,
)

if TYPE_CHECKING:
    from rmqstore.repair.plan import Plan

_LISTED = 20


def describe(plan: Plan, limit: int) -> list[str]:
    """The loss first, then the steps; more than `limit` of them as sums per directory."""
    return [*_describe_loss(plan), *_describe_steps(plan, limit)]


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def _describe_loss(plan: Plan) -> Iterator[str]:
    loss = plan.loss
    if loss.messages or loss.bytes or loss.queues:
        topics = f" of {_count(len(loss.topics), 'topic')}" if loss.queues else ""
        least = "at least " if loss.more.get("at_least") else ""
        yield f"Lost: {least}{_count(loss.messages, 'message')}{topics}, {_count(loss.bytes, 'byte')}."
        rows = sorted(loss.queues.items(), key=lambda row: (-row[1], row[0]))
        yield from (f"  {queue}: {_count(count, 'message')}" for queue, count in rows[:_LISTED])
        if len(rows) > _LISTED:
            yield f"  … and {_count(len(rows) - _LISTED, 'more queue')}"
    else:
        yield "Nothing is lost."
    yield from _describe_fillers(plan.facts.get("fillers"))
    yield from (f"Note: {note}" for note in plan.notes)
    yield from (f"Needs --force {plan.digest}: {brake}" for brake in plan.brakes)


def _describe_fillers(rows: Json) -> Iterator[str]:
    """Each visible filler with the consumer groups that have not passed it; facts of a saved plan can be anything."""
    if not isinstance(rows, list) or not rows:
        return
    yield f"{_count(len(rows), 'visible filler')}, with the groups that will get it:"
    for row in rows[:_LISTED]:
        if isinstance(row, Mapping):
            groups = row.get("groups")
            names = ", ".join(map(str, groups)) if isinstance(groups, list) else ""
            place = f"{row.get('topic')}/{row.get('queue_id')} {row.get('queue_offset')}"
            yield f"  {place}: {names or 'none that is known'} (marked by its {row.get('marked') or 'bytes only'})"
    if len(rows) > _LISTED:
        yield f"  … and {_count(len(rows) - _LISTED, 'more filler')}"


def _describe_steps(plan: Plan, limit: int) -> Iterator[str]:
    if plan.empty:
        yield "Nothing to do."
        return
    if plan.cures:
        yield f"Cures: {', '.join(plan.cures)}"
    yield f"{_count(len(plan.steps), 'step')} in {plan.store}:"
    if len(plan.steps) <= limit:
        yield from (_describe_step(plan.steps[number]) for number in plan.ordered())
    else:
        folder = cache(lambda path: str(PurePosixPath(path).parent))
        counts: Counter[tuple[str, str, str]] = Counter()
        sizes: Counter[tuple[str, str, str]] = Counter()
        for step in plan.steps:
            key = (step.do, folder(step.path), step.why)
            counts[key] += 1
            sizes[key] += 0 if isinstance(step, MakeDirectory | RemoveEmptyDirectory) else step.length
        rows = sorted(counts, key=lambda key: (-counts[key], key))
        for key in rows[:limit]:
            do, place, why = key
            yield _with_why(f"  {do} x {counts[key]:,} in {place}/: {_count(sizes[key], 'byte')}", why)
        if len(rows) > limit:
            rest = sum(counts[key] for key in rows[limit:])
            yield f"  … and {_count(rest, 'more step')} in {_count(len(rows) - limit, 'more group')}"
    if plan.spans:
        size = sum(span.length for span in plan.spans)
        yield f"Saved to lost+found: {_count(len(plan.spans), 'damaged span')}, {_count(size, 'byte')}"


def _with_why(line: str, why: str) -> str:
    return f"{line} ({why})" if why else line


def _describe_step(step: Step) -> str:
    if isinstance(step, Overwrite):
        zeros = " with zeros" if isinstance(step.content, Zeros) else ""
        line = f"overwrite {step.path} at {step.at:,}: {_count(step.length, 'byte')}{zeros}"
    elif isinstance(step, Truncate | Extend):
        line = f"{step.do} {step.path} from {step.from_size:,} to {_count(step.to_size, 'byte')}"
    elif isinstance(step, Create):
        line = f"create {step.path}: {_count(step.size, 'byte')}"
    elif isinstance(step, Discard):
        line = f"move {step.path} into quarantine"
    elif isinstance(step, SetAside):
        line = f"set {step.path} aside"
    elif isinstance(step, Rename):
        line = f"rename {step.source}, which is aside, to {PurePosixPath(step.path).name}"
    elif isinstance(step, MakeDirectory):
        line = f"make directory {step.path}/"
    else:
        line = f"remove empty directory {step.path}/"
    return _with_why("  " + line, step.why)
