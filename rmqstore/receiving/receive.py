"""The loop of `receive`: connect, check, follow, flush, ask how far the master is, connect again.

Passive: the master learns where to begin, and then hears of no offset that counts as a replica's. The first report has
to be answered before the next one: the master reads only the last of several.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field

from rmqstore.errors import CouldNotCheck
from rmqstore.receiving.master import (
    Master,
    bounds,
    examine,
    refuse_gap_or_end,
    refuse_other_history,
    refuse_unsupported,
)
from rmqstore.receiving.proof import Proven, Prover
from rmqstore.receiving.spool import Spool
from rmqstore.remoting import requests
from rmqstore.remoting.connection import BrokerAddress, Connection, ConnectionLost, Tls
from rmqstore.remoting.frames import Signer
from rmqstore.remoting.ha import PASSIVE, BadStream, FramePart, Plain, report
from rmqstore.remoting.requests import RemoteBroker
from rmqstore.texts import Text

_STEP = 0.2  # s that a step waits for bytes
_REPORT = 5.0  # s between reports: after 20 s without one, the master closes the connection (haHousekeepingInterval)
_ASK = 2.0  # s between questions how far the master is
_SILENCE = 30.0  # s without a frame or a heartbeat, which comes every 5 s, after which the connection is given up
_FLUSH_SECONDS, _FLUSH_BYTES = 0.5, 16 << 20
_SEND = 10.0
_TRIES = 5  # connections in a row that bring nothing, before a run that is to end gives up
_LONGEST_PAUSE = 60.0
_ASKED_AGAIN = 8  # places at which damaged bytes are asked for again: they may have been damaged on their way
_CONFIG = {
    "consumerOffset.json": requests.CONSUMER_OFFSETS,
    "delayOffset.json": requests.DELAY_OFFSETS,
    "topics.json": requests.TOPICS,
    "subscriptionGroup.json": requests.GROUPS,
}
_LATER = ("topics.json", "subscriptionGroup.json")
"""What is asked for when the messages are there: no message may lack its topic."""


@dataclass(frozen=True, slots=True)
class ReceiveOptions:
    """What to follow, and how.

    `ack`: report what is on disk, as a slave does; `sync_master`: follow a SYNC_MASTER of 4.x passively; `max_rate`:
    bytes per second, 0 without a limit; `once`: end as soon as all is there that the master had at one moment.
    """

    address: BrokerAddress
    signer: Signer | None = None
    tls: Tls | None = None
    ack: bool = False
    sync_master: bool = False
    max_rate: int = 0
    once: bool = False


@dataclass(slots=True)
class Arrival:
    """How far a run is. `last_time`: store time of the last message (ms), -1 without one."""

    received: int = 0
    messages: int = 0
    reconnects: int = 0
    connected: bool = False
    last_time: int = -1
    master_end: int = 0
    """Where the master's log ended when it was asked last."""
    rest: int = -1
    """Where the master had nothing more to send, the last time."""

    def lag(self, end: int) -> int:
        """Return how many bytes of the log are missing."""
        return max(0, self.master_end - max(0, end))

    def lag_seconds(self, end: int) -> float:
        """Return the age of the last message that has arrived, while others are missing."""
        if not self.lag(end) or self.last_time < 0:
            return 0.0
        return max(0.0, time.time() - self.last_time / 1000)


class _AskAgain(Exception):
    """Bytes that arrived are damaged, perhaps on their way."""


@dataclass(slots=True)
class OffsetsAt:
    """Offsets that were asked for; all that they refer to is there once the log reaches `end`."""

    end: int
    documents: dict[str, bytes] = field(default_factory=dict)


