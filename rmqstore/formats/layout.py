"""Layouts: a record is declared once, field by field, as a construct declaration; everything else derives from it.

`Record` declares a record of any length. It parses and builds single records at run time. `Layout` is a record of fixed
size, from which the NumPy dtype (for bulk work), the Arrow schema and the table of the man page derive as well.
Numbers are big-endian, as Java writes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from struct import Struct
from typing import TYPE_CHECKING, Any, TypeAlias

import construct

if TYPE_CHECKING:
    import numpy as np

Kind: TypeAlias = construct.Construct
Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Number:
    """What an integer of construct is elsewhere: NumPy code, Arrow type, and the words of the man page."""

    dtype: str
    arrow: str
    words: str


NUMBERS: Mapping[Kind, Number] = {
    construct.Int8sb: Number("i1", "int8", "8-bit signed"),
    construct.Int16sb: Number(">i2", "int16", "16-bit signed"),
    construct.Int32sb: Number(">i4", "int32", "32-bit signed"),
    construct.Int32ub: Number(">u4", "uint32", "32-bit unsigned"),
    construct.Int64sb: Number(">i8", "int64", "64-bit signed"),
}

# construct's Container is a dict: fields with these names would be shadowed by its methods
_SHADOWED = frozenset({"keys", "items", "values", "copy", "pop", "update", "clear", "search"})


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a record.

    `kind` is the construct type: one of `NUMBERS`, `Bytes(n)`, or an expression over earlier fields (`Record` only);
    `about` is the sentence for the man page; `unit` is what the number counts ("bytes", "ms", "units", "" for none);
    `const`, where given, is the value in a sound record.
    """

    name: str
    kind: Kind
    about: str
    unit: str = ""
    const: int | None = None

    @property
    def number(self) -> Number | None:
        """The integer type; None for bytes and for what depends on other fields."""
        return NUMBERS.get(self.kind.subcon if isinstance(self.kind, construct.Rebuild) else self.kind)

    @property
    def size(self) -> int:
        """Size on disk in bytes.

        Errors: construct.SizeofError for a field whose size depends on other fields.
        """
        return int(self.kind.sizeof())

    @property
    def dtype(self) -> str:
        """NumPy code of the field, big-endian."""
        return self.number.dtype if self.number else f"V{self.size}"

    @property
    def words(self) -> str:
        """The type in words, for the man page."""
        return self.number.words if self.number else _words(self.kind)


def arrow_type(field: Field) -> Any:
    """The Arrow type of a field of fixed size (needs pyarrow, extra `arrow`)."""
    import pyarrow as pa

    return getattr(pa, field.number.arrow)() if field.number else pa.binary(field.size)


def _words(kind: Kind) -> str:
    if kind in NUMBERS:
        return NUMBERS[kind].words
    if isinstance(kind, construct.Rebuild):
        return _words(kind.subcon)
    if isinstance(kind, construct.IfThenElse):
        one, other = _words(kind.elsesubcon), _words(kind.thensubcon)
        return "bytes" if "bytes" in (one, other) else f"{one} or {other}"
    try:
        return f"{kind.sizeof()} bytes"
    except (construct.SizeofError, KeyError):  # construct raises KeyError for an expression over other fields
        return "bytes"


