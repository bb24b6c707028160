"""Convert consume queues, extension files and timer logs: replace the hashes of tags and topics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from rmqstore.files.files import Files
from rmqstore.formats import consumequeue, timer
from rmqstore.formats.javatext import java_string_hash
from rmqstore.formats.layout import Layout
from rmqstore.views.bundle.logs import Piece
from rmqstore.views.bundle.names import Pseudonyms
from rmqstore.views.bundle.noise import byte_noise

_UNITS = 50_000


def unit_pieces(files: Files, path: Path, layout: Layout, names: Pseudonyms) -> Iterator[Piece]:
    """Yield a converted file of consume queue or batch queue units. Errors: OSError if it cannot be read."""
    at = 0
    with files.open(path) as file:
        while block := file.read(_UNITS * layout.size, at):
            whole = len(block) // layout.size * layout.size
            units = layout.array(block).copy()
            codes, inverse = np.unique(units["tags_code"], return_inverse=True)
            units["tags_code"] = np.array([names.code(int(code)) for code in codes], dtype=np.int64)[inverse]
            yield at, units.tobytes() + byte_noise(block[whole:])
            at += len(block)


def ext_pieces(files: Files, path: Path, names: Pseudonyms) -> Iterator[Piece]:
    """Yield a converted consume queue extension file. Errors: OSError if it cannot be read."""
    layout = consumequeue.EXT_UNIT

    def renamed(out: bytearray) -> None:
        at = 0
        while at + layout.size <= len(out):
            unit = layout.unpack(bytes(out[at : at + layout.size]))
            if unit["size"] < layout.size:
                break
            code = names.code(unit["tags_code"]).to_bytes(8, "big", signed=True)
            out[at + layout.at("tags_code") : at + layout.at("tags_code") + 8] = code
            at += unit["size"]

    yield from _whole(files, path, renamed)


def timer_pieces(files: Files, path: Path, topics: Iterable[str], names: Pseudonyms) -> Iterator[Piece]:
    """Yield a converted timer log file. Errors: OSError if it cannot be read."""
    known = {java_string_hash(topic): topic for topic in topics}
    layout = timer.LOG_UNIT

    def renamed(out: bytearray) -> None:
        for at in range(0, len(out) - layout.size + 1, layout.size):
            unit = layout.unpack(bytes(out[at : at + layout.size]))
            if unit["size"] != layout.size:
                break
            topic = known.get(unit["real_topic_hash"])
            if topic is None:
                code = names.key_hash(unit["real_topic_hash"])
            else:
                code = java_string_hash(names.topic(topic.encode()).decode())
            field = at + layout.at("real_topic_hash")
            out[field : field + 4] = code.to_bytes(4, "big", signed=True)

    yield from _whole(files, path, renamed)


def _whole(files: Files, path: Path, change: Callable[[bytearray], None]) -> Iterator[Piece]:
    with files.open(path) as file:
        data = bytearray(file.read(file.length, 0))
    change(data)
    yield 0, bytes(data)
