"""The HA protocol: how a master hands its log to a slave. Bytes in, events out; no sockets.

Plain (`Plain`): the slave reports offsets, 8 bytes each; the first one says where to begin. The master sends frames: an
offset (8 bytes), a size (4), the bytes. A frame of size 0 is a heartbeat; its offset is what would come next.
Source: HAConnection, HAService.HAClient (RocketMQ 4.9.7), DefaultHAConnection, DefaultHAClient (5.1.4 to 5.5.1)
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from rmqstore.texts import Text

_REPORT = struct.Struct(">q")
_HEAD = struct.Struct(">qi")
PASSIVE = -(1 << 62)
"""The offset that a client reports to be no replica. With Long.MIN_VALUE, the master's subtraction overflows."""


class BadStream(Exception):
    """Bytes that no master sends; the text says why."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Nothing new; `offset` is what the master would send next, or what was reported to it."""

    offset: int


@dataclass(frozen=True, slots=True)
class FramePart:
    """Bytes of the log from a global offset on: a part of a frame."""

    offset: int
    data: bytes


def report(offset: int) -> bytes:
    """Return the bytes of a report."""
    return _REPORT.pack(offset)


class Plain:
    """Parses what a master sends. `longest`: bytes of the longest frame, which is within one file of the log."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._head = bytearray()
        self._next = self._left = 0
        self.frames = 0
        """The number of frames and heartbeats that have begun."""

    def feed(self, data: bytes) -> Iterator[Heartbeat | FramePart]:
        """Yield what is in the next bytes. Errors: BadStream."""
        view, at = memoryview(data), 0
        while at < len(view):
            if self._left:
                piece = bytes(view[at : at + self._left])
                yield FramePart(self._next, piece)
                self._next += len(piece)
                self._left -= len(piece)
                at += len(piece)
                continue
            part = view[at : at + _HEAD.size - len(self._head)]
            self._head += part
            at += len(part)
            if len(self._head) == _HEAD.size:
                self._next, self._left = _HEAD.unpack(self._head)
                self._head.clear()
                self.frames += 1
                if not 0 <= self._left <= self._longest:
                    raise BadStream(Text("a frame of {size:,} bytes", size=self._left))
                if not self._left:
                    yield Heartbeat(self._next)
