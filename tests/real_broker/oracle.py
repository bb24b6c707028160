"""The oracle: runs RocketMQ's own store classes on a store, and returns what they read.

    reading = Oracle("5.4.0").load(copy, meta(name).oracle_args, start=True)

Each call runs its own JVM. A store that was loaded but not shut down keeps its threads and mapped files until the
process ends, and a store that does not start calls System.exit. With Java's class data archive (AppCDS, created on
first use), a call takes 0.5 s instead of 0.8 s. For stores that should start, and whose files the test does not
examine afterwards, use `oracle_server`.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.real_broker.java import JavaClasses, java_classes
from tests.stores import CACHE as MASTERS
from tests.stores import VERSIONS, copy_store, meta

TIMEOUT_SECONDS = 600  # only a hang takes longer: the Java side waits 120 s for a leader, and for the dispatch
_ANSWERED = (0, 3, 4)

Setting = str | int | bool

SWITCHES: Mapping[str, Setting] = {"start": True, "shutdown": True, "list": True}
"""Start, read and name every message, end cleanly."""


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """One message as returned by the store."""

    queue_offset: int
    commitlog_offset: int
    size: int
    body_crc: int
    digest: str
    """SHA-1 of the record as a consumer gets it: properties, body, times, all."""


@dataclass(frozen=True, slots=True)
class QueueReading:
    """One consume queue: queue offsets [min, max), and the number of those with the right, complete message."""

    min: int
    max: int
    readable: int
    first_bad: int | None
    bad: int
    why: tuple[str, ...]
    """Reasons of the first bad offsets, "OFFSET:reason"."""
    messages: tuple[StoredMessage, ...]
    """The readable messages; only with list=True."""
    pulled: tuple[int, ...] = ()
    """Queue offsets as a consumer gets them who pulls on and on from the minimum; only with `pull`."""


@dataclass(frozen=True, slots=True)
class KeyQuery:
    """A query for messages by key, in [begin, end] of store time (ms); with type "T" (5.4.0), the key is a tag."""

    topic: str
    key: str
    begin: int = 0
    end: int = (1 << 63) - 1
    type: str | None = None

    def line(self) -> str:
        """Format the query for Keys.java."""
        words = [self.topic, self.key, str(self.begin), str(self.end), *([self.type] if self.type else [])]
        assert not any(character in word for word in words for character in "\t\r\n")
        return "\t".join(words)


@dataclass(frozen=True, slots=True)
class OracleResult:
    """The result of running the store classes on a store.

    `crash` is the exception, or "exit N" if RocketMQ ended the process, or "timeout". `log` is RocketMQ's own log of
    this run. `puts` are the appended messages (queue id, queue offset, commitlog offset, size). `by_key` contains the
    commitlog offsets for each query, and `rounds` the files that each round of the clean-up deleted.
    """

    load: bool
    min_phy: int | None
    max_phy: int | None
    max_phy_after_load: int | None
    queues: Mapping[str, QueueReading]
    offsets: int
    readable: int
    crash: str | None
    exit_code: int
    leader: bool | None
    shutdown: str | None
    unknown_settings: tuple[str, ...]
    log: str
    puts: tuple[tuple[int, int, int, int], ...] = ()
    by_key: tuple[tuple[int, ...], ...] = ()
    rounds: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Oracle:
    """The store classes of one RocketMQ version (4.9.7, 5.1.4 or 5.4.0)."""

    version: str

    def load(
        self,
        store: Path,
        settings: Mapping[str, Setting] | None = None,
        *,
        start: bool = False,
        shutdown: bool = False,
        list: bool = False,  # noqa: A002 - the name on the Java side
        keys: Sequence[KeyQuery] = (),
        timeout: float = TIMEOUT_SECONDS,
        **more: Setting,
    ) -> OracleResult:
        """Load a store, and read every offset of every queue. This changes the store, so pass a copy.

        `start` also starts it and waits until all messages are dispatched; `shutdown` ends it cleanly; `list` returns
        every message; `keys` are queries by key. `put` appends this number of messages to topic Order before the store
        is read. `pull` reads every queue again like a consumer, with this number of messages per pull. `clean` runs
        this number of clean-up rounds, with `manual` as after mqadmin deleteExpiredCommitLog. `settings` and all other
        keyword arguments are settings of MessageStoreConfig.
        """
        if store.resolve().is_relative_to(MASTERS.resolve()):
            raise ValueError(f"{store} is a master copy, and the oracle changes what it opens: use copy_store()")
        classes = java_classes(self.version)
        switches: dict[str, Setting] = {"start": start, "shutdown": shutdown, "list": list}
        with tempfile.NamedTemporaryFile("w", prefix="oracle-keys-", encoding="utf-8") as lines:
            if keys:
                lines.write("".join(f"{query.line()}\n" for query in keys))
                lines.flush()
                switches["keys"] = lines.name
            return _ask(classes, store, archive_option(classes), {**(settings or {}), **more, **switches}, timeout)


def _ask(
    classes: JavaClasses,
    store: Path,
    options: tuple[str, ...],
    settings: Mapping[str, Setting],
    timeout: float = TIMEOUT_SECONDS,
) -> OracleResult:
    with tempfile.TemporaryDirectory(prefix="oracle-") as folder:
        home = Path(folder)
        log = home / "rocketmq.log"
        command = classes.command("Oracle", log=log, home=home, options=options)
        command += [str(store), *words_of(settings)]
        try:
            done = subprocess.run(command, cwd=home, capture_output=True, timeout=timeout, check=False)
        except subprocess.TimeoutExpired:
            return _no_answer(f"timeout after {timeout:.0f} s", 124, _text(log))
        lines = done.stdout.decode("utf-8", "replace").splitlines()
        if done.returncode not in _ANSWERED or not lines or not lines[-1].startswith('{"load"'):
            text = done.stderr.decode("utf-8", "replace").strip().splitlines()[-3:]
            return _no_answer(" ".join([f"exit {done.returncode}", *text]), done.returncode, _text(log))
        return parse_answer(json.loads(lines[-1]), done.returncode, _text(log))


def archive_option(classes: JavaClasses) -> tuple[str, ...]:
    """Return Java's option for the class data archive, which is created if it does not exist."""
    if not classes.archive.exists():
        _make_archive(classes)
    return (f"-XX:SharedArchiveFile={classes.archive}",) if classes.archive.exists() else ()


