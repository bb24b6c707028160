"""Topics that version 2 of the configuration did not store: a whole broker does not know them after a restart."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.command import run_json
from tests.real_broker.whole_broker import WholeBroker
from tests.rocksdb_rows import need_rocksdict
from tests.stores import copy_store, meta

NAME, TOPIC = "5.5.1-config-v2", "Order_11"


@pytest.mark.slow
@pytest.mark.other_processes
def test_a_broker_does_not_know_topics_that_were_created_automatically(
    tmp_path: Path, whole_broker: Callable[..., WholeBroker]
) -> None:
    need_rocksdict()
    store = copy_store(NAME, tmp_path)
    report: Any = run_json("verify", str(store), exit_code=1)
    [finding] = [f for f in report["findings"] if f["code"] == "CFG-UNSTORED-TOPICS"]
    assert TOPIC in finding["facts"]["topics"]
    conf = {**meta(NAME).broker_conf, "autoCreateTopicEnable": "false"}
    with whole_broker("5.5.1", store, conf) as broker, pytest.raises(subprocess.TimeoutExpired):
        broker.run_java("Client", "read", broker.name_server, TOPIC, timeout=60)  # waits for a route to the topic
    with whole_broker("5.5.1", store, meta(NAME).broker_conf) as broker:
        broker.produce(TOPIC, 1)  # creates the topic again
        assert len(broker.read(TOPIC)) > 10
