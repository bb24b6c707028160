"""The body of a damaged record is found where its CRC proves it, before a repair and after it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqstore.formats.halfrecord import message_with_body
from rmqstore.formats.message import HEAD
from tests import damage
from tests.command import run, run_json
from tests.repair.salvaging import Row, rows
from tests.stores import copy_store


def _broken(store: Path, what: str) -> Row:
    """Zero what follows the body of a record: all of it, or its properties with their length."""
    found = rows(store)
    row = next(
        one for one in found[len(found) // 2 :] if len(one.message.body) > 20 and one.message.topic == b"Order_11"
    )
    message = row.message
    tail = len(message.properties) + 2
    start, stop = {
        "properties": (row.size - tail, row.size),
        "all": (row.size - tail - len(message.topic) - 1, row.size),
    }[what]
    damage.zero(row.path, row.at + start, stop - start)
    return row


@pytest.mark.parametrize("what", ["properties", "all"])
@pytest.mark.parametrize("name", ["5.4.0-clean", "4.9.7-dledger"])
def test_a_whole_body_is_shown_and_saved(name: str, what: str, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    row = _broken(store, what)
    place = f"Order_11/{row.message.queue_id}/{row.message.queue_offset}"
    shown = run_json("get", str(store), str(row.offset), exit_code=1)["message"]
    assert isinstance(shown, dict)
    assert (shown["queue_offset"], shown["offset"]) == (row.message.queue_offset, row.offset)
    _saved(store, tmp_path / "before", row)
    done = run_json("recover", str(store), "--apply", exit_code=0)
    if done["loss"]["messages"] == 0:  # type: ignore[index]
        return  # it was kept
    _saved(store, tmp_path / "after", row)
    [piece] = Path(str(done["journal"])).glob("lost+found/*.bin")
    again = run("get", str(store), str(piece), "--save-body", str(tmp_path / "body"))
    assert again.exit_code == 1, place
    assert (tmp_path / "body").read_bytes() == row.message.body


def _saved(store: Path, folder: Path, row: Row) -> None:
    listed = run_json("lost", str(store), "--bodies", str(folder), exit_code=1)["messages"]
    assert isinstance(listed, list)
    assert [(one["topic"], one["queue_offset"], one["body"]) for one in listed] == [
        ("Order_11", row.message.queue_offset, "intact")
    ]
    [saved] = folder.iterdir()
    assert saved.read_bytes() == row.message.body


def test_a_body_that_its_crc_does_not_prove_is_not_taken(tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    row = _broken(store, "all")
    raw = bytearray(row.path.read_bytes()[row.at : row.at + row.size])
    found = message_with_body(raw)
    assert found is not None
    assert (found.body, found.topic, found.properties, found.size) == (row.message.body, b"", b"", row.size)
    raw[HEAD.size + 5] ^= 1
    assert message_with_body(raw) is None
    assert message_with_body(raw[: HEAD.size]) is None
