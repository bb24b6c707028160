"""A repair as a value: the messages it loses, the steps it takes, and the bytes it expects to find.

A plan is printed (`plan_text.describe`), saved (`to_json`, `iter_json`), read back (`plan_from_json`) and
identified (`digest`). `journal.apply` carries it out.

Plan files are not trusted: every field is validated.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from rmqstore.documents.content import (
    Content,
    Json,
    Literal,
    Zeros,
    content_digest,
    content_from_json,
    content_marks,
    content_parts_json,
    content_to_json,
    objects,
)
from rmqstore.documents.steps import (
    JSON_FIELDS,
    PHASES,
    Create,
    Delete,
    Extend,
    MakeDirectory,
    Overwrite,
    RemoveEmptyDirectory,
    Rename,
    Span,
    Step,
    Truncate,
    WithContent,
    check_path,
    check_span,
    check_step,
    check_together,
)
from rmqstore.errors import BrokenPlan, UsageError
from rmqstore.files.disk import real_path
from rmqstore.formats.consumequeue import topic_of
from rmqstore.texts import Text

SCHEMA = "rmqstore.plan/1"


@dataclass(frozen=True, slots=True)
class Loss:
    """What a repair loses: messages, their bytes, and messages per queue (`TOPIC/ID`)."""

    messages: int = 0
    bytes: int = 0
    queues: Mapping[str, int] = field(default_factory=dict)
    more: Mapping[str, Json] = field(default_factory=dict)

    @property
    def topics(self) -> frozenset[str]:
        return frozenset(topic_of(queue) or queue for queue in self.queues)

    def to_json(self) -> dict[str, Json]:
        return {"messages": self.messages, "bytes": self.bytes, "queues": dict(self.queues), **self.more}


@dataclass(frozen=True)
class Plan:
    """The steps of one repair of one store.

    `store` is the broker's storePathRootDir (absolute), which holds the lock and the journals. `roots` are the absolute
    data paths outside it. A plan that needs `decisions` (`brakes` in JSON) is applied only if the
    caller names its digest. `cures`: the problems that it repairs; empty until the plan is measured.
    Errors: BrokenPlan if a path leaves the store, or steps conflict with each other.
    """

    store: str
    steps: tuple[Step, ...]
    loss: Loss = field(default_factory=Loss)
    cures: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()
    spans: tuple[Span, ...] = ()
    roots: tuple[str, ...] = ()
    facts: Mapping[str, Json] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for place in (self.store, *self.roots):
            pure = PurePosixPath(place)
            if not pure.is_absolute() or ".." in pure.parts or "\0" in place or len(pure.parts) < 2:
                raise BrokenPlan(Text("plan: {place!r} is not the absolute path of a store", place=place))
        for step in self.steps:
            check_path(step.path, self.store, self.roots)
            check_step(step)
            if isinstance(step, Create | MakeDirectory) and step.like is not None:
                check_path(step.like, self.store, self.roots)
            if isinstance(step, Rename):
                check_path(step.source, self.store, self.roots)
        check_together(self.steps)
        for span in self.spans:
            check_path(span.path, self.store, self.roots)
            check_span(span)
        if len({span.name for span in self.spans}) != len(self.spans):
            raise BrokenPlan(Text("plan: two saved spans have the same name"))

    @property
    def empty(self) -> bool:
        """Whether the plan has no steps."""
        return not self.steps

    @property
    def deletes(self) -> bool:
        """Whether it deletes files for ever: it cannot be undone, and needs its digest whatever its decisions are."""
        return any(isinstance(step, Delete) for step in self.steps)

    @cached_property
    def digest(self) -> str:
        """A hash that identifies exactly this change: steps, contents and expected bytes. Reads every content once.

        Ask for it before the plan is applied: contents may come from files that the plan moves away.
        """
        running = hashlib.sha256(SCHEMA.encode())
        for step in self.steps:
            row = _step_head(step)
            row.pop("why")
            if isinstance(step, WithContent):
                row["content"] = content_digest(step.content)
            running.update(json.dumps(row, sort_keys=True).encode())
        running.update(json.dumps(list(self.decisions)).encode())
        for span in self.spans:
            running.update(json.dumps([span.path, span.at, span.length, span.name]).encode())
        return running.hexdigest()[:16]

    @property
    def settings(self) -> dict[str, str]:
        """The settings that broker.conf needs after the plan. Those of a saved plan are untrusted."""
        found = self.facts.get("settings")
        return {k: v for k, v in found.items() if isinstance(v, str)} if isinstance(found, Mapping) else {}

    @property
    def mtime_ns(self) -> int | None:
        """The mtime of the files that it changes and creates (ns); None: they keep theirs, or get a neighbour's."""
        found = self.facts.get("mtime_ns")
        return found if type(found) is int and 0 < found < 1 << 63 else None

    @property
    def restored(self) -> list[Mapping[str, Json]]:
        """The places that get bytes of another copy of the log. Those of a saved plan are untrusted."""
        found = self.facts.get("restored")
        return objects(found.get("places")) if isinstance(found, Mapping) else []

    @property
    def origins(self) -> Mapping[str, str]:
        """The new names of renamed files, with the old ones, which `expect` and spans refer to."""
        return {step.path: step.source for step in self.steps if isinstance(step, Rename)}

    def summaries(self) -> list[dict[str, Json]]:
        """Return the steps as reports show them, without contents and hashes."""
        return [step_summary(step) for step in self.steps]

    def to_json(self, write_content: Callable[[int, Content], Json] | None = None) -> dict[str, Json]:
        """Return the plan with all contents, in memory; `iter_json` streams the same.

        `write_content` returns the JSON for the content of step N instead, since a journal keeps contents in files of
        its own; the digest is omitted then.
        """
        rows: list[Json] = []
        for number, step in enumerate(self.steps):
            row = _step_head(step)
            if isinstance(step, WithContent):
                own = step.content
                row["content"] = content_to_json(own) if write_content is None else write_content(number, own)
            rows.append(row)
        digest = {"digest": self.digest} if write_content is None else {}
        return {**_plan_head(self), **digest, "steps": rows}

    def iter_json(self) -> Iterator[str]:
        """Yield the text of the plan file, with about 1 MiB of a content in memory at a time."""
        yield json.dumps({**_plan_head(self), "digest": self.digest})[:-1] + ', "steps": ['
        for number, step in enumerate(self.steps):
            yield ",\n" if number else "\n"
            row = _step_head(step)
            if not isinstance(step, WithContent):
                yield json.dumps(row)
            elif isinstance(step.content, Zeros | Literal):
                yield json.dumps({**row, "content": content_to_json(step.content)})
            else:
                yield json.dumps(row)[:-1] + ', "content": {"parts": ['
                for part_number, part in enumerate(content_parts_json(step.content)):
                    yield (", " if part_number else "") + json.dumps(part)
                marks = json.dumps(content_marks(step.content))[1:-1]
                yield f"]{', ' * bool(marks)}{marks}}}}}"
        yield "\n]}\n"

    def ordered(self) -> list[int]:
        """Return the numbers of the steps in the order of execution: a directory is removed after its contents."""

        def key(number: int) -> tuple[int, int, int]:
            step = self.steps[number]
            depth = step.path.count("/")
            if isinstance(step, RemoveEmptyDirectory):
                depth = -depth
            elif not isinstance(step, MakeDirectory):
                depth = 0
            return PHASES.index(type(step)), depth, number

        return sorted(range(len(self.steps)), key=key)


