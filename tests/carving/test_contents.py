"""What counts as a message, and to which store it belongs: made-up logs on made-up disks."""

from __future__ import annotations

import random
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rmqstore.carving import carve, pieces
from rmqstore.carving.source import RawSource
from rmqstore.carving.state import CarvingState
from rmqstore.formats.message import build_blank, build_message, host_bytes
from tests.carving.images import logs_of
from tests.command import run, run_json

FILE = 64 << 10
START = 1_795_000_000_000


def log_of(
    count: int,
    *,
    first: int = 0,
    time: int = START,
    host: str = "10.0.0.1:10911",
    body: bytes | None = None,
    seed: int = 0,
    v2: bool = False,
) -> bytes:
    """Return a log of files of 64 KiB, with `count` messages from the offset `first` on, one each ms."""
    chance, out = random.Random(seed), bytearray()
    for number in range(count):
        own = body if body is not None else chance.randbytes(chance.randrange(1, 900))
        left = FILE - (first + len(out)) % FILE
        if len(own) + 128 > left:
            out += build_blank(left) + bytes(left - 8)
        out += build_message(
            topic="Order",
            body=own,
            queue_offset=number,
            properties=b"KEYS\x01k%d\x02" % number,
            physical_offset=first + len(out),
            store_timestamp=time + number,
            store_host=host_bytes(host),
            v2=v2,
        )
    return bytes(out)


def padded(data: bytes, size: int = FILE) -> bytes:
    return data + bytes(-len(data) % size)


def carve_it(source: Path, *more: str, exit_code: int = 0) -> Any:
    """Carve a source to `out` beside it, and return the JSON."""
    return run_json("carve", str(source), str(source.parent / "out"), *more, exit_code=exit_code)


def carved(disk: bytes, tmp_path: Path, *more: str, exit_code: int = 0) -> Any:
    """Look what a disk has, and return its stores."""
    (tmp_path / "disk.img").write_bytes(disk)
    return carve_it(tmp_path / "disk.img", "--dry-run", *more, exit_code=exit_code)["stores"]


def test_a_record_within_a_message_is_no_message(tmp_path: Path) -> None:
    inner = log_of(20, first=FILE)
    around = build_message(topic="Files", body=bytes(512 - 91 - 5) + inner, store_timestamp=START, physical_offset=0)
    at = around.index(inner)
    assert at % 512  # wherever it is: the outer record proves itself
    stores = carved(padded(around), tmp_path)
    assert [store["messages"] for store in stores] == [1]


def test_records_in_an_aligned_place_of_a_message_are_no_messages(tmp_path: Path) -> None:
    inner = log_of(20, first=FILE)
    empty = build_message(topic="Files", body=b"", physical_offset=0)
    head = len(empty) - len(b"Files") - 3  # before the body
    body = bytes(-head % 512) + inner
    around = build_message(topic="Files", body=body, store_timestamp=START, physical_offset=0)
    assert around.index(inner) % 512 == 0
    stores = carved(padded(around), tmp_path)
    assert [store["messages"] for store in stores] == [1]


def test_records_of_a_message_over_a_border_are_no_messages(tmp_path: Path) -> None:
    before = log_of(12)
    inner = log_of(30, first=10 * FILE)
    offset = len(before)
    empty = build_message(topic="Files", body=b"", physical_offset=0)
    head = offset + len(empty) - len(b"Files") - 3
    around = build_message(
        topic="Files", body=bytes(-head % 512) + inner, store_timestamp=START, physical_offset=offset
    )
    log = before + around
    after = build_message(topic="Order", body=b"after", store_timestamp=START, physical_offset=len(log))
    log = padded(log + after, 4096)
    cut = offset // 4096 * 4096 + 8192
    noise = random.Random(1).randbytes(8192)
    stores = carved(log[cut:] + noise + log[:cut], tmp_path)
    assert [store["messages"] for store in stores] == [14]


def test_a_record_elsewhere_than_its_place_is_no_message(tmp_path: Path) -> None:
    log = log_of(30)
    (tmp_path / "disk.img").write_bytes(b"x" * 100 + log)  # no file begins there
    assert run("carve", str(tmp_path / "disk.img"), str(tmp_path / "out"), "--dry-run").exit_code == 3


def test_a_damaged_body_is_no_message(tmp_path: Path) -> None:
    log = bytearray(padded(log_of(30, body=b"x" * 200)))
    log[5 * 312 + 150] ^= 1
    stores = carved(bytes(log), tmp_path, exit_code=1)
    assert [store["messages"] for store in stores] == [29]


def test_two_lives_are_two_stores_and_the_newer_one_is_first(tmp_path: Path) -> None:
    old, new = log_of(150, seed=1), log_of(40, time=START + 10**8, seed=2)
    disk = padded(old) + padded(new)
    stores = carved(disk, tmp_path)
    assert [store["messages"] for store in stores] == [40, 150]
    (tmp_path / "disk.img").write_bytes(disk)
    run("carve", str(tmp_path / "disk.img"), str(tmp_path / "out"), "--json")
    assert b"".join(logs_of(tmp_path / "out").values()).startswith(new)
    assert b"".join(logs_of(tmp_path / "out.carved" / "store-1").values()).startswith(old)


def test_what_is_left_of_an_older_log_behind_a_newer_one_is_another_store(tmp_path: Path) -> None:
    old, new = padded(log_of(300, seed=1)), padded(log_of(40, time=START + 10**8, seed=2), 4096)
    stores = carved(new + old[len(new) :], tmp_path)
    assert stores[0]["messages"] == 40
    assert [store["first_timestamp"] == START + 10**8 for store in stores] == [True, False]


