"""The one seed for all random choices of the tests.

RMQSTORE_SEED    not set: the same choices in every run (`make test`)
                 new: a new seed, which the summary and every failure print (`make test-all`)
                 N: repeat the run that printed N
"""

from __future__ import annotations

import os
import random

NAME = "RMQSTORE_SEED"
_STEP = 5040
"""A multiple of all small numbers, so that `fresh` keeps a seed's remainders (tests distinguish, e.g., even seeds)."""


def chosen() -> int:
    """Return the seed of this process; store a new seed in the environment for child processes."""
    given = os.environ.get(NAME, "")
    if given == "new":
        given = os.environ[NAME] = str(random.SystemRandom().randrange(1, 1 << 24))  # workers and children inherit it
    return int(given or 0)


SEED = chosen()


def fresh(seed: int) -> int:
    """Combine a test's fixed seed with RMQSTORE_SEED; without the variable, return the fixed seed."""
    return seed + SEED * _STEP


def seeds(count: int) -> range:
    """Return `count` seeds; 0, 1, 2, … if RMQSTORE_SEED is not set."""
    return range(fresh(0), fresh(count))


def examples(count: int) -> int:
    """Return the number of examples for Hypothesis: `count` in a run with a seed, otherwise a quarter."""
    return count if SEED else count // 4
