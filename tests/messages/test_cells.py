"""Lines built column by column equal the joined texts of their cells."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.messages.cells import WIDEST, KeyTable, Part, TextRows, TextTable, assemble, decimals, hexadecimal, listed

Made = tuple[Part, list[bytes]]


def _numbers(low: int, high: int) -> Callable[[int], st.SearchStrategy[list[int]]]:
    return lambda n: st.lists(st.integers(low, high), min_size=n, max_size=n)


def _decimals(n: int) -> st.SearchStrategy[Made]:
    ranges = [(0, 9), (0, 99_999), (9_990, 10_020), (10**9 - 3, 10**9 + 3), (10**12, 10**12 + 50), (0, (1 << 63) - 1)]
    ranges += [(1 << 32, (1 << 32) + 20_000), (-5, 5), (-(1 << 63), (1 << 63) - 1)]
    columns = st.sampled_from(ranges).flatmap(lambda r: _numbers(*r)(n))
    return columns.map(lambda c: (decimals(np.array(c, dtype=np.int64)), [b"%d" % v for v in c]))


def _hex(n: int) -> st.SearchStrategy[Made]:
    columns = _numbers(-(1 << 63), (1 << 63) - 1)(n)
    return columns.map(
        lambda c: (hexadecimal(np.array(c, dtype=np.int64)), [b"%016X" % (v & ((1 << 64) - 1)) for v in c])
    )


def _listed(n: int) -> st.SearchStrategy[Made]:
    texts = st.one_of(
        st.binary(max_size=3), st.integers(0, 3 * WIDEST).map(lambda k: bytes(65 + i % 26 for i in range(k)))
    )
    return st.lists(texts, min_size=n, max_size=n).map(lambda t: (listed(t), t))


def _table(n: int) -> st.SearchStrategy[Made]:
    def made(texts: list[bytes], numbers: list[int]) -> Made:
        table = TextTable()
        for text in texts:
            table.add(text)
        numbers = [k % len(texts) for k in numbers]
        return table.rows(np.array(numbers, dtype=np.int64)), [texts[k] for k in numbers]

    texts = st.one_of(st.binary(max_size=9), st.just(b"w" * (WIDEST + 1)))
    return st.builds(made, st.lists(texts, min_size=1, max_size=5), _numbers(0, 9)(n))


def _keys(n: int) -> st.SearchStrategy[Made]:
    def made(numbers: list[int]) -> Made:
        table = KeyTable(lambda key: b"k%d" % key, most=3)
        table.rows(np.array([7, 8], dtype=np.uint64))
        return table.rows(np.array(numbers, dtype=np.uint64)), [b"k%d" % k for k in numbers]

    return _numbers(0, (1 << 64) - 1)(n).map(made)


def _constant(n: int) -> st.SearchStrategy[Made]:
    return st.binary(max_size=20).map(lambda text: (text, [text] * n))


def _fixed(n: int) -> st.SearchStrategy[Made]:
    def made(texts: list[bytes]) -> Made:
        return TextRows(np.frombuffer(b"".join(texts), dtype=np.uint8).reshape(n, -1)), texts

    return (
        st.integers(1, 30)
        .flatmap(lambda k: st.lists(st.binary(min_size=k, max_size=k), min_size=n, max_size=n))
        .map(made)
    )


_LINES = st.integers(1, 12).flatmap(
    lambda n: st.tuples(
        st.just(n),
        st.lists(
            st.one_of(_decimals(n), _hex(n), _listed(n), _table(n), _keys(n), _constant(n), _fixed(n)),
            min_size=1,
            max_size=7,
        ),
    )
)


@given(_LINES)
def test_lines_are_their_parts_joined(given_: tuple[int, list[Made]]) -> None:
    n, made = given_
    expected = [b"".join(texts) for texts in zip(*(texts for _, texts in made), strict=True)]
    out, ends = assemble(n, [part for part, _ in made])
    assert out.tobytes() == b"".join(expected)
    assert ends.tolist() == np.cumsum([len(line) for line in expected]).tolist()


def test_texts_that_are_all_empty() -> None:
    table = TextTable()
    table.add(b"")
    table.add(b"")
    out, ends = assemble(2, [table.rows(np.array([0, 1]))])
    assert (out.tobytes(), ends.tolist()) == (b"", [0, 0])


def test_nothing_is_written_outside_of_the_sink() -> None:
    whole = np.full(1000, 0xEE, dtype=np.uint8)
    texts = [b"a" * 200, b"", b"b" * 90]
    out, _ = assemble(3, [decimals(np.array([1, 22, 333])), listed(texts), b"."], lambda size: whole[300 : 300 + size])
    assert out.tobytes() == b"1" + texts[0] + b".22.333" + texts[2] + b"."
    assert bytes(whole[:300]) == b"\xee" * 300
    assert bytes(whole[300 + len(out) :]) == b"\xee" * (700 - len(out))


@pytest.mark.parametrize("high", [10**k + d for k in range(1, 19) for d in (-1, 0, 1)])
def test_decimals_around_every_power_of_ten(high: int) -> None:
    column = np.array([high, 0, high - 1, high // 2], dtype=np.int64)
    out, _ = assemble(4, [b"<", decimals(column), b">"])
    assert out.tobytes() == b"".join(b"<%d>" % v for v in column.tolist())


def test_a_table_of_keys_forgets_when_it_is_full_and_goes_on() -> None:
    made: list[int] = []

    def text(key: int) -> bytes:
        made.append(key)
        return b"%d," % key

    table = KeyTable(text, most=4)
    for start in range(0, 60, 3):
        keys = np.arange(start, start + 3, dtype=np.uint64)
        for _ in range(2):
            assert assemble(3, [table.rows(keys)])[0].tobytes() == b"".join(b"%d," % k for k in keys.tolist())
    assert made == list(range(60))
