"""What a refusal says: each has a next step that is true, and is not hidden."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cases.case import make, options, read_case, recover_words
from tests.command import run, run_json
from tests.damage import flip
from tests.stores import unpack


@pytest.fixture
def repaired(store: Path) -> Path:
    """A store with one flipped bit, after its repair."""
    flip(sorted((store / "commitlog").iterdir())[1], 4096 + 200)
    assert run("recover", str(store), "--apply").exit_code == 0
    return store


def test_an_old_version_for_queues_in_rocksdb_names_the_conversion() -> None:
    pytest.importorskip("rocksdict")
    store = unpack("5.4.0-rocksdb")
    text = run("verify", str(store), "--broker", "4.9.7").stdout
    assert f"Next: rmqstore rebuild {store} cq --storage files" in text
    plan = run("rebuild", str(store), "cq", "--storage", "files")
    assert plan.exit_code == 1, "the command that it names has a plan"


def test_of_two_databases_the_one_of_the_named_version_stays(tmp_path: Path) -> None:
    pytest.importorskip("rocksdict")
    case = read_case("CQ-TWO-ROCKSDB")
    words = recover_words(case, make(case, tmp_path))
    for version, moved in (
        ("5.1.4", "consumequeue_rocksdb/"),
        ("5.4.0", "consumequeue_rocksdb/"),
        ("5.5.1", "consumequeue/"),
    ):
        steps: Any = run_json(*words, "--broker", version, exit_code=1)["steps"]
        assert all(step["path"].startswith(moved) for step in steps), version
    refused = run(*words, "--broker", "4.9.7")
    assert refused.exit_code == 5
    assert "RocketMQ 4.9.7 uses neither: name the version that does, such as --broker 5.5.1" in refused.stderr


def test_an_old_version_for_new_records_names_no_conversion(tmp_path: Path) -> None:
    text = run("verify", str(unpack("5.4.0-ipv6")), "--broker", "4.4.0").stdout
    assert "BR-TOO-OLD" in text
    assert "--storage files" not in text.partition("Next:")[2]


def test_a_refused_undo_says_what_to_do_and_journals_does_not_offer_it(repaired: Path) -> None:
    assert "to undo: rmqstore undo" in run("journals", str(repaired)).stdout
    file = sorted((repaired / "commitlog").iterdir())[1]
    flip(file, 4096 + 200, 3)  # another bit of the byte that the repair wrote
    result = run("undo", str(repaired), "--last")
    assert result.exit_code == 5
    assert f"`rmqstore verify {repaired}` shows what the store needs now" in result.stderr
    listed = run("journals", str(repaired)).stdout
    assert "to undo: rmqstore undo" not in listed
    assert f"can no longer be undone: commitlog/{file.name} was written to after it" in listed


def test_a_copy_without_times_is_not_said_to_be_written_by_a_broker(repaired: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(repaired, copy, copy_function=shutil.copyfile)
    result = run("undo", str(copy), "--last")
    assert result.exit_code == 5
    assert "copy it with its times (cp -a)" in result.stderr
    shutil.rmtree(copy)
    shutil.copytree(repaired, copy, copy_function=shutil.copy2)
    assert run("undo", str(copy), "--last").exit_code == 0


def test_a_read_only_file_system_is_named(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flip(sorted((store / "commitlog").iterdir())[1], 4096 + 200)
    make_directory = os.mkdir

    def refuse(path: str, *more: object, **named: object) -> None:
        if ".rmqstore" in str(path):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(store / ".rmqstore"))
        make_directory(path, *more, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "mkdir", refuse)
    result = run("recover", str(store), "--apply")
    mount = next(str(place) for place in (store, *store.parents) if place.is_mount())
    assert result.exit_code == 5
    assert f"the file system {mount} is mounted read-only" in result.stderr
    assert f"mount -o remount,rw {mount}" in result.stderr


def test_a_refusal_after_a_plan_is_the_last_line_of_stdout(tmp_path: Path) -> None:
    case = read_case("CL-MAGIC--much-damage")
    store = make(case, tmp_path)
    result = run("recover", str(store), *options(case, store), "--apply")
    assert result.exit_code == 5
    assert "Not applied: this plan needs a decision" in " ".join(result.stdout.splitlines()[-3:])
    assert "error: this plan needs a decision" in result.stderr
