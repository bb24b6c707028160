"""Run verify on one store with several options, and find positions in logs and queues to damage."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rmqstore.checks.examine import verify
from rmqstore.checks.options import VerifyOptions
from rmqstore.checks.problems.report import Report
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import open_store
from tests import damage
from tests.seeds import SEED
from tests.untouched import assert_untouched

UNIT = 20
HEAD = {  # position and width of the fixed fields of a record with IPv4 hosts
    "size": (0, 4),
    "magic": (4, 4),
    "body_crc": (8, 4),
    "queue_id": (12, 4),
    "flag": (16, 4),
    "queue_offset": (20, 8),
    "physical_offset": (28, 8),
    "sys_flag": (36, 4),
    "born_timestamp": (40, 8),
    "born_host": (48, 8),
    "store_timestamp": (56, 8),
    "store_host": (64, 8),
    "reconsume_times": (72, 4),
    "prepared_offset": (76, 8),
    "body_length": (84, 4),
    "body": (88, 1),
}
_BLANK = 0xCBD43194
_WHOLE = VerifyOptions(jobs=1)
_SPLIT = VerifyOptions(jobs=1, split_size=8192)
_IN_PIECES = VerifyOptions(jobs=1, split_size=1500)
_PARALLEL = VerifyOptions(jobs=2, split_size=8192)


def look(store: Path, *, config: BrokerConfig | None = None, parallel: bool = False) -> Report:
    """Verify a store, check that the report is the same with other splits (or two processes), and return it."""
    with assert_untouched(store):
        reports = [verify(open_store(store, config), way) for way in _ways(store, parallel)]
    first = _plain(reports[0])
    for report in reports[1:]:
        assert _plain(report) == first
    return reports[0]


def _ways(store: Path, parallel: bool) -> list[VerifyOptions]:
    """Return the options to compare: the whole log, splits in half of the tests, tiny splits in a quarter.

    Of the tests with `parallel`, half use two processes. Tiny splits take five times as long as the others, and
    processes need a third of a second to start. With `make test-all`, every test uses all options.
    """
    number = zlib.crc32(store.parent.name.encode()) % 4  # of a directory named by the test
    ways = [_WHOLE]
    if SEED or number in (1, 3):
        ways.append(_SPLIT)
    if SEED or number == 0:
        ways.append(_IN_PIECES)
    if parallel and (SEED or number in (0, 2)):
        ways.append(_PARALLEL)
    return ways


def counts(store: Path, *, config: BrokerConfig | None = None, parallel: bool = False) -> dict[str, int]:
    """Return the number of findings of `look` by code."""
    return dict(look(store, config=config, parallel=parallel).findings.counts)


def facts(report: Report, code: str) -> dict[str, object]:
    """Return the facts of the only finding with a code."""
    (finding,) = [f for f in report.findings.listed if f.code == code]
    return dict(finding.facts)


def _plain(report: Report) -> dict[str, object]:
    """Return a report without its costs, and with its findings in an order that does not depend on the options."""
    plain = report.to_json()
    del plain["seconds"]
    plain["findings"] = sorted(plain["findings"], key=repr)
    return plain


@dataclass(frozen=True, slots=True)
class Record:
    """A record in its file: position and size in bytes."""

    file: Path
    at: int
    size: int

    @property
    def offset(self) -> int:
        """The physical offset."""
        return int(self.file.name) + self.at

    @property
    def raw(self) -> bytes:
        return self.file.read_bytes()[self.at : self.at + self.size]

    def field(self, name: str) -> int:
        """Return the value of a fixed field."""
        at, width = HEAD[name]
        return int.from_bytes(self.raw[at : at + width], "big", signed=True)

    @property
    def parts(self) -> dict[str, tuple[int, int]]:
        """Return position and width of topic, properties and their length fields."""
        raw = self.raw
        topic = 89 + self.field("body_length")
        length = raw[topic - 1]
        (text,) = struct.unpack_from(">h", raw, topic + length)
        at = topic + length
        return {
            "topic_length": (topic - 1, 1),
            "topic": (topic, length),
            "properties_length": (at, 2),
            "properties": (at + 2, text),
        }

    @property
    def topic(self) -> str:
        at, length = self.parts["topic"]
        return self.raw[at : at + length].decode()

    @property
    def properties(self) -> bytes:
        at, length = self.parts["properties"]
        return self.raw[at : at + length]

    def flip(self, name: str, byte: int = -1, bit: int = 0) -> None:
        """Flip one bit of a field; a negative `byte` counts from its end."""
        at, width = (HEAD | self.parts)[name] if name not in HEAD else HEAD[name]
        damage.flip(self.file, self.at + at + range(width)[byte], bit)

    def put(self, name: str, value: int) -> None:
        """Write another value into a fixed field."""
        at, width = HEAD[name]
        damage.overwrite(self.file, self.at + at, value.to_bytes(width, "big", signed=True))


def spans(content: bytes) -> Iterator[tuple[int, int]]:
    """Yield [start, stop) of the records of a commitlog file, up to its BLANK or end."""
    at = 0
    while at + 8 <= len(content):
        size, magic = struct.unpack_from(">iI", content, at)
        if size <= 8 or magic == _BLANK:
            return
        yield at, at + size
        at += size


def records(store: Path) -> list[Record]:
    """Return all records of a sound commitlog in order."""
    files = sorted((store / "commitlog").iterdir())
    return [Record(file, a, b - a) for file in files for a, b in spans(file.read_bytes())]


def unit(offset: int, size: int, tags: int = 0) -> bytes:
    """Build a consume queue unit."""
    return struct.pack(">qiq", offset, size, tags)


class Units:
    """The units of a consume queue by index."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        first = min(directory.iterdir())
        self.per_file = first.stat().st_size // UNIT

    def place(self, index: int) -> tuple[Path, int]:
        """Return the file of a unit, and its position in the file."""
        start = index // self.per_file * self.per_file
        return self.directory / f"{start * UNIT:020d}", (index - start) * UNIT

    def read(self, index: int) -> tuple[int, int, int]:
        """Return commitlog offset, size and tags code of a unit."""
        file, at = self.place(index)
        with file.open("rb") as data:
            data.seek(at)
            offset, size, tags = struct.unpack(">qiq", data.read(UNIT))
        return offset, size, tags

    def write(self, index: int, content: bytes) -> None:
        """Overwrite bytes from a unit on, within its file."""
        file, at = self.place(index)
        damage.overwrite(file, at, content)

    def zero(self, index: int, count: int = 1) -> None:
        """Overwrite units of one file with zeros."""
        file, at = self.place(index)
        damage.zero(file, at, count * UNIT)

    def flip(self, index: int, byte: int, bit: int = 0) -> None:
        file, at = self.place(index)
        damage.flip(file, at + byte, bit)
