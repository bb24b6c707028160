"""The size of queue files, if most of them were cut: what the others show, and what `recover` asks for."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path

import pytest

from rmqstore.files.store import open_store
from rmqstore.files.store_queues import QueueKind
from tests.command import run_json
from tests.stores import copy_store, write_broker_conf

_KEY = "mappedFileSizeConsumeQueue"


def queue_files(store: Path) -> list[Path]:
    return sorted(path for path in (store / "consumequeue").rglob("0*") if path.is_file())


def cut(files: list[Path]) -> None:
    """Cut files in the middle of their units, each to another length."""
    for number, path in enumerate(files):
        os.truncate(path, 200 + 20 * number)


def test_files_that_a_broker_padded_show_the_size_although_most_were_cut(tmp_path: Path) -> None:
    store = copy_store("4.9.7-clean", tmp_path)
    files = queue_files(store)
    cut(files[:12])
    assert len(files) - 12 == 9
    assert open_store(store).known_queue_file_size(QueueKind.SIMPLE) == 2_000
    assert run_json("recover", str(store), exit_code=1)["brakes"] == []
    assert run_json("recover", str(store), "--apply", exit_code=0)["applied"] is True
    assert {path.stat().st_size for path in queue_files(store)} == {2_000}


def test_files_that_were_copied_without_their_zeros_show_no_size(tmp_path: Path) -> None:
    store = copy_store("4.9.7-clean", tmp_path)
    for path in queue_files(store):
        units = path.read_bytes().rstrip(b"\0")
        path.write_bytes(units + bytes(-len(units) % 20))
    assert open_store(store).known_queue_file_size(QueueKind.SIMPLE) is None
    plan = run_json("recover", str(store), exit_code=1)
    question = f"6,000,000 is assumed: give -c broker.conf, which has {_KEY}, or accept it"
    assert [line for line in plan["brakes"] if question in line]  # type: ignore[attr-defined]


def resized(folder: Path, *groups: tuple[int, int]) -> Path:
    """Return a copy of a store in which (number of files, size) have another size, with zeros at their ends."""
    store = copy_store("5.1.4-clean", folder)
    files = iter(queue_files(store))
    for count, size in groups:
        for path in islice(files, count):
            os.truncate(path, size)
    return store


@pytest.mark.parametrize(
    ("groups", "sizes"),
    [
        (((12, 1000), (9, 6_000_020)), "12 files of 1,000 bytes and 9 files of 6,000,020 bytes; 1,000 is assumed"),
        (((11, 6_000_000),), "11 files of 6,000,000 bytes and 10 files of 2,000 bytes; 6,000,000 is assumed"),
        (((6, 1000),), "15 files of 2,000 bytes and 6 files of 1,000 bytes; 2,000 is assumed"),
    ],
)
def test_files_that_do_not_agree_about_their_size_are_a_question_with_their_numbers(
    groups: tuple[tuple[int, int], ...], sizes: str, tmp_path: Path
) -> None:
    store = resized(tmp_path, *groups)
    plan = run_json("recover", str(store), exit_code=1)
    brakes = [line for line in plan["brakes"] if sizes in line]  # type: ignore[attr-defined]
    assert len(brakes) == 1
    assert f"give -c broker.conf, which has {_KEY}, or accept it" in brakes[0]
    conf = write_broker_conf("5.1.4-clean", store)
    assert run_json("recover", str(store), "-c", str(conf), "--apply", exit_code=0)["applied"] is True
    assert {path.stat().st_size for path in queue_files(store)} == {2_000}


def test_a_broker_conf_without_the_size_decides_with_the_default(tmp_path: Path) -> None:
    store = resized(tmp_path, (12, 1000), (9, 6_000_000))
    conf = write_broker_conf("5.1.4-clean", store)
    conf.write_text("".join(line for line in conf.open() if _KEY not in line))
    assert run_json("recover", str(store), "-c", str(conf), "--apply", exit_code=0)["brakes"] == []
    assert {path.stat().st_size for path in queue_files(store)} == {6_000_000}


def test_few_files_that_were_cut_to_the_same_length_are_no_question(tmp_path: Path) -> None:
    assert run_json("recover", str(resized(tmp_path, (4, 1000))), exit_code=1)["brakes"] == []
