"""The JSON objects and rows that commands print or write, from their declarations in `json_reference.txt`.

`python -m rmqstore.manual` generates `rmqstore/schemas/NAME.json` (JSON Schema, draft 2020-12) and rmqstore-json(7)
from these declarations.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rmqstore.formats import checkpoint, compaction, consumequeue, dledger, index, timer
from rmqstore.formats.layout import Record
from rmqstore.messages.schema import BODY, COLUMNS, DUMPED, EXPORTED, POSITIONS, SIDE, Column

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_SIMPLE = {"int": "integer", "num": "number", "str": "string", "bool": "boolean", "null": "null"}
_LINE = re.compile(r"(?P<name>\S+?)(?P<optional>\??) (?P<type>\S+)(?: \((?P<unit>[^)]*)\))?: (?P<about>.+)")
_OBJECT = re.compile(r"= (?P<name>\S+): (?P<source>.+?)(?: \((?P<schema>[^ )]+)\))?")
_PART = re.compile(r"\[(\w+)\]")
_BETWEEN = re.compile(r"/(?![^\[{]*[\]}])")


class JsonField(NamedTuple):
    """One field; `unit` is the unit of a number, "" without one."""

    name: str
    optional: bool
    type: str
    unit: str
    about: str


class Document(NamedTuple):
    """An object or row that a command prints or writes, in one of several alternative `forms`.

    `source` is the command. `schema` is the value of the field `schema`, "" without such a field.
    """

    source: str
    schema: str
    about: str
    forms: tuple[str, ...]


# --- declarations ----------------------------------------------------------------------------------------------------

_COLUMN_TYPES = {"int32": "int", "int64": "int", "time": "int", "string": "str", "binary": "str", "map": "{str}"}
_NULLABLE = ("tags", "keys", "unique_key")


def _column(column: Column, optional: bool = False) -> str:
    kind = _COLUMN_TYPES.get(column.type, column.type) + ("/null" if column.name in _NULLABLE else "")
    unit = "ms" if column.type == "time" else column.unit
    about = f"{column.about} In base64." if column.type == "binary" else column.about
    return _line(column.name, "any" if column.name == "body" else kind, unit, about, optional)


def _line(name: str, kind: str, unit: str, about: str, optional: bool = False) -> str:
    return f"{name}{'?' if optional else ''} {kind}{f' ({unit})' if unit else ''}: {about}"


def _columns(needed: Iterable[str], optional: Iterable[str]) -> str:
    return "\n".join(
        [*(_column(COLUMNS[name]) for name in needed), *(_column(COLUMNS[name], True) for name in optional)]
    )


def _record(record: Record, optional: bool = False) -> str:
    return "\n".join(_line(field.name, "int", field.unit, field.about, optional) for field in record)


def _declared() -> tuple[dict[str, Document], dict[str, str]]:
    """Read the objects and the parts of `json_reference.txt`. Errors: ValueError."""
    objects: dict[str, Document] = {}
    parts: dict[str, str] = {}
    for block in Path(__file__).with_suffix(".txt").read_text("utf-8").strip().split("\n\n"):
        head, _, text = block.partition("\n")
        if found := _OBJECT.fullmatch(head):
            about, _, forms = text.partition("\n")
            objects[found["name"]] = Document(found["source"], found["schema"] or "", about, (*forms.split("\nor\n"),))
        elif found := _PART.fullmatch(head):
            parts[found[1]] = text
        elif not head.startswith("#"):
            raise ValueError(f"neither an object nor a part: {head!r}")
    return objects, parts


DOCUMENTS, _PARTS = _declared()
"""Every object and row by the name of its schema file."""

PARTS: dict[str, str] = _PARTS | {
    "dump_columns": _columns(DUMPED, BODY),
    "exported": _columns(EXPORTED, (*BODY, *POSITIONS, *SIDE)),
    "unit": _record(consumequeue.UNIT),
    "batch_unit": _record(consumequeue.BATCH_UNIT),
    "sparse_unit": _record(compaction.SPARSE_UNIT),
    "entry": _record(dledger.ENTRY),
    "dledger_index_unit": _record(dledger.INDEX_UNIT),
    "index_header": _record(index.HEADER),
    "index_unit": _record(index.UNIT),
    "timer_log_unit": _record(timer.LOG_UNIT),
    "wheel_slot": _record(timer.WHEEL_SLOT),
    "checkpoint": _record(checkpoint.STORE_CHECKPOINT),
    "optional_checkpoint": _record(checkpoint.STORE_CHECKPOINT, True),
    "optional_timercheck": _record(timer.TIMERCHECK, True),
}
"""Parts that objects share, by name."""


# --- schemas ---------------------------------------------------------------------------------------------------------


def fields(text: str) -> Iterator[JsonField]:
    """Yield the fields of a declaration, including those of `*PART` lines. Errors: ValueError, KeyError."""
    for line in text.strip().splitlines():
        if line.startswith("*"):
            yield from fields(PARTS[line[1:]])
        elif match := _LINE.fullmatch(line):
            yield JsonField(match["name"], bool(match["optional"]), match["type"], match["unit"] or "", match["about"])
        else:
            raise ValueError(f"not a field: {line!r}")


def parts_of(text: str) -> list[str]:
    """Return the names of all parts that a declaration refers to, directly or through parts, in order."""
    found: dict[str, None] = {}
    for field in fields(text):
        for name in re.findall(r"@(\w+)", field.type):
            found |= dict.fromkeys((name, *parts_of(PARTS[name])))
    return list(found)


def _type(text: str) -> dict[str, Any]:
    either = _BETWEEN.split(text)
    if len(either) > 1:
        return {"anyOf": [_type(one) for one in either]}
    if text.startswith("["):
        return {"type": "array", "items": _type(text[1:-1])}
    if text.startswith("{"):
        return {"type": "object", "additionalProperties": _type(text[1:-1])}
    if text.startswith("@"):
        return {"$ref": f"#/$defs/{text[1:]}"}
    return {} if text == "any" else {"type": _SIMPLE[text]}


def _object(text: str, schema: str = "") -> dict[str, Any]:
    every = list(fields(text))
    head = {"schema": {"const": schema, "description": "Name and version of this object."}} if schema else {}
    return {
        "type": "object",
        "properties": head
        | {f.name: _type(f.type) | {"description": f.about} | ({"x-unit": f.unit} if f.unit else {}) for f in every},
        "required": [*head, *(f.name for f in every if not f.optional)],
        "additionalProperties": False,
    }


def schema_of(name: str) -> dict[str, Any]:
    """Build the JSON Schema of an object or row."""
    document = DOCUMENTS[name]
    forms = [_object(form, document.schema) for form in document.forms]
    needed = sorted({part for form in document.forms for part in parts_of(form)})
    return {
        "$schema": DIALECT,
        "title": f"rmqstore {document.source}",
        "description": document.about,
        **(forms[0] if len(forms) == 1 else {"oneOf": forms}),
        **({"$defs": {part: _object(PARTS[part]) for part in needed}} if needed else {}),
    }


def schema_files() -> dict[str, str]:
    """Return all files of `rmqstore/schemas/`: name → text."""
    return {f"{name}.json": json.dumps(schema_of(name), indent=1) + "\n" for name in DOCUMENTS}
