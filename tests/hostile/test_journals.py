"""Forged journals and pointers in a store: they change nothing outside of the store, and no journal of another one."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqstore.documents.content import Zeros
from rmqstore.documents.steps import Overwrite
from rmqstore.errors import CouldNotCheck, HalfApplied, NotAStore, PlanStale, Refused, RmqStoreError
from rmqstore.repair.journal import journal, pruning
from rmqstore.repair.journal.disk import Disk
from rmqstore.repair.plan.plan_builder import fingerprint_range
from tests.command import run
from tests.hostile.forged import DATA, HASH, NAME, forge, forge_write, frame, meta
from tests.repair.journals import apply_full, half_apply, plan_of
from tests.repair.trees import CountingDisk, Entry, build, full_plan, look, overwrite
from tests.stores import copy_store

VERBS = ("undo", "resume")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


def everything(*places: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return mode, mtime and bytes of all entries below some directories, journals included."""
    found = {}
    for path in (entry for place in places for entry in [place, *sorted(place.rglob("*"))]):
        status = path.lstat()
        data = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found[str(path)] = (status.st_mode, status.st_mtime_ns, data)
    return found


def commands(store: Path, verb: str) -> list[list[str]]:
    named = [[verb, str(store / ".rmqstore" / NAME)]]
    return [*named, ["undo", str(store), "--last"]] if verb == "undo" else named


@pytest.mark.parametrize("way", ["root", "link"])
@pytest.mark.parametrize("verb", VERBS)
def test_a_forged_journal_writes_nothing_outside_of_the_store(
    tmp_path: Path, victim: Path, verb: str, way: str
) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    if way == "root":
        forge_write(store, f"{victim}/pwned", verb, roots=[victim])
    else:
        (store / "evil").symlink_to(victim)
        forge_write(store, "evil/pwned", verb)
    before = everything(tmp_path)
    for words in commands(store, verb):
        refused = run(*words)
        assert refused.exit_code == 5
        errors = [line for line in refused.stderr.splitlines() if not line.startswith("note: ")]
        assert len(errors) == 1
        what = f"the plan changes files in {victim}" if way == "root" else f"{store}/evil is a link that leads out"
        assert what in errors[0]
        assert f"`rmqstore {words[0]} {store}/.rmqstore/{NAME} --root {victim}`" in errors[0]
    assert everything(tmp_path) == before


@pytest.mark.parametrize("option", ["--root", "-c"])
@pytest.mark.parametrize("verb", VERBS)
def test_a_directory_that_the_user_names_is_changed(store: Path, victim: Path, verb: str, option: str) -> None:
    path = forge_write(store, f"{victim}/file", verb, roots=[victim])
    config = store.parent / "broker.conf"
    config.write_text(f"storePathCommitLog={victim}\n")
    done = run(verb, str(path), option, str(victim if option == "--root" else config))
    assert done.exit_code == 0, done.output
    assert (victim / "file").read_bytes() == DATA


