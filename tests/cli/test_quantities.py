"""Times, sizes and durations as people write them."""

from __future__ import annotations

from datetime import datetime

import pytest

from rmqstore.cli.quantities import bytes_text, fitted, parse_size, parse_span, parse_time

NOW = 1_763_712_000.5


def local(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1763712000000", 1763712000000),
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
def test_a_time_is_epoch_ms_iso_or_before_now(text: str, ms: int) -> None:
    assert parse_time(text, NOW) == ms


@pytest.mark.parametrize("text", ["", "soon", "-2", "-h", "2025-13-01", "12:00"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_time(text, NOW)


@pytest.mark.parametrize(
    ("text", "size"),
    [("64M", 64 << 20), ("1GiB", 1 << 30), ("512k", 512 << 10), ("7", 7), ("1.5k", 1536), ("3 TB", 3 << 40)],
)
def test_a_size_has_a_unit_of_1024(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "M", "-1", "1 x"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_size(text)


def test_a_span_is_in_seconds() -> None:
    assert [parse_span(t) for t in ("30", "30s", "10m", "1.5h", "250ms")] == [30, 30, 600, 5400, 0.25]


def test_bytes_are_told_in_the_unit_that_fits() -> None:
    assert [bytes_text(n) for n in (0, 9999, 10240, 65536 * 20, 5 << 40)] == [
        "0 B", "9,999 B", "10.0 KiB", "1.2 MiB", "5.0 TiB",
    ]  # fmt: skip


def test_fitted_counts_wide_characters_twice() -> None:
    assert fitted("订单", 6) == "订单  "
    assert fitted("订单订单", 6) == "订单… "
    assert fitted("abc", 2) == "a…"
