"""Reading commands change no byte, name, mode or time of a store; the check for changes is tested itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.cluster import Cluster
from tests.command import command_names, run
from tests.damage import cut, flip
from tests.stores import copy_store
from tests.untouched import assert_untouched

STORES = ("4.9.7-killed", "5.4.0-clean", "5.1.4-dledger-mixed")
READING: dict[str, list[list[str]]] = {
    "info": [[], ["--json"]],
    "verify": [[], ["--json"], ["--quick"]],
    "dump": [
        [],
        ["--positions"],
        *(["--what", what] for what in ("commitlog", "consumequeue", "index", "dledger", "checkpoint", "config")),
    ],
    "get": [["0"], ["Order_11/0/3"], ["no-such-id"]],
    "find": [["ord11_42"], ["ord11_42", "--read-log"], ["--grep", "TagA"]],
    "lost": [["--json"], ["--next-start", "--format", "csv"]],
    "doctor": [[], ["--json"], ["-q"]],
    "pending": [[], ["--json"]],
    "report": [["-o", "PAGE"]],
    "du": [[], ["--plot"], ["--files"], ["--by", "topic", "--by", "hour"]],
    "bundle": [["-o", "BUNDLE"], ["-o", "BUNDLE", "--around", "0"], ["-o", "BUNDLE", "--topic", "Order_11"]],
    "export": [[]],
    "compare": [["OTHER"]],
    "send": [["--dry-run", "CLUSTER"], ["--journal", "JOURNAL", "CLUSTER"]],
    # commands that change a store only print their plan without --apply
    "recover": [[], ["--json"], ["--plan-out", "PLAN"]],
    "journals": [[], ["--prune", "--keep-last", "0"]],
    "rebuild": [["cq"], ["index"], ["checkpoint"]],
    "offsets": [[], ["--write-json", "OFFSETS"], ["--set", "CG_part_11", "Order_11", "--to", "earliest"]],
    "expire": [["--any-hour", "--reserved", "0"]],
    "migrate-to-dledger": [["--self-id", "n0"]],
    "migrate-to-commitlog": [["--output", "NEW", "--dry-run"]],
    "seed": [["SEED", "--role", "slave"]],
    "backup": [["REPO"], ["REPO", "--full", "--json"]],
}
WITHOUT_STORE = {
    "carve",
    "examples",
    "fleet",
    "import",
    "receive",
    "snapshots",
    "restore",
    "undo",
    "resume",
    "pipeline",
}
ELSEWHERE = {"sql"}
"""Needs DuckDB: `tests/cli/test_sql.py` proves that it changes nothing."""


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Damaged stores, shared by all tests, because none may change them."""
    made = {name: copy_store(name, tmp_path_factory.mktemp("stores")) for name in STORES}
    for store in made.values():
        flip(min((store / "commitlog").iterdir()), 200)
    return made


def test_every_command_that_takes_a_store_is_tested_here() -> None:
    assert READING.keys() | WITHOUT_STORE | ELSEWHERE == command_names()


@pytest.mark.quick_rows
@pytest.mark.parametrize("name", STORES)
@pytest.mark.parametrize("words", [(c, *o) for c, many in READING.items() for o in many], ids=" ".join)
def test_nothing_is_changed_without_apply(
    name: str, words: tuple[str, ...], stores: dict[str, Path], tmp_path: Path
) -> None:
    store, (command, *options) = stores[name], words
    places = {"OTHER": str(stores["5.4.0-clean"]), "PLAN": str(tmp_path / "plan.json"), "NEW": str(tmp_path / "new")}
    places["BUNDLE"] = str(tmp_path / "bundle.tar.gz")
    places |= {"REPO": str(tmp_path / "repo"), "SEED": str(tmp_path / "seed")}
    places |= {"PAGE": str(tmp_path / "page.html"), "JOURNAL": str(tmp_path / "journal")}
    places["OFFSETS"] = str(tmp_path / "offsets.json")
    if "CLUSTER" in options:
        options = [*options[:-1], *Cluster(tmp_path / "rocketmq").words]
    with assert_untouched(store):
        result = run(command, str(store), *(places.get(word, word) for word in options))
    assert result.exit_code in (0, 1, 4, 5), result.stderr
    assert result.exit_code != 5 or command.startswith(("migrate", "seed")), result.stderr  # the stores are damaged
    assert (tmp_path / "plan.json").exists() == ("PLAN" in options)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "change",
    [
        lambda store: flip(store / "checkpoint", 3),
        lambda store: cut(store / "checkpoint", 100),
        lambda store: (store / "new").touch(),
        lambda store: (store / "lock").unlink(),
        lambda store: os.utime(store / "checkpoint", ns=(1, 1)),
        lambda store: (store / "checkpoint").chmod(0o600),
        lambda store: (store / "lock").rename(store / "lock2"),
    ],
    ids=["byte", "size", "created", "deleted", "time", "mode", "name"],
)
def test_assert_untouched_notices(change: object, store: Path) -> None:
    assert callable(change)
    with pytest.raises(AssertionError, match="changed by a command"), assert_untouched(store):
        change(store)


def test_assert_untouched_allows_reading(store: Path) -> None:
    with assert_untouched(store):
        (store / "checkpoint").read_bytes()
