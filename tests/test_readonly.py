"""Commands that read leave every byte, name, mode and time of a store as it was; and the proof itself is sharp."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.command import run
from tests.damage import cut, flip
from tests.stores import copy_store
from tests.untouched import assert_untouched

READING = {
    "info": [[], ["--json"]],
    "verify": [[], ["--json"], ["--quick"]],
    "dump": [
        [],
        ["--positions"],
        *(["--what", what] for what in ("commitlog", "consumequeue", "index", "dledger", "checkpoint", "config")),
    ],
    "recover": [[], ["--json"]],  # without --apply it only says what it would do
}


@pytest.mark.parametrize("name", ["4.9.7-killed", "5.4.0-clean", "5.1.4-dledger-mixed"])
@pytest.mark.parametrize(("command", "options"), [(c, o) for c, many in READING.items() for o in many])
def test_reading_changes_nothing(name: str, command: str, options: list[str], tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    flip(next(iter(sorted((store / "commitlog").iterdir()))), 200)
    with assert_untouched(store):
        result = run(command, str(store), *options)
    assert result.exit_code in (0, 1, 4), result.stderr


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
def test_assert_untouched_notices(change: object, tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    assert callable(change)
    with pytest.raises(AssertionError, match="changed by a command"), assert_untouched(store):
        change(store)


def test_assert_untouched_lets_reading_pass(tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    with assert_untouched(store):
        (store / "checkpoint").read_bytes()
