"""Check points, acknowledgements and rows of POP: bytes that brokers of 5.4.0 and 5.5.1 wrote."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rmqstore.formats import pop

CHECK_POINT = (
    b'{"bm":5,"bn":"broker-11","c":"PopRawGroup_11","d":[0,1,2,3,4,5,6,7],"it":2000,"n":8,"pt":1795466876921,"q":1,'
    b'"reviveTime":1795466878921,"ro":0,"so":16,"sp":false,"t":"PopRaw_11"}'
)
ACK = b'{"ao":17,"bn":"broker-11","c":"PopRawGroup_11","pt":1795466876921,"q":1,"so":16,"t":"PopRaw_11"}'
KEY = b"\x00\x00\x01\xa2\n5\xb1!PopRawGroup_11@PopRaw_11@\x00\x00\x00\x01@\x00\x00\x00\x00\x00\x00\x00\x14"
VALUE = (
    b'{"popTime":1795467020641,"groupId":"PopRawGroup_11","topicId":"PopRaw_11","queueId":1,"retryFlag":0,'
    b'"invisibleTime":600000,"offset":20,"attemptTimes":0,"suspend":false}'
)


def test_a_check_point_names_its_messages_and_those_already_acknowledged() -> None:
    point = pop.parse_check_point(CHECK_POINT)
    assert point is not None
    assert point.key == pop.PopKey("PopRawGroup_11", "PopRaw_11", 1, 16, 1795466876921)
    assert (point.visible_time, point.offsets) == (1795466878921, tuple(range(16, 24)))
    assert point.acknowledged == {16, 18}


def test_a_check_point_without_differences_has_consecutive_messages() -> None:
    point = pop.parse_check_point(CHECK_POINT.replace(b'"d":[0,1,2,3,4,5,6,7],', b"").replace(b'"n":8', b'"n":2'))
    assert point is not None
    assert point.offsets == (16, 17)


def test_an_acknowledgement_belongs_to_its_check_point() -> None:
    point, ack = pop.parse_check_point(CHECK_POINT), pop.parse_acknowledgement(ACK)
    assert point is not None
    assert ack is not None
    assert (ack.key, ack.offsets) == (point.key, (17,))
    several = pop.parse_acknowledgement(ACK.replace(b'"ao":17', b'"aol":[17,19]'))
    assert several is not None
    assert several.offsets == (17, 19)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"{}", CHECK_POINT.replace(b'"n":8', b'"n":9'), CHECK_POINT[:-30]])
def test_a_body_of_another_form_is_no_check_point(body: bytes) -> None:
    assert pop.parse_check_point(body) is None


@pytest.mark.parametrize("body", [b"", b"{}", ACK.replace(b"ao", b"xx"), ACK.replace(b'"q":1', b'"q":"one"')])
def test_a_body_of_another_form_is_no_acknowledgement(body: bytes) -> None:
    assert pop.parse_acknowledgement(body) is None


def test_a_row_of_the_kv_service_is_parsed_and_its_key_built() -> None:
    row = pop.parse_pop_row(KEY, VALUE)
    assert row == pop.PopRow("PopRawGroup_11", "PopRaw_11", 1, 20, 1795467020641, 1795467620641, 0)
    assert pop.build_pop_key(row) == KEY


def test_names_with_the_separator_are_those_of_the_value() -> None:
    row = pop.PopRow("a@b", "c@d", 0, 3, 1, 2, 0)
    value = VALUE.replace(b"PopRawGroup_11", b"a@b").replace(b"PopRaw_11", b"c@d")
    value = value.replace(b'"queueId":1', b'"queueId":0').replace(b'"offset":20', b'"offset":3')
    value = value.replace(b"1795467020641", b"1").replace(b"600000", b"1")
    assert pop.parse_pop_row(pop.build_pop_key(row), value) == row


@pytest.mark.parametrize("change", [{"queue_offset": 21}, {"queue_id": 2}, {"topic": "Other"}, {"visible_time": 5}])
def test_a_key_that_contradicts_its_value_is_no_row(change: dict[str, int]) -> None:
    row = pop.parse_pop_row(KEY, VALUE)
    assert row is not None
    assert pop.parse_pop_row(pop.build_pop_key(replace(row, **change)), VALUE) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(("key", "value"), [(b"", VALUE), (KEY[:20], VALUE), (KEY, b"{"), (KEY, b"{}")])
def test_other_bytes_are_no_row(key: bytes, value: bytes) -> None:
    assert pop.parse_pop_row(key, value) is None
