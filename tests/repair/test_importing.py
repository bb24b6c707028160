"""`import --into`: a fault at every system call that writes. No message is missing or twice, or everything is undone.

A fault is an error, a torn write, a kill or a signal. After each, the store is taken back by `undo` in one copy, and
completed by the same call in another one.
"""

from __future__ import annotations

import errno
import os
import shlex
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rmqstore.append import exported_files, importing, message_store
from rmqstore.append.dledger import EntryFiles
from rmqstore.append.exported_files import tables_of
from rmqstore.append.importing import ImportOptions, fingerprint
from rmqstore.append.message_store import MessageStore, StoreOptions
from rmqstore.brokers import dledger as simulated_dledger
from rmqstore.documents.journal import State
from rmqstore.errors import HalfApplied, RmqStoreError
from rmqstore.files import store as files_of_store
from rmqstore.files.store import open_store
from rmqstore.repair.importing import ImportSource, IntoStore, import_into
from rmqstore.repair.journal import journal
from tests import command
from tests.append.rewriting import log_bytes, queue_bytes
from tests.append.small import NEVER, SMALL, clean, message
from tests.repair.trees import Entry, look

WRITES = (
    *("pwrite", "ftruncate", "fsync", "fdatasync", "link", "symlink", "rename", "unlink", "mkdir", "rmdir", "utime"),
    *("chmod", "chown", "open"),
)
_DURABLE = ("fsync", "fdatasync")
_OPTIONS = ImportOptions(renumber=True)
_BEFORE, _NEW = 60, 90
_INDEX = 1 << 13


