"""Typical tasks of an operator, each done by one command in a real terminal of 80, 120 and 200 columns.

No line of text is wider than the terminal, so the terminal cuts or wraps nothing in the middle of a word.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqstore.formats.text import columns
from tests.damage import flip
from tests.stores import copy_store
from tests.terminal import printed_in_a_terminal
from tests.untouched import content_only, snapshot

WIDTHS = (80, *(pytest.param(width, marks=pytest.mark.slow) for width in (120, 200)))
_CONTROL_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]|\x1b[=>]")
Ask = Callable[..., list[str]]


def in_a_terminal(width: int, folder: Path, *words: str) -> tuple[int, list[str]]:
    """Run a command, and return its exit code and the lines on the screen at the end, without overwritten text."""
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR", "CI")}
    environment |= {"PAGER": "cat", "TZ": "UTC"}
    code, printed = printed_in_a_terminal(*words, lines=50, columns=width, environment=environment, folder=folder)
    text = _CONTROL_SEQUENCE.sub("", printed.decode("utf-8")).replace("\r\n", "\n")
    lines = text.removesuffix("\n").split("\n") if text else []  # splitlines would split at each state of a bar
    return code, [line.rpartition("\r")[2] for line in lines]


@pytest.fixture(params=WIDTHS)
def ask(request: pytest.FixtureRequest, tmp_path: Path) -> Ask:
    """A function that runs one command in a terminal, in the folder with the stores, and returns the lines shown."""

    def run(*words: str, exit_code: int = 0) -> list[str]:
        code, lines = in_a_terminal(request.param, tmp_path, *words)
        assert code == exit_code, "\n".join(lines)
        assert not any("Traceback" in line for line in lines)
        commands = ("rmqstore ", "store restored", str(tmp_path))  # lines with paths or commands to copy may be wider
        assert [line for line in lines if columns(line) > request.param and not any(c in line for c in commands)] == []
        return lines

    return run


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return copy_store("5.4.0-clean", tmp_path, rename="store")


@pytest.fixture
def damaged(store: Path) -> Path:
    """A store after a crash, with two wrong bytes in one body: a broker would truncate 252 messages."""
    log = store / "commitlog" / f"{196608:020d}"
    flip(log, 47521)
    flip(log, 47600)
    (store / "abort").touch()
    (store / "checkpoint").unlink()
    return store


def test_why_does_the_broker_lose_messages(damaged: Path, ask: Ask) -> None:
    lines = ask("verify", "store", exit_code=1)
    assert "RocketMQ 5.4.0 would start and lose 252 messages of 9 topics" in " ".join(lines[:3])  # after a progress bar
    assert any("CL-BODY-CRC" in line for line in lines)


def test_which_messages_are_lost(damaged: Path, ask: Ask) -> None:
    lines = ask("lost", "store", exit_code=1)
    assert any("Lost to damage: 1 message" in line for line in lines)
    assert any("Good, but the next start would delete them: 252 messages" in line for line in lines)


def test_make_it_start_again(damaged: Path, ask: Ask) -> None:
    before = content_only(snapshot(damaged))
    assert ask("recover", "store", "--apply")[-1] == "Verified again: no problems."
    assert any("restored: 2 steps undone" in line for line in ask("undo", "store", "--last"))
    after = content_only(snapshot(damaged))
    assert {name: entry for name, entry in after.items() if ".rmqstore" not in str(name)} == before


def test_did_the_order_arrive_and_who_consumed_it(store: Path, ask: Ask) -> None:
    lines = ask("find", "store", "ord11_222")
    assert any(line.startswith("ord11_222: arrived") for line in lines)
    assert any("log-15445/1 offset 21" in line for line in lines)
    assert any("CG_dlq_11 has read past it" in line for line in lines)


def test_what_is_in_this_message(store: Path, ask: Ask) -> None:
    lines = ask("get", "store", "Order_11/0/3")
    assert lines[0].startswith("Order_11/0 offset 3")
    assert any("sound (body CRC matches)" in line for line in lines)


def test_what_fills_the_disk(store: Path, ask: Ask) -> None:
    lines = ask("du", "store")
    assert lines[0] == "store: 553 messages, 447.9 KiB"
    assert any(line.startswith("Order_11 ") and " 168 " in line for line in lines)


def test_show_the_last_messages_of_a_topic(store: Path, ask: Ask) -> None:
    lines = ask("dump", "store", "--topic", "Order_11", "--reverse", "--limit", "5")
    assert sum("Order_11" in line for line in lines) == 5


def test_is_everything_sound_tonight(store: Path, ask: Ask) -> None:
    assert ask("verify", "store", "-q") == []


def test_take_a_topic_out(store: Path, tmp_path: Path, ask: Ask) -> None:
    ask("export", "store", "--topic", "Order_11", "-o", "orders.ndjson")
    assert len((tmp_path / "orders.ndjson").read_text("utf-8").splitlines()) == 168


def test_heal_a_node_from_its_replica(damaged: Path, tmp_path: Path, ask: Ask) -> None:
    replica = copy_store("5.4.0-clean", tmp_path, rename="replica")
    lines = ask("recover", "store", "--replica", "replica", "--apply")
    assert any(line == "No data will be lost." for line in lines)
    name = f"commitlog/{196608:020d}"
    assert (damaged / name).read_bytes() == (replica / name).read_bytes()


def test_move_to_dledger(store: Path, tmp_path: Path, ask: Ask) -> None:
    ask("migrate-to-dledger", "store", "--self-id", "n0", "--apply")
    assert any("mixed" in line for line in ask("info", "store"))
