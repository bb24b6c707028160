"""Parts of the store generator: options, properties, files, index files, and batches of messages as columns."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from datetime import UTC
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rmqstore.formats import index, message, properties
from rmqstore.formats.javatext import java_string_hash
from rmqstore.formats.properties import build_properties

Array = npt.NDArray[Any]
EPOCH = 1_760_000_000_000  # ms; a fixed time, so that the bytes depend only on the options
UNIQ_PREFIX = "7F0000010A2B18B4AAC2"  # address, process id and class loader of a client, in hex
UNIQ_VARIES = 12  # hex digits after it: ms since the beginning of the client's month, and a counter
KEY_PREFIX = "order"
KEY_DIGITS = 12
TOPIC_STEMS = ("Order", "PaymentEvents", "log", "stock-moves", "UserActivity", "Mail", "audit_trail", "Shipment")
TAG_STEMS = ("TagA", "created", "paid", "cancelled", "TagB", "shipped", "x", "refund")


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the generator. Units: bytes; `rate`: messages per second of store time."""

    out: Path
    size: int
    body: str = "256"
    topics: int = 8
    queues: int = 4
    tags: int = 8
    props: int = 120
    file_size: int = 1 << 30
    cq_file_size: int = 6_000_000
    consumequeue: bool = True
    index: bool = False
    index_slots: int = 5_000_000
    index_units: int = 20_000_000
    index_tags: bool = True
    v2: bool = False
    ipv6: bool = False
    dledger: bool = False
    rate: int = 20_000
    seed: int = 1


@dataclass(slots=True)
class Made:
    """Figures of a generated store; `queues` maps `TOPIC/ID` to the number of messages."""

    messages: int = 0
    wrote: int = 0
    files: int = 0
    index_files: int = 0
    queues: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0


def body_lengths(spec: str, count: int, rng: np.random.Generator) -> Array:
    """Return random body lengths for `N`, `LOW-HIGH` (uniform), or a weighted mix of both: `256*8,1024-4096*2`."""
    parts = [re.fullmatch(r"(\d+)(?:-(\d+))?(?:\*(\d+))?", p.strip()) for p in spec.split(",")]
    if not parts or None in parts:
        raise ValueError(f"not a body size or distribution: {spec}")
    kinds = [(int(p[1]), int(p[2] or p[1]), int(p[3] or 1)) for p in parts if p]
    weights = np.array([k[2] for k in kinds], dtype=float)
    which = rng.choice(len(kinds), size=count, p=weights / weights.sum()) if len(kinds) > 1 else np.zeros(count, int)
    low, high = np.array([k[0] for k in kinds]), np.array([k[1] for k in kinds])
    return rng.integers(low[which], high[which], endpoint=True)


def void_window(buffer: Array, width: int) -> Array:
    """Return a view with one row of `width` bytes per position of `buffer`; assigning to it copies whole rows."""
    return np.ndarray((len(buffer) - width + 1,), dtype=f"V{width}", buffer=buffer, strides=(1,))


def as_rows(array: Array) -> Array:
    """Convert a structured or two-dimensional byte array to one void item per row."""
    width = array.dtype.itemsize if array.ndim == 1 else array.shape[1]
    rows: Array = np.ascontiguousarray(array).view(f"V{width}").reshape(-1)
    return rows


