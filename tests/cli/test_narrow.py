"""A narrow terminal breaks no word, a table keeps the columns that tell rows apart, and long help is paged."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import rmqstore
from rmqstore.formats.text import columns
from tests.cli.test_report_page import broken
from tests.command import run
from tests.damage import cut, overwrite
from tests.stores import copy_store, unpack, write_broker_conf
from tests.terminal import printed_in_a_terminal
from tests.test_operator_tasks import in_a_terminal

STORE = "5.4.0-clean"


@pytest.mark.quick_rows(3)
@pytest.mark.parametrize(
    "words", [("verify",), ("info",), ("find", "ord11_308"), ("get", "Order_11/0/3"), ("lost",), ("recover",)]
)
def test_at_forty_columns_no_word_is_broken(words: tuple[str, ...], tmp_path: Path) -> None:
    broken(tmp_path)
    _, lines = in_a_terminal(40, tmp_path, words[0], STORE, *words[1:])
    assert len(lines) > 3
    wide = [line for line in lines if columns(line) > 40]
    # only single words, such as ids and paths, and commands to copy
    assert [line for line in wide if "rmqstore " not in line and len(line.split()) > 2] == []


def test_a_narrow_table_keeps_topic_queue_and_offset(tmp_path: Path) -> None:
    copy_store(STORE, tmp_path)
    _, lines = in_a_terminal(40, tmp_path, "dump", STORE, "--limit", "2")
    head = next(line for line in lines if line.startswith("topic"))
    assert head.split() == ["topic", "queue_id", "queue_offset"]
    _, lines = in_a_terminal(80, tmp_path, "dump", STORE, "--positions")
    files = {line.split()[1] for line in lines if "RECORDS" in line}
    assert len(files) == 8 and all(name.startswith("…") for name in files), "cut at the front"


@pytest.mark.parametrize("words", [("verify", "--help"), ("--help",), ("pipeline", "export", "--help")])
def test_help_longer_than_the_screen_is_paged(words: tuple[str, ...], tmp_path: Path) -> None:
    pager = tmp_path / "pager"
    pager.write_text("#!/bin/sh\necho paged\ncat\n")
    pager.chmod(0o755)
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")} | {"PAGER": str(pager)}
    code, out = printed_in_a_terminal(*words, lines=24, columns=80, environment=environment)
    assert code == 0 and out.startswith(b"paged\r\nUsage: rmqstore")
    code, out = printed_in_a_terminal(*words, lines=400, columns=80, environment=environment)
    assert code == 0 and out.startswith(b"Usage: rmqstore")


def test_what_never_arrived_may_be_a_record_of_an_earlier_log() -> None:
    store = unpack(STORE)
    result = run("find", str(store), "no-such-key")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[0] == "no-such-key: never arrived, as far as this store tells"
    command = result.stdout.splitlines()[-1].split("  ")[-1].removeprefix("earlier logs").strip()
    assert command == f"rmqstore lost {store} --stale"
    assert run(*command.split()[1:]).exit_code == 0


def test_a_wrong_file_size_in_broker_conf_is_one_problem(tmp_path: Path) -> None:
    store = copy_store(STORE, tmp_path)
    conf = write_broker_conf(STORE, store, mappedFileSizeCommitLog="131072").rename(tmp_path / "broker.conf")
    result = run("verify", str(store), "-c", str(conf))
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert " ".join(lines[:2]).startswith(
        "broker.conf does not fit the files of this store: set mappedFileSizeCommitLog=65536."
    )
    assert sum(line.startswith(("ERROR", "WARNING")) for line in lines) == 1
    assert "recover" not in result.stdout
    assert "may only follow from that (-v lists them)" in result.stdout
    assert (
        sum(
            line.startswith(("ERROR", "WARNING"))
            for line in run("verify", str(store), "-c", str(conf), "-v").stdout.splitlines()
        )
        > 1
    )
    conf.write_text(conf.read_text().replace("=131072", "=65536"))  # what it asks for
    command = lines[-1].split()
    assert command[:2] == ["rmqstore", "verify"]
    assert run(*command[1:]).exit_code == 0
    cut(store / "commitlog" / f"{458752:020d}", 1000)
    assert "does not fit" not in run("verify", str(store), "-c", str(conf)).stdout


@pytest.mark.parametrize("width", [40, 80])
def test_a_found_message_has_its_place_at_every_width(width: int, tmp_path: Path) -> None:
    copy_store("5.4.0-pop", tmp_path)
    _, lines = in_a_terminal(width, tmp_path, "find", "5.4.0-pop", "pr28")
    text = " ".join(" ".join(lines).split())
    for words in (
        "to be delivered again since 2026-11-23 21:13:44.346 UTC",
        "PopRaw_11/1 offset 14 log offset 121,208",
        "%RETRY%PopRawGroup_11_PopRaw_11/0 offset 6 log offset 146,332",
        "PopRawGroup_11 has received it, not acknowledged it, and is to get it again since",
    ):
        assert words in text
    assert [line for line in lines if columns(line) > width and len(line.split()) > 2] == []


def test_a_long_title_of_a_problem_and_wide_characters_fit_the_width(tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path, rename="订单")
    shutil.rmtree(store / "config")
    for command in (("verify", "订单"), ("verify", "订单", "--lang", "zh")):
        _, lines = in_a_terminal(80, tmp_path, *command)
        assert [line for line in lines if columns(line) > 80] == []


@pytest.mark.parametrize(
    "words",
    [("du", STORE, "--by", "topic", "--by", "tag"), ("du", STORE, "--files"), ("info", STORE), ("lost", STORE)],
    ids=["du", "files", "info", "lost"],
)
def test_a_pipe_gets_every_name_whole(words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = "a-topic-whose-name-is-so-long-that-no-column-of-eighty-has-room-for-it-beside-numbers"
    with rmqstore.open_writable(tmp_path / STORE, rmqstore.StoreOptions(), create=True) as writer:
        for number in range(3):
            writer.put(rmqstore.NewMessage(topic, b"body of %d" % number, tags="Tag"))
    [log] = (tmp_path / STORE / "commitlog").iterdir()
    overwrite(log, 0, bytes(60))  # `lost` has a message to list
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    assert topic in run(*words).stdout
