"""Declare each binary record once, field by field, with construct; everything else derives from the declaration.

`Record` declares a record of variable size, and parses and builds single records. `Layout` declares a record of fixed
size; the NumPy dtype for bulk reads, the Arrow schema and the table of the man page derive from it too.
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
    """The NumPy code, Arrow type and man page wording of one of construct's integer types."""

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

# construct's Container is a dict: its methods would shadow fields with these names
_SHADOWED = frozenset({"keys", "items", "values", "copy", "pop", "update", "clear", "search"})


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a record.

    `kind` is the construct type: one of `NUMBERS`, `Bytes(n)`, or an expression over earlier fields (`Record` only);
    `about` is its description in the man page; `unit` is the unit of measure ("bytes", "ms", "units", "" for none);
    `const`, if set, is the only valid value.
    """

    name: str
    kind: Kind
    about: str
    unit: str = ""
    const: int | None = None

    @property
    def number(self) -> Number | None:
        """The integer type; None for bytes and for types that depend on other fields."""
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
    """Return the Arrow type of a field of fixed size (needs pyarrow, extra `arrow`)."""
    import pyarrow as pa

    return getattr(pa, field.number.arrow)() if field.number else pa.binary(field.size)


def _words(kind: Kind) -> str:
    if kind in NUMBERS:
        return NUMBERS[kind].words
    if isinstance(kind, construct.Rebuild):
        return _words(kind.subcon)
    if isinstance(kind, construct.IfThenElse):
        without, with_flag = _words(kind.elsesubcon), _words(kind.thensubcon)
        return "bytes" if "bytes" in (without, with_flag) else f"{without} or {with_flag}"
    try:
        return f"{kind.sizeof()} bytes"
    except (construct.SizeofError, KeyError):  # construct raises KeyError for an expression over other fields
        return "bytes"


class Record:
    """A record, declared field by field; the size of a field may depend on earlier fields.

    Units:  all offsets and sizes in bytes.
    Errors: ValueError for a field without a description, and for a duplicate or reserved name.
    """

    def __init__(self, name: str, source: str, *fields: Field, about: str = "") -> None:
        seen: set[str] = set()
        for f in fields:
            if f.name in _SHADOWED or f.name in seen:
                raise ValueError(f"{name}.{f.name}: name is taken")
            if not f.about.strip():
                raise ValueError(f"{name}.{f.name}: a field needs a description")
            seen.add(f.name)
        self.name = name
        self.source = source
        self.about = about
        self.fields = fields

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    @cached_property
    def struct(self) -> construct.Struct:
        """The construct declaration (not compiled: construct's compiled parsers do not check damaged data)."""
        return construct.Struct(*(construct.Renamed(f.kind, f.name, newdocs=f.about) for f in self.fields))

    def parse(self, data: Buffer, at: int = 0, size: int | None = None) -> dict[str, Any]:
        """Parse one record at `at`, bounded by `size` (default: the end of the data); fields in declaration order.

        Errors: construct.StreamError if the data ends before the record does, or a length is negative.
        """
        found = self.struct.parse(bytes(data[at:] if size is None else data[at : at + size]))
        return {f.name: found[f.name] for f in self.fields}

    def build(self, values: Mapping[str, Any] | None = None, /, **named: Any) -> bytes:
        """Return the bytes of one record; a missing field gets its constant or 0, and a length field is computed.

        Errors: construct.ConstructError for a value that does not fit its field.
        """
        return bytes(self.struct.build({**self._defaults(), **(values or {}), **named}))

    def spans(self, data: Buffer) -> list[tuple[Field, int, int]]:
        """List the fields of one sound record with their start and stop, in bytes from the record's start.

        Errors: construct.StreamError if the data ends before the record does, or a length is negative.
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
    """A record of fixed size, with a NumPy dtype and an Arrow schema.

    Errors: construct.SizeofError for a field without a fixed size.
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
        """Return the position of a field, in bytes from the record's start."""
        return self._at[name]

    def parse(self, data: Buffer, at: int = 0, size: int | None = None) -> dict[str, Any]:
        """Parse one record at `at`; fields in declaration order.

        Errors: construct.StreamError if the data is shorter than the record.
        """
        return super().parse(data, at, self.size if size is None else size)

    def unpack(self, data: Buffer, at: int = 0) -> dict[str, Any]:
        """Parse one record at `at` with the struct module, ten times faster than `parse`: for loops.

        Errors: struct.error if the data is shorter than the record.
        """
        return dict(zip(self._at, self.packer.unpack_from(data, at), strict=True))

    def _defaults(self) -> dict[str, Any]:
        return {f.name: (f.const or 0) if f.number else bytes(f.size) for f in self.fields}

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype.

        Errors: ValueError if its size differs from the declaration's.
        """
        import numpy as np

        dtype = np.dtype([(f.name, f.dtype) for f in self.fields])
        if dtype.itemsize != self.struct.sizeof():
            raise ValueError(f"{self.name}: dtype has {dtype.itemsize} bytes, the declaration {self.struct.sizeof()}")
        return dtype

    @cached_property
    def packer(self) -> Struct:
        """The record as a struct.Struct: for loops that build or read many records."""
        return Struct(">" + "".join(f.kind.fmtstr[1] if f.number else f"{f.size}s" for f in self.fields))

    def arrow_schema(self) -> Any:
        """Return the Arrow schema (needs pyarrow, extra `arrow`)."""
        import pyarrow as pa

        return pa.schema(
            [pa.field(f.name, arrow_type(f), metadata={"about": f.about, "unit": f.unit}) for f in self.fields]
        )

    def array(self, data: Buffer) -> np.ndarray[Any, Any]:
        """Return all complete records of `data` as a structured array: a view of shape (len(data) // size,)."""
        import numpy as np

        count = len(data) // self.size
        return np.frombuffer(data, dtype=self.dtype, count=count)


def fixed_part(record: Record, name: str, about: str, **flags: int) -> Layout:
    """Return the leading fields of a record as a layout, up to the first size that `flags` does not determine.

    `flags` holds the values of the fields on which sizes depend.
    """
    fields: list[Field] = []
    for f in record:
        kind = f.kind.subcon if isinstance(f.kind, construct.Rebuild) else f.kind
        if isinstance(kind, construct.IfThenElse):
            try:
                kind = kind.thensubcon if kind.condfunc(construct.Container(flags)) else kind.elsesubcon
            except KeyError:  # the size depends on a field that is not among the flags
                break
        try:
            kind.sizeof()
        except (construct.SizeofError, KeyError):  # the size depends on an earlier field
            break
        fields.append(Field(f.name, kind, f.about, f.unit, f.const))
    return Layout(name, record.source, *fields, about=about)
