"""Index files compared with the log, as a whole and in parts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rmqstore.append.encoder import NewMessage
from rmqstore.append.message_store import open_writable
from rmqstore.checks.beside.index import check_index
from rmqstore.checks.index.keys import KeyReader, Keys
from rmqstore.checks.index.tally import IndexTally
from rmqstore.checks.problems.report import Findings
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import Store, open_store
from rmqstore.formats import index
from rmqstore.formats.properties import index_keys, parse_properties
from rmqstore.scan.dispatch import QueueTable
from rmqstore.scan.records import scan_file
from tests.append.writing import OPTIONS
from tests.checks.index_looks import SLOTS, check, first_index, last_index, pass_over_log, units_of
from tests.checks.sound import located, opened
from tests.damage import copy_span, flip, overwrite, zero
from tests.seeds import seeds
from tests.stores import STORES, copy_store

Entry = tuple[int, int, int, bool]
"""Offset, hash, store time (ms), and whether every broker writes it."""


@pytest.mark.quick_rows(16)
@pytest.mark.parametrize("config", [False, True])
@pytest.mark.parametrize("name", [n for n in STORES if n != "head_many"])
def test_a_real_index_is_sound_and_complete(name: str, config: bool) -> None:
    assert check(opened(name, config=config)).listed == []


def test_two_index_files_of_one_millisecond_share_a_name_and_lose_entries() -> None:
    # the real classes, with 60 units per file, overwrote the first file with the second one
    findings = check(opened("head_many"))
    assert [(f.code, f.file, f.facts) for f in findings.listed] == [
        (
            "IX-NOT-INDEXED",
            "20261120225826439",
            {"messages": 20, "entries": 59, "first_offset": 73_147, "last_offset": 76_510},
        )
    ]


def keys_in_chunks_and_one_by_one(store: Store) -> tuple[list[Entry], list[Entry]]:
    table = QueueTable()
    reader = KeyReader(table)
    chunks: list[Entry] = []
    single: list[Entry] = []
    for queue, body_offset in store.logs:
        for file in queue.files:
            for run in scan_file(file, body_offset=body_offset):
                c = run.columns
                if c is None:
                    continue
                keys = reader.keys(c, table.of(c))
                columns = (keys.offset, keys.hash, keys.time, keys.required)
                chunks += zip(*(column.tolist() for column in columns), strict=True)
                for i in range(len(c)):
                    message = c.message(i)
                    if message.transaction_type == 12:
                        continue
                    props = parse_properties(message.properties)
                    must = index_keys(message.topic_text, props)
                    time = message.store_timestamp
                    may = index_keys(message.topic_text, props, tag_key=True)
                    single += [(int(c.offset[i]), index.key_hash(text), time, text in must) for text in may]
    return sorted(chunks), sorted(single)


@pytest.mark.quick_rows(12)
@pytest.mark.parametrize("name", STORES)
def test_keys_of_a_chunk_are_those_of_its_records_one_by_one(name: str) -> None:
    chunks, single = keys_in_chunks_and_one_by_one(opened(name))
    assert chunks == single != []


def test_hashes_of_keys_are_javas_in_every_alphabet_and_at_the_ends_of_their_range(tmp_path: Path) -> None:
    extreme = ("elprcubw", "elprcubx")  # String.hashCode of T#elprcubw is 2**31 - 1, of T#elprcubx -2**31
    with open_writable(tmp_path / "store", OPTIONS, create=True) as store:
        for tags, keys in (
            ("a", ("plain", "clé")),
            ("b", ("\N{ROCKET}",)),
            ("键", ("plain",)),
            ("键", ("ключ",)),
            ("c", extreme),
        ):
            store.put(NewMessage("T", b"x", tags=tags, keys=keys))
    chunks, single = keys_in_chunks_and_one_by_one(open_store(tmp_path / "store"))
    assert chunks == single
    assert len(chunks) == 12
    assert {2**31 - 1, 0} <= {hashed for _, hashed, _, _ in chunks}


def test_an_entry_with_another_offset_dangles_and_its_message_is_not_indexed(store: Path) -> None:
    path = first_index(store)
    at = index.unit_at(50, SLOTS)
    message = int(units_of(path)["phy_offset"][50])
    overwrite(path, at + 4, (message + 1).to_bytes(8, "big"))
    findings = check(open_store(store))
    assert located(findings) == [
        ("IX-DANGLING-ENTRY", "index", path.name, at),
        ("IX-NOT-INDEXED", "index", path.name, message),
    ]
    assert findings.listed[0].facts == {"unit": 50, "count": 1, "phy_offset": message + 1}
    assert findings.listed[1].facts == {"messages": 1, "entries": 1, "first_offset": message, "last_offset": message}


def test_an_entry_with_another_time_than_its_message_is_a_bad_entry(store: Path) -> None:
    path = first_index(store)
    at = index.unit_at(50, SLOTS)
    flip(path, at + 15, 6)
    findings = check(open_store(store))
    assert located(findings) == [("IX-BAD-ENTRY", "index", path.name, at)]
    assert findings.listed[0].facts["what"] == "time"


def test_an_entry_after_the_end_of_the_log_dangles(store: Path) -> None:
    findings = Findings()
    first = int(units_of(last_index(store))["phy_offset"][100])
    check_index(open_store(store), findings).check_end(first, findings)
    unit = units_of(last_index(store))["phy_offset"].tolist().index(first)
    assert located(findings) == [("IX-DANGLING-ENTRY", "index", last_index(store).name, index.unit_at(unit, SLOTS))]
    assert findings.listed[0].facts["count"] == 284 - unit + 1
    assert findings.listed[0].facts["phy_offset"] == first


def test_an_entry_below_the_start_of_the_log_is_expired_and_normal(store: Path) -> None:
    for file in sorted((store / "commitlog").iterdir())[:3]:
        file.unlink()
    assert check(open_store(store)).listed == []


def test_messages_older_than_the_first_index_file_are_not_missed(store: Path) -> None:
    first_index(store).unlink()
    assert check(open_store(store)).listed == []


def test_a_removed_file_in_the_middle_is_noticed_as_messages_not_indexed(store: Path) -> None:
    gone = sorted((store / "index").iterdir())[2]
    begin, *_, end = sorted(set(units_of(gone)["phy_offset"].tolist()) - {0})
    gone.unlink()
    findings = check(open_store(store))
    assert [c for c, *_ in located(findings)] == ["IX-NOT-INDEXED"]
    # the previous file also has units of the message at `begin`; only the one of its tag is lost
    assert begin < int(str(findings.listed[0].facts["first_offset"])) < begin + 500
    assert findings.listed[0].facts["last_offset"] == end


def test_after_a_kill_messages_after_the_last_entry_are_not_missed(tmp_path: Path) -> None:
    store = copy_store("5.4.0-killed", tmp_path)
    last_index(store).unlink()
    assert check(open_store(store)).listed == []


def test_after_a_clean_exit_messages_after_the_last_entry_are_missed(store: Path) -> None:
    last_index(store).unlink()
    assert [c for c, *_ in located(check(open_store(store)))] == ["IX-NOT-INDEXED"]


def test_duplicates_after_a_restart_are_normal(tmp_path: Path) -> None:
    findings = check(opened("498_killed_restarted"))
    assert findings.listed == []


def test_an_unfinished_put_is_normal(tmp_path: Path) -> None:
    path = _store_with(tmp_path, [(5, 0), (105, 100), (7, 200)])
    at = index.unit_at(4, 100)
    overwrite(path, at, index.UNIT.build(key_hash=305, phy_offset=300, time_diff=0, prev_index=2))
    overwrite(path, index.slot_at(5), (4).to_bytes(4, "big"))
    findings = Findings()
    catalog = check_index(open_store(tmp_path), findings)
    # units 1 and 2 of the slot are only reachable through the unfinished put
    assert findings.listed == []
    assert [f.last for f in catalog.files] == [3]


def _store_with(root: Path, puts: list[tuple[int, int]], *, slots: int = 100, units: int = 400) -> Path:
    """Create a store with one index file of these (hash, offset) puts, as IndexFile#putKey writes it."""
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


