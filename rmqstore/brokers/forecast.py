"""The result of a simulated broker start, and its options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rmqstore.brokers.record import DEFAULT_HEAP
from rmqstore.formats.consumequeue import QueueName
from rmqstore.formats.text import many
from rmqstore.texts import Text

LOAD_FALSE = 253  # BrokerStartup: System.exit(-3)
PROCESS_EXIT = 255  # System.exit(-1)
Json = bool | int | str | list["Json"] | dict[str, "Json"] | None


class StartFails(Exception):
    """The simulated start fails: in load() (LOAD_FALSE), by System.exit(-1) (PROCESS_EXIT), or without end (None)."""

    def __init__(self, reason: str, log_line: str, exit_code: int | None = LOAD_FALSE) -> None:
        super().__init__(reason)
        self.reason = reason
        self.log_line = log_line
        self.exit_code = exit_code


class StartRefused(StartFails):
    """The broker ends before load() begins or after it has succeeded; a load() that returns false is `StartFails`."""


class DispatchThrows(StartFails):
    """The dispatch of the message at `offset` (of the log, bytes) throws: load() ends, or re-dispatch stays there.

    `exit_code` None: it does not end, and load() neither.
    """

    def __init__(self, offset: int, reason: str, log_line: str, exit_code: int | None = LOAD_FALSE) -> None:
        super().__init__(Text("{reason}, at {offset:,}", reason=reason, offset=offset), log_line, exit_code)
        self.offset = offset


@dataclass(frozen=True, slots=True)
class StartOptions:
    """How much of a start is simulated.

    `thorough=False` accepts runs of good records unread: cheap, but it misses a property that makes the broker's
    parser throw, and does not name the topics of lost messages. `dispatch=False` ends after load(), before
    re-dispatch. `heap`, in bytes, bounds one record in versions that allocate TOTALSIZE bytes without checking it.
    `old_from`: log offset from which on good records are old: a start loses no message of this log there.
    """

    thorough: bool = True
    dispatch: bool = True
    heap: int = DEFAULT_HEAP
    old_from: int = 1 << 62


class ShiftedUnits(NamedTuple):
    """Units [start, stop) of a queue, by number, whose messages have the queue offsets from `queue_offset` on."""

    start: int
    stop: int
    queue_offset: int

    @property
    def queue_offsets(self) -> tuple[int, int]:
        """The half-open interval of the queue offsets of their messages."""
        return self.queue_offset, self.queue_offset + self.stop - self.start

    def goes_on(self, after: ShiftedUnits) -> bool:
        """Return whether other units follow these, and so do their messages."""
        return (self.stop, self.queue_offsets[1]) == (after.start, after.queue_offset)


@dataclass(frozen=True, slots=True)
class StartForecast:
    """What the start of one broker version would do to a store.

    `commitlog_stop` is where recovery stops (processOffset; in DLedger, the end of the last entry), `max_offset` the
    broker's largest offset afterwards.
    `files_deleted` are base names in commitlog/, `other_files_deleted` paths below the root (consume queues, index,
    DLedger). `queue_ends` are the (minimum, maximum) queue offsets once everything is dispatched. In DLedger mode
    that is after a leader has committed all entries, whereas `max_offset` is the position committed before that.
    Units: bytes for log offsets, messages for queue ends and counts.
    """

    version: str
    evidence: str
    """"run": the rules were confirmed with the real classes; "by source": they were read in the source."""
    starts: bool
    reason: str | None = None
    exit_code: int | None = None
    """Exit code of a broker that does not start. None: it starts, or its start never ends."""
    log_line: str | None = None
    """Text to search for in the broker's store.log."""
    clean_exit: bool = True
    start_file: str | None = None
    """First file that recovery reads."""
    commitlog_stop: int | None = None
    stop_reason: str = ""
    min_offset: int | None = None
    max_offset: int | None = None
    files_deleted: tuple[str, ...] = ()
    other_files_deleted: tuple[str, ...] = ()
    queue_ends: Mapping[QueueName, tuple[int, int]] = field(default_factory=dict)
    redispatched: Mapping[str, int] = field(default_factory=dict)
    """Units that the start adds to consume queues, by topic."""
    messages_lost: int = 0
    """Messages of the log at or after the stop, without `outside_dledger`; those of an inner batch one by one."""
    lost_by_queue: Mapping[QueueName, int] = field(default_factory=dict)
    """The same by queue, if every record was read (`StartOptions.thorough`)."""
    stale_accepted: int = 0
    """Records accepted although their PHYSICALOFFSET is another place: messages of an older file generation return."""
    stale_tail: int = 0
    """Good records left as bytes after the new end: they return if a new record ends where one of them starts."""
    ghost_units: Mapping[QueueName, int] = field(default_factory=dict)
    """Valid units left after a queue's end: the start after the next one counts them as part of the queue."""
    shifted_units: Mapping[QueueName, tuple[ShiftedUnits, ...]] = field(default_factory=dict)
    """Units appended at a position other than their queue offset ("[BUG]logic queue order maybe wrong")."""
    units_put: Mapping[QueueName, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    """Per simple queue, half-open intervals of unit numbers that the start writes for messages."""
    units_cut: Mapping[QueueName, int] = field(default_factory=dict)
    """Units cut from the queues' ends although their messages stay in the log: consumers never get these messages."""
    consume_queues_simulated: bool = True
    reads_rows_beside: bool = False
    """Queues are written to files and to RocksDB, and consumers are served from RocksDB."""
    not_dispatched: tuple[int, int] | None = None
    """Queues that are read from RocksDB only: the range [start, stop) of the log that has no rows and gets none."""
    unreadable_rows: Mapping[QueueName, int] = field(default_factory=dict)
    """Messages per queue whose RocksDB rows cannot be read: at most this many are not delivered."""
    depends_on_commits: int | None = None
    """Offset in a damaged DLedger log after which the broker may skip more messages than forecast, depending on when
    a leader commits the entries. None: nowhere."""
    commits_from: int | None = None
    """Index of the first entry that a leader can commit, if a damaged DLedger log ends before it: no DLedger message
    can be read until that entry is appended. None: every entry can be committed."""
    outside_dledger: int = 0
    """Good messages after `commitlog_stop` for which DLedger has no entries any more, but whose units stay: consumers
    get them as long as nothing rebuilds or cuts their consume queues."""
    notes: tuple[str, ...] = ()

    @property
    def lost_by_topic(self) -> dict[str, int]:
        """Lost messages by topic, in sorted order."""
        out: dict[str, int] = {}
        for (topic, _), count in sorted(self.lost_by_queue.items()):
            out[topic] = out.get(topic, 0) + count
        return out

    @property
    def caveat(self) -> str:
        """A clause that limits "would start", to be appended to that sentence; may be empty."""
        if self.outside_dledger:
            outside = many(self.outside_dledger, "message")
            return Text(", but DLedger would have no entries for {messages} in consume queues", messages=outside)
        if self.commits_from is not None:
            return Text(
                ", but no DLedger message can be read until entry {first:,} is appended", first=self.commits_from
            )
        if self.depends_on_commits is None:
            return self.unreadable
        at = Text("; after the damage at {at:,} it may skip more messages", at=self.depends_on_commits)
        return Text("{unreadable}{at}, depending on when a leader commits", unreadable=self.unreadable, at=at)

    @property
    def unreadable(self) -> str:
        """A clause about messages after damaged RocksDB rows, to be appended to "would start"; may be empty."""
        if not self.unreadable_rows:
            return ""
        count = many(sum(self.unreadable_rows.values()), "message")
        queues = many(len(self.unreadable_rows), "consume queue")
        return Text(
            ", but up to {count} of {queues} cannot be read: rows in RocksDB are damaged", count=count, queues=queues
        )

    @property
    def messages_taken(self) -> int:
        """Good messages that consumers no longer get after the start."""
        return self.messages_lost + sum(self.units_cut.values())

    def sentence(self, *, damaged: bool = False) -> str:
        """Return the verdict in one sentence; a start that loses no message of a damaged log "cuts nothing"."""
        if not self.starts:
            never = self.exit_code is None
            how = Text("its start never ends") if never else Text("exit {exit_code}", exit_code=self.exit_code)
            fails = Text("RocketMQ {version} would not start ({how}): {reason}")
            return fails.format(version=self.version, how=how, reason=self.reason)
        cut, queues = many(sum(self.units_cut.values()), "message"), many(len(self.units_cut), "consume queue")
        if not self.messages_lost and self.units_cut:
            drops = Text("RocketMQ {version} would start and drop {cut} from {queues}{caveat}")
            return drops.format(version=self.version, cut=cut, queues=queues, caveat=self.caveat)
        if not self.messages_lost:
            if self.caveat:
                return Text("RocketMQ {version} would start{caveat}", version=self.version, caveat=self.caveat)
            if damaged:
                return Text("RocketMQ {version} would start and cut nothing", version=self.version)
            return Text("RocketMQ {version} would start and lose nothing", version=self.version)
        lost = many(self.messages_lost, "message")
        if self.lost_by_topic:
            lost = Text("{messages} of {topics}", messages=lost, topics=many(len(self.lost_by_topic), "topic"))
        if self.commitlog_stop is not None:
            lost = Text("{lost} (commitlog cut at {stop:,})", lost=lost, stop=self.commitlog_stop)
        if self.units_cut:
            lost = Text("{lost}, and drop {cut} from {queues}", lost=lost, cut=cut, queues=queues)
        loses = Text("RocketMQ {version} would start and lose {lost}{caveat}")
        return loses.format(version=self.version, lost=lost, caveat=self.caveat)

    def shifted(self, name: QueueName) -> int:
        """Return how many units of a queue the start appends at a position other than their queue offset."""
        return sum(s.stop - s.start for s in self.shifted_units.get(name, ()))

    def to_json(self) -> dict[str, Json]:
        """Return the forecast as JSON values, with queues named TOPIC/ID."""

        def by_queue(table: Mapping[QueueName, int]) -> dict[str, Json]:
            return {f"{topic}/{queue_id}": n for (topic, queue_id), n in sorted(table.items())}

        return {
            "version": self.version,
            "evidence": self.evidence,
            "starts": self.starts,
            "reason": self.reason,
            "exit_code": self.exit_code,
            "log_line": self.log_line,
            "clean_exit": self.clean_exit,
            "start_file": self.start_file,
            "commitlog_stop": self.commitlog_stop,
            "stop_reason": self.stop_reason,
            "min_offset": self.min_offset,
            "max_offset": self.max_offset,
            "messages_lost": self.messages_lost,
            "lost_by_topic": dict(self.lost_by_topic),
            "files_deleted": list(self.files_deleted),
            "other_files_deleted": list(self.other_files_deleted),
            "queues": {
                f"{topic}/{queue_id}": {"min": low, "max": high}
                for (topic, queue_id), (low, high) in sorted(self.queue_ends.items())
            },
            "redispatched": dict(sorted(self.redispatched.items())),
            "stale_accepted": self.stale_accepted,
            "stale_tail": self.stale_tail,
            "ghost_units": by_queue(self.ghost_units),
            "shifted_units": by_queue({name: self.shifted(name) for name in self.shifted_units}),
            "units_cut": by_queue(self.units_cut),
            "unreadable_rows": by_queue(self.unreadable_rows),
            "consume_queues_simulated": self.consume_queues_simulated,
            "not_dispatched": None
            if self.not_dispatched is None
            else {"start": self.not_dispatched[0], "stop": self.not_dispatched[1]},
            "depends_on_commits": self.depends_on_commits,
            "commits_from": self.commits_from,
            "outside_dledger": self.outside_dledger,
            "notes": list(self.notes),
        }
