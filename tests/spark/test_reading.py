"""Splits, read like by executors: the result does not depend on how a log is split. These tests need no Java."""

from __future__ import annotations

import subprocess
import sys
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyarrow")

from rmqstore.errors import NotReadable, UsageError
from rmqstore.files.store import open_store
from rmqstore.formats.consumequeue import UNIT
from rmqstore.formats.message import HEAD, PHYSICAL_OFFSET_AT, build_blank
from rmqstore.spark.sources import end_of, pieces_between, selection_of, size_of
from rmqstore.views.dump.batches import batch_length
from rmqstore.views.dump.messages import logs_of
from rmqstore.views.dump.selection import Selection
from rmqstore.views.dump.units import consume_queue_units
from rmqstore.views.stores import Piece, first_border, log_pieces, packed, refs_of_options, spread, store_refs
from rmqstore.views.tables import MessageOptions, ReadOptions, queue_pieces, read_messages, read_units
from tests.damage import overwrite
from tests.planning import log_of
from tests.spark.stores import NAMES, damaged_copy, first_log_file, local_rows
from tests.stores import ROOT, copy_store, unpack

ALL = ReadOptions(MessageOptions(properties=True))


def rows_of(store: Path, size: int, options: ReadOptions = ALL) -> list[dict[str, Any]]:
    pieces = [piece for log in logs_of(open_store(store)) for piece in log_pieces("s", log, size)]
    return [row for batch in read_messages(pieces, options) for row in batch.to_pylist()]


def as_dumped(row: dict[str, Any], like: dict[str, Any]) -> dict[str, Any]:
    return {k: dict(row[k]) if k == "properties" else row[k] for k in like}


@pytest.mark.quick_rows
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [4096, 65_536, 64 << 20])
def test_every_cut_gives_the_rows_of_dump(name: str, size: int) -> None:
    expected = local_rows(unpack(name))
    assert [as_dumped(row, expected[0]) for row in rows_of(unpack(name), size)] == expected
    assert expected


@pytest.mark.quick_rows
@pytest.mark.parametrize("name", ["5.4.0-killed", "5.4.0-dledger-mixed"])
@pytest.mark.parametrize("size", [4096, 30_000, 65_536])
def test_damage_over_a_border_is_passed_over_once(name: str, size: int, tmp_path: Path) -> None:
    store = damaged_copy(name, tmp_path)
    expected = local_rows(store)
    assert [as_dumped(row, expected[0]) for row in rows_of(store, size)] == expected
    assert sum(not row["crc_ok"] for row in expected) >= 1
    assert len(expected) < len(local_rows(unpack(name)))


def test_old_records_behind_a_blank_are_not_read(tmp_path: Path) -> None:
    """This includes a BLANK at the start of a split, which then has no newer record to compare the old ones with."""
    store = copy_store("5.4.0-killed", tmp_path)
    log = first_log_file(store)
    rows = [row for row in local_rows(store) if row["file"] == log.name]
    last, first_old = next(
        (a, b) for a, b in pairwise(rows) if a["offset"] // 4096 < b["offset"] // 4096 and b["offset"] > 16_384
    )
    start = first_old["offset"]
    overwrite(log, last["offset"] + HEAD.at("store_timestamp"), (rows[-1]["store_timestamp"] + 1).to_bytes(8, "big"))
    overwrite(log, start, build_blank(log.stat().st_size - start))
    expected = local_rows(store)
    assert [row["offset"] for row in rows_of(store, 4096)] == [row["offset"] for row in expected]
    assert not [row for row in expected if row["file"] == log.name and row["offset"] >= start]


