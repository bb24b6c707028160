"""Links in a store: out of it, in a circle, and in the place of what was listed. No byte of their targets gets out."""

from __future__ import annotations

import os
import shlex
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.files import LOCAL
from rmqstore.files.store import open_store
from rmqstore.files.walk import OwnFiles, entries_on_disk, walk
from tests.command import run, run_json
from tests.stores import copy_store
from tests.untouched import assert_untouched

SECRET = b"the secret of another user, which is nobody's message"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return copy_store("5.4.0-clean", tmp_path)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A directory outside of the store, with a file that must stay there."""
    place = tmp_path / "outside"
    place.mkdir()
    (place / "secret").write_bytes(SECRET)
    return place


def files_with_the_secret(place: Path) -> list[str]:
    return sorted(
        path.relative_to(place).as_posix()
        for path in place.rglob("*")
        if path.is_file() and not path.is_symlink() and SECRET in path.read_bytes()
    )


def link_of_a_file(store: Path, outside: Path) -> tuple[str, str]:
    (store / "config" / "p.json").symlink_to(outside / "secret")
    return "config/p.json", str(outside / "secret")


def link_of_a_directory(store: Path, outside: Path) -> tuple[str, str]:
    (store / "config" / "more").symlink_to(outside)
    return "config/more", str(outside)


def link_at_the_top(store: Path, outside: Path) -> tuple[str, str]:
    (store / "evil").symlink_to(outside)
    return "evil", str(outside)


def link_in_a_database(store: Path, outside: Path) -> tuple[str, str]:
    database = store / "kvStore"
    database.mkdir()
    (database / "CURRENT").write_bytes(b"MANIFEST-000001\n")
    (database / "MANIFEST-000001").write_bytes(b"")
    (database / "000002.sst").symlink_to(outside / "secret")
    return "kvStore/000002.sst", str(outside / "secret")


def link_of_a_log_file(store: Path, outside: Path) -> tuple[str, str]:
    last = max((store / "commitlog").iterdir())
    name = f"{int(last.name) + last.stat().st_size:020d}"
    (outside / "secret").write_bytes(SECRET.ljust(last.stat().st_size, b"\0"))
    (store / "commitlog" / name).symlink_to(outside / "secret")
    return f"commitlog/{name}", str(outside / "secret")


LINKS = [link_of_a_file, link_of_a_directory, link_at_the_top, link_of_a_log_file]
Set = Callable[[Path, Path], tuple[str, str]]


@pytest.mark.parametrize("set_link", [*LINKS, link_in_a_database])
def test_a_backup_names_links_out_of_the_store_and_copies_nothing_behind_them(
    store: Path, outside: Path, tmp_path: Path, set_link: Set
) -> None:
    path, target = set_link(store, outside)
    with assert_untouched(store):
        made = run_json("backup", str(store), str(tmp_path / "repository"), exit_code=1)
    assert made["left_out"] == [{"path": path, "target": target, "leads": "outside"}]
    assert files_with_the_secret(tmp_path / "repository") == []


@pytest.mark.parametrize("set_link", LINKS)
def test_a_replica_has_nothing_from_outside_of_its_source(
    store: Path, outside: Path, tmp_path: Path, set_link: Set
) -> None:
    path, target = set_link(store, outside)
    made = run_json("seed", str(store), str(tmp_path / "new"), "--role", "slave", exit_code=1)
    assert made["notes"] == [f"the snapshot lacks a link of the store: {path} -> {target}: it leads out of the store"]
    assert files_with_the_secret(tmp_path / "new") == []
    assert [entry.path for entry, _ in entries_on_disk(tmp_path / "new") if entry.is_symlink()] == []


@pytest.mark.parametrize("set_link", LINKS)
def test_a_bundle_has_nothing_from_outside_of_the_store(
    store: Path, outside: Path, tmp_path: Path, set_link: Set
) -> None:
    set_link(store, outside)
    made = run_json("bundle", str(store), "-o", str(tmp_path / "b.tar.gz"), exit_code=0)
    assert "it leads out of the store" in {left["why"] for left in made["left_out"]}  # type: ignore[attr-defined]
    with tarfile.open(tmp_path / "b.tar.gz") as archive:
        length = (outside / "secret").stat().st_size
        assert [member.name for member in archive if member.issym() or member.islnk()] == []
        assert [member.name for member in archive if member.isfile() and member.size == length == len(SECRET)] == []


def test_links_in_circles_end_every_walk_at_once(store: Path, tmp_path: Path) -> None:
    before = sum(1 for _ in walk(LOCAL, store))
    for name, target in (("a", "."), ("b", "."), ("config/up", ".."), ("c", "d"), ("d", "c")):
        (store / name).symlink_to(target)
    assert sum(1 for _ in walk(LOCAL, store)) == before + 5
    made = run_json("backup", str(store), str(tmp_path / "repository"), exit_code=0)
    left = {(one["path"], one["leads"]) for one in made["left_out"]}  # type: ignore[attr-defined]
    assert left == {("a", "loop"), ("b", "loop"), ("c", "loop"), ("config/up", "loop"), ("d", "loop")}
    run_json("seed", str(store), str(tmp_path / "new"), "--role", "slave", exit_code=0)
    run_json("bundle", str(store), "-o", str(tmp_path / "b.tar.gz"), exit_code=0)
    found = run_json("verify", str(store), exit_code=0)
    assert found["counts"] == {"DIR-FOREIGN-ENTRY": 4, "DIR-LINK": 5}
    parts = run_json("du", str(store), "--files", exit_code=0)["files"]["parts"]  # type: ignore[index]
    assert sum(part["files"] for part in parts) < before + 5


PARTS = ["commitlog", "config", "timerlog", "consumequeue", "index"]


def move_to_another_disk(store: Path, part: str) -> Path:
    """Move a part to another directory, which belongs to the owner of the store, and link it."""
    place = store.parent / "disk 2" / part
    place.parent.mkdir()
    (store / part).mkdir(exist_ok=True)
    (store / part).rename(place)
    (store / part).symlink_to(place)
    return place


@pytest.mark.parametrize(
    ("part", "named"), [("commitlog", "above"), ("commitlog", "broker.conf"), *((part, "directory") for part in PARTS)]
)
def test_a_part_on_another_disk_that_the_user_names_is_copied(
    store: Path, tmp_path: Path, part: str, named: str
) -> None:
    plain = run_json("backup", str(store), str(tmp_path / "plain"), "--name", "a", exit_code=0)
    place = move_to_another_disk(store, part)
    (tmp_path / "conf").write_text(f"storePathCommitLog={place}\n")
    options = {"directory": ("--root", str(place)), "above": ("--root", str(place.parent))}
    more = options.get(named, ("-c", str(tmp_path / "conf")))
    linked = run_json("backup", str(store), str(tmp_path / "linked"), "--name", "a", *more, exit_code=0)
    assert linked["messages"] == plain["messages"] != 0
    assert linked["left_out"] == []
    objects = [
        sorted(path.name for path in (tmp_path / name / "a").rglob("*") if path.is_file() and "snap" not in str(path))
        for name in ("plain", "linked")
    ]
    assert objects[0] == objects[1]
    config = BrokerConfig().with_roots([place])
    assert open_store(store, config).places == [store.resolve(), place]


@pytest.mark.parametrize("command", ["backup", "seed", "bundle"])
def test_a_log_that_only_a_link_names_is_refused_with_the_option_to_add(
    store: Path, tmp_path: Path, command: str
) -> None:
    place = move_to_another_disk(store, "commitlog")
    words = {
        "backup": ["backup", str(store), str(tmp_path / "repository")],
        "seed": ["seed", str(store), str(tmp_path / "new"), "--role", "slave"],
        "bundle": ["bundle", str(store), "-o", str(tmp_path / "b.tar.gz")],
    }[command]
    refused = run(*words)
    assert refused.exit_code == 5
    option = f"--root '{place}'"
    leads = f"{store / 'commitlog'} is a link that leads out of the store, to {place}"
    assert refused.output == f"error: {leads} — add {option}, if that directory belongs to this broker\n"
    assert run(*words, *shlex.split(option)).exit_code == 0


@pytest.mark.parametrize("part", PARTS)
def test_reading_follows_a_part_as_the_broker_does_and_names_the_option(store: Path, tmp_path: Path, part: str) -> None:
    before = run_json("verify", str(store), exit_code=0)
    place = move_to_another_disk(store, part)
    found = run_json("verify", str(store), exit_code=0)
    assert found["commitlog"] == before["commitlog"]
    facts = [finding["facts"] for finding in found["findings"] if finding["code"] == "DIR-LINK"]  # type: ignore[attr-defined]
    assert facts == [{"path": part, "target": str(place), "leads": "outside", "option": f"--root '{place}'"}]
    assert open_store(store).places == [store.resolve()]  # so that no advice is to give `place` to the broker's user


@pytest.mark.other_processes
def test_a_broker_that_runs_with_a_linked_log_is_seen(store: Path) -> None:
    place = move_to_another_disk(store, "commitlog")
    with max(place.iterdir()).open("r+b") as file, subprocess.Popen(["sleep", "60"], stdin=file) as other:
        assert open_store(store).is_live()
        other.kill()
    assert not open_store(store).is_live()


def test_what_else_belongs_to_the_owner_of_the_store_is_not_copied(store: Path, outside: Path, tmp_path: Path) -> None:
    """A store that a stranger sent belongs to whoever unpacked it, as `~/.ssh` does."""
    (store / "kvStore").symlink_to(outside)
    made = run("backup", str(store), str(tmp_path / "repository"))
    assert made.exit_code == 1
    assert f"kvStore -> {outside}: it leads out of the store" in made.output
    assert f"add --root {outside}" in made.output
    assert files_with_the_secret(tmp_path / "repository") == []


def test_a_part_that_leads_to_another_part_is_copied_once(store: Path, tmp_path: Path) -> None:
    (store / "config").rename(store / "of-the-broker")
    (store / "config").symlink_to("of-the-broker")
    run_json("backup", str(store), str(tmp_path / "repository"), "--name", "a", exit_code=0)
    run_json("restore", f"{tmp_path / 'repository'}::a", str(tmp_path / "new"), exit_code=0)
    assert not (tmp_path / "new" / "of-the-broker").exists()
    names = sorted(path.name for path in (store / "config").iterdir())
    assert sorted(path.name for path in (tmp_path / "new" / "config").iterdir()) == names


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_a_part_that_belongs_to_another_user_is_not_followed(store: Path, outside: Path, tmp_path: Path) -> None:
    """Whoever may write to the store could otherwise have root copy `/root/.aws`."""
    for entry, _ in entries_on_disk(store):
        os.chown(entry.path, 12345, 12345)
    os.chown(store, 12345, 12345)
    (store / "kvStore").symlink_to(outside)
    made = run_json("backup", str(store), str(tmp_path / "repository"), exit_code=1)
    assert made["left_out"] == [{"path": "kvStore", "target": str(outside), "leads": "outside"}]
    assert files_with_the_secret(tmp_path / "repository") == []
    assert open_store(store).places == [store.resolve()]  # so that no advice is to give `outside` to the broker's user


def test_a_store_may_itself_be_a_link_that_the_user_named(store: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(store)
    made = run_json("backup", str(tmp_path / "link"), str(tmp_path / "repository"), exit_code=0)
    assert made["left_out"] == []
    assert made["messages"] != 0


def test_configured_directories_are_the_stores_own(store: Path, tmp_path: Path) -> None:
    (tmp_path / "disk2").mkdir()
    last = max((store / "commitlog").iterdir())
    last.rename(tmp_path / "disk2" / last.name)
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathCommitLog={store / 'commitlog'},{tmp_path / 'disk2'}\n")
    made = run_json("backup", str(store), str(tmp_path / "repository"), "-c", str(conf), exit_code=0)
    assert made["counts"] == {}
    assert made["left_out"] == []


@pytest.fixture
def swapped(store: Path, outside: Path) -> Iterator[tuple[OwnFiles, Path]]:
    """The files of a store, of which one becomes a link after it has been listed."""
    files = open_store(store).own_files()
    victim = store / "config" / "topics.json"
    assert files.is_file(victim)
    victim.unlink()
    victim.symlink_to(outside / "secret")
    yield files, victim


def test_what_becomes_a_link_after_it_was_listed_is_not_read(swapped: tuple[OwnFiles, Path]) -> None:
    files, victim = swapped
    with pytest.raises(OSError, match="out of the store"):
        files.open(victim)


def test_a_directory_that_becomes_a_link_while_a_file_is_opened_is_not_entered(
    store: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (outside / "topics.json").write_bytes(SECRET)
    files = open_store(store).own_files()
    path = store / "config" / "topics.json"
    real = LOCAL.real_path(path)
    monkeypatch.setattr("rmqstore.files.files.LocalFiles.real_path", lambda _, __: real)  # resolved before the swap
    (store / "config").rename(store / "config-before")
    (store / "config").symlink_to(outside)
    with pytest.raises(OSError, match="Not a directory"):
        files.open(path)


@pytest.mark.parametrize("place", ["config/topics.json", "config/pipe.json", "checkpoint", "abort", "commitlog/x"])
def test_a_pipe_blocks_no_reading_command(store: Path, tmp_path: Path, place: str) -> None:
    path = store / place
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    for words in (["verify"], ["info"], ["du", "--files"], ["offsets"]):
        result = run(words[0], str(store), *words[1:])
        assert result.exit_code in (0, 1, 2, 3, 4), result.output
        assert result.exception is None or isinstance(result.exception, SystemExit)
    run("backup", str(store), str(tmp_path / "repository"))
    run("bundle", str(store), "-o", str(tmp_path / "b.tar.gz"))
    assert not any(path.is_fifo() for path in (tmp_path / "repository").rglob("*"))


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_an_import_does_not_write_through_the_mark_of_a_running_broker(
    link: Callable[[Path, Path], None], store: Path, tmp_path: Path
) -> None:
    precious, export = tmp_path / "precious", tmp_path / "export.ndjson"
    assert run("export", str(store), "-o", str(export)).exit_code == 0
    precious.write_bytes(b"precious")
    link(precious, store / "abort")
    result = run("import", str(export), "--into", str(store), "--renumber")
    assert "Traceback" not in result.stderr
    assert precious.read_bytes() == b"precious", result.stderr
