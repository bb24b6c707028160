"""Random damage to small files: the forecast compared with the real classes.

python -m tests.real_broker.test_small_files COUNT [SEED]   records the results for new damage
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.forecast.small_files import (
    ROCKSDB,
    SmallAnswer,
    SmallDamage,
    forecast_of,
    load_answers,
    random_damage,
    save_answers,
)
from tests.real_broker.oracle import Oracle
from tests.rocksdb_rows import need_rocksdict
from tests.seeds import seeds
from tests.stores import copy_store, meta

MESSAGES = 292


def ask(oracle: Oracle, damage: SmallDamage, store: Path) -> SmallAnswer:
    """Return what the real classes do with a damaged copy."""
    result = oracle.load(store, meta(damage.store).oracle_args, start="dledger" not in damage.store)
    starts = result.load and result.crash is None
    readable = result.readable if damage.store == ROCKSDB else None
    return SmallAnswer(starts, result.max_phy if starts else None, readable if starts else None)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(6))
def test_forecast_of_random_damage_is_what_the_broker_does(
    seed: int, tmp_path: Path, oracle: Callable[[str], Oracle]
) -> None:
    need_rocksdict()
    damage = random_damage(random.Random(seed))
    store = copy_store(damage.store, tmp_path)
    damage.apply(store)
    forecast, missing = forecast_of(damage, store)
    answer = ask(oracle(damage.version), damage, store)
    assert (seed, str(damage), forecast.starts) == (seed, str(damage), answer.starts)
    if forecast.starts:
        assert forecast.max_offset in (None, answer.max_offset), (seed, str(damage))
        assert (missing > 0) == (answer.readable not in (None, MESSAGES)), (seed, str(damage))


def _record(count: int, seed: int) -> None:
    answers, rng = load_answers(), random.Random(seed)
    for _ in range(count):
        damage = random_damage(rng)
        with tempfile.TemporaryDirectory() as folder:
            store = copy_store(damage.store, Path(folder))
            damage.apply(store)
            forecast, missing = forecast_of(damage, store)
            answers[damage] = ask(Oracle(damage.version), damage, store)
        print(damage, forecast, missing, answers[damage], flush=True)
        save_answers(answers)


if __name__ == "__main__":
    _record(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 32))
