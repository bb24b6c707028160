"""The result of a verification, with everything that repairs and the forecast need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rmqstore.checks.beside.config import ConfigFacts
from rmqstore.checks.log.commitlog import KnownParts, LogResult, UnitKeeper
from rmqstore.checks.log.logs import Logs
from rmqstore.checks.problems.report import QueueState, Report
from rmqstore.formats.consumequeue import QueueName

if TYPE_CHECKING:
    from rmqstore.checks.beside.pop import ReviveFacts
    from rmqstore.checks.beside.timer import TimerFacts
    from rmqstore.checks.index.catalog import IndexCatalog
    from rmqstore.checks.misplaced_files import Misplaced
    from rmqstore.checks.problems.account import Account
    from rmqstore.checks.queues.wrong_names import WrongNames
    from rmqstore.checks.rows import MessageRowFacts


@dataclass(slots=True)
class Verified:
    """A report, and what repairs and the forecast need in addition.

    If log files can be renamed to their right names, everything describes `misplaced.store`, the store after that.
    """

    report: Report
    logs: Logs
    legacy: LogResult | None = None
    dledger: LogResult | None = None

    config: ConfigFacts = field(default_factory=ConfigFacts)
    index: IndexCatalog | None = None
    timer: TimerFacts | None = None
    rows: MessageRowFacts | None = None
    revive: ReviveFacts | None = None
    popped: int = 0
    """Messages in kvStore/ that POP consumers received, and did not acknowledge."""
    misplaced: Misplaced | None = None
    wrong_names: WrongNames | None = None
    """What starts do before the misplaced files are renamed; None if there is none to rename."""
    units: UnitKeeper | None = None
    unreadable_rows: Mapping[QueueName, int] | None = None
    """Number of messages per queue whose rows in RocksDB cannot be read; None if the rows were not checked."""
    damaged_rows: bool = False
    """Whether the RocksDB of the consume queues cannot be opened, or not be read completely."""
    dispatched_rows: int | None = None
    """The end of the last message that was written to the RocksDB (global offset); None: unknown."""
    alone: Mapping[str, QueueState] = field(default_factory=dict)
    """The queues of a store whose log has no file, by TOPIC/ID, if they list messages."""
    too_young: bool = False
    """Whether the files before the log were too young to expire by age when the broker last ran."""
    account: Account | None = None
    """The account of the messages; None before the verdict, and for a part of a store."""
    batch_topics: frozenset[str] = frozenset()
    """Topics whose messages belong in a BatchCQ."""
    known: KnownParts | None = None
    """The parts of this examination, for the next one."""

    @property
    def results(self) -> list[LogResult]:
        """The results of the logs, in address order."""
        return [result for result in (self.legacy, self.dledger) if result is not None]
