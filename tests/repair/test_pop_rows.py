"""The rows of kvStore/ after a log that loses its end: exactly those of lost messages go, and undo restores them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqstore.checks.examine import examine
from rmqstore.checks.options import VerifyOptions
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.rocksdb.rows import pop_rows
from rmqstore.files.store import Store, open_store
from rmqstore.repair.journal.journal import apply, undo
from rmqstore.repair.plan.recover_options import RecoverOptions
from rmqstore.repair.recover import plan_recovery
from tests import damage
from tests.planning import report_of
from tests.repair.salvaging import rows
from tests.rocksdb_rows import need_rocksdict, without_extra
from tests.stores import copy_store, meta, unpack
from tests.untouched import content

NAME = "5.4.0-pop-kv"


def opened(store: Path) -> Store:
    return open_store(store, BrokerConfig(dict(meta(NAME).oracle_args)))


def kept(store: Path) -> set[tuple[str, int, int]]:
    return {(r.topic, r.queue_id, r.queue_offset) for _, _, r in pop_rows(open_store(store)) if r is not None}


def test_rows_of_lost_messages_are_removed_with_them(tmp_path: Path) -> None:
    need_rocksdict()
    store = copy_store(NAME, tmp_path)
    records = [row for row in rows(store) if row.slot[0] == "PopRaw_11"]
    first = records[-12]
    damage.garble(first.path, first.at + 4, 4)
    before, old = content(store), kept(store)
    verified = examine(opened(store), VerifyOptions(jobs=1))
    journal = apply(plan_recovery(opened(store), verified, RecoverOptions(strategy="truncate"))).journal
    report = examine(opened(store), VerifyOptions(jobs=1)).report
    assert (report.exit_code, dict(report.findings.counts)) == (0, {})
    ends = {label: state.max for label, state in report.queues.items()}
    assert kept(store) == {row for row in old if row[2] < ends.get(f"{row[0]}/{row[1]}", 0)}
    assert kept(store) < old
    assert journal is not None
    undo(journal)
    assert content(store) == before


def test_without_the_library_kv_rows_are_unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    without_extra(monkeypatch)
    report = report_of(unpack(NAME))
    assert report.exit_code == 4
    assert any(line.startswith("kvStore/") for line in report.unchecked)


def test_a_damaged_database_is_unchecked_and_untouched(tmp_path: Path) -> None:
    need_rocksdict()
    store = copy_store(NAME, tmp_path)
    for path in (store / "kvStore").glob("MANIFEST-*"):
        damage.overwrite(path, 0, b"\xff" * 20)
    before = content(store)
    report = examine(opened(store), VerifyOptions(jobs=1)).report
    assert report.exit_code == 4
    assert any(line.startswith("kvStore/: this RocksDB cannot be read") for line in report.unchecked)
    assert content(store) == before
