"""Random damage: what a plan says of the store after it is what verify finds after it was applied, finding by finding.

RMQSTORE_ROUNDS: rounds per store and kind of damage.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.command import run
from tests.real_broker.combined_faults import break_at_once
from tests.real_broker.random_damage import damage_any_file, damage_by_failures
from tests.rocksdb_rows import need_rocksdict
from tests.seeds import seeds
from tests.stores import copy_store

ROUNDS = int(os.environ.get("RMQSTORE_ROUNDS", "1"))
STORES = ("5.4.0-clean", "5.1.4-killed", "4.9.7-dledger", "5.4.0-dledger-mixed", "5.4.0-rocksdb", "5.4.0-formats")
KINDS: dict[str, Callable[[Path, int], Sequence[str]]] = {
    "any file": damage_any_file,
    "failures": damage_by_failures,
    "at once": break_at_once,
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", STORES)
def test_a_plan_says_what_verify_finds_after_it(name: str, kind: str, tmp_path: Path) -> None:
    if "rocksdb" in name:
        need_rocksdict()
    for seed in seeds(ROUNDS):
        one_round(name, kind, seed, tmp_path / str(seed))


@pytest.mark.parametrize("kind", KINDS)
def test_a_plan_says_what_verify_finds_after_it_in_one_round(kind: str, tmp_path: Path) -> None:
    one_round("5.4.0-clean", kind, 1, tmp_path)


def one_round(name: str, kind: str, seed: int, folder: Path) -> None:
    store = copy_store(name, folder)
    said = KINDS[kind](store, seed)
    words = ("recover", str(store), "--role", "single", "--accept-fillers", "--json")
    planned = run(*words)
    digest = json.loads(planned.stdout).get("digest") if planned.exit_code == 1 else ""
    if digest:
        done = run(*words, "--apply", "--force", str(digest))
        assert done.exit_code in (0, 1), (name, seed, said, done.stderr)
        assert json.loads(done.stdout)["differs"] == [], (name, seed, said)
    else:
        assert planned.exit_code in (0, 4, 5), (name, seed, said, planned.output)
    shutil.rmtree(folder, ignore_errors=True)
