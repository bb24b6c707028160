"""Whole brokers start with changed offsets, and the consumers of the groups continue where the plan said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.command import run_json
from tests.real_broker.whole_broker import WholeBroker
from tests.rocksdb_rows import need_rocksdict
from tests.stores import copy_store, meta

TOPIC, GROUP = "Order_11", "CG_part_11"


@pytest.mark.slow
@pytest.mark.other_processes
@pytest.mark.parametrize("name", ["4.9.7-clean", "5.4.0-clean", "5.4.0-rocksdb", "5.5.1-clean", "5.5.1-config-v2"])
def test_consumers_continue_at_the_new_offsets(
    name: str, tmp_path: Path, whole_broker: Callable[..., WholeBroker]
) -> None:
    need_rocksdict()
    made = meta(name)
    store = copy_store(name, tmp_path)
    run_json("offsets", str(store), "--set", GROUP, TOPIC, "--to", "3", "--apply", exit_code=0)
    run_json("offsets", str(store), "--set", GROUP, TOPIC, "--to", "latest", "--queue", "2", "--apply", exit_code=0)
    run_json("offsets", str(store), "--clone", GROUP, "CG_new", "--apply", exit_code=0)
    found: Any = run_json("offsets", str(store), "--group", GROUP, "--topic", TOPIC, exit_code=0)["offsets"]
    wanted = {(row["queue_id"], n) for row in found for n in range(row["offset"], row["max"])}
    assert wanted
    assert not any(queue_id == 2 for queue_id, _ in wanted)
    with whole_broker(made.version, store, made.broker_conf) as broker:
        broker.produce(TOPIC, 1)  # creates the topic again: version 2 of the configuration does not keep it
        for group in (GROUP, "CG_new"):
            received = {(m.queue_id, m.queue_offset) for m in broker.resume(TOPIC, group)}
            assert wanted <= received  # a delayed message may be delivered meanwhile
            assert min(n for q, n in received if q == 1) == 3