def test_a_record_inside_of_a_body_is_no_border(tmp_path: Path) -> None:
    store = copy_store("5.4.0-killed", tmp_path)
    log = first_log_file(store)
    rows = [row for row in local_rows(store) if row["file"] == log.name]
    inner = next(row for row in rows if row["size"] < 400)
    outer = next(row for row in rows if row["body_length"] > 3 * inner["size"] and row["offset"] > inner["offset"])
    raw = bytearray(log.read_bytes()[inner["offset"] : inner["offset"] + inner["size"]])
    at = outer["offset"] + HEAD.size + inner["size"]
    raw[PHYSICAL_OFFSET_AT : PHYSICAL_OFFSET_AT + 8] = at.to_bytes(
        8, "big"
    )  # a forged PHYSICALOFFSET that matches its position
    overwrite(log, at, bytes(raw))
    queue = log_of(store)
    piece = Piece("s", "commitlog", 0, queue.files[0], at - 8, queue.files[0].file_size)
    assert first_border(piece) == outer["offset"] + outer["size"]
    expected = [row["offset"] for row in local_rows(store)]
    assert at not in expected
    assert [row["offset"] for row in rows_of(store, 4096)] == expected


def test_filters_are_those_of_dump() -> None:
    store = unpack("5.4.0-killed")
    everything = local_rows(store)
    since = everything[len(everything) // 2]["store_timestamp"]
    wanted = ReadOptions(selection=Selection(topics=frozenset({"Order_11"}), since=since))
    expected = [r["offset"] for r in everything if r["topic"] == "Order_11" and r["store_timestamp"] >= since]
    assert [row["offset"] for row in rows_of(store, 65_536, wanted)] == expected
    assert expected


def test_thousands_of_small_files_are_few_tasks() -> None:
    queue = log_of(unpack("5.4.0-killed"))
    piece = Piece("s", "q/0", 0, queue.files[0], 0, 6_000, exact=True)
    groups = packed([piece] * 30_000, 64 << 20)
    assert sum(map(len, groups)) == 30_000
    assert len(groups) == 30_000 // 64 + 1


def test_a_file_bigger_than_a_task_is_cut(tmp_path: Path) -> None:
    (log,) = logs_of(open_store(unpack("5.4.0-killed")))
    pieces = list(log_pieces("s", log, 4096))
    assert len(packed(pieces, 1)) == len(pieces) > len(log.queue.files)


def test_costs_are_spread_evenly() -> None:
    assert spread([1, 1, 1, 1], 2) == [(0, 2), (2, 4)]
    assert spread([100, 1, 1], 2) == [(0, 1), (1, 3)]
    assert spread([], 3) == []
    assert spread([5], 8) == [(0, 1)]


@pytest.mark.parametrize("size", [20, 4096, 64 << 20])
def test_units_are_those_on_disk(size: int) -> None:
    store = open_store(unpack("5.4.0-killed"))
    pieces = queue_pieces("s", store, Selection(), size, batch_units=False)
    rows = [row for batch in read_units(pieces, batch_units=False) for row in batch.to_pylist()]
    assert len(rows) == sum(batch_length(b) for b in consume_queue_units(store, Selection())) > 900
    assert len({(r["topic"], r["queue_id"], r["queue_offset"]) for r in rows}) == len(rows)


def test_a_stream_goes_on_where_it_stopped(tmp_path: Path) -> None:
    (log,) = logs_of(open_store(unpack("5.4.0-killed")))
    end = end_of(log, None)
    assert end == 1_237_168
    assert end_of(log, end) == end
    offsets, at = [], log.queue.start
    while at < end:
        reached = end_of(log, at, 100_000)
        assert at < reached <= at + 110_000
        pieces = pieces_between("s", log, at, reached, 30_000)
        offsets += [row["offset"] for batch in read_messages(pieces, ALL) for row in batch.to_pylist()]
        at = reached
    assert offsets == [row["offset"] for row in local_rows(unpack("5.4.0-killed"))]


def test_stores_come_from_paths_globs_and_lists(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name / "commitlog").mkdir(parents=True)
    listed = tmp_path / "stores.txt"
    listed.write_text(f"# fleet\nfirst\t{tmp_path}/a\n\n{tmp_path}/b\n")
    assert [r.label for r in store_refs([f"{tmp_path}/[ab]"])] == [f"{tmp_path}/a", f"{tmp_path}/b"]
    assert [r.label for r in store_refs([f"@{listed}"])] == ["first", f"{tmp_path}/b"]
    assert [r.label for r in refs_of_options({"stores": '{"x": "/p"}'})] == ["x"]
    assert [str(r.path) for r in refs_of_options({"paths": '["/p", "/q"]'})] == ["/p", "/q"]
    with pytest.raises(NotReadable):
        store_refs([f"{tmp_path}/nothing*"])
    with pytest.raises(UsageError):
        store_refs([])


def test_options_are_read_or_refused() -> None:
    assert size_of({"splitsize": "64k"}, "splitsize", 1) == 65_536
    assert size_of({}, "splitsize", 7) == 7
    assert selection_of({"queues": "1,T/2"}).queues == {("T", 2)}
    for wrong in ({"queues": "x"}, {"since": "yesterday"}):
        with pytest.raises(UsageError):
            selection_of(wrong)
    with pytest.raises(UsageError):
        size_of({"splitsize": "big"}, "splitsize", 1)


ONE_QUEUE = """
import sys
from pathlib import Path
import numpy as np, pyarrow as pa
from rmqstore.spark.sources import dispatched_schema
from rmqstore.repair.rebuild.consume_queues import LogFacts
from rmqstore.spark.rebuild import StoreWork, write_queues
from rmqstore.views.stores import StoreRef

store, output, count = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
ref = StoreRef(store, "s", (("mappedFileSizeConsumeQueue", "6000000"),))
facts = LogFacts(None, frozenset(), False, 0, (), {}, {}, frozenset())
work = StoreWork(ref, output, facts, ((0, 1 << 40),), (), ())


def batches(step=10_000):
    for first in range(0, count, step):
        n = np.arange(first, first + step)
        texts = [pa.repeat(pa.scalar(text), step) for text in ("s", "huge")]
        ids, sizes = pa.array(np.zeros(step, np.int32)), pa.array(np.full(step, 9, np.int32))
        unit = [ids, pa.array(n), pa.array(n * 100), sizes, pa.array(n)]
        rest = [pa.nulls(step, pa.int64()), pa.nulls(step, pa.int32())]
        yield pa.RecordBatch.from_arrays([*texts, *unit, *rest], schema=dispatched_schema())


(said,) = write_queues(batches(), {"s": work})
assert said["units"] == count, said
# ru_maxrss would count what pytest, the parent, used before exec
print(next(line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")))
"""


def test_one_huge_queue_does_not_grow_in_memory(store: Path, tmp_path: Path) -> None:

    def peak(count: int) -> int:
        output = tmp_path / f"out-{count}"
        command = [sys.executable, "-c", ONE_QUEUE, str(store), str(output), str(count)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
        units = b"".join(f.read_bytes() for f in sorted((output / "consumequeue/huge/0").iterdir()))
        offsets = np.frombuffer(units[: count * UNIT.size], UNIT.dtype)["commitlog_offset"]
        assert (offsets == np.arange(count) * 100).all()
        assert not any(units[count * UNIT.size :])
        return int(done.stdout)

    few, many = peak(1_000_000), peak(2_800_000)  # a buffer of units is full after the first million
    assert many - few < 18_000  # KiB; the units alone are 36,000,000 bytes more


def test_a_session_that_is_gone_ends_the_watch_and_not_the_job() -> None:
    pytest.importorskip("pyspark")
    from rmqstore.spark.jobs import Watch

    class Gone:
        def __init__(self) -> None:
            self.sparkContext = self
            self.asked = threading.Event()

        def statusTracker(self) -> Gone:
            return self

        def getActiveStageIds(self) -> list[int]:
            self.asked.set()
            raise ConnectionRefusedError

    gone = Gone()
    watch = Watch(gone, lambda done, total: None)
    with watch:
        assert gone.asked.wait(120)
    assert watch._thread is not None
    assert not watch._thread.is_alive()
