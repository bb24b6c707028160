"""Send rows of messages to a cluster, with a journal: nothing that was acknowledged is sent twice.

Rows come in the order of the source, numbered. A group of messages is noted in the journal, then handed to the client,
which sends several at once, but those of a queue one after another. A second thread notes the answers. At most
`WINDOW` messages wait for an answer, and `GROUP` are noted before they are handed over: so many are unknown after a
kill.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from rmqstore.append.messages.exchange import Row
from rmqstore.append.sending.client import Client, ClientAnswer, ClientEnded
from rmqstore.append.sending.journal import REFUSED, SENT, UNKNOWN, UNSENT, SendJournal
from rmqstore.append.sending.outgoing import CannotSend, LeftOut, Outgoing, Wishes, digest, messages_in, outgoing
from rmqstore.texts import Text

WINDOW = 96
GROUP = 32
_BYTES = 16 << 20  # of bodies without an answer
_LISTED = 1000
_STATES = {"S": SENT, "R": REFUSED, "U": UNKNOWN, "N": UNSENT}


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
            _not_tried(found, number, state_of(number, digest(row)), str(row.get("topic")), str(error))
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
        state = _STATES[answer.state]
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