def test_tallies_of_parts_merge_to_the_tally_of_the_whole(store: Path) -> None:
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


def test_an_unknown_number_of_slots_is_reported_and_not_guessed(tmp_path: Path) -> None:
    _store_with(tmp_path, [(1, 0)], slots=77, units=50)
    path = next((tmp_path / "index").iterdir())
    overwrite(path, 24, (99).to_bytes(8, "big"))
    catalog = check_index(open_store(tmp_path), Findings())
    assert len(catalog.unchecked) == 1
    config = BrokerConfig({"maxHashSlotNum": "77", "maxIndexNum": "50"})
    findings = Findings()
    assert check_index(open_store(tmp_path, config), findings).unchecked == []
    assert located(findings) == [("IX-HEADER", "index", path.name, 24)]


def test_files_without_an_entry_need_no_slots(tmp_path: Path) -> None:
    _store_with(tmp_path, [(1, 0)], slots=77, units=50)
    path = next((tmp_path / "index").iterdir())
    path.write_bytes(bytes(path.stat().st_size))
    findings = Findings()
    catalog = check_index(open_store(tmp_path), findings)
    assert (catalog.unchecked, findings.listed) == ([], [])


def test_another_configured_size_is_one_problem_and_no_garbage(store: Path) -> None:
    config = BrokerConfig({"maxHashSlotNum": "200", "maxIndexNum": "400"})
    findings = check(open_store(store, config))
    assert findings.counts == {"IX-CONFIG-SIZE": 1}
    assert findings.listed[0].facts == {"files": 5, "set": "maxHashSlotNum=100"}


def test_an_index_file_that_expires_meanwhile_makes_nothing_missing(store: Path) -> None:
    catalog = check_index(open_store(store), Findings(), live=True)
    first_index(store).unlink()
    tally, _ = pass_over_log(open_store(store), catalog)
    assert (tally.messages, tally.dangling) == (0, {})


@pytest.mark.parametrize("seed", seeds(12))
def test_any_bytes_are_checked_without_an_exception(tmp_path: Path, seed: int) -> None:
    import random

    from tests.damage import garble

    store = copy_store("5.1.4-clean", tmp_path)
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
