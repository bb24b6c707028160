"""Merges the healed store's plan and the replicas' bytes into one plan for the real files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from rmqstore.files.files import Files
from rmqstore.repair.log.spans import Span, within, without
from rmqstore.repair.plan.fingerprints import fingerprint_entry, fingerprint_range
from rmqstore.repair.plan.plan import Plan
from rmqstore.repair.plan.plan_builder import PlanBuilder, readable
from rmqstore.repair.plan.steps import Create, Discard, Extend, Overwrite, Step, Truncate
from rmqstore.repair.plan.steps import Span as SavedSpan
from rmqstore.repair.planned.overlay import Overlay
from rmqstore.repair.replica.healed_store import FileContent, HealedFile, HealedStore


def merged(plan: Plan, healed: HealedStore, names: PlanBuilder, why: str) -> Plan:
    """Return the plan of a healed store as a plan for the store itself; `why` is the reason of the restoring steps.

    Errors: NotReadable without permission to read a log file.
    """
    by_name = {names.name(file.path): file for file in healed.files}
    gone = {s.path for s in plan.steps if isinstance(s, Discard)}
    steps: list[Step] = [_with_model(s, by_name, names) for s in plan.steps if s.path not in by_name]
    steps += [_real(s, by_name[s.path]) for s in plan.steps if _is_left(s, by_name.get(s.path))]
    final = Overlay(healed.store.files, [s for s in plan.steps if s.path in by_name], names.root)
    for name, file in by_name.items():
        if name not in gone:
            own = [s for s in plan.steps if s.path == name]
            steps += _steps(name, file, own, final, names, why)
    spans = [s for span in plan.spans if (s := _saved(span, by_name.get(span.path))) is not None]
    return replace(plan, steps=tuple(steps), spans=tuple(spans))


def _with_model(step: Step, by_name: Mapping[str, HealedFile], names: PlanBuilder) -> Step:
    """Return a step whose new file has its owner and mode from a file that exists now."""
    file = by_name.get(step.like or "") if isinstance(step, Create) else None
    if file is None or file.length is not None or not isinstance(step, Create):
        return step
    return replace(step, like=names.name(file.like) if file.like is not None else None)


def _is_left(step: Step, file: HealedFile | None) -> bool:
    """Return whether a step discards a file that the store has, not one that only the replicas' bytes create."""
    return isinstance(step, Discard) and file is not None and file.length is not None


def _real(step: Step, file: HealedFile) -> Step:
    """Return the same step for the real file."""
    assert isinstance(step, Discard)
    expect = readable(file.path, partial(fingerprint_entry, file.path))
    return replace(step, expect=expect, length=file.length or 0)


def _saved(span: SavedSpan, file: HealedFile | None) -> SavedSpan | None:
    """Limit a span to the bytes that the store's file has; None if there are none to save."""
    if file is None:
        return span
    length = min(span.length, (file.length or 0) - span.at)
    return replace(span, length=length) if length > 0 else None


def _steps(
    name: str, file: HealedFile, own: Sequence[Step], final: Files, names: PlanBuilder, why: str
) -> Iterator[Step]:
    """Yield the steps of one file, so that every byte is written only once. `final`: the files after the plan."""
    written = [(span, step.why) for step in own if (span := _written_by(step))[0] < span[1]]
    taken = [(t.start - file.start, t.stop - file.start) for t in file.taken]
    rows = [(span, why) for span in without(taken, sorted(span for span, _ in written))] + written
    with final.open(file.path) as planned:
        size = planned.length
    if file.length is None:
        like = names.name(file.like) if file.like is not None else None
        yield Create(name, size, FileContent(final, file.path, 0, size), like, why)
        return
    for span, reason in sorted(rows):
        for start, stop in within([span], 0, min(size, file.length)):
            expect = readable(file.path, partial(fingerprint_range, file.path, start, stop - start))
            yield Overwrite(name, start, FileContent(final, file.path, start, stop - start), expect, reason)
    if size > file.length:
        rest = size - file.length
        yield Extend(name, file.length, size, FileContent(final, file.path, file.length, rest), why)
    elif size < file.length:
        rest = file.length - size
        expect = readable(file.path, partial(fingerprint_range, file.path, size, rest))
        yield Truncate(name, file.length, size, expect, own[-1].why if own else why)


def _written_by(step: Step) -> Span:
    """Return the range of positions that a step writes."""
    if isinstance(step, Overwrite | Extend):
        return step.at, step.at + step.content.size
    if isinstance(step, Truncate):
        return 0, 0
    raise TypeError(step)
