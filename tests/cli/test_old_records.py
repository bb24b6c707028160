"""`lost --stale` and `export --stale`: records of earlier logs that other bytes of the files still contain."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqstore.files.mapped_file_queue import MappedFile
from rmqstore.formats.message import build_message
from rmqstore.scan.resync import proven_records
from rmqstore.scan.window import ScanOptions, Window
from tests.command import run, run_json
from tests.stores import copy_store
from tests.views.decoder import find_records

BEFORE = 1_600_000_000_000


def positions(store: Path) -> list[dict[str, object]]:
    return [json.loads(row) for row in run("dump", str(store), "--positions", "--format", "ndjson").stdout.splitlines()]


def put(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def old(offset: int, body: bytes = b"old") -> bytes:
    return build_message(
        topic="Gone", body=body, properties=b"UNIQ_KEY\x01U1\x02", physical_offset=offset, store_timestamp=BEFORE
    )


def listed(store: Path) -> list[dict[str, object]]:
    messages = run_json("lost", str(store), "--stale", exit_code=0)["messages"]
    assert isinstance(messages, list)
    return messages


@pytest.mark.parametrize("name", ["5.4.0-clean", "5.4.0-dledger", "5.5.1-nommap"])
def test_a_sound_store_has_none(name: str, tmp_path: Path) -> None:
    assert listed(copy_store(name, tmp_path)) == []
    result = run("lost", str(tmp_path / name), "--stale", "--format", "table")
    assert (result.exit_code, result.stdout) == (0, "No records of an earlier log are left.\n")


def test_records_after_the_blank_that_closes_a_file(store: Path) -> None:
    blank = max((r for r in positions(store)[:-1] if r["kind"] == "BLANK"), key=lambda r: int(str(r["bytes"])))
    offset, file = int(str(blank["start"])) + 40, store / "commitlog" / str(blank["file"])
    before = run("export", str(store)).stdout
    put(file, offset - int(file.name), old(offset))
    (row,) = listed(store)
    assert (row["offset"], row["why"], row["where"], row["unique_key"]) == (offset, "cut", "after-blank", "U1")
    assert run("export", str(store)).stdout == before
    (exported,) = csv.DictReader(io.StringIO(run("export", str(store), "--stale", "--format", "csv").stdout))
    assert (exported["topic"], exported["body"], exported["stale"]) == ("Gone", "", "true")
    assert run("export", str(store), "--stale", "--topic", "Order_11").stdout == ""


def test_what_the_log_contains_at_the_named_position_is_left_out(store: Path) -> None:
    """A page of a write buffer may still have an earlier message, as after `writeWithoutMmap`."""
    end = int(str(next(r["start"] for r in positions(store) if r["kind"] == "ZERO")))
    record = list(find_records(store))[3]
    first = store / "commitlog" / "0".rjust(20, "0")
    copied = first.read_bytes()[record.position : record.position + record.size]
    last = sorted((store / "commitlog").iterdir())[-1]
    reused = old(record.position)
    damaged = old(0).replace(b"old", b"odd")
    put(last, end - int(last.name) + 5, copied + reused + old(1 << 40) + damaged)
    answer = run_json("lost", str(store), "--stale", exit_code=0)
    rows = answer["messages"]
    assert isinstance(rows, list)
    at = end + 5 + len(copied)
    assert [(r["offset"], r["physical_offset"], r["why"]) for r in rows] == [
        (at, record.position, "reused"),
        (at + len(reused), 1 << 40, "reused"),
    ]
    assert answer["copies"] == 1
    text = run("lost", str(store), "--stale", "--format", "table").stdout
    assert "2 records of an earlier log" in text
    assert "they name another place in the log" in " ".join(text.split())


def test_messages_after_the_end_of_a_dledger_log(tmp_path: Path) -> None:
    store = copy_store("5.4.0-dledger", tmp_path)
    end = int(str(next(r["start"] for r in positions(store) if r["kind"] == "ZERO")))
    last = max((p for p in store.glob("dledger-*/data/*") if int(p.name) <= end), key=lambda path: path.name)
    put(last, end + 500 - int(last.name), old(end + 500))
    (row,) = listed(store)
    assert (row["log"], row["offset"], row["why"]) == ("dledger", end + 500, "cut")


def test_other_options_are_refused(store: Path) -> None:
    assert run("lost", str(store), "--stale", "--next-start").exit_code == 2


# --- the search -------------------------------------------------------------------------------------------------------


def pieces(dice: random.Random) -> Iterator[tuple[bytes, bool]]:
    """Yield bytes, and whether they are a record."""
    for _ in range(120):
        choice = dice.randrange(6)
        message = build_message(
            topic="T" * dice.randrange(1, 30),
            body=dice.randbytes(dice.choice([0, 1, 40, 900, 5000])),
            properties=b"a\x01b\x02",
            physical_offset=dice.randrange(1 << 40),
            v2=dice.random() < 0.3,
            append_crc=dice.random() < 0.3,
        )
        if choice == 0:
            yield dice.randbytes(dice.randrange(200)), False
        elif choice == 1:
            yield bytes(dice.randrange(6000)), False
        elif choice == 2:
            yield message[: dice.randrange(4, len(message) // 2)] + bytes(8), False
        else:
            yield message, True


@pytest.mark.parametrize("chunk", [600, 4096, 1 << 20])
@pytest.mark.parametrize("seed", range(5))
def test_every_record_is_found_wherever_it_is(seed: int, chunk: int, tmp_path: Path) -> None:
    data, expected = bytearray(), []
    for piece, is_record in pieces(random.Random(seed)):
        if is_record:
            expected.append((len(data), piece))
        data += piece
    path = tmp_path / "0".rjust(20, "0")
    path.write_bytes(data)
    window = Window(MappedFile(path, 0, len(data), len(data)), ScanOptions(chunk=chunk))
    found = [
        (int(at), bytes(columns.raw[p : p + n]))
        for columns in proven_records(window, 0, len(data))
        for at, p, n in zip(columns.offset.tolist(), columns.at.tolist(), columns.size.tolist(), strict=True)
    ]
    window.close()
    assert found == expected
