"""The writer, which adds one message at a time, and the rebuild planner, which uses columns, write the same bytes."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from rmqstore.append.dispatch import DispatchOptions
from rmqstore.append.message_store import MessageStore
from rmqstore.checks.examine import examine
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import open_store
from rmqstore.repair.journal.journal import apply
from rmqstore.repair.rebuild_parts import plan_rebuild
from tests.append.rewriting import index_bytes, queue_bytes
from tests.append.small import SMALL, message

CONFIG = BrokerConfig(
    {
        "mappedFileSizeCommitLog": str(1 << 14),
        "mappedFileSizeConsumeQueue": "1000",
        "maxHashSlotNum": "20",
        "maxIndexNum": "60",
        "enableLmq": "true",
        "enableMultiDispatch": "true",
    }
)


@pytest.mark.parametrize("dledger", [None, pytest.param("n0", marks=pytest.mark.slow)])
def test_a_written_store_is_what_rebuild_would_make(dledger: str | None, tmp_path: Path) -> None:
    root, chance = tmp_path / "s", random.Random(5)
    dispatch = DispatchOptions(consume_queue_file_size=1000, lmq=True, tag_key=False)
    with MessageStore.create(root, replace(SMALL, dispatch=dispatch, dledger=dledger)) as store:
        for number in range(400):
            topic = chance.choice(("Order", "Pay", "SCHEDULE_TOPIC_XXXX"))
            one = message(number, size=chance.randrange(6, 600), topic=topic, queue_id=chance.randrange(3))
            one.sys_flag = chance.choice((0, 0, 0, 4, 8, 12))
            more = chance.choice((b"", b"DELAY\x013\x02", b"INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b\x02"))
            one.properties += b"" if one.sys_flag in (4, 12) else more
            if number < 3:
                one.queue_offset = 70 + number * 90 if topic == "Order" else None
            store.put(one)
    before, index = queue_bytes(root), index_bytes(root)
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "index")
    for part in ("cq", "index"):
        opened = open_store(root, CONFIG)
        apply(plan_rebuild(opened, examine(opened), part))
    assert queue_bytes(root) == before
    assert index_bytes(root) == index
