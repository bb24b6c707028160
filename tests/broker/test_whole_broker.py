"""A whole broker starts on a copied fixture, serves what is in it and takes more."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.broker.whole_broker import BrokerDidNotStart, ClientMessage, WholeBroker
from tests.stores import copy_store, meta

NewBroker = Callable[..., WholeBroker]


def by_queue(messages: list[ClientMessage]) -> dict[int, list[int]]:
    queues: dict[int, list[int]] = defaultdict(list)
    for message in messages:
        queues[message.queue_id].append(message.queue_offset)
    return queues


@pytest.mark.slow
@pytest.mark.parametrize("name", ["4.9.7-dledger", "5.4.0-killed"])
def test_broker_serves_a_fixture_and_takes_more(name: str, tmp_path: Path, whole_broker: NewBroker) -> None:
    made = meta(name)
    store = copy_store(name, tmp_path)
    with whole_broker(made.version, store, made.broker_conf) as broker:
        acknowledged = broker.produce("Order_11", 8)
        read = broker.read("Order_11")
    for queue_id, offsets in by_queue(read).items():
        recorded = made.oracle_start.queues[f"Order_11/{queue_id}"].max
        assert offsets == list(range(len(offsets)))
        assert len(offsets) >= recorded  # more than recorded: a broker delivers the delayed messages that are due
    seen = {(message.queue_id, message.queue_offset, message.body_crc) for message in read}
    assert len(acknowledged) == 8
    assert seen >= {(message.queue_id, message.queue_offset, message.body_crc) for message in acknowledged}
    assert not (store / "abort").exists()


def test_broker_that_does_not_start_says_why(tmp_path: Path, whole_broker: NewBroker) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    (store / "commitlog" / "notes.txt").write_text("left by a person")
    with pytest.raises(BrokerDidNotStart) as caught, whole_broker("5.4.0", store, meta("5.4.0-clean").broker_conf):
        pass
    assert caught.value.exit_code == 253
