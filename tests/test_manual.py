"""The pages in man/ are up to date, and contain every command, option, layout and problem."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from rmqstore.checks.problems.table import PROBLEMS
from rmqstore.formats.message import HEAD, MESSAGE
from rmqstore.manual import pages
from tests.command import command_names
from tests.stores import ROOT


def test_man_is_current() -> None:
    there = {p.name: p.read_text("utf-8") for p in (ROOT / "man").glob("rmqstore*.[0-9]")}
    assert there == pages(), "run `make man` and commit what it writes"


def test_every_command_has_a_page() -> None:
    assert {f"rmqstore-{name}.1" for name in command_names()} <= set(pages())


def test_every_problem_is_in_section_7() -> None:
    page = pages()["rmqstore-problems.7"]
    assert [code for code in PROBLEMS if f".SH {code.replace('-', chr(92) + '-')}\n" not in page] == []


def test_every_field_of_a_message_is_in_section_5() -> None:
    page = pages()["rmqstore-formats.5"]
    assert [f.name for f in HEAD if f"{HEAD.at(f.name)}  {f.name}" not in page] == []
    assert [f.name for f in MESSAGE if f".B {f.name}" not in page and f"  {f.name}\n" not in page] == []


@pytest.mark.skipif(shutil.which("groff") is None, reason="no groff on this machine")
@pytest.mark.parametrize("name", sorted(pages()))
def test_groff_prints_no_warning(name: str) -> None:
    result = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", "-K", "utf8"], input=pages()[name].encode(), capture_output=True, check=True
    )
    assert result.stderr.decode() == ""
    assert len(result.stdout) > 200