class Tails:
    """The bytes after the body (topic, properties) for each pair of topic and tag, with the positions that vary."""

    def __init__(self, options: Options) -> None:
        longer = "_" + "t" * 128 if options.v2 else ""  # the broker chooses V2 only for topics over 127 characters
        self.topics = [f"{TOPIC_STEMS[i % 8]}_{i}{longer}" for i in range(options.topics)]
        self.tags = [f"{TAG_STEMS[i % 8]}{'' if i < 8 else i}" for i in range(options.tags)]
        self.tag_codes = np.array([java_string_hash(t) for t in self.tags], dtype=np.int64)
        rows = [[self._tail(options, topic, tag) for tag in self.tags] for topic in self.topics]
        self.length = np.array([[len(t) for t in row] for row in rows], dtype=np.int64)
        self.uniq_at = np.array([[t.index(UNIQ_PREFIX.encode()) + len(UNIQ_PREFIX) for t in row] for row in rows])
        keys_at = f"{properties.KEYS}{properties.NAME_VALUE_SEPARATOR}{KEY_PREFIX}".encode()
        self.key_at = np.array([[t.index(keys_at) + len(keys_at) for t in row] for row in rows])
        # pairs with the same length and positions (a shape) are filled together
        shapes: dict[tuple[int, int, int], list[int]] = {}
        for pair in range(len(self.topics) * len(self.tags)):
            place = divmod(pair, len(self.tags))
            shape = (int(self.length[place]), int(self.uniq_at[place]), int(self.key_at[place]))
            shapes.setdefault(shape, []).append(pair)
        self.shape_of = np.zeros(len(self.topics) * len(self.tags), dtype=np.uint16)
        self.row_of = np.zeros_like(self.shape_of)
        self.shapes: list[tuple[int, int, int]] = list(shapes)
        self.templates: list[Array] = []
        for number, pairs in enumerate(shapes.values()):
            self.shape_of[pairs] = number
            self.row_of[pairs] = np.arange(len(pairs))
            texts = [rows[p // len(self.tags)][p % len(self.tags)] for p in pairs]
            self.templates.append(np.frombuffer(b"".join(texts), dtype=np.uint8).reshape(len(pairs), -1))

    @staticmethod
    def _tail(options: Options, topic: str, tag: str) -> bytes:
        """Return the tail of one record with zeros at the varying positions, in the order of a client's HashMap."""
        pairs = {
            properties.UNIQ_KEY: UNIQ_PREFIX + "0" * UNIQ_VARIES,
            properties.CLUSTER: "DefaultCluster",
            properties.TAGS: tag,
            properties.KEYS: KEY_PREFIX + "0" * KEY_DIGITS,
            properties.WAIT_STORE_OK: "true",
        }
        missing = options.props - len(build_properties({**pairs, "note": ""}))
        if missing > 0:
            pairs["note"] = "n" * missing
        record = message.build_message(topic=topic, properties=build_properties(pairs), v2=options.v2)
        return record[message.HEAD.size :]


class Files:
    """A queue of files of a fixed size, named by their offsets and filled in order."""

    def __init__(self, folder: Path, file_size: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.file_size, self.count = folder, file_size, 0

    def write(self, offset: int, data: Any) -> None:
        """Write `data` at a global offset, into one or several files; new files get their full size."""
        view = memoryview(data).cast("B")
        while len(view):
            start = offset // self.file_size * self.file_size
            piece = view[: start + self.file_size - offset]
            name = self.folder / f"{start:020d}"
            fd = os.open(name, os.O_WRONLY | os.O_CREAT, 0o644)
            try:
                if os.fstat(fd).st_size != self.file_size:
                    os.ftruncate(fd, self.file_size)
                    self.count += 1
                done = 0
                while done < len(piece):
                    done += os.pwrite(fd, piece[done:], offset - start + done)
            finally:
                os.close(fd)
            offset += len(piece)
            view = view[len(piece) :]


class IndexFiles:
    """The index files: units for UNIQ_KEY and KEYS of each message and, like 5.4.0, for its TAGS."""

    def __init__(self, options: Options, topics: list[str], tags: list[str]) -> None:
        self.folder = options.out / "index"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.slots, self.capacity = options.index_slots, options.index_units
        self.prefixes = [[java_string_hash(f"{t}#{p}") for t in topics] for p in (UNIQ_PREFIX, KEY_PREFIX)]
        of_tag = [index.key_hash(f"{topic}#T#{tag}") for topic in topics for tag in tags]
        self.of_tag = np.array(of_tag, dtype=np.int32).reshape(len(topics), -1) if options.index_tags else None
        self.pending: list[Array] = []
        self.waiting, self.files, self.full_until = 0, 0, 0
        self.previous = (0, 0)  # end timestamp and end offset of the previous file

    def add(self, batch: Batch, uniq: Array, keys: Array) -> None:
        """Add the units of a batch; `uniq` and `keys` are the varying characters, one row per message."""
        each = 2 if self.of_tag is None else 3
        entries: Array = np.empty((len(batch.size), each), dtype=[("hash", "i4"), ("offset", "i8"), ("stamp", "i8")])
        for column, (prefix, characters) in enumerate(zip(self.prefixes, (uniq, keys), strict=True)):
            value = np.array(prefix, dtype=np.int32).view(np.uint32)[batch.topic]
            for one in characters.T.astype(np.uint32):
                value = value * np.uint32(31) + one
            signed = value.view(np.int32)
            entries["hash"][:, column] = np.where(signed == np.iinfo(np.int32).min, 0, np.abs(signed))
        if self.of_tag is not None:
            entries["hash"][:, 2] = self.of_tag[batch.topic, batch.tag]
        entries["offset"] = batch.offset[:, None]
        entries["stamp"] = batch.stamp[:, None]
        self.pending.append(entries.reshape(-1))
        self.waiting += entries.size
        while self.waiting >= self.capacity - 1:  # unit 0 is never used
            self._cut(self.capacity - 1)

    def _cut(self, count: int) -> None:
        """Write the first `count` pending entries into a new file."""
        waiting = np.concatenate(self.pending)
        entries, rest = waiting[:count], waiting[count:]
        self.pending, self.waiting = [rest], len(rest)
        begin = int(entries["stamp"][0])
        units = np.zeros(count, dtype=index.UNIT.dtype)
        units["key_hash"], units["phy_offset"] = entries["hash"], entries["offset"]
        seconds = (entries["stamp"] - begin) // 1000
        if self.files:  # relative to the previous file: the broker sets the begin timestamp only after the first unit
            seconds[0] = (begin - self.previous[0]) // 1000
        units["time_diff"] = np.clip(seconds, 0, np.iinfo(np.int32).max)
        slot = entries["hash"] % self.slots
        order = np.argsort(slot, kind="stable")
        same = np.zeros(count, dtype=bool)
        same[1:] = slot[order][1:] == slot[order][:-1]
        before = np.zeros(count, dtype=np.int64)
        before[1:] = order[:-1] + 1
        units["prev_index"][order] = np.where(same, before, 0)
        table = np.zeros(self.slots, dtype=index.SLOT.dtype)
        table["newest"][slot] = np.arange(1, count + 1)  # for equal slots, NumPy keeps the last assignment
        header = index.HEADER.build(
            begin_timestamp=begin,
            end_timestamp=int(entries["stamp"][-1]),
            begin_phy_offset=int(entries["offset"][0]),
            end_phy_offset=int(entries["offset"][-1]),
            hash_slot_count=int(np.count_nonzero(~same)),
            index_count=count + 1,
        )
        path = self.folder / index.file_name(begin, UTC)
        while path.exists():  # two files that begin in the same millisecond
            path = path.with_name(f"{int(path.name) + 1}")
        with path.open("wb") as out:
            out.write(header)
            out.write(table.tobytes())
            out.seek(index.UNIT.size, os.SEEK_CUR)
            out.write(units.tobytes())
            out.truncate(index.file_size(self.slots, self.capacity))
        self.previous = (int(entries["stamp"][-1]), int(entries["offset"][-1]))
        self.files += 1
        if count == self.capacity - 1:
            self.full_until = int(entries["stamp"][-1])

    def close(self) -> None:
        """Write the last file, which is not full."""
        if self.waiting:
            self._cut(self.waiting)


HEX = np.array([f"{i:02X}".encode() for i in range(256)], dtype="S2").view(np.uint8).reshape(256, 2)
DECIMAL = np.array([f"{i:04d}".encode() for i in range(10_000)], dtype="S4").view(np.uint8).reshape(10_000, 4)


def uniq_characters(number: Array, stamp: Array) -> Array:
    """Return the varying hex digits of UNIQ_KEY: milliseconds, then a 16-bit counter."""
    raw: Array = np.empty(len(number), dtype=[("ms", ">u4"), ("counter", ">u2")])
    raw["ms"], raw["counter"] = (stamp - EPOCH) & 0xFFFFFFFF, number & 0xFFFF
    digits: Array = HEX[raw.view(np.uint8).reshape(len(number), -1)]
    return digits.reshape(len(number), UNIQ_VARIES)


def key_characters(number: Array) -> Array:
    """Return the decimal digits of KEYS."""
    groups = np.stack([number // 10**8 % 10**4, number // 10**4 % 10**4, number % 10**4], axis=1)
    digits: Array = DECIMAL[groups]
    return digits.reshape(len(number), KEY_DIGITS)


@dataclass(slots=True)
class Batch:
    """Columns of consecutive messages in one file; `offset` is the physical offset of the message record."""

    number: Array
    topic: Array
    tag: Array
    queue: Array
    queue_offset: Array
    body: Array
    stamp: Array
    size: Array
    offset: Array
