"""Text parsed like in Java. The expected values were printed by Java 17."""

from __future__ import annotations

import pytest

from rmqstore.formats.javatext import (
    java_split,
    java_string_hash,
    java_text,
    parse_int,
    parse_java_properties,
    parse_long,
)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", 0),
        ("a", 97),
        ("TagA", 2598919),
        ("TagB", 2598920),
        ("TagC", 2598921),
        ("TagA || TagB", 1359775119),
        ("中文", 646394),
        ("😀", 1772899),
        ("polygenelubricants", -2147483648),
    ],
)
def test_hash_is_javas(text: str, code: int) -> None:
    assert java_string_hash(text) == code


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\xed\xa0\x80", "�"),
        (b"\xed\xad", "�"),
        (b"\x01\xb8\xed\xbf", "\x01��"),
        (b"\xed\xf4\xed\xad\x01\xb8\xb8", "���\x01��"),
        (b"\xe4\xb8", "�"),
        (b"\xf4\x90\x80\x80", "����"),
        (b"\xc0\x80", "��"),
        ("中😀".encode(), "中😀"),
    ],
)
def test_bad_utf8_is_replaced_as_by_java(data: bytes, text: str) -> None:
    assert java_text(data) == text


@pytest.mark.parametrize(
    ("text", "as_int", "as_long"),
    [
        ("0", 0, 0),
        ("-0", 0, 0),
        ("+5", 5, 5),
        ("2147483647", 2147483647, 2147483647),
        ("2147483648", None, 2147483648),
        ("-2147483649", None, -2147483649),
        ("9223372036854775808", None, None),
        ("-9223372036854775808", None, -(1 << 63)),
        (" 1", None, None),
        ("1_0", None, None),
        ("", None, None),
        ("+", None, None),
        ("٣", 3, 3),
        ("𝟙", None, None),
        ("²", None, None),
        ("9" * 5000, None, None),
        ("-" + "0" * 10_000 + "7", -7, -7),
        ("0" * 10_000, 0, 0),
        ("9" * 10_000, None, None),
    ],
)
def test_numbers_parse_as_in_java(text: str, as_int: int | None, as_long: int | None) -> None:
    assert (parse_int(text), parse_long(text)) == (as_int, as_long)


def test_split_drops_empty_parts_only_at_the_end() -> None:
    assert java_split("a  b  ", " ") == ["a", "", "b"]
    assert java_split("", " ") == [""]
    assert java_split("  ", " ") == []


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a=1\nb: 2\r\nc 3\rd", {"a": "1", "b": "2", "c": "3", "d": ""}),
        ("# x\n  ! y\n\n a = b = c ", {"a": "b = c "}),
        ("a=1\\\n   2\nb=3", {"a": "12", "b": "3"}),
        ("a\\=b=c\\td\\u00e9\\q", {"a=b": "c\tdéq"}),
        ("\\\n!x\na=1", {"a": "1"}),
        ("a=1\na=2", {"a": "2"}),
        ("a==1", {"a": "=1"}),
    ],
)
def test_properties_load_as_in_java(text: str, values: dict[str, str]) -> None:
    assert parse_java_properties(text) == (values, [])


def test_broken_escape_is_named_and_the_rest_read() -> None:
    assert parse_java_properties("a=\\u12\nb=1") == ({"b": "1"}, ["line 1: broken \\u escape"])
