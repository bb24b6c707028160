"""An independent reader of commitlog and DLedger files, written from the wire format, as a reference for `dump`."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_MAGIC = re.compile(rb"\xda\xa3\x20[\xa7\xab]")
_V1, _V2, _BLANK = 0xDAA320A7, 0xDAA320AB, 0xCBD43194
_INNER_BATCH = 0x80  # MessageSysFlag#INNER_BATCH_FLAG


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a file; `position` is its physical offset."""

    position: int
    size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    store_timestamp: int
    store_host: bytes
    body: bytes
    topic: str
    properties: dict[str, str]

    @property
    def messages(self) -> int:
        """The messages that consumers get: those of a batch (BatchCQ) one by one."""
        return int(self.properties["INNER_NUM"]) if self.sys_flag & _INNER_BATCH else 1

    @property
    def crc_fits(self) -> bool:
        return not self.body or zlib.crc32(self.body) & 0x7FFFFFFF == self.body_crc

    @property
    def msg_id(self) -> str:
        return (self.store_host + struct.pack(">q", self.physical_offset)).hex().upper()


def read_folder(folder: Path, *, entries: bool = False) -> Iterator[Record]:
    """Yield the records of a folder of files, up to the first byte that belongs to no record."""
    for path in sorted(folder.iterdir()):
        yield from read_file(path, entries=entries)


def read_file(path: Path, *, entries: bool = False) -> Iterator[Record]:
    data, base, at = path.read_bytes(), int(path.name), 0
    while at + 8 <= len(data):
        first, second = struct.unpack_from(">II", data, at)
        if entries:
            if first != 1:
                return
            yield _record(data, at + 48, base)
            at += second
            continue
        if second not in (_V1, _V2):
            return
        yield _record(data, at, base)
        at += first


def _record(data: bytes, at: int, base: int) -> Record:
    start = at
    size, magic, crc, queue_id, flag, queue_offset, physical, sys_flag, born = struct.unpack_from(
        ">iIiiiqqiq", data, at
    )
    at += 48 + (20 if sys_flag & 0x10 else 8)
    (stored,) = struct.unpack_from(">q", data, at)
    at += 8
    wide = 20 if sys_flag & 0x20 else 8
    host = data[at : at + wide]
    at += wide + 4 + 8
    (length,) = struct.unpack_from(">i", data, at)
    at += 4
    body = data[at : at + length]
    at += length
    (topic_length,) = struct.unpack_from(">h" if magic == _V2 else ">b", data, at)
    at += 2 if magic == _V2 else 1
    topic = data[at : at + topic_length].decode(errors="surrogateescape")
    at += topic_length
    (properties_length,) = struct.unpack_from(">h", data, at)
    text = data[at + 2 : at + 2 + properties_length].decode(errors="surrogateescape")
    pairs = (part.split("\1", 1) for part in text.split("\2") if "\1" in part)
    assert at + 2 + properties_length == start + size
    return Record(
        base + start, size, magic, crc, queue_id, flag, queue_offset, physical, sys_flag, born, stored, host, body,
        topic, {k: v for k, v in pairs if k and v},
    )  # fmt: skip


def find_records(store: Path) -> Iterator[Record]:
    """Yield all records of a store's logs, also after damage: at each magic code with the right physical offset."""
    for folder in (store / "commitlog", *store.glob("dledger-*/data")):
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            data, base = path.read_bytes(), int(path.name)
            for match in _MAGIC.finditer(data):
                at = match.start() - 4
                if at >= 0 and _frames(data, at, base):
                    yield _record(data, at, base)


def _frames(data: bytes, at: int, base: int) -> bool:
    size, physical_offset = struct.unpack_from(">I", data, at)[0], struct.unpack_from(">q", data, at + 28)[0]
    if physical_offset != base + at or not 90 < size <= len(data) - at:
        return False
    try:
        return _record(data, at, base).size == size
    except (struct.error, UnicodeDecodeError, AssertionError):
        return False
