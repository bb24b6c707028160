"""UnitReader: reading a page of units at a time has the same result as single reads, with far fewer system calls."""

from __future__ import annotations

import gc
import random
from pathlib import Path

import pytest

from rmqstore.checks.examine import verify
from rmqstore.checks.log.stored_units import UnitFiles
from rmqstore.checks.options import VerifyOptions
from rmqstore.files.mapped_file_queue import MappedFileQueue
from rmqstore.files.store import open_store
from tests.seeds import fresh
from tests.stores import copy_store

UNITS = 100
"""In a queue file of these stores."""


@pytest.mark.parametrize("without", [(), (0,), (1,), (2,)])
def test_reading_ahead_gives_the_same_units(without: tuple[int, ...], tmp_path: Path) -> None:
    store = copy_store("5.4.0-killed", tmp_path)
    queue = store / "consumequeue" / "Order_11" / "0"
    units = b"".join(path.read_bytes() for path in sorted(queue.iterdir()))
    for number in range(4):  # four files of 2,000 bytes
        (queue / f"{number * 2000:020}").write_bytes(units[:2000])
    for number in without:
        (queue / f"{number * 2000:020}").unlink()
    opened = open_store(store)
    single, ahead = UnitFiles(opened), UnitFiles(opened, ahead=True)
    dice = random.Random(fresh(1))
    for _ in range(500):
        first, count = dice.randrange(5 * UNITS), dice.choice((1, 2, 3, 50, 203, 204, 205, 400))
        expected = single.read("Order_11", 0, first, count)
        assert ahead.read("Order_11", 0, first, count).tobytes() == expected.tobytes(), (first, count)


def test_a_page_of_units_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = UnitFiles(open_store(copy_store("5.4.0-clean", tmp_path)), ahead=True)
    reads = 0
    pread = MappedFileQueue.pread

    def counted(queue: MappedFileQueue, size: int, offset: int) -> bytes:
        nonlocal reads
        reads += 1
        return pread(queue, size, offset)

    monkeypatch.setattr(MappedFileQueue, "pread", counted)
    for first in range(40):
        assert len(reader.read("Order_11", 0, first, 1)) == 1
    assert reads == 1


def test_units_that_the_pass_over_the_log_read_are_not_kept_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, kept = 0, list[UnitFiles]()
    init = UnitFiles.__init__

    def counted(reader: UnitFiles, *args: object, **options: object) -> None:
        nonlocal made
        made += 1
        init(reader, *args, **options)  # type: ignore[arg-type]

    def check(*_: object) -> dict[str, object]:
        gc.collect()
        kept.extend(one for one in gc.get_objects() if type(one) is UnitFiles)
        return {}

    monkeypatch.setattr(UnitFiles, "__init__", counted)
    monkeypatch.setattr("rmqstore.checks.queues.consumequeue.check_consume_queues", check)
    verify(open_store(copy_store("5.4.0-clean", tmp_path)), VerifyOptions(jobs=1))
    assert (made, kept) == (1, [])
