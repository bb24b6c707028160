"""Files under the names of other files: what proves it, and which of them are renamed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqstore.checks import misplaced_files as misplaced
from rmqstore.checks.examine import examine, verify
from rmqstore.checks.misplaced_files import Misplaced, find_misplaced
from rmqstore.documents.steps import Discard, Rename
from rmqstore.errors import Refused
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.mapped_file_queue import MappedFile, offset_to_file_name
from rmqstore.files.store import open_store
from rmqstore.formats.message import PHYSICAL_OFFSET_AT
from rmqstore.repair.expire import plan_expire
from rmqstore.repair.journal.journal import apply
from rmqstore.repair.plan.recover_options import RecoverOptions
from rmqstore.repair.rebuild_parts import plan_rebuild
from rmqstore.repair.recover import plan_recovery
from rmqstore.scan.records import scan_file
from rmqstore.scan.tiling import Run
from tests import damage
from tests.checks.looks import counts
from tests.planning import loss_of, plan_of
from tests.stores import STORES, copy_store, unpack

STORE = "4.9.7-killed"

SIZE = 65536


def name(number: int) -> str:
    return offset_to_file_name(number * SIZE)


def log_of(store: Path) -> Path:
    return next(store.glob("dledger-*/data"), store / "commitlog")


def swap(log: Path, one: int, two: int) -> None:
    (log / name(one)).rename(log.parent / "aside")
    (log / name(two)).rename(log / name(one))
    (log.parent / "aside").rename(log / name(two))


def look(store: Path) -> Misplaced:
    return find_misplaced(open_store(store))


def goes(found: Misplaced) -> dict[str, str]:
    return {now.name: then.name for now, then in found.store.moved.items()}


def stays(found: Misplaced) -> dict[str, str]:
    return {file.claim.file.name: file.why_not for file in found.files if file.why_not}


@pytest.mark.parametrize("store", STORES)
def test_a_real_store_has_none_and_only_the_heads_of_its_files_are_read(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []

    def noted(file: MappedFile, **words: Any) -> Iterator[Run]:
        read.append(file.path)
        return scan_file(file, **words)

    monkeypatch.setattr(misplaced, "scan_file", noted)
    found = look(unpack(store))
    assert found.files == () and found.store.moved == {} and read == []


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("store", ["4.9.7-clean", "5.1.4-formats", "5.4.0-dledger", "5.4.0-dledger-mixed"])
def test_swapped_files_are_identified_with_any_split(tmp_path: Path, store: str) -> None:
    path = copy_store(store, tmp_path)
    log = log_of(path)
    first = min(int(file.name) for file in log.iterdir()) // SIZE
    swap(log, first, first + 1)
    code = "DL-MISPLACED-FILE" if log.name == "data" else "CL-MISPLACED-FILE"
    assert counts(path, parallel=True)[code] == 2
    assert goes(look(path)) == {name(first): name(first + 1), name(first + 1): name(first)}


def test_swapped_files_are_also_found_in_a_part_of_a_store(tmp_path: Path) -> None:
    store = copy_store("4.9.7-clean", tmp_path)
    swap(store / "commitlog", 1, 2)
    assert verify(open_store(store / "commitlog")).findings.counts["CL-MISPLACED-FILE"] == 2
    assert verify(open_store(store / "commitlog" / name(1))).findings.counts["CL-MISPLACED-FILE"] == 0


def test_damage_in_a_swapped_file_is_found_at_its_right_place(store: Path) -> None:
    log = store / "commitlog"
    damage.zero(log / name(3), 8192, 4096)
    expected = {(f.code, f.offset, f.length) for f in verify(open_store(store)).findings.listed}
    swap(log, 3, 9)
    found = {(f.code, f.offset, f.length) for f in verify(open_store(store)).findings.listed}
    assert expected and {row for row in found if row[0] != "CL-MISPLACED-FILE"} == expected


def test_file_whose_head_is_gone_is_known_by_what_follows(store: Path) -> None:
    log = store / "commitlog"
    swap(log, 3, 9)
    damage.garble(log / name(3), 0, 20_000)
    damage.zero(log / name(9), 0, 30_000)
    assert goes(look(store)) == {name(3): name(9), name(9): name(3)}


def test_single_record_proves_nothing_but_fits_what_another_file_proves(store: Path) -> None:
    log = store / "commitlog"
    raw = (log / name(4)).read_bytes()
    size = int.from_bytes(raw[:4], "big")
    alone = raw[:size] + bytes(SIZE - size)
    (log / name(4)).write_bytes(alone)
    (log / name(9)).write_bytes(alone)
    assert look(store).files == ()
    shutil.copy(unpack("4.9.7-killed") / "commitlog" / name(9), log / name(4))
    assert goes(look(store)) == {name(4): name(9), name(9): name(4)}


def test_header_of_one_record_in_a_swapped_file_may_be_wrong(store: Path) -> None:
    log = store / "commitlog"
    swap(log, 3, 9)
    damage.flip(log / name(3), PHYSICAL_OFFSET_AT + 7, 3)
    found = look(store)
    assert goes(found) == {name(3): name(9), name(9): name(3)}
    assert [file.claim.others for file in found.files] == [1, 0]


def test_own_file_with_the_stale_head_of_another_is_not_moved(store: Path) -> None:
    log = store / "commitlog"
    (log / name(9)).unlink()
    raw, other = (log / name(3)).read_bytes(), (unpack("4.9.7-killed") / "commitlog" / name(9)).read_bytes()
    size = int.from_bytes(other[:4], "big")
    (log / name(3)).write_bytes(other[:size] + raw[size:])
    assert look(store).files == ()


def test_what_was_copied_over_another_file_stays(store: Path) -> None:
    log = store / "commitlog"
    shutil.copy(log / name(3), log / name(9))
    found = look(store)
    assert goes(found) == {} and stays(found) == {name(9): "the file there is in its right place"}
    why = "the file there is in its right place"
    note = f"{name(9)} contains the records of {name(3)}, but cannot be renamed: {why}."
    notes = plan_of(store).notes
    assert any(text.startswith(note) for text in notes)
    assert not any("right name" in text.partition(".")[0] for text in notes)  # no file is renamed


@pytest.mark.parametrize("lost", [9, 0])
def test_a_file_is_renamed_although_a_copy_of_it_took_the_place_of_another_file(lost: int, store: Path) -> None:
    log = store / "commitlog"
    shutil.copy(log / name(3), log / name(lost))
    (log / name(3)).rename(log / name(12))
    found = look(store)
    assert goes(found) == {name(12): name(3)}
    assert stays(found) == {name(lost): "another file with the same bytes gets this name"}
    notes = plan_of(store).notes
    assert any(f"If a backup or replica has the right {name(lost)}, restore it" in note for note in notes)
    assert any(note.startswith("1 log file gets its right name, content unchanged") for note in notes)
    assert not any("gets its right name" in note and "log files get" in note for note in notes)


def test_a_copy_under_another_name_is_no_reason_for_a_note(store: Path) -> None:
    log = store / "commitlog"
    shutil.copy(log / name(3), log / "copy")
    swap(log, 3, 9)
    notes = plan_of(store).notes
    assert any(note.startswith("2 log files get their right names, content unchanged") for note in notes)
    assert not any("cannot be renamed" in note for note in notes)


def test_two_different_files_of_one_place_stay(store: Path) -> None:
    log = store / "commitlog"
    shutil.copy(log / name(3), log / name(9))
    damage.flip(log / name(9), SIZE // 2, 1)
    (log / name(3)).rename(log / name(12))
    found = look(store)
    why = "another file has records of the same addresses"
    assert goes(found) == {} and stays(found) == {name(9): why, name(12): why}
    swap(log, 5, 12)  # files whose place is not vacated stay, too
    found = look(store)
    assert goes(found) == {}
    assert stays(found)[name(12)] == "the file there cannot be moved"


def test_a_misnamed_last_file_is_renamed_even_if_the_file_before_it_is_missing(tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    log = store / "commitlog"
    last = max(log.iterdir())
    last.rename(f"{last}.bak")
    max(path for path in log.iterdir() if path.suffix == "").unlink()
    assert goes(look(store)) == {f"{last.name}.bak": last.name}


def test_backup_of_a_file_that_has_expired_does_not_come_back(store: Path) -> None:
    log = store / "commitlog"
    shutil.copy(log / name(0), log / name(9))
    for number in range(3):
        (log / name(number)).unlink()
    assert stays(look(store)) == {name(9): "no log file is near its place"}


def test_file_of_dledger_entries_does_not_belong_to_the_commitlog(tmp_path: Path) -> None:
    store = copy_store("5.4.0-dledger-mixed", tmp_path)
    entries = store / "dledger-n0/data"
    (entries / name(8)).rename(store / "commitlog" / name(7))
    assert look(store).files == ()


def test_file_of_garbage_is_moved_out_of_the_way(store: Path) -> None:
    log = store / "commitlog"
    (log / name(4)).write_bytes((log / name(2)).read_bytes())
    damage.garble(log / name(2), 0, SIZE)
    found = look(store)
    assert goes(found) == {name(4): name(2), name(2): name(4)}
    assert [file.claim.file.name for file in found.files] == [name(4)]


def test_stray_copy_of_a_file_that_is_there_is_only_a_stray(tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    log = store / "commitlog"
    shutil.copy(log / name(3), log / f"{name(3)}.bak")
    assert look(store).files == ()
    assert [step.path for step in plan_of(store).steps if isinstance(step, Discard)] == [f"commitlog/{name(3)}.bak"]


def test_nothing_else_is_repaired_while_names_stay_wrong(store: Path) -> None:
    log = store / "commitlog"
    swap(log, 3, 9)
    damage.flip(log / name(5), 200, 1)
    with pytest.raises(Refused, match="wrong names"):
        plan_of(store, options=RecoverOptions(only=("CL-BODY-CRC",)))
    only = plan_of(store, options=RecoverOptions(only=("CL-MISPLACED-FILE",)))
    assert {step.do for step in only.steps} == {"set-aside", "rename"}


def test_follower_whose_swapped_files_lie_after_damage_discards_them_where_they_are(tmp_path: Path) -> None:
    store = copy_store("5.4.0-slave", tmp_path)
    log = store / "commitlog"
    damage.flip(log / name(1), 300, 2)
    swap(log, 2, 3)
    made = plan_of(store, options=RecoverOptions(role="slave"))
    discarded = [step.path for step in made.steps if isinstance(step, Discard) and "commitlog" in step.path]
    assert {f"commitlog/{name(2)}", f"commitlog/{name(3)}"} <= set(discarded)
    assert not any(isinstance(step, Rename) for step in made.steps)


def test_expire_and_rebuild_know_of_wrong_names(tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    swap(store / "commitlog", 1, 3)
    with pytest.raises(Refused, match="wrong names"):
        plan_expire(open_store(store))
    shutil.rmtree(next((store / "consumequeue").glob("Order*")))
    opened = open_store(store)
    rebuilt = plan_rebuild(opened, examine(opened), "cq")
    assert any("wrong names" in note for note in rebuilt.notes)
    apply(rebuilt)
    back = plan_of(store)
    assert {step.do for step in back.steps} == {"set-aside", "rename"}
    apply(back)
    assert verify(open_store(store)).clean


def test_files_of_two_paths_get_their_names_where_they_are(tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    log, second = store / "commitlog", store / "second"
    second.mkdir()
    for number in (1, 3, 5):
        (log / name(number)).rename(second / name(number))
    swap(log, 2, 4)
    (second / name(3)).rename(store / "aside")
    (log / name(6)).rename(second / name(3))
    (store / "aside").rename(log / name(6))
    config = BrokerConfig({"storePathCommitLog": f"{log},{second}"})
    opened = open_store(store, config)
    made = plan_recovery(opened, examine(opened))
    renames = {step.source: step.path for step in made.steps if isinstance(step, Rename)}
    assert renames == {
        f"commitlog/{name(2)}": f"commitlog/{name(4)}",
        f"commitlog/{name(4)}": f"commitlog/{name(2)}",
        f"commitlog/{name(6)}": f"commitlog/{name(3)}",
        f"second/{name(3)}": f"second/{name(6)}",
    }
    apply(made)
    assert verify(open_store(store, config)).clean


def test_a_file_of_another_broker_is_not_renamed_after_the_log(tmp_path: Path) -> None:
    """Its records say that it begins one file after the log's end, but no consume queue unit points there."""
    store, other = copy_store("5.4.0-clean", tmp_path), unpack("5.1.4-killed")
    (log_of(store) / name(5)).write_bytes((log_of(other) / name(9)).read_bytes())
    found = look(store)
    assert goes(found) == {}
    assert stays(found) == {name(5): "no consume queue unit points to its messages"}
    lost = loss_of(store, options=RecoverOptions(role="single", accept_fillers=True)).messages
    assert lost == 72  # those of the file that it replaced, and none between the two
