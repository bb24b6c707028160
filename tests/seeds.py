"""The one seed behind every random choice of the tests.

RMQSTORE_SEED    not set: the same choices in every run (`make test`)
                 new: new ones, whose seed the summary and every failure print (`make test-all`)
                 N: those of the run that printed N
"""

from __future__ import annotations

import os
import random

NAME = "RMQSTORE_SEED"
_STEP = 5040
"""A multiple of all small numbers: a test that does one thing for even seeds and another for odd ones does both."""


def chosen() -> int:
    """The seed of this process; a new one is left in the environment."""
    said = os.environ.get(NAME, "")
    if said == "new":
        said = os.environ[NAME] = str(random.SystemRandom().randrange(1, 1 << 24))  # workers and children inherit it
    return int(said or 0)


SEED = chosen()


def fresh(seed: int) -> int:
    """The seed that takes the place of a test's own fixed one; the same one where RMQSTORE_SEED is not set."""
    return seed + SEED * _STEP


def seeds(count: int) -> range:
    """`count` seeds; 0, 1, 2, … where RMQSTORE_SEED is not set."""
    return range(fresh(0), fresh(count))


def examples(count: int) -> int:
    """How many examples Hypothesis tries: `count` in a run with a seed, a quarter of them in a quick run."""
    return count if SEED else count // 4