def test_brokers_have_stores_of_their_own(tmp_path: Path) -> None:
    one, other = log_of(80, seed=1), log_of(30, seed=2, host="10.0.0.2:10911")
    stores = carved(padded(one) + padded(other), tmp_path)
    assert [(store["messages"], store["hosts"]) for store in stores] == [
        (80, ["10.0.0.1:10911"]),
        (30, ["10.0.0.2:10911"]),
    ]


def test_a_broker_with_a_new_address_keeps_its_log(tmp_path: Path) -> None:
    one = log_of(80, seed=1)
    log = one + log_of(30, first=len(one), time=START + 1000, seed=2, host="[2001:db8::7]:10911")
    stores = carved(padded(log), tmp_path)
    assert [store["messages"] for store in stores] == [110]


def test_copies_are_one(tmp_path: Path) -> None:
    log = padded(log_of(150, v2=True))
    (tmp_path / "disk.img").write_bytes(log + b"\xff" * 8192 + log[8192:] + log[:16384])
    answer = carve_it(tmp_path / "disk.img")
    stores = answer["stores"]
    assert [store["messages"] for store in stores] == [150]
    assert answer["duplicates"] > 100
    assert b"".join(logs_of(tmp_path / "out").values()) == log


def test_huge_lengths_and_offsets_do_no_harm(tmp_path: Path) -> None:
    far = build_message(topic="Far", body=b"x", physical_offset=(1 << 62) + 512, store_timestamp=START)
    huge = (0x7FFFFFFF).to_bytes(4, "big") + far[4:]
    heads = b"".join(build_message(topic="T", physical_offset=at * 512)[:88] + bytes(424) for at in range(2000))
    log = log_of(40)
    stores = carved(padded(log) + padded(huge, 512) + padded(far, 512) + heads, tmp_path)
    assert sorted(store["messages"] for store in stores)[-1] == 40


@pytest.mark.parametrize("count", [1, 3])
def test_fragments_are_one_source(count: int, tmp_path: Path) -> None:
    log = padded(log_of(400))
    folder = tmp_path / "recup_dir.1"
    folder.mkdir()
    size = len(log) // count // 4096 * 4096
    parts = [log[at : at + size] for at in range(0, len(log), size)]
    for number, part in enumerate(reversed(parts)):
        (folder / f"f{number}").write_bytes(part)
    answer = carve_it(tmp_path / "recup_dir.1")
    stores = answer["stores"]
    assert [store["messages"] for store in stores] == [400]
    assert b"".join(logs_of(tmp_path / "out").values()) == log


def test_holes_of_an_image_are_not_read(tmp_path: Path) -> None:
    log = padded(log_of(100))
    with (tmp_path / "disk.img").open("wb") as file:
        file.truncate(1 << 40)
        file.seek(1 << 39)
        file.write(log)
    stores = carve_it(tmp_path / "disk.img", "--dry-run")["stores"]
    assert [store["messages"] for store in stores] == [100]


def test_the_size_of_files_follows_from_the_log(tmp_path: Path) -> None:
    stores = carved(padded(log_of(600)), tmp_path)
    assert [(store["file_size"], store["file_size_from"]) for store in stores] == [(FILE, "blanks")]
    stores = carved(padded(log_of(20)), tmp_path, "--file-size", "128K")
    assert [(store["file_size"], store["file_size_from"]) for store in stores] == [(2 * FILE, "given")]


def test_an_interrupted_search_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "_STEP", 1 << 16)
    monkeypatch.setattr(pieces, "_CHUNK", 1 << 16)
    log = padded(log_of(3000))
    (tmp_path / "disk.img").write_bytes(log)
    source = RawSource.open(tmp_path / "disk.img")
    whole = CarvingState(None, source.identity)
    carve.scan(source, whole)
    expected = [(piece.source, piece.start, piece.stop, piece.count) for piece in whole.pieces("1")]

    state_path = tmp_path / "state"
    for allowed in range(1, 1000):
        state = CarvingState(state_path, source.identity)
        calls: list[int] = []

        def interrupt(done: int, calls: list[int] = calls, allowed: int = allowed) -> None:
            calls.append(done)
            if len(calls) > allowed:
                raise KeyboardInterrupt

        with suppress(KeyboardInterrupt):
            carve.scan(source, state, interrupt)
            break
        state.close()
    assert allowed > 3
    assert [(piece.source, piece.start, piece.stop, piece.count) for piece in state.pieces("1")] == expected


def test_a_finished_carving_is_not_repeated(tmp_path: Path) -> None:
    (tmp_path / "disk.img").write_bytes(padded(log_of(10)))
    words = ("carve", str(tmp_path / "disk.img"), str(tmp_path / "out"))
    assert run(*words).exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["disk.img", "out"]
    assert run(*words).exit_code == 5


def test_everything_is_private(tmp_path: Path) -> None:
    (tmp_path / "disk.img").write_bytes(padded(log_of(10)) + padded(log_of(30, time=START + 10**8, seed=3)))
    run("carve", str(tmp_path / "disk.img"), str(tmp_path / "out"))
    for top in ("out", "out.carved"):
        for path in [tmp_path / top, *(tmp_path / top).rglob("*")]:
            assert path.stat().st_mode & 0o077 == 0, path


def test_without_sqlite_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "disk.img").write_bytes(padded(log_of(10)))
    monkeypatch.setitem(sys.modules, "sqlite3", None)
    monkeypatch.delitem(sys.modules, "rmqstore.carving.state")
    monkeypatch.delitem(sys.modules, "rmqstore.carving.carve")
    result = run("carve", str(tmp_path / "disk.img"), str(tmp_path / "out"), "--dry-run")
    assert result.exit_code == 5
    assert "SQLite" in result.stderr
