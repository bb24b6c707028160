"""Shell completion of options and values, requested like bash does."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from rmqstore.cli.main import cli
from tests.command import run
from tests.damage import flip
from tests.stores import unpack

STORE = "5.4.0-clean"


def completed(*words: str) -> list[str]:
    """Return the completions of the last word."""
    found = ShellComplete(cli, {}, "rmqstore", "_RMQSTORE_COMPLETE").get_completions(list(words[:-1]), words[-1])
    return [item.value for item in found]


def test_commands_and_options() -> None:
    assert completed("bun") == ["bundle"]
    assert completed("dump", "x", "--unt") == ["--until"]


@pytest.mark.parametrize("command", ["dump", "du", "export", "find", "bundle"])
def test_topics_of_the_store(command: str) -> None:
    assert completed(command, str(unpack(STORE)), "--topic", "Or") == ["Order_11"]
    assert completed(command, str(unpack(STORE)), "--topic", "%RETRY%CG_t") == ["%RETRY%CG_tag_11"]


def test_queues_of_the_store_or_of_a_topic() -> None:
    store = str(unpack(STORE))
    assert completed("dump", store, "--queue", "Order_11/") == [f"Order_11/{i}" for i in range(4)]
    assert completed("dump", store, "--topic", "Pay_11_Topic", "--queue", "") == [f"Pay_11_Topic/{i}" for i in range(4)]


def test_codes_and_versions() -> None:
    assert completed("verify", "x", "--only", "CL-BODY") == ["CL-BODY-CRC"]
    assert completed("recover", "x", "--only", "TM-WHEEL-L") == ["TM-WHEEL-LENGTH"]
    assert "5.4.0" in completed("verify", "x", "--broker", "5.4")
    assert "4.9.7" in completed("dump", "x", "--broker", "4.9")


def test_journals(store: Path) -> None:
    flip(store / "commitlog" / f"{131072:020d}", 49_915)
    run("recover", str(store), "--apply")
    [journal] = (store / ".rmqstore").iterdir()
    assert completed("undo", f"{store}/") == [str(journal)]
    assert completed("resume", f"{store}/.rmqstore/") == [str(journal)]
    assert completed("lost", str(store), "--journal", "") == [str(journal)]


@pytest.mark.parametrize("words", [("dump", "/no/such/store", "--topic", ""), ("dump", "--queue", "")])
def test_what_cannot_be_known_completes_nothing(words: tuple[str, ...]) -> None:
    assert completed(*words) == []
