"""What the C loops find in property texts, compared with texts read one by one: random and hostile, of all lengths."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest

from rmqstore.checks.index.keys import KeyReader
from rmqstore.formats import index, properties
from rmqstore.formats.javatext import java_string_hash
from rmqstore.formats.message import build_message
from rmqstore.scan import native
from rmqstore.scan.columns import Columns, framed
from rmqstore.scan.dispatch import QueueTable
from rmqstore.scan.properties import PARSED_NAMES, PropertyTexts, read_texts

NAMES = (
    *(b"TAGS", b"KEYS", b"UNIQ_KEY", b"DELAY", b"INNER_NUM", b"INNER_MULTI_DISPATCH", b"MYTAGS", b"TAGSX", b"xKEYS"),
    *(b"A", b"", b"WAIT", b"\xc3\xa4TAGS", b"FLAGS", b"XUNIQ_KEY", b"REALY", b"CLUSTER", b"EGGS"),
)
VALUES = (
    b"",
    b"t",
    b"TagA",
    b"order cancelled",
    b" two  words ",
    b"1",
    b"99999999999",
    b"\xc3\xa4",
    b"TAGS",
    b"a\x01b",
)
RAW = (b"\0", b"\1", b"\2", b"\1\1", b"\2\2", b"\xff", b"TAGS\x01x", b"\xc3", b"\2TAGS\1y\2")


def random_text(random_: random.Random, longest: int) -> bytes:
    out = b""
    for _ in range(random_.randrange(7)):
        value = random_.choice(VALUES) if random_.random() < 0.7 else bytes(random_.choices(b"abcXYZ019", k=longest))
        out += random_.choice(NAMES) + b"\x01" + value + b"\x02"
    if random_.random() < 0.3:
        at = random_.randrange(len(out) + 1)
        out = out[:at] + random_.choice(RAW) + out[at:]
    if random_.random() < 0.3:
        out = out.removesuffix(b"\x02")
    return out[:32_767]


def columns_of(texts: list[bytes], slack: int) -> Columns:
    raw, borders = bytearray(), [0]
    for i, text in enumerate(texts):
        raw += build_message(topic="Topic", body=b"b" * (i % 5), properties=text, physical_offset=len(raw))
        borders.append(len(raw))
    raw += bytes(random.Random(1).choices(range(256), k=slack))
    at = np.array(borders, dtype=np.int64)
    columns = Columns(raw, 0, at[:-1])
    assert framed(columns, at[1:]).all()
    return columns


def takes_turns(text: bytes) -> bool:
    marks = [b for b in text if b <= 2]
    return marks[:1] in ([1], [] if not text else [1]) and all(pair in ((1, 2), (2, 1)) for pair in pairwise(marks))


def is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


@pytest.mark.quick_rows(10)
@pytest.mark.parametrize("longest", [4, 60, 130, 700, 9000])
@pytest.mark.parametrize("slack", [0, 64])
def test_agree_with_reading_one_by_one(longest: int, slack: int) -> None:
    random_ = random.Random(longest + slack)
    count = 400 if longest < 1000 else 60
    texts = [random_text(random_, random_.randrange(longest)) for _ in range(count)]
    columns = columns_of(texts, slack)
    laid = PropertyTexts(columns)
    assert laid.odd.tolist() == [not takes_turns(text) or not is_utf8(text) for text in texts]
    found, bare = read_texts(columns, texts=laid), read_texts(columns, tags=False)
    for i, text in enumerate(texts):
        parsed = properties.parse_properties(text)
        assert found.tags_code[i] == properties.tags_code(parsed.get("TAGS", "")), text
        assert found.faults.get(i, []) == (properties.property_faults(text) if laid.odd[i] else []), text
        assert (i in found.fan_out) == (b"INNER_MULTI_DISPATCH\x01" in text), text
        if i in found.parsed:
            assert any(name in text for name in PARSED_NAMES), text
        elif b"INNER_NUM\x01" in text:
            raise AssertionError(text)
    assert bare.faults == found.faults
    assert found.fan_out == sorted(set(found.fan_out))


@pytest.mark.parametrize("longest", [4, 60, 130, 700])
def test_keys_agree_with_reading_one_by_one(longest: int) -> None:
    random_ = random.Random(longest)
    texts = [random_text(random_, random_.randrange(longest)) for _ in range(300)]
    columns = columns_of(texts, 64)
    table = QueueTable()
    keys = KeyReader(table).keys(columns, table.of(columns))
    for required in (True, False):
        got = sorted(
            zip(
                keys.offset[keys.required == required].tolist(),
                keys.hash[keys.required == required].tolist(),
                strict=True,
            )
        )
        wanted = []
        for at, text in zip(columns.offset.tolist(), texts, strict=True):
            parsed = properties.parse_properties(text)
            must = properties.index_keys("Topic", parsed)
            also = properties.index_keys("Topic", parsed, tag_key=True)[len(must) :]
            wanted += [(at, index.key_hash(key)) for key in (must if required else also)]
        assert got == sorted(wanted)


def test_hashes_are_those_of_java() -> None:
    random_ = random.Random(3)
    raw = bytearray(random_.choices(range(0x20, 0x7F), k=3000))
    raw[100] = 0xE4
    buf = np.frombuffer(raw, dtype=np.uint8)
    start = np.array([random_.randrange(2900) for _ in range(500)] + [2999, 2990, 0, 3000], dtype=np.int64)
    length = np.array([random_.randrange(100) for _ in range(500)] + [1, 10, 0, 0], dtype=np.int64)
    codes, plain = native.load().hashes(buf, start, length)
    for a, n, code, ascii_ in zip(start.tolist(), length.tolist(), codes.tolist(), plain.tolist(), strict=True):
        assert ascii_ == (not a <= 100 < a + n)
        if ascii_:
            assert code == java_string_hash(raw[a : a + n].decode()) & 0xFFFF_FFFF
