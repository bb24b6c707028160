"""The library's front door: every public name loads, and the words of the command line do the same in Python."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path

import rmqstore
from tests.damage import flip
from tests.stores import copy_store
from tests.untouched import Entry, snapshot


def content(root: Path) -> dict[str, Entry]:
    """All but what an apply and its undo may leave: the journal, and times of the root and of inodes."""
    found = snapshot(root, without=(".rmqstore", "lock"))
    return {name: replace(entry, ctime_ns=0, inode=0) for name, entry in found.items() if name != "."}


def test_every_public_name_loads_and_is_what_the_type_checker_is_told() -> None:
    assert sorted(rmqstore.__all__) == sorted(rmqstore._DOOR)
    for name, (module, attribute) in rmqstore._DOOR.items():
        assert getattr(rmqstore, name) is getattr(importlib.import_module(module), attribute), name
        assert name in dir(rmqstore)
    assert not hasattr(rmqstore, "no_such_name")


def test_open_verify_plan_apply_and_undo_are_words_of_the_library(tmp_path: Path) -> None:
    root = copy_store("5.4.0-clean", tmp_path)
    flip(root / "commitlog" / "00000000000000065536", 20_000)
    before = content(root)
    store = rmqstore.open(root)
    report = rmqstore.verify(store)
    assert not report.clean
    plan = rmqstore.plan_recovery(store, rmqstore.examine(store))
    assert plan.loss.messages == 1
    assert content(root) == before
    applied = rmqstore.apply(plan)
    assert rmqstore.verify(rmqstore.open(root)).clean
    assert applied.journal is not None
    rmqstore.undo(applied.journal)
    assert content(root) == before
