"""A repair as a value: what would be lost, what would be done, and what the bytes must be for it. Pure.

A plan is printed (`describe`), saved (`to_json`, `iter_json`), read back (`from_json`) and compared (`digest`).
`journal.apply` carries it out.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TypeVar

from rmqstore.errors import UsageError
from rmqstore.repair import content as contents
from rmqstore.repair.content import Content, Json, Literal, Parts, Reencoded, Zeros
from rmqstore.repair.steps import (
    Create,
    Discard,
    Extend,
    MakeDirectory,
    Overwrite,
    RemoveEmptyDirectory,
    Span,
    Step,
    Truncate,
    check_path,
    check_span,
    check_step,
    check_together,
    in_order,
)

__all__ = [
    "Content",
    "Create",
    "Discard",
    "Extend",
    "Json",
    "Literal",
    "Loss",
    "MakeDirectory",
    "Overwrite",
    "Parts",
    "Plan",
    "Reencoded",
    "RemoveEmptyDirectory",
    "Span",
    "Step",
    "Truncate",
    "Zeros",
]

SCHEMA = "rmqstore.plan/1"
_LISTED = 20

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Loss:
    """What a plan gives up: messages, their bytes, and the same per queue (`TOPIC/ID`)."""

    messages: int = 0
    bytes: int = 0
    queues: Mapping[str, int] = field(default_factory=dict)
    more: Mapping[str, Json] = field(default_factory=dict)

    @property
    def topics(self) -> frozenset[str]:
        return frozenset(queue.rpartition("/")[0] or queue for queue in self.queues)

    def to_json(self) -> dict[str, Json]:
        return {"messages": self.messages, "bytes": self.bytes, "queues": dict(self.queues), **self.more}


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps of one repair of one store.

    `store` is the broker's storePathRootDir (absolute): the lock and the journals are there. `roots` are the absolute
    data paths outside of it. A plan with `brakes` is applied only when its digest is named.
    Errors: UsageError when a path leaves the store, or steps get in each other's way.
    """

    store: str
    steps: tuple[Step, ...]
    loss: Loss = field(default_factory=Loss)
    cures: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    brakes: tuple[str, ...] = ()
    spans: tuple[Span, ...] = ()
    roots: tuple[str, ...] = ()
    facts: Mapping[str, Json] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for place in (self.store, *self.roots):
            pure = PurePosixPath(place)
            if not pure.is_absolute() or ".." in pure.parts or "\0" in place or len(pure.parts) < 2:
                raise UsageError(f"plan: {place!r} is no absolute path of a store")
        for step in self.steps:
            check_path(step.path, self.store, self.roots)
            check_step(step)
            if isinstance(step, Create | MakeDirectory) and step.like is not None:
                check_path(step.like, self.store, self.roots)
        check_together(self.steps)
        for span in self.spans:
            check_path(span.path, self.store, self.roots)
            check_span(span)
        if len({span.name for span in self.spans}) != len(self.spans):
            raise UsageError("plan: two saved spans have the same name")

    @property
    def empty(self) -> bool:
        """Nothing to do."""
        return not self.steps

    @property
    def digest(self) -> str:
        """Short name of exactly this change: same steps on same bytes, same digest. Reads every content once."""
        running = hashlib.sha256(SCHEMA.encode())
        for step in self.steps:
            row = _step_head(step)
            row.pop("why")
            if isinstance(step, Overwrite | Create | Extend):
                row["content"] = contents.content_digest(step.content)
            running.update(json.dumps(row, sort_keys=True).encode())
        running.update(json.dumps(list(self.brakes)).encode())
        for span in self.spans:
            running.update(json.dumps([span.path, span.at, span.length, span.name]).encode())
        return running.hexdigest()[:16]

    def summaries(self) -> list[dict[str, Json]]:
        """The steps as reports show them: no contents, no hashes."""
        return [step_summary(step) for step in self.steps]

    def to_json(self, write_content: Callable[[int], Json] | None = None) -> dict[str, Json]:
        """The whole plan with all contents, in memory; `iter_json` streams the same.

        `write_content`: gives the JSON of the content of step N instead (a journal keeps contents in files of its
        own); there is no digest then.
        """
        if write_content is None:
            return {**_plan_head(self), "digest": self.digest, "steps": [_step_to_json(s) for s in self.steps]}
        rows: list[Json] = []
        for number, step in enumerate(self.steps):
            row = _step_head(step)
            if isinstance(step, Overwrite | Create | Extend):
                row["content"] = write_content(number)
            rows.append(row)
        return {**_plan_head(self), "steps": rows}

    def iter_json(self) -> Iterator[str]:
        """The text of the plan file, piecewise: at most about 1 MiB of a content at a time."""
        yield json.dumps({**_plan_head(self), "digest": self.digest})[:-1] + ', "steps": ['
        for number, step in enumerate(self.steps):
            yield ",\n" if number else "\n"
            if not isinstance(step, Overwrite | Create | Extend) or isinstance(step.content, Zeros | Literal):
                yield json.dumps(_step_to_json(step))
                continue
            yield json.dumps(_step_head(step))[:-1] + ', "content": {"parts": ['
            for part_number, part in enumerate(contents.content_parts_json(step.content)):
                yield (", " if part_number else "") + json.dumps(part)
            yield "]}}"
        yield "\n]}\n"

    @staticmethod
    def from_json(
        text: str | bytes | Mapping[str, Json],
        *,
        store: Path | None = None,
        roots: Collection[Path] = (),
        read_content: Callable[[object], Content] = contents.content_from_json,
    ) -> Plan:
        """A plan read back from its JSON; the text may come from anywhere and is believed in nothing.

        `store` and `roots` are what the user named: a plan for any other place is refused. Without `store` the
        plan's own word is taken (a journal knows its store).
        Errors: UsageError.
        """
        return _plan_from_json(text, store, roots, read_content)

    def describe(self, *, limit: int = 200) -> list[str]:
        """Lines for a person: the loss first, then what is done, file by file; a large plan as sums per directory."""
        return [*_describe_loss(self), *_describe_steps(self, limit)]

    def ordered(self) -> list[int]:
        """Numbers of the steps in the order in which `apply` carries them out."""
        return in_order(self.steps)


