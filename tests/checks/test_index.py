"""Index files against themselves and against the log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from rmqstore.checks.index import check_index
from rmqstore.checks.index_catalog import IndexCatalog
from rmqstore.checks.index_keys import KeyReader, Keys
from rmqstore.checks.index_tally import IndexTally
from rmqstore.checks.report import Findings
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import Store, open_store
from rmqstore.formats import index
from rmqstore.formats.properties import index_keys, parse_properties
from rmqstore.scan.queues import QueueTable
from rmqstore.scan.records import scan_file
from rmqstore.scan.tiling import Kind, Run
from tests.checks.sound import opened, said
from tests.damage import copy_span, cut, flip, grow, overwrite, zero
from tests.stores import STORES

Copy = Callable[[str], Path]
SLOTS, UNITS = 100, 400  # of the broker stores


def runs(store: Store) -> list[Run]:
    out = []
    queues = [(store.commitlog, 0)] + ([(store.dledger.data, 48)] if store.dledger else [])
    for queue, lead in queues:
        for file in queue.files if queue else ():
            out += [run for run in scan_file(file, lead=lead) if run.kind is Kind.RECORDS]
    return out


def pass_over_log(store: Store, catalog: IndexCatalog) -> tuple[IndexTally, int]:
    table = QueueTable()
    reader = KeyReader(table)
    tally = IndexTally()
    wrote = 0
    queues = [(store.commitlog, 0)] + ([(store.dledger.data, 48)] if store.dledger else [])
    for queue, lead in queues:
        for file in queue.files if queue else ():
            for run in scan_file(file, lead=lead):
                if run.kind is Kind.RECORDS and run.columns is not None:
                    keys = reader.keys(run.columns, table.of(run.columns))
                    catalog.check(run.start, run.stop, keys, tally)
                    wrote = run.stop
    return tally, wrote


def check(store: Store, *, live: bool = False) -> Findings:
    """Both passes, as verify makes them."""
    tally, wrote = pass_over_log(store, check_index(store, Findings(), live=live))
    findings = Findings()
    catalog = check_index(store, findings, live=live)
    catalog.check_end(wrote, findings)
    catalog.report(tally, findings)
    assert catalog.unchecked == []
    return findings


def first_index(store: Path) -> Path:
    return min((store / "index").iterdir())


def last_index(store: Path) -> Path:
    return max((store / "index").iterdir())


@pytest.mark.parametrize("config", [False, True])
@pytest.mark.parametrize("name", [n for n in STORES if n != "head_many"])
def test_a_real_index_is_sound_and_complete(name: str, config: bool) -> None:
    assert check(opened(name, config=config)).listed == []


def test_two_index_files_of_one_millisecond_share_a_name_and_lose_entries() -> None:
    # real classes with 60 units per file: the second file was written over the first
    findings = check(opened("head_many"))
    assert [(f.code, f.file, f.facts) for f in findings.listed] == [
        (
            "IX-NOT-INDEXED",
            "20261120225826439",
            {"messages": 20, "entries": 59, "first_offset": 73_147, "last_offset": 76_510},
        )
    ]


@pytest.mark.parametrize("name", STORES)
def test_keys_of_a_chunk_are_those_of_its_records_one_by_one(name: str) -> None:
    store = opened(name)
    table = QueueTable()
    reader = KeyReader(table)
    count = 0
    queues = [(store.commitlog, 0)] + ([(store.dledger.data, 48)] if store.dledger else [])
    for queue, lead in queues:
        for file in queue.files if queue else ():
            for run in scan_file(file, lead=lead):
                c = run.columns
                if c is None:
                    continue
                keys = reader.keys(c, table.of(c))
                wanted = []
                for i in range(len(c)):
                    message = c.message(i)
                    if message.transaction_type == 12:
                        continue
                    props = parse_properties(message.properties)
                    must = index_keys(message.topic_text, props)
                    time = message.store_timestamp
                    may = index_keys(message.topic_text, props, tag_key=True)
                    wanted += [(int(c.offset[i]), index.key_hash(text), time, text in must) for text in may]
                columns = (keys.offset, keys.hash, keys.time, keys.required)
                got = list(zip(*(column.tolist() for column in columns), strict=True))
                assert sorted(got) == sorted(wanted)
                count += len(got)
    assert count > 0


# --- damage ---------------------------------------------------------------------------------------------------------


def test_the_number_of_slots_is_found_without_a_configuration(store_copy: Copy) -> None:
    store = store_copy("5.4.0-clean")
    for path in sorted((store / "index").iterdir())[:-1]:
        path.unlink()
    catalog = check_index(open_store(store), Findings())
    assert [(f.slots, f.last) for f in catalog.files] == [(SLOTS, 284)]


def test_a_wrong_begin_or_end_offset_in_the_header_is_named(store_copy: Copy) -> None:
    store = store_copy("5.4.0-clean")
    flip(first_index(store), 23)
    assert said(check(open_store(store))) == [("IX-HEADER", "index", first_index(store).name, 16)]
    store = store_copy("5.1.4-clean")
    flip(first_index(store), 31, 3)
    findings = check(open_store(store))
    assert said(findings) == [("IX-HEADER", "index", first_index(store).name, 24)]
    assert findings.listed[0].facts["field"] == "end_phy_offset"


def test_a_wrong_end_time_in_the_header_is_named(store_copy: Copy) -> None:
    store = store_copy("5.4.0-clean")
    flip(first_index(store), 13, 4)
    assert said(check(open_store(store))) == [("IX-HEADER", "index", first_index(store).name, 8)]


@pytest.mark.parametrize("count", [0x7FFFFFFF, -1, 401, 300])
def test_a_wrong_count_in_the_header_is_named(store_copy: Copy, count: int) -> None:
    store = store_copy("5.4.0-clean")
    path = first_index(store)
    overwrite(path, 36, count.to_bytes(4, "big", signed=True))
    findings = check(open_store(store))
    assert said(findings) == [("IX-HEADER", "index", path.name, 36)]
    assert findings.listed[0].facts["field"] == "index_count"


def test_a_wrong_slot_count_in_the_header_is_named(store_copy: Copy) -> None:
    store = store_copy("5.4.0-clean")
    path = first_index(store)
    overwrite(path, 32, (9999).to_bytes(4, "big"))
    assert said(check(open_store(store))) == [("IX-HEADER", "index", path.name, 32)]


def test_a_slot_count_that_counts_puts_is_of_an_old_broker(store_copy: Copy) -> None:
    store = store_copy("5.4.0-clean")
    overwrite(first_index(store), 32, (399).to_bytes(4, "big"))
    assert check(open_store(store)).listed == []


def _units(path: Path) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    raw = path.read_bytes()[index.unit_at(0, SLOTS) :]
    return index.UNIT.array(raw)


def _chain(path: Path) -> tuple[int, int]:
    """A unit and its predecessor, both in the middle of a chain."""
    units = _units(path)
    for i in range(200, 400):
        prev = int(units["prev_index"][i])
        if prev and int(units["prev_index"][prev]):
            return i, prev
    raise AssertionError("no chain of three")


def _set_prev(path: Path, unit: int, prev: int) -> int:
    at = index.unit_at(unit, SLOTS) + index.UNIT.at("prev_index")
    overwrite(path, at, prev.to_bytes(4, "big", signed=True))
    return index.unit_at(unit, SLOTS)


def test_a_chain_that_leads_back_is_a_loop(store_copy: Copy) -> None:
    store = store_copy("5.4.0-clean")
    path = first_index(store)
    unit, prev = _chain(path)
    at = _set_prev(path, prev, unit)
    assert said(check(open_store(store))) == [("IX-CHAIN-LOOP", "index", path.name, at)]


def test_a_unit_that_points_to_itself_is_no_loop_to_the_broker(store_copy: Copy) -> None:
    store = store_copy("5.4.0-clean")
    path = first_index(store)
    unit, _ = _chain(path)
    at = _set_prev(path, unit, unit)
    assert [c for c, *_ in said(check(open_store(store)))] in (["IX-BAD-ENTRY"], ["IX-CHAIN-LOOP"])
    assert said(check(open_store(store)))[0] == ("IX-BAD-ENTRY", "index", path.name, at)


@pytest.mark.parametrize("prev", [-5, 0x7FFFFFFF, 1])
def test_a_predecessor_of_no_sense_is_a_bad_entry(store_copy: Copy, prev: int) -> None:
    store = store_copy("5.4.0-clean")
    path = first_index(store)
    unit, _ = _chain(path)
    at = _set_prev(path, unit, prev)
    findings = check(open_store(store))
    assert said(findings) == [("IX-BAD-ENTRY", "index", path.name, at)]
    assert findings.listed[0].facts == {"what": "unit", "unit": unit, "count": 1}


@pytest.mark.parametrize("value", [-1, 7, 0])
def test_a_slot_that_holds_another_unit_is_a_bad_entry(store_copy: Copy, value: int) -> None:
    store = store_copy("5.4.0-clean")
    path = first_index(store)
    slots = index.SLOT.array(path.read_bytes()[40 : 40 + 4 * SLOTS])["newest"]
    slot = next(i for i in range(SLOTS) if slots[i] not in (0, value))
    overwrite(path, index.slot_at(slot), value.to_bytes(4, "big", signed=True))
    findings = check(open_store(store))
    assert said(findings) == [("IX-BAD-ENTRY", "index", path.name, index.slot_at(slot))]
    assert findings.listed[0].facts == {"what": "slot", "count": 1}


def test_an_entry_with_another_offset_dangles_and_its_message_is_not_indexed(store_copy: Copy) -> None:
    store = store_copy("5.4.0-clean")
    path = first_index(store)
    at = index.unit_at(50, SLOTS)
    message = int(_units(path)["phy_offset"][50])
    overwrite(path, at + 4, (message + 1).to_bytes(8, "big"))
    findings = check(open_store(store))
    assert said(findings) == [
        ("IX-DANGLING-ENTRY", "index", path.name, at),
        ("IX-NOT-INDEXED", "index", path.name, message),
    ]
    assert findings.listed[0].facts == {"unit": 50, "count": 1, "phy_offset": message + 1}
    assert findings.listed[1].facts == {
        "messages": 1,
        "entries": 1,
        "first_offset": message,
        "last_offset": message,
    }


def test_an_entry_with_another_time_than_its_message_is_a_bad_entry(store_copy: Copy) -> None:
    store = store_copy("5.4.0-clean")
    path = first_index(store)
    at = index.unit_at(50, SLOTS)
    flip(path, at + 15, 6)
    findings = check(open_store(store))
    assert said(findings) == [("IX-BAD-ENTRY", "index", path.name, at)]
    assert findings.listed[0].facts["what"] == "time"


def test_an_entry_behind_the_end_of_the_log_dangles(store_copy: Copy) -> None:
    store = store_copy("5.4.0-clean")
    findings = Findings()
    first = int(_units(last_index(store))["phy_offset"][100])
    check_index(open_store(store), findings).check_end(first, findings)
    unit = _units(last_index(store))["phy_offset"].tolist().index(first)
    assert said(findings) == [("IX-DANGLING-ENTRY", "index", last_index(store).name, index.unit_at(unit, SLOTS))]
    assert findings.listed[0].facts["count"] == 284 - unit + 1
    assert findings.listed[0].facts["phy_offset"] == first


def test_an_entry_below_the_start_of_the_log_is_expired_and_normal(store_copy: Copy) -> None:
    store = store_copy("5.4.0-clean")
    for file in sorted((store / "commitlog").iterdir())[:3]:
        file.unlink()
    assert check(open_store(store)).listed == []


def test_messages_older_than_the_first_index_file_are_not_missed(store_copy: Copy) -> None:
    store = store_copy("5.4.0-clean")
    first_index(store).unlink()
    assert check(open_store(store)).listed == []


def test_a_removed_file_in_the_middle_is_noticed_as_messages_not_indexed(store_copy: Copy) -> None:
    store = store_copy("5.4.0-clean")
    gone = sorted((store / "index").iterdir())[2]
    begin, *_, end = sorted(set(_units(gone)["phy_offset"].tolist()) - {0})
    gone.unlink()
    findings = check(open_store(store))
    assert [c for c, *_ in said(findings)] == ["IX-NOT-INDEXED"]
    # entries of the message at `begin` stand in the file before, too: all that is lost of it is the tag's
    assert begin < int(str(findings.listed[0].facts["first_offset"])) < begin + 500
    assert findings.listed[0].facts["last_offset"] == end


def test_after_a_kill_messages_behind_the_last_entry_are_not_missed(store_copy: Copy) -> None:
    store = store_copy("5.4.0-killed")
    last_index(store).unlink()
    assert check(open_store(store)).listed == []


def test_after_a_clean_exit_they_are(store_copy: Copy) -> None:
    store = store_copy("5.4.0-clean")
    last_index(store).unlink()
    assert [c for c, *_ in said(check(open_store(store)))] == ["IX-NOT-INDEXED"]


def test_duplicates_after_a_restart_are_normal(store_copy: Copy) -> None:
    findings = check(opened("498_killed_restarted"))
    assert findings.listed == []


@pytest.mark.parametrize("length", [39, 8439, 300])
def test_a_short_index_file_has_the_wrong_length(store_copy: Copy, length: int) -> None:
    store = store_copy("5.4.0-clean")
    path = first_index(store)
    cut(path, length)
    findings = check(open_store(store))
    assert said(findings)[0] == ("IX-FILE-LENGTH", "index", path.name, 0)
    assert findings.listed[0].facts == {"length": length, "expected": 8440}


def test_a_long_index_file_has_the_wrong_length_and_nothing_else(store_copy: Copy) -> None:
    store = store_copy("5.4.0-clean")
    grow(first_index(store), 20)
    assert said(check(open_store(store))) == [("IX-FILE-LENGTH", "index", first_index(store).name, 0)]


def test_an_empty_last_file_is_normal_after_a_kill_only(store_copy: Copy) -> None:
    store = store_copy("4.9.7-dledger-killed")
    assert last_index(store).stat().st_size == 0
    assert check(open_store(store)).listed == []
    (store / "abort").unlink()
    codes = [c for c, *_ in said(check(open_store(store)))]
    assert codes[0] == "IX-FILE-LENGTH"


def test_a_put_that_was_under_way_is_normal(tmp_path: Path) -> None:
    path = _store_with(tmp_path, [(5, 0), (105, 100), (7, 200)])
    at = index.unit_at(4, 100)
    overwrite(path, at, index.UNIT.build(key_hash=305, phy_offset=300, time_diff=0, prev_index=2))
    overwrite(path, index.slot_at(5), (4).to_bytes(4, "big"))
    findings = Findings()
    catalog = check_index(open_store(tmp_path), findings)
    # the slot's units 1 and 2 hang on the put that was under way
    assert findings.listed == []
    assert [f.last for f in catalog.files] == [3]


def _store_with(root: Path, puts: list[tuple[int, int]], *, slots: int = 100, units: int = 400) -> Path:
    """A store with one index file of these (hash, offset) puts, as IndexFile#putKey makes it."""
    (root / "index").mkdir()
    (root / "commitlog").mkdir()
    (root / "checkpoint").write_bytes(bytes(4096))
    path = root / "index" / "20260101000000000"
    newest: dict[int, int] = {}
    with path.open("wb") as out:
        out.truncate(index.file_size(slots, units))
        for i, (key_hash, offset) in enumerate(puts, 1):
            slot = key_hash % slots
            out.seek(index.unit_at(i, slots))
            out.write(index.UNIT.build(key_hash=key_hash, phy_offset=offset, prev_index=newest.get(slot, 0)))
            newest[slot] = i
        for slot, unit in newest.items():
            out.seek(index.slot_at(slot))
            out.write(unit.to_bytes(4, "big"))
        out.seek(0)
        out.write(
            index.HEADER.build(
                begin_timestamp=1000,
                end_timestamp=1000,
                begin_phy_offset=puts[0][1],
                end_phy_offset=puts[-1][1],
                hash_slot_count=len(newest),
                index_count=len(puts) + 1,
            )
        )
    return path


