"""Properties that the services of the broker need."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.formats import properties, services
from rmqstore.formats.properties import HALF_TOPIC, OP_HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC

DELAYED = {"TAGS": "a", "REAL_TOPIC": "Orders", "REAL_QID": "1", "DELAY": "3"}
TIMED = {"REAL_TOPIC": "Orders", "REAL_QID": "1", "TIMER_OUT_MS": "1795245023942"}
NAMES = [*DELAYED, "TIMER_OUT_MS", "TRANSACTION_CHECK_TIMES", "XEAL_QID", "REAL_QIDX"]
VALUES = [
    "1",
    "-1",
    "",
    "x",
    "1x",
    "999999999",
    "99999999999",
    "1795245023942",
    str(2**31 - 1),
    "\N{ARABIC-INDIC DIGIT ONE}",
]


@pytest.mark.parametrize(
    ("topic", "found", "missing"),
    [
        (SCHEDULE_TOPIC, DELAYED, []),
        (SCHEDULE_TOPIC, DELAYED | {"REAL_QID": "1x"}, ["REAL_QID"]),
        (SCHEDULE_TOPIC, {"TAGS": "a"}, ["REAL_TOPIC", "REAL_QID", "DELAY"]),
        (TIMER_TOPIC, TIMED, []),
        (TIMER_TOPIC, TIMED | {"TIMER_OUT_MS": "soon"}, ["TIMER_OUT_MS"]),
        (HALF_TOPIC, {"REAL_QID": "0"}, ["REAL_TOPIC"]),
        (HALF_TOPIC, {"TRANSACTION_CHECK_TIMES": services.NEVER_CHECKED}, []),
        (OP_HALF_TOPIC, {"TAGS": "d"}, []),
        (OP_HALF_TOPIC, {}, ["TAGS"]),
        ("Orders", {}, []),
    ],
)
def test_missing_properties(topic: str, found: dict[str, str], missing: list[str]) -> None:
    assert services.missing_properties(topic, found) == missing


@given(
    st.sampled_from([SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC, OP_HALF_TOPIC, "Orders"]),
    st.dictionaries(st.sampled_from(NAMES), st.sampled_from(VALUES)),
    st.binary(max_size=3),
    st.booleans(),
)
def test_missing_in_text_equals_missing_properties_of_the_parsed_text(
    topic: str, found: dict[str, str], around: bytes, last_separator: bool
) -> None:
    text = properties.build_properties(found, last_separator=last_separator)
    data = bytearray(around + text + around)
    start = len(around)
    expected = services.missing_properties(topic, properties.parse_properties(text))
    assert services.missing_in_text(topic, data, start, start + len(text)) == expected