class Follower:
    """Follows a master into a spool, which is open. `note` tells the user something."""

    def __init__(self, spool: Spool, options: ReceiveOptions, note: Callable[[str], None]) -> None:
        self.spool = spool
        self.options = options
        self.progress = Arrival()
        self.master: Master | None = None
        self._note = note
        self._broker: RemoteBroker | None = None
        self._asked_again: set[int] = set()
        self._met = False  # whether the master has once sent what a master sends
        self._due = 0.0  # when the next bytes are within the rate

    def follow(self) -> Iterator[None]:
        """Follow for ever, and yield a few times a second; connect again when the connection is lost.

        Errors: ConnectionLost if there was none yet, and with `once` if several in a row bring nothing; OtherHistory,
        Refused, CouldNotCheck, NoSpace, NotReadable.
        """
        failures, pause = 0, 1.0
        while True:
            before = self.progress.received
            try:
                yield from self._connection()
            except (ConnectionLost, _AskAgain) as error:
                if self.progress.received > before:
                    failures, pause = 0, 1.0
                failures += 1
                if isinstance(error, ConnectionLost):
                    if not self._met or (self.options.once and failures >= _TRIES):
                        raise
                    words = Text("warning: {message}; connecting again in {seconds:.0f} s")
                    self._note(words.format(message=error.message, seconds=pause))
                    yield from self._pause(pause)
                    pause = min(2 * pause, _LONGEST_PAUSE)
                self.progress.reconnects += 1
            finally:
                self.progress.connected = False
                self.spool.flush()

    @property
    def nothing_there(self) -> bool:
        """Whether the master has no message."""
        return self.progress.connected and self.master is not None and self.master.is_empty and self.spool.is_empty

    def has_reached(self, mark: OffsetsAt) -> bool:
        """Whether all has arrived that the master had; the last record may not be whole, if it has not more of it."""
        if self.spool.end >= mark.end:
            return True
        if self.progress.rest < mark.end:
            return False
        self._note(Text("warning: the master's log ends within the record at {end:,}", end=self.spool.end))
        return True

    def mark(self) -> OffsetsAt:
        """Ask for offsets, and then for the end of the log. Errors: ConnectionLost."""
        mark = OffsetsAt(0)
        self._ask_documents(mark, later=False)
        _, mark.end = bounds(self._remote)
        self.progress.master_end = mark.end
        return mark

    def complete(self, mark: OffsetsAt) -> None:
        """Write the configuration of a moment whose messages are there. Errors: ConnectionLost."""
        self._ask_documents(mark, later=True)
        for name, data in mark.documents.items():
            self.spool.put_config(name, data)
        self.spool.flush()

    # --- a connection ----------------------------------------------------------------------------------------------

    @property
    def _remote(self) -> RemoteBroker:
        if self._broker is None:
            raise ConnectionLost(Text("{address}: not connected", address=str(self.options.address)))
        return self._broker

    def _connection(self) -> Iterator[None]:
        options = self.options
        with closing(RemoteBroker(options.address, options.signer, options.tls)) as broker:
            self._broker = broker
            try:
                self.master = master = self._greet(broker)
                while master.is_empty:
                    self.progress.connected = self._met = True
                    yield from self._pause(_ASK)
                    self.master = master = self._greet(broker)
                if self.spool.is_empty:
                    self._begin(master)
                refuse_other_history(self.spool, master, broker)
                with closing(Connection(BrokerAddress(options.address.host, master.ha_port))) as link:
                    yield from self._stream(_Stream(link, self.spool, ack=options.ack))
            finally:
                self._broker = None

    def _greet(self, broker: RemoteBroker) -> Master:
        """Ask the broker who it is. Errors: Refused if it is not one to follow."""
        master = examine(broker)
        refuse_unsupported(master, ack=self.options.ack, sync_master=self.options.sync_master)
        self.spool.belongs_to(master.source, master.file_size, master.settings)
        self.progress.master_end = master.end
        return master

    def _begin(self, master: Master) -> None:
        if master.begin % master.file_size:
            words = Text("the master's log begins at {begin:,}, which is not the start of a file")
            raise CouldNotCheck(words.format(begin=master.begin), Text("run `rmqstore verify` on its host"))
        self.spool.start_at(master.begin)

    def _stream(self, stream: _Stream) -> Iterator[None]:
        asked = flushed = time.monotonic()
        self.progress.connected = True
        while True:
            now = time.monotonic()
            if now < self._due:
                time.sleep(min(_STEP, self._due - now))
                stream.not_read()
            else:
                self._take(stream)
                self._met = self._met or stream.answered
                self.progress.rest = stream.rest
            now, unflushed = time.monotonic(), self.spool.end - self.spool.flushed
            if unflushed and (self.options.ack or now - flushed > _FLUSH_SECONDS or unflushed > _FLUSH_BYTES):
                self.spool.flush()
                flushed = time.monotonic()
            stream.report(self.spool.flushed)
            if now - asked > _ASK:
                self._look(stream)
                asked = time.monotonic()
            yield

    def _take(self, stream: _Stream) -> None:
        """Receive bytes and keep those that are proven."""
        for found in stream.receive():
            if found.faults:
                self._judge(found)
            self.spool.append(found, unproven=stream.prover.unproven)
            self.progress.received += len(found.data)
            self.progress.messages += found.messages
            self.progress.last_time = max(self.progress.last_time, found.last_time)
            if self.options.max_rate:
                self._due = max(self._due, time.monotonic()) + len(found.data) / self.options.max_rate

    def _judge(self, found: Proven) -> None:
        """Ask again for what is no sound record, then take it as the master has it.

        Errors: _AskAgain; CouldNotCheck if the log does not begin with a record.
        """
        first = min(start for start, _ in found.faults)
        if first not in self._asked_again and len(self._asked_again) < _ASKED_AGAIN:
            self._asked_again.add(first)
            raise _AskAgain
        if any(start == self.spool.begin for start, _ in found.unproven):
            words = Text("{address}: what arrives does not begin with a record", address=str(self.options.address))
            raise CouldNotCheck(words, Text("run `rmqstore verify` on the master's host"))
        self._note(Text("warning: the master's log is damaged at {first:,}; it is kept as it is", first=first))

    def _look(self, stream: _Stream) -> None:
        """Ask how far the master is. Errors: OtherHistory; ConnectionLost if it does not send what it says it has."""
        own = self.spool.end
        begin, end = bounds(self._remote)
        self.progress.master_end = end
        refuse_gap_or_end(own, begin, end)
        stream.refuse_rest_before(end)

    def _ask_documents(self, mark: OffsetsAt, *, later: bool) -> None:
        for name, code in _CONFIG.items():
            if (name in _LATER) is later:
                try:
                    mark.documents[name] = self._remote.document(code)
                except ConnectionLost:
                    raise
                except CouldNotCheck as error:
                    words = Text("warning: {name} is not in the snapshot: {message}", name=name, message=error.message)
                    self._note(words)

    @staticmethod
    def _pause(seconds: float) -> Iterator[None]:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(_STEP, left))
            yield