def step_summary(step: Step) -> dict[str, Json]:
    """`{"do", "path", "at", "length", "why"}` as far as the step has them."""
    row: dict[str, Json] = {"do": step.do, "path": step.path}
    if isinstance(step, Overwrite | Truncate | Extend):
        row["at"] = step.at
    if not isinstance(step, MakeDirectory | RemoveEmptyDirectory):
        row["length"] = step.length
    row["why"] = step.why
    return row


def _step_head(step: Step) -> dict[str, Json]:
    row: dict[str, Json] = {"do": step.do, "path": step.path}
    if isinstance(step, Overwrite):
        row |= {"at": step.at, "length": step.length, "expect": step.expect}
    elif isinstance(step, Truncate):
        row |= {"from": step.from_size, "to": step.to_size, "expect": step.expect}
    elif isinstance(step, Extend):
        row |= {"from": step.from_size, "to": step.to_size}
    elif isinstance(step, Create):
        row |= {"size": step.size, "like": step.like}
    elif isinstance(step, Discard):
        row |= {"expect": step.expect, "length": step.length}
    elif isinstance(step, MakeDirectory):
        row |= {"like": step.like}
    return {**row, "why": step.why}


def _step_to_json(step: Step) -> dict[str, Json]:
    row = _step_head(step)
    if isinstance(step, Overwrite | Create | Extend):
        row["content"] = contents.content_to_json(step.content)
    return row


def _plan_head(plan: Plan) -> dict[str, Json]:
    spans: list[Json] = [
        {"path": span.path, "at": span.at, "length": span.length, "name": span.name, "why": span.why}
        for span in plan.spans
    ]
    return {
        "schema": SCHEMA,
        "store": plan.store,
        "roots": list(plan.roots),
        "loss": plan.loss.to_json(),
        "cures": list(plan.cures),
        "notes": list(plan.notes),
        "brakes": list(plan.brakes),
        "facts": dict(plan.facts),
        "spans": spans,
    }


class _Reader:
    """One JSON object whose keys are taken with their types; what is left over is refused."""

    def __init__(self, value: object, what: str) -> None:
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise UsageError(f"plan: {what} must be an object")
        self.left = dict(value)
        self.what = what

    def take(self, key: str, kind: type[_T], default: _T | None = None) -> _T:
        value = self.left.pop(key, default)
        if type(value) is not kind:
            raise UsageError(f"plan: {self.what}: {key} must be {_KIND_NAMES[kind]}")
        return value

    def optional_text(self, key: str) -> str | None:
        return None if self.left.get(key) is None and self.left.pop(key, None) is None else self.take(key, str)

    def texts(self, key: str) -> tuple[str, ...]:
        values = self.take(key, list, [])
        if not all(isinstance(value, str) for value in values):
            raise UsageError(f"plan: {self.what}: {key} must be a list of texts")
        return tuple(values)

    def finish(self) -> None:
        if self.left:
            raise UsageError(f"plan: {self.what}: unknown key {min(self.left)!r}; was it made by a newer rmqstore?")


