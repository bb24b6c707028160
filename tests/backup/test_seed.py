"""seed: a new replica from a live master."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.backup.growing import GrowingStore, messages_in
from tests.command import run, run_json
from tests.live_writer import live_store
from tests.stores import copy_store, unpack
from tests.untouched import assert_untouched


@pytest.mark.parametrize(("name", "role"), [("5.4.0-master", "slave"), ("5.4.0-controller-master", "controller")])
def test_a_seed_is_the_store_without_its_identity(name: str, role: str, tmp_path: Path) -> None:
    store = unpack(name)
    with assert_untouched(store):
        done = run_json("seed", str(store), str(tmp_path / "new"), "--role", role, exit_code=0)
    assert (done["written"], done["counts"], done["unchecked"]) == (True, {}, [])
    assert run_json("compare", str(store), str(tmp_path / "new"), exit_code=0)["equal"] is True
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
    assert not (tmp_path / "new" / "brokerIdentity").exists()
    assert (tmp_path / "new" / "epochFileCheckpoint").exists() == (role == "controller")


@pytest.mark.other_processes
def test_a_seed_of_a_live_store(tmp_path: Path) -> None:
    with live_store(tmp_path / "store", pause=0.04) as store:
        done = run_json("seed", str(store), str(tmp_path / "new"), "--role", "slave", exit_code=0)
    queues = messages_in(tmp_path / "new")
    assert sum(map(len, queues.values())) == done["messages"]
    assert all(numbers == list(range(numbers[0], numbers[0] + len(numbers))) for numbers in queues.values())


def test_complete_files_are_moved(tmp_path: Path) -> None:
    """What an interrupted run has left does not matter."""
    store = GrowingStore(tmp_path / "store", 150)
    (tmp_path / ".new.seeding" / "seed").mkdir(parents=True)
    assert run("seed", str(store.root), str(tmp_path / "new"), "--role", "slave").exit_code == 0
    assert messages_in(tmp_path / "new") == store.offsets_before(store.end)
    now = sorted((tmp_path / "new" / "commitlog").iterdir())
    assert [path.read_bytes() for path in now] == [path.read_bytes() for path in store.log_files[: len(now)]]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "store"]


@pytest.mark.parametrize(
    ("name", "words", "code"),
    [
        ("5.4.0-dledger", ("NEW", "--role", "slave"), 5),
        ("5.4.0-clean", ("NEW", "--role", "controller"), 5),
        ("5.4.0-clean", ("NEW", "--role", "dledger"), 5),
        ("5.4.0-clean", ("STORE", "--role", "slave"), 2),
        ("5.4.0-clean", ("STORE/new", "--role", "slave"), 2),
        ("5.4.0-clean", ("NEW",), 2),
    ],
)
def test_seed_refuses_wrong_options_and_changes_nothing(
    name: str, words: tuple[str, ...], code: int, tmp_path: Path
) -> None:
    store = copy_store(name, tmp_path)
    places = [word.replace("STORE", str(store)).replace("NEW", str(tmp_path / "new")) for word in words]
    with assert_untouched(store):
        result = run("seed", str(store), *places)
    assert result.exit_code == code, result.output
    assert "seed@" not in result.stderr  # the name in the temporary repository
    assert [path.name for path in tmp_path.iterdir()] == [name]
