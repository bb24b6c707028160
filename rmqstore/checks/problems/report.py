"""Finding and Report: what a check says, to and from JSON (schema rmqstore.verify/1)."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rmqstore.checks.problems import codes
from rmqstore.checks.problems.problem import Problem, Severity
from rmqstore.checks.problems.table import PROBLEMS
from rmqstore.formats.consumequeue import may_be_right
from rmqstore.formats.properties import SCHEDULE_TOPIC

SCHEMA = "rmqstore.verify/1"
LISTED = 10_000
_LOGS = ("commitlog", "dledger")

Fact = int | str | bool | None


@dataclass(frozen=True, slots=True)
class Finding:
    """One defect at one place.

    `queue` is "commitlog", "dledger", "TOPIC/ID", "index", "config" …; `file` the base name; `offset` the global
    offset in that queue (bytes, for consume queues the byte position of the unit); `length` bytes concerned.
    """

    code: str
    queue: str
    file: str = ""
    offset: int = 0
    length: int = 0
    facts: Mapping[str, Fact] = field(default_factory=dict)

    @property
    def problem(self) -> Problem:
        return PROBLEMS[self.code]

    @property
    def severity(self) -> Severity:
        return self.problem.severity

    @property
    def damages_log(self) -> bool:
        """Whether bytes of a log are damaged there; `offset` is one of the log then."""
        return self.queue in _LOGS and self.problem.damages_log

    def to_json(self, store: str = "STORE", config: str = "") -> dict[str, Any]:
        """The row in `findings`; `config` is the broker.conf that was given."""
        p = self.problem
        return {
            "code": self.code,
            "severity": p.severity.name.lower(),
            "queue": self.queue,
            "file": self.file,
            "offset": self.offset,
            "length": self.length,
            "facts": dict(self.facts),
            "remedy": p.remedy,
            "next": next_command(self, store, config),
        }


TAG_CODE = codes.CQ_WRONG_TAG


def tags_in_doubt(finding: Finding) -> bool:
    """Whether a unit's tags code may be right, and the TAGS of its message damaged: the two do not tell which."""
    code, expected = finding.facts.get("tags_code"), finding.facts.get("expected")
    if finding.code != TAG_CODE or finding.queue.startswith(f"{SCHEDULE_TOPIC}/"):
        return False
    return isinstance(code, int) and isinstance(expected, int) and may_be_right(code, expected)


def option_of(problem: Problem) -> str:
    """The option without which `recover` leaves a problem as it is; "" for one that it cures by itself."""
    return "" if problem.safe else problem.option or f"--only {problem.code}"


def store_words(store: str, config: str = "") -> str:
    """A store as it is given to a command that follows: with the broker.conf, which says paths, sizes and role."""
    return shlex.quote(store) + (f" -c {shlex.quote(config)}" if config else "")


def next_command(finding: Finding, store: str, config: str = "") -> str | None:
    """The command that cures a finding, ready to copy; `run` in its facts is one of the system's own."""
    remedy = finding.problem.remedy
    if finding.problem.proof not in ("", *finding.facts):
        return None
    if remedy is None:
        return str(finding.facts["run"]) if "run" in finding.facts else None
    if remedy == "undo":
        return f"rmqstore undo {shlex.quote(str(finding.facts.get('journal', 'JOURNAL')))}"
    where = store_words(store, config)
    if remedy == "rebuild":
        return f"rmqstore rebuild {where} cq"
    return f"rmqstore recover {where} {option_of(finding.problem)}".rstrip()


