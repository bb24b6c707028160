"""expire --delete: files are deleted for ever, with a digest, also on a file system without any room."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rmqstore.files.store import open_store
from rmqstore.repair.expire import ExpireOptions, plan_expire
from rmqstore.repair.journal import journal
from tests.command import run, run_json
from tests.repair.trees import CountingDisk
from tests.stores import ROOT, copy_store, write_broker_conf

OLD = 1_000_000_000
ASKED = ("--any-hour", "--delete")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store of which the first three files of the log have expired, on a disk with room."""
    root = aged(copy_store("5.4.0-clean", tmp_path))
    write_broker_conf("5.4.0-clean", root, cleanFileForciblyEnable="false").rename(tmp_path / "broker.conf")
    return root


def aged(root: Path) -> Path:
    for number, path in enumerate(sorted((root / "commitlog").iterdir())):
        os.utime(path, (0, OLD if number < 3 else time.time()))
    return root


def words_for(store: Path) -> tuple[str, ...]:
    return "expire", str(store), "-c", str(store.parent / "broker.conf"), *ASKED


def names(store: Path) -> set[str]:
    """Return the files of the log, the queues and the index."""
    parts = ("commitlog", "consumequeue", "index")
    return {
        file.relative_to(store).as_posix() for part in parts for file in (store / part).rglob("*") if file.is_file()
    }


def test_the_list_and_the_digest_are_printed_and_exactly_that_is_deleted(store: Path) -> None:
    before = names(store)
    printed = run(*words_for(store))
    assert (printed.exit_code, names(store)) == (1, before)
    planned: Any = run_json(*words_for(store), exit_code=1)
    listed = [str(step["path"]) for step in planned["steps"]]
    assert listed[:3] == [f"commitlog/{3 * '0'}{at:017}" for at in (0, 65536, 131072)]
    assert all(f"delete {path} for ever" in printed.stdout for path in listed)
    assert planned["undoable"] is False
    assert f"add --apply --force {planned['digest']}\n" in printed.stdout
    refused = run(*words_for(store), "--apply")
    assert (refused.exit_code, names(store)) == (5, before)
    assert f"--force {planned['digest']}" in refused.stderr
    done: Any = run_json(*words_for(store), "--apply", "--force", str(planned["digest"]), exit_code=0)
    assert (done["differs"], names(store)) == ([], before - {*listed})
    assert done["loss"] == planned["loss"]


def test_the_same_files_as_without_delete_and_only_those(store: Path) -> None:
    words = words_for(store)
    both: list[Any] = [run_json(*some, exit_code=1) for some in (words[:-1], words)]
    kept, deleted = both
    rows = [[(step["path"], step["length"]) for step in one["steps"]] for one in (kept, deleted)]
    assert rows[0] == rows[1] != []
    assert kept["loss"] == deleted["loss"]


def test_every_command_knows_the_journal(store: Path, tmp_path: Path) -> None:
    planned: Any = run_json(*words_for(store), exit_code=1)
    done: Any = run_json(*words_for(store), "--apply", "--force", str(planned["digest"]), exit_code=0)
    path = str(done["journal"])
    listed: Any = run_json("journals", str(store), exit_code=0)["journals"]
    [row] = listed
    assert row["deleted"] == [step["path"] for step in planned["steps"]]
    assert "this cannot be undone" in run("journals", str(store)).stdout
    assert "to undo" not in run("journals", str(store)).stdout
    lost = run("lost", str(store), "--journal", path, "--format", "table")
    assert "Deleted for ever by `rmqstore expire STORE --delete`" in lost.stdout
    queues = planned["facts"]["expire"]["queues"]
    assert {name: row["messages"] for name, row in queues.items()} == planned["loss"]["queues"]
    page = tmp_path / "page.html"
    assert run("report", str(store), "--incident", path, "-o", str(page)).exit_code == 0
    assert "this cannot be undone" in page.read_text("utf-8")
    assert "can still be undone" not in page.read_text("utf-8")
    for words in (("undo", path), ("undo", str(store), "--last")):
        refused = run(*words)
        assert refused.exit_code == 5
        assert "commitlog/00000000000000000000" in refused.stderr
    assert run("info", str(store)).exit_code == 0


def test_a_saved_plan_deletes_only_with_delete_and_only_what_would_go_now(store: Path, tmp_path: Path) -> None:
    plan, before = tmp_path / "plan.json", names(store)
    digest = str(run_json(*words_for(store), "--plan-out", str(plan), exit_code=1)["digest"])
    apply = ("--plan", str(plan), "--apply", "--force", digest, "-c", str(tmp_path / "broker.conf"))
    for command in ("expire", "recover"):
        refused = run(command, str(store), *apply)
        assert (refused.exit_code, names(store)) == (2, before)
        assert "which only `rmqstore expire STORE --delete` does" in refused.stderr
    one_more = json.loads(plan.read_text())
    os.utime(store / "commitlog/00000000000000131072", (0, time.time()))  # it is young again
    refused = run("expire", str(store), "--delete", *apply)
    assert (refused.exit_code, names(store)) == (5, before)
    assert "would now delete other files" in refused.stderr
    os.utime(store / "commitlog/00000000000000131072", (0, OLD))
    one_more["steps"].append({**one_more["steps"][0], "path": "config/topics.json"})
    del one_more["digest"]
    forged = tmp_path / "forged.json"
    forged.write_text(json.dumps(one_more))
    refused = run("expire", str(store), "--delete", "--plan", str(forged), "--apply", *apply[3:])
    assert (refused.exit_code, names(store)) == (5, before)
    done = run("expire", str(store), "--delete", *apply)
    assert (done.exit_code, names(store)) == (0, before - {step["path"] for step in one_more["steps"]})


