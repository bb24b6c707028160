"""README and docs/ are correct: their examples match the output of the commands, and everything they mention exists."""

from __future__ import annotations

import doctest
import html
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tests.command import command_names, parsed, run
from tests.damage import flip
from tests.forecast.cases import CASES
from tests.stores import ROOT, copy_store

PAGES = (
    *("README.md", "README.zh-CN.md", "CHANGELOG.md", "CONTRIBUTING.md", "fixtures/README.md"),
    *("docs/architecture.md", "docs/decisions.md", "docs/pipeline.md", "docs/python.md"),
    *("docs/how-to.md", "docs/incidents.md", "docs/monitoring.md", "docs/tutorial.md", "docs/how-a-broker-starts.md"),
    *("docs/compatibility.md", "docs/fleet.md", "docs/speed.md"),
)
_OF_THIS_RUN = re.compile(r"\d{8}T\d{6}\.\d{6}Z|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC(?=: recover)")


def fenced(page: str) -> list[str]:
    """Return the fenced code blocks of a page."""
    return re.findall(r"^```\w*\n(.*?)^```$", (ROOT / page).read_text("utf-8"), re.MULTILINE | re.DOTALL)


def command_lines(text: str) -> Iterator[list[str]]:
    """Yield the arguments of every call of rmqstore in a text, without redirections, pipes and comments."""
    for line in text.replace("\\\n", " ").splitlines():
        for part in re.split(r" && | \| | > ", line.strip().removeprefix("$ ")):
            if part.startswith("rmqstore "):
                yield shlex.split(part, comments=True)[1:]