def step_summary(step: Step) -> dict[str, Json]:
    """Return `{"do", "path", "at", "length", "source", "why"}`, without fields that the step does not have."""
    row: dict[str, Json] = {"do": step.do, "path": step.path}
    if isinstance(step, Overwrite | Truncate | Extend):
        row["at"] = step.at
    if not isinstance(step, MakeDirectory | RemoveEmptyDirectory):
        row["length"] = step.length
    if isinstance(step, Rename):
        row["source"] = step.source
    row["why"] = step.why
    return row


def _step_head(step: Step) -> dict[str, Json]:
    own = {key: getattr(step, attribute) for key, attribute in JSON_FIELDS[type(step)].items()}
    return {"do": step.do, "path": step.path, **own, "why": step.why}


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
        "brakes": list(plan.decisions),
        "facts": dict(plan.facts),
        "spans": spans,
    }


_T = TypeVar("_T")
_KINDS: Mapping[str, type[Step]] = {kind.do: kind for kind in JSON_FIELDS}


class _ObjectReader:
    """Takes typed values from a JSON object; `finish` refuses keys that were not taken. Errors: UsageError."""

    def __init__(self, value: object, what: str) -> None:
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise UsageError(Text("plan: {what} must be an object", what=what))
        self.left = dict(value)
        self.what = what

    def take(self, key: str, kind: type[_T], default: _T | None = None) -> _T:
        value = self.left.pop(key, default)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise UsageError(
                Text("plan: {what}: {key} must be {kind_names}", what=self.what, key=key, kind_names=_KIND_NAMES[kind])
            )
        return value

    def optional_text(self, key: str) -> str | None:
        if self.left.get(key) is None:
            self.left.pop(key, None)
            return None
        return self.take(key, str)

    def texts(self, key: str) -> tuple[str, ...]:
        values = self.take(key, list, [])
        if not all(isinstance(value, str) for value in values):
            raise UsageError(Text("plan: {what}: {key} must be a list of strings", what=self.what, key=key))
        return tuple(values)

    def finish(self) -> None:
        if self.left:
            raise UsageError(
                Text(
                    "plan: {what}: unknown key {left!r}; was it made by a newer rmqstore?",
                    what=self.what,
                    left=min(self.left),
                )
            )


