"""The state file of `--since-last`: a line with store and version, a line for each kept part, and a digest of all.

It is text, and nothing in it is executed. Its content is not trusted: the type of every value is checked.
"""

from __future__ import annotations

import base64
import hashlib
import os
import stat
import zlib
from collections import Counter
from dataclasses import fields, is_dataclass
from enum import IntEnum
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, BinaryIO, Union, get_args, get_origin, get_type_hints

import orjson

from rmqstore.checks.since_last.kept_part import KeptPart
from rmqstore.errors import UsageError
from rmqstore.files.disk import real_path
from rmqstore.texts import Text

SCHEMA = "rmqstore.last-run/1"
_HEAD_LIMIT = 1 << 16
_PART_LIMIT = 256 << 20  # bytes of an unpacked part, to limit memory if the file is damaged
_ADVICE = Text("name another file, or remove this one")


# --- values ----------------------------------------------------------------------------------------------------------


def encoded(value: Any) -> Any:
    """Convert data classes, lists, tuples, dicts, sets and numbers to values that JSON has."""
    if is_dataclass(value):
        return [encoded(getattr(value, f.name)) for f in fields(value)]
    if isinstance(value, dict):
        return [[encoded(k), encoded(v)] for k, v in value.items()]
    if isinstance(value, set):
        return sorted(value)
    if isinstance(value, list | tuple):
        return [encoded(one) for one in value]
    return int(value) if isinstance(value, IntEnum) else value


def decoded(hint: Any, data: Any) -> Any:
    """Convert the result of `encoded` back to a type. Errors: ValueError if the data does not have that type."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        if any(type(data) is one for one in inner):
            return data
        raise ValueError(Text("{data!r} is not {hint}", data=data, hint=hint))
    if hint in (int, str, bool, float):
        if type(data) is not hint:
            raise ValueError(Text("{data!r} is not {hint}", data=data, hint=hint))
        return data
    if not isinstance(data, list):
        raise ValueError(Text("{data!r} is not a list", data=data))
    if is_dataclass(hint):
        return _decoded_class(hint, data)
    if origin is tuple and inner[-1:] != (...,):
        return tuple(decoded(one, value) for one, value in zip(inner, data, strict=True))
    if origin in (list, set):
        return origin(decoded(inner[0], one) for one in data)
    if origin in (dict, Counter):
        pairs = [decoded(tuple[inner if origin is dict else (*inner, int)], one) for one in data]  # type: ignore[misc]
        return origin(dict(pairs))
    raise ValueError(Text("{hint} cannot be read", hint=hint))


def _decoded_class(hint: Any, data: list[Any]) -> Any:
    hints = _hints(hint)
    return hint(**{name: decoded(hints[name], value) for name, value in zip(hints, data, strict=True)})


@cache
def _hints(cls: Any) -> dict[str, Any]:
    """Return field -> type of a data class, in order."""
    found = get_type_hints(cls)
    return {f.name: found[f.name] for f in fields(cls)}


def packed(part: KeptPart) -> bytes:
    """Return the text of a part in the state file."""
    return base64.b64encode(zlib.compress(orjson.dumps(encoded(part)), 3))


def unpacked(line: bytes) -> KeptPart:
    """Parse the text of a part. Errors: ValueError."""
    stream = zlib.decompressobj()
    try:
        text = stream.decompress(base64.b64decode(line, validate=True), _PART_LIMIT)
    except zlib.error as e:
        raise ValueError(str(e)) from None
    part: KeptPart = decoded(KeptPart, orjson.loads(text))
    return part


# --- the file --------------------------------------------------------------------------------------------------------


class OldState:
    """The state file of the last run; parts are read on demand. `why_not`: why it is not used, or ""."""

    def __init__(self, path: Path, store: Path, version: str) -> None:
        """`version` of rmqstore. Errors: UsageError for a file that is not a state file, or is of another store."""
        self.version = version
        self.why_not = ""
        self._file: BinaryIO | None = None
        self._lines: dict[bytes, tuple[int, int]] = {}
        try:
            found = path.stat()
            if not stat.S_ISREG(found.st_mode):
                raise UsageError(Text("{path} is not a file", path=path), _ADVICE)
            file = path.open("rb")
        except FileNotFoundError:
            return
        if not found.st_size:
            file.close()
            return
        if found.st_uid not in (os.geteuid(), 0) or found.st_mode & 0o022:
            self.why_not = Text("others can write to {path}", path=path)
        try:
            written_by = self._head(path, file, store)
            if written_by != version:
                self.why_not = self.why_not or Text(
                    "{path} is of rmqstore {written_by}", path=path, written_by=written_by
                )
            if not self.why_not and not self._read(file):
                self.why_not = Text("{path} is damaged", path=path)
            if not self.why_not:
                self._file = file
        finally:
            if self._file is None:
                self._lines.clear()
                file.close()

    @staticmethod
    def _head(path: Path, file: BinaryIO, store: Path) -> str:
        try:
            head = orjson.loads(file.readline(_HEAD_LIMIT))
            schema, of, version = head["schema"], head["store"], str(head["rmqstore"])
        except (ValueError, KeyError, TypeError):
            schema, of, version = "", "", ""
        if schema != SCHEMA:
            raise UsageError(Text("{path} is not a file that --since-last wrote", path=path), _ADVICE)
        if of != store_name(store):
            raise UsageError(Text("{path} is of another store: {of}", path=path, of=of), _ADVICE)
        return version

    def _read(self, file: BinaryIO) -> bool:
        """Find the place of each part; return False if the digest does not match."""
        digest = hashlib.blake2b(digest_size=32)
        file.seek(0)
        digest.update(file.readline())
        at, last = file.tell(), b""
        for line in file:
            if last:
                digest.update(last)
                place, _, rest = last.partition(b"\t")
                self._lines[place] = (at - len(rest), len(rest) - 1)
            at, last = at + len(line), line
        return last == digest.hexdigest().encode() + b"\n"

    def line(self, place: bytes) -> bytes:
        """Return the packed part of a place; empty without one."""
        at, size = self._lines.get(place, (0, 0))
        return os.pread(self._file.fileno(), size, at) if self._file is not None and size else b""

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def store_name(store: Path) -> str:
    return os.fsencode(real_path(store)).decode("utf-8", "backslashreplace")