def test_info_and_verify_do_not_recommend_a_forged_journal(tmp_path: Path, victim: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    forge_write(store, f"{victim}/pwned", "undo", roots=[victim])
    said = run("info", str(store))
    assert said.exit_code == 0
    assert "not to be trusted" in " ".join(said.output.split()) and "rmqstore undo" not in said.output
    [row] = json.loads(run("info", str(store), "--json").output)["journals"]
    assert row["refused"].startswith(f"the plan changes files in {victim}")
    said = run("verify", str(store))
    assert "Next: rmqstore resume" not in said.output and "not to be trusted" in " ".join(said.output.split())
    said = run("journals", str(store))
    assert f"would be refused: the plan changes files in {victim}" in said.output
    with pytest.raises(Refused, match=f"the plan changes files in {victim}"):
        journal.apply(plan_of(store, overwrite(store, "checkpoint", 0, Zeros(1))))


def test_apply_through_a_link_out_of_the_store_names_the_option(store: Path, victim: Path) -> None:
    shutil.rmtree(victim)
    shutil.move(store / "commitlog", victim)
    (store / "commitlog").symlink_to(victim)
    before = everything(victim)
    with pytest.raises(Refused, match=f"{store}/commitlog is a link that leads out of the store, to {victim}") as told:
        journal.apply(full_plan(store))
    assert told.value.advice == f"add --root {victim}, if that directory belongs to this broker"
    assert everything(victim) == before and not (store / ".rmqstore").exists()
    done = journal.apply(full_plan(store), roots=[victim])
    assert done.journal is not None and done.roots == (victim,)
    with pytest.raises(Refused):
        journal.undo(done.journal)
    journal.undo(done.journal, roots=[victim])
    assert everything(victim) == before


@pytest.mark.parametrize("name", [".", "state", "plan.json", "undo.log", "new", "quarantine", ".."])
def test_a_journal_that_others_may_write_is_refused_by_name(store: Path, name: str) -> None:
    path = half_apply(store)
    entry = Path(os.path.normpath(path / name))
    entry.chmod(entry.stat().st_mode | 0o020)
    before = everything(store)
    for action in (journal.undo, journal.resume):
        with pytest.raises(Refused, match=f"others may write {entry}: ") as told:
            action(path)
        assert told.value.exit_code == 5 and told.value.advice == f"if you trust them: chmod go-w {entry}"
    assert everything(store) == before
    [info] = journal.find_unfinished(store)
    assert info.to_json()["refused"] == f"others may write {entry}: the journal may be forged"
    entry.chmod(entry.stat().st_mode & ~0o022 | 0o055)  # the modes of release 1.0.0rc1
    journal.undo(path)


@as_root
def test_a_journal_of_another_user_is_refused_unless_the_store_is_theirs(store: Path) -> None:
    path = half_apply(store)
    os.chown(path / "plan.json", 12345, 12345)
    with pytest.raises(Refused, match="belongs to user 12345, who is neither you nor root nor the owner of the store"):
        journal.undo(path)
    os.chown(store, 12345, 12345)
    journal.undo(path)


@pytest.mark.parametrize("place", ["state", "plan.json", "undo.log", "new", "quarantine", "journal"])
def test_a_link_in_a_journal_is_refused(store: Path, victim: Path, place: str) -> None:
    path = half_apply(store)
    if (path / place).exists():
        (path / place).rename(victim / place)
    (path / place).symlink_to(victim / place)
    (victim / "journal").write_text(str(path))
    with pytest.raises(RmqStoreError) as told:
        journal.undo(path)
    assert told.value.exit_code in (3, 5)


def test_a_link_in_place_of_the_journals_is_refused(store: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / ".rmqstore"
    path = half_apply(store)
    shutil.copytree(path.parent, other)
    shutil.rmtree(path.parent)
    path.parent.symlink_to(other)
    before = everything(other)
    with pytest.raises(Refused, match="must be a directory"):
        journal.undo(path)
    assert journal.list_journals(store) == [] and everything(other) == before


@pytest.mark.parametrize(
    ("name", "error"), [("state", NotAStore), ("plan.json", CouldNotCheck), ("undo.log", CouldNotCheck)]
)
def test_a_pipe_in_a_journal_does_not_hang(store: Path, name: str, error: type[Exception]) -> None:
    place = forge_write(store, "abort2", "undo")
    (place / name).unlink()
    os.mkfifo(place / name)
    with pytest.raises(error):
        journal.undo(place)
    assert len(journal.list_journals(store)) == 1


@pytest.mark.parametrize(
    "log",
    [
        pytest.param(meta() + frame(2, 0, 5000, b"x" * 10) + frame(4, 0, 0), id="after the range"),
        pytest.param(meta() + frame(2, 0, 2**64 - 1, b"x") + frame(4, 0, 0), id="after every file"),
        pytest.param(meta() + frame(2, 7, 100, b"x") + frame(4, 0, 0), id="of no step"),
        pytest.param(meta(mtime_ns="now") + frame(4, 0, 0), id="a time that is a text"),
        pytest.param(meta(mtime_ns=2**80) + frame(4, 0, 0), id="a time out of range"),
    ],
)
def test_before_images_outside_of_their_step_are_not_written(store: Path, log: bytes) -> None:
    name = "commitlog/00000000000000000000"
    step = overwrite(store, name, 100, Zeros(10))
    row = {"do": "overwrite", "path": name, "at": 100, "expect": step.expect, "length": 10, "why": ""}
    path = forge(store, {**row, "content": {"zeros": 10}}, log=log)
    before = everything(store / "commitlog")
    with pytest.raises(CouldNotCheck):
        journal.undo(path)
    assert everything(store / "commitlog") == before


def test_undo_does_not_write_into_a_hard_link(store: Path, victim: Path) -> None:
    path = apply_full(store)
    log = store / "commitlog/00000000000000000000"
    os.link(log, victim / "linked")
    before = log.read_bytes()
    with pytest.raises(HalfApplied, match="has another name"):
        journal.undo(path)
    assert (victim / "linked").read_bytes() == before


# --- links that appear while a journal is worked on ------------------------------------------------------------------


def swap(directory: Path, victim: Path) -> None:
    """Put a link to the victim in place of a directory."""
    directory.rename(directory.with_name("gone"))
    directory.symlink_to(victim)


def undisturbed(store: Path, action: Callable[[Disk], object]) -> int:
    disk = CountingDisk()
    action(disk)
    return len(disk.calls)


PLACES = ("commitlog", "consumequeue/TopicA", "consumequeue/TopicA/0", "config")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("verb", ["apply", "undo", "resume"])
def test_a_link_that_appears_between_two_calls_leads_nowhere(tmp_path: Path, verb: str, place: str) -> None:
    """The victim has the same files, so that no check of their bytes protects it."""

    def prepared(name: str) -> tuple[Path, Callable[[Disk], object]]:
        store = Path(shutil.copytree(original, tmp_path / name, symlinks=True))
        if verb == "apply":
            return store, lambda disk: journal.apply(full_plan(store), disk=disk)
        path = apply_full(store) if verb == "undo" else half_apply(store)
        return store, lambda disk: getattr(journal, verb)(path, disk=disk)

    original = build(tmp_path / "original")
    first, action = prepared("first")
    copied: dict[str, Entry] = {}
    calls = undisturbed(first, action)
    assert calls > 30
    for index in range(0, calls, 2):
        store, action = prepared(f"store{index}")
        victim = Path(shutil.copytree(store / place, tmp_path / f"victim{index}"))
        copied = look(victim)

        def at(number: int, name: str, index: int = index, store: Path = store, victim: Path = victim) -> None:
            if number == index:
                swap(store / place, victim)

        with_link = None
        try:
            action(CountingDisk(at))
        except RmqStoreError as error:
            with_link = error
        assert look(victim) == copied, (index, with_link)
        shutil.rmtree(store)


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_no_call_of_the_disk_follows_a_link(store: Path, victim: Path, depth: int) -> None:
    (victim / "a/b").mkdir(parents=True)
    (victim / "a/b/file").write_bytes(b"1")
    target = victim.joinpath(*["a", "b"][:depth])
    link = store.joinpath(*["a", "b"][:depth], "link")
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(target)
    below = link.joinpath(*["a", "b"][depth:])
    disk = Disk()
    disk.allow(store)
    before = everything(victim)
    calls: list[Callable[[], object]] = [
        lambda: disk.open_new(below / "new"),
        lambda: disk.open_existing(below / "file"),
        lambda: disk.fsync_directory(below),
        lambda: disk.rename(below / "file", store / "taken"),
        lambda: disk.rename(store / "checkpoint", below / "given"),
        lambda: disk.unlink(below / "file"),
        lambda: disk.make_directory(below / "new"),
        lambda: disk.remove_directory(below),
        lambda: disk.set_times(below / "file", 0, 0),
        lambda: disk.set_owner(below / "file", 1, 1),
        lambda: disk.set_mode(below / "file", 0o777),
        lambda: disk.status(below / "file"),
        lambda: disk.list(below),
        lambda: disk.opened(below / "file").__enter__(),
    ]
    for number, call in enumerate(calls):
        with pytest.raises(OSError):
            call()
            pytest.fail(f"call {number} followed the link")
    assert everything(victim) == before and (store / "checkpoint").exists()
    for outside in (victim / "crontab", store / ".." / "victim" / "crontab"):
        with pytest.raises(Refused, match="outside the directories that may be changed"):
            disk.unlink(outside)


# --- pointers and folders beside a store -----------------------------------------------------------------------------


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """The journal, which can be undone, of another store."""
    return apply_full(build(tmp_path / "another" / "store"))


def points(store: Path, name: str, target: Path) -> None:
    entry = store / ".rmqstore" / name
    entry.mkdir(parents=True, mode=0o700)
    (entry / "journal").write_text(str(target))


@pytest.mark.parametrize("named_alike", [True, False])
def test_pruning_never_deletes_the_journal_of_another_store(tmp_path: Path, other: Path, named_alike: bool) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    points(store, other.name if named_alike else NAME, other)
    before = everything(other.parent.parent)
    pruned = run("journals", str(store), "--prune", "--keep-last", "0", "--missing", "--apply")
    assert pruned.exit_code == 0, pruned.output
    assert everything(other.parent.parent) == before
    assert not (store / ".rmqstore").exists()
    journal.undo(other)


def test_a_pointer_to_the_journal_of_another_store_is_not_followed(store: Path, other: Path, tmp_path: Path) -> None:
    outside = tmp_path / "journals"
    kept = journal.apply(full_plan(store), journal_dir=outside).journal
    assert kept is not None
    points(store, "20990101T000000.000000Z", kept)  # the right store, under another name
    points(store, other.name, other)
    assert sorted(folder.state for folder in journal.list_journals(store)) == ["done", "missing", "missing"]
    for name in ("20990101T000000.000000Z", other.name):
        with pytest.raises(Refused, match="belongs to another store"):
            journal.undo(store / ".rmqstore" / name)
    with pytest.raises(RmqStoreError):
        pruning.prune(store / ".rmqstore" / other.name)
    for folder in journal.list_journals(store):
        if folder.state == "missing":
            pruning.prune_missing(folder)
    assert [folder.path for folder in journal.list_journals(store)] == [kept]
    journal.undo(kept)
    journal.undo(other)


def test_a_home_that_is_the_journal_of_another_store_is_not_pruned(store: Path, other: Path) -> None:
    step = {"do": "discard", "path": "x", "length": 1, "expect": HASH, "why": ""}
    own = store / ".rmqstore" / other.name
    forge(store, step, folder=own, state="undone", homes=["", str(other)])
    before = everything(other.parent.parent)
    with pytest.raises(Refused, match="has files in"):
        pruning.prune(own)
    with pytest.raises(Refused, match="is a journal itself"):
        pruning.prune(own, roots=[other.parent.parent])
    for state in ("preparing", "undone"):
        forged = json.loads((own / "state").read_text())
        (own / "state").write_text(json.dumps({**forged, "state": state}))
        with pytest.raises(Refused):
            journal.undo(own)
    assert everything(other.parent.parent) == before


def test_an_unstarted_journal_beside_a_store_does_not_delete_the_store_s_own(store: Path, tmp_path: Path) -> None:
    own = apply_full(store)
    step = {"do": "discard", "path": "x", "length": 1, "expect": HASH, "why": ""}
    forged = forge(store, step, folder=tmp_path / "elsewhere" / own.name, state="preparing")
    before = everything(store)
    for action in (journal.undo, journal.resume, pruning.prune):
        with pytest.raises(Refused, match="is not the pointer to"):
            action(forged)
    assert everything(store) == before


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("way", ["data path", "link"])
def test_the_journal_of_a_copied_store_does_not_change_what_belongs_to_the_original(
    tmp_path: Path, way: str, verb: str
) -> None:
    """`cp -a STORE COPY` copies journals; their paths outside of the store are those of the original."""
    original, disk2 = build(tmp_path / "store"), tmp_path / "disk2"
    disk2.mkdir()
    (original / "commitlog").rename(disk2 / "commitlog")
    if way == "link":
        (original / "commitlog").symlink_to(disk2 / "commitlog")
        name, roots = "commitlog/00000000000000008192", []
    else:
        name, roots = f"{disk2 / 'commitlog'}/00000000000000008192", [disk2 / "commitlog"]
    log = disk2 / "commitlog" / "00000000000000008192"
    before = log.read_bytes()
    step = Overwrite(name, 0, Zeros(64), fingerprint_range(log, 0, 64))
    plan = plan_of(original, step, roots=tuple(map(str, roots)))
    named = [disk2 / "commitlog"]
    applied = journal.apply(plan, disk=CountingDisk(), roots=named).journal
    assert applied is not None
    if verb == "resume":
        text = (applied / "state").read_text().replace('"done"', '"applying"')
        (applied / "state").write_text(text.replace('"batches_done": 1', '"batches_done": 0'))
    copy = Path(shutil.copytree(original, tmp_path / "copy", symlinks=True))
    kept = everything(original, disk2)
    with pytest.raises(Refused, match=r"is a copy of .*, to which .*disk2.* belongs"):
        getattr(journal, verb)(copy / ".rmqstore" / applied.name, roots=named)
    assert everything(original, disk2) == kept
    shutil.move(original, tmp_path / "moved")  # now the copy is what belongs to these directories
    journal.undo(copy / ".rmqstore" / applied.name, roots=named, disk=CountingDisk())
    assert log.read_bytes() == before


def test_pruning_a_copied_store_keeps_the_quarantine_of_the_original(store: Path, tmp_path: Path) -> None:
    home = tmp_path / "disk2" / ".rmqstore" / NAME
    step = {"do": "discard", "path": "abort", "expect": HASH, "length": len(DATA), "why": "x"}
    forge(store, step, state="done", homes=["", str(home)], home_of={"0": 1})
    (home / "quarantine").mkdir(parents=True)
    (home / "quarantine" / "000000-abort").write_bytes(DATA)
    for place in (tmp_path / "disk2" / ".rmqstore", home, home / "quarantine"):
        place.chmod(0o700)
    copy = Path(shutil.copytree(store, tmp_path / "copy", symlinks=True))
    with pytest.raises(Refused, match="is a copy of"):
        pruning.prune(copy / ".rmqstore" / NAME, roots=[tmp_path / "disk2"])
    assert (home / "quarantine" / "000000-abort").exists()
    pruning.prune(store / ".rmqstore" / NAME, roots=[tmp_path / "disk2"])
    assert not home.exists()


@pytest.mark.parametrize("staged", [False, True])
def test_an_unfinished_import_is_not_removed_by_another_repair(store: Path, staged: bool) -> None:
    step = {"do": "overwrite", "path": "checkpoint", "at": 0, "length": 1, "expect": HASH, "why": "x", "content": {}}
    place = forge(store, step, state="preparing", staged=staged)
    (place / "making").mkdir()
    (place / "making" / "mark.json").write_text("{}")
    before = everything(store)
    with pytest.raises(Refused, match="is an import that has not changed the store yet") as refused:
        journal.apply(full_plan(store), disk=CountingDisk())
    assert refused.value.advice == (
        f"run the same `rmqstore import` again to continue, or `rmqstore undo {place}` to give up"
    )
    assert everything(store) == before
    journal.undo(place)
    journal.apply(full_plan(store), disk=CountingDisk())


def test_a_top_entry_that_is_a_link_to_a_file_is_not_written_through(store: Path, victim: Path) -> None:
    step = overwrite(victim, "crontab", 0, Zeros(2))
    (store / "checkpoint").unlink()
    (store / "checkpoint").symlink_to(victim / "crontab")
    before = everything(victim)
    with pytest.raises(PlanStale, match="checkpoint is not a file"):
        journal.apply(plan_of(store, Overwrite("checkpoint", 0, step.content, step.expect)))
    assert everything(victim) == before
