"""topicQueueMapping.json against the queues of a store. The text is what the real classes of 5.5.1 write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.command import run_json
from tests.stores import copy_store

MAPPING = (
    '{"dataVersion":{"counter":0,"stateVersion":0,"timestamp":1795916888949},"topicQueueMappingInfoMap":{"Order_11":{'
    '"bname":"broker-11","currIdMap":{},"dirty":false,"epoch":1700000000000,"hostedQueues":{0:[{"bname":"broker-old",'
    '"endOffset":40,"gen":0,"logicOffset":0,"queueId":0,"startOffset":0,"timeOfEnd":-1,"timeOfStart":-1},{"bname":'
    '"broker-11","endOffset":-1,"gen":1,"logicOffset":40,"queueId":0,"startOffset":0,"timeOfEnd":-1,"timeOfStart":-1}],'
    '1:[{"bname":"broker-11","endOffset":-1,"gen":0,"logicOffset":0,"queueId":1,"startOffset":5,"timeOfEnd":-1,'
    '"timeOfStart":-1}]},"scope":"__global__","topic":"Order_11","totalQueues":2}}}'
)


def found(store: Path, text: str, exit_code: int) -> list[tuple[str, Any]]:
    (store / "config" / "topicQueueMapping.json").write_text(text)
    report: Any = run_json("verify", str(store), exit_code=exit_code)
    return [(one["queue"], one["facts"]["reason"]) for one in report["findings"] if one["code"] == "CFG-MAPPING"]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return copy_store("5.5.1-clean", tmp_path)


def test_a_mapping_that_fits_is_no_finding(store: Path) -> None:
    assert found(store, MAPPING, 0) == []


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('"startOffset":5', '"startOffset":50000', ("Order_11/1", "queue-ends")),
        ('"queueId":1', '"queueId":7', ("Order_11/1", "queue-ends")),
        ('"gen":1', '"gen":0', ("Order_11/0", "order")),
        ('"logicOffset":40', '"logicOffset":39', ("Order_11/0", "order")),
        ('"endOffset":40', '"endOffset":-1,"startOffset":-3', ("Order_11/0", "range")),
        ('"startOffset":5', '"startOffset":"x"', ("Order_11/1", "value")),
        ("1:[{", "1:[7,{", ("Order_11/1", "value")),
    ],
)
def test_a_mapping_that_does_not_fit_is_named(old: str, new: str, expected: tuple[str, str], store: Path) -> None:
    text = MAPPING.replace(old, new, 1)
    if old.startswith('"endOffset"'):
        text = text.replace('"queueId":0,"startOffset":0,', '"queueId":0,', 1)
    assert found(store, text, 1) == [expected]


def test_undecided_offsets_and_queues_of_other_brokers_are_not_compared(store: Path) -> None:
    undecided = MAPPING.replace('"logicOffset":40', '"logicOffset":-1')
    assert found(store, undecided, 0) == []
    assert (
        found(
            store,
            MAPPING.replace('"endOffset":40', '"endOffset":40000').replace('"logicOffset":40', '"logicOffset":40000'),
            0,
        )
        == []
    )