class Fault:
    """Makes call number `at` of the writing functions of `os` fail in a way; `calls` counts all of them."""

    def __init__(self, at: int = -1, way: str = "") -> None:
        self.at = at
        self.way = way
        self.calls: list[str] = []

    def __enter__(self) -> Fault:
        self._real = {name: getattr(os, name) for name in WRITES}
        for name in WRITES:
            setattr(os, name, self._wrapped(name))
        return self

    def __exit__(self, *_: object) -> None:
        for name, function in self._real.items():
            setattr(os, name, function)

    def _wrapped(self, name: str) -> Callable[..., Any]:
        real = self._real[name]

        def call(*args: Any, **kwargs: Any) -> Any:
            if name == "open" and not args[1] & (os.O_RDWR | os.O_WRONLY):
                return real(*args, **kwargs)
            self.calls.append(name)
            if len(self.calls) - 1 == self.at:
                if self.way.endswith("torn"):
                    if name != "pwrite":
                        return None if name in _DURABLE else real(*args, **kwargs)
                    real(args[0], bytes(args[1])[: len(args[1]) // 2], args[2])
                if self.way.startswith("kill"):
                    os.kill(os.getpid(), signal.SIGKILL)
                if self.way == "signal":
                    raise KeyboardInterrupt
                number = getattr(errno, self.way, errno.EIO)
                raise OSError(number, os.strerror(number))
            return None if name in _DURABLE else real(*args, **kwargs)  # these tests kill no kernel

        return call


@dataclass(frozen=True)
class Case:
    """A store, the messages to be imported into it, and what an import without a fault makes of it."""

    store: Path
    file: Path
    before: dict[str, Entry]
    log: dict[str, bytes]
    queues: dict[str, bytes]
    calls: tuple[str, ...]

    def copy(self, to: Path) -> Path:
        return _copy(self.store, to)


def _copy(source: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    return Path(shutil.copytree(source, target, symlinks=True))


@pytest.fixture(autouse=True, scope="module")
def small_tables() -> Iterator[None]:
    """Three tables, each of which is made durable; a DLedger index of 8 KiB, of which a broker's has 160 MB."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exported_files, "ROWS", 30)
        patch.setattr(importing, "SAVE_EVERY", 0)
        patch.setattr(message_store, "EntryFiles", partial(EntryFiles, index_file_size=_INDEX))
        for module in (files_of_store, simulated_dledger):
            patch.setattr(module, "DLEDGER_INDEX_FILE_SIZE", _INDEX)
        yield


def append(store: Path, file: Path) -> IntoStore:
    source = ImportSource(lambda: tables_of(file), lambda: fingerprint([file], _OPTIONS))
    return import_into(open_store(store), source, _OPTIONS, check=lambda: None)


def _write(root: Path, options: StoreOptions, numbers: range, topics: tuple[str, ...]) -> None:
    with MessageStore.create(root, options) as store:
        for number in numbers:
            one = message(number, size=60 + number % 7, topic=topics[number % len(topics)], queue_id=number % 3)
            one.store_timestamp = 1_700_000_000_000 + number * 1000
            store.put(one)


def make_case(folder: Path, options: StoreOptions) -> Case:
    original = folder / "original"
    _write(original, options, range(_BEFORE), ("TopicTest",))
    (original / "config").mkdir(exist_ok=True)
    (original / "config" / "topics.json").write_text('{"dataVersion":{"counter":1},"topicConfigTable":{}}')
    _write(folder / "source", replace(SMALL, dispatch=options.dispatch), range(100, 100 + _NEW), ("TopicTest", "New"))
    file = folder / "new.ndjson"
    command.run("export", str(folder / "source"), "-o", str(file), "-q")
    store = _copy(original, folder / "whole")
    with Fault() as counted:
        append(store, file)
    before = look(original, folder_times=False)
    return Case(original, file, before, log(store), queue_bytes(store), tuple(counted.calls))


def log(store: Path) -> dict[str, bytes]:
    opened = open_store(store)
    queue = opened.dledger.data if opened.dledger is not None else opened.commitlog
    assert queue is not None
    return log_bytes(queue)


def check_complete(store: Path, case: Case) -> None:
    """Check that every message is in the store once, and that `undo` still takes all of them back."""
    assert log(store) == case.log
    assert queue_bytes(store) == case.queues
    assert clean(store) == {}
    assert not journal.find_unfinished(store)
    journal.undo(journal.last_journal(store).path)
    assert look(store, folder_times=False) == case.before


def check_both_ends(store: Path, other: Path, case: Case) -> str:
    """Undo in a copy, and import again in the store; return the state of the journal."""
    found = journal.list_journals(store)
    state = found[-1].state.value if found else "none"
    if found:
        _copy(store, other)
        journal.undo(other / ".rmqstore" / found[-1].path.name)
        assert look(other, folder_times=False) == {**case.before, **_lock(other, case)}
    else:
        assert look(store, folder_times=False) == {**case.before, **_lock(store, case)}
    done = append(store, case.file)
    assert done.imported.messages == _NEW
    check_complete(store, case)
    return state


def _lock(store: Path, case: Case) -> dict[str, Entry]:
    """A kill before the first state file is on disk may leave the file `lock`."""
    left = look(store, folder_times=False)
    return {"lock": left["lock"]} if "lock" in left and "lock" not in case.before else {}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return make_case(tmp_path_factory.mktemp("plain"), replace(SMALL, intervals=NEVER))


@pytest.fixture(scope="module")
def dledger(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return make_case(tmp_path_factory.mktemp("dledger"), replace(SMALL, intervals=NEVER, dledger="n0"))


_WAYS = ("EIO", "ENOSPC", "EACCES", "torn", "signal", "kill", "kill-torn")
_PARTS = 36


def _rows() -> Iterator[object]:
    """Yield kind of store, way and part: each part disturbs other calls; of each way, one part is quick."""
    for kind in ("plain", "dledger"):
        for number, way in enumerate(_WAYS):
            for part in range(_PARTS):
                quick = kind == "plain" and part == number * 5 + 1
                yield pytest.param(kind, way, part, marks=() if quick else pytest.mark.slow, id=f"{kind}-{way}-{part}")


@pytest.mark.parametrize(("kind", "way", "part"), [*_rows()])
def test_a_fault_at_any_call_is_continued_or_undone(
    kind: str, way: str, part: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    case: Case = request.getfixturevalue(kind)
    torn = way.endswith("torn")
    places = [n for n, name in enumerate(case.calls) if not torn or name == "pwrite"]
    states = set()
    for index in places[part::_PARTS]:
        store = case.copy(tmp_path / "store")
        if way.startswith("kill"):
            stopped = _killed(partial(_faulty, store, case, index, way))
        else:
            stopped = _faulty(store, case, index, way)
        if stopped:
            states.add(check_both_ends(store, tmp_path / "other", case))
        else:
            check_complete(store, case)
    assert states


def _faulty(store: Path, case: Case, index: int, way: str) -> bool:
    """Import with a fault; return whether it stopped, and check the error."""
    try:
        with Fault(index, way):
            append(store, case.file)
    except HalfApplied as error:
        assert error.exit_code == 6
        assert "`rmqstore undo " in error.advice
        assert "`rmqstore resume " in error.advice or "run the same command again" in error.advice
        return True
    except (RmqStoreError, OSError, KeyboardInterrupt):
        assert not journal.find_unfinished(store)
        return True
    return False


def _killed(work: Callable[[], object]) -> bool:
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:  # noqa: BLE001  # the child must not continue in pytest
            os._exit(9)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the child failed otherwise"
    return os.WIFSIGNALED(status)


@pytest.mark.parametrize("way", ["journals", "last"])
def test_a_killed_import_is_given_up_by_the_command_that_is_printed(plain: Case, tmp_path: Path, way: str) -> None:
    store = plain.copy(tmp_path / "store")
    assert _killed(partial(_faulty, store, plain, len(plain.calls) // 2, "kill"))
    [left] = journal.list_journals(store)
    assert left.state is State.PREPARING and left.being_made
    [printed] = [
        line.removeprefix("  to undo: ")
        for line in command.run("journals", str(store)).output.splitlines()
        if line.startswith("  to undo: ")
    ]
    words = shlex.split(printed)[1:] if way == "journals" else ["undo", str(store), "--last"]
    done = command.run(*words)
    assert done.exit_code == 0, done.output
    assert look(store, folder_times=False) == plain.before
    assert journal.list_journals(store) == []


def test_undo_last_gives_up_an_unfinished_import_before_an_older_one(plain: Case, tmp_path: Path) -> None:
    store = plain.copy(tmp_path / "store")
    append(store, plain.file)
    imported = look(store, folder_times=False)
    other = tmp_path / "other.ndjson"
    lines = plain.file.read_text().splitlines(keepends=True)
    other.write_text("".join(lines[:40]))
    assert _killed(partial(_faulty, store, replace(plain, file=other), len(plain.calls) // 2, "kill"))
    older, left = journal.list_journals(store)
    assert left.being_made
    refused = command.run("undo", str(older.path))
    assert refused.exit_code == 5 and f"run `rmqstore undo {left.path}` first" in refused.stderr
    for expected in (imported, plain.before):
        assert command.run("undo", str(store), "--last").exit_code == 0
        assert look(store, folder_times=False) == expected


def test_journals_names_an_unfinished_import_and_prune_leaves_it(plain: Case, tmp_path: Path) -> None:
    store = plain.copy(tmp_path / "store")
    with pytest.raises(HalfApplied), Fault(len(plain.calls) * 2 // 3, "EIO"):
        append(store, plain.file)
    [left] = journal.list_journals(store)
    assert left.being_made
    shown = command.run("journals", str(store))
    assert "an unfinished import: run it again, or undo it" in shown.output
    document: Any = command.run_json("journals", str(store), exit_code=0)
    assert document["journals"][0]["command"] == "import"
    assert command.run("journals", str(store), "--prune", "--apply").exit_code == 0
    assert [one.path for one in journal.list_journals(store)] == [left.path]
    assert command.run("journals", str(store), "--prune", "--older-than", "1d").exit_code == 0
    assert command.run("journals", str(store), "--prune", "--older-than", "0s", "--apply").exit_code == 0
    assert journal.list_journals(store) == []
    assert look(store, folder_times=False) == plain.before
