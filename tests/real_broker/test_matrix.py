"""Every case with a repair, in every version with its format: the real store reads the repaired store.

    damage → recover --apply → verify → 4.9.7, 5.1.4, 5.4.0, 5.5.1, each with and without `abort` → undo

The real store must load the repaired store, keep its end, and read every undamaged message byte for byte through every
consume queue, as it does from the sound store; no offset of a queue may be unreadable.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import takewhile
from pathlib import Path

import pytest

from rmqstore.checks.problems import codes
from rmqstore.checks.problems.problem import Severity
from rmqstore.checks.problems.table import PROBLEMS
from tests.cases.case import Case, case_names, make, options, read_case, recover_words, repair
from tests.command import run_json
from tests.real_broker.oracle import OracleResult, Setting
from tests.real_broker.oracle_server import Cell
from tests.real_broker.reading import Sounds, messages, not_the_same, sound, unreadable, versions_reading
from tests.stores import BROKER_STORES, VERSIONS, meta
from tests.untouched import content

NOT_BY_4_9_7 = ("5.1.4-formats", "5.4.0-formats", "5.5.1-formats")
_DROPS_UNITS = ("5.4.0", True)
"""After a crash, it drops the last units of a DLedger store (DLedgerCommitLog#dledgerRecoverAbnormally), which are not
those of the sound store if the log ends earlier."""
WHY_NOT = "earlier versions do not know V2 records, inner batches or RocksDB: they do not read the sound store, either"

# fixtures/README.md; these stores have no broker.conf
CLASS_SETTINGS: Mapping[str, Setting] = {
    "mappedFileSizeCommitLog": 16384,
    "mappedFileSizeConsumeQueue": 1000,
    "maxHashSlotNum": 20,
    "maxIndexNum": 60,
}


def settings_of(name: str) -> Mapping[str, Setting]:
    return meta(name).oracle_args if name in BROKER_STORES else CLASS_SETTINGS


def _curable() -> list[Case]:
    """Return the cases after whose repair a broker reads every message that is not lost."""
    found = []
    for case in map(read_case, case_names()):
        expected = case.recover
        if expected is None or expected.nothing or expected.command != ("recover",):
            continue
        if not any(PROBLEMS[code].severity is Severity.ERROR for code in expected.remaining):
            found.append(case)
    return found


def _matrix() -> list[object]:
    out: list[object] = []
    for case in _curable():
        known = versions_reading(case.store)
        out.append(pytest.param(case.name, known, id=f"{case.name}-{'-'.join(known)}"))
        for version in VERSIONS:
            if version not in known:
                marks = pytest.mark.skip(reason=f"{case.store}: {WHY_NOT}")
                out.append(pytest.param(case.name, (version,), marks=marks, id=f"{case.name}-{version}"))
    return out


def _one_of_each_code() -> list[object]:
    """Return the first case of every code, with alternating versions, with and without `abort`."""
    out: list[object] = []
    seen: set[str] = set()
    for number, case in enumerate(_curable()):
        if case.code not in seen:
            seen.add(case.code)
            known = versions_reading(case.store)
            cell = known[number % len(known)], bool(number // len(known) % 2)
            out.append(pytest.param(case.name, cell, id=f"{case.name}-{cell[0]}{'-abort' * cell[1]}"))
    return out


@pytest.mark.quick_rows(9)
@pytest.mark.parametrize(("name", "cell"), _one_of_each_code())
def test_each_code_s_first_case_in_one_version(name: str, cell: Cell, tmp_path: Path, sounds: Sounds) -> None:
    """The two-pass test of the same case checks verify and undo."""
    case = read_case(name)
    store = make(case, tmp_path)
    hit = sound(case.store).hit_in(store)
    repair(case, store)
    _reads_all(case, store, [cell], hit, sounds)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "versions"), _matrix())
def test_every_version_reads_all_that_was_not_hit(
    name: str, versions: tuple[str, ...], tmp_path: Path, sounds: Sounds
) -> None:
    case = read_case(name)
    assert case.recover is not None
    store = make(case, tmp_path)
    hit = sound(case.store).hit_in(store)
    before = content(store)
    done = repair(case, store)
    verify = ("verify", str(store), *options(case, store))
    report = run_json(*verify, exit_code=1 if case.recover.remaining else 0)
    findings = report["findings"]
    assert isinstance(findings, list)
    assert {f["code"] for f in findings if f["severity"] == "error"} <= set(case.recover.remaining)
    _reads_all(case, store, [(version, abort) for version in versions for abort in (False, True)], hit, sounds)
    run_json("undo", str(done["journal"]), exit_code=0)
    assert content(store) == before


@pytest.mark.slow
@pytest.mark.parametrize("name", NOT_BY_4_9_7)
def test_4_9_7_truncates_the_sound_stores_that_are_left_out(name: str, sounds: Sounds) -> None:
    own, old = meta(name).version, "4.9.7"
    read = sounds.read(name, settings_of(name), [(own, False), (old, False)])
    assert len(messages(read[old, False])) < len(messages(read[own, False]))
    assert (read[old, False].max_phy or 0) < (read[own, False].max_phy or 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [case.name for case in _curable() if case.code not in (codes.BR_START_LOSES, codes.CQ_TWO_ROCKSDB)]
)
def test_the_repair_is_the_same_whatever_broker_is_named(name: str, tmp_path: Path) -> None:
    """Except for problems that exist only at the start of some versions, or of which they decide what stays.

    CQ-TWO-ROCKSDB: tests/cli/test_dead_ends.py.
    """
    case = read_case(name)
    store = make(case, tmp_path)
    words = recover_words(case, store)
    plans = [run_json(*words, "--broker", version, exit_code=1) for version in VERSIONS]
    assert plans[0]["steps"]
    assert all(plan["steps"] == plans[0]["steps"] for plan in plans[1:])


def _reads_all(case: Case, store: Path, cells: list[Cell], hit: frozenset[int], sounds: Sounds) -> None:
    assert case.recover is not None
    settings = settings_of(case.store)
    before = sounds.read(case.store, settings, cells)
    after = sounds.servers.read(store, settings, cells)
    records = sound(case.store).records
    kept = sorted(records)[: len(records) - case.recover.cut]
    cut = frozenset(records) - frozenset(kept)
    end = kept[-1] + len(records[kept[-1]]) if kept else 0
    for cell in cells:
        was, now = before[cell], after[cell]
        assert (now.load, now.crash, now.shutdown) == (True, None, "clean"), cell
        assert now.max_phy == (end if cut else was.max_phy), cell
        assert unreadable(now) == {}, cell
        # with a loss of unknown size, nothing may show that a queue was longer
        if cut and cell == _DROPS_UNITS and "dledger" in case.store:
            continue
        assert _shorter(was, now, cut | hit if case.recover.at_least else cut) == {}, cell
        other = not_the_same(was, now)
        assert {place: at for place, at in other.items() if at not in hit | cut} == {}, cell
        changed = set(other.values()) - (cut if not case.recover.lost else set())
        known = case.recover.lost + case.recover.other
        assert len(changed) >= known if case.recover.at_least else len(changed) == known, (cell, other)


def _shorter(was: OracleResult, now: OracleResult, gone: frozenset[int]) -> dict[str, tuple[int, int]]:
    """Return queues with other bounds than before; they may end before their last messages if these are `gone`."""
    out = {}
    for name, queue in was.queues.items():
        newest_first = sorted(queue.messages, key=lambda message: message.queue_offset, reverse=True)
        kept = queue.max - sum(1 for _ in takewhile(lambda message: message.commitlog_offset in gone, newest_first))
        there = now.queues.get(name)
        all_gone = kept < queue.max and kept <= queue.min
        if queue.max > 0 and not all_gone and (there is None or there.min > queue.min or there.max < kept):
            out[name] = (queue.min, kept)
    return out
