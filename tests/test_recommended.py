"""Commands that texts recommend: each is valid, and those with a path run as printed, where they are printed.

Every store here is in a folder whose name needs quotes. `checks/problems` recommends `recover`, with options: the cases
in tests/cases/ run it for every problem, and tests/cli/test_next_step.py as printed.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from rmqstore.cli.lang import catalogue
from rmqstore.documents.plan import Plan, plan_from_json
from rmqstore.errors import HalfApplied, Refused
from rmqstore.repair.journal import journal
from tests.cli.test_lost import damaged
from tests.cli.test_old_records import old, put
from tests.command import command_names, parsed, run
from tests.damage import flip, zero
from tests.repair.trees import CountingDisk, failing_at
from tests.stores import copy_store, write_broker_conf

_NAME = "it's here"
_FLIPPED = "00000000000000327680"
_VALUES = {"offset": "1", "topic": "Order", "undo": "rmqstore undo JOURNAL"}
"""Values of a text that are no path or name of a version."""
_PLACES = {"FILE": "new.ndjson", "DIR": "new"}
_NO_ARGUMENTS = {"snapshots --check", "journals --prune", "export --topic", "export --stale", "export --no-body"}
"""Commands that a text only names: their arguments are those of the command that prints it."""


def _commands(text: str) -> Iterator[str]:
    """Yield the commands with arguments in a text: in backticks, or after a colon or "run" to the end of the line."""
    quoted = re.findall(r"`rmqstore ([^`]+)`", text)
    yield from quoted or re.findall(r"(?:: |&& |^)rmqstore ([^`]+?)(?: shows the newest)?$", text, re.MULTILINE)


def _recommended() -> list[tuple[str, str]]:
    return [
        (entry.english, command.strip())
        for entry in catalogue.read()
        for command in _commands(entry.english)
        if " " in command.strip() and command.split()[0] in command_names() and command not in _NO_ARGUMENTS
    ]


def test_every_recommended_command_is_valid() -> None:
    found = _recommended()
    assert len(found) > 40
    for text, command in found:
        filled = re.sub(r"\{(\w+)[^}]*\}", lambda name: _VALUES.get(name[1], "x"), command)
        filled = filled.replace("VERSION", "5.4.0").replace("--broker x", "--broker 5.4.0")
        try:
            parsed(shlex.split(filled))
        except Exception as error:
            raise AssertionError(f"{text}: {command}") from error


# --- situations -------------------------------------------------------------------------------------------------------


def sound(folder: Path) -> Path:
    return copy_store("5.4.0-clean", folder, rename=_NAME)


def flipped(folder: Path) -> Path:
    store = sound(folder)
    flip(store / "commitlog" / _FLIPPED, 4000)
    return store


def with_old_records(folder: Path) -> Path:
    store = sound(folder)
    last = sorted((store / "commitlog").iterdir())[-1]
    place = 479_958 - int(last.name) + 5  # after the end of the log
    put(last, place, old(1 << 40))
    return store


def without_a_file(folder: Path) -> Path:
    store = sound(folder)
    (store / "commitlog" / _FLIPPED).unlink()
    return store


def broken(folder: Path) -> Path:
    store = sound(folder)
    damaged(store)
    return store


def repaired(folder: Path) -> Path:
    store = broken(folder)
    assert run("recover", str(store), "--apply").exit_code == 0
    return store


def repaired_twice(folder: Path) -> Path:
    store = repaired(folder)
    zero(store / "commitlog" / _FLIPPED, 8192, 4096)
    assert run("recover", str(store), "--apply").exit_code == 0
    return store


def unfinished(folder: Path) -> Path:
    """A store whose repair stopped half-way."""
    store = broken(folder)
    plan_file = folder / "plan.json"
    assert run("recover", str(store), "--plan-out", str(plan_file)).exit_code == 1
    _advice(lambda disk: journal.apply(_plan(plan_file, store), disk=disk))
    return store


def undone(folder: Path) -> Path:
    store = repaired(folder)
    assert run("undo", str(store), "--last").exit_code == 0
    return store


def nothing_is_committed(folder: Path) -> Path:
    store = dledger(folder)
    (store / "dledger-n0" / "checkpoint").unlink()
    return store


def with_double_write(folder: Path) -> Path:
    """A store that 5.5 does not start with this broker.conf."""
    store = sound(folder)
    conf = write_broker_conf("5.4.0-clean", store, rocksdbCQDoubleWriteEnable="true")
    conf.rename(folder / "broker.conf")
    return store


def journal_is_gone(folder: Path) -> Path:
    store = broken(folder)
    place = folder / "journals"
    assert run("recover", str(store), "--apply", "--journal", str(place)).exit_code == 0
    shutil.rmtree(place)
    return store


def topic_is_deleted(folder: Path) -> Path:
    """A topic whose queues and configuration are gone, as after `mqadmin deleteTopic`."""
    store = sound(folder)
    shutil.rmtree(store / "consumequeue" / "Order_11")
    for name in ("topics.json", "topics.json.bak"):
        path = store / "config" / name
        if path.exists():
            table = json.loads(path.read_text())
            table["topicConfigTable"].pop("Order_11", None)
            path.write_text(json.dumps(table))
    return store


def with_replica(folder: Path) -> Path:
    copy_store("5.4.0-clean", folder, rename="its replica")
    return flipped(folder)


def lacks_queue(folder: Path) -> Path:
    store = sound(folder)
    shutil.rmtree(store / "consumequeue" / "Order_11")
    return store


def dledger(folder: Path) -> Path:
    return copy_store("5.4.0-dledger", folder, rename=_NAME)


def dledger_is_damaged(folder: Path) -> Path:
    store = dledger(folder)
    flip(store / "dledger-n0" / "data" / f"{65536:020}", 900)
    return store


def migrated(folder: Path) -> Path:
    store = sound(folder)
    assert run("migrate-to-dledger", str(store), "--self-id", "n0", "--apply").exit_code == 0
    return store


def legacy_file_is_missing(folder: Path) -> Path:
    store = migrated(folder)
    sorted((store / "commitlog").iterdir())[-1].unlink()
    return store


def with_export(folder: Path) -> Path:
    store = flipped(folder)
    assert run("export", str(store), "--limit", "3", "-o", str(folder / "some.ndjson")).exit_code in (0, 1)
    return store


def backed_up(folder: Path) -> Path:
    store = sound(folder)
    assert run("backup", str(store), str(folder / "repo"), "--name", "a").exit_code == 0
    flip(store / "commitlog" / _FLIPPED, 4000)
    return store


def backed_up_damaged(folder: Path) -> Path:
    store = flipped(folder)
    assert run("backup", str(store), str(folder / "repo"), "--name", "a").exit_code == 1
    return store


def written_over(store: Path) -> Path:
    """A store whose log has other bytes now, as if a broker had written to it."""
    for path in store.glob("commitlog/*"):
        zero(path, 0, path.stat().st_size)
    return store


def written_after_repair(folder: Path) -> Path:
    return written_over(repaired(folder))


def copied_after_repair(folder: Path) -> Path:
    """A copy with the bytes of its original, and times of its own."""
    store = repaired(folder)
    other = folder / "original"
    store.rename(other)
    shutil.copytree(other, store, copy_function=shutil.copyfile)
    return store


def written_in_a_repair(folder: Path) -> Path:
    return written_over(unfinished(folder))


def with_damaged_repository(folder: Path) -> Path:
    store = backed_up(folder)
    flip(max((folder / "repo" / "a" / "log").rglob("0*")), 100)
    return store


@dataclass(frozen=True)
class Situation:
    """A store, the command that recommends another one, and a pattern of that. `ends`: its exit code as printed."""

    prepare: Callable[[Path], Path]
    words: tuple[str, ...]
    recommends: str
    ends: int = 0
    text: str = ""


SITUATIONS = {
    "verify, then recover": Situation(flipped, ("verify", _NAME), r"Next: rmqstore (recover .*)", 1),
    "doctor, then recover": Situation(flipped, ("doctor", _NAME), r"Next: rmqstore (recover .*)", 1),
    "a repair can be undone": Situation(
        flipped, ("recover", _NAME, "--apply"), r"To undo: rmqstore (undo .*)", text="To undo: {way}"
    ),
    "undo of a listed repair": Situation(
        repaired, ("journals", _NAME), r"to undo: rmqstore (undo .*)", text="  to undo: rmqstore undo {path}"
    ),
    "an older repair": Situation(
        repaired_twice,
        ("undo", "{first journal}"),
        r"`rmqstore (undo [^`]*)` first",
        text="run `rmqstore undo {later}` first",
    ),
    "undo of what was written over": Situation(
        written_after_repair,
        ("undo", _NAME, "--last"),
        r"`rmqstore (verify [^`]*)`",
        1,
        text="something (a broker?) wrote to the store after the repair, and undo would destroy that. `rmqstore verify "
        "{store}` shows what the store needs now; what the repair replaced is kept in {journal}",
    ),
    "undo in a copy": Situation(
        copied_after_repair,
        ("undo", _NAME, "--last"),
        r"`rmqstore (verify [^`]*)`",
        text="the bytes that the repair wrote are still there, but these files have other times. If this is a copy of "
        "the store, undo the original, or copy it with its times (cp -a). Otherwise something (a broker?) wrote to the "
        "files, and undo would destroy that; `rmqstore verify {store}` shows what the store needs now",
    ),
    "resume over what was written": Situation(
        written_in_a_repair,
        ("resume", "{first journal}"),
        r"`rmqstore (verify [^`]*)`",
        1,
        text="something (a broker?) wrote to the store since: `rmqstore undo` may still undo the repair, and `rmqstore "
        "verify {store}` shows what the store needs now",
    ),
    "a repair that needs a decision": Situation(
        without_a_file,
        ("recover", _NAME, "--safe"),
        r"Next: rmqstore (recover .*)",
        1,
        text="Next: rmqstore recover {store}",
    ),
    "a copy of a damaged repository": Situation(
        with_damaged_repository,
        ("snapshots", "repo", "--copy", "other"),
        r"`rmqstore (snapshots [^`]*)`",
        1,
        text="`rmqstore snapshots {address} --check` lists all faults",
    ),
    "a repair that stopped": Situation(unfinished, ("verify", _NAME), r"rmqstore (undo .*)"),
    "a repair that stopped is resumed": Situation(unfinished, ("verify", _NAME), r"rmqstore (resume .*)"),
    "another repair first": Situation(
        unfinished,
        ("rebuild", _NAME, "index", "--apply"),
        r"`rmqstore (resume [^`]*)`",
        text="run `rmqstore undo {path}` or `rmqstore resume {path}`",
    ),
    "no resume after an undo": Situation(
        undone,
        ("resume", "{first journal}"),
        r"`rmqstore (undo [^`]*)`",
        text="run `rmqstore undo {path}`, then repair again",
    ),
    "no migration during a repair": Situation(
        unfinished,
        ("migrate-to-dledger", _NAME, "--self-id", "n0"),
        r"`rmqstore (undo [^`]*)`",
        text="run `rmqstore undo {path}` or `rmqstore resume {path}` first",
    ),
    "no way back without a committed index": Situation(
        nothing_is_committed,
        ("migrate-to-commitlog", _NAME, "--output", "plain", "--only-committed"),
        r"`rmqstore (recover [^`]* --apply)`",
        text="run `rmqstore recover {store} --apply`, or use --include-uncommitted",
    ),
    "no migration for a version that does not start": Situation(
        with_double_write,
        ("migrate-to-dledger", _NAME, "--self-id", "n0", "-c", "broker.conf"),
        r"`rmqstore (verify [^`]* --broker [^`]*)`",
        1,
        text="the store itself is sound: what broker.conf says, or what this version does, is in the way; see "
        "`rmqstore verify {words_for} --broker {version}`",
    ),
    "its journal is gone": Situation(
        journal_is_gone,
        ("journals", _NAME),
        r"rmqstore (journals .* --prune --missing --apply)",
        text="  if it is gone for good: rmqstore journals {store} --prune --missing --apply",
    ),
    "its journal is gone, says verify": Situation(
        journal_is_gone, ("verify", _NAME), r"cure: rmqstore (journals .* --prune --missing --apply)"
    ),
    "a deleted topic": Situation(
        topic_is_deleted,
        ("lost", _NAME, "--format", "table"),
        r"`rmqstore (export [^`]*)`",
        text="  `rmqstore export {store} --topic {topic} -o FILE` saves them",
    ),
    "a deleted topic, as rows": Situation(
        topic_is_deleted,
        ("lost", _NAME, "--format", "ndjson"),
        r"`rmqstore (export [^`]*)`",
        text="`rmqstore export {path} --topic {topic} -o FILE` saves them",
    ),
    "a deleted topic is served again": Situation(
        topic_is_deleted,
        ("lost", _NAME, "--format", "table"),
        r"`rmqstore (recover [^`]* --apply)`",
        text="Then `rmqstore recover {store} --apply` makes their queues.",
    ),
    "records of earlier logs": Situation(
        with_old_records,
        ("lost", _NAME, "--stale", "--format", "table"),
        r"`rmqstore (export [^`]*)`",
        text="A broker and `rmqstore recover` overwrite them. `rmqstore export {store} --stale -o FILE` saves them.",
    ),
    "a key that never arrived": Situation(sound, ("find", _NAME, "ORDER-9"), r"rmqstore (lost .* --stale)"),
    "a lost message has a journal": Situation(repaired, ("find", _NAME, "ord11_100"), r"rmqstore (lost .*)", 1),
    "several messages with a key": Situation(
        lambda folder: copy_store("5.4.0-pop", folder, rename=_NAME),
        ("get", _NAME, "pr28"),
        r"rmqstore (get .*) shows the newest",
        text="rmqstore get {store} {offset} shows the newest",
    ),
    "a damaged replica": Situation(
        with_replica,
        ("compare", _NAME, "its replica"),
        r"see `rmqstore (verify [^`]*)`",
        1,
        text="         {places}: see `rmqstore verify {path}`",
    ),
    "a replica heals": Situation(with_replica, ("compare", _NAME, "its replica"), r"Next: rmqstore (recover .*)", 1),
    "no migration of a damaged store": Situation(
        flipped,
        ("migrate-to-dledger", _NAME, "--self-id", "n0"),
        r"`rmqstore (recover [^`]* --apply)`",
        text="run `rmqstore recover {words_for} --apply`, then this command again",
    ),
    "no migration without queues": Situation(
        lacks_queue,
        ("migrate-to-dledger", _NAME, "--self-id", "n0"),
        r"`rmqstore (rebuild [^`]* --apply)`",
        text="run `rmqstore rebuild {words_for} cq --apply`, then this command again",
    ),
    "no way back of a damaged store": Situation(
        dledger_is_damaged,
        ("migrate-to-commitlog", _NAME, "--output", "plain"),
        r"`rmqstore (recover [^`]* --apply)`",
        text="run `rmqstore recover {words_for} --apply`, then this command again",
    ),
    "the way back is checked": Situation(
        dledger,
        ("migrate-to-commitlog", _NAME, "--output", "plain store"),
        r"Check it with: rmqstore (verify .*)",
        text="Check it with: rmqstore verify {target}",
    ),
    "already migrated": Situation(
        migrated,
        ("migrate-to-dledger", _NAME, "--self-id", "n0"),
        r"`rmqstore (verify [^`]*)`",
        text="nothing to do; check it with `rmqstore verify {words_for}`",
    ),
    "migrated, and then a file was lost": Situation(
        legacy_file_is_missing,
        ("migrate-to-dledger", _NAME, "--self-id", "n0"),
        r"see `rmqstore (verify [^`]*)`",
        1,
        text="see `rmqstore verify {words_for}`; restore the missing files, or undo the migration",
    ),
    "the way back lacks a file": Situation(
        legacy_file_is_missing,
        ("migrate-to-commitlog", _NAME, "--output", "plain"),
        r"see `rmqstore (verify [^`]*)`",
        1,
        text="restore the files; see `rmqstore verify {words_for}`",
    ),
    "an import into a damaged store": Situation(
        with_export,
        ("import", "some.ndjson", "--into", _NAME),
        r"see `rmqstore (verify [^`]*)`",
        1,
        text="see `rmqstore verify {place}`, and repair it",
    ),
    "a bundle is looked at": Situation(
        flipped,
        ("bundle", _NAME, "-o", "for them.tar.gz"),
        r"tar xzf .* && rmqstore (verify .*)",
        1,
        text="Look at it before you share it: tar xzf {path} && rmqstore verify {unpacked}",
    ),
    "a backup of a damaged store": Situation(
        flipped, ("backup", _NAME, "repo", "--name", "a"), r"-> rmqstore (verify .*)", 1
    ),
    "damage after the last backup": Situation(
        backed_up, ("backup", _NAME, "repo", "--name", "a"), r"-> rmqstore (recover .*)", 1
    ),
    "a restored store with damage": Situation(
        backed_up_damaged, ("restore", "repo::a", "restored store"), r"-> rmqstore (recover .*)", 1
    ),
    "a snapshot does not change": Situation(
        backed_up_damaged,
        ("recover", "repo::a", "--apply"),
        r"`rmqstore (restore [^`]*)`",
        1,
        text="read it as {address}; `rmqstore restore {address} DIR` makes a store of it",
    ),
    "a damaged snapshot is repaired as a store": Situation(
        backed_up_damaged,
        ("verify", "repo::a"),
        r"`rmqstore (restore [^`]*)`",
        1,
        text="STORE is what `rmqstore restore {address} DIR` makes: a snapshot does not change.",
    ),
    "info": Situation(without_a_file, ("info", _NAME), r"rmqstore (verify .*)", 1),
}


@pytest.mark.quick_rows(5)
@pytest.mark.parametrize("name", SITUATIONS)
def test_the_recommended_command_runs_as_printed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    situation = SITUATIONS[name]
    store = situation.prepare(tmp_path)
    first = min((store / ".rmqstore").iterdir(), default=None) if (store / ".rmqstore").is_dir() else None
    words = [str(first) if word == "{first journal}" else word for word in situation.words]
    printed = run(*words)
    assert printed.exit_code != 70, printed.output
    found = re.search(situation.recommends, printed.stdout) or re.search(situation.recommends, printed.stderr)
    assert found is not None, printed.output
    if "tar xzf" in found[0]:
        shutil.unpack_archive("for them.tar.gz", tmp_path, filter="data")
    done = run(*(_PLACES.get(word, word) for word in shlex.split(found[1])))
    assert done.exit_code == situation.ends, done.output


@pytest.mark.parametrize("which", [0, 1])
def test_the_way_out_of_an_apply_that_stops_runs_as_printed(which: int, tmp_path: Path) -> None:
    """Undo and resume after an apply that stopped; undo again after an undo that stopped."""
    store = broken(tmp_path)
    plan_file = tmp_path / "plan.json"
    run("recover", str(store), "--plan-out", str(plan_file))
    advice = _advice(lambda disk: journal.apply(_plan(plan_file, store), disk=disk))
    undo, resume = (shlex.split(command) for command in _commands(advice))
    if which:
        assert run(*resume).exit_code == 0
        (folder,) = (store / ".rmqstore").iterdir()
        (undo,) = (shlex.split(command) for command in _commands(_advice(lambda disk: journal.undo(folder, disk=disk))))
    assert run(*undo).exit_code == 0
    assert run("lost", str(store), "--next-start").exit_code == 1, "damaged as before"


def _plan(plan_file: Path, store: Path) -> Plan:
    return plan_from_json(plan_file.read_bytes(), store=store, roots=[store / "commitlog"])


def _advice(change: Callable[[CountingDisk], object]) -> str:
    """Return the advice of a change whose disk fails half-way."""
    for writes in range(40, 400, 5):
        try:
            change(failing_at(writes, for_good=True))
        except HalfApplied as error:
            return error.advice
        except Refused:  # nothing was changed yet
            continue
    raise AssertionError("no change stopped half-way")


def test_every_text_with_a_command_for_a_path_has_a_situation() -> None:
    """A command with a value can be pasted; others name what the reader fills in."""
    pasted = {text for text, command in _recommended() if re.search(r"\{\w+\}", command)}
    of_an_import = {"finish it with its own command line, or run `rmqstore undo {path}`"}
    assert pasted - {situation.text for situation in SITUATIONS.values()} == of_an_import
