"""Parses plan files. The input is untrusted: every field is validated."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

from rmqstore.errors import BrokenPlan, UsageError
from rmqstore.files.disk import real_path
from rmqstore.repair.plan.content import Content, Json, content_from_json
from rmqstore.repair.plan.plan import SCHEMA, Loss, Plan
from rmqstore.repair.plan.steps import JSON_FIELDS, Overwrite, Span, Step, WithContent
from rmqstore.texts import Text

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
        if type(value) is not kind:
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
                'plan: not a plan file of this rmqstore: its "schema" is {schema!r}, not {schema2!r}',
                schema=schema,
                schema2=SCHEMA,
            )
        )
    digest = reader.optional_text("digest")
    try:
        plan = _plan(reader, read_content)
    except BrokenPlan as error:  # the user's file is wrong, not the planner
        raise UsageError(error.message) from error
    reader.finish()
    if store is not None:
        if real_path(Path(plan.store)) != real_path(store):
            raise UsageError(Text("plan: it was made for {store}, not for {store2}", store=plan.store, store2=store))
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
                "plan: {path}: length {length} does not fit the content of {length2} bytes",
                path=step.path,
                length=length,
                length2=step.length,
            )
        )
    return step
