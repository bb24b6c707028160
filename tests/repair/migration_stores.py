"""Copies of a real plain store in each state that it can have before its first start in DLedger mode."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.stores import copy_store

FILE_SIZE = 65536
BLANK = bytes.fromhex("CBD43194")
VERSIONS = ("4.9.7", "5.1.4", "5.4.0", "5.5.1")


def end_of(store: Path) -> tuple[Path, int]:
    """Return the last file with records and the position where they end, found by walking the sizes."""
    for path in sorted((store / "commitlog").iterdir(), reverse=True):
        data, at = path.read_bytes(), 0
        while data[at + 4 : at + 8] in (bytes.fromhex("DAA320A7"), bytes.fromhex("DAA320AB")):
            at += int.from_bytes(data[at : at + 4], "big")
        if at:
            return path, at
    raise AssertionError("no record")


def pad(store: Path, size: int | None = None) -> None:
    """Write a BLANK at the end, as if the next message did not fit; the broker accepts any size in it."""
    path, at = end_of(store)
    with path.open("r+b") as file:
        file.seek(at)
        file.write((FILE_SIZE - at if size is None else size).to_bytes(4, "big") + BLANK)


def zero_file_after_end(store: Path) -> None:
    """Add a pre-allocated file."""
    last = max((store / "commitlog").iterdir())
    (store / "commitlog" / f"{int(last.name) + FILE_SIZE:020d}").write_bytes(bytes(FILE_SIZE))


def _partly_filled(store: Path) -> None:
    pass


def _ends_with_blank(store: Path) -> None:
    pad(store)


def _zero_file_after_blank(store: Path) -> None:
    pad(store)
    zero_file_after_end(store)


def _padded_with_another_size(store: Path) -> None:
    pad(store, size=1234)


def _single_zero_file(store: Path) -> None:
    shutil.rmtree(store)
    (store / "commitlog").mkdir(parents=True)
    (store / "commitlog" / f"{0:020d}").write_bytes(bytes(FILE_SIZE))


def _no_log(store: Path) -> None:
    shutil.rmtree(store / "commitlog")


def _empty_log(store: Path) -> None:
    for path in (store / "commitlog").iterdir():
        path.unlink()


SITUATIONS: dict[str, Callable[[Path], None]] = {
    "partly-filled": _partly_filled,
    "zero-file-after-end": zero_file_after_end,
    "ends-with-blank": _ends_with_blank,
    "zero-file-after-blank": _zero_file_after_blank,
    "padded-with-another-size": _padded_with_another_size,
    "single-zero-file": _single_zero_file,
    "no-log": _no_log,
    "empty-log": _empty_log,
}


def make(version: str, situation: str, target: Path, *, rename: str | None = None) -> Path:
    """Copy a version's plain store, and bring it into a situation."""
    store = copy_store(f"{version}-before-dledger", target, rename=rename)
    SITUATIONS[situation](store)
    return store


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a log, found by walking the sizes; `address` is its physical offset."""

    address: int
    data: bytes

    @property
    def _body_at(self) -> int:
        flags = int.from_bytes(self.data[36:40], "big")
        return 88 + (12 if flags & 0x10 else 0) + (12 if flags & 0x20 else 0)

    @property
    def prepared(self) -> int:
        return int.from_bytes(self.data[self._body_at - 12 : self._body_at - 4], "big")

    @property
    def topic(self) -> bytes:
        at = self._body_at + int.from_bytes(self.data[self._body_at - 4 : self._body_at], "big")
        wide = 2 if self.data[4:8] == bytes.fromhex("DAA320AB") else 1
        length = int.from_bytes(self.data[at : at + wide], "big")
        return self.data[at + wide : at + wide + length]

    @property
    def physical_offset(self) -> int:
        return int.from_bytes(self.data[28:36], "big")

    @property
    def message_id(self) -> str:
        flags = int.from_bytes(self.data[36:40], "big")
        stop = self._body_at - 16
        return (self.data[stop - (20 if flags & 0x20 else 8) : stop] + self.data[28:36]).hex().upper()

    @property
    def without_address(self) -> bytes:
        """Return the bytes except PHYSICALOFFSET and PREPAREDTXOFFSET."""
        at = self._body_at
        return self.data[:28] + self.data[36 : at - 12] + self.data[at - 4 :]


def plain_records(store: Path) -> Iterator[Record]:
    """Yield all records of commitlog/ in offset order."""
    for path in sorted((store / "commitlog").iterdir()):
        data, at = path.read_bytes(), 0
        while data[at + 4 : at + 8] in (bytes.fromhex("DAA320A7"), bytes.fromhex("DAA320AB")):
            size = int.from_bytes(data[at : at + 4], "big")
            yield Record(int(path.name) + at, data[at : at + size])
            at += size


def dledger_records(store: Path) -> Iterator[Record]:
    """Yield the records of all DLedger entries in offset order."""
    for path in sorted(next(store.glob("dledger-*/data")).iterdir()):
        data, at = path.read_bytes(), 0
        while data[at : at + 4] == b"\0\0\0\x01":
            size = int.from_bytes(data[at + 4 : at + 8], "big")
            yield Record(int(path.name) + at + 48, data[at + 48 : at + size])
            at += size


def all_records(store: Path) -> list[Record]:
    """Return the legacy records, then DLedger's."""
    legacy = list(plain_records(store)) if (store / "commitlog").is_dir() else []
    return legacy + (list(dledger_records(store)) if any(store.glob("dledger-*/data")) else [])
