"""The public interface of the library: every name loads, and Python calls do the same as the commands."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import rmqstore
from tests.damage import flip
from tests.stores import copy_store, unpack
from tests.untouched import content

LOCK = ("lock",)


def bodies(store: rmqstore.Store) -> list[tuple[object, ...]]:
    """Return the parts of every message that a consumer receives, in log order."""
    names = ("topic", "queue_id", "queue_offset", "body_base64")
    return [tuple(row[name] for name in names) for rows in rmqstore.export_messages(store) for row in rows]


def test_every_public_name_loads_its_object() -> None:
    assert sorted(rmqstore.__all__) == sorted(rmqstore._EXPORTS)
    for name, (module, attribute) in rmqstore._EXPORTS.items():
        assert getattr(rmqstore, name) is getattr(importlib.import_module(module), attribute), name
        assert name in dir(rmqstore)
    assert not hasattr(rmqstore, "no_such_name")


def test_every_public_name_has_a_docstring() -> None:
    for name in rmqstore.__all__:
        value = getattr(rmqstore, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            # a dataclass without its own docstring gets its signature as docstring
            assert not (value.__doc__ or f"{value.__name__}(").startswith(f"{value.__name__}("), name


def test_importing_the_package_loads_no_module() -> None:
    code = "import sys, rmqstore\nprint([m for m in sys.modules if m.startswith(('rmqstore.', 'numpy', 'click'))])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


def test_a_dledger_store_becomes_a_plain_one_with_the_same_messages(tmp_path: Path) -> None:
    store = rmqstore.open(unpack("5.4.0-dledger"))
    verified = rmqstore.examine(store)
    plan = rmqstore.plan_migration_to_commitlog(store, verified, rmqstore.CommitLogChoice(nodes=1), tmp_path / "plain")
    assert plan.ready
    rmqstore.migrate_to_commitlog(store, verified, plan, tmp_path / "plain")
    plain = rmqstore.open(tmp_path / "plain")
    assert rmqstore.verify(plain).clean
    assert bodies(plain) == bodies(store)


def test_library_can_open_verify_plan_apply_and_undo(tmp_path: Path) -> None:
    root = copy_store("5.4.0-clean", tmp_path)
    sound = content(root, without=LOCK)
    flip(root / "commitlog" / "00000000000000065536", 20_000)
    before = content(root, without=LOCK)
    store = rmqstore.open(root)
    report = rmqstore.verify(store)
    assert not report.clean
    verified = rmqstore.examine(store)
    plan, _ = rmqstore.measure(store, rmqstore.plan_recovery(store, verified), verified)
    assert plan.loss.messages == 0
    assert content(root, without=LOCK) == before
    applied = rmqstore.apply(plan)
    assert rmqstore.verify(rmqstore.open(root)).clean
    now = content(root, without=LOCK)
    assert {name: now[name].content for name in sound} == {name: e.content for name, e in sound.items()}
    assert applied.journal is not None
    rmqstore.undo(str(applied.journal))
    assert content(root, without=LOCK) == before


def test_library_can_migrate_a_store_to_dledger_and_back(tmp_path: Path) -> None:
    root, back = copy_store("5.4.0-before-dledger", tmp_path), tmp_path / "back"
    store = rmqstore.open(root)
    there = rmqstore.plan_migration_to_dledger(store, rmqstore.examine(store), rmqstore.DLedgerTarget(str(root), "n0"))
    assert there.plan is not None
    rmqstore.apply(there.plan, journal_dir=str(tmp_path))
    store = rmqstore.open(root)
    verified = rmqstore.examine(store)
    migration = rmqstore.plan_migration_to_commitlog(store, verified, rmqstore.CommitLogChoice(nodes=1), back)
    rmqstore.migrate_to_commitlog(store, verified, migration, back)
    assert rmqstore.compare(rmqstore.open(back), store).relation == "equal"
