"""DLedger switched off again: the commitlog continues at the offset where DLedger's entries begin."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqstore.brokers.simulate import simulate_start
from rmqstore.checks.examine import examine
from rmqstore.checks.options import VerifyOptions
from rmqstore.errors import Refused
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import Store, StoreKind, open_store
from rmqstore.repair.rebuild_parts import plan_rebuild
from rmqstore.repair.recover import plan_recovery
from tests.stores import VERSIONS, copy_store, unpack, write_broker_conf

MIXED, BEGINS = "4.9.7-dledger-mixed", 458_752
NAME = f"commitlog/{BEGINS:020d}"
OFF = BrokerConfig({"enableDLegerCommitLog": "false"})


def switched_off(tmp_path: Path) -> Path:
    """Copy a DLedger store, and add a commitlog file whose records have the same offsets as DLedger's entries."""
    store = copy_store(MIXED, tmp_path)
    shutil.copyfile(unpack("5.4.0-clean") / NAME, store / NAME)
    return store


def test_nothing_is_planned_until_it_is_known_which_log_the_broker_reads(tmp_path: Path) -> None:
    store = open_store(switched_off(tmp_path))
    assert (store.kind, store.overlap) == (StoreKind.MIXED, BEGINS)
    verified = examine(store, VerifyOptions(jobs=1))
    assert verified.report.findings.counts["DL-OVERLAP"] == 1
    plan = plan_recovery(store, verified)
    assert plan.empty
    assert any("both have messages from 458,752 on" in decision for decision in plan.decisions)
    with pytest.raises(Refused, match="both have messages from 458,752 on"):
        plan_rebuild(store, verified, "cq")


def test_a_broker_without_dledger_continues_in_its_commitlog(tmp_path: Path) -> None:
    """Observed with whole brokers of 4.9.7 and 5.4.0 that were switched to DLedger and back."""
    store = open_store(switched_off(tmp_path), OFF)
    assert (store.kind, store.left_by_dledger) == (StoreKind.PLAIN, ["dledger-n0"])
    report = examine(store, VerifyOptions(jobs=1)).report
    assert "DL-OVERLAP" not in report.findings.counts
    assert report.unchecked == []
    assert "dledger-n0/: left by DLedger, without which the broker now runs: not checked" in report.notes
    assert simulate_start(store).max_offset == 479_958


def unlike(store: Path) -> list[Store]:
    return [open_store(store), open_store(store, OFF)]


@pytest.mark.parametrize("name", [f"commitlog/{0:020d}", f"dledger-n0/data/{BEGINS:020d}"])
def test_a_file_under_the_name_of_another_one_is_no_overlap(name: str, tmp_path: Path) -> None:
    path = copy_store(MIXED, tmp_path)
    shutil.copyfile(path / name, path / NAME)
    assert [(store.kind, store.overlap) for store in unlike(path)] == [(StoreKind.MIXED, None)] * 2


def test_a_store_that_continues_in_dledger_has_no_overlap() -> None:
    assert [(store.kind, store.overlap) for store in unlike(unpack(MIXED))] == [(StoreKind.MIXED, None)] * 2


def test_a_broker_conf_that_does_not_name_dledger_is_that_of_a_broker_without_it(tmp_path: Path) -> None:
    store = copy_store(MIXED, tmp_path)
    path = write_broker_conf(MIXED, store)

    def faults(text: str) -> list[tuple[object, object]]:
        path.write_text(text)
        report = examine(open_store(store, BrokerConfig.read(path)), VerifyOptions(jobs=1)).report
        found = [f.facts for f in report.findings.listed if f.code == "CFG-SETTING"]
        return [(facts["setting"], facts["set"]) for facts in found]

    text = path.read_text()
    assert faults(text) == []
    without = text.replace("enableDLegerCommitLog=true\n", "")
    assert without != text
    assert faults(without) == [("no enableDLegerCommitLog", "enableDLegerCommitLog=true")]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_sound_store_is_not_clean_for_a_broker_that_would_not_read_its_dledger(version: str) -> None:
    """Observed: whole brokers of 4.9.7 and 5.4.0 that were switched back read none of the entries."""
    options = VerifyOptions(jobs=1, broker=version)
    report = examine(open_store(unpack(MIXED), OFF), options).report
    (finding,) = [f for f in report.findings.listed if f.code == "CFG-SETTING"]
    entries = report.dledger["entries"] if report.dledger is not None else 0
    assert (finding.facts["messages"], report.exit_code) == (entries, 1)
    assert examine(open_store(unpack(MIXED)), options).report.exit_code == 0
