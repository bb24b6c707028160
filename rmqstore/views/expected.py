"""Compare what producers had acknowledged with a store: which ids and keys are present, damaged, lost, or nowhere.

One pass over the log looks for all of them. Unique ids are compared exactly. For a message whose record is gone, only
hashes of its keys in the index are left; another key has the same hash with a probability of one in two billion.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import orjson

from rmqstore.files.store import Store
from rmqstore.formats import properties
from rmqstore.formats.message import is_filler
from rmqstore.formats.messageid import decode_offset_message_id
from rmqstore.formats.text import as_written
from rmqstore.messages.repaired import repaired_records
from rmqstore.scan import native
from rmqstore.scan.columns import Columns, Repaired, filler_mask
from rmqstore.scan.kernels import I64
from rmqstore.scan.properties import PropertyTexts
from rmqstore.scan.records import scan_split
from rmqstore.scan.split import Split
from rmqstore.scan.tiling import Kind
from rmqstore.scan.window import ScanOptions
from rmqstore.scan.workers import SplitPart, Workers, joined
from rmqstore.views import lookup
from rmqstore.views.dump.messages import WRONG_CRC, logs_of, own_log, splits_for
from rmqstore.views.dump.selection import Selection
from rmqstore.views.lookup import Found
from rmqstore.views.lost import LostMessage, with_keys
from rmqstore.views.stories import relation_of

PRESENT, DAMAGED, LOST, NOWHERE = "present", "damaged", "lost", "nowhere"
NAMES = ("unique_key", "msgId", "msg_id", "uniqKey", "UNIQ_KEY", "offsetMsgId", "keys", "key", "KEYS")
"""Fields of NDJSON and CSV that identify a message, the most exact first: of an export, or of a client's SendResult."""
_ID = re.compile(r"[0-9A-Fa-f]{32}|[0-9A-Fa-f]{40}|[0-9A-Fa-f]{56}")
"""A unique id, with the IPv4 or IPv6 address of its client, or an offset message id."""
_SOUND = ("cut", "no-unit", "same-offset")  # causes of messages whose record is sound
_FEW = 20_000  # texts that are sent to other processes with every split
_ORDER = {"real": 0, "retry": 1, "dlq": 2, "delayed": 3, "timer": 3}


@dataclass(frozen=True, slots=True)
class Hit:
    """A record of the log that has one of the texts. `text`: its number. `sound`: without a wrong CRC."""

    text: int
    offset: int
    sound: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one expected message.

    `state`: present, damaged (its record is there), lost or nowhere. `cause`: why it is lost: filler, damage, or cut
    (the next start deletes it). `exact`: a record, not a hash, told it. `found`: its record, or `lost`: what is left.
    """

    text: str
    state: str
    cause: str = ""
    repair: str = ""
    exact: bool = True
    found: Found | None = None
    lost: LostMessage | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the row of `lost --expected`."""
        row: dict[str, Any] = {"expected": self.text, "state": self.state, "cause": self.cause or None}
        row |= {"repair": self.repair or None, "exact": self.exact}
        names = ("topic", "queue_id", "queue_offset", "offset", "store_timestamp")
        values: tuple[Any, ...]
        if self.lost is not None:
            values = tuple(getattr(self.lost, name) for name in names)
        elif self.found is not None:
            values = (*self.found.queue_place, self.found.offset, self.found.message.store_timestamp)
        else:
            values = (None,) * len(names)
        return row | dict(zip(names, values, strict=True))


@dataclass(frozen=True, slots=True)
class ExpectedList:
    """The ids and keys of a list, each once, and the numbers of the lines that name no message."""

    texts: list[str]
    unread: list[int]


def read_expected(data: bytes) -> ExpectedList:
    """Read a list: one id or key per line; or NDJSON, or CSV with a header, with a field of an export or SendResult."""
    lines = data.decode("utf-8", "surrogateescape").splitlines()
    head: list[str] = []
    with suppress(csv.Error):  # a field of more than 128 KiB
        head = next(csv.reader(lines[:1]), [])
    texts: dict[str, None] = {}
    unread: list[int] = []
    if len(head) > 1 and set(NAMES) & set(head):
        rows: Iterator[tuple[int, str | None]] = _of_csv(lines)
    else:
        rows = ((number, _of_line(line.strip())) for number, line in enumerate(lines, 1) if line.strip())
    for number, text in rows:
        if text:
            texts.update(dict.fromkeys(_each_of(text)))
        else:
            unread.append(number)
    return ExpectedList(list(texts), unread)


def _each_of(text: str) -> list[str]:
    """Return the ids of a text: a client joins those of a batch with commas (MQClientAPIImpl#processSendResponse)."""
    parts = text.split(",")
    return parts if len(parts) > 1 and all(map(_ID.fullmatch, parts)) else [text]


def _of_csv(lines: list[str]) -> Iterator[tuple[int, str | None]]:
    reader = csv.DictReader(lines)
    try:
        for row in reader:
            yield (
                reader.line_num,
                _named({name: as_written(text) for name, text in row.items() if isinstance(text, str)}),
            )
    except csv.Error:  # a field of more than 128 KiB
        yield reader.line_num, None


def _of_line(line: str) -> str | None:
    if not line.startswith("{"):
        return line
    try:
        return _named(orjson.loads(line))
    except orjson.JSONDecodeError:
        return None


def _named(row: Mapping[str, object]) -> str | None:
    """Return the most exact name of a message in a row; None if it has none."""
    for name in NAMES:
        value = row.get(name)
        if isinstance(value, str) and value:
            return value.split(" ")[0] if name.lower() in ("keys", "key") else value
    return None


