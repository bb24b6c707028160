"""Problem: a row of the table of problems, with all attributes that the checks and planners use."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from functools import partial

from rmqstore.texts import Text


class Severity(IntEnum):
    """NOTE: worth knowing, the store is sound. WARNING: may cause trouble later. ERROR: data or a start is at stake."""

    NOTE = 1
    WARNING = 2
    ERROR = 3


class Area(Enum):
    """The part of the store that a problem belongs to; the value is the prefix of its code."""

    DIRECTORY = "DIR"
    LOG = "CL"
    QUEUE = "CQ"
    BATCH_QUEUE = "BCQ"
    INDEX = "IX"
    CHECKPOINT = "CK"
    CONFIG = "CFG"
    DLEDGER = "DL"
    TIMER = "TM"
    ROWS = "RDB"
    POP = "POP"
    BROKER = "BR"


_PARTS = {Area.QUEUE: "cq", Area.BATCH_QUEUE: "cq", Area.INDEX: "index", Area.CHECKPOINT: "checkpoint"}


class Extent(Enum):
    """How much of a log is damaged according to one finding."""

    NOTHING = Text("no record")
    RECORD = Text("one record")
    RECORD_OR_BYTES = Text("one record if the finding names its topic, otherwise bytes that no longer hold a record")


class Repair(Enum):
    """Which command repairs a problem."""

    NONE = Text("no command")
    SAFE = "`recover`"
    ON_REQUEST = Text("`recover` with an option")
    UNDO = Text("`undo` of an unfinished repair")


@dataclass(frozen=True, slots=True)
class OperatorTask:
    """Why no plan repairs a problem, and what the operator should do. `stops_all`: nothing is repaired before that."""

    why: str
    do: str
    stops_all: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One row of the table."""

    code: str
    title: str
    severity: Severity
    about: str
    repair: Repair = Repair.NONE
    option: str = ""
    """The option that requests the repair; "" for `--only CODE`."""
    proof: str = ""
    """The fact that a finding needs for a repair: without it, the original value is unknown."""
    asked: str = ""
    """Why `recover` repairs it only on request."""
    why_not: str = ""
    """Why no plan repairs it; "" if one does."""
    to_do: str = ""
    """What the operator should do then."""
    stops_all: bool = False
    """Whether nothing is repaired before that."""
    damages_log: bool = False
    """Whether bytes of the log before its tail are damaged: truncate cuts there, and salvage replaces them."""
    extent: Extent = Extent.NOTHING
    renames_only: bool = False
    """Whether the repair only renames files of the log."""
    points_after_log: bool = False
    """Whether something outside the log points after the end of the log: evidence of lost messages."""
    lacks_units: bool = False
    """Whether units are only missing, so that `rebuild cq` alone repairs it."""
    migration_repairs: bool = False
    """Whether migrate-to-commitlog repairs it, apart from the areas that it always rebuilds."""
    of_missing_log: bool = False
    """Whether it only means that the log has no messages."""
    disturbs_queues: bool = False
    """Whether messages with this damage may lack a unit without a finding in the queues themselves."""
    alters_keys: bool = False
    """Whether the header or text of a record is damaged, so that its keys differ from its index entries."""
    ignored_by_brokers: bool = False
    """Whether no broker reads the wrong value, so that nothing needs to wait for a repair."""
    spoils_files: bool = False
    """Whether a directory entry is wrong; if it is in a queue, `rebuild cq` replaces it."""
    rebuilt_with: str = ""
    """The part of `rebuild` that repairs it, if it does not follow from the area."""
    not_here: str = ""
    """For the verdict: the place of messages or units that a start neither loses nor restores."""
    withholds: bool = False
    """Whether timed or delayed messages are not delivered because of it; the fact "messages" has their number."""
    withholds_at_most: bool = False
    """Whether that number is only an upper limit."""
    explains: int = 0
    """Rank among the problems that explain others, which `verify` lists first: 1 before 2; 0 for all others."""

    @property
    def needs_operator(self) -> OperatorTask | None:
        """Why no plan repairs it, and what the operator should do; None if a plan repairs it."""
        return OperatorTask(self.why_not, self.to_do, self.stops_all) if self.why_not else None

    @property
    def remedy(self) -> str | None:
        """The command that repairs it; None if there is none."""
        return {Repair.NONE: None, Repair.UNDO: "undo"}.get(self.repair, "recover")

    @property
    def safe(self) -> bool:
        """Whether `recover` repairs it without an option."""
        return self.repair is Repair.SAFE

    @property
    def area(self) -> Area:
        return Area(self.code.partition("-")[0])

    @property
    def of_log(self) -> bool:
        """Whether it belongs to a log: the plain commitlog or DLedger."""
        return self.area in (Area.LOG, Area.DLEDGER)

    @property
    def of_queues(self) -> bool:
        """Whether it belongs to consume queues, simple or batch."""
        return self.area in (Area.QUEUE, Area.BATCH_QUEUE)

    @property
    def part(self) -> str:
        """The part of `rebuild` that repairs it; "" if none does."""
        return self.rebuilt_with or _PARTS.get(self.area, "")

    @property
    def gone_with_log(self) -> bool:
        """Whether it follows from a log without messages, and does not matter then."""
        return self.of_missing_log or self.area is Area.CONFIG or self.area in _PARTS

    @property
    def migration_rebuilds(self) -> bool:
        """Whether migrate-to-commitlog repairs it, because it rebuilds that part of the store."""
        return self.migration_repairs or self.area in (Area.INDEX, Area.CHECKPOINT)


Rows = tuple[Problem, ...]

note = partial(Problem, severity=Severity.NOTE)
warning = partial(Problem, severity=Severity.WARNING)
error = partial(Problem, severity=Severity.ERROR)
repairable_warning = partial(warning, repair=Repair.SAFE)
repairable_error = partial(error, repair=Repair.SAFE)
damaged_record = partial(repairable_error, damages_log=True, extent=Extent.RECORD)
damaged_bytes = partial(repairable_error, damages_log=True, extent=Extent.RECORD_OR_BYTES)