def words_of(settings: Mapping[str, Setting]) -> list[str]:
    """Format settings as command line arguments: key=value."""
    return [f"{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in settings.items()]


def _make_archive(classes: JavaClasses) -> None:
    """Let Java archive the classes that it loads for a typical call; done once per version and JDK."""
    with tempfile.TemporaryDirectory(prefix="oracle-", dir=classes.archive.parent) as folder:
        name = f"{classes.version if classes.version in VERSIONS else VERSIONS[-1]}-clean"
        store = copy_store(name, Path(folder))
        building = Path(folder) / classes.archive.name
        settings: dict[str, Setting] = {"start": True, "shutdown": True, **meta(name).oracle_args}
        _ask(classes, store, (f"-XX:ArchiveClassesAtExit={building}",), settings)
        if building.exists():  # a JDK before 13 creates none
            building.rename(classes.archive)


def _text(path: Path) -> str:
    return path.read_text("utf-8", "replace") if path.exists() else ""


def _no_answer(crash: str, exit_code: int, log: str) -> OracleResult:
    return OracleResult(
        load=False,
        min_phy=None,
        max_phy=None,
        max_phy_after_load=None,
        queues={},
        offsets=0,
        readable=0,
        crash=crash,
        exit_code=exit_code,
        leader=None,
        shutdown=None,
        unknown_settings=(),
        log=log,
    )


# Oracle.java is part of this repository, so the structure of its output is not checked.
def parse_answer(answer: dict[str, object], exit_code: int, log: str) -> OracleResult:
    lists = ("puts", "by_key", "rounds")
    fields = {k: v for k, v in answer.items() if k not in ("queues", "unknown_settings", "behind", *lists)}
    queues, unknown = answer["queues"], answer["unknown_settings"]
    puts, by_key, rounds = (answer[name] for name in lists)
    assert isinstance(queues, dict)
    assert isinstance(unknown, list)
    assert isinstance(puts, list)
    assert isinstance(by_key, list)
    assert isinstance(rounds, list)
    return OracleResult(
        **fields,  # type: ignore[arg-type]
        queues={name: _queue(queue) for name, queue in queues.items()},
        unknown_settings=tuple(unknown),
        exit_code=exit_code,
        log=log,
        puts=tuple(tuple(put) for put in puts),
        by_key=tuple(tuple(offsets) for offsets in by_key),
        rounds=tuple(tuple(paths) for paths in rounds),
    )


def _queue(queue: dict[str, object]) -> QueueReading:
    low, high, readable, first_bad = queue["min"], queue["max"], queue["readable"], queue["first_bad"]
    bad, why, messages = queue.get("bad", 0), queue.get("why", []), queue.get("messages", [])
    pulled = queue.get("pulled", [])
    assert isinstance(low, int)
    assert isinstance(high, int)
    assert isinstance(readable, int)
    assert isinstance(bad, int)
    assert isinstance(why, list)
    assert isinstance(messages, list)
    assert isinstance(pulled, list)
    return QueueReading(
        min=low,
        max=high,
        readable=readable,
        first_bad=first_bad if isinstance(first_bad, int) else None,
        bad=bad,
        why=tuple(why),
        messages=tuple(StoredMessage(*message) for message in messages),
        pulled=tuple(pulled),
    )
