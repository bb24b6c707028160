"""A narrowed verify reports its range and claims no more; the parts together find the same as one whole verify."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqstore.checks.examine import verify
from rmqstore.checks.options import VerifyOptions
from rmqstore.files.store import open_store
from tests.damage import flip
from tests.stores import copy_store, unpack


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    store = copy_store("5.4.0-clean", tmp_path)
    flip(store / "commitlog" / "00000000000000131072", 5)
    flip(store / "commitlog" / "00000000000000393216", 5)
    return store


def places(store: Path, **options: object) -> tuple[list[int], int, dict[str, int] | None]:
    report = verify(open_store(store), VerifyOptions(**{"jobs": 1} | options))  # type: ignore[arg-type]
    return [f.offset // 65536 for f in report.ordered() if f.severity > 1], report.exit_code, report.resume_at


def test_a_time_range_reads_only_its_files(damaged: Path) -> None:
    whole, code, _ = places(damaged)
    assert (whole, code) == ([2, 6], 1)
    report = verify(open_store(damaged), VerifyOptions(jobs=1))
    assert report.commitlog is not None
    first, last = report.commitlog["first_timestamp"], report.commitlog["last_timestamp"]
    assert places(damaged, since=last)[0] == []
    assert places(damaged, since=last)[1] == 4
    assert places(damaged, until=first + 1)[0] == []
    assert places(damaged, since=first, until=last + 1)[0] == [2, 6]


@pytest.mark.parametrize("more", [{}, {"jobs": 2, "split_size": 1 << 14}], ids=["alone", "two processes"])
def test_limited_runs_continue_until_everything_is_read(more: dict[str, int], damaged: Path) -> None:
    seen: list[int] = []
    at: dict[str, int] | None = None
    runs = 0
    while runs < 20:
        runs += 1
        found, code, at = places(damaged, max_duration=1e-9, start_at=at, **more)
        seen += found
        assert code == (1 if found else 4)
        if at is None:
            break
    assert seen == [2, 6]
    assert runs == 8  # one file per run


def test_other_topics_are_left_out_and_that_is_reported(damaged: Path) -> None:
    report = verify(open_store(damaged), VerifyOptions(jobs=1, topics=("NoSuchTopic",)))
    assert report.findings.listed == []
    assert report.exit_code == 4
    assert any("NoSuchTopic" in words for words in report.unchecked)


ALL = ("Order_11/0", "Order_11/1", "Pay_11_Topic/0")


@pytest.mark.parametrize(
    ("topics", "queues", "left"),
    [
        (("Order_11",), (), ALL[:2]),
        (("Order_11", "Pay_11_Topic"), (), ALL),
        ((), ("0",), (ALL[0], ALL[2])),
        ((), ("Order_11/1", "Pay_11_Topic/1"), (ALL[1],)),
        (("Order_11",), ("0",), (ALL[0],)),
        (("Pay_11_Topic",), ("1",), ()),
    ],
)
def test_findings_of_the_named_topics_and_queues_are_left(
    topics: tuple[str, ...], queues: tuple[str, ...], left: tuple[str, ...], store: Path
) -> None:
    for label in ALL:
        flip(store / "consumequeue" / label / f"{0:020}", 20 + 11)  # the size of a unit
    report = verify(open_store(store), VerifyOptions(jobs=1, topics=topics, queues=queues))
    assert tuple(sorted(f.queue for f in report.findings.listed)) == left


def test_a_sound_store_narrowed_has_nothing_wrong() -> None:
    store = unpack("4.9.7-dledger-mixed")
    report = verify(open_store(store), VerifyOptions(jobs=1, start_at={"commitlog": 131072, "dledger": 0}))
    assert dict(report.findings.counts) == {}
    assert report.exit_code == 4
