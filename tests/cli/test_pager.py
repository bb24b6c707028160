"""Text longer than the screen goes through a pager, but only in a real terminal."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.command import run
from tests.damage import flip
from tests.stores import unpack
from tests.terminal import printed_in_a_terminal

STORE = "5.4.0-clean"
COUNTER = "import sys; print(f'PAGED {len(sys.stdin.readlines())} lines')"
EARLY_QUITTER = "import sys; sys.stdin.readline(); print('QUIT')"


def in_a_terminal(
    *words: str, lines: int = 24, pager: str | None = COUNTER, environment: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Run a command in a terminal, and return exit code and output; `pager` is Python code for $RMQSTORE_PAGER."""
    hidden = ("COLUMNS", "LINES", "PAGER", "RMQSTORE_PAGER", "LESS")
    variables = {k: v for k, v in os.environ.items() if k not in hidden}
    if pager is not None:
        variables["RMQSTORE_PAGER"] = f'{sys.executable} -c "{pager}"'
    variables |= environment or {}
    code, printed = printed_in_a_terminal(*words, lines=lines, columns=100, environment=variables)
    text = printed.decode("utf-8", "replace").replace("\r\n", "\n")
    assert "Traceback" not in text, text
    return code, text


def test_a_long_table_is_paged_and_a_short_one_is_not() -> None:
    store = str(unpack(STORE))
    code, text = in_a_terminal("dump", store, "--limit", "100", "--topic", "Order_11")
    assert (code, "PAGED 101 lines" in text) == (0, True)
    code, text = in_a_terminal("dump", store, "--limit", "5", "--topic", "Order_11")
    assert (code, "PAGED" in text, text.count("Order_11")) == (0, False, 5)


def test_what_fits_exactly_is_not_paged() -> None:
    words = ("dump", str(unpack(STORE)), "--limit", "10", "--topic", "Order_11", "-q")  # 11 lines, and the prompt
    assert "PAGED" not in in_a_terminal(*words, lines=12)[1]
    assert "PAGED 11 lines" in in_a_terminal(*words, lines=11)[1]


def test_findings_are_paged_with_their_exit_code(store: Path) -> None:
    flip(store / "commitlog" / f"{196608:020}", 47521)
    for pager in (COUNTER, EARLY_QUITTER):
        code, text = in_a_terminal("verify", str(store), lines=10, pager=pager)
        assert code == 1
        assert "PAGED" in text or "QUIT" in text


@pytest.mark.parametrize("words", [("--no-pager",), ("--format", "ndjson"), ("--format", "csv")])
def test_data_is_never_paged(words: tuple[str, ...]) -> None:
    code, text = in_a_terminal("dump", str(unpack(STORE)), *words)
    assert code == 0
    assert "PAGED" not in text and text.count("\n") > 500


def test_json_is_never_paged() -> None:
    code, text = in_a_terminal("verify", str(unpack(STORE)), "--json", lines=5)
    assert code == 0
    assert "rmqstore.verify/1" in text and "PAGED" not in text


def test_a_repair_does_not_wait_for_a_pager(store: Path) -> None:
    flip(store / "commitlog" / f"{196608:020}", 47521)
    code, text = in_a_terminal("recover", str(store), lines=5)
    assert code == 1 and "PAGED" in text
    code, text = in_a_terminal("recover", str(store), "--apply", lines=5)
    assert code == 0 and "PAGED" not in text


@pytest.mark.parametrize("value", ["", "cat", "no-such-program", "'"])
def test_without_a_pager_the_text_is_printed(value: str) -> None:
    words = ("dump", str(unpack(STORE)), "--limit", "40")
    code, text = in_a_terminal(*words, lines=5, pager=None, environment={"RMQSTORE_PAGER": value})
    assert code == 0
    assert text.count("\n") >= 41


def test_pager_is_used_where_rmqstore_has_none_of_its_own() -> None:
    other = {"PAGER": f'{sys.executable} -c "{COUNTER}"'}
    words = ("dump", str(unpack(STORE)), "--limit", "40")
    assert "PAGED 41 lines" in in_a_terminal(*words, pager=None, environment=other)[1]
    assert "PAGED" not in in_a_terminal(*words, pager=None, environment={**other, "RMQSTORE_PAGER": "cat"})[1]


def test_quitting_the_pager_ends_the_reading() -> None:
    began = time.monotonic()
    code, text = in_a_terminal("dump", str(unpack(STORE)), pager=EARLY_QUITTER)
    assert code == 0
    assert "QUIT" in text
    assert time.monotonic() - began < 30


def test_notes_wait_for_the_end_of_the_pager() -> None:
    slow = "import sys, time; n = len(sys.stdin.readlines()); time.sleep(1); print('PAGED')"
    words = ("dump", str(unpack(STORE)), "--topic", "Order_11", "--topic", "NoSuchTopic", "--limit", "60")
    _, text = in_a_terminal(*words, lines=10, pager=slow)
    assert "PAGED" in text
    assert "%|" not in text.partition("PAGED")[0].rpartition("\n")[2]  # no progress bar on the pager's screen


def test_output_that_is_no_terminal_is_not_paged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RMQSTORE_PAGER", "false")
    result = run("dump", str(unpack(STORE)), "--format", "table")
    assert result.exit_code == 0
    assert result.stdout.count("\n") > 500
