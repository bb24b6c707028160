"""verify on hostile stores: a report in bounded time, no exception, and no changed byte."""

from __future__ import annotations

import os
import random
import signal
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from rmqstore.checks.examine import verify
from rmqstore.checks.options import VerifyOptions
from rmqstore.checks.problems.report import Report
from rmqstore.files.store import open_store
from tests import damage
from tests.checks.looks import records, unit
from tests.seeds import seeds
from tests.stores import copy_store
from tests.untouched import assert_untouched

STORE = "498_many"

MAGIC_V1 = bytes.fromhex("daa320a7")
SECONDS = 120  # so long that only a hang, not a slow machine, takes more


@pytest.fixture(autouse=True)
def no_hang() -> Iterator[None]:
    """Interrupt a verify that would wait forever, for example on a FIFO."""

    def late(number: int, frame: FrameType | None) -> None:
        raise AssertionError("verify hangs")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def examined(store: Path) -> Report:
    """Verify a store, check that nothing was changed and that the report converts to JSON, and return it."""
    with assert_untouched(store):
        report = verify(open_store(store), VerifyOptions(jobs=1, split_size=16384))
    report.to_json()
    return report


def wreck(path: Path, rng: random.Random) -> None:
    """Change random bytes of a file, mostly without changing its size, so that its content is read."""
    size = path.stat().st_size
    front = min(size, 70_000)
    with path.open("r+b") as file:
        way = rng.randrange(12)
        if way == 0:
            file.truncate(rng.randrange(front + 1))
            return
        if way == 1:
            file.truncate(0)
            return
        at = rng.randrange(front + 1)
        if size and way == 2:  # copy a piece of it to another position
            file.seek(rng.randrange(front))
            piece = file.read(rng.randrange(1, 4096))
        elif way < 5:
            piece = rng.randbytes(rng.randrange(1, 5000))
        elif way < 7:
            piece = bytes(rng.randrange(1, 9000))
        elif way < 9:
            piece = b"\xff" * rng.randrange(1, 64)
        elif way == 9:
            piece = MAGIC_V1 * rng.randrange(1, 500)
        else:
            piece = (1 << rng.randrange(64)).to_bytes(8, "big")
        file.seek(at)
        file.write(piece[: max(0, size - at)])


@pytest.mark.quick_rows(15)
@pytest.mark.parametrize(
    ("name", "seed"),
    [
        *(
            (name, seed)
            for name in ("498_many", "head_formats", "head_dledger_150", "498_dledger")
            for seed in seeds(6)
        ),
        *((name, seed) for name in ("5.4.0-dledger-mixed", "5.4.0-formats", "4.9.7-killed") for seed in seeds(2)),
    ],
)
def test_damage_everywhere_is_reported(tmp_path: Path, name: str, seed: int) -> None:
    store = copy_store(name, tmp_path)
    rng = random.Random(f"{name} {seed}")
    files = sorted(p for p in store.rglob("*") if p.is_file())
    for path in rng.sample(files, min(len(files), rng.choice((2, 6, 20)))):
        wreck(path, rng)
    for path in rng.sample(sorted((store / "commitlog").glob("*")) or files, 1):
        wreck(path, rng)
    examined(store)


def test_a_log_of_magic_numbers_only_is_damage(store: Path) -> None:
    for file in (store / "commitlog").iterdir():
        file.write_bytes(MAGIC_V1 * 4096)
    report = examined(store)
    assert report.exit_code == 1


def test_a_log_of_nothing_but_record_heads_is_damage(store: Path) -> None:
    for file in (store / "commitlog").iterdir():
        base = int(file.name)
        heads = [struct.pack(">iIiiiqq", 16384 - at, 0xDAA320A7, 0, 0, 0, 0, base + at) for at in range(0, 16384, 36)]
        file.write_bytes(b"".join(heads)[:16384])
    assert examined(store).exit_code == 1


@pytest.mark.parametrize("offset", [1 << 62, (1 << 63) - 21, -(1 << 62)])
def test_a_queue_of_absurd_offsets_is_reported_unit_by_unit(store: Path, offset: int) -> None:
    for file in (store / "consumequeue" / "T" / "0").iterdir():
        file.write_bytes(unit(offset, 0x7FFFFFFE, -1) * 50)
    assert examined(store).exit_code == 1


def test_queue_offsets_at_the_top_of_64_bits_are_findings(store: Path) -> None:
    for record in records(store)[100:200]:
        record.put("queue_offset", (1 << 63) - 1)
    report = examined(store)
    assert report.exit_code == 1
    assert set(report.findings.counts) <= {
        "CL-QUEUE-OFFSET",
        "CL-QUEUE-OFFSET-GAP",
        "CL-QUEUE-OFFSET-REPEAT",
        "CQ-SHIFTED",
        "CQ-MISSING-UNIT",
    }