class Record:
    """A record, declared field by field; the size of a field may depend on the fields before it.

    Units:  all offsets and sizes in bytes.
    Errors: ValueError for a field without a sentence, and for a name that is taken.
    """

    def __init__(self, name: str, source: str, *fields: Field, about: str = "") -> None:
        seen: set[str] = set()
        for f in fields:
            if f.name in _SHADOWED or f.name in seen:
                raise ValueError(f"{name}.{f.name}: name is taken")
            if not f.about.strip():
                raise ValueError(f"{name}.{f.name}: a field needs its sentence")
            seen.add(f.name)
        self.name = name
        self.source = source
        self.about = about
        self.fields = fields

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    @cached_property
    def struct(self) -> construct.Struct:
        """The construct declaration (interpreted: construct's compiled parsers are not for damaged data)."""
        return construct.Struct(*(construct.Renamed(f.kind, f.name, newdocs=f.about) for f in self.fields))

    def parse(self, data: Buffer, at: int = 0, size: int | None = None) -> dict[str, Any]:
        """The fields of one record at `at`, in declaration order; `size` bounds it (default: the end of the data).

        Errors: construct.StreamError where the data ends before the record does, or a length is negative.
        """
        found = self.struct.parse(bytes(data[at:] if size is None else data[at : at + size]))
        return {f.name: found[f.name] for f in self.fields}

    def build(self, values: Mapping[str, Any] | None = None, /, **named: Any) -> bytes:
        """Bytes of one record; fields not given take their constant, else 0. Lengths follow from what they count.

        Errors: construct.ConstructError for a value that does not fit its field.
        """
        return bytes(self.struct.build({**self._defaults(), **(values or {}), **named}))

    def spans(self, data: Buffer) -> list[tuple[Field, int, int]]:
        """Every field of one sound record with its start and stop, in bytes from the record's start.

        Errors: construct.StreamError where the data ends before the record does, or a length is negative.
        """
        found = self._measured.parse(bytes(data))
        stops = [found[f"{f.name} ends"] for f in self.fields]
        return list(zip(self.fields, [0, *stops], stops, strict=False))

    @cached_property
    def _measured(self) -> construct.Struct:
        parts = [(construct.Renamed(f.kind, f.name), f"{f.name} ends" / construct.Tell) for f in self.fields]
        return construct.Struct(*chain.from_iterable(parts))

    def _defaults(self) -> dict[str, Any]:
        return {f.name: f.const or 0 for f in self.fields if f.number}


class Layout(Record):
    """A record of fixed size. NumPy dtype, Arrow schema and manual derive from the declaration.

    Errors: construct.SizeofError for a field that has no fixed size.
    """

    def __init__(self, name: str, source: str, *fields: Field, about: str = "") -> None:
        super().__init__(name, source, *fields, about=about)
        at = 0
        self._at: dict[str, int] = {}
        for f in fields:
            self._at[f.name] = at
            at += f.size
        self.size = at

    def at(self, name: str) -> int:
        """Position of a field from the start of the record, in bytes."""
        return self._at[name]

    def parse(self, data: Buffer, at: int = 0, size: int | None = None) -> dict[str, Any]:
        """The fields of one record at `at`, in declaration order.

        Errors: construct.StreamError for fewer bytes than a record has.
        """
        return super().parse(data, at, self.size if size is None else size)

    def unpack(self, data: Buffer, at: int = 0) -> dict[str, Any]:
        """The same as `parse`, ten times as fast: for loops over records.

        Errors: struct.error for fewer bytes than a record has.
        """
        return dict(zip(self._at, self.packer.unpack_from(data, at), strict=True))

    def _defaults(self) -> dict[str, Any]:
        return {f.name: (f.const or 0) if f.number else bytes(f.size) for f in self.fields}

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype; its itemsize is checked against the declaration."""
        import numpy as np

        dtype = np.dtype([(f.name, f.dtype) for f in self.fields])
        if dtype.itemsize != self.struct.sizeof():
            raise ValueError(f"{self.name}: dtype has {dtype.itemsize} bytes, the declaration {self.struct.sizeof()}")
        return dtype

    @cached_property
    def packer(self) -> Struct:
        """The layout for the struct module of the standard library: for loops that build or read many records."""
        return Struct(">" + "".join(f.kind.fmtstr[1] if f.number else f"{f.size}s" for f in self.fields))

    def arrow_schema(self) -> Any:
        """The Arrow schema (needs pyarrow, extra `arrow`)."""
        import pyarrow as pa

        return pa.schema(
            [pa.field(f.name, arrow_type(f), metadata={"about": f.about, "unit": f.unit}) for f in self.fields]
        )

    def array(self, data: Buffer) -> np.ndarray[Any, Any]:
        """All whole records of `data` as a structured array (a view: no copy).

        Shape: (len(data) // size,)
        """
        import numpy as np

        count = len(data) // self.size
        return np.frombuffer(data, dtype=self.dtype, count=count)


def fixed_part(record: Record, name: str, about: str, **flags: int) -> Layout:
    """The leading fields of a record whose sizes follow from `flags` (values of fields), as a layout."""
    fields: list[Field] = []
    for f in record:
        kind = f.kind.subcon if isinstance(f.kind, construct.Rebuild) else f.kind
        if isinstance(kind, construct.IfThenElse):
            try:
                kind = kind.thensubcon if kind.condfunc(construct.Container(flags)) else kind.elsesubcon
            except KeyError:  # it depends on a field that is not among the flags
                break
        fields.append(Field(f.name, kind, f.about, f.unit, f.const))
    return Layout(name, record.source, *fields, about=about)
