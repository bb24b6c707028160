"""A whole broker delivers no delayed message a second time after the repair of delayOffset.json."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rmqstore.formats.properties import UNIQ_KEY, parse_properties
from tests.command import run_json
from tests.real_broker.whole_broker import WholeBroker
from tests.repair.salvaging import rows
from tests.stores import copy_store, meta

_ROUNDS = 40
NewBroker = Callable[..., WholeBroker]


Key = tuple[str, str, int]


def deliveries(store: Path) -> dict[Key, int]:
    """Count the delivered copies of each message of a delay level: by its id, topic and number of retries."""
    found: dict[Key, int] = {}
    for row in rows(store):
        known = parse_properties(row.message.properties)
        key = known.get(UNIQ_KEY, ""), known.get("REAL_TOPIC", ""), row.message.reconsume_times
        if row.message.topic_text == "SCHEDULE_TOPIC_XXXX":
            found[key] = 0
        elif row.message.topic_text == known.get("REAL_TOPIC") and key in found:
            found[key] += 1
    return found


@pytest.mark.slow
@pytest.mark.parametrize("repaired", [True, False], ids=["repaired", "not-repaired"])
@pytest.mark.parametrize(
    ("name", "left", "lacking"),
    [
        ("4.9.7-dledger-mixed", "", 24),
        ("5.1.4-formats", '{"offsetTable":{3:4}}', 6),
        ("5.4.0-formats", "{}", 10),
        ("5.5.1-formats", None, 10),
    ],
)
def test_a_broker_delivers_each_message_once(
    name: str, left: str | None, lacking: int, repaired: bool, tmp_path: Path, whole_broker: NewBroker
) -> None:
    """`lacking`: messages delivered before, in the levels without an offset. All others are due by now."""
    store = copy_store(name, tmp_path)
    for file in ("delayOffset.json", "delayOffset.json.bak"):
        (store / "config" / file).unlink(missing_ok=True)
    if left is not None:
        (store / "config" / "delayOffset.json").write_text(left)
    if repaired:
        run_json("recover", str(store), "--apply", exit_code=0)
    before = deliveries(store)
    assert set(before.values()) == {0, 1}
    again = 0 if repaired else lacking
    with whole_broker(meta(name).version, store, meta(name).broker_conf) as broker:
        for _ in range(_ROUNDS):
            broker.read("Order_11")  # takes a while
            if sum(deliveries(store).values()) >= len(before) + again:
                break
    after = deliveries(store)
    assert min(after.values()) == 1
    assert sum(count - 1 for count in after.values()) == again