def test_property_texts_of_nothing_but_separators_are_read(store: Path) -> None:
    for record in records(store):
        at, length = record.parts["properties"]
        damage.overwrite(record.file, record.at + at, (b"\x01", b"\x02")[record.at % 2] * length)
    report = examined(store)
    assert report.findings.counts["CL-PROPERTIES"] > 200


def test_the_longest_property_text_is_read(tmp_path: Path) -> None:
    store = copy_store("498_clean", tmp_path)
    log = store / "commitlog"
    for file in log.iterdir():
        file.unlink()
    text = b"\x02" * 32767
    head = struct.pack(">IiiiqqiqQqQiqi", 0xDAA320A7, 0, 0, 0, 0, 0, 0, 0, 1 << 32, 0, 1 << 32, 0, 0, 0)
    rest = head + b"\x01T" + struct.pack(">h", len(text)) + text
    record = struct.pack(">i", len(rest) + 4) + rest
    (log / f"{0:020d}").write_bytes(record.ljust(65536, b"\0"))
    report = examined(store)
    assert report.commitlog is not None
    assert report.commitlog["messages"] == 1
    assert report.findings.counts["CL-PROPERTIES"] == 1


ODD_PLACES = ("commitlog", "consumequeue", "consumequeue/T", "consumequeue/T/0", "index", ".")


@pytest.mark.quick_rows
@pytest.mark.parametrize("kind", ["fifo", "socket", "dangling", "loop", "empty", "device"])
@pytest.mark.parametrize("name", ["00000000000000999424", "notes", "20260101000000000"])
def test_entries_that_are_not_files_are_named_and_every_message_is_still_read(
    store: Path, kind: str, name: str
) -> None:
    for place in ODD_PLACES:
        _odd(store / place / name, kind)
    report = examined(store)
    told = {f.queue for f in report.findings.listed if f.file == name}
    assert told >= {"commitlog", "consumequeue", "T", "T/0", "index"}
    assert (report.commitlog or {})["messages"] == MESSAGES


MESSAGES, BEHIND = 450, 76  # the messages of 498_many, and those in the second file of its log
LOG = "commitlog/00000000000000065536"
NAMES = ("checkpoint", "abort", "timerwheel", LOG, "consumequeue/T/0/00000000000000002000")
CODES = {"checkpoint": "CK-LENGTH", LOG: "CQ-BEYOND-LOG", "consumequeue/T/0/00000000000000002000": "CQ-MISSING-FILE"}
READ_AT_ONCE = ("lock", "config/topics.json", "config/consumerOffset.json", "config/timercheck")


@pytest.mark.quick_rows
@pytest.mark.parametrize(
    ("path", "kind"),
    [
        *((path, kind) for path in NAMES for kind in ("fifo", "socket", "dangling", "loop", "empty")),
        *((path, kind) for path in READ_AT_ONCE for kind in ("fifo", "socket", "dangling", "loop", "empty")),
    ],
)
def test_a_known_name_that_is_not_a_file_counts_as_a_missing_file(store: Path, path: str, kind: str) -> None:
    target = store / path
    target.parent.mkdir(exist_ok=True)
    target.unlink(missing_ok=True)
    _odd(target, kind)
    report = examined(store)
    assert (report.commitlog or {})["messages"] == MESSAGES - (BEHIND if path == LOG else 0)
    assert CODES.get(path) in {None, *report.findings.counts}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, "dangling") for name in ("checkpoint", "currterm")),
        *((f"{part}/{49152:020d}", kind) for part in ("data", "index") for kind in ("fifo", "dangling")),
    ],
)
def test_a_dledger_name_that_is_not_a_file_is_named(tmp_path: Path, name: str, kind: str) -> None:
    store = copy_store("head_dledger_150", tmp_path)
    (group,) = store.glob("dledger-*")
    target = group / name
    target.unlink(missing_ok=True)
    _odd(target, kind)
    code = {"checkpoint": "DL-COMMITTED", "currterm": "DL-TERM"}.get(name, "DL-STRAY-FILE")
    assert dict(examined(store).findings.counts) == {code: 1}


def _odd(path: Path, kind: str) -> None:
    match kind:
        case "fifo":
            os.mkfifo(path)
        case "socket":
            here = Path.cwd()
            os.chdir(path.parent)  # the path of a socket is limited to 108 bytes
            try:
                with socket.socket(socket.AF_UNIX) as end:
                    end.bind(path.name)
            finally:
                os.chdir(here)
        case "dangling":
            path.symlink_to("nowhere")
        case "loop":
            path.symlink_to(path.name)
        case "empty":
            path.touch()
        case "device":
            path.symlink_to("/dev/zero")
        case _:
            raise ValueError(kind)
