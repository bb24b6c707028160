"""Eighteen questions at 3 am, in a terminal of 80 and 120 columns: the answer is in the first ten lines."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.test_lost import damaged
from tests.command import run
from tests.damage import zero
from tests.stores import copy_store, unpack
from tests.test_operator_tasks import in_a_terminal
from tests.views.decoder import find_records

Prepare = Callable[[Path], None]


def sound(folder: Path) -> None:
    """A store without problems."""
    copy_store("5.4.0-clean", folder, rename="store")


def broken(folder: Path) -> None:
    """A store that was killed, with damage: two messages cannot be kept, one can be mended."""
    sound(folder)
    damaged(folder / "store")
    (folder / "store" / "abort").touch()
    zero(folder / "store" / "checkpoint", 0, 40)


def repaired(folder: Path) -> None:
    """The same after its repair."""
    broken(folder)
    assert run("recover", str(folder / "store"), "--apply").exit_code == 0


def empty_last_file(folder: Path) -> None:
    """A store of 4.9.7 whose last log file is empty."""
    log = copy_store("4.9.7-clean", folder, rename="store") / "commitlog"
    last = sorted(log.iterdir())[-1]
    (log / f"{int(last.name) + last.stat().st_size:020d}").touch()


def stray_file(folder: Path) -> None:
    """A store with a file of somebody in the log."""
    sound(folder)
    (folder / "store" / "commitlog" / "notes.txt").write_text("x")


def wrong_conf(folder: Path) -> None:
    """A store whose broker.conf has another file size."""
    sound(folder)
    (folder / "broker.conf").write_text("mappedFileSizeCommitLog=131072\n")


def acknowledged(folder: Path) -> None:
    """A repaired store, and what producers say was acknowledged."""
    repaired(folder)
    (folder / "acknowledged.txt").write_text("ord11_42\nord11_100\nnever-sent\n")


def two_stores(folder: Path) -> None:
    """A sound store, and a damaged one."""
    broken(folder)
    copy_store("5.4.0-ipv6", folder, rename="other")


def two_replicas(folder: Path) -> None:
    """A master, and a slave that lacks its end."""
    copy_store("5.4.0-master", folder, rename="store")
    copy_store("5.4.0-slave", folder, rename="slave")


@dataclass(frozen=True)
class Story:
    """A question: the situation, the command that answers it, and a pattern of the answer."""

    prepare: Prepare
    words: tuple[str, ...]
    answer: str
    exit_code: int = 0


DEAD = next(r.msg_id for r in find_records(unpack("5.4.0-clean")) if r.topic == "%DLQ%CG_dlq_11")
STORIES = {
    "why does it not start": Story(
        stray_file, ("verify", "store"), r"would not start \(exit 253\): .*commitlog/notes\.txt", 1
    ),
    "does the version that wrote it start": Story(
        empty_last_file,
        ("verify", "store"),
        r"^RocketMQ 4\.9\.3 to 5\.1\.1 \(may have written this store\) would not start",
        1,
    ),
    "what would the next start lose": Story(
        broken, ("verify", "store"), r"^RocketMQ 5\.4\.0 would start and lose \d+ messages of \d topics", 1
    ),
    "which messages are lost": Story(
        broken, ("lost", "store"), r"Lost to damage: 2 messages.* Good, but the next start would delete them: \d+", 1
    ),
    "what would a repair do": Story(
        broken, ("recover", "store"), r"Lost: 2 messages of 1 topic.* Mended: 1 message", 1
    ),
    "undo it": Story(repaired, ("undo", "store", "--last"), r"restored: \d+ steps undone"),
    "did the order arrive, and who consumed it": Story(
        sound, ("find", "store", "ord11_222"), r"^ord11_222: arrived, read past by CG_dlq_11"
    ),
    "where is the order that is missing": Story(
        repaired, ("find", "store", "ord11_100"), r"^ord11_100: LOST: replaced by a filler in repair \S+", 1
    ),
    "who gave up on it": Story(
        sound, ("find", "store", DEAD), r"given up by CG_dlq_11 at \d{4}-\d\d-\d\d .* a dead letter"
    ),
    "was it ever sent": Story(
        sound, ("find", "store", "ORDER-9"), r"^ORDER-9: never arrived, as far as this store tells", 1
    ),
    "what is in the message": Story(sound, ("get", "store", "Order_11/0/3"), r"^Order_11/0 offset 3"),
    "what became of what producers sent": Story(
        acknowledged,
        ("lost", "store", "--expected", "acknowledged.txt"),
        r"^3 messages expected: 1 in the store, 1 lost, 1 nowhere.*ord11_100: LOST",
        1,
    ),
    "which of our brokers is damaged": Story(
        two_stores, ("verify", "other", "store"), r"^store\b.*lose \d+ messages.*other\b", 1
    ),
    "does the slave have everything": Story(
        two_replicas, ("compare", "store", "slave"), r"^OTHER is shorter: all its messages are equal", 1
    ),
    "when do files go": Story(
        sound,
        ("expire", "store", "--reserved", "80000"),
        r"^The clean-up would remove no file .*It removes (none before|the next files at)",
    ),
    "when is the disk full": Story(
        sound, ("du", "store", "--growth"), r"^(The messages span only 15 seconds|The disk is full)"
    ),
    "what fills the disk": Story(sound, ("du", "store"), r"^store: 553 messages, 447\.9 KiB.*log-15445"),
    "is broker.conf right": Story(
        wrong_conf,
        ("verify", "store", "-c", "broker.conf"),
        r"^broker\.conf does not fit the files of this store: set mappedFileSizeCommitLog=65536",
        1,
    ),
}


def test_there_are_eighteen() -> None:
    assert len(STORIES) == 18


@pytest.mark.quick_rows(6)
@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("question", STORIES)
def test_the_answer_is_in_the_first_ten_lines(question: str, width: int, tmp_path: Path) -> None:
    story = STORIES[question]
    story.prepare(tmp_path)
    code, lines = in_a_terminal(width, tmp_path, *story.words)
    assert code == story.exit_code, "\n".join(lines)
    first = [line for line in lines if not line.startswith("note: ")][:10]
    assert re.search(story.answer, " ".join(" ".join(first).split())), "\n".join(first)
