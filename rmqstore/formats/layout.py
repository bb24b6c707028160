"""A layout is written once: fields with a type, a unit and a sentence; everything else is derived from it.

`Layout` holds fixed-size big-endian records. From the one declaration come: the construct parser and builder (for
single records and small files), the NumPy dtype (for bulk work), the Arrow types and the table of the man page.
Variable-size records (the message) use construct directly over layouts for their fixed parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from struct import Struct
from struct import error as PackError
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

# name -> (size in bytes, numpy code, arrow type name, how the man page calls it)
TYPES: Mapping[str, tuple[int, str, str, str]] = {
    "i8": (1, "i1", "int8", "8-bit signed"),
    "i16": (2, ">i2", "int16", "16-bit signed"),
    "i32": (4, ">i4", "int32", "32-bit signed"),
    "u32": (4, ">u4", "uint32", "32-bit unsigned"),
    "i64": (8, ">i8", "int64", "64-bit signed"),
}

# construct's Container is a dict: fields with these names would be shadowed by its methods
_SHADOWED = frozenset({"keys", "items", "values", "copy", "pop", "update", "clear", "search"})


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a layout.

    `type` is one of `TYPES` or `bytes:N`; `unit` is what the number counts ("bytes", "ms", "units", "" for none);
    `about` is the sentence for the man page; `const`, where given, is the value that a sound record has.
    """

    name: str
    type: str
    about: str
    unit: str = ""
    const: int | None = None

    @property
    def size(self) -> int:
        """Bytes that the field takes on disk."""
        if self.type.startswith("bytes:"):
            return int(self.type[6:])
        return TYPES[self.type][0]

    @property
    def dtype(self) -> str:
        """NumPy code of the field, big-endian."""
        if self.type.startswith("bytes:"):
            return f"V{self.size}"
        return TYPES[self.type][1]


class Layout:
    """A fixed-size big-endian record, declared once.

    Units:  all offsets and sizes in bytes.
    Errors: ValueError for a declaration that construct or NumPy could not carry; `parse` of too few bytes raises
            construct's StreamError.
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
        self.size = sum(f.size for f in fields)
        at = 0
        self._at: dict[str, int] = {}
        for f in fields:
            self._at[f.name] = at
            at += f.size

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def at(self, name: str) -> int:
        """Position of a field from the start of the record, in bytes."""
        return self._at[name]

    @cached_property
    def struct(self) -> Any:
        """The construct declaration (interpreted: construct's compiled parsers are not for damaged data)."""
        import construct as c

        kinds = {"i8": c.Int8sb, "i16": c.Int16sb, "i32": c.Int32sb, "u32": c.Int32ub, "i64": c.Int64sb}
        return c.Struct(
            *(f.name / (c.Bytes(f.size) if f.type.startswith("bytes:") else kinds[f.type]) for f in self.fields)
        )

    @cached_property
    def _codes(self) -> Struct:
        """The same for the struct module: importing construct takes longer than all else that `info` does."""
        kinds = {"i8": "b", "i16": "h", "i32": "i", "u32": "I", "i64": "q"}
        return Struct(
            ">" + "".join(f"{f.size}s" if f.type.startswith("bytes:") else kinds[f.type] for f in self.fields)
        )

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype; its itemsize is checked against the declaration."""
        import numpy as np

        dtype = np.dtype([(f.name, f.dtype) for f in self.fields])
        if dtype.itemsize != self.size:
            raise ValueError(f"{self.name}: dtype has {dtype.itemsize} bytes, the declaration {self.size}")
        return dtype

    def arrow_schema(self) -> Any:
        """The Arrow schema (needs pyarrow, extra `arrow`)."""
        import pyarrow as pa

        def of(f: Field) -> Any:
            if f.type.startswith("bytes:"):
                return pa.binary(f.size)
            return getattr(pa, TYPES[f.type][2])()

        return pa.schema([pa.field(f.name, of(f), metadata={"about": f.about, "unit": f.unit}) for f in self.fields])

    def parse(self, data: bytes | bytearray | memoryview, at: int = 0) -> dict[str, Any]:
        """One record as a plain dict, in declaration order."""
        if at < 0 or len(data) - at < self.size:
            got = self.struct.parse(bytes(data[at : at + self.size]))  # says what is missing
            return {f.name: got[f.name] for f in self.fields}
        return dict(zip(self._at, self._codes.unpack_from(data, at), strict=True))

    def build(self, values: Mapping[str, Any] | None = None, /, **named: Any) -> bytes:
        """Bytes of one record; fields not given take their constant, else 0."""
        full: dict[str, Any] = {
            f.name: (b"\0" * f.size if f.type.startswith("bytes:") else (f.const or 0)) for f in self.fields
        }
        full.update(values or {})
        full.update(named)
        try:
            if all(len(full[f.name]) == f.size for f in self.fields if f.type.startswith("bytes:")):
                return self._codes.pack(*(full[f.name] for f in self.fields))
        except (PackError, TypeError):
            pass
        return bytes(self.struct.build(full))  # says what does not fit

    def array(self, data: bytes | bytearray | memoryview) -> np.ndarray[Any, Any]:
        """All whole records of `data` as a structured array (a view: no copy).

        Shape: (len(data) // size,)
        """
        import numpy as np

        count = len(data) // self.size
        return np.frombuffer(data, dtype=self.dtype, count=count)

    def table(self) -> list[tuple[int, str, str, str, str]]:
        """Rows (at, name, type, unit, about) for manual pages and annotated hex."""
        return [
            (
                self.at(f.name),
                f.name,
                TYPES[f.type][3] if f.type in TYPES else f"{f.size} bytes",
                f.unit,
                f.about,
            )
            for f in self.fields
        ]
