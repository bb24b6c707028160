"""Generates a store of any size, as a broker would have written it, deterministic by seed.

One call of `generate` makes a commitlog (or DLedger data with its index), complete consume queues, a checkpoint,
topics.json and, when asked, index files. Every layout comes from `rmqstore.formats`; this file knows no byte offset.
The work is done in batches of columns: the body pool is copied in one piece, heads and tails are scattered over it as
fixed-size rows, so that a batch costs a few hundred nanoseconds per message.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rmqstore.formats import checkpoint, consumequeue, dledger, index, message, properties
from rmqstore.formats.javatext import java_string_hash
from rmqstore.formats.message import crc32
from rmqstore.formats.properties import build_properties

Array = npt.NDArray[Any]

BATCH = 8 << 20  # bytes assembled at a time: near a cache, and keeps memory flat
POOL = 32 << 20  # bytes of body text that batches are cut out of
EPOCH = 1_760_000_000_000  # ms; a fixed clock, so that the bytes depend on the seed alone
UNIQ_PREFIX = "7F0000010A2B18B4AAC2"  # address, process and class loader of a client, in hex
UNIQ_VARIES = 12  # hex digits behind it: ms since the client's month began, and a counter
KEY_PREFIX = "order"
KEY_DIGITS = 12
TOPIC_STEMS = ("Order", "PaymentEvents", "log", "stock-moves", "UserActivity", "Mail", "audit_trail", "Shipment")
TAG_STEMS = ("TagA", "created", "paid", "cancelled", "TagB", "shipped", "x", "refund")


@dataclass(frozen=True, slots=True)
class Options:
    """What to generate; sizes in bytes, `rate` in messages per second of store time."""

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
    """What a call of `generate` made."""

    messages: int = 0
    wrote: int = 0
    files: int = 0
    index_files: int = 0
    queues: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0


def parse_size(text: str) -> int:
    """Bytes of `123`, `64K`, `128M`, `1G`, `1T` (powers of 1024)."""
    found = re.fullmatch(r"(\d+)([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if not found:
        raise argparse.ArgumentTypeError(f"not a size: {text}")
    return int(found[1]) << (10 * " KMGT".index(found[2].upper() or " "))


def body_lengths(spec: str, count: int, rng: np.random.Generator) -> Array:
    """Body lengths drawn from `N`, `LOW-HIGH` (uniform) or a weighted mix of both: `256*8,1024-4096*2`."""
    parts = [re.fullmatch(r"(\d+)(?:-(\d+))?(?:\*(\d+))?", p.strip()) for p in spec.split(",")]
    if not parts or None in parts:
        raise ValueError(f"not a body size or distribution: {spec}")
    kinds = [(int(p[1]), int(p[2] or p[1]), int(p[3] or 1)) for p in parts if p]
    weights = np.array([k[2] for k in kinds], dtype=float)
    which = rng.choice(len(kinds), size=count, p=weights / weights.sum()) if len(kinds) > 1 else np.zeros(count, int)
    low, high = np.array([k[0] for k in kinds]), np.array([k[1] for k in kinds])
    return rng.integers(low[which], high[which], endpoint=True)


def void_window(buffer: Array, width: int) -> Array:
    """Every position of `buffer` as a row of `width` bytes: scattering into it copies whole rows."""
    return np.ndarray((len(buffer) - width + 1,), dtype=f"V{width}", buffer=buffer, strides=(1,))


def as_rows(array: Array) -> Array:
    """A structured or 2-d byte array as one void item per row."""
    width = array.dtype.itemsize if array.ndim == 1 else array.shape[1]
    rows: Array = np.ascontiguousarray(array).view(f"V{width}").reshape(-1)
    return rows


class Tails:
    """Everything behind the body (topic, properties), for each pair of topic and tag, with the places that vary."""

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
        # pairs whose parts lie at the same places are filled in one go
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
        """Tail of one record with zeros in the varying places; the order is that of a real client's HashMap."""
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
    """Files named by their offset, filled in order: one queue of files of a fixed size."""

    def __init__(self, folder: Path, file_size: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.file_size, self.count = folder, file_size, 0

    def write(self, offset: int, data: Any) -> None:
        """Writes `data` at a global offset, into as many files as it takes; new files get their full size."""
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
    """The hash index: of every message UNIQ_KEY, KEYS and, as 5.4.0 does it, the whole TAGS."""

    def __init__(self, options: Options, topics: list[str], tags: list[str]) -> None:
        self.folder = options.out / "index"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.slots, self.capacity = options.index_slots, options.index_units
        self.prefixes = [[java_string_hash(f"{t}#{p}") for t in topics] for p in (UNIQ_PREFIX, KEY_PREFIX)]
        of_tag = [index.key_hash(f"{topic}#T#{tag}") for topic in topics for tag in tags]
        self.of_tag = np.array(of_tag, dtype=np.int32).reshape(len(topics), -1) if options.index_tags else None
        self.pending: list[Array] = []
        self.waiting, self.files, self.full_until = 0, 0, 0
        self.previous = (0, 0)  # end timestamp and end offset of the file before

    def add(self, batch: Batch, uniq: Array, keys: Array) -> None:
        """Entries of a batch; `uniq` and `keys` are the varying characters, one row per message."""
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
        """Writes one file of the first `count` waiting entries."""
        waiting = np.concatenate(self.pending)
        entries, rest = waiting[:count], waiting[count:]
        self.pending, self.waiting = [rest], len(rest)
        begin = int(entries["stamp"][0])
        units = np.zeros(count, dtype=index.UNIT.dtype)
        units["key_hash"], units["phy_offset"] = entries["hash"], entries["offset"]
        seconds = (entries["stamp"] - begin) // 1000
        if self.files:  # the first entry's time is counted from the file before: the broker sets "begin" after it
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
        table["newest"][slot] = np.arange(1, count + 1)  # the last write of a slot wins
        header = index.HEADER.build(
            begin_timestamp=begin,
            end_timestamp=int(entries["stamp"][-1]),
            begin_phy_offset=int(entries["offset"][0]),
            end_phy_offset=int(entries["offset"][-1]),
            hash_slot_count=int(np.count_nonzero(~same)),
            index_count=count + 1,
        )
        path = self.folder / index.file_name(begin, UTC)
        while path.exists():  # two files of the same millisecond
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
        """Writes the last file, which is not full."""
        if self.waiting:
            self._cut(self.waiting)


HEX = np.array([f"{i:02X}".encode() for i in range(256)], dtype="S2").view(np.uint8).reshape(256, 2)
DECIMAL = np.array([f"{i:04d}".encode() for i in range(10_000)], dtype="S4").view(np.uint8).reshape(10_000, 4)


def uniq_characters(number: Array, stamp: Array) -> Array:
    """The varying hex digits of UNIQ_KEY: milliseconds, then a 16-bit counter."""
    raw: Array = np.empty(len(number), dtype=[("ms", ">u4"), ("counter", ">u2")])
    raw["ms"], raw["counter"] = (stamp - EPOCH) & 0xFFFFFFFF, number & 0xFFFF
    digits: Array = HEX[raw.view(np.uint8).reshape(len(number), -1)]
    return digits.reshape(len(number), UNIQ_VARIES)


def key_characters(number: Array) -> Array:
    """The decimal digits of KEYS."""
    groups = np.stack([number // 10**8 % 10**4, number // 10**4 % 10**4, number % 10**4], axis=1)
    digits: Array = DECIMAL[groups]
    return digits.reshape(len(number), KEY_DIGITS)


@dataclass(slots=True)
class Batch:
    """Columns of messages that follow each other in one file; `offset` is that of the message record."""

    number: Array
    topic: Array
    tag: Array
    queue: Array
    queue_offset: Array
    body: Array
    stamp: Array
    size: Array
    offset: Array


class Generator:
    """Cuts an endless stream of random messages into files, and writes what belongs to each of them."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.tails = Tails(options)
        self.rng = np.random.default_rng(options.seed)
        letters = np.frombuffer(b'abcdefghijklmnopqrstuvwxyz0123456789 ,:"{}ABCDEFGHIJKLMNOPQRSTUV', dtype=np.uint8)
        self.pool = letters[self.rng.integers(0, 64, size=min(POOL, max(1 << 20, options.size)), dtype=np.uint8)]
        self.head = message.head(options.ipv6, options.ipv6)
        self.lead = dledger.ENTRY.size if options.dledger else 0  # bytes in front of a message record
        self.next_of = np.zeros(options.topics * options.queues, dtype=np.int64)
        self.buffer = np.empty(0, dtype=np.uint8)
        self.made = Made()
        root = options.out
        data = root / "dledger-n0" / "data" if options.dledger else root / "commitlog"
        self.log = Files(data, options.file_size)
        self.entries = Files(root / "dledger-n0" / "index", dledger.INDEX_FILE_SIZE) if options.dledger else None
        self.index = IndexFiles(options, self.tails.topics, self.tails.tags) if options.index else None
        self.queues: dict[int, Files] = {}
        address = "[2001:db8::17]" if options.ipv6 else "10.0.0.23"
        self.born_host = message.host_bytes(f"{address}:50412")
        self.store_host = message.host_bytes(("[2001:db8::1]" if options.ipv6 else "10.0.0.1") + ":10911")

    def _drawn(self) -> Iterator[Batch]:
        """Messages without a place, about `BATCH` bytes at a time."""
        o, number = self.options, 0
        least = self.head.size + self.lead + int(self.tails.length.min())
        mean = int(body_lengths(o.body, 1000, np.random.default_rng(o.seed)).mean())
        while True:
            count = max(1, BATCH // (least + mean))
            numbers = np.arange(number, number + count, dtype=np.int64)
            topic = self.rng.integers(0, o.topics, count)
            tag = self.rng.integers(0, o.tags, count)
            queue = self.rng.integers(0, o.queues, count)
            body = body_lengths(o.body, count, self.rng)
            size = self.head.size + body + self.tails.length[topic, tag]
            stamp = EPOCH + numbers * 1000 // o.rate
            nothing = np.zeros(count, dtype=np.int64)
            yield Batch(numbers, topic, tag, queue, nothing, body, stamp, size, nothing)
            number += count

    def _placed(self) -> Iterator[tuple[Batch, bool]]:
        """Messages with their place, never over a file's end; True where a BLANK has to follow."""
        o, at = self.options, 0
        for batch in self._drawn():
            first = 0
            while first < len(batch.size):
                whole = batch.size[first:] + self.lead
                if int(whole[0]) + message.BLANK_SIZE > o.file_size:
                    raise ValueError("a record does not fit into a file: raise --file-size")
                ends = np.cumsum(whole)
                left = o.file_size - at % o.file_size
                fits = int(np.searchsorted(ends, left - message.BLANK_SIZE, side="right"))
                count = min(fits, int(np.searchsorted(ends, o.size - at, side="right")))
                part = Batch(*(getattr(batch, name)[first : first + count] for name in Batch.__slots__))
                part.offset = at + self.lead + ends[:count] - whole[:count]
                over = count < len(whole)  # one is left that does not fit here
                full = over and count == fits and at + left + int(whole[count]) <= o.size
                yield part, full
                if over and not full:
                    return
                at += left if full else int(ends[count - 1])
                first += count

    def _queue_offsets(self, batch: Batch) -> tuple[Array, Array]:
        """Fills in QUEUEOFFSET; gives the order by queue, and the queue of each message."""
        key = (batch.topic * self.options.queues + batch.queue).astype(np.uint16)
        order = np.argsort(key, kind="stable")
        counts = np.bincount(key, minlength=len(self.next_of))
        starts = np.cumsum(counts) - counts
        rank = np.arange(len(key)) - np.repeat(starts, counts)
        batch.queue_offset = np.empty(len(key), dtype=np.int64)
        batch.queue_offset[order] = rank + np.repeat(self.next_of, counts)
        return order, counts

    def _bytes(self, batch: Batch, uniq: Array, keys: Array) -> Array:
        """The bytes of a placed batch."""
        o, count = self.options, len(batch.size)
        start = batch.offset - self.lead - (batch.offset[0] - self.lead)
        total = int(start[-1]) + self.lead + int(batch.size[-1])
        cut = int(self.rng.integers(0, len(self.pool)))
        if total > len(self.buffer):  # one buffer for all batches: fresh pages cost more than the work in them
            self.buffer = np.empty(total + (1 << 20), dtype=np.uint8)
        out = self.buffer[:total]
        filled = 0
        while filled < total:
            piece = self.pool[cut : cut + total - filled]
            out[filled : filled + len(piece)] = piece
            filled, cut = filled + len(piece), 0
        body_at = start + self.lead + self.head.size
        view = memoryview(out.data)
        stops = (body_at + batch.body).tolist()
        crc = [crc32(view[a:b]) for a, b in zip(body_at.tolist(), stops, strict=True)]
        heads = np.zeros(count, dtype=self.head.dtype)
        heads["size"], heads["magic"] = batch.size, message.MAGIC_V2 if o.v2 else message.MAGIC_V1
        heads["body_crc"] = np.where(batch.body > 0, np.array(crc, dtype=np.int64) & 0x7FFFFFFF, 0)
        heads["queue_id"], heads["queue_offset"] = batch.queue, batch.queue_offset
        heads["physical_offset"] = batch.offset
        heads["sys_flag"] = message.BORN_HOST_V6 | message.STORE_HOST_V6 if o.ipv6 else 0
        heads["born_timestamp"], heads["store_timestamp"] = batch.stamp - 1, batch.stamp
        heads["born_host"], heads["store_host"] = np.void(self.born_host), np.void(self.store_host)
        heads["body_length"] = batch.body
        if o.dledger:
            entry: Array = np.zeros(count, dtype=dledger.ENTRY.dtype)
            entry["magic"], entry["size"] = dledger.MAGIC, batch.size + self.lead
            entry["index"], entry["pos"] = batch.number, batch.offset - self.lead
            entry["body_length"] = batch.size
            void_window(out, self.lead)[start] = as_rows(entry)
        void_window(out, self.head.size)[start + self.lead] = as_rows(heads)
        pair = batch.topic * o.tags + batch.tag
        shape = self.tails.shape_of[pair]
        for which, (length, uniq_at, key_at) in enumerate(self.tails.shapes):
            chosen = np.flatnonzero(shape == which)
            rows = self.tails.templates[which][self.tails.row_of[pair[chosen]]]
            rows[:, uniq_at : uniq_at + UNIQ_VARIES] = uniq[chosen]
            rows[:, key_at : key_at + KEY_DIGITS] = keys[chosen]
            if len(chosen):
                void_window(out, length)[(body_at + batch.body)[chosen]] = as_rows(rows)
        return out

    def _units(self, batch: Batch, order: Array, counts: Array) -> None:
        """Consume queue units of a batch."""
        units = np.empty(len(order), dtype=consumequeue.UNIT.dtype)
        units["commitlog_offset"], units["size"] = batch.offset[order], batch.size[order]
        units["tags_code"] = self.tails.tag_codes[batch.tag[order]]
        at = 0
        for queue in np.flatnonzero(counts).tolist():
            if queue not in self.queues:
                topic, number = divmod(queue, self.options.queues)
                folder = self.options.out / "consumequeue" / self.tails.topics[topic] / str(number)
                self.queues[queue] = Files(folder, self.options.cq_file_size)
            stop = at + int(counts[queue])
            self.queues[queue].write(int(self.next_of[queue]) * consumequeue.UNIT.size, units[at:stop].tobytes())
            at = stop

    def run(self) -> Made:
        """Writes the store."""
        o, last = self.options, EPOCH
        for batch, full in self._placed():
            if len(batch.size):
                order, counts = self._queue_offsets(batch)
                uniq, keys = uniq_characters(batch.number, batch.stamp), key_characters(batch.number)
                self.log.write(int(batch.offset[0]) - self.lead, self._bytes(batch, uniq, keys))
                if o.consumequeue:
                    self._units(batch, order, counts)
                if self.entries:
                    units: Array = np.empty(len(batch.size), dtype=dledger.INDEX_UNIT.dtype)
                    units["magic"], units["pos"] = dledger.MAGIC, batch.offset - self.lead
                    units["size"], units["index"], units["term"] = batch.size + self.lead, batch.number, 0
                    self.entries.write(int(batch.number[0]) * dledger.INDEX_UNIT.size, units.tobytes())
                if self.index:
                    self.index.add(batch, uniq, keys)
                self.next_of += counts
                self.made.messages += len(batch.size)
                self.made.wrote = int(batch.offset[-1] + batch.size[-1])
                last = int(batch.stamp[-1])
            if full:
                left = o.file_size - self.made.wrote % o.file_size
                blank = dledger.BLANK if o.dledger else message.BLANK
                self.log.write(self.made.wrote, blank.build(size=left))
        self._rest(last)
        return self.made

    def _rest(self, last: int) -> None:
        """Small files: checkpoint, lock, topics.json, DLedger's texts."""
        o = self.options
        if self.index:
            self.index.close()
            self.made.index_files = self.index.files
        self.made.files = self.log.count
        counters = self.next_of.tolist()
        self.made.queues = {
            f"{topic}/{q}": counters[t * o.queues + q]
            for t, topic in enumerate(self.tails.topics)
            for q in range(o.queues)
        }
        stamps = {
            "physic_msg_timestamp": last,
            "logics_msg_timestamp": last,
            "index_msg_timestamp": self.index.full_until if self.index else 0,
        }
        text = checkpoint.STORE_CHECKPOINT.build(stamps)
        (o.out / "checkpoint").write_bytes(text.ljust(checkpoint.FILE_SIZE, b"\0"))
        (o.out / "lock").write_bytes(b"lock")
        if o.dledger:
            end = self.made.messages - 1
            group = o.out / "dledger-n0"
            (group / "checkpoint").write_bytes(dledger.DLedgerCheckpoint(end, end).build())
            (group / "currterm").write_bytes(dledger.CurrTerm(0, "n0").build())
        table = {
            topic: {
                "attributes": {},
                "order": False,
                "perm": 6,
                "readQueueNums": o.queues,
                "topicFilterType": "SINGLE_TAG",
                "topicName": topic,
                "topicSysFlag": 0,
                "writeQueueNums": o.queues,
            }
            for topic in self.tails.topics
        }
        version = {"counter": len(table), "stateVersion": 0, "timestamp": EPOCH}
        (o.out / "config").mkdir(exist_ok=True)
        (o.out / "config" / "topics.json").write_text(
            json.dumps({"dataVersion": version, "topicConfigTable": table}, indent="\t")
        )


def generate(options: Options) -> Made:
    """Makes the store that `options` describe.

    Errors: FileExistsError when `out` has anything in it; ValueError for options that make no store.
    """
    if options.out.exists() and any(options.out.iterdir()):
        raise FileExistsError(f"{options.out} is not empty")
    if options.cq_file_size % consumequeue.UNIT.size:
        raise ValueError(f"--cq-file-size has to be a multiple of {consumequeue.UNIT.size}")
    if options.topics * options.queues > np.iinfo(np.uint16).max or options.index_units < 2:
        raise ValueError("too many queues, or too few index units")
    options.out.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    made = Generator(options).run()
    made.seconds = time.perf_counter() - began
    return made


def main() -> None:
    """Command line of the generator; prints what was made as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--out", type=Path, required=True, help="empty or new directory")
    add("--size", type=parse_size, default=parse_size("1G"), help="bytes of commitlog (default 1G)")
    add("--body", default="256", help="256, 100-2000, or a weighted mix: 256*8,16384*1")
    add("--topics", type=int, default=8)
    add("--queues", type=int, default=4, help="queues per topic")
    add("--tags", type=int, default=8)
    add("--props", type=int, default=120, help="at least so many bytes of properties")
    add("--file-size", type=parse_size, default=1 << 30)
    add("--cq-file-size", type=int, default=6_000_000)
    add("--no-consumequeue", dest="consumequeue", action="store_false")
    add("--index", action="store_true", help="with index files")
    add("--index-slots", type=int, default=5_000_000)
    add("--index-units", type=int, default=20_000_000)
    add("--no-index-tags", dest="index_tags", action="store_false", help="no entries for TAGS, as before 5.4.0")
    add("--version-magic", choices=["v1", "v2"], default="v1")
    add("--ipv6", action="store_true")
    add("--dledger", action="store_true", help="entries in dledger-n0 instead of a commitlog")
    add("--rate", type=int, default=20_000, help="messages per second of store time")
    add("--seed", type=int, default=1)
    given = vars(parser.parse_args())
    given["v2"] = given.pop("version_magic") == "v2"
    try:
        made = generate(Options(**given))
    except (FileExistsError, ValueError) as problem:
        sys.exit(f"generate: {problem}")
    print(
        json.dumps(
            {
                "out": str(given["out"]),
                "messages": made.messages,
                "wrote": made.wrote,
                "files": made.files,
                "index_files": made.index_files,
                "seconds": round(made.seconds, 3),
                "megabytes_per_second": round(made.wrote / 1e6 / max(made.seconds, 1e-9)),
            }
        )
    )


if __name__ == "__main__":
    main()
