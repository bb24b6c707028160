"""Timer and half messages with rows in rocksdbstore/: after a repair, a whole broker delivers each of them.

The repair keeps the rows of all messages that it keeps, also if the log then ends earlier.
"""

from __future__ import annotations

import time
import zlib
from collections import Counter
from pathlib import Path

import pytest

from rmqstore.repair.journal.journal import apply
from tests import damage
from tests.cases.case import locate_record
from tests.planning import look, loss_of, plan_of
from tests.real_broker.whole_broker import WholeBroker
from tests.repair.salvaging import rows
from tests.rocksdb_rows import need_rocksdict
from tests.stores import copy_store, meta

need_rocksdict()
NAMES = ("5.4.0-rocksdb", "5.5.1-rocksdb")
TOPIC, COUNT = "Later", 5
DELAY_MS = 60_000
ROWS = {
    "timerRocksDBEnable": "true",
    "transRocksDBEnable": "true",
    "transactionTimeOut": "20000",
    "transactionCheckMax": "1000",
    "transactionCheckInterval": "3000",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("cut", "origin"), [(False, "true"), (False, "false"), (True, "true"), (True, "false")])
def test_every_later_message_is_delivered_after_a_repair(name: str, cut: bool, origin: str, tmp_path: Path) -> None:
    store, version = copy_store(name, tmp_path), meta(name).version
    conf = {**meta(name).broker_conf, **ROWS, "transWriteOriginTransHalfEnable": origin}
    with WholeBroker(version, store, conf) as broker:
        broker.produce("Order_11", 1)
        broker.run_java("Later", "timed", broker.name_server, TOPIC, str(COUNT), str(DELAY_MS))
        due = time.time() + DELAY_MS / 1000
        broker.run_java("Later", "half", broker.name_server, TOPIC, str(COUNT))
        broker.produce("Order_11", 1)
    verified = look(store, conf)[1]
    assert verified.report.unchecked == []
    assert verified.rows is not None and verified.rows.counts["timer"] == COUNT
    assert verified.rows.counts["trans"] == (COUNT if origin == "false" else 0)
    if cut:
        last = rows(store)[-1]
        assert last.slot[0] == "Order_11"
        damage.garble(last.path, last.at, last.size)
    else:
        path, at = locate_record(store / "commitlog", "record 100 body")
        damage.garble(path, at + 1, 40)
    assert loss_of(store, conf).messages == 1
    apply(plan_of(store, conf))
    with WholeBroker(version, store, conf) as broker:
        broker.run_java("Later", "decide", broker.name_server, "45")
        time.sleep(max(0.0, due + 15 - time.time()))
        found = Counter(message.body_crc for message in broker.read(TOPIC))
    assert {kind: [found[crc(kind, n)] for n in range(COUNT)] for kind in ("timed", "half")} == {
        "timed": [1] * COUNT,
        "half": [1] * COUNT,
    }


def crc(kind: str, number: int) -> int:
    return zlib.crc32(f"{kind} {number}".encode()) & 0x7FFFFFFF
