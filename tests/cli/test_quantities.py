"""Parsing of times, sizes and durations."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime, timedelta

import click
import pytest

from rmqstore.cli.printing.quantities import (
    OFFSET,
    UTC_KEY,
    bytes_text,
    fitted,
    in_words,
    parse_size,
    parse_span,
    parse_time,
    time_text,
)
from rmqstore.formats.message import Fault

NOW = 1_763_712_000.5


def local(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1763712000000", 1763712000000),
        ("1763712000", 1763712000000),
        ("0000000000", 0),
        ("yesterday 10:30", local(f"{datetime.fromtimestamp(NOW).date() - timedelta(days=1)}T10:30")),
        ("Today  08:00:30", local(f"{datetime.fromtimestamp(NOW).date()}T08:00:30")),
        ("yesterday", local(f"{datetime.fromtimestamp(NOW).date() - timedelta(days=1)}")),
        ("2025-11-21T08:00:00Z", 1763712000000),
        ("2025-11-21T08:00:00.250+00:00", 1763712000250),
        ("2025-11-21", local("2025-11-21")),
        ("2025-11-21 10:30", local("2025-11-21T10:30")),
        ("-2h", 1763712000500 - 7_200_000),
        ("-1.5d", 1763712000500 - 129_600_000),
        ("now", 1763712000500),
        ("today", local(datetime.fromtimestamp(NOW).date().isoformat())),
    ],
)  # fmt: skip
def test_time_is_epoch_iso_a_day_or_before_now(text: str, ms: int) -> None:
    assert parse_time(text, NOW) == ms


@pytest.mark.parametrize(
    "text", ["", "soon", "-2", "-h", "2025-13-01", "12:00", "20251121", "176371200000", "17637120000", "today at noon"]
)
def test_invalid_and_ambiguous_times_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_time(text, NOW)


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("berlin")
def test_local_time_that_comes_twice_or_never_needs_a_zone() -> None:
    assert parse_time("2026-10-25T01:59") == 1792886340000
    for text in ("2026-10-25T02:30", "2026-03-29T02:30"):
        with pytest.raises(ValueError, match="add a zone"):
            parse_time(text)
    assert parse_time("2026-10-25T02:30+01:00") == 1792891800000


@pytest.mark.usefixtures("berlin")
def test_shown_time_has_its_zone() -> None:
    assert time_text(1763712000500) == "2025-11-21 09:00:00 +01:00"
    assert time_text(1753712000500) == "2025-07-28 16:13:20 +02:00"
    assert [time_text(ms) for ms in (0, -1, 1 << 62)] == ["never", "-1", str(1 << 62)]


@pytest.mark.usefixtures("berlin")
def test_utc_changes_times_that_are_read_and_shown() -> None:
    context = click.Context(click.Command("x"))
    context.meta[UTC_KEY] = True
    with context:
        assert time_text(1763712000500) == "2025-11-21 08:00:00 UTC"
        assert parse_time("2025-11-21T08:00") == 1763712000000
        assert parse_time("2026-10-25T02:30") == 1792895400000
        assert parse_time("today", 1763683200.0) == 1763683200000  # midnight in UTC, 1:00 in Berlin


@pytest.mark.parametrize(
    ("text", "offset"), [("180887", 180887), ("180,887", 180887), ("1,180,887", 1180887), ("1_000", 1000), ("0", 0)]
)
def test_offset_may_have_the_separators_that_tables_show(text: str, offset: int) -> None:
    assert OFFSET.convert(text, None, None) == offset


@pytest.mark.parametrize("text", ["-1", "1,2", "1,,000", "x", "", "1.000"])
def test_invalid_offsets_are_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        OFFSET.convert(text, None, None)


@pytest.mark.parametrize(
    ("text", "size"),
    [("64M", 64 << 20), ("1GiB", 1 << 30), ("512k", 512 << 10), ("7", 7), ("1.5k", 1536), ("3 TB", 3 << 40)],
)
def test_a_size_has_a_unit_of_1024(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "M", "-1", "1 x"])
def test_invalid_sizes_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_size(text)


def test_a_span_is_in_seconds() -> None:
    assert [parse_span(t) for t in ("30", "30s", "10m", "1.5h", "250ms")] == [30, 30, 600, 5400, 0.25]


def test_bytes_are_formatted_in_the_fitting_unit() -> None:
    assert [bytes_text(n) for n in (0, 9999, 10240, 65536 * 20, 5 << 40)] == [
        "0 B", "9,999 B", "10.0 KiB", "1.2 MiB", "5.0 TiB",
    ]  # fmt: skip


def test_every_fault_of_a_record_has_a_text() -> None:
    names = [fault.name.lower().replace("_", " ") for fault in Fault if fault is not Fault.NONE]
    assert [name for name in names if in_words(name) == name] == []
    assert in_words("body crc") == "the body does not match its CRC"


def test_fitted_counts_wide_characters_twice() -> None:
    assert fitted("订单", 6) == "订单  "
    assert fitted("订单订单", 6) == "订单… "
    assert fitted("abc", 2) == "a…"
