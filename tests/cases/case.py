"""Read a two-pass case from its case.toml, and apply its damage. `README.md` describes the file."""

from __future__ import annotations

import re
import shutil
import struct
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests import damage
from tests.command import run, run_json
from tests.rocksdb_rows import opened_rows
from tests.stores import copy_store, unpack, write_broker_conf

CASES = Path(__file__).parent

_BLANK = 0xCBD43194
_DLEDGER_HEADER = 48
_POSITION = re.compile(
    r"(?P<what>start|end|size|record|entry|unit)(?: (?P<number>-?\d+))?(?: (?P<part>body|stop))?"
    r"(?: ?(?P<plus>[+-] ?\d+))?"
)
Word = str | int
Step = Mapping[str, Word]


@dataclass(frozen=True, slots=True)
class Verify:
    """The expected first pass: exit code and exact counts per problem code."""

    counts: Mapping[str, int]
    exit_code: int = 1
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Recover:
    """The expected repair: what it loses, and which problems remain after it (usually none).

    `other`: the number of messages that remain with other bytes than they were written with. `cut`: the number of
    records, damaged or not, that are removed at the end of the log. `README.md` describes the other fields.
    """

    command: tuple[str, ...] = ("recover",)
    options: tuple[str, ...] = ()
    lost: int = 0
    queues: Mapping[str, int] | None = None
    at_least: bool = False
    other: int = 0
    cut: int = 0
    remaining: Mapping[str, int] = field(default_factory=dict)
    exit_code: int = 0
    restored: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    strategy: str = ""
    steps: tuple[str, ...] | None = None
    decisions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    stays: Mapping[str, str] = field(default_factory=dict)

    @property
    def nothing(self) -> bool:
        """Whether the plan must have no steps, so that there is nothing to apply."""
        return self.steps == ()


@dataclass(frozen=True, slots=True)
class Case:
    """One case.toml."""

    name: str
    about: str
    store: str
    damage: tuple[Step, ...]
    verify: Verify
    recover: Recover | None
    conf: Mapping[str, str] | None
    """Settings of the broker.conf that the commands are given, over those the store was made with; None: no `-c`."""
    no_recover: str
    """Why there is nothing for recover to do; given exactly when `recover` is None."""
    quick: bool = False
    """Whether `make test` runs the case although it is not the first one of its code."""

    @property
    def code(self) -> str:
        """The problem code that the case tests: the name of the folder up to `--`."""
        return self.name.partition("--")[0]


def case_names() -> list[str]:
    """Return the names of all folders with a case.toml."""
    return sorted(path.parent.name for path in CASES.glob("*/case.toml"))


def read_case(name: str) -> Case:
    """Read a case.toml strictly: an unknown key is an error, because otherwise its check would silently be left out."""
    document = tomllib.loads((CASES / name / "case.toml").read_text("utf-8"))
    verify = document.pop("verify")
    recover = document.pop("recover", None)
    case = Case(
        name=name,
        about=document.pop("about"),
        store=document.pop("store"),
        damage=tuple(document.pop("damage", [])),
        verify=Verify(**_with_tuples(verify)),
        recover=recover if recover is None else Recover(**_with_tuples(recover)),
        conf=document.pop("conf", None),
        no_recover=document.pop("no_recover", ""),
        quick=document.pop("quick", False),
    )
    if document:
        raise ValueError(f"{name}/case.toml: unknown words {sorted(document)}")
    if (case.recover is None) != bool(case.no_recover):
        raise ValueError(f"{name}/case.toml: give either [recover] or the reason no_recover")
    return case


def _with_tuples(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}


def make(case: Case, target: Path) -> Path:
    """Create the damaged store of a case below `target`."""
    if case.store:
        store = copy_store(case.store, target, rename="store")
    else:
        store = target / "store"
        store.mkdir(parents=True)
    for step in case.damage:
        _do(store, step)
    return store


