"""Random damage of queues and index costs nothing: the real store reads all."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import damage
from tests.broker.oracle import Oracle
from tests.command import run_json
from tests.stores import copy_store, meta, write_broker_conf


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_random_damage_of_queues_and_index_costs_nothing(
    seed: int, tmp_path: Path, oracle: Callable[[str], Oracle]
) -> None:
    name = random.Random(seed).choice(["5.4.0-clean", "4.9.7-clean", "5.1.4-clean", "5.4.0-formats"])
    store = copy_store(name, tmp_path)
    conf = write_broker_conf(name, store)
    damage_parts(store, seed)
    done = run_json("recover", str(store), "-c", str(conf), "--apply", exit_code=0)
    assert done["loss"]["messages"] == 0  # type: ignore[index]
    made = meta(name)
    result = oracle(made.version).load(store, made.oracle_args, start=True, shutdown=True)
    assert (result.load, result.crash, result.readable) == (True, None, made.oracle_start.readable)


def damage_parts(store: Path, seed: int) -> None:
    """A few wounds in consume queues, batch queues and index files: flips, zeros, cuts, swaps, missing files."""
    dice = random.Random(seed)
    trees = [store / "consumequeue", store / "index", store / "batchconsumequeue"]
    files = [p for t in trees if t.is_dir() for p in sorted(t.rglob("*")) if p.is_file() and p.stat().st_size]
    for path in dice.sample(files, 5):
        used = len(path.read_bytes().rstrip(b"\0"))
        at = dice.randrange(max(1, used))
        match dice.choice(["flip", "garble", "cut", "delete", "grow", "swap"]):
            case "flip":
                damage.flip(path, at, dice.randrange(8))
            case "garble":
                damage.garble(path, at, min(60, path.stat().st_size - at), seed + 1)
            case "cut":
                damage.cut(path, at)
            case "delete":
                path.unlink()
            case "grow":
                damage.grow(path, 20)
            case "swap":
                other = next(p for p in files if p != path and p.exists() and p.stat().st_size == path.stat().st_size)
                one, two = path.read_bytes(), other.read_bytes()
                path.write_bytes(two)
                other.write_bytes(one)
