"""Send rows of messages to a cluster, with a journal: nothing that was acknowledged is sent twice.

Rows come in the order of the source, numbered. A group of messages is noted in the journal, then handed to the client,
which sends several at once, but those of a queue one after another. A second thread notes the answers. At most
`WINDOW` messages wait for an answer, and `GROUP` are noted before they are handed over: so many are unknown after a
kill.

The journal is a text file of JSON lines. The first line says what is sent where. Before a message is handed to the
client, its number is written and flushed (`try`); every answer adds a line (`sent`, `refused`, `unknown`, `unsent`). A
message that was tried and has no answer is unknown: the command or the machine was killed. A line that a kill cut off
is removed. The number of a message is its log offset in a store, and its row in an export. Those of a batch record
follow one another from there: in an export, a batch counts as that many rows.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import threading
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson

from rmqstore.append.disk import explain, explained, sync_directory
from rmqstore.append.exchange import Row
from rmqstore.append.sending.client import (
    CannotSend,
    Client,
    ClientAnswer,
    ClientEnded,
    LeftOut,
    Outgoing,
    Wishes,
    digest,
    messages_in,
    outgoing,
)
from rmqstore.errors import Refused, reason
from rmqstore.files.private import create_private
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
        with explained(path):
            self._descriptor = (
                os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                if read_only
                else create_private(path, os.O_NONBLOCK)
            )
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
            differs = Text("{path} is the journal of another source: message {number:,} was another one")
            raise Refused(differs.format(path=self.path, number=number), _OTHER)
        state = _STATES[int(self._events[at])]
        return UNKNOWN if state == TRY else state

    def trying(self, messages: Iterable[tuple[int, str]]) -> None:
        """Note that messages (number, digest) are about to be sent; return when that is on disk."""
        self._append({TRY: [[number, digest] for number, digest in messages]})
        with explained(self.path):
            os.fdatasync(self._descriptor)

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
        with explained(self.path):
            while data:
                data = data[os.write(self._descriptor, data) :]

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
                differs = Text("{path} is the journal of another {name}: {other}")
                raise Refused(differs.format(path=self.path, name=name, other=found.get(name)), _OTHER)


def _events(line: Any) -> Iterator[tuple[int, str, str]]:
    """Yield (number, digest, state) of the messages in a line. Errors: ValueError, TypeError, KeyError."""
    if TRY in line:
        yield from ((number, digest, TRY) for number, digest in line[TRY])
        return
    state = next(name for name in (*_STATES, "") if name in line or not name)
    if not state:
        raise ValueError
    yield line[state], line["digest"], state


WINDOW = 96
GROUP = 32
_BYTES = 16 << 20  # of bodies without an answer
_LISTED = 1000
_STATE_OF_ANSWER = {"S": SENT, "R": REFUSED, "U": UNKNOWN, "N": UNSENT}


class Numbered(NamedTuple):
    """A row of the source, the number of its first message (see `journal`), and its place for errors."""

    number: int
    where: str
    row: Row


@dataclass(slots=True)
class TopicResult:
    """What became of the messages for a topic. `queues`: of the topic in the cluster; None if that is unknown."""

    messages: int = 0
    sent: int = 0
    queues: int | None = None
    why: str = ""


@dataclass(slots=True)
class Sendings:
    """The result. `sent_before`: acknowledged by earlier runs. `sent_again`: sent, and unknown of earlier runs.

    `problems` lists the first 1000 messages that were not acknowledged; `left_out` counts by kind.
    """

    messages: int = 0
    sent: int = 0
    sent_before: int = 0
    sent_again: int = 0
    refused: int = 0
    unknown: int = 0
    unsent: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    topics: dict[str, TopicResult] = field(default_factory=dict)
    reasons: Counter[tuple[str, str]] = field(default_factory=Counter)
    problems: list[dict[str, Any]] = field(default_factory=list)
    ended: str = ""
    """Why sending ended before the end of the source; "" if it did not."""

    def add_problem(self, state: str, number: int, topic: str, reason: str) -> None:
        """Count a message that was not acknowledged."""
        setattr(self, state, getattr(self, state) + 1)
        kind = (state, reason) if (state, reason) in self.reasons or len(self.reasons) < _LISTED else (state, "…")
        self.reasons[kind] += 1
        if len(self.problems) < _LISTED:
            self.problems.append({"number": number, "topic": topic, "state": state, "reason": reason})


@dataclass(slots=True)
class _Ready:
    number: int
    mark: str
    message: Outgoing
    again: bool


@dataclass(frozen=True, slots=True)
class Sending:
    """How to send: `source` names it in the messages; `rate` in messages per second, 0 for no limit."""

    source: str
    wishes: Wishes
    rate: float = 0


def send_rows(
    rows: Iterable[Numbered], client: Client, journal: SendJournal, how: Sending, progress: Callable[[int], None]
) -> Sendings:
    """Send every row that the journal does not know as sent, and return what became of them.

    Errors: BadRow and Refused of a row; no message after it is sent.
    """
    found = Sendings()
    pump = _Pump(client, journal, found, how.rate, progress)
    try:
        ready = _ready(rows, client, journal, how, found, pump)
        while not pump.ended and (group := list(islice(ready, GROUP))):
            pump.send(group)
    except ClientEnded as error:
        pump.give_up(error.message)
    finally:
        pump.finish()
    found.ended = pump.ended
    return found


def count_rows(rows: Iterable[Numbered], client: Client, journal: SendJournal | None, how: Sending) -> Sendings:
    """Count what `send_rows` would send, per topic, and ask the cluster for the topics; send nothing."""
    found = Sendings()
    for _ in _ready(rows, client, journal, how, found, None):
        pass
    return found


def _ready(
    rows: Iterable[Numbered],
    client: Client,
    journal: SendJournal | None,
    how: Sending,
    found: Sendings,
    pump: _Pump | None,
) -> Iterator[_Ready]:
    """Yield the messages to send; count the others."""
    for one, state in _messages(rows, journal, how, found):
        message = one.message
        topic = found.topics.get(message.topic)
        if topic is None:
            topic = found.topics[message.topic] = TopicResult()
            if pump is not None:
                pump.drain()  # until then, the second thread reads the answers
            if not found.ended:
                queues, topic.why = client.topic(message.topic)
                topic.queues = None if queues < 0 else queues
                found.ended = topic.why if queues < 0 else ""
            if pump is not None and found.ended:
                pump.give_up(found.ended)
                return
        found.messages += 1
        topic.messages += 1
        if state == SENT:
            found.sent_before += 1
        elif topic.queues == 0:
            _not_tried(
                found,
                one.number,
                state,
                message.topic,
                Text("the topic does not exist, or no queue of it can be written"),
            )
        else:
            yield one


def _messages(
    rows: Iterable[Numbered], journal: SendJournal | None, how: Sending, found: Sendings
) -> Iterator[tuple[_Ready, str | None]]:
    """Yield the messages of all rows that can be sent, and their state in the journal; count the others.

    The messages of a batch record have consecutive numbers.
    """

    def state_of(number: int, mark: str) -> str | None:
        return None if journal is None else journal.state(number, mark)

    for number, where, row in rows:
        try:
            messages = outgoing(row, where, how.source, how.wishes)
        except LeftOut as left:
            found.left_out[left.kind] += messages_in(row)
        except CannotSend as error:
            found.messages += 1
            _not_tried(found, number, state_of(number, digest(row)), str(row.get("topic")), reason(error))
        else:
            for inner, message in enumerate(messages):
                mark = digest(row, inner)
                state = state_of(number + inner, mark)
                yield _Ready(number + inner, mark, message, state == UNKNOWN), state


def _not_tried(found: Sendings, number: int, state: str | None, topic: str, why: str) -> None:
    """Count a message that the client does not get; what an earlier run may have sent stays unknown."""
    found.add_problem(UNKNOWN if state == UNKNOWN else REFUSED, number, topic, why)


class _Pump:
    """Hands messages to the client, and notes its answers in a second thread."""

    def __init__(
        self, client: Client, journal: SendJournal, found: Sendings, rate: float, progress: Callable[[int], None]
    ) -> None:
        self._client, self._journal, self._found, self._progress = client, journal, found, progress
        self._pause = 1 / rate if rate else 0.0
        self._next = 0.0
        self._changed = threading.Condition()
        self._open: dict[int, _Ready] = {}
        self._bytes = 0
        self._error: BaseException | None = None
        self.ended = ""
        self._thread: threading.Thread | None = None

    def send(self, group: list[_Ready]) -> None:
        """Note a group of messages in the journal and send them, as far as the cluster is available."""
        with self._changed:
            self._journal.trying((one.number, one.mark) for one in group)
        handed = 0
        try:
            for one in group:
                self._wait_for_room(len(one.message.body))
                if self.ended:
                    return
                self._keep_pace()
                with self._changed:
                    self._open[one.number] = one
                    self._bytes += len(one.message.body)
                    handed += 1
                self._client.send(one.number, one.message)
                self._client.flush()
                self._start()
        finally:
            for one in group[handed:]:
                self._settle(one, UNSENT, self.ended or "interrupted", {})

    def drain(self) -> None:
        """Wait until every message has an answer. Errors: those of the second thread."""
        self._start()
        with self._changed:
            while self._open and self._error is None:
                self._changed.wait()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()
        if self._error is not None:
            raise self._error

    def give_up(self, why: str) -> None:
        """Send no further message."""
        self.ended = self.ended or why

    def finish(self) -> None:
        """Wait for the answers; what has none when the client ends is unknown."""
        try:
            self.drain()
        except ClientEnded as error:
            self.give_up(error.message)
            for one in list(self._open.values()):
                self._settle(one, UNKNOWN, error.message, {})

    def _start(self) -> None:
        """Let the second thread read answers while messages are open."""
        if self._open and self._thread is None and self._error is None:
            self._thread = threading.Thread(target=self._listen, daemon=True)
            self._thread.start()

    def _wait_for_room(self, size: int) -> None:
        with self._changed:
            while self._open and self._error is None and (len(self._open) >= WINDOW or self._bytes + size > _BYTES):
                self._changed.wait()
        if self._error is not None:
            raise self._error

    def _keep_pace(self) -> None:
        if self._pause:
            now = time.monotonic()
            if self._next > now:
                time.sleep(self._next - now)
            self._next = max(self._next, now - 1) + self._pause

    def _listen(self) -> None:
        """Note answers while messages are open."""
        try:
            while True:
                with self._changed:
                    if not self._open:
                        self._thread = None
                        return
                self._take(self._client.answer())
        except BaseException as error:  # noqa: BLE001  # the first thread raises it
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _take(self, answer: ClientAnswer) -> None:
        one = self._open[answer.number]
        state = _STATE_OF_ANSWER[answer.state]
        if state == SENT:
            offset, message_id, status = answer.fields
            self._settle(one, SENT, "", {"queue_offset": int(offset), "id": message_id, "status": status})
        else:
            why = answer.fields[0]
            if state == UNSENT:
                self.give_up(why)
            self._settle(one, state, why, {})

    def _settle(self, one: _Ready, state: str, why: str, more: dict[str, Any]) -> None:
        """Note and count what became of a message."""
        topic = one.message.topic
        with self._changed:
            if state != SENT and one.again:
                state = UNKNOWN  # an earlier run may have sent it
            self._journal.note(state, one.number, one.mark, topic=topic, **more, **({"reason": why} if why else {}))
            if state == SENT:
                self._found.sent += 1
                self._found.sent_again += one.again
                self._found.topics[topic].sent += 1
            else:
                self._found.add_problem(state, one.number, topic, why)
            if self._open.pop(one.number, None) is not None:
                self._bytes -= len(one.message.body)
            self._changed.notify_all()
        self._progress(1)
