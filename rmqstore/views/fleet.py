"""Results of many stores, which their hosts printed, as one row for each store.

A result is an object of `verify --json`, `doctor --json` or `backup --json`, alone in a file or one per line, or a file
of `--metrics`. Nothing of a result is believed to have the type that it should have: a file may be cut, or be another
file altogether.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from rmqstore.checks.problems.table import PROBLEMS, Severity
from rmqstore.errors import WORST_LAST, CouldNotCheck, about
from rmqstore.files.files import LOCAL
from rmqstore.formats.times import parse_snapshot_name
from rmqstore.texts import Placed, Text, joined, many

_LARGEST, _LARGEST_OBJECT = 64 << 20, 16 << 20
"""Bytes of a file, and of one result, of which JSON makes up to thirty times as much in memory."""
_MOST = (1 << 63) - 1
_OBJECTS, _METRICS = (".json", ".ndjson", ".jsonl"), (".prom",)
_KINDS = re.compile(r"[._-](verify|doctor|backup)$")
_SAMPLE = re.compile(r'(\w+)\{((?:\w+="(?:[^"\\]|\\.)*",?)*)\} (\S+)')
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")


class StoreState(StrEnum):
    """What is known of a store."""

    SOUND = "sound"
    UNCHECKED = "unchecked"
    UNREADABLE = "unreadable"
    PROBLEMS = "problems"

    @property
    def exit_code(self) -> int:
        """The exit code of `verify` for such a store."""
        return _EXIT_CODES[self]

    @property
    def rank(self) -> int:
        """Greatest for the worst."""
        return WORST_LAST.index(self.exit_code)


_WORDS = {
    StoreState.SOUND: Text("sound"),
    StoreState.UNCHECKED: Text("not checked completely"),
    StoreState.UNREADABLE: Text("not opened"),
    StoreState.PROBLEMS: Text("with problems"),
}
_EXIT_CODES = {StoreState.SOUND: 0, StoreState.UNCHECKED: 4, StoreState.UNREADABLE: 3, StoreState.PROBLEMS: 1}


@dataclass(frozen=True, slots=True)
class Row:
    """What results say of one store; times in epoch ms, None where no result says it."""

    host: str
    store: str
    state: StoreState = StoreState.UNCHECKED
    verdict: str = ""
    starts: bool | None = None
    lost_at_next_start: int = 0
    lost_already: int = 0
    undelivered: int = 0
    problems: Mapping[str, int] = field(default_factory=dict)
    """Warnings and errors by code."""
    checked: int | None = None
    backup: int | None = None
    page: Path | None = None
    """The page of `rmqstore report` beside the result."""

    @property
    def lost(self) -> int:
        """Messages that are lost, or will be by the next start."""
        return self.lost_already + self.lost_at_next_start

    @property
    def counted(self) -> bool:
        """Whether a result says how many messages are lost."""
        return self.checked is not None and self.state is not StoreState.UNREADABLE

    @property
    def badness(self) -> tuple[int, bool, int, int, int]:
        """Greatest for the worst store."""
        return self.state.rank, self.starts is False, self.lost, self.undelivered, sum(self.problems.values())

    def to_json(self) -> dict[str, Any]:
        """Return the row as `fleet --json` prints it."""
        return {
            "host": self.host,
            "store": self.store,
            "state": self.state.value,
            "verdict": self.verdict,
            "starts": self.starts,
            "lost_at_next_start": self.lost_at_next_start,
            "lost_already": self.lost_already,
            "undelivered": self.undelivered,
            "problems": dict(self.problems),
            "checked": self.checked,
            "backup": self.backup,
        }


@dataclass(frozen=True, slots=True)
class Fleet:
    """All stores, the worst first, and the files that are no results, each with the reason."""

    rows: tuple[Row, ...]
    unreadable: tuple[tuple[str, str], ...]

    @property
    def states(self) -> Counter[StoreState]:
        """The number of stores in each state."""
        return Counter(row.state for row in self.rows)

    @property
    def summary(self) -> Text:
        """The numbers of stores in one sentence."""
        states = sorted(self.states.items(), key=lambda item: item[0].rank, reverse=True)
        return Text(
            "{stores} of {hosts}: {states}.",
            stores=many(len(self.rows), "store"),
            hosts=many(len({row.host for row in self.rows}), "host"),
            states=joined(Placed("{count:,} {state}", count=count, state=_WORDS[state]) for state, count in states),
        )

    @property
    def exit_code(self) -> int:
        """That of the worst store; a file that is no result counts as a store that cannot be opened."""
        states = [row.state for row in self.rows] + [StoreState.UNREADABLE] * bool(self.unreadable)
        return max(states, key=lambda state: state.rank, default=StoreState.UNREADABLE).exit_code


@dataclass(slots=True)
class _Host:
    """What the results of one host say, by store; a backup names its repository only."""

    rows: dict[str, Row] = field(default_factory=dict)
    backups: dict[str, Row] = field(default_factory=dict)

    def add(self, row: Row) -> None:
        """Take the newer of two results of a store, and the newest backup of both."""
        old = self.rows.get(row.store)
        if old is None:
            self.rows[row.store] = row
            return
        newer, older = (row, old) if (row.checked or 0) >= (old.checked or 0) else (old, row)
        self.rows[row.store] = replace(newer, backup=_newest(row.backup, old.backup), page=newer.page or older.page)

    def joined(self) -> Iterator[Row]:
        """Yield the rows; a backup without a store belongs to the only store of its host, if there is one."""
        backups = list(self.backups.values())
        if len(self.rows) == 1 and backups:
            (row,) = self.rows.values()
            yield replace(row, backup=_newest(row.backup, *(one.backup for one in backups)))
            return
        yield from self.rows.values()
        yield from backups


def gather(places: Iterable[Path], now: int, max_age: int | None, stdin: Callable[[], BinaryIO]) -> Fleet:
    """Read all results at `places`, which are files, directories, or `-` for stdin.

    `now`: epoch ms; `max_age`: ms, after which a result says nothing any more. Errors: CouldNotCheck for a place that
    does not exist.
    """
    hosts: dict[str, _Host] = {}
    unreadable: list[tuple[str, str]] = []
    for place in places:
        for path, host in _files(place):
            try:
                data, time = _read(path, now, stdin, listed=path != place)
                found = list(_results(data, host, time))
            except (OSError, ValueError) as error:
                unreadable.append((str(path), str(getattr(error, "strerror", None) or error)))
                continue
            page = path.with_suffix(".html")
            one = hosts.setdefault(host, _Host())
            for row in found:
                if row.checked is None:
                    one.backups[row.store] = row
                else:
                    one.add(replace(row, page=page if page.is_file() else None))
    rows = [_aged(row, now, max_age) for host in hosts.values() for row in host.joined()]
    rows.sort(key=lambda row: (row.host, row.store))
    rows.sort(key=lambda row: row.badness, reverse=True)
    return Fleet(tuple(rows), tuple(unreadable))


def _files(place: Path) -> Iterator[tuple[Path, str]]:
    """Yield the files with results, and the host of each: a directory below `place`, or else the name of the file."""
    if str(place) == "-":
        yield place, ""
        return
    if not place.is_dir():
        yield place, _KINDS.sub("", place.stem)
        return

    def refuse(error: OSError) -> None:
        raise CouldNotCheck(about(error.filename or place, error), Text("make it readable")) from error

    for folder, names, files in os.walk(place, onerror=refuse):
        names.sort()
        for name in sorted(files):
            path = Path(folder, name)
            if path.suffix in (*_OBJECTS, *_METRICS) and path.is_file():  # a pipe would wait for a writer
                parts = path.relative_to(place).parts
                yield path, parts[0] if len(parts) > 1 else _KINDS.sub("", path.stem)


def _read(path: Path, now: int, stdin: Callable[[], BinaryIO], *, listed: bool) -> tuple[bytes, int]:
    """Return the content of a file and when it was written; only a file that the user named may be a pipe.

    Errors: OSError, ValueError for what is too large.
    """
    if str(path) == "-":
        data, time = stdin().read(_LARGEST + 1), now
    elif listed:
        data, time = LOCAL.read_small(path, _LARGEST), path.stat().st_mtime_ns // 1_000_000
    else:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            data, time = file.read(_LARGEST + 1), status.st_mtime_ns // 1_000_000
    if len(data) > _LARGEST:
        raise ValueError(Text("it is larger than {size} MiB", size=_LARGEST >> 20))
    return data, time


def _results(data: bytes, host: str, time: int) -> Iterator[Row]:
    """Yield what a file says of its stores. Errors: ValueError if it is not a file of results."""
    if not data.lstrip().startswith(b"{"):
        rows = list(_of_metrics(data.decode("utf-8", "replace"), host))
        if not rows:
            raise ValueError(Text("it has no result of `verify`, `doctor` or `backup`"))
        yield from rows
        return
    for value in _objects(data):
        row = _of_object(value, host, time) if isinstance(value, dict) else None
        if row is None:
            raise ValueError(Text("it has no result of `verify`, `doctor` or `backup`"))
        yield row


def _objects(data: bytes) -> Iterator[Any]:
    """Yield the object of a file, or those of its lines. Errors: ValueError."""
    for part in data.splitlines() if b"\n{" in data.strip() else [data]:
        if not part.strip():
            continue
        if len(part) > _LARGEST_OBJECT:
            raise ValueError(Text("a result in it is larger than {size} MiB", size=_LARGEST_OBJECT >> 20))
        try:
            yield orjson.loads(part)
        except orjson.JSONDecodeError as error:
            raise ValueError(Text("its JSON is cut or damaged")) from error


def _of_object(value: Mapping[str, Any], host: str, time: int) -> Row | None:
    """Return the row of a JSON object; None for an object of another command."""
    schema, store = str(value.get("schema")), str(value.get("store"))
    if schema.startswith("rmqstore.backup/"):
        place = f"{value.get('repository')}::{value.get('name')}"
        made = parse_snapshot_name(str(value.get("snapshot")))
        return Row(host, place, verdict=_NOT_VERIFIED, backup=time if made is None else made)
    if isinstance(error := value.get("error"), dict):
        path = store if "store" in value else ""
        return Row(host, path, StoreState.UNREADABLE, str(error.get("message")), checked=time)
    if schema.startswith("rmqstore.verify/"):
        broker, problems = _mapping(value.get("broker")), _problems(value.get("counts"))
    elif schema.startswith("rmqstore.doctor/"):
        broker, problems = {"starts": value.get("starts")}, _problems(value.get("problems"))
    else:
        return None
    account, starts = _mapping(value.get("account")), broker.get("starts")
    row = Row(
        host,
        store,
        verdict=str(value.get("verdict") or ""),
        starts=starts if isinstance(starts, bool) else None,
        lost_at_next_start=_count(account.get("lost_at_next_start", broker.get("messages_lost"))),
        lost_already=_count(account.get("lost_already")),
        undelivered=_count(account.get("undelivered")),
        problems=problems,
        checked=time,
        backup=_count(_mapping(value.get("backup")).get("time")) or None,
    )
    return replace(row, state=_state(row, clean=value.get("clean") is True))


_NOT_VERIFIED = Text("not verified")


def _state(row: Row, *, clean: bool) -> StoreState:
    if clean:
        return StoreState.SOUND
    return (
        StoreState.PROBLEMS
        if row.problems or row.starts is False or row.lost or row.undelivered
        else StoreState.UNCHECKED
    )


def _problems(value: object) -> dict[str, int]:
    """Return warnings and errors by code; a code that this release does not know may be either."""
    counts = {str(code): _count(count) for code, count in _mapping(value).items()}
    known = {code for code in counts if code in PROBLEMS and PROBLEMS[code].severity <= Severity.NOTE}
    return {code: count for code, count in sorted(counts.items()) if count and code not in known}


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _count(value: object) -> int:
    """Return a number of messages or ms; also one that `--string-ints` wrote. 0 for anything else."""
    try:
        return min(max(int(value), 0), _MOST) if isinstance(value, (int, float, str)) else 0
    except (ValueError, OverflowError):
        return 0


def _of_metrics(text: str, host: str) -> Iterator[Row]:
    """Yield the rows of a file of --metrics: of `verify`, with the newest snapshot of `backup`, or of that alone."""
    stores: dict[tuple[str, str], dict[str, float]] = {}
    problems: dict[tuple[str, str], dict[str, int]] = {}
    for line in text.splitlines():
        if (found := _SAMPLE.fullmatch(line)) is None:
            continue
        labels = {name: _ESCAPED.sub(_unescaped, value) for name, value in _LABEL.findall(found[2])}
        key = labels.get("store", ""), labels.get("command", "")
        try:
            value = float(found[3])
        except ValueError:
            continue
        if found[1] == "rmqstore_problems":
            problems.setdefault(key, {})[labels.get("code", "")] = _count(value)
        else:
            stores.setdefault(key, {})[found[1]] = value
    for (store, command), values in stores.items():
        if command == "verify":
            yield _verified(Row(host, store), values, problems.get((store, command), {}))
        elif command == "backup":
            time = _ms(values.get("rmqstore_snapshot_timestamp_seconds", 0))
            yield Row(host, store, verdict=_NOT_VERIFIED, checked=0, backup=time or None)


def _verified(row: Row, values: Mapping[str, float], problems: Mapping[str, int]) -> Row:
    exit_code, starts = _count(values.get("rmqstore_exit_code", 3)), values.get("rmqstore_next_start_ok")
    codes = _problems(problems)
    states = {0: StoreState.SOUND, 1: StoreState.PROBLEMS, 4: StoreState.UNCHECKED}
    words = ", ".join(f"{code} x {count:,}" for code, count in codes.items())
    return replace(
        row,
        state=states.get(exit_code, StoreState.UNREADABLE),
        verdict=words or _VERDICTS.get(exit_code, Text("not checked")),
        starts=True if starts else None,  # 0 may also mean that consumers do not get all messages
        lost_at_next_start=_count(values.get("rmqstore_messages_lost_at_next_start")),
        lost_already=_count(values.get("rmqstore_messages_lost_already")),
        undelivered=_count(values.get("rmqstore_messages_undelivered")),
        problems=codes,
        checked=_ms(values.get("rmqstore_last_run_timestamp_seconds", 0)),
    )


_VERDICTS = {
    0: Text("no problems"),
    1: Text("the next start does not give consumers all messages"),
    4: Text("not everything was checked"),
}


def _unescaped(found: re.Match[str]) -> str:
    return "\n" if found[1] == "n" else found[1]


def _ms(seconds: float) -> int:
    return _count(seconds * 1000)


def _newest(*times: int | None) -> int | None:
    return max((time for time in times if time is not None), default=None)


def _aged(row: Row, now: int, max_age: int | None) -> Row:
    """Return a row that says nothing about a store whose result is too old, unless it is bad."""
    row = replace(row, checked=row.checked or None)
    old = max_age is not None and (row.checked is None or now - row.checked > max_age)
    if not old or row.state is not StoreState.SOUND:
        return row
    return replace(row, state=StoreState.UNCHECKED, verdict=Text("the result is old: {verdict}", verdict=row.verdict))
