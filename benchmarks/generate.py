"""Generate a store of any size, as a broker would have written it, deterministic for a given seed.

`generate` creates a commitlog (or DLedger data with its index), complete consume queues, a checkpoint, topics.json and,
optionally, index files. All layouts come from `rmqstore.formats`; this file contains no byte offsets. Messages are
processed in batches of columns: random text from a pool fills a whole batch, and then the parts before and after each
body overwrite it as fixed-size rows. This takes a few hundred nanoseconds per message.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.parts import (
    EPOCH,
    KEY_DIGITS,
    UNIQ_VARIES,
    Array,
    Batch,
    Files,
    IndexFiles,
    Made,
    Options,
    Tails,
    as_rows,
    body_lengths,
    key_characters,
    uniq_characters,
    void_window,
)
from rmqstore.formats import checkpoint, consumequeue, dledger, message
from rmqstore.formats.message import crc32

BATCH = 8 << 20  # bytes per batch: small enough for the CPU caches, and memory does not grow with the store
POOL = 32 << 20  # bytes of random text from which bodies are taken


def parse_size(text: str) -> int:
    """Parse a size in bytes: `123`, `64K`, `128M`, `1G`, `1T` (powers of 1024)."""
    found = re.fullmatch(r"(\d+)([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if not found:
        raise argparse.ArgumentTypeError(f"not a size: {text}")
    return int(found[1]) << (10 * " KMGT".index(found[2].upper() or " "))


class Generator:
    """Writes random messages into the files of a store, until the store has its size."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.tails = Tails(options)
        self.rng = np.random.default_rng(options.seed)
        letters = np.frombuffer(b'abcdefghijklmnopqrstuvwxyz0123456789 ,:"{}ABCDEFGHIJKLMNOPQRSTUV', dtype=np.uint8)
        self.pool = letters[self.rng.integers(0, 64, size=min(POOL, max(1 << 20, options.size)), dtype=np.uint8)]
        self.head = message.head(options.ipv6, options.ipv6)
        self.body_offset = dledger.ENTRY.size if options.dledger else 0  # bytes before a message record
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
        """Yield batches of about `BATCH` bytes, without physical offsets and queue offsets."""
        o, number = self.options, 0
        least = self.head.size + self.body_offset + int(self.tails.length.min())
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
        """Yield batches with physical offsets, none across the end of a file, and whether a BLANK has to follow."""
        o, at = self.options, 0
        for batch in self._drawn():
            first = 0
            while first < len(batch.size):
                whole = batch.size[first:] + self.body_offset
                if int(whole[0]) + message.BLANK_SIZE > o.file_size:
                    raise ValueError("a record does not fit into a file: raise --file-size")
                ends = np.cumsum(whole)
                left = o.file_size - at % o.file_size
                fits = int(np.searchsorted(ends, left - message.BLANK_SIZE, side="right"))
                count = min(fits, int(np.searchsorted(ends, o.size - at, side="right")))
                part = Batch(*(getattr(batch, name)[first : first + count] for name in Batch.__slots__))
                part.offset = at + self.body_offset + ends[:count] - whole[:count]
                over = count < len(whole)  # at least one message does not fit into this file or into the store
                full = over and count == fits and at + left + int(whole[count]) <= o.size
                yield part, full
                if over and not full:
                    return
                at += left if full else int(ends[count - 1])
                first += count

    def _queue_offsets(self, batch: Batch) -> tuple[Array, Array]:
        """Set the queue offsets; return the order of the messages by queue, and their number in each queue."""
        key = (batch.topic * self.options.queues + batch.queue).astype(np.uint16)
        order = np.argsort(key, kind="stable")
        counts = np.bincount(key, minlength=len(self.next_of))
        starts = np.cumsum(counts) - counts
        rank = np.arange(len(key)) - np.repeat(starts, counts)
        batch.queue_offset = np.empty(len(key), dtype=np.int64)
        batch.queue_offset[order] = rank + np.repeat(self.next_of, counts)
        return order, counts

    def _bytes(self, batch: Batch, uniq: Array, keys: Array) -> Array:
        """Return the bytes of a batch with its offsets set."""
        o, count = self.options, len(batch.size)
        start = batch.offset - self.body_offset - (batch.offset[0] - self.body_offset)
        total = int(start[-1]) + self.body_offset + int(batch.size[-1])
        cut = int(self.rng.integers(0, len(self.pool)))
        if total > len(self.buffer):  # reuse one buffer: page faults of new memory take longer than filling it
            self.buffer = np.empty(total + (1 << 20), dtype=np.uint8)
        out = self.buffer[:total]
        filled = 0
        while filled < total:
            piece = self.pool[cut : cut + total - filled]
            out[filled : filled + len(piece)] = piece
            filled, cut = filled + len(piece), 0
        body_at = start + self.body_offset + self.head.size
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
            entry["magic"], entry["size"] = dledger.MAGIC, batch.size + self.body_offset
            entry["index"], entry["pos"] = batch.number, batch.offset - self.body_offset
            entry["body_length"] = batch.size
            void_window(out, self.body_offset)[start] = as_rows(entry)
        void_window(out, self.head.size)[start + self.body_offset] = as_rows(heads)
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
        """Write the consume queue units of a batch."""
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
        """Write the store."""
        o, last = self.options, EPOCH
        for batch, full in self._placed():
            if len(batch.size):
                order, counts = self._queue_offsets(batch)
                uniq, keys = uniq_characters(batch.number, batch.stamp), key_characters(batch.number)
                self.log.write(int(batch.offset[0]) - self.body_offset, self._bytes(batch, uniq, keys))
                if o.consumequeue:
                    self._units(batch, order, counts)
                if self.entries:
                    units: Array = np.empty(len(batch.size), dtype=dledger.INDEX_UNIT.dtype)
                    units["magic"], units["pos"] = dledger.MAGIC, batch.offset - self.body_offset
                    units["size"], units["index"], units["term"] = batch.size + self.body_offset, batch.number, 0
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
        """Write the small files: checkpoint, lock, topics.json, and DLedger's checkpoint and currterm."""
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
    """Create the store that `options` describe.

    Errors: FileExistsError if `out` is not empty; ValueError for invalid options.
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
    """Run the command line: generate a store, and print its figures as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--out", type=Path, required=True, help="empty or new directory")
    add("--size", type=parse_size, default=parse_size("1G"), help="bytes of commitlog (default 1G)")
    add("--body", default="256", help="256, 100-2000, or a weighted mix: 256*8,16384*1")
    add("--topics", type=int, default=8, help="number of topics (default 8)")
    add("--queues", type=int, default=4, help="queues per topic (default 4)")
    add("--tags", type=int, default=8, help="number of tags (default 8)")
    add("--props", type=int, default=120, help="minimum bytes of properties (default 120)")
    add("--file-size", type=parse_size, default=1 << 30, help="size of a commitlog file (default 1G)")
    add("--cq-file-size", type=int, default=6_000_000, help="bytes of a consume queue file (default 6000000)")
    add("--no-consumequeue", dest="consumequeue", action="store_false", help="without consume queues")
    add("--index", action="store_true", help="with index files")
    add("--index-slots", type=int, default=5_000_000, help="slots of an index file (default 5000000)")
    add("--index-units", type=int, default=20_000_000, help="units of an index file (default 20000000)")
    add("--no-index-tags", dest="index_tags", action="store_false", help="no index units for TAGS, as before 5.4.0")
    add("--version-magic", choices=["v1", "v2"], default="v1", help="version of the message records (default v1)")
    add("--ipv6", action="store_true", help="IPv6 hosts")
    add("--dledger", action="store_true", help="DLedger entries in dledger-n0 instead of a commitlog")
    add("--rate", type=int, default=20_000, help="messages per second of store time (default 20000)")
    add("--seed", type=int, default=1, help="seed of all random values (default 1)")
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
