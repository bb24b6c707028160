"""Finding and Report: the results of the checks, and their JSON (schema rmqstore.verify/1)."""

from __future__ import annotations

import itertools
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqstore.checks.problems import codes
from rmqstore.checks.problems.account import Account
from rmqstore.checks.problems.problem import Extent, Problem, Severity
from rmqstore.checks.problems.table import PROBLEMS
from rmqstore.files.disk import is_snapshot_address
from rmqstore.files.store import StoreKind
from rmqstore.formats.consumequeue import may_be_right
from rmqstore.formats.properties import SCHEDULE_TOPIC
from rmqstore.formats.text import many
from rmqstore.texts import Placed, Text, joined

if TYPE_CHECKING:
    from rmqstore.brokers.assumed_settings import AssumedSetting

SCHEMA = "rmqstore.verify/1"
LISTED = 10_000
_LOGS = ("commitlog", "dledger")
_WITH_LINES = (codes.DIR_FILE_SIZE, codes.IX_CONFIG_SIZE, codes.CFG_SETTING)
"""Findings with a line to write."""

Fact = int | str | bool | None
QueueRange = Callable[[str, int], tuple[int, int] | None]
"""Returns the minimum and maximum queue offset of (topic, queue id); None for a queue that does not exist."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem at one place.

    `queue` is "commitlog", "dledger", "TOPIC/ID", "index", "config" …; `file` the base name; `offset` the global
    offset in that queue (bytes, for consume queues the byte position of the unit); `length` the number of bytes.
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
    def in_log(self) -> bool:
        """Whether the place is in a log: the commitlog or DLedger data."""
        return self.queue in _LOGS

    @property
    def damages_log(self) -> bool:
        """Whether bytes of a log are damaged at this place."""
        return self.in_log and self.problem.damages_log

    def to_json(self, store: str = "STORE", config: str = "") -> dict[str, Any]:
        """Return the row in `findings`; `config` is the path of the given broker.conf."""
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


def tags_in_doubt(finding: Finding) -> bool:
    """Return whether it is unknown which is damaged, the tags code of a unit or the TAGS of its message."""
    code, expected = finding.facts.get("tags_code"), finding.facts.get("expected")
    if finding.code != codes.CQ_WRONG_TAG or finding.queue.startswith(f"{SCHEDULE_TOPIC}/"):
        return False
    return isinstance(code, int) and isinstance(expected, int) and may_be_right(code, expected)


WHOLE_STORE = "STORE"
"""Stands for the path of an unknown store in suggested commands."""


def option_of(problem: Problem) -> str:
    """Return the option that `recover` needs to repair a problem; "" if it needs none."""
    return "" if problem.safe else problem.option or f"--only {problem.code}"


def store_words(store: str, config: str = "") -> str:
    """Return the store argument of a suggested command, with the option for its broker.conf."""
    return shlex.quote(store) + (f" -c {shlex.quote(config)}" if config else "")


def next_command(finding: Finding, store: str, config: str = "") -> str | None:
    """Return the command that repairs a finding, ready to copy; None if there is none.

    The fact `run` is a command of the operating system.
    """
    remedy = finding.problem.remedy
    if finding.problem.proof not in ("", *finding.facts):
        return None
    if remedy is None:
        return str(finding.facts["run"]) if "run" in finding.facts else None
    if remedy == "undo" and finding.facts.get("state") == "missing":
        return f"rmqstore journals {shlex.quote(store)} --prune --missing --apply"
    if remedy == "undo":
        return f"rmqstore undo {shlex.quote(str(finding.facts.get('journal', 'JOURNAL')))}"
    where = store_words(store, config)
    return f"rmqstore recover {where} {option_of(finding.problem)}".rstrip()


class Findings:
    """Collected findings: all are counted, the first `keep` are listed, and each is passed to `sink`."""

    def __init__(self, keep: int = LISTED, sink: Any = None) -> None:
        self.keep = keep
        self.sink = sink
        self.counts: Counter[str] = Counter()
        self.listed: list[Finding] = []

    def add(self, finding: Finding) -> None:
        """Add a finding. Errors: ValueError for a code that is not in `PROBLEMS`."""
        if finding.code not in PROBLEMS:
            raise ValueError(Text("{code} is not in the table of problems", code=finding.code))
        self.counts[finding.code] += 1
        self._list(finding)

    def _list(self, finding: Finding) -> None:
        if len(self.listed) < self.keep:
            self.listed.append(finding)
        if self.sink is not None:
            self.sink(finding)

    def count(self, code: str, times: int) -> None:
        """Count findings of a code without listing them."""
        if times:
            self.counts[code] += times

    def extend(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            self.add(finding)

    def merge(self, other: Findings) -> None:
        """Add the counts and listed findings of a worker."""
        self.counts.update(other.counts)
        for finding in other.listed:
            self._list(finding)

    def retain(self, listed: list[Finding]) -> None:
        """Keep only these of the listed findings, and reduce the counts by the others."""
        self.counts -= Counter(f.code for f in self.listed) - Counter(f.code for f in listed)
        self.listed = listed

    @property
    def worst(self) -> Severity | None:
        """Greatest severity; None without findings."""
        return max((PROBLEMS[c].severity for c in self.counts), default=None)


def problem_counts(report: Report) -> dict[str, int]:
    """Return the number of findings of each code, without notes, in the order of the codes."""
    counts = sorted(report.findings.counts.items())
    return {code: n for code, n in counts if n and PROBLEMS[code].severity >= Severity.WARNING}


@dataclass(frozen=True, slots=True)
class Fillers:
    """Records that a repair wrote in place of lost messages; `repair` is the name of its journal, "" if unknown."""

    count: int
    repair: str = ""

    def text(self) -> str:
        """Return for example "38 fillers of the repair 20261122T092800.000000Z"."""
        fillers = many(self.count, "filler")
        if self.repair:
            return Text("{fillers} of the repair {repair}", fillers=fillers, repair=self.repair)
        return Text("{fillers} of a repair whose journal is missing", fillers=fillers)


@dataclass(frozen=True, slots=True)
class Reused:
    """Log files that were not read, because they have not changed since an earlier run found them sound.

    `bytes`: their size; `read_at`: the earliest time at which one of them was read, epoch ms.
    """

    files: list[str]
    bytes: int
    read_at: int


@dataclass(frozen=True, slots=True)
class VersionRange:
    """What the versions from `oldest` to `newest`, which behave alike, would do to a store.

    `wrote`: whether one of them may have written it last, by its files; `named`: whether the user named it. `outcome`
    says in short what `words` say in full. `too_old`: they cannot read a format in the store, and never wrote it.
    """

    oldest: str
    newest: str
    wrote: bool
    named: bool
    starts: bool
    reason: str | None
    exit_code: int | None
    messages_lost: int
    outcome: str
    words: str
    too_old: bool
    verdict: str = ""
    """The sentence of `words`, with the version as a value; not part of JSON."""

    def to_json(self) -> dict[str, Any]:
        """Return the row in `brokers`."""
        row = asdict(self)
        del row["verdict"]
        return row

    def sentence(self, who: str) -> str:
        """Return what versions, which are called `who`, would do."""
        if isinstance(self.verdict, Text):
            return self.verdict.replaced(version=who)
        return f"RocketMQ {who} {self.words}"  # from a journal, which is English

    @property
    def versions(self) -> str:
        """The range in words."""
        if self.oldest == self.newest:
            return self.oldest
        return Text("{oldest} to {newest}", oldest=self.oldest, newest=self.newest)

    def includes(self, version: str) -> bool:
        """Return whether a version is in the range."""
        low, high, number = (tuple(map(int, v.split("."))) for v in (self.oldest, self.newest, version))
        return low <= number <= high


def wrote_words(rows: Sequence[VersionRange]) -> str:
    """Return what `wrote` of a row means beside the other rows."""
    return Text("wrote this store") if sum(row.wrote for row in rows) == 1 else Text("may have written this store")


@dataclass(slots=True)
class QueueState:
    """Minimum and maximum offset of a consume queue for its readers, and the maximum according to the log."""

    min: int
    max: int
    expected_max: int


@dataclass(slots=True)
class Report:
    """The result of `verify`, as plain data."""

    store: str
    kind: str
    findings: Findings
    commitlog: dict[str, int] | None = None
    dledger: dict[str, Any] | None = None
    broker: dict[str, Any] | None = None
    brokers: list[VersionRange] = field(default_factory=list)
    """What each version would do, if the options asked for it."""
    writer: dict[str, Any] | None = None
    """Which versions can have written the store last, and the signs for it."""
    verdict: str = ""
    assumed: tuple[AssumedSetting, ...] = ()
    """The settings that decide the start of `broker` and that neither a broker.conf nor the caller gave."""
    account: Account | None = None
    """The account of the messages, with the start of `broker`; None for a part of a store."""
    no_index: bool = False
    """Whether the store has no index file, although its broker writes one: queries by key find no message."""
    delivers_all: bool = False
    """Whether the start of `broker` succeeds, and consumers then get all messages of the log."""
    queues: dict[str, QueueState] = field(default_factory=dict)
    unchecked: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    fillers: list[Fillers] = field(default_factory=list)
    live: bool = False
    reused: Reused | None = None
    resume_at: dict[str, int] | None = None  # log name -> offset where a deadline ended the run
    seconds: float = 0.0
    config: str = ""  # path of the given broker.conf
    whole: str = ""  # for a part of a store: the path of the store, because only whole stores are repaired
    newer_dledger: bool = False
    """Whether DLedger 0.4 wrote the store, which is checked and not repaired."""

    @property
    def clean(self) -> bool:
        """No WARNING or ERROR, and nothing unchecked."""
        return self.exit_code == 0

    @property
    def has_problems(self) -> bool:
        """Whether there is a WARNING or ERROR."""
        return bool(problem_counts(self))

    @property
    def logs(self) -> list[dict[str, Any]]:
        """The numbers of the logs: the commitlog, then DLedger."""
        return [log for log in (self.commitlog, self.dledger) if log is not None]

    @property
    def repairable(self) -> str:
        """The path to pass to a repair; "STORE" for a snapshot, and for a part whose store is unknown."""
        return self.whole or (WHOLE_STORE if self.is_lone_part or self.is_snapshot else self.store)

    def cure(self, finding: Finding) -> str | None:
        """Return the command that repairs a finding; None if there is none."""
        if self.newer_dledger and finding.problem.remedy == "recover":
            return None
        return next_command(finding, self.repairable, self.config)

    @property
    def is_snapshot(self) -> bool:
        """Whether a snapshot was checked, which no repair changes."""
        return is_snapshot_address(Path(self.store))

    @property
    def is_lone_part(self) -> bool:
        """Whether only a part of a store was checked, and the store that it belongs to is unknown."""
        return self.kind == StoreKind.PART and not self.whole

    @property
    def exit_code(self) -> int:
        """0 clean, 1 problems, 4 no problems, but not everything could be checked."""
        if self.has_problems:
            return 1
        return 4 if self.unchecked else 0

    @property
    def differing(self) -> list[VersionRange]:
        """Ranges of versions whose start has another outcome than that of `broker`; the writer's first.

        Without versions that are too old for the formats in the store.
        """
        version = str((self.broker or {}).get("version") or "")
        own = next((row.outcome for row in self.brokers if version and row.includes(version)), None)
        rows = [row for row in self.brokers if own is not None and row.outcome != own and not row.too_old]
        return sorted(rows, key=lambda row: not row.wrote)

    @property
    def wrong_sizes(self) -> list[str]:
        """All settings (KEY=VALUE) that broker.conf should have, if its sizes do not fit the files of the store.

        A broker starts with other sizes of index files. Such a setting counts if nothing else is wrong.
        """
        alone = problem_counts(self).keys() <= {codes.IX_CONFIG_SIZE}
        if not alone and codes.DIR_FILE_SIZE not in self.findings.counts:
            return []
        found = (f for f in self.findings.listed if f.code in _WITH_LINES)
        return list(dict.fromkeys(str(f.facts.get("set")) for f in found))

    @property
    def lines_to_write(self) -> list[str]:
        """The settings (KEY=VALUE) with which the next start would do better.

        If nothing is wrong but lines of broker.conf that are not read as they look: those that would be.
        """
        code = codes.CFG_LINE if problem_counts(self).keys() <= {codes.CFG_LINE} else codes.CFG_SETTING
        found = (f for f in self.findings.listed if f.code == code and "set" in f.facts)
        return list(dict.fromkeys(str(f.facts["set"]) for f in found))

    @property
    def headline(self) -> str:
        """The verdict; before it the version that wrote the store if its start ends otherwise, after it all others."""
        if sizes := self.wrong_sizes:  # what other versions do with wrong sizes does not matter
            wrong = Text("broker.conf does not fit the files of this store: set {sizes}. As it is, {verdict}")
            return wrong.format(sizes=joined(sizes), verdict=self.verdict)
        rows = self.differing
        writer = self._writer_first(rows)
        groups: dict[str, list[VersionRange]] = {}
        for row in rows:
            if row is not writer:
                groups.setdefault(row.outcome, []).append(row)
        other = Text("RocketMQ {versions} {outcome}")
        others = joined(
            (other.format(versions=self._versions(group), outcome=outcome) for outcome, group in groups.items()), ". "
        )
        verdict = self.verdict.rstrip(".") if self.verdict.endswith(".") else self.verdict
        lead: str = ""
        if writer is not None:
            words, wrote = Text("RocketMQ {versions} ({wrote}) {words}. "), wrote_words(self.brokers)
            lead = words.format(versions=writer.versions, wrote=wrote, words=writer.words)
        return Placed("{lead}{verdict}", lead=lead, verdict=verdict) + (
            Placed(". {others}", others=others) if others and verdict else others
        )

    def _versions(self, rows: list[VersionRange]) -> str:
        """Name ranges of versions; adjacent ones, which differ in more than their outcome, as one."""
        ranges: list[VersionRange] = []
        for before, row in itertools.pairwise([None, *self.brokers]):
            if row not in rows:
                continue
            if ranges and before in rows:
                ranges[-1] = replace(ranges[-1], newest=row.newest)
            else:
                ranges.append(row)
        return joined((row.versions for row in ranges), " and ")

    def _writer_first(self, differing: list[VersionRange]) -> VersionRange | None:
        """Return the newest versions that may have written the store if `broker` is not one of them and they differ."""
        version = str((self.broker or {}).get("version") or "")
        wrote = [row for row in self.brokers if row.wrote]
        if not wrote or any(row.includes(version) for row in wrote):
            return None
        return wrote[-1] if wrote[-1] in differing else None

    @property
    def filler_notes(self) -> list[str]:
        """One note for each repair that wrote fillers."""
        one, several = Text("{row} replaces lost messages"), Text("{row} replace lost messages")
        return [(one if row.count == 1 else several).format(row=row.text()) for row in self.fillers]

    def ordered(self) -> list[Finding]:
        """Return the listed findings, worst first, then by place."""
        return sorted(self.findings.listed, key=lambda f: (-f.severity, f.queue, f.offset, f.code))

    def to_json(self) -> dict[str, Any]:
        """Return the object of `verify --json`."""
        return {
            "schema": SCHEMA,
            "store": self.store,
            "kind": self.kind,
            "clean": self.clean,
            "live": self.live,
            "commitlog": self.commitlog,
            "dledger": self.dledger,
            "broker": self.broker,
            "brokers": [row.to_json() for row in self.brokers],
            "writer": self.writer,
            "verdict": self.verdict,
            "assumed": [one.to_json() for one in self.assumed],
            "account": None if self.account is None else self.account.to_json(),
            "queues": {name: asdict(state) for name, state in sorted(self.queues.items())},
            "counts": dict(sorted(self.findings.counts.items())),
            "findings": [f.to_json(self.repairable, self.config) | {"next": self.cure(f)} for f in self.ordered()],
            "unchecked": self.unchecked,
            "notes": [*self.notes, *self.filler_notes],
            "fillers": [{"repair": row.repair or None, "count": row.count} for row in self.fillers],
            "reused": None if self.reused is None else asdict(self.reused),
            "resume_at": self.resume_at,
            "seconds": round(self.seconds, 3),
        }


def damage_words(findings: Findings) -> str:
    """Say what is damaged in the logs: "4 messages and 1 stretch of the log are damaged"; "" for no damage."""
    messages, places = _damaged(findings)
    parts = []
    if messages:
        parts.append(many(messages, "message"))
    if places:
        parts.append(many(places, "stretch of the log", "stretches of the log"))
    words = Text("{parts} is damaged") if messages + places == 1 else Text("{parts} are damaged")
    return words.format(parts=joined(parts, " and ")) if parts else ""


def damaged_messages(findings: Findings) -> int:
    """Return how many messages are damaged, if nothing else of the log is; 0 with other damage, or without any."""
    messages, places = _damaged(findings)
    return 0 if places else messages


def _damaged(findings: Findings) -> tuple[int, int]:
    """Return how many messages, and how many other stretches of the logs are damaged."""
    of_log = [f for f in findings.listed if f.in_log and f.problem.extent is not Extent.NOTHING]
    places = sum(not _is_record(f) for f in of_log)
    counted = sum(n for code, n in findings.counts.items() if PROBLEMS[code].extent is not Extent.NOTHING)
    return len(damaged_records(findings)) + max(0, counted - len(of_log)), places


def damaged_records(findings: Findings) -> set[tuple[str, int]]:
    """Return the damaged records that are listed, each as its log and offset."""
    return {(f.queue, f.offset) for f in findings.listed if f.in_log and _is_record(f)}


def _is_record(finding: Finding) -> bool:
    extent = finding.problem.extent
    return extent is Extent.RECORD or (extent is Extent.RECORD_OR_BYTES and "topic" in finding.facts)
