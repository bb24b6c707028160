"""A store in use is detected, and its lock is held like by a broker."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmqstore.documents.content import Literal, Zeros
from rmqstore.documents.plan import Plan
from rmqstore.errors import StoreIsLive
from rmqstore.files.lock import LockState, lock_state, take_lock
from rmqstore.files.users import Users, find_users, snapshot
from rmqstore.repair.journal import journal
from rmqstore.repair.journal import lock as liveness
from rmqstore.repair.journal.disk import Disk
from tests.repair.trees import CountingDisk, discard, full_plan, look, overwrite

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc"),
    pytest.mark.other_processes,
]


@contextlib.contextmanager
def other_process(script: str, *arguments: object) -> Iterator[int]:
    """Run a script in another Python process, wait until it is done, and keep the process alive in the block."""
    text = f"import sys, fcntl, mmap, os\n{script}\nprint('ready', flush=True)\nsys.stdin.read()\n"
    command = [sys.executable, "-c", text, *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        try:
            yield process.pid
        finally:
            process.stdin.close()


HOLD = "f = open(sys.argv[1], 'r+b'); fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)"
OPEN = "f = os.open(sys.argv[1], os.O_RDONLY)"
WRITE = "f = os.open(sys.argv[1], os.O_WRONLY)"
MAP = "f = os.open(sys.argv[1], os.O_RDONLY); m = mmap.mmap(f, 0, prot=mmap.PROT_READ); os.close(f)"
ASK = (
    "f = open(sys.argv[1], 'r+b')\ntry:\n  fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)\n"
    "  print('free')\nexcept OSError:\n  print('held')\n"
)


def open_lock(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT)


def ask_lock(store: Path) -> str:
    text = f"import sys, fcntl\n{ASK}"
    return subprocess.run(
        [sys.executable, "-c", text, str(store / "lock")], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_lock_of_a_broker_is_detected_without_taking_it(store: Path) -> None:
    (store / "lock").write_bytes(b"lock")
    assert lock_state(store / "lock") == LockState(True, False)
    with other_process(HOLD, store / "lock") as pid:
        assert lock_state(store / "lock") == LockState(True, True, pid)
    assert lock_state(store / "lock") == LockState(True, False)


def test_apply_undo_and_resume_refuse_a_store_whose_lock_is_held(store: Path) -> None:
    (store / "lock").write_bytes(b"lock")
    plan = full_plan(store)
    path = journal.apply(plan, disk=CountingDisk()).journal
    assert path is not None
    before = look(store)
    with other_process(HOLD, store / "lock") as pid:
        for change in (
            lambda: journal.apply(Plan(str(store), (overwrite(store, "checkpoint", 0, Zeros(1)),))),
            lambda: journal.undo(path),
        ):
            with pytest.raises(StoreIsLive, match=f"process {pid}") as caught:
                change()
            assert caught.value.exit_code == 5
    assert look(store) == before
    assert [entry.name for entry in (store / ".rmqstore").iterdir()] == [path.name]


def test_broker_that_takes_the_lock_at_the_last_moment_is_not_disturbed(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (store / "lock").write_bytes(b"lock")
    before = look(store)
    monkeypatch.setattr(journal, "refuse_locked", lambda store: None)
    monkeypatch.setattr(liveness, "find_users", lambda places, files: Users())
    with other_process(HOLD, store / "lock") as pid:
        with pytest.raises(StoreIsLive, match=f"process {pid}"):
            journal.apply(full_plan(store), disk=CountingDisk())
        assert lock_state(store / "lock").pid == pid
    assert look(store) == before and not (store / ".rmqstore").exists()


def test_lock_is_held_from_the_first_batch_to_the_last(store: Path) -> None:
    answers = []
    journal.apply(full_plan(store), disk=CountingDisk(), progress=lambda done, of: answers.append(ask_lock(store)))
    assert answers == ["held"] * 7
    assert not (store / "lock").exists()


def test_lock_file_that_was_there_stays_and_is_free_again(store: Path) -> None:
    (store / "lock").write_bytes(b"lock")
    before = look(store)
    path = journal.apply(full_plan(store), disk=CountingDisk()).journal
    assert path is not None
    assert ask_lock(store) == "free"
    journal.undo(path, disk=CountingDisk())
    assert look(store) == before and ask_lock(store) == "free"


def test_nothing_else_opens_the_lock_file_while_it_is_held(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (store / "lock").write_bytes(b"lock")
    opened: list[str] = []
    held = False
    real_open = os.open

    def watch(path: object, *arguments: int, **named: int) -> int:
        if held and os.fspath(path).endswith("/lock"):  # type: ignore[call-overload]
            opened.append(str(path))
        return real_open(path, *arguments, **named)  # type: ignore[arg-type]

    real_lock = fcntl.lockf

    def lock(*arguments: int) -> None:
        nonlocal held
        real_lock(*arguments)
        held = True

    monkeypatch.setattr(os, "open", watch)
    monkeypatch.setattr(fcntl, "lockf", lock)
    journal.apply(full_plan(store), disk=CountingDisk())
    assert held and opened == []


@pytest.mark.parametrize(
    ("script", "how"), [(WRITE, "open for writing"), (MAP, "mapped")], ids=["open for writing", "mapped"]
)
def test_file_in_use_by_another_process_makes_a_store_live(store: Path, script: str, how: str) -> None:
    used = store / "commitlog/00000000000000008192"
    plan = Plan(str(store), (discard(store, "abort"),))
    before = look(store)
    with other_process(script, used) as pid:
        (user,) = find_users([store], snapshot([store])).seen
        assert (user.pid, user.path) == (pid, str(used))
        with pytest.raises(StoreIsLive, match=rf"process {pid} \(python[0-9.]*\) has {used} {how}"):
            journal.apply(plan)
    assert look(store) == before and not (store / ".rmqstore").exists()
    assert journal.apply(plan).steps == 1


def test_every_process_that_maps_a_file_is_named(store: Path) -> None:
    used = store / "commitlog" / "with\rreturn"
    used.write_bytes(bytes(10))
    with other_process(MAP, used) as one, other_process(MAP, used) as two:
        seen = find_users([store], snapshot([store])).seen
    assert [(user.pid, user.path, user.mapped) for user in seen] == [
        (pid, str(used), True) for pid in sorted((one, two))
    ]


def test_reader_of_the_log_does_not_block_a_repair(store: Path) -> None:
    plan = Plan(str(store), (discard(store, "abort"),))
    with other_process(OPEN, store / "commitlog/00000000000000008192"):
        assert find_users([store], snapshot([store])) == Users()
        assert journal.apply(plan).steps == 1


def test_file_reached_by_another_name_counts_too(store: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").hardlink_to(store / "checkpoint")
    with other_process(WRITE, tmp_path / "alias") as pid:
        (user,) = find_users([store], snapshot([store])).seen
        assert (user.pid, user.path) == (pid, str(store / "checkpoint"))


def test_own_open_files_do_not_make_a_store_live(store: Path) -> None:
    with (store / "checkpoint").open("r+b"):
        assert find_users([store], snapshot([store])).seen == ()


def test_unused_store_has_no_user(store: Path) -> None:
    assert find_users([store], snapshot([store])).seen == ()
    assert find_users([store], {}, Path("/nowhere")) == Users()


def test_lock_held_by_this_process_is_known_without_opening_the_file(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = store / "lock"
    held = take_lock(lock, open_lock)
    try:
        monkeypatch.setattr("rmqstore.files.lock.open_regular", lambda path: pytest.fail(f"{path} was opened"))
        assert lock_state(lock) == LockState(True, True, os.getpid()) and lock_state(lock).own
        monkeypatch.undo()
        assert lock_state(lock).own
        assert ask_lock(store) == "held"  # the query has not released it
    finally:
        held.release()
    assert ask_lock(store) == "free" and lock_state(lock) == LockState(True, False)


def test_second_writer_of_this_process_is_refused_and_the_first_one_keeps_the_lock(store: Path) -> None:
    held = take_lock(store / "lock", open_lock)
    try:
        for again in (
            lambda: take_lock(store / "lock", open_lock),
            lambda: journal.apply(Plan(str(store), (discard(store, "abort"),))),
        ):
            with pytest.raises(StoreIsLive, match=rf"this process \({os.getpid()}\) holds its lock already"):
                again()
        assert ask_lock(store) == "held"
    finally:
        held.release()
    assert journal.apply(Plan(str(store), (discard(store, "abort"),))).steps == 1


def test_child_of_a_writer_sees_the_lock_of_its_parent(store: Path) -> None:
    held = take_lock(store / "lock", open_lock)
    child = os.fork()
    if not child:
        os._exit(0 if lock_state(store / "lock") == LockState(True, True, os.getppid()) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert ask_lock(store) == "held"
    held.release()


def test_lock_file_that_was_replaced_while_it_was_taken_is_taken_again(store: Path) -> None:
    lock = store / "lock"
    opened: list[int] = []

    def open_and_replace(path: Path) -> int:
        descriptor = open_lock(path)
        if not opened:
            path.unlink()
            path.write_bytes(b"lock")
        opened.append(descriptor)
        return descriptor

    held = take_lock(lock, open_and_replace)
    assert len(opened) == 2 and ask_lock(store) == "held"
    held.release()


@pytest.mark.skipif(os.geteuid() != 0, reason="makes processes of other users")
def test_process_of_another_user_that_cannot_be_examined_is_named_and_refused_without_confirmation(
    store: Path, tmp_path: Path
) -> None:
    """The broker is idle, `lock` is deleted, and rmqstore runs as another user than the broker."""
    for path in (store, *store.rglob("*")):
        path.chmod(0o777 if path.is_dir() else 0o666)
    for path in tmp_path.parents:
        if path.owner() == "root" and path != Path("/"):
            path.chmod(path.stat().st_mode | 0o055)
    used = store / "commitlog/00000000000000008192"
    text = (
        "import os, sys; from pathlib import Path; from rmqstore.repair.journal import lock as liveness\n"
        "from rmqstore.files.users import find_users, snapshot\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534); store = Path(sys.argv[1])\n"
        "try: liveness.refuse_in_use(store, [store], stopped=len(sys.argv) > 2)\n"
        "except Exception as error: print(error.message, '|', error.advice)\n"
        "print(*(one.pid for one in find_users([store], snapshot([store])).hidden))\n"
    )

    def ask(*words: str) -> str:
        command = [sys.executable, "-c", text, str(store), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    with other_process(WRITE, used) as pid:
        output, pids = ask().splitlines()
        assert str(pid) in pids.split()
        assert "cannot tell whether these processes of other users write to it: process" in output
        assert "add --broker-is-stopped" in output
        assert len(ask("stopped").splitlines()) == 1


@pytest.mark.parametrize("what", ["grows", "is touched", "appears", "vanishes"])
def test_store_that_moves_during_preflight_is_live(store: Path, what: str) -> None:
    class Moving(CountingDisk):
        def make_directory(self, path: Path) -> None:
            super().make_directory(path)
            if path.name == "quarantine":
                change[what]()

    change: dict[str, Callable[[], object]] = {
        "grows": lambda: (store / "checkpoint").write_bytes(b"x" * 5000),
        "is touched": lambda: os.utime(store / "checkpoint"),
        "appears": lambda: (store / "commitlog/new").write_bytes(b""),
        "vanishes": lambda: (store / "abort").unlink(),
    }
    plan = Plan(str(store), (overwrite(store, "commitlog/00000000000000000000", 0, Literal(b"x")),))
    with pytest.raises(StoreIsLive, match="changed during the check"):
        journal.apply(plan, disk=Moving())
    assert (store / "commitlog/00000000000000000000").read_bytes()[:1] != b"x"
    assert not (store / ".rmqstore").exists()


def test_lock_left_by_a_killed_apply_belongs_to_the_owner_of_the_store(store: Path) -> None:
    with liveness.hold_lock(store, Disk(), remove=False):
        status = (store / "lock").stat()
        assert (status.st_uid, status.st_gid) == (store.stat().st_uid, store.stat().st_gid)
        assert status.st_mode & 0o777 == 0o644
    assert not (store / "lock").exists()
