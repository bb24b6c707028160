"""--since and --until read only the part of a log that can contain the messages, and find what a full scan finds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqstore.files.store import Store, open_store
from rmqstore.formats.message import HEADS_BY_FLAG
from rmqstore.views.dump import selection as log_times
from rmqstore.views.dump.messages import Job, logs_of, read_records
from rmqstore.views.dump.selection import Selection, offsets_between
from rmqstore.views.usage import usage
from tests.cases.case import make, read_case
from tests.stores import STORES, copy_store, unpack
from tests.views.decoder import find_records

HOUR = 3_600_000
DAMAGED = (
    *("CL-MAGIC--whole-record", "CL-MISSING-FILE", "CL-NO-BLANK--damaged", "CL-STORE-TIME", "CL-TIME-BACK"),
    *("CL-ZERO-HOLE", "CL-FALSE-BLANK", "CL-DIRTY-TAIL", "DL-HEADER--page-of-ones", "DL-MISSING-FILE", "DL-NO-BLANK"),
)


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Search small logs like big ones."""
    monkeypatch.setattr(log_times, "WHOLE", 0)
    monkeypatch.setattr(log_times, "_GRID", 2048)
    monkeypatch.setattr(log_times, "SLACK", 20)


def messages(store: Store, selection: Selection) -> list[tuple[int, int]]:
    """Return offset and store time of the selected messages."""
    chunks = read_records(store, "messages", Job(selection))
    return [(found.offset, found.message.store_timestamp) for chunk in chunks for found in chunk]


def spans(times: list[int]) -> Iterator[tuple[int | None, int | None]]:
    """Yield all kinds of bounds between the times of the first and the last message."""
    ordered = sorted(times)
    some = [ordered[i * (len(ordered) - 1) // 3] for i in range(4)]
    yield from ((time, None) for time in some[1:])
    yield from ((None, time) for time in some[1:])
    yield some[1], some[2]


def searched(store: Store, since: int | None, until: int | None) -> int:
    """Return the number of log bytes that are read for a time span."""
    bounds = (offsets_between(log.queue, log.body_offset, since, until) for log in logs_of(store))
    return sum(stop - start for start, stop in bounds)


def compare_with_full_scan(store: Store) -> int:
    """Check the result for every span, and return the number of bytes that were not read."""
    everything = messages(store, Selection())
    total = searched(store, None, None)
    saved = 0
    for since, until in spans([time for _, time in everything]):
        wanted = [one for one in everything if (since is None or one[1] >= since) and (until is None or one[1] < until)]
        selection = Selection(since=since, until=until)
        assert messages(store, selection) == wanted, (since, until)
        saved += total - searched(store, since, until)
    batches = {r.position: r.messages for r in find_records(store.root)}
    assert usage(store, ("topic",), selection).messages == sum(batches[offset] for offset, _ in wanted)
    return saved


@pytest.mark.usefixtures("narrow")
@pytest.mark.quick_rows(3)
@pytest.mark.parametrize("name", STORES)
def test_a_part_of_the_log_has_what_a_full_scan_finds(name: str) -> None:
    saved = compare_with_full_scan(open_store(unpack(name)))
    assert saved > 0 or name.startswith(("head_", "498_"))  # these were written within milliseconds


@pytest.mark.usefixtures("narrow")
@pytest.mark.quick_rows(3)
@pytest.mark.parametrize("name", DAMAGED)
def test_damage_hides_no_message_from_a_search_by_time(name: str, tmp_path: Path) -> None:
    assert compare_with_full_scan(open_store(make(read_case(name), tmp_path))) > 0


@pytest.mark.usefixtures("narrow")
@pytest.mark.quick_rows
@pytest.mark.parametrize("change", [-HOUR, HOUR])
@pytest.mark.parametrize(("first", "last"), [(150, 350), (300, 10_000), (0, 250)])
def test_a_clock_that_was_set_hides_no_message(change: int, first: int, last: int, tmp_path: Path) -> None:
    root = copy_store("5.4.0-clean", tmp_path)
    for record in list(find_records(root))[first:last]:
        file = root / "commitlog" / f"{record.position // 65536 * 65536:020d}"
        at = record.position % 65536 + HEADS_BY_FLAG[record.sys_flag & 0x30].at("store_timestamp")
        with file.open("r+b") as f:
            f.seek(at)
            f.write((record.store_timestamp + change).to_bytes(8, "big"))
    assert compare_with_full_scan(open_store(root)) > 0


@pytest.mark.usefixtures("narrow")
def test_newest_first_reads_the_same_part() -> None:
    store = open_store(unpack("5.4.0-dledger-mixed"))
    times = sorted(time for _, time in messages(store, Selection()))
    selection = Selection(since=times[200], until=times[600])
    backwards = messages(store, Selection(since=times[200], until=times[600], reverse=True))
    assert backwards == messages(store, selection)[::-1]


def test_a_small_log_is_read_whole() -> None:
    store = open_store(unpack("5.4.0-clean"))
    assert searched(store, 1, 2) == searched(store, None, None)


@pytest.mark.usefixtures("narrow")
def test_a_span_without_messages_reads_nothing() -> None:
    store = open_store(unpack("5.4.0-clean"))
    assert searched(store, None, 1000) == 0
    last = max(time for _, time in messages(store, Selection()))
    # there may be more records after the last known one, whose time is unknown
    assert searched(store, last + HOUR, None) < 60_000
