"""Which arriving bytes are kept: whole records only, whatever the pieces they come in."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from rmqstore.formats.message import HEAD
from rmqstore.receiving.proof import Proven, Prover
from tests.receiving.fake_master import SIZE, log_of, record

BODY_AT = HEAD.size


def kept(log: bytes, cuts: list[int], begin: int = 0) -> tuple[bytes, list[Proven], Prover]:
    prover, found = Prover(begin, SIZE), []
    for low, high in zip([0, *cuts], [*cuts, len(log)], strict=True):
        found.append(prover.feed(log[low:high]))
    return b"".join(one.data for one in found), found, prover


@given(st.lists(st.integers(0, 10_000), max_size=30), st.integers(0, 3))
def test_a_log_in_any_pieces(cuts: list[int], files: int) -> None:
    log = bytes(log_of(60, begin=files * SIZE))
    cuts = sorted(cut % len(log) for cut in cuts)
    data, found, prover = kept(log, cuts, files * SIZE)
    assert data == log
    assert sum(one.messages for one in found) == 60
    assert all(not one.faults for one in found)
    assert (prover.at, prover.waiting, prover.unproven) == (files * SIZE + len(log), 0, False)
    assert max(one.last_record for one in found) == files * SIZE + len(log) - len(record(0, "m59"))


def test_the_rest_of_a_record_is_waited_for() -> None:
    log = bytes(log_of(3))
    data, _, prover = kept(log[:-1], [])
    assert data == bytes(log_of(2))
    assert prover.waiting == len(log) - len(data) - 1


@given(st.lists(st.integers(0, 10_000), max_size=10), st.integers(0, 59), st.binary(min_size=1, max_size=1))
def test_a_damaged_body_is_kept_and_named(cuts: list[int], number: int, byte: bytes) -> None:
    log = log_of(60)
    at = log.index(f"m{number}".encode())
    log[at] = byte[0]
    data, found, _ = kept(bytes(log), sorted(cut % len(log) for cut in cuts))
    assert data == log
    damaged = [one for each in found for one in each.damaged]
    assert damaged == ([] if byte == b"m" else [(at - BODY_AT, at - BODY_AT + len(record(0, f"m{number}")))])
    assert all(not one.unproven for one in found)


@given(st.lists(st.integers(0, 10_000), max_size=10))
def test_after_what_is_no_record_the_next_file_is_the_next_border(cuts: list[int]) -> None:
    log = log_of(60)
    at = log.index(b"m10") - BODY_AT
    log[at + 4] ^= 0xFF
    data, found, _ = kept(bytes(log), sorted(cut % len(log) for cut in cuts))
    assert data == log
    ranges = [one for each in found for one in each.unproven]
    assert (ranges[0][0], ranges[-1][1]) == (at, SIZE)
    assert all(before[1] == after[0] for before, after in itertools.pairwise(ranges))


@given(st.binary(min_size=1, max_size=9000), st.lists(st.integers(0, 9000), max_size=5))
def test_any_bytes_end_with_a_bounded_wait(data: bytes, cuts: list[int]) -> None:
    out, found, prover = kept(data, sorted(cut % len(data) for cut in cuts))
    assert out + b"" == data[: len(out)]
    assert prover.waiting <= SIZE
    assert sum(stop - start for one in found for start, stop in one.unproven) <= len(out)