_KIND_NAMES: dict[type, str] = {str: "a string", int: Text("an integer"), list: Text("a list"), dict: Text("an object")}


_DEEPEST = 64


def _refuse_nesting(*values: object) -> None:
    """Refuse what nests too deep to be printed. Errors: UsageError."""
    level: list[object] = [*values]
    for _ in range(_DEEPEST):
        level = [
            inner
            for value in level
            if isinstance(value, Mapping | list)
            for inner in (value.values() if isinstance(value, Mapping) else value)
        ]
    if level:
        raise UsageError(Text("plan: its facts are nested deeper than {deepest}", deepest=_DEEPEST))


def _no_constant(name: str) -> None:
    raise ValueError(Text("{name} is not JSON", name=name))


def plan_from_json(
    text: str | bytes | Mapping[str, Json],
    *,
    store: Path | None = None,
    roots: Collection[Path] = (),
    read_content: Callable[[object], Content] = content_from_json,
) -> Plan:
    """Parse a plan from JSON.

    `store` and `roots` are the paths that the user gave; a plan for other paths is refused. Without `store`, any path
    is accepted (a journal knows its store).
    Errors: UsageError for an invalid plan, and for one for another store.
    """
    document: object = text
    if isinstance(text, str | bytes):
        try:
            document = json.loads(text, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise UsageError(Text("plan: not readable as JSON: {error}", error=error)) from error
    reader = _ObjectReader(document, Text("the plan"))
    schema = reader.left.pop("schema", None)
    if schema != SCHEMA:
        raise UsageError(
            Text(
                'plan: not a plan file of this rmqstore: its "schema" is {schema!r}, not {known!r}',
                schema=schema,
                known=SCHEMA,
            )
        )
    digest = reader.optional_text("digest")
    _refuse_nesting(reader.left.get("facts"), reader.left.get("loss"))
    try:
        plan = _plan(reader, read_content)
    except BrokenPlan as error:  # the user's file is wrong, not the planner
        raise UsageError(error.message) from error
    reader.finish()
    if store is not None:
        if real_path(Path(plan.store)) != real_path(store):
            raise UsageError(
                Text("plan: it was made for {its_store}, not for {store}", its_store=plan.store, store=store)
            )
        allowed = {real_path(root) for root in roots}
        for root in plan.roots:
            if real_path(Path(root)) not in allowed:
                raise UsageError(Text("plan: {root} is not a data path of {store}", root=root, store=store))
    if digest is not None and digest != plan.digest:
        raise UsageError(
            Text("plan: its digest does not match its steps"), Text("make a new plan; do not edit plan files")
        )
    return plan


def _plan(reader: _ObjectReader, read_content: Callable[[object], Content]) -> Plan:
    return Plan(
        store=reader.take("store", str),
        roots=reader.texts("roots"),
        loss=_loss_from_json(reader.left.pop("loss", {})),
        cures=reader.texts("cures"),
        notes=reader.texts("notes"),
        decisions=reader.texts("brakes"),
        facts=reader.take("facts", dict, {}),
        spans=tuple(_span_from_json(value) for value in reader.take("spans", list, [])),
        steps=tuple(_step_from_json(value, read_content) for value in reader.take("steps", list)),
    )


def _loss_from_json(value: object) -> Loss:
    reader = _ObjectReader(value, "loss")
    queues = reader.take("queues", dict, {})
    if not all(isinstance(queue, str) and type(count) is int for queue, count in queues.items()):
        raise UsageError(Text("plan: loss: queues must map names to counts"))
    return Loss(reader.take("messages", int, 0), reader.take("bytes", int, 0), queues, reader.left)


def _span_from_json(value: object) -> Span:
    reader = _ObjectReader(value, Text("a span"))
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
    reader = _ObjectReader(value, Text("a step"))
    do = reader.take("do", str)
    kind = _KINDS.get(do)
    if kind is None:
        raise UsageError(Text("plan: unknown step {do!r}; was it made by a newer rmqstore?", do=do))
    values: dict[str, Any] = {"path": reader.take("path", str), "why": reader.take("why", str, "")}
    length = reader.take("length", int, -1)
    for key, attribute in JSON_FIELDS[kind].items():
        if key == "length":
            values[key] = max(length, 0)
        elif key == "like":
            values[key] = reader.optional_text(key)
        else:
            values[attribute] = reader.take(key, str if key in ("expect", "source") else int)
    if issubclass(kind, WithContent):
        values["content"] = read_content(reader.left.pop("content", None))
    if kind is Overwrite:
        del values["length"]  # of its content
    reader.finish()
    step = kind(**values)
    if isinstance(step, Overwrite) and length not in (-1, step.length):
        raise UsageError(
            Text(
                "plan: {path}: length {length} does not fit the content of {size} bytes",
                path=step.path,
                length=length,
                size=step.length,
            )
        )
    return step
