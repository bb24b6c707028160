"""The sources given in docstrings, `Class#member`, exist in the released classes of RocketMQ."""

from __future__ import annotations

import re
import struct
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real_broker.java import BrokerUnavailable, java_classes
from tests.stores import ROOT, VERSIONS

pytestmark = pytest.mark.broker

JDK = {"ByteBuffer", "File", "FileChannel", "Properties", "String"}
# a member without a class belongs to the last class before it
NAMED = re.compile(r"(?:\b([A-Z]\w+) ?|(?<=, )|(?<=,\n))#([a-z]\w+|[A-Z][A-Z_]+)\b")
CONSTANT_SIZES = {5: 8, 6: 8, 7: 2, 8: 2, 15: 3, 16: 2, 19: 2, 20: 2}  # bytes by tag; 4 for other tags


def members(data: bytes) -> Iterator[str]:
    """Yield the fields and methods that a class file declares (Java Virtual Machine Specification, chapter 4)."""
    texts: dict[int, str] = {}
    (count,), at, number = struct.unpack_from(">H", data, 8), 10, 1
    while number < count:
        tag = data[at]
        if tag == 1:
            (length,) = struct.unpack_from(">H", data, at + 1)
            texts[number] = data[at + 3 : at + 3 + length].decode("utf-8", "replace")
            at += 3 + length
        else:
            at += 1 + CONSTANT_SIZES.get(tag, 4)
        number += 2 if tag in (5, 6) else 1  # a long or a double takes two numbers
    (interfaces,) = struct.unpack_from(">H", data, at + 6)
    at += 8 + 2 * interfaces
    for _ in ("fields", "methods"):
        (declared,) = struct.unpack_from(">H", data, at)
        at += 2
        for _ in range(declared):
            _, name, _, attributes = struct.unpack_from(">4H", data, at)
            at += 8
            yield texts[name]
            for _ in range(attributes):
                at += 6 + struct.unpack_from(">I", data, at + 2)[0]


def declared_in(libraries: set[Path], wanted: set[str]) -> dict[str, set[str]]:
    """Return the members of these classes; inner classes have their simple name."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for library in libraries:
        with zipfile.ZipFile(library) as jar:
            for entry in jar.namelist():
                name = re.split(r"[/$]", entry.removesuffix(".class"))[-1]
                if entry.endswith(".class") and name in wanted:
                    found[name].update(members(jar.read(entry)))
    return found


def named_sources() -> Iterator[tuple[str, str, str]]:
    """Yield (place, class, member) of all sources given in our modules."""
    for path in sorted((ROOT / "rmqstore").rglob("*.py")):
        text, last = path.read_text("utf-8"), ""
        for match in NAMED.finditer(text):
            last = match[1] or last
            line = text.count("\n", 0, match.start()) + 1
            yield f"{path.relative_to(ROOT)}:{line}", last, match[2]


def test_every_class_and_member_named_as_a_source_exists() -> None:
    try:
        libraries = {library for version in VERSIONS for library in java_classes(version).libraries}
    except BrokerUnavailable as missing:
        pytest.skip(str(missing))
    named = [row for row in named_sources() if row[1] not in JDK]
    assert len(named) > 200
    declared = declared_in(libraries, {name for _, name, _ in named})
    assert [f"{place} {name}#{member}" for place, name, member in named if member not in declared.get(name, ())] == []
