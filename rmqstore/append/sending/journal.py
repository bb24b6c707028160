"""The journal of `send`: which message was tried, and what became of it.

A text file of JSON lines. The first line says what is sent where. Before a message is handed to the client, its number
is written and flushed (`try`); every answer adds a line (`sent`, `refused`, `unknown`, `unsent`). A message that was
tried and has no answer is unknown: the command or the machine was killed. A line that a kill cut off is removed.

The number of a message is its log offset in a store, and its row in an export. Those of a batch record follow one
another from there: in an export, a batch counts as that many rows.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from rmqstore.append.files.disk import FILE_MODE, explain, sync_directory
from rmqstore.errors import Refused
from rmqstore.texts import Text

SCHEMA = "rmqstore.send-journal/1"
SENT, REFUSED, UNKNOWN, UNSENT, TRY = "sent", "refused", "unknown", "unsent", "try"
_STATES = (TRY, SENT, REFUSED, UNKNOWN, UNSENT)
_OTHER = Text("give another --journal, or the source and the name servers that it belongs to")
_BROKEN = Text("keep the file: it alone tells what was sent. Restore it from a copy, or give another --journal")


class SendJournal:
    """An open journal; another command cannot open it at the same time.

    Errors: Refused if it belongs to another source or cluster, if it is in use, or if it is not a journal; NoSpace and
    NotReadable of the file.
    """

    def __init__(self, path: Path, about: dict[str, str], *, read_only: bool = False) -> None:
        self.path = path
        self._read_only = read_only
        self._numbers = np.zeros(0, dtype=np.int64)
        self._events = np.zeros(0, dtype=np.uint8)
        self._digests = np.zeros(0, dtype=np.uint64)
        new = not path.exists()
        if read_only and new:
            self._descriptor = -1
            return
        flags = os.O_NONBLOCK | (os.O_RDONLY if read_only else os.O_RDWR | os.O_CREAT)
        try:
            self._descriptor = os.open(path, flags | os.O_CLOEXEC, FILE_MODE)
        except OSError as error:
            raise explain(error, path) from error
        try:
            if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
                raise Refused(Text("{path} is not a regular file", path=path), Text("give another --journal"))
            self._lock()
            self._load({"schema": SCHEMA, **about})
            if new:
                sync_directory(path.absolute().parent)
        except BaseException:
            os.close(self._descriptor)
            raise

    def state(self, number: int, digest: str) -> str | None:
        """Return the last state of a message: SENT, REFUSED, UNKNOWN, UNSENT, or None if it was never tried.

        Errors: Refused if another message had this number.
        """
        at = int(np.searchsorted(self._numbers, number))
        if at == len(self._numbers) or int(self._numbers[at]) != number:
            return None
        if int(self._digests[at]) != int(digest, 16):
            raise Refused(
                Text(
                    "{path} is the journal of another source: message {number:,} was another one",
                    path=self.path,
                    number=number,
                ),
                _OTHER,
            )
        state = _STATES[int(self._events[at])]
        return UNKNOWN if state == TRY else state

    def trying(self, messages: Iterable[tuple[int, str]]) -> None:
        """Note that messages (number, digest) are about to be sent; return when that is on disk."""
        self._append({TRY: [[number, digest] for number, digest in messages]})
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            raise explain(error, self.path) from error

    def note(self, state: str, number: int, digest: str, **more: Any) -> None:
        """Note what became of a message."""
        self._append({state: number, "digest": digest, **more})

    def close(self) -> None:
        """Flush and close the journal; a second call does nothing."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            try:
                if not self._read_only:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def _lock(self) -> None:
        if self._read_only:
            return
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise explain(error, self.path) from error
            raise Refused(
                Text("{path} is in use by another `rmqstore send`", path=self.path), Text("wait until it has ended")
            ) from error

    def _append(self, line: dict[str, Any]) -> None:
        data = orjson.dumps(line) + b"\n"
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError as error:
            raise explain(error, self.path) from error

    def _load(self, head: dict[str, str]) -> None:
        """Read the journal, remove a line that was cut off, and go to the end; write the head of a new one."""
        numbers, events, digests, end = array("q"), array("B"), array("Q"), 0
        for line_number, (line, after) in enumerate(self._lines(), 1):
            end = after
            try:
                found = orjson.loads(line)
                if line_number == 1:
                    self._check_head(found, head)
                    continue
                for number, digest, state in _events(found):
                    numbers.append(number)
                    digests.append(int(digest, 16))
                    events.append(_STATES.index(state))
            except (orjson.JSONDecodeError, ValueError, TypeError, KeyError, OverflowError, AttributeError) as error:
                raise Refused(
                    Text("{path}:{line_number} is not a line of a journal", path=self.path, line_number=line_number),
                    _BROKEN,
                ) from error
        if end == 0 and not orjson.dumps(head).startswith(os.pread(self._descriptor, 1 << 16, 0)):
            raise Refused(Text("{path} is not a journal of `rmqstore send`", path=self.path), _OTHER)
        if not self._read_only:
            os.ftruncate(self._descriptor, end)
            os.lseek(self._descriptor, end, os.SEEK_SET)
            if end == 0:
                self._append(head)
        self._keep_last(*(np.array(column) for column in (numbers, events, digests)))

    def _keep_last(self, numbers: Any, events: Any, digests: Any) -> None:
        """Keep the last event of each message."""
        order = np.argsort(numbers, kind="stable")
        numbers = numbers[order].astype(np.int64)
        last = np.append(numbers[1:] != numbers[:-1], True)[: len(numbers)]
        self._numbers = numbers[last]
        self._events = events[order][last].astype(np.uint8)
        self._digests = digests[order][last].astype(np.uint64)

    def _lines(self) -> Iterator[tuple[bytes, int]]:
        """Yield complete lines, and the position after each."""
        end = 0
        with os.fdopen(os.dup(self._descriptor), "rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    return
                end += len(line)
                yield line, end

    def _check_head(self, found: Any, head: dict[str, str]) -> None:
        if not isinstance(found, dict) or found.get("schema") != SCHEMA:
            raise Refused(Text("{path} is not a journal of `rmqstore send`", path=self.path), _OTHER)
        for name, value in head.items():
            if found.get(name) != value:
                raise Refused(
                    Text(
                        "{path} is the journal of another {name}: {get}", path=self.path, name=name, get=found.get(name)
                    ),
                    _OTHER,
                )


def _events(line: Any) -> Iterator[tuple[int, str, str]]:
    """Yield (number, digest, state) of the messages in a line. Errors: ValueError, TypeError, KeyError."""
    if TRY in line:
        yield from ((number, digest, TRY) for number, digest in line[TRY])
        return
    state = next(name for name in (*_STATES, "") if name in line or not name)
    if not state:
        raise ValueError
    yield line[state], line["digest"], state