class _Stream:
    """The bytes of the HA connection, as proven records. Errors of all methods: ConnectionLost."""

    def __init__(self, link: Connection, spool: Spool, *, ack: bool) -> None:
        self._link = link
        self._ack = ack
        self._parser = Plain(spool.file_size)
        self.prover = Prover(spool.end, spool.file_size, unproven=spool.unproven)
        self._next = spool.end
        self.rest = -1
        """Where the master had nothing more to send."""
        self._heard = self._moved = self._reported = time.monotonic()
        self.answered = False
        """Whether the master has sent a frame or a heartbeat."""
        self._said: int | None = None
        if self._next == 0:
            # 0 means the last file. A record is shorter than 16 MiB, so the first byte of its size is 0
            self._next = 1
            self.prover.feed(b"\0")
        link.send(report(self._next), _SEND)

    def receive(self) -> Iterator[Proven]:
        """Yield what of the bytes that are there is proven; wait for them a moment."""
        data, frames = self._link.receive(_STEP), self._parser.frames
        try:
            for event in self._parser.feed(data):
                self.answered = True
                if event.offset != self._next:
                    words = Text("it sends {offset:,} after {expected:,}")
                    raise BadStream(words.format(offset=event.offset, expected=self._next))
                if isinstance(event, FramePart):
                    self._next += len(event.data)
                    self._moved = time.monotonic()
                    yield self.prover.feed(event.data)
                else:
                    self.rest = self._next
        except BadStream as error:
            words = Text("{address} does not speak as a master does: {why}")
            raise ConnectionLost(words.format(address=str(self._link.address), why=error.args[0])) from error
        if self._parser.frames != frames:
            self.alive()
        if time.monotonic() - self._heard > _SILENCE:
            raise ConnectionLost(Text("{address} is silent", address=str(self._link.address)))

    def alive(self) -> None:
        """Note that the master is not to blame for the time until now."""
        self._heard = time.monotonic()

    def not_read(self) -> None:
        """Note that nothing was read until now."""
        self.alive()
        self._moved = self._heard

    def refuse_rest_before(self, end: int) -> None:
        """Refuse a master that has had nothing to send for long, before the end of its log."""
        if self.rest == self._next < end and time.monotonic() - self._moved > _SILENCE:
            words = Text("{address} says that its log ends at {end:,}, and sends nothing after {rest:,}")
            raise ConnectionLost(words.format(address=str(self._link.address), end=end, rest=self.rest))

    def report(self, flushed: int) -> None:
        """Report, if it is time for it: what is on disk, or that this is no replica."""
        if not self.answered:
            return
        offset = flushed if self._ack else PASSIVE
        now = time.monotonic()
        if now - self._reported >= _REPORT or offset != self._said:
            self._link.send(report(offset), _SEND)
            self._reported, self._said = now, offset