def test_a_log_file_that_is_a_link_is_not_deleted(store: Path, tmp_path: Path) -> None:
    first = store / "commitlog/00000000000000000000"
    first.rename(tmp_path / "elsewhere")
    first.symlink_to(tmp_path / "elsewhere")
    refused = run(*words_for(store))
    assert (refused.exit_code, first.is_symlink()) == (5, True)
    assert "is a symbolic link" in refused.stderr


# --- a file system that is really full -----------------------------------------------------------------------------


def fill(folder: Path) -> None:
    """Write until nothing more fits."""
    with (folder / "filler").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
    for number in range(64):  # what is left of the last blocks
        try:
            (folder / f"filler-{number}").write_bytes(bytes(512))
        except OSError:
            return


def printed(command: str) -> list[str]:
    words = shlex.split(command)
    assert words[0] == "rmqstore"
    return words[1:]


def free_by_the_printed_commands(disk: Path, other: Path) -> None:
    """Do what the commands advise, as printed, from `expire --apply` on a full disk to a sound store."""
    root = aged(copy_store("5.4.0-clean", disk))
    fill(disk)
    before = names(root)
    failed = run("expire", str(root), "--any-hour", "--apply")
    assert (failed.exit_code, names(root)) == (5, before), failed.output
    advised = re.findall(r"`(rmqstore expire [^`]*)`", failed.stderr)
    assert len(advised) == 1, failed.stderr
    plan = run(*printed(advised[0]))
    assert plan.exit_code == 1, plan.output
    options = re.findall(r"add (--apply .*?), where DIR is on", " ".join(plan.stdout.split()))
    assert len(options) == 1, plan.stdout
    done = run(*printed(f"{advised[0]} {options[0].replace('DIR', shlex.quote(str(other)))}"))
    assert done.exit_code == 0, done.output
    gone = before - names(root)
    assert len([name for name in gone if name.startswith("commitlog/")]) == 7  # the disk forces all but the last one
    assert run("verify", str(root)).exit_code == 0
    [found] = journal.list_journals(root)
    assert (found.path.parent, {*found.deleted}) == (other, gone)
    assert os.statvfs(disk).f_bavail > 0


def resume_after_a_kill(disk: Path, other: Path) -> None:
    """Kill a deletion when it has made room for the pointer, and finish it with the journal elsewhere."""
    root = aged(copy_store("5.4.0-clean", disk))
    fill(disk)
    first = root / "commitlog" / "00000000000000000000"
    plan = plan_expire(open_store(root), ExpireOptions(any_hour=True, delete=True)).plan

    def at(number: int, name: str) -> None:
        if name == "make_directory" and not first.exists():
            os.kill(os.getpid(), signal.SIGKILL)

    pid = os.fork()
    if pid == 0:
        try:
            journal.apply(plan, journal_dir=other, force_digest=plan.digest, disk=CountingDisk(at))
        finally:
            os._exit(9)
    assert os.WIFSIGNALED(os.waitpid(pid, 0)[1])
    assert not first.exists() and not (root / ".rmqstore").exists()
    [path] = other.iterdir()
    done = run("resume", str(path), "--root", str(root))
    assert done.exit_code == 0, done.output
    assert not any((root / step.path).exists() for step in plan.steps)
    assert [one.path for one in journal.list_journals(root)] == [path]
    assert run("verify", str(root)).exit_code == 0


@pytest.mark.parametrize("work", ["free_by_the_printed_commands", "resume_after_a_kill"])
@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
def test_on_a_file_system_that_is_really_full(kind: str, work: str, tmp_path: Path) -> None:
    disk, other, image = (tmp_path / name for name in ("disk", "other", "image"))
    disk.mkdir()
    other.mkdir()
    mount = 'mount -t tmpfs -o size=8m,mode=700 none "$1"'
    if kind == "ext4":
        with image.open("wb") as file:
            file.truncate(24 << 20)
        mount = 'mkfs.ext4 -q -m 0 "$4" && mount -o loop "$4" "$1"'
    code = f"from tests.repair.test_expire_delete import *; {work}(Path({str(disk)!r}), Path({str(other)!r}))"
    enter = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    arguments = ["sh", str(disk), sys.executable, code, str(image)]
    tried = subprocess.run([*enter, "sh", "-c", mount, *arguments], capture_output=True, check=False)
    if tried.returncode:
        pytest.skip(f"a process may not mount an {kind} of its own here ({' '.join(enter)})")
    script = f'{mount} && "$2" -c "$3"'
    done = subprocess.run(
        [*enter, "sh", "-c", script, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not any(disk.iterdir())  # it was mounted only in there