def test_a_sparse_file_of_the_default_size_is_checked_over_its_data_only(tmp_path: Path) -> None:
    puts = [((i * 7919) % 2_000_000_000, i * 150) for i in range(1, 20_001)]
    path = _store_with(tmp_path, puts, slots=index.DEFAULT_SLOTS, units=index.DEFAULT_UNITS)
    assert path.stat().st_size == 420_000_040
    assert path.stat().st_blocks * 512 < 120_000_000
    findings = Findings()
    catalog = check_index(open_store(tmp_path), findings)
    assert findings.listed == []
    tally = IndexTally()
    offsets = np.array([o for _, o in puts[5000:6000]])
    hashes = np.array([h for h, _ in puts[5000:6000]])
    keys = Keys(offsets, hashes, np.full(1000, 1000), np.ones(1000, np.bool_))
    catalog.check(int(offsets[0]), int(offsets[-1]) + 150, keys, tally)
    assert (tally.entries, tally.dangling) == (0, {})
    catalog.check(int(offsets[0]), int(offsets[-1]) + 150, keys.take(np.arange(1000) < 998), tally)
    assert tally.dangling == {0: (2, 5999, 899_850)}


def test_tallies_of_parts_merge_to_the_tally_of_the_whole(store_copy: Copy) -> None:
    store = store_copy("5.4.0-clean")
    files = sorted((store / "index").iterdir())
    for unit in (20, 60, 300):
        flip(files[1], index.unit_at(unit, SLOTS) + 11, 1)
    opened_ = open_store(store)
    catalog = check_index(opened_, Findings())
    whole, _ = pass_over_log(opened_, catalog)
    table = QueueTable()
    reader = KeyReader(table)
    parts = IndexTally()
    assert opened_.commitlog is not None
    for file in reversed(opened_.commitlog.files):
        part = IndexTally()
        for run in scan_file(file):
            if run.columns is not None:
                catalog.check(run.start, run.stop, reader.keys(run.columns, table.of(run.columns)), part)
        parts.merge(part)
    assert parts == whole
    assert whole.entries == 3


