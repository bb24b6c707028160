"""Owner and modes of new stores: those of their source, or what --owner and --mode say; and the modes of pages."""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path

import pytest

from rmqstore.append.rights import GivenRights, StoreRights, give_rights
from rmqstore.errors import UsageError
from tests.command import run
from tests.stores import copy_store

STORE = "5.4.0-clean"
DLEDGER = "5.1.4-dledger-mixed"
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to other users")
MAKING = ("restore", "seed", "import", "migrate-to-commitlog")


def owned(store: Path, uid: int, gid: int, directory: int = 0o750, file: int = 0o640) -> Path:
    """Return a store with these rights."""
    for path in (store, *store.rglob("*")):
        path.chmod(directory if path.is_dir() else file)
        if os.geteuid() == 0:
            os.chown(path, uid, gid)
    return store


def made(command: str, store: Path, *options: str) -> tuple[Path, str]:
    """Make a new store from another one; return it, and what the command said."""
    home = store.parent
    if command == "restore":
        assert run("backup", str(store), str(home / "repository"), "--name", "a").exit_code == 0
        words = [f"{home / 'repository'}::a", str(home / "new")]
    else:
        words = {
            "seed": [str(store), str(home / "new"), "--role", "slave"],
            "import": [str(store), "-o", str(home / "new")],
            "migrate-to-commitlog": [str(store), "-o", str(home / "new"), "--peers", "1"],
        }[command]
    done = run(command, *words, *options)
    assert done.exit_code == 0, done.stderr
    return home / "new", done.stdout + done.stderr


def rights(store: Path) -> set[tuple[int, int, bool, int]]:
    """Return owner, group, whether it is a directory, and mode of everything in a store."""
    found = (path.stat() for path in (store, *store.rglob("*")))
    return {(s.st_uid, s.st_gid, stat.S_ISDIR(s.st_mode), stat.S_IMODE(s.st_mode)) for s in found}


def source(command: str, tmp_path: Path) -> Path:
    return copy_store(DLEDGER if command == "migrate-to-commitlog" else STORE, tmp_path)


@ROOT
@pytest.mark.parametrize("command", MAKING)
def test_a_new_store_has_owner_and_modes_of_its_source(command: str, tmp_path: Path) -> None:
    new, said = made(command, owned(source(command, tmp_path), 12345, 23456))
    assert rights(new) == {(12345, 23456, True, 0o750), (12345, 23456, False, 0o640)}
    assert "chown" not in said


@ROOT
@pytest.mark.parametrize("command", MAKING)
def test_owner_and_mode_replace_those_of_the_source(command: str, tmp_path: Path) -> None:
    store = owned(source(command, tmp_path), 12345, 23456)
    new, said = made(command, store, "--owner", "321:654", "--mode", "770")
    assert rights(new) == {(321, 654, True, 0o770), (321, 654, False, 0o660)}
    assert "chown" not in said


@pytest.fixture
def export(tmp_path: Path) -> Path:
    path = tmp_path / "all.ndjson"
    assert run("export", str(copy_store(STORE, tmp_path)), "-o", str(path)).exit_code == 0
    return path