def options(case: Case, store: Path) -> tuple[str, ...]:
    """Return `-c broker.conf` if the case has settings; `{store}` in a setting is replaced by the store's path."""
    if case.conf is None:
        return ()
    more = {key: value.replace("{store}", str(store)) for key, value in case.conf.items()}
    if case.store:
        return ("-c", str(write_broker_conf(case.store, store, **more)))
    path = store.parent / "broker.conf"
    path.write_text("".join(f"{key}={value}\n" for key, value in more.items()), "utf-8")
    return ("-c", str(path))


def recover_words(case: Case, store: Path) -> tuple[str, ...]:
    """Return the words of the command that plans the case's repair."""
    assert case.recover is not None
    name, *part = case.recover.command
    return (name, str(store), *part, *options(case, store), *case.recover.options)


def repair(case: Case, store: Path) -> Mapping[str, Any]:
    """Apply the case's repair, and return the output; a plan with decisions is refused before it is forced."""
    assert case.recover is not None
    words = recover_words(case, store)
    force: tuple[str, ...] = ()
    if case.recover.decisions:
        assert run(*words, "--apply").exit_code == 5
        force = ("--force", str(run_json(*words, exit_code=1)["digest"]))
    return run_json(*words, "--apply", *force, exit_code=case.recover.exit_code)


def _do(store: Path, step: Step) -> None:  # noqa: C901 - one branch per verb
    words = dict(step)
    verb, path = str(words.pop("do")), _find(store, str(words.pop("path")))
    if "at" in words and path.is_dir():
        path, words["at"] = _locate(path, str(words["at"]))
    at = position(path, words.pop("at")) if "at" in words else 0
    length = _length(path, at, words.pop("length")) if "length" in words else 0
    match verb:
        case "flip":
            damage.flip(path, at, int(words.pop("bit", 0)))
        case "garble":
            damage.garble(path, at, length, int(words.pop("seed", 1)))
        case "zero":
            damage.zero(path, at, length)
        case "cut":
            damage.cut(path, at)
        case "grow":
            damage.grow(path, length)
        case "add":  # to a big-endian integer, so that the new value is wrong whatever the old value is
            width = int(words.pop("width"))
            with path.open("rb") as file:
                file.seek(at)
                value = int.from_bytes(file.read(width), "big", signed=True) + int(words.pop("value"))
            damage.overwrite(path, at, value.to_bytes(width, "big", signed=True))
        case "insert":
            damage.insert(path, at, _content(words))
        case "remove_span":
            damage.remove_span(path, at, length)
        case "overwrite":
            damage.overwrite(path, at, _content(words))
        case "copy_span":
            damage.copy_span(path, position(path, words.pop("from")), at, length)
        case "write":
            if path.exists():
                raise ValueError(f"{path} is there already: write makes new files")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(_content(words))
        case "copy":
            (shutil.copytree if path.is_dir() else shutil.copy2)(path, store / str(words.pop("to")))
        case "rename":
            path.rename(store / str(words.pop("to")))
        case "delete":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        case "mkdir":
            path.mkdir(parents=True)
        case "take":  # the same bytes of another store
            shutil.rmtree(path) if path.is_dir() else path.unlink()
            theirs = unpack(str(words.pop("from"))) / path.relative_to(store)
            shutil.copytree(theirs, path) if theirs.is_dir() else shutil.copyfile(theirs, path)
        case "close":
            damage.close_to_owner(store, path)
        case "row":
            _put_row(path, words)
        case "link":
            path.symlink_to(str(words.pop("to")))
        case _:
            raise ValueError(f"no damage is called {verb!r}")
    if words:
        raise ValueError(f"{verb} does not know {sorted(words)}")


def _put_row(directory: Path, words: dict[str, Word]) -> None:
    """Write a row of a RocksDB, or delete it without a value."""
    key = str(words.pop("key")).encode() if "key" in words else bytes.fromhex(str(words.pop("key_hex")))
    with opened_rows(directory) as database:
        family = database.get_column_family(str(words.pop("family")))
        before = family.get(key)
        if "hex" in words:
            family[key] = _content(words)
        else:
            del family[key]
        if family.get(key) == before:
            raise ValueError(f"{key!r} has this value already")


