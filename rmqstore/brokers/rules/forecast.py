"""StartForecast: what a broker's next start would do to a store, as a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rmqstore.brokers.rules.record import DEFAULT_HEAP

QueueKey = tuple[str, int]
LOAD_FALSE = 253  # BrokerStartup: System.exit(-3)
PROCESS_EXIT = 255  # System.exit(-1)
Json = bool | int | str | list["Json"] | dict[str, "Json"] | None


@dataclass(frozen=True, slots=True)
class StartOptions:
    """How much of a start is simulated.

    `thorough=False` takes runs of good records as they are: cheap, but it does not see a property that makes the
    broker's parser throw, and does not name the topics of lost messages. `dispatch=False` ends behind load(), before
    re-dispatch. `heap` bounds one record in versions that allocate TOTALSIZE unseen, bytes.
    """

    thorough: bool = True
    dispatch: bool = True
    heap: int = DEFAULT_HEAP


@dataclass(frozen=True, slots=True)
class StartForecast:
    """What the start of one broker version would make of a store; nothing was written to find out.

    `commitlog_stop` is where recovery stops (processOffset), `max_offset` the broker's largest offset afterwards.
    `files_deleted` are base names in commitlog/, `other_files_deleted` paths below the root (consume queues, index,
    DLedger). `queue_ends` are (minimum, maximum) queue offsets once everything is dispatched; in DLedger mode that is
    when a leader has committed all entries, while `max_offset` is what counts as committed before.
    Units: bytes for offsets of the log, messages for queue ends and counts.
    """

    version: str
    evidence: str
    """"run": these rules were confirmed with the real classes; "by source": they were read."""
    starts: bool
    reason: str | None = None
    exit_code: int | None = None
    log_line: str | None = None
    """Text to search for in the broker's store.log."""
    clean_exit: bool = True
    start_file: str | None = None
    """File that recovery begins with."""
    commitlog_stop: int | None = None
    stop_reason: str = ""
    min_offset: int | None = None
    max_offset: int | None = None
    files_deleted: tuple[str, ...] = ()
    other_files_deleted: tuple[str, ...] = ()
    queue_ends: Mapping[QueueKey, tuple[int, int]] = field(default_factory=dict)
    redispatched: Mapping[str, int] = field(default_factory=dict)
    """Units that the start adds to consume queues, by topic."""
    messages_lost: int = 0
    """Good records of the log at or behind the stop."""
    lost_by_topic: Mapping[str, int] = field(default_factory=dict)
    stale_accepted: int = 0
    """Records taken although they say that they belong elsewhere: an older file generation comes back."""
    stale_tail: int = 0
    """Good records left as bytes behind the new end: they come back when new ones end exactly at one of them."""
    ghost_units: Mapping[QueueKey, int] = field(default_factory=dict)
    """Valid units left behind a queue's end: the next start but one takes them for real."""
    shifted_units: Mapping[QueueKey, int] = field(default_factory=dict)
    """Units appended at a place that is not their queue offset ("[BUG]logic queue order maybe wrong")."""
    units_put: Mapping[QueueKey, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    """Per simple queue, half-open intervals of unit numbers that the start writes for messages."""
    units_cut: Mapping[QueueKey, int] = field(default_factory=dict)
    """Units of messages that stay in the log, taken from the queues' ends: consumers never get them."""
    consume_queues_simulated: bool = True
    not_dispatched: tuple[int, int] | None = None
    """Of a store with its queues in RocksDB: what of the log, [start, stop), neither has rows nor gets them."""
    unreadable_rows: Mapping[QueueKey, int] = field(default_factory=dict)
    """Messages per queue whose rows in RocksDB cannot be read: up to so many are not delivered."""
    depends_on_commits: int | None = None
    """Where in a damaged DLedger log more messages may be skipped than said here: that depends on when a leader
    commits the entries (offset). None: nowhere."""
    commits_from: int | None = None
    """Index of the first entry that a leader can commit, where a damaged DLedger log ends in front of it: until it is
    appended, no message of DLedger can be read. None: every entry can be committed."""
    notes: tuple[str, ...] = ()

    @property
    def caveat(self) -> str:
        """What limits a sentence that says "would start", to go behind it."""
        if self.commits_from is not None:
            return f", but no message of DLedger can be read before entry {self.commits_from:,} is appended"
        if self.depends_on_commits is None:
            return self.unreadable
        at = f"; behind the damage at {self.depends_on_commits:,} it may skip more"
        return f"{self.unreadable}{at}, which depends on when a leader commits"

    @property
    def unreadable(self) -> str:
        """What a consumer misses because of damaged rows, to go behind a sentence that says "would start"."""
        if not self.unreadable_rows:
            return ""
        count = _count(sum(self.unreadable_rows.values()), "message")
        queues = _count(len(self.unreadable_rows), "consume queue")
        return f", but up to {count} of {queues} cannot be read: rows in RocksDB are damaged"

    @property
    def messages_taken(self) -> int:
        """Messages that were sound, and that consumers do not get any more after the start."""
        return self.messages_lost or sum(self.units_cut.values())

    def sentence(self, *, nothing: str = "lose nothing") -> str:
        """The verdict in one sentence; `nothing` is said of a start that takes no message away."""
        who = f"RocketMQ {self.version}"
        if not self.starts:
            how = "with an exception" if self.exit_code is None else f"exit {self.exit_code}"
            return f"{who} would not start ({how}): {self.reason}"
        if not self.messages_lost and self.units_cut:
            cut = _count(sum(self.units_cut.values()), "message")
            text = f"{who} would start and drop {cut} from {_count(len(self.units_cut), 'consume queue')}"
            return text + self.caveat
        if not self.messages_lost:
            return f"{who} would start" + (self.caveat or f" and {nothing}")
        text = f"{who} would start and lose {_count(self.messages_lost, 'message')}"
        if self.lost_by_topic:
            text += f" of {_count(len(self.lost_by_topic), 'topic')}"
        if self.commitlog_stop is not None:
            text += f" (commitlog cut at {self.commitlog_stop:,})"
        return text + self.caveat

    def to_json(self) -> dict[str, Json]:
        """The forecast as JSON values; queues are named TOPIC/ID."""

        def by_queue(table: Mapping[QueueKey, int]) -> dict[str, Json]:
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
            "lost_by_topic": dict(sorted(self.lost_by_topic.items())),
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
            "shifted_units": by_queue(self.shifted_units),
            "units_cut": by_queue(self.units_cut),
            "unreadable_rows": by_queue(self.unreadable_rows),
            "consume_queues_simulated": self.consume_queues_simulated,
            "not_dispatched": None
            if self.not_dispatched is None
            else {"start": self.not_dispatched[0], "stop": self.not_dispatched[1]},
            "depends_on_commits": self.depends_on_commits,
            "commits_from": self.commits_from,
            "notes": list(self.notes),
        }


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"