def test_a_store_from_files_takes_the_mode_that_is_given(export: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    assert run("import", str(export), "-o", str(new), "--mode", "750").exit_code == 0
    me = (os.geteuid(), os.getegid())
    assert rights(new) == {(*me, True, 0o750), (*me, False, 0o640)}


@ROOT
def test_a_store_from_files_takes_the_owner_that_is_given(export: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    nobody = pwd.getpwnam("nobody")
    done = run("import", str(export), "-o", str(new), "--owner", "nobody")
    assert (done.exit_code, done.stderr) == (0, "")
    ids = (nobody.pw_uid, nobody.pw_gid)
    assert rights(new) == {(*ids, True, 0o700), (*ids, False, 0o600)}


@ROOT
@pytest.mark.parametrize("options", [[], ["--mode", "750"]])
def test_root_is_told_who_can_start_a_broker_on_a_store_of_its_own(
    options: list[str], export: Path, tmp_path: Path
) -> None:
    new = tmp_path / "a new"
    done = run("import", str(export), "-o", str(new), *options)
    said = f"only root can start a broker on it; to give it to another user: chown -R USER: '{new}'"
    assert done.stderr.splitlines() == [f"note: {said}"]


def test_another_user_is_told_how_to_give_the_store_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 4242)
    source = StoreRights(12345, 23456, "", "", 0o750, 0o640)
    place, target = tmp_path / ".new.building", tmp_path / "new"
    place.mkdir()
    assert give_rights(place, target, source, GivenRights()) == (
        "the store is yours, and you can start a broker on it; as root, to give it to 12345: "
        f"chown -R 12345:23456 {target}"
    )
    assert stat.S_IMODE(place.stat().st_mode) == 0o700  # nobody else is in its group
    with pytest.raises(UsageError, match="only root can give a store to another user"):
        GivenRights((12345, os.getegid())).check()


@pytest.mark.parametrize(
    ("option", "value", "reason"),
    [
        ("--owner", "no such user", "there is no user 'no such user' on this machine"),
        ("--owner", "0:no such group", "there is no group 'no such group' on this machine"),
        ("--owner", "4294967295", "there is no user '4294967295' on this machine"),
        ("--owner", "4294967294", "4294967294 has no group of its own: give USER:GROUP"),
        ("--mode", "777", "'777' is not a mode from 700 to 775, which the owner can use, such as 750"),
        ("--mode", "640", "'640' is not a mode from 700 to 775, which the owner can use, such as 750"),
        ("--mode", "4750", "'4750' is not a mode from 700 to 775, which the owner can use, such as 750"),
        ("--mode", "rwx", "'rwx' is not a mode from 700 to 775, which the owner can use, such as 750"),
    ],
)
def test_impossible_owners_and_modes_are_refused(option: str, value: str, reason: str, tmp_path: Path) -> None:
    done = run("import", str(tmp_path), "-o", str(tmp_path / "new"), option, value)
    assert (done.exit_code, reason in done.stderr) == (2, True), done.stderr


def test_an_open_store_takes_no_owner(export: Path, tmp_path: Path) -> None:
    done = run("import", str(export), "--into", str(tmp_path / STORE), "--mode", "750")
    said = "error: --owner and --mode are for a new store — the files of a store have those of their neighbours\n"
    assert (done.exit_code, done.stderr) == (2, said)


@pytest.mark.parametrize(
    "words",
    [["report", "STORE", "-o", "PAGE", "--mode", "644"], ["verify", "STORE", "--html", "PAGE", "--mode", "644"]],
    ids=lambda words: words[0],
)
def test_a_page_is_readable_for_others_on_request(words: list[str], tmp_path: Path) -> None:
    store, page = copy_store(STORE, tmp_path), tmp_path / "page.html"
    done = run(*({"STORE": str(store), "PAGE": str(page)}.get(word, word) for word in words))
    assert done.exit_code == 0, done.stderr
    assert stat.S_IMODE(page.stat().st_mode) == 0o644


def test_mode_of_verify_is_about_its_page(tmp_path: Path) -> None:
    done = run("verify", str(copy_store(STORE, tmp_path)), "--mode", "644")
    assert (done.exit_code, done.stderr) == (2, "error: --mode needs --html — other outputs are private\n")


def test_what_an_interrupted_conversion_left_is_named(tmp_path: Path) -> None:
    left = tmp_path / ".new.building"
    (left / "commitlog").mkdir(parents=True)
    _, said = made("migrate-to-commitlog", copy_store(DLEDGER, tmp_path))
    assert f"note: removed {left}, which an interrupted run left" in said.splitlines()
    assert not left.exists()


def test_what_an_interrupted_seed_left_is_named(tmp_path: Path) -> None:
    left = tmp_path / ".new.seeding"
    (left / "stores").mkdir(parents=True)
    _, said = made("seed", copy_store(STORE, tmp_path))
    assert f"note: removed {left}, which an interrupted run left" in said.splitlines()
    assert not left.exists()
