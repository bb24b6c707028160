"""DLedger entries, compared with their index and the text files."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqstore.checks.beside.dledger import check_dledger, check_dledger_texts
from rmqstore.checks.examine import verify
from rmqstore.checks.log.log_contents import EntryTally, add_entries
from rmqstore.checks.options import VerifyOptions
from rmqstore.checks.problems.report import Findings
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import Store, open_store
from rmqstore.scan.records import scan_file
from rmqstore.scan.tiling import Kind, Tiling
from tests.checks.sound import located, opened
from tests.damage import cut, flip, garble, overwrite, zero
from tests.stores import STORES, copy_store, unpack

STORE = "5.4.0-dledger"

INDEX = "00000000000000000000"
DLEDGER_STORES = [n for n in STORES if any(p.name.startswith("dledger-") for p in unpack(n).iterdir())]


def check(store: Store, *, live: bool = False) -> tuple[Findings, EntryTally, int | None]:
    files = store.dledger
    assert files is not None
    tally = EntryTally()
    tiling = Tiling(files.data.start)
    for file in files.data.files:
        if file.start > tiling.stop:
            from rmqstore.scan.tiling import Run

            tiling.add(Run(Kind.HOLE, tiling.stop, file.start))
        for run in scan_file(file, body_offset=48):
            tiling.add(run)
            if run.kind is Kind.RECORDS and run.columns is not None:
                add_entries(run.columns, files.index, tally)
    findings = Findings()
    committed = check_dledger(store, files, tally, findings, tiling=tiling, live=live)
    return findings, tally, committed


@pytest.mark.parametrize("name", DLEDGER_STORES)
def test_a_real_group_is_sound(name: str) -> None:
    findings, tally, committed = check(opened(name))
    assert findings.listed == []
    assert tally.first_index == 0
    assert tally.entries == tally.last_index + 1
    assert committed is not None
    assert committed <= tally.last_index


def test_a_mixed_store_in_the_report() -> None:
    report = verify(opened("4.9.7-dledger-mixed"))
    assert report.dledger is not None
    wanted = {"group_dir": "dledger-n0", "first_index": 0, "last_index": 202, "term": 0, "first_pos": 458_752}
    wanted |= {"committed_index": 202, "entries": 203}
    assert {name: report.dledger[name] for name in wanted} == wanted


def test_a_follower_may_have_committed_far_less_than_it_has() -> None:
    findings, tally, committed = check(opened("5.4.0-dledger3-n2"))
    assert findings.listed == []
    assert (committed, tally.last_index) == (69, 300)


@pytest.mark.parametrize("at", [3, 11, 15, 23, 31])
def test_any_wrong_field_of_an_index_unit_is_named(tmp_path: Path, at: int) -> None:
    store = copy_store("5.1.4-dledger", tmp_path)
    flip(store / "dledger-n0" / "index" / INDEX, 100 * 32 + at, 2)
    findings, _, _ = check(open_store(store))
    assert located(findings) == [("DL-DATA-INDEX", "dledger-index", INDEX, 3200)]
    assert findings.listed[0].facts == {"index": 100, "last_index": 100, "count": 1, "absent": 0}


def test_zeroed_index_units_are_absent(store: Path) -> None:
    zero(store / "dledger-n0" / "index" / INDEX, 64, 320)
    findings, _, _ = check(open_store(store))
    assert located(findings) == [("DL-DATA-INDEX", "dledger-index", INDEX, 64)]
    assert findings.listed[0].facts == {"index": 2, "last_index": 11, "count": 10, "absent": 10}


def test_a_removed_index_is_absent_for_all_entries(tmp_path: Path) -> None:
    store = copy_store("4.9.7-dledger", tmp_path)
    (store / "dledger-n0" / "index" / INDEX).unlink()
    findings, tally, _ = check(open_store(store))
    assert located(findings) == [("DL-DATA-INDEX", "dledger-index", "", 0)]
    assert findings.listed[0].facts["absent"] == tally.entries


def test_the_last_unit_may_be_missing_after_a_kill_only(tmp_path: Path) -> None:
    store = copy_store("5.4.0-dledger-killed", tmp_path)
    _, tally, _ = check(open_store(store))
    zero(store / "dledger-n0" / "index" / INDEX, tally.last_index * 32, 32)
    assert check(open_store(store))[0].listed == []
    (store / "abort").unlink()
    assert located(check(open_store(store))[0]) == [("DL-DATA-INDEX", "dledger-index", INDEX, tally.last_index * 32)]


def test_units_after_the_last_entry_are_ghosts(store: Path) -> None:
    _, tally, _ = check(open_store(store))
    end = (tally.last_index + 1) * 32
    overwrite(store / "dledger-n0" / "index" / INDEX, end + 64, b"\0\0\0\1")
    findings, tally, _ = check(open_store(store))
    assert [(f.code, f.offset, f.length, f.facts["units"]) for f in findings.listed] == [("DL-INDEX-GHOST", end, 96, 3)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "committedIndex is missing"),
        (bytes(32), "committedIndex is missing"),
        (b"committedIndex=x\nendIndex=3\n", "committedIndex is not a number"),
    ],
)
def test_a_checkpoint_that_cannot_be_read_is_named(tmp_path: Path, text: bytes, reason: str) -> None:
    store = copy_store("4.9.7-dledger", tmp_path)
    (store / "dledger-n0" / "checkpoint").write_bytes(text)
    findings, _, committed = check(open_store(store))
    assert located(findings) == [("DL-COMMITTED", "dledger", "checkpoint", 0)]
    assert reason in str(findings.listed[0].facts["reason"])
    assert findings.listed[0].facts["spares"] == ".bak"
    assert committed is None


def test_a_missing_checkpoint_is_named_with_what_could_restore_it(tmp_path: Path) -> None:
    store = copy_store("4.9.7-dledger", tmp_path)
    (store / "dledger-n0" / "checkpoint").rename(store / "dledger-n0" / "checkpoint.tmp")
    findings, _, _ = check(open_store(store))
    assert located(findings) == [("DL-COMMITTED", "dledger", "checkpoint", 0)]
    assert findings.listed[0].facts == {"reason": "missing", "spares": ".tmp, .bak"}
    assert check(open_store(store), live=True)[0].listed == []


def test_a_committed_index_above_the_last_entry_is_named(tmp_path: Path) -> None:
    store = copy_store("5.1.4-dledger", tmp_path)
    (store / "dledger-n0" / "checkpoint").write_bytes(b"committedIndex=554\nendIndex=553\n")
    findings, tally, _ = check(open_store(store))
    assert tally.last_index == 553
    assert located(findings) == [("DL-COMMITTED", "dledger", "checkpoint", 0)]
    (store / "dledger-n0" / "checkpoint").write_bytes(b"committedIndex=-1\n")
    assert check(open_store(store))[0].listed == []


@pytest.mark.parametrize("text", [b"", b"currTerm=\n", b"currTerm=one\nvoteLeader=n0\n", bytes(20)])
def test_a_currterm_that_cannot_be_read_is_named(store: Path, text: bytes) -> None:
    (store / "dledger-n0" / "currterm").write_bytes(text)
    assert located(check(open_store(store))[0]) == [("DL-TERM", "dledger", "currterm", 0)]


def test_a_term_below_that_of_the_last_entry_is_named(tmp_path: Path) -> None:
    store = copy_store("5.4.0-dledger3-n1", tmp_path)
    term = check(open_store(store))[1].last_term
    assert term == 1
    (store / "dledger-n1" / "currterm").write_bytes(b"voteLeader=n0\ncurrTerm=0\n")
    findings, _, _ = check(open_store(store))
    assert located(findings) == [("DL-TERM", "dledger", "currterm", 0)]
    assert findings.listed[0].facts == {"curr_term": 0, "last_term": 1}


def test_a_missing_currterm_is_named(tmp_path: Path) -> None:
    store = copy_store("5.4.0-dledger3-n0", tmp_path)
    (store / "dledger-n0" / "currterm").unlink()
    findings, _, _ = check(open_store(store))
    assert located(findings) == [("DL-TERM", "dledger", "currterm", 0)]
    assert findings.listed[0].facts["spares"] == ".bak"


def test_a_missing_file_in_the_middle_is_named_and_explains_the_gap(store: Path) -> None:
    (store / "dledger-n0" / "data" / "00000000000000131072").unlink()
    findings, _, _ = check(open_store(store))
    assert located(findings) == [("DL-MISSING-FILE", "dledger", "00000000000000131072", 131_072)]
    assert findings.listed[0].length == 65_536


def test_missing_first_files_are_normal(store: Path) -> None:
    (store / "dledger-n0" / "data" / "00000000000000000000").unlink()
    findings, tally, _ = check(open_store(store))
    assert findings.listed == []
    assert tally.first_index > 0
    assert tally.begin == 65_536


def test_a_missing_first_file_of_a_mixed_store_is_a_hole(tmp_path: Path) -> None:
    store = copy_store("5.4.0-dledger-mixed", tmp_path)
    first = min((store / "dledger-n0" / "data").iterdir())
    start = int(first.name)
    first.unlink()
    assert located(check(open_store(store))[0]) == [("DL-MISSING-FILE", "dledger", first.name, start)]


def test_a_zero_filled_last_file_is_normal(store: Path) -> None:
    last = max((store / "dledger-n0" / "data").iterdir())
    with (last.parent / f"{int(last.name) + 65_536:020}").open("wb") as out:
        out.truncate(65_536)
    assert check(open_store(store))[0].listed == []


def test_a_file_of_another_log_breaks_the_order(store: Path) -> None:
    data = sorted((store / "dledger-n0" / "data").iterdir())
    # from the third file on, the indexes are higher by 5: entries are lost without damage
    raw = bytearray(data[2].read_bytes())
    at = 0
    while int.from_bytes(raw[at : at + 4], "big") == 1:
        raw[at + 8 : at + 16] = (int.from_bytes(raw[at + 8 : at + 16], "big") + 5).to_bytes(8, "big")
        at += int.from_bytes(raw[at + 4 : at + 8], "big")
    data[2].write_bytes(raw)
    findings, _, _ = check(open_store(store))
    orders = [f for f in findings.listed if f.code == "DL-INDEX-ORDER"]
    assert (orders[0].file, orders[0].offset) == (data[2].name, int(data[2].name))
    expected, index = orders[0].facts["expected_index"], orders[0].facts["index"]
    assert isinstance(expected, int)
    assert index == expected + 5


def test_damaged_entries_explain_a_gap(store: Path) -> None:
    garble(store / "dledger-n0" / "data" / "00000000000000065536", 10_000, 3_000)
    findings, _, _ = check(open_store(store))
    assert findings.listed == []


@pytest.mark.parametrize(("name", "code"), [("checkpoint", "DL-COMMITTED"), ("currterm", "DL-TERM")])
def test_a_text_file_alone_is_checked(store: Path, name: str, code: str) -> None:
    path = store / "dledger-n0" / name
    findings = Findings()
    check_dledger_texts(open_store(path), findings)
    assert findings.listed == []
    cut(path, 9)
    check_dledger_texts(open_store(path), findings)
    assert located(findings) == [(code, "dledger", name, 0)]


def test_parts_merge_to_the_whole() -> None:
    files = opened("5.4.0-dledger").dledger
    assert files is not None
    whole, merged = EntryTally(), EntryTally()
    for file in files.data.files:
        part = EntryTally()
        for run in scan_file(file, body_offset=48):
            if run.columns is not None:
                add_entries(run.columns, files.index, part)
                add_entries(run.columns, files.index, whole)
        merged.merge(part)
    assert merged == whole
    assert whole.entries == 553


def test_a_thousand_gaps_are_kept() -> None:
    merged = EntryTally()
    for number in range(1200):  # between any two parts, an index is missing
        at = number * 100
        merged.merge(EntryTally(1, at, at + 100, 2 * number, 2 * number, 1, 1))
    assert [gap.at for gap in merged.gaps] == [(number + 1) * 100 for number in range(1000)]
    both = EntryTally(1, 0, 100, 0, 0, 1, 1)
    both.merge(merged)
    assert len(both.gaps) == 1000 and both.entries == 1201


def test_data_elsewhere_is_requested_and_found_with_the_configuration(store: Path) -> None:
    place = store.parent / "data"
    (store / "dledger-n0" / "data").rename(place)
    findings = verify(open_store(store), VerifyOptions(jobs=1)).findings
    assert findings.counts["CL-NO-MESSAGES"] == 1
    config = BrokerConfig({"storePathDLedgerCommitLog": str(place), "enableDLegerCommitLog": "true"})
    assert verify(open_store(store, config), VerifyOptions(jobs=1)).findings.counts == {}