@dataclass(slots=True)
class _ExpectedPart(SplitPart):
    hits: list[Hit] = field(default_factory=list)


class _ExpectedTexts:
    """The wanted texts, for comparison with chunks of records."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.numbers = {text.encode("utf-8", "surrogateescape"): n for n, text in enumerate(texts)}
        words = list(self.numbers)
        length = np.array([len(word) for word in words], dtype=np.int64)
        joined_words = np.frombuffer(b"".join(words) + bytes(8), dtype=np.uint8)
        codes, _ = native.load().hashes(joined_words, np.cumsum(length) - length, length)
        self.codes: I64 = np.unique(codes)

    def hits(self, columns: Columns) -> Iterator[tuple[int, int]]:
        """Yield (record, number of the text) for each text that is the unique id or a key of a record."""
        texts = PropertyTexts(columns)
        for name in (b"UNIQ_KEY", b"KEYS"):
            record, start, length = texts.values(name)
            if name == b"UNIQ_KEY" and len(record):
                codes, plain = native.load().hashes(columns.buf, start, length)
                like = np.isin(codes, self.codes) | ~plain
                record, start, length = record[like], start[like], length[like]
            for i, a, n in zip(record.tolist(), start.tolist(), length.tolist(), strict=True):
                value = bytes(columns.raw[a : a + n])
                for word in (value,) if name == b"UNIQ_KEY" else value.split(b" "):
                    if word in self.numbers:
                        yield i, self.numbers[word]
        for i in np.flatnonzero(texts.odd).tolist():
            found = properties.parse_properties(columns.properties(i))
            for own in (found.get(properties.UNIQ_KEY, ""), *found.get(properties.KEYS, "").split(" ")):
                raw = own.encode("utf-8", "surrogateescape")
                if raw in self.numbers:
                    yield i, self.numbers[raw]


def _split_hits(wanted: _ExpectedTexts, repaired: Repaired, options: ScanOptions, split: Split) -> _ExpectedPart:
    out = _ExpectedPart()
    for run in scan_split(split, options):
        out.extend(run.start, run.stop)
        columns = run.columns
        if columns is None or (run.kind is Kind.DIRTY and run.cause not in WRONG_CRC):
            continue
        fillers = filler_mask(columns, repaired)
        offset = columns.offset
        out.hits += [
            Hit(text, int(offset[i]), run.kind is not Kind.DIRTY)
            for i, text in wanted.hits(columns)
            if fillers is None or not fillers[i]
        ]
    return out


def records_of(
    store: Store, texts: Collection[str], workers: Workers | None = None, options: ScanOptions | None = None
) -> dict[str, Hit]:
    """Return the best record of the log for each unique id, key or offset message id: sound, and for consumers."""
    workers = workers or Workers()
    names = list(texts)
    repaired = repaired_records(store)
    look = partial(_split_hits, _ExpectedTexts(names), repaired, options or ScanOptions())
    best: dict[int, tuple[tuple[int, int, int], Hit]] = {}
    for log in (own_log(log) for log in logs_of(store)):
        splits = list(splits_for(log, Selection(), workers.split_size))
        for split, part in joined(look, splits, workers.jobs if len(names) <= _FEW else 1, workers.mapper):
            for hit in part.hits:
                rank = _rank(store, hit)
                if hit.text not in best or rank < best[hit.text][0]:
                    best[hit.text] = rank, hit
            if workers.progress is not None:
                workers.progress(split.stop - split.start)
    out = {names[number]: hit for number, (_, hit) in best.items()}
    for text in names:
        found = lookup.by_message_id(store, text) if text not in out else None
        if found is not None and found.offset not in (None, *repaired.fillers) and not is_filler(found.message):
            assert found.offset is not None
            out[text] = Hit(-1, found.offset, found.sound)
    return out


def _rank(store: Store, hit: Hit) -> tuple[int, int, int]:
    found = lookup.by_offset(store, hit.offset)
    return not hit.sound, 9 if found is None else _ORDER.get(relation_of(found), 5), hit.offset


def verdicts(
    store: Store, texts: Collection[str], hits: Mapping[str, Hit], losses: Iterable[tuple[str, Iterable[LostMessage]]]
) -> Iterator[Verdict]:
    """Yield what became of each text, in order.

    `losses`: (name of the repair, or "" for those that were not repaired; lost messages).
    """
    gone: dict[str, Verdict] = {}
    ids = {text: key.physical_offset for text in texts if (key := decode_offset_message_id(text)) is not None}
    for repair, rows in losses:
        lost_here = [row for row in rows if not row.mended]
        at = {one.offset: one for one in lost_here}
        named = [(at[offset], (text,)) for text, offset in ids.items() if offset in at]
        for one, fits in (*with_keys(lost_here, texts), *named):
            cause = "filler" if repair else one.cause
            for text in fits:
                gone.setdefault(text, Verdict(text, LOST, cause, repair, one.found is not None, lost=one))
    for text in texts:
        hit, lost = hits.get(text), gone.get(text)
        if hit is not None and hit.sound and (lost is None or lost.cause not in _SOUND):
            yield Verdict(text, PRESENT, found=lookup.by_offset(store, hit.offset))
        elif hit is not None and not hit.sound:
            yield Verdict(text, DAMAGED, found=lookup.by_offset(store, hit.offset))
        else:
            yield lost or Verdict(text, NOWHERE)