def test_an_unknown_number_of_slots_is_said_and_not_guessed(tmp_path: Path) -> None:
    _store_with(tmp_path, [(1, 0)], slots=77, units=50)
    path = next((tmp_path / "index").iterdir())
    overwrite(path, 24, (99).to_bytes(8, "big"))
    catalog = check_index(open_store(tmp_path), Findings())
    assert len(catalog.unchecked) == 1
    config = BrokerConfig({"maxHashSlotNum": "77", "maxIndexNum": "50"})
    findings = Findings()
    assert check_index(open_store(tmp_path, config), findings).unchecked == []
    assert said(findings) == [("IX-HEADER", "index", path.name, 24)]


def test_files_without_an_entry_need_no_slots(tmp_path: Path) -> None:
    _store_with(tmp_path, [(1, 0)], slots=77, units=50)
    path = next((tmp_path / "index").iterdir())
    path.write_bytes(bytes(path.stat().st_size))
    findings = Findings()
    catalog = check_index(open_store(tmp_path), findings)
    assert (catalog.unchecked, findings.listed) == ([], [])


def test_another_configured_size_is_a_wrong_length_and_no_garbage(store_copy: Copy) -> None:
    store = store_copy("5.4.0-clean")
    config = BrokerConfig({"maxHashSlotNum": "200", "maxIndexNum": "400"})
    findings = check(open_store(store, config))
    assert findings.counts == {"IX-FILE-LENGTH": 5}
    assert findings.listed[0].facts == {"length": 8440, "expected": 8840}


