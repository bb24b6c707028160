"""Merges the healed store's plan and the replicas' bytes into one plan for the real files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from rmqstore.repair.log.spans import Span, within, without
from rmqstore.repair.plan.content import Content, chunks
from rmqstore.repair.plan.fingerprints import fingerprint_entry, fingerprint_range
from rmqstore.repair.plan.plan import Plan
from rmqstore.repair.plan.plan_builder import PlanBuilder, readable
from rmqstore.repair.plan.steps import Create, Discard, Extend, Overwrite, Step, Truncate
from rmqstore.repair.plan.steps import Span as SavedSpan
from rmqstore.repair.replica.healed_store import FileContent, HealedFile, HealedStore


def merged(plan: Plan, healed: HealedStore, names: PlanBuilder, why: str) -> Plan:
    """Return the plan of a healed store as a plan for the store itself; `why` is the reason of the restoring steps.

    Errors: NotReadable without permission to read a log file.
    """
    by_name = {names.name(file.path): file for file in healed.files}
    gone = {s.path for s in plan.steps if isinstance(s, Discard)}
    steps: list[Step] = [s for s in plan.steps if s.path not in by_name]
    steps += [_real(s, by_name[s.path]) for s in plan.steps if _is_left(s, by_name.get(s.path))]
    for name, file in by_name.items():
        if name not in gone:
            own = [s for s in plan.steps if s.path == name]
            steps += _steps(name, file, own, healed, names, why)
    spans = [s for span in plan.spans if (s := _saved(span, by_name.get(span.path))) is not None]
    return replace(plan, steps=tuple(steps), spans=tuple(spans))


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
    name: str, file: HealedFile, own: list[Step], healed: HealedStore, names: PlanBuilder, why: str
) -> Iterator[Step]:
    """Yield the steps of one file; other steps first change its copy, so that every byte is written only once."""
    written: list[tuple[Span, str]] = []
    for step in own:
        span = _into_copy(step, file, healed)
        if span[0] < span[1]:
            written.append((span, step.why))
    taken = [(t.start - file.start, t.stop - file.start) for t in file.taken]
    rows = [(span, why) for span in without(taken, sorted(span for span, _ in written))] + written
    size = file.copy.stat().st_size
    if file.length is None:
        like = names.name(file.like) if file.like is not None else None
        yield Create(name, size, FileContent(healed.folder, file.copy, 0, size), like, why)
        return
    for span, reason in sorted(rows):
        for start, stop in within([span], 0, min(size, file.length)):
            content: Content = FileContent(healed.folder, file.copy, start, stop - start)
            expect = readable(file.path, partial(fingerprint_range, file.path, start, stop - start))
            yield Overwrite(name, start, content, expect, reason)
    if size > file.length:
        rest = size - file.length
        yield Extend(name, file.length, size, FileContent(healed.folder, file.copy, file.length, rest), why)
    elif size < file.length:
        rest = file.length - size
        expect = readable(file.path, partial(fingerprint_range, file.path, size, rest))
        yield Truncate(name, file.length, size, expect, own[-1].why if own else why)


def _into_copy(step: Step, file: HealedFile, healed: HealedStore) -> Span:
    """Apply a step to the copy; return the range that it wrote, as positions in the file."""
    if isinstance(step, Overwrite):
        at, content = step.at, step.content
    elif isinstance(step, Extend):
        healed.folder.resize(file.copy, step.to_size)
        at, content = step.from_size, step.content
    elif isinstance(step, Truncate):
        healed.folder.resize(file.copy, step.to_size)
        return 0, 0
    else:
        raise TypeError(step)
    position = at
    for chunk in chunks(content):
        healed.folder.write_at(file.copy, chunk, position)
        position += len(chunk)
    return at, position
