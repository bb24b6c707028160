"""Records with extreme numbers in their headers: every command answers, and changes nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqstore.formats import dledger, message
from rmqstore.formats.layout import Layout
from tests.command import run
from tests.damage import overwrite
from tests.planning import counts_of
from tests.repair.salvaging import Row, rows
from tests.stores import copy_store
from tests.untouched import assert_untouched

EXTREME: dict[str, Callable[[int], int]] = {
    "-1": lambda bits: (1 << bits) - 1,
    "least": lambda bits: 1 << bits - 1,
    "most": lambda bits: (1 << bits - 1) - 1,
    "half": lambda bits: 1 << bits - 2,
}
"""The bits of an extreme number for a field of so many bits."""
ANSWERS = (0, 1, 3, 4, 5)
COMMANDS = (
    ("verify",),
    ("recover",),
    ("recover", "--accept-fillers", "--accept-shift"),
    ("lost",),
    ("lost", "--next-start"),
    ("dump", "--positions"),
    ("dump", "--what", "consumequeue"),
    ("find", "ord11_42", "--read-log"),
    ("get", "Order_11/0/3"),
    ("offsets",),
    ("du",),
)
MESSAGE_FIELDS = ("size", "queue_id", "queue_offset", "physical_offset", "body_length", "store_timestamp", "sys_flag")
ENTRY_FIELDS = ("size", "index", "term", "pos", "body_length")
STORES = ("5.4.0-killed", "5.4.0-dledger", "5.5.1-rocksdb")


def neighbours(store: Path) -> list[Row]:
    """Return two records of one queue, with none of the queue between them, in the middle of the log."""
    queue = next(r.slot[:2] for r in rows(store)[40:] if r.slot[0].startswith("Order_"))
    return [r for r in rows(store) if r.slot[:2] == queue][5:7]


def put(row: Row, layout: Layout, field: str, value: str) -> None:
    """Write an extreme number into a field of a record or of its DLedger entry."""
    width = next(f.size for f in layout if f.name == field)
    at = row.at + layout.at(field) - (0 if layout is message.HEAD else row.body_offset)
    overwrite(row.path, at, EXTREME[value](8 * width).to_bytes(width, "big"))


def all_answer(store: Path, commands: tuple[tuple[str, ...], ...]) -> None:
    with assert_untouched(store):
        for command, *options in commands:
            result = run(command, str(store), *options)
            assert result.exit_code in ANSWERS, f"{command} {options}: {result.stderr}"


def test_two_negative_queue_offsets_in_a_row_beside_a_missing_queue_are_findings(tmp_path: Path) -> None:
    store = copy_store("5.4.0-killed", tmp_path)
    found = neighbours(store)
    for row in found:
        put(row, message.HEAD, "queue_offset", "-1")
    topic, queue_id, _ = found[0].slot
    shutil.rmtree(store / "consumequeue" / topic / str(queue_id))
    counts = counts_of(store)
    assert (counts["CL-QUEUE-OFFSET-REPEAT"], counts["CQ-MISSING-QUEUE"]) == (2, 1)


@pytest.mark.quick_rows(8)
@pytest.mark.parametrize("value", EXTREME)
@pytest.mark.parametrize("field", MESSAGE_FIELDS)
@pytest.mark.parametrize("name", STORES)
def test_commands_answer_with_extreme_fields_of_messages(name: str, field: str, value: str, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    for row in neighbours(store):
        put(row, message.HEAD, field, value)
    all_answer(store, COMMANDS)
    shutil.rmtree(store / "consumequeue")
    all_answer(store, COMMANDS[:2])


@pytest.mark.quick_rows(3)
@pytest.mark.parametrize("value", EXTREME)
@pytest.mark.parametrize("field", ENTRY_FIELDS)
def test_commands_answer_with_extreme_fields_of_entries(field: str, value: str, tmp_path: Path) -> None:
    store = copy_store("5.4.0-dledger", tmp_path)
    for row in neighbours(store):
        put(row, dledger.ENTRY, field, value)
    all_answer(store, COMMANDS)