def help_examples(name: str) -> str:
    from rmqstore.cli.main import cli

    command = cli.get_command(click.Context(cli), name)
    return "\n".join(getattr(command, "examples", ()))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of `make demo`, as in README: after a crash, with a flipped bit in a body."""
    root = copy_store("5.4.0-clean", tmp_path_factory.mktemp("data"), rename="store")
    flip(root / "commitlog" / f"{196608:020d}", 47521)
    (root / "abort").touch()
    (root / "checkpoint").write_bytes(bytes(4096))
    return root


def test_the_picture_in_readme_shows_what_verify_prints(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picture = (ROOT / "docs" / "images" / "verify.svg").read_text("utf-8")
    assert "://" not in picture.replace("http://www.w3.org", "").replace("https://www.textualize.io", "")
    shown = re.sub(r"<style>.*?</style>|<defs>.*?</defs>|<[^>]*>", "", picture, flags=re.DOTALL)
    monkeypatch.chdir(store.parent)
    monkeypatch.delenv("COLUMNS", raising=False)
    printed = "$ rmqstore verify store " + run("verify", "store").stdout
    assert html.unescape(shown).split() == printed.split(), "run `make pictures`"


def test_the_how_to_shows_what_bundle_prints(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [shown] = [text for text in fenced("docs/how-to.md") if text.startswith("$ rmqstore bundle store ")]
    command, _, expected = shown.partition("\n")
    monkeypatch.chdir(store.parent)
    monkeypatch.delenv("COLUMNS", raising=False)
    printed = run(*shlex.split(command)[2:]).stdout
    assert [size_left_out(line) for line in printed.splitlines()] == [
        size_left_out(line) for line in expected.splitlines()
    ]


def test_the_chinese_readme_shows_what_verify_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [shown] = [text for text in fenced("README.zh-CN.md") if text.startswith("$ rmqstore verify store ")]
    command, _, expected = shown.partition("\n")
    copy_store("5.4.0-clean", tmp_path, rename="store")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    assert run(*shlex.split(command)[2:]).stdout == expected


def size_left_out(line: str) -> str:
    """Remove the size of the bundle from a line, because the compressed size varies."""
    return re.sub(r"\.gz: [0-9.]+ KiB", ".gz: KiB", line)


@pytest.mark.parametrize("page", ["README.md", "README.zh-CN.md"])
def test_readme_names_every_command(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    assert [name for name in command_names() if not re.search(rf"`{name}[ `]", text)] == []


def test_the_examples_of_the_python_page_run_and_print_what_it_shows(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(store, tmp_path / "store")
    monkeypatch.chdir(tmp_path)
    text = re.sub(r"^```.*$", "", (ROOT / "docs/python.md").read_text("utf-8"), flags=re.MULTILINE)
    page = doctest.DocTestParser().get_doctest(text, {}, "python.md", None, 0)
    assert doctest.DocTestRunner().run(page).failed == 0


def test_the_commands_of_the_tutorial_print_what_it_shows(tmp_path: Path) -> None:
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "TZ": "UTC", "COLUMNS": "80"}
    blocks = [text for text in fenced("docs/tutorial.md") if text.startswith("$ ")]
    assert len(blocks) >= 5
    for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", "".join(blocks), re.MULTILINE):
        done = subprocess.run(command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True)
        printed = done.stdout.replace(str(tmp_path), "/home/you")
        assert _OF_THIS_RUN.sub("…", printed).rstrip() == _OF_THIS_RUN.sub("…", shown).rstrip(), command


@pytest.mark.parametrize("page", PAGES)
def test_command_lines_of_a_page_are_valid(page: str) -> None:
    for text in fenced(page):
        for words in command_lines(text):
            parsed(words)


@pytest.mark.parametrize("name", sorted(command_names()))
def test_command_lines_of_a_help_are_valid(name: str) -> None:
    lines = list(command_lines(help_examples(name)))
    assert lines
    for words in lines:
        parsed(words)


@pytest.mark.parametrize("page", PAGES)
def test_links_and_make_targets_of_a_page_are_there(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    links = [to for to in re.findall(r"\]\(([^)#]+)", text) if "://" not in to]
    assert [to for to in links if not ((ROOT / page).parent / to).exists()] == []
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert set(re.findall(r"(?:`|^)make ([a-z-]+)", text, re.MULTILINE)) - targets == set()


def test_the_number_of_starts_on_the_pages_is_that_of_the_recorded_ones() -> None:
    starts = len(CASES)
    for page in ("README.md", "CHANGELOG.md"):
        [hundreds] = re.findall(r"more than (\d+)00 recorded\s+starts", (ROOT / page).read_text("utf-8"))
        assert int(hundreds) == starts // 100, page
    [hundreds] = re.findall(r"(\d+)00 多次真实启动", (ROOT / "README.zh-CN.md").read_text("utf-8"))
    assert int(hundreds) == starts // 100


_KINDS = ("5.4.0-clean", "5.4.0-dledger", "5.4.0-dledger-mixed", "5.4.0-rocksdb", "5.4.0-rocksdb-double")
_MORE = {
    "find": ("no-such-key",),
    "export": ("-o", "out.ndjson"),
    "report": ("-o", "out.html"),
    "bundle": ("-o", "out.tar.gz"),
    "rebuild": ("cq",),
    "migrate-to-dledger": ("--self-id", "n1"),
    "migrate-to-commitlog": ("-o", "new", "--include-uncommitted"),
}


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("kind", _KINDS)
def test_each_command_works_with_the_kinds_of_stores_that_compatibility_says(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs" / "compatibility.md").read_text("utf-8")
    rows = re.findall(r"^\| `([a-z-]+)` \| (.*) \|$", page.partition("## Commands by kind")[2], re.MULTILINE)
    assert len(rows) == 15
    store = copy_store(kind, tmp_path)
    monkeypatch.chdir(tmp_path)
    for command, cells in rows:
        says = cells.split(" | ")[_KINDS.index(kind)]
        result = run(command, str(store), *_MORE.get(command, ()))
        assert result.exit_code in ((0, 1) if says == "yes" else (5,)), f"{command}: {result.output}"