def _find(store: Path, path: str) -> Path:
    """Return a path in the store; `*` stands for the first matching name (index files are named by their time)."""
    if "*" not in path:
        return store / path
    found = sorted(store.glob(path))
    if not found:
        raise ValueError(f"nothing fits {path}")
    return found[0]


def _content(words: dict[str, Word]) -> bytes:
    if "text" in words:
        return str(words.pop("text")).encode()
    if "hex" in words:
        return bytes.fromhex(str(words.pop("hex")))
    return bytes(int(words.pop("zeros")))


def position(path: Path, at: Word) -> int:
    """Return a position in a file in bytes; `README.md` describes the syntax."""
    if isinstance(at, int):
        return at if at >= 0 else path.stat().st_size + at
    match = _POSITION.fullmatch(at)
    if match is None:
        raise ValueError(f"{at!r} is not a position")
    return _place(path, match) + int((match["plus"] or "0").replace(" ", ""))


def _place(path: Path, match: re.Match[str]) -> int:
    number = int(match["number"] or 0)
    match match["what"]:
        case "start":
            return 0
        case "size":
            return path.stat().st_size
        case "unit":
            return 20 * number
        case "end":
            spans = list(_spans(path))
            return spans[-1][1] if spans else 0
    start, stop = list(_spans(path))[number]
    match match["part"]:
        case "stop":
            return stop
        case "body":
            with path.open("rb") as file:
                file.seek(start)
                record = file.read(stop - start)
            skip = _DLEDGER_HEADER if _is_dledger(path) else 0
            return start + skip + _body_at(record[skip:])
    return start


def _locate(queue: Path, at: str) -> tuple[Path, str]:
    """Find `record N` of a queue of files: return its file, and the position with the number inside that file."""
    match = _POSITION.fullmatch(at)
    if match is None or match["what"] not in ("record", "entry"):
        raise ValueError(f"{at!r} is not a position in a directory")
    records = [(file, n) for file in sorted(queue.iterdir()) for n, _ in enumerate(_spans(file))]
    file, number = records[int(match["number"] or 0)]
    return file, at.replace(f"{match['what']} {match['number']}", f"{match['what']} {number}")


def locate_record(queue: Path, at: str) -> tuple[Path, int]:
    """Return the file, and the position in it, of `record N …` of a queue of files."""
    file, place = _locate(queue, at)
    return file, position(file, place)


def _length(path: Path, at: int, length: Word) -> int:
    if isinstance(length, int):
        return length
    if length == "rest":
        return path.stat().st_size - at
    if length == "record":
        return next(stop - start for start, stop in _spans(path) if start <= at < stop)
    raise ValueError(f"{length!r} is not a length")


def _is_dledger(path: Path) -> bool:
    return path.parent.name == "data" and path.parent.parent.name.startswith("dledger-")


def _spans(path: Path) -> Iterator[tuple[int, int]]:
    """Yield [start, stop) of every record of a commitlog or DLedger data file.

    This does not use the readers of rmqstore, so that a case does not depend on the code that it tests.
    """
    content, at = path.read_bytes(), 0
    while at + 8 <= len(content):
        first, second = struct.unpack_from(">II", content, at)
        size = second if _is_dledger(path) else first
        blank = first == 0xFFFFFFFF if _is_dledger(path) else second == _BLANK
        if blank or size < 8 or at + size > len(content):
            return
        yield at, at + size
        at += size


def _body_at(record: bytes) -> int:
    (flags,) = struct.unpack_from(">i", record, 36)
    born, stored = (20 if flags & bit else 8 for bit in (0x10, 0x20))
    return 48 + born + 8 + stored + 4 + 8 + 4
