"""Consume queue extensions of the real broker: kept if they are sound, otherwise replaced by tags codes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from rmqstore.formats import consumequeue
from rmqstore.repair.journal import journal
from tests import damage
from tests.command import run_json
from tests.real_broker.oracle import Oracle, OracleResult, Setting
from tests.real_broker.oracle_server import OracleServers
from tests.repair.salvaging import log_faults
from tests.repair.trees import look as snapshot
from tests.stores import copy_store, meta

QUEUE = "Order_11/1"
EXT = {"enableConsumeQueueExt": True, "mappedFileSizeConsumeQueueExt": 4096, "bitMapLengthConsumeQueueExt": 64}


def with_extensions(version: str, target: Path, real: Oracle) -> Path:
    """Create a store whose messages the real broker dispatched again with extensions enabled."""
    store = copy_store(f"{version}-clean", target)
    shutil.rmtree(store / "consumequeue")
    (store / "abort").touch()
    (store / "checkpoint").write_bytes(bytes(4096))
    result = load(real, version, store)
    assert (result.load, result.crash) == (True, None)
    assert sorted((store / "consumequeue_ext" / QUEUE).iterdir())
    return store


def load(real: Oracle, version: str, store: Path) -> OracleResult:
    return real.load(store, settings_of(version), start=True, shutdown=True)


def settings_of(version: str) -> dict[str, Setting]:
    more: dict[str, Setting] = {"commitLogRecoverMaxNum": 1000} if version >= "5.4.0" else {}
    return {**meta(f"{version}-clean").oracle_args, **EXT, **more}


def addresses(store: Path) -> list[bool]:
    """Return for each unit of the queue whether it refers to the extension."""
    raw = b"".join(path.read_bytes() for path in sorted((store / "consumequeue" / QUEUE).iterdir()))
    units = consumequeue.UNIT.array(raw)
    units = units[units["size"] > 0]
    return list((units["tags_code"].astype(np.int64) <= consumequeue.EXT_MAX_ADDRESS).tolist())


@pytest.mark.parametrize(
    "version", ["5.1.4", *(pytest.param(v, marks=pytest.mark.slow) for v in ("4.9.7", "5.4.0", "5.5.1"))]
)
def test_damaged_extension_loses_only_bit_maps(
    version: str, tmp_path: Path, oracle: Callable[[str], Oracle], oracle_servers: OracleServers
) -> None:
    real = oracle(version)
    store = with_extensions(version, tmp_path, real)
    assert log_faults(store) == {}
    count = len(addresses(store))
    assert addresses(store) == [True] * count
    unit = consumequeue.EXT_UNIT.size
    damage.garble(sorted((store / "consumequeue_ext" / QUEUE).iterdir())[0], 5 * unit, 2)
    shutil.rmtree(store / "consumequeue" / "Order_11" / "2")
    counts = log_faults(store)
    assert counts["CQ-EXT"] > 1
    done = run_json("recover", str(store), "--apply", exit_code=0)
    assert log_faults(store) == {}
    assert addresses(store) == [True] * 5 + [False] * (count - 5)
    notes = done["notes"]
    assert isinstance(notes, list)
    replaced = f"{QUEUE}: the tags code replaces an address where the extension holds nothing, in {count - 5} units"
    assert any(note.startswith(replaced) for note in notes)
    assert any(note.startswith("Order_11/2: its units get plain tags codes") for note in notes)
    result = oracle_servers.load(version, store, settings_of(version))
    assert (result.load, result.crash) == (True, None)
    expected = meta(f"{version}-clean").oracle_start.queues
    ends = {queue: (r.min, r.max, r.readable) for queue, r in result.queues.items()}
    assert ends == {queue: (r.min, r.max, r.readable) for queue, r in expected.items()}


def test_repair_of_an_extension_is_undone(tmp_path: Path, oracle: Callable[[str], Oracle]) -> None:
    store = with_extensions("5.1.4", tmp_path, oracle("5.1.4"))
    damage.garble(sorted((store / "consumequeue_ext" / QUEUE).iterdir())[0], 2 * consumequeue.EXT_UNIT.size, 2)
    before = snapshot(store)
    done = run_json("recover", str(store), "--apply", exit_code=0)
    journal.undo(Path(str(done["journal"])))
    assert snapshot(store) == before
