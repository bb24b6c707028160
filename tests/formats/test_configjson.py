"""The broker's JSON: files of real brokers, fastjson's extensions, damage, and hostile texts."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.formats import configuration as cj
from rmqstore.formats.configuration import ConfigJsonError, ConfigState, JsonWritable

# config/consumerOffset.json, 4.9.7 (fastjson 1), shortened by whole entries
OFFSETS_4_9_7 = b"""{
\t"offsetTable":{
\t\t"Pay_11_Topic@CG_tag_11":{0:33,1:31,2:35,3:45
\t\t},
\t\t"%RETRY%CG_dlq_11@CG_dlq_11":{0:0
\t\t}
\t}
}"""
# config/delayOffset.json and consumerOrderInfo.json, 5.1.4 (fastjson 1)
DELAY_5_1_4 = b"""{
\t"dataVersion":{
\t\t"counter":2,
\t\t"stateVersion":0,
\t\t"timestamp":1795245082867
\t},
\t"offsetTable":{1:18,3:4,5:0,18:0
\t}
}"""
ORDER_5_1_4 = b"""{
\t"table":{}
}"""
# the same two of 5.4.0 (fastjson2), and the group table of its consumerOffset.json
DELAY_5_4_0 = b"""{
\t"dataVersion":{
\t\t"counter":4,
\t\t"stateVersion":0,
\t\t"timestamp":1795245460149
\t},
\t"offsetTable":{
\t\t1:6,
\t\t3:4,
\t\t5:0,
\t\t18:0
\t}
}"""
ORDER_5_4_0 = b"""{
\t"orderedConsumptionLevel":"QUEUE",
\t"table":{
\t\t
\t}
}"""
GROUPS_5_4_0 = b"""{
\t"groupTopicMap":{
\t\t"CID_RMQ_SYS_TRANS":[
\t\t\t"RMQ_SYS_TRANS_HALF_TOPIC",
\t\t\t"RMQ_SYS_TRANS_OP_HALF_TOPIC"
\t\t]
\t}
}"""
GROUPS_5_1_4 = b"""{
\t"groupTopicMap":{
\t\t"CID_RMQ_SYS_TRANS":["RMQ_SYS_TRANS_HALF_TOPIC","RMQ_SYS_TRANS_OP_HALF_TOPIC"],
\t\t"CG_tag_11":["Pay_11_Topic"]
\t}
}"""
FASTJSON1 = [OFFSETS_4_9_7, DELAY_5_1_4, ORDER_5_1_4, GROUPS_5_1_4]
FASTJSON2 = [DELAY_5_4_0, ORDER_5_4_0, GROUPS_5_4_0]


def with_integer_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return cj.integer_keys({key: with_integer_keys(item) for key, item in value.items()})
    return value


def test_offsets_of_a_4_9_7_broker() -> None:
    assert cj.parse_config_object(OFFSETS_4_9_7) == {
        "offsetTable": {
            "Pay_11_Topic@CG_tag_11": {"0": 33, "1": 31, "2": 35, "3": 45},
            "%RETRY%CG_dlq_11@CG_dlq_11": {"0": 0},
        }
    }


def test_delay_offsets_of_both_writers() -> None:
    assert cj.parse_config_object(DELAY_5_1_4)["offsetTable"] == {"1": 18, "3": 4, "5": 0, "18": 0}
    assert cj.parse_config_object(DELAY_5_4_0)["offsetTable"] == {"1": 6, "3": 4, "5": 0, "18": 0}


@pytest.mark.parametrize("text", FASTJSON1)
def test_fastjson1_text_is_written_byte_for_byte(text: bytes) -> None:
    assert cj.build_config_json(with_integer_keys(cj.parse_config_json(text)), "fastjson1") == text


@pytest.mark.parametrize("text", FASTJSON2)
def test_fastjson2_text_is_written_byte_for_byte(text: bytes) -> None:
    assert cj.build_config_json(with_integer_keys(cj.parse_config_json(text)), "fastjson2") == text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"{0:7,-1:12}", {"0": 7, "-1": 12}),
        (b"{t2:{a_b:1}}", {"t2": {"a_b": 1}}),
        (b"{'a':'it\\'s \"x\"'}", {"a": 'it\'s "x"'}),
        (b'{"a":1,}', {"a": 1}),
        (b"{,0:[1,,2,],,}", {"0": [1, 2]}),
        (b'{"a":1}\0\0\0', {"a": 1}),
        (b"{0:1} \n\0\0", {"0": 1}),
        (b'// x\n{/* "y", */0:1 // z\n}//', {"0": 1}),
        (b"{0:1,/*c*/}", {"0": 1}),
        (b"\xef\xbb\xbf{0:1}", {"0": 1}),
        (b'{0:"a\tb\\v\\x41\\7\\/\\u4e2d"}', {"0": "a\tb\x0bA\x07/中"}),
        (b'{0:"\xff"}', {"0": "�"}),
        (b'{0:"//x, {1:2}"}', {"0": "//x, {1:2}"}),
        (b"{0:1.5e3,1:true,2:null,3:-0}", {"0": 1500.0, "1": True, "2": None, "3": 0}),
        (b"{0:1,0:2}", {"0": 2}),
        ("{'中':'文'}".encode(), {"中": "文"}),
        (b"{0:{},1:[]}", {"0": {}, "1": []}),
        (b"{0\f:\b1}", {"0": 1}),
        (b'\0\0{"a":1}', {"a": 1}),
    ],
)
def test_extensions_of_fastjson_are_read(text: bytes, value: object) -> None:
    assert cj.parse_config_object(text) == value


@pytest.mark.parametrize(
    ("text", "condition", "position"),
    [
        (b"", ConfigState.EMPTY, 0),
        (b" \n\t", ConfigState.EMPTY, 0),
        (b"// nothing", ConfigState.EMPTY, 10),
        (bytes(376), ConfigState.NUL_FILLED, 0),
        (OFFSETS_4_9_7[:-1], ConfigState.CUT, len(OFFSETS_4_9_7) - 1),
        (OFFSETS_4_9_7[:30], ConfigState.CUT, 21),
        (OFFSETS_4_9_7[:30] + bytes(100), ConfigState.CUT, 21),
        (b'{"a":tru', ConfigState.CUT, 5),
        (b'{"a":-', ConfigState.CUT, 5),
        (b'{"a":"x\\', ConfigState.CUT, 5),
        (b"{/* x", ConfigState.CUT, 1),
        (b'{"a":1}}', ConfigState.BROKEN, 7),
        (b'{"a":1}{', ConfigState.BROKEN, 7),
        (b"{]", ConfigState.BROKEN, 1),
        (b"[}", ConfigState.BROKEN, 1),
        (b'{"a"}', ConfigState.BROKEN, 4),
        (b'{"a":}', ConfigState.BROKEN, 5),
        (b'{"a":,1}', ConfigState.BROKEN, 5),
        (b'{"a" "b"}', ConfigState.BROKEN, 5),
        (b'{"a":1 2}', ConfigState.BROKEN, 7),
        (b'{"a"::1}', ConfigState.BROKEN, 5),
        (b"{{}:1}", ConfigState.BROKEN, 1),
        (b'{"a":x}', ConfigState.BROKEN, 5),
        (b"{0:01}", ConfigState.BROKEN, 3),
        (b'{0:"\\q"}', ConfigState.BROKEN, 4),
        (b'{0:"a\0b"}', ConfigState.BROKEN, 4),
        (b"{\0:1}", ConfigState.BROKEN, 1),
        (b"{0:\v1}", ConfigState.BROKEN, 3),
        (b"{0:1/2}", ConfigState.BROKEN, 4),
        (b",", ConfigState.BROKEN, 0),
        (b"[]", ConfigState.BROKEN, 0),
        (b"7", ConfigState.BROKEN, 0),
    ],
)
def test_damage_is_classified_with_its_position(text: bytes, condition: ConfigState, position: int) -> None:
    with pytest.raises(ConfigJsonError) as error:
        cj.parse_config_object(text)
    assert (error.value.condition, error.value.position) == (condition, position)
    assert str(error.value).endswith(f"(byte {position})")


@pytest.mark.parametrize("text", FASTJSON1 + FASTJSON2)
def test_every_cut_of_a_real_file_is_a_cut(text: bytes) -> None:
    cj.parse_config_object(text)
    for stop in range(1, len(text)):
        for cut in (text[:stop], text[:stop].ljust(len(text), b"\0")):
            with pytest.raises(ConfigJsonError) as error:
                cj.parse_config_object(cut)
            assert error.value.condition is ConfigState.CUT


@pytest.mark.parametrize(
    ("text", "position"),
    [
        (b"{" * 10_000_000, 1),
        (b"[" * 10_000_000, cj.MAX_DEPTH),
        (b"{0:" * 1_000_000, 3 * cj.MAX_DEPTH),
        (b'{0:"' + b'\\"' * 500_000, 3),
        (b"{0:'" + b"\\" * 1_000_001, 3),
        (b'""' * 1_000_000, 2),
        (b"," * 1_000_000, 0),
        (b"{" + b"/* " * 1_000_000, 1),
        (b"{" + b" " * 1_000_000 + b"/", 1_000_001),
        (b"{" + b",0:0" * 100_000, 400_001),
    ],
    ids=str.split("braces brackets objects quotes backslashes strings commas comments blanks entries"),
)
def test_hostile_text_ends_with_a_position(text: bytes, position: int) -> None:
    with pytest.raises(ConfigJsonError) as error:
        cj.parse_config_json(text)
    assert error.value.position == position


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
keyed = st.recursive(
    st.integers(-9, 9) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.integers(-99, 99), inner, max_size=3),
    max_leaves=10,
)


def with_text_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): with_text_keys(item) for key, item in value.items()}
    return [with_text_keys(item) for item in value] if isinstance(value, list) else value


@given(plain)
def test_strict_json_reads_the_same(value: Any) -> None:
    text = orjson.dumps(value)
    assert cj.parse_config_json(text) == value
    # an additional comma around it forces the tolerant parser, which must have the same result
    assert cj.parse_config_json(b"[" + text + b",]") == [value]


@given(keyed, st.sampled_from(["fastjson1", "fastjson2"]))
def test_written_text_reads_back(value: Any, style: Any) -> None:
    assert cj.parse_config_json(cj.build_config_json(value, style)) == with_text_keys(value)


@given(st.text(alphabet="{}[],:\"'\\/*\n 01ax\0", max_size=30))
def test_any_text_gives_a_value_or_a_position(text: str) -> None:
    data = text.encode()
    try:
        value = cj.parse_config_json(data)
    except ConfigJsonError as e:
        assert 0 <= e.position <= len(data)
    else:
        assert json.loads(json.dumps(value)) == value


def test_writer_refuses_endless_depth() -> None:
    value: JsonWritable = 1
    for _ in range(cj.MAX_DEPTH + 1):
        value = [value]
    with pytest.raises(ValueError, match="nested deeper than 256"):
        cj.build_config_json(value)


def test_integer_keys_turn_only_if_all_are_integers() -> None:
    assert cj.integer_keys({"0": 1, "-1": 2}) == {0: 1, -1: 2}
    assert cj.integer_keys({"0": 1, "x": 2}) == {"0": 1, "x": 2}
    assert cj.integer_keys({}) == {}


def test_integer_keys_are_quoted_and_texts_that_look_like_them_stay() -> None:
    text = b'{"{0:7}":{0:7, 12 :8,\n3:{4:"5,6:7\\"{8:9"}},"t":[{1:2},{3:4}]}'
    assert cj.parse_config_json(text) == {
        "{0:7}": {"0": 7, "12": 8, "3": {"4": '5,6:7"{8:9'}},
        "t": [{"1": 2}, {"3": 4}],
    }