_KIND_NAMES: dict[type, str] = {str: "a text", int: "an integer", list: "a list", dict: "an object"}


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _plan_from_json(
    text: str | bytes | Mapping[str, Json],
    store: Path | None,
    roots: Collection[Path],
    read_content: Callable[[object], Content],
) -> Plan:
    document: object = text
    if isinstance(text, str | bytes):
        try:
            document = json.loads(text, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"plan: not readable as JSON: {error}") from error
    reader = _Reader(document, "the plan")
    schema = reader.left.pop("schema", None)
    if schema != SCHEMA:
        raise UsageError(f"plan: {schema!r} is no plan that this rmqstore knows ({SCHEMA})")
    digest = reader.optional_text("digest")
    plan = Plan(
        store=reader.take("store", str),
        roots=reader.texts("roots"),
        loss=_loss_from_json(reader.left.pop("loss", {})),
        cures=reader.texts("cures"),
        notes=reader.texts("notes"),
        brakes=reader.texts("brakes"),
        facts=reader.take("facts", dict, {}),
        spans=tuple(_span_from_json(value) for value in reader.take("spans", list, [])),
        steps=tuple(_step_from_json(value, read_content) for value in reader.take("steps", list)),
    )
    reader.finish()
    if store is not None:
        if Path(plan.store).resolve() != store.resolve():
            raise UsageError(f"plan: it was made for {plan.store}, not for {store}")
        allowed = {root.resolve() for root in roots}
        for root in plan.roots:
            if Path(root).resolve() not in allowed:
                raise UsageError(f"plan: {root} is no data path of {store}")
    if digest is not None and digest != plan.digest:
        raise UsageError("plan: its digest does not fit its steps", "make a new plan; do not edit plan files")
    return plan


def _loss_from_json(value: object) -> Loss:
    reader = _Reader(value, "loss")
    queues = reader.take("queues", dict, {})
    if not all(isinstance(queue, str) and type(count) is int for queue, count in queues.items()):
        raise UsageError("plan: loss: queues must map names to counts")
    return Loss(reader.take("messages", int, 0), reader.take("bytes", int, 0), queues, reader.left)


def _span_from_json(value: object) -> Span:
    reader = _Reader(value, "a span")
    span = Span(
        reader.take("path", str),
        reader.take("at", int),
        reader.take("length", int),
        reader.take("name", str),
        reader.take("why", str, ""),
    )
    reader.finish()
    return span


def _step_from_json(value: object, read_content: Callable[[object], Content]) -> Step:
    reader = _Reader(value, "a step")
    do, path, why = reader.take("do", str), reader.take("path", str), reader.take("why", str, "")
    length = reader.take("length", int, -1)

    def content() -> Content:
        return read_content(reader.left.pop("content", None))

    step: Step
    if do == Overwrite.do:
        step = Overwrite(path, reader.take("at", int), content(), reader.take("expect", str), why)
        if length not in (-1, step.length):
            raise UsageError(f"plan: {path}: length {length} does not fit the content of {step.length} bytes")
    elif do == Truncate.do:
        step = Truncate(path, reader.take("from", int), reader.take("to", int), reader.take("expect", str), why)
    elif do == Extend.do:
        step = Extend(path, reader.take("from", int), reader.take("to", int), content(), why)
    elif do == Create.do:
        step = Create(path, reader.take("size", int), content(), reader.optional_text("like"), why)
    elif do == Discard.do:
        step = Discard(path, reader.take("expect", str), why, max(length, 0))
    elif do == MakeDirectory.do:
        step = MakeDirectory(path, reader.optional_text("like"), why)
    elif do == RemoveEmptyDirectory.do:
        step = RemoveEmptyDirectory(path, why)
    else:
        raise UsageError(f"plan: unknown step {do!r}; was it made by a newer rmqstore?")
    reader.finish()
    return step


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def _describe_loss(plan: Plan) -> Iterator[str]:
    loss = plan.loss
    if loss.messages or loss.bytes or loss.queues:
        topics = f" of {_count(len(loss.topics), 'topic')}" if loss.queues else ""
        yield f"Lost: {_count(loss.messages, 'message')}{topics}, {_count(loss.bytes, 'byte')}."
        rows = sorted(loss.queues.items(), key=lambda row: (-row[1], row[0]))
        yield from (f"  {queue}: {_count(count, 'message')}" for queue, count in rows[:_LISTED])
        if len(rows) > _LISTED:
            yield f"  … and {_count(len(rows) - _LISTED, 'more queue')}"
    else:
        yield "Nothing is lost."
    yield from (f"Note: {note}" for note in plan.notes)
    yield from (f"Needs --force {plan.digest}: {brake}" for brake in plan.brakes)


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
    elif isinstance(step, MakeDirectory):
        line = f"make directory {step.path}/"
    else:
        line = f"remove empty directory {step.path}/"
    return _with_why("  " + line, step.why)