class Findings:
    """Findings as they come: all counted, the first `keep` kept, each handed to `sink` when there is one."""

    def __init__(self, keep: int = LISTED, sink: Any = None) -> None:
        self.keep = keep
        self.sink = sink
        self.counts: Counter[str] = Counter()
        self.listed: list[Finding] = []

    def add(self, finding: Finding) -> None:
        """Count it, list it as far as `keep` goes, and hand it to the sink.

        Errors: ValueError for a code that is not in `PROBLEMS`.
        """
        if finding.code not in PROBLEMS:
            raise ValueError(f"{finding.code} is not in the table of problems")
        self.counts[finding.code] += 1
        if len(self.listed) < self.keep:
            self.listed.append(finding)
        if self.sink is not None:
            self.sink(finding)

    def count(self, code: str, times: int) -> None:
        """Count findings of a code that are not listed one by one."""
        if times:
            self.counts[code] += times

    def extend(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            self.add(finding)

    def merge(self, other: Findings) -> None:
        """Take over another's counts and listed findings (from a worker)."""
        self.counts.update(other.counts)
        for finding in other.listed:
            if len(self.listed) < self.keep:
                self.listed.append(finding)
            if self.sink is not None:
                self.sink(finding)

    def cut_with(self, cut: int) -> set[str]:
        """Problems of the logs that go with everything from `cut` (global offset) on."""
        stays = {f.code for f in self.listed if f.queue not in _LOGS or f.offset < cut}
        found = (PROBLEMS[code] for code in self.counts if code not in stays)
        return {p.code for p in found if p.of_log and not p.renames_only}

    @property
    def worst(self) -> Severity | None:
        """Greatest severity met, None when nothing was found."""
        return max((PROBLEMS[c].severity for c in self.counts), default=None)


@dataclass(frozen=True, slots=True)
class Fillers:
    """Records that a repair put in place of lost messages; `repair` names its journal, "" where that is not known."""

    count: int
    repair: str = ""

    def text(self) -> str:
        """For example "38 fillers of the repair 20261122T092800.000000Z"."""
        what = "1 filler" if self.count == 1 else f"{self.count:,} fillers"
        return f"{what} of the repair {self.repair}" if self.repair else f"{what} of a repair whose journal is not here"


@dataclass(frozen=True, slots=True)
class Reused:
    """Files of the log that were not read: they did not change, and an earlier run found nothing wrong in them.

    `bytes` of these files; `read_at`: when the one was read that was not read for longest, epoch ms.
    """

    files: list[str]
    bytes: int
    read_at: int


@dataclass(slots=True)
class QueueState:
    """A consume queue in numbers: min and max logical offsets as a reader sees them, and the max the log asks for."""

    min: int
    max: int
    expected_max: int


@dataclass(slots=True)
class Report:
    """What `verify` found; everything in it is plain data."""

    store: str
    kind: str
    findings: Findings
    commitlog: dict[str, int] | None = None
    dledger: dict[str, Any] | None = None
    broker: dict[str, Any] | None = None
    verdict: str = ""
    queues: dict[str, QueueState] = field(default_factory=dict)
    unchecked: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    fillers: list[Fillers] = field(default_factory=list)
    live: bool = False
    reused: Reused | None = None
    resume_at: dict[str, int] | None = None  # log name -> offset, when a deadline ended the reading
    seconds: float = 0.0
    config: str = ""  # the broker.conf that the store was read with
    whole: str = ""  # the store that a part lies in: only whole stores are repaired

    @property
    def clean(self) -> bool:
        """No WARNING or ERROR, and nothing unchecked."""
        worst = self.findings.worst
        return (worst is None or worst < Severity.WARNING) and not self.unchecked

    @property
    def repairable(self) -> str:
        """The path that a repair is to be given."""
        return self.whole or self.store

    @property
    def exit_code(self) -> int:
        """0 clean, 1 problems, 4 not everything could be checked; 1 goes before 4."""
        worst = self.findings.worst
        if worst is not None and worst >= Severity.WARNING:
            return 1
        return 4 if self.unchecked else 0

    @property
    def filler_notes(self) -> list[str]:
        """One note for each repair that left fillers."""
        return [f"{row.text()} replace{'s' if row.count == 1 else ''} lost messages" for row in self.fillers]

    def ordered(self) -> list[Finding]:
        """Listed findings, worst first, then by place."""
        return sorted(self.findings.listed, key=lambda f: (-f.severity, f.queue, f.offset, f.code))

    def to_json(self) -> dict[str, Any]:
        """The object of `verify --json`."""
        return {
            "schema": SCHEMA,
            "store": self.store,
            "kind": self.kind,
            "clean": self.clean,
            "live": self.live,
            "commitlog": self.commitlog,
            "dledger": self.dledger,
            "broker": self.broker,
            "verdict": self.verdict,
            "queues": {
                k: {"min": v.min, "max": v.max, "expected_max": v.expected_max} for k, v in sorted(self.queues.items())
            },
            "counts": dict(sorted(self.findings.counts.items())),
            "findings": [f.to_json(self.repairable, self.config) for f in self.ordered()],
            "unchecked": self.unchecked,
            "notes": [*self.notes, *self.filler_notes],
            "fillers": [{"repair": row.repair or None, "count": row.count} for row in self.fillers],
            "reused": None
            if self.reused is None
            else {"files": self.reused.files, "bytes": self.reused.bytes, "read_at": self.reused.read_at},
            "resume_at": self.resume_at,
            "seconds": round(self.seconds, 3),
        }