def test_an_index_file_that_expires_meanwhile_makes_nothing_missing(store_copy: Copy) -> None:
    store = store_copy("5.4.0-clean")
    catalog = check_index(open_store(store), Findings(), live=True)
    first_index(store).unlink()
    tally, _ = pass_over_log(open_store(store), catalog)
    assert (tally.messages, tally.dangling) == (0, {})


@pytest.mark.parametrize("seed", range(12))
def test_any_bytes_are_survived(store_copy: Copy, seed: int) -> None:
    import random

    from tests.damage import garble

    store = store_copy("5.1.4-clean")
    rng = random.Random(seed)
    for path in (store / "index").iterdir():
        at = rng.randrange(0, 8000)
        if seed % 3 == 0:
            garble(path, at, rng.randrange(1, 440), seed)
        elif seed % 3 == 1:
            copy_span(path, rng.randrange(0, 4000), 4400, 400)
        elif any(path.read_bytes()[at : at + 400]):
            zero(path, at, 400)
    findings = check_findings(open_store(store))
    assert set(findings.counts) <= {
        "IX-HEADER",
        "IX-BAD-ENTRY",
        "IX-CHAIN-LOOP",
        "IX-DANGLING-ENTRY",
        "IX-NOT-INDEXED",
        "IX-FILE-LENGTH",
    }
    assert findings.counts


def check_findings(store: Store) -> Findings:
    findings = Findings()
    catalog = check_index(store, findings)
    tally, _ = pass_over_log(store, catalog)
    catalog.report(tally, findings)
    return findings
