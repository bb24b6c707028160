"""Entries at the top of a store that no broker creates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmqstore.files.store import open_store, unknown_entries
from tests import command
from tests.command import run
from tests.damage import zero
from tests.stores import BROKER_STORES, unpack
from tests.untouched import assert_untouched


def answer(*words: str, exit_code: int) -> dict[str, Any]:
    return dict(command.run_json(*words, exit_code=exit_code))


def made(root: Path, name: str) -> None:
    """Create a file, or a directory if the name ends with a slash."""
    path = root / name
    if name.endswith("/"):
        path.mkdir(parents=True)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (["positions/CURRENT", "positions/MANIFEST-000004"], "it contains a RocksDB"),
        ([f"newqueue/Topic/0/{0:020}"], "it contains files named by offset"),
        ([f"commitlog2/{1 << 20:020}"], "it contains files named by offset"),
        ([f"{0:020}"], "its name is an offset"),
    ],
)
def test_what_may_hold_positions_is_not_clean_and_not_cut(names: list[str], why: str, store: Path) -> None:
    for name in names:
        made(store, name)
    top = names[0].partition("/")[0]
    report = answer("verify", str(store), exit_code=4)
    assert report["clean"] is False and report["counts"] == {"DIR-FOREIGN-ENTRY": 1}
    assert report["unchecked"] == [f"{top}: unknown, {why}: it may hold positions in the log"]
    assert report["unchecked"][0] in answer("info", str(store), exit_code=4)["unchecked"]
    log = sorted((store / "commitlog").iterdir())
    zero(log[-1], 0, log[-1].stat().st_size)  # the last messages are lost: the log ends earlier
    with assert_untouched(store):
        refused = run("recover", str(store), "--strategy", "truncate")
    assert refused.exit_code == 5, refused.output
    assert top in refused.stderr and why in refused.stderr


@pytest.mark.parametrize("name", ["notes", "empty/", "scripts/run"])
def test_other_unknown_entries_are_named(name: str, store: Path) -> None:
    made(store, name)
    top = name.partition("/")[0]
    report = answer("verify", str(store), exit_code=0)
    assert report["clean"] is True and report["counts"] == {"DIR-FOREIGN-ENTRY": 1}
    assert report["findings"][0]["file"] == top
    assert f"{top} is not a broker file" in answer("info", str(store), exit_code=0)["notes"]


@pytest.mark.parametrize(
    "name",
    [
        *("lost+found/", ".DS_Store", "logs/broker.log", "topics.json~", ".broker.conf.swp", "README.txt", "abort.bak"),
        *(f"commitlog.bak/{0:020}", f"consumequeue_old/T/0/{0:020}", "checkpoint.20261123", f"index-old/{0:017}"),
        "store.tar.gz",
    ],
)
def test_what_operators_leave_does_not_alarm(name: str, store: Path) -> None:
    made(store, name)
    assert answer("verify", str(store), exit_code=0)["counts"] == {}


@pytest.mark.parametrize("name", BROKER_STORES)
def test_brokers_create_nothing_unknown(name: str) -> None:
    assert unknown_entries(open_store(unpack(name))) == []
