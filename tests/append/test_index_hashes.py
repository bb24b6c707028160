"""Key hashes of many texts at once, compared with Java's String.hashCode of each text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rmqstore.append.index_builder import java_hashes, key_hashes
from rmqstore.formats import index
from rmqstore.formats.javatext import java_string_hash, java_text


@given(st.lists(st.one_of(st.binary(max_size=40), st.text(max_size=40).map(str.encode)), max_size=12))
def test_hashes_of_many_texts_are_those_of_each(texts: list[bytes]) -> None:
    assert java_hashes(texts).tolist() == [java_string_hash(java_text(text)) for text in texts]
    assert key_hashes(texts).tolist() == [index.key_hash(java_text(text)) for text in texts]


def test_the_hash_without_an_absolute_value_is_0() -> None:
    assert java_hashes([b"polygenelubricants"]).tolist() == [-(1 << 31)]
    assert key_hashes([b"polygenelubricants"]).tolist() == [0]
