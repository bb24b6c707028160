"""Declaration, construct, NumPy dtype and Arrow schema of every layout agree."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from construct import Bytes, ConstructError, Int8sb
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.formats import checkpoint, consumequeue, dledger, index, message, messageid, rocksdbkeys, timer
from rmqstore.formats.layout import Field, Layout

LAYOUTS: list[Layout] = [
    *(message.head(born, store) for born in (False, True) for store in (False, True)),
    *messageid.OFFSET_IDS.values(),
    *messageid.UNIQ_KEYS.values(),
    *(
        value
        for module in (message, consumequeue, index, checkpoint, dledger, timer, rocksdbkeys)
        for name, value in sorted(vars(module).items())
        if isinstance(value, Layout) and not (module is message and name == "HEAD")
    ),
]
SIZES = {
    "blank": 8,
    "consume queue unit": 20,
    "batch consume queue unit": 46,
    "consume queue extension unit": 20,
    "index header": 40,
    "index slot": 4,
    "index unit": 20,
    "checkpoint": 48,
    "dledger entry": 48,
    "dledger blank": 8,
    "dledger index unit": 32,
    "timer log unit": 52,
    "timer log blank": 16,
    "timer wheel slot": 32,
    "timercheck": 56,
    "offset message id (IPv4)": 16,
    "offset message id (IPv6)": 28,
    "UNIQ_KEY (IPv4)": 16,
    "UNIQ_KEY (IPv6)": 28,
    "RocksDB consume queue value": 28,
    "RocksDB queue bound value": 16,
}


def values_of(field: Field) -> st.SearchStrategy[Any]:
    if field.dtype == ">u4":
        return st.integers(0, (1 << 32) - 1)
    if field.number:
        bits = 8 * field.size
        return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)
    return st.binary(min_size=field.size, max_size=field.size)


def ids(layout: Layout) -> str:
    return f"{layout.name} {layout.size}"


@pytest.mark.parametrize("layout", LAYOUTS, ids=ids)
@given(data=st.data())
def test_builder_parser_and_dtype_agree(layout: Layout, data: st.DataObject) -> None:
    values = {f.name: data.draw(values_of(f), label=f.name) for f in layout}
    raw = layout.build(values)
    assert len(raw) == layout.size == layout.dtype.itemsize
    assert layout.parse(b"\xaa" * 3 + raw, 3) == values
    assert layout.unpack(b"\xaa" * 3 + raw, 3) == values
    assert layout.packer.pack(*values.values()) == layout.struct.build(values) == raw
    assert {f.name: layout.struct.parse(raw)[f.name] for f in layout} == values
    (record,) = layout.array(raw + b"\xaa" * (layout.size - 1))
    for f in layout:
        got = record[f.name]
        assert (got.tobytes() if not f.number else int(got)) == values[f.name]
        part = raw[layout.at(f.name) : layout.at(f.name) + f.size]
        whole = values[f.name]
        assert part == (whole if isinstance(whole, bytes) else whole.to_bytes(f.size, "big", signed=f.dtype != ">u4"))
    rows = pa.Table.from_pylist([values], schema=layout.arrow_schema())
    assert rows.to_pylist() == [values]


@pytest.mark.parametrize("layout", LAYOUTS, ids=ids)
def test_fields_tile_the_record_and_are_documented(layout: Layout) -> None:
    at = 0
    for f in layout:
        assert layout.at(f.name) == at
        assert f.about.endswith("."), f.name
        at += f.size
    assert at == layout.size
    assert "#" in layout.source or "RocketMQ" in layout.source or "DLedger" in layout.source


def test_what_does_not_fit_is_reported_by_the_declaration() -> None:
    layout = Layout("pair", "Somewhere#here", Field("a", Int8sb, "One."), Field("b", Bytes(2), "Two."))
    for wrong in ({"a": 128}, {"b": b"1"}, {"b": b"123"}, {"a": "x"}):
        with pytest.raises(ConstructError):
            layout.build(wrong)
    for at in (0, 1):
        with pytest.raises(ConstructError):
            layout.parse(b"\x01\x02", at)
    assert layout.build(a=-1, b=b"xy") == b"\xffxy"


def test_sizes_are_those_on_disk() -> None:
    assert {layout.name: layout.size for layout in LAYOUTS if layout.name in SIZES} == SIZES


def test_names_are_unique_but_for_the_four_message_heads() -> None:
    names = [layout.name for layout in LAYOUTS if layout.name != "message"]
    assert len(set(names)) == len(names)


@given(
    body=st.binary(max_size=40),
    topic=st.binary(min_size=1, max_size=127),
    properties=st.binary(max_size=40),
    v2=st.booleans(),
    born_v6=st.booleans(),
    store_v6=st.booleans(),
)
def test_a_message_is_built_parsed_and_measured_by_one_declaration(
    body: bytes, topic: bytes, properties: bytes, v2: bool, born_v6: bool, store_v6: bool
) -> None:
    raw = message.build_message(
        topic=topic,
        body=body,
        properties=properties,
        v2=v2,
        born_host=bytes(20 if born_v6 else 8),
        store_host=bytes(20 if store_v6 else 8),
    )
    values = message.MESSAGE.parse(b"\xaa" + raw + b"\xaa", 1)
    assert (values["body"], values["topic"], values["properties"]) == (body, topic, properties)
    assert message.MESSAGE.build(values) == raw
    spans = message.MESSAGE.spans(raw)
    assert [start for _, start, _ in spans] == [0, *(stop for _, _, stop in spans[:-1])]
    assert spans[-1][2] == len(raw)
    assert {f.name: raw[start:stop] for f, start, stop in spans}["topic"] == topic
    fixed = message.head(born_v6, store_v6)
    assert [(f.name, start, stop - start) for f, start, stop in spans[: len(fixed.fields)]] == [
        (f.name, fixed.at(f.name), f.size) for f in fixed
    ]
