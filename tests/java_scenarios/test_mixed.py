"""MixCommitlogTest (RocketMQ)."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from rmqstore.append.encoder import NewMessage
from rmqstore.append.message_store import MessageStore
from rmqstore.errors import Refused
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import open_store
from rmqstore.formats.dledger import BODY_OFFSET
from rmqstore.views.dledger_store import DLedgerCommitLog
from tests.append.rewriting import messages_of
from tests.append.small import units
from tests.java_scenarios.test_dledger import SIZES, new, put
from tests.planning import counts_of
from tests.stores import copy_store, meta


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    return copy_store("5.4.0-dledger-mixed", tmp_path)


CONFIG = BrokerConfig({key: str(value) for key, value in meta("5.4.0-dledger-mixed").settings.items()})


def log_messages(root: Path) -> int:
    store = open_store(root)
    assert store.commitlog is not None and store.dledger is not None
    return len([*messages_of(store.commitlog), *messages_of(store.dledger.data, BODY_OFFSET)])


def all_units(root: Path) -> int:
    queues = (root / "consumequeue").glob("*/*")
    return sum(len(units(root, path.parent.name, int(path.name))) for path in queues)


@pytest.mark.parametrize("exit_", ["clean", "killed"])
def test_without_consume_queues_both_logs_are_dispatched(mixed: Path, exit_: str) -> None:
    """MixCommitlogTest#testFallBehindCQ"""
    before = all_units(mixed)
    assert before == log_messages(mixed) == 756
    shutil.rmtree(mixed / "consumequeue")
    if exit_ == "killed":
        (mixed / "abort").touch()
    with MessageStore.open(mixed, config=CONFIG) as store:
        store.put_many([new(n) for n in range(100)])
    assert all_units(mixed) == log_messages(mixed) == before + 100
    assert counts_of(mixed) == {}


def test_a_mixed_store_continues_in_dledger_after_each_start(mixed: Path) -> None:
    """MixCommitlogTest#testPutAndGet: the border does not move, and queues continue across it"""
    border = DLedgerCommitLog(open_store(mixed)).divided_commitlog_offset
    assert border == open_store(mixed).commitlog.stop  # type: ignore[union-attr]
    last = len(units(mixed, "Order_11", 0))
    legacy = {p.name: p.read_bytes() for p in (mixed / "commitlog").iterdir()}
    for first in (0, 50):
        with MessageStore.open(mixed, config=CONFIG) as store:
            found = store.put_many([replace_topic(new(n), "Order_11") for n in range(50)])
        assert [p.queue_offset for p in found] == list(range(last + first, last + first + 50))
        assert min(p.offset for p in found) > border
        assert DLedgerCommitLog(open_store(mixed)).divided_commitlog_offset == border
    assert {p.name: p.read_bytes() for p in (mixed / "commitlog").iterdir()} == legacy
    assert log_messages(mixed) == all_units(mixed) == 856


def replace_topic(message: NewMessage, topic: str) -> NewMessage:
    return replace(message, topic=topic)


def test_when_the_legacy_log_has_expired_the_rest_is_a_dledger_store(mixed: Path) -> None:
    """MixCommitlogTest#testDeleteExpiredFiles. Difference: `expire` plans the deletion; here, the files are already
    deleted."""
    store = open_store(mixed)
    assert store.commitlog is not None and store.dledger is not None
    border, rest = store.commitlog.stop, len(list(messages_of(store.dledger.data, BODY_OFFSET)))
    for path in (mixed / "commitlog").iterdir():
        path.unlink()
    with MessageStore.open(mixed, config=CONFIG) as writer:
        one = writer.put(new(0))
    assert one.offset > border
    opened = open_store(mixed)
    assert opened.dledger is not None
    assert (opened.kind.value, opened.dledger.data.start) == ("dledger", border)
    assert len(list(messages_of(opened.dledger.data, BODY_OFFSET))) == rest + 1


def test_a_plain_store_does_not_become_a_mixed_one_by_opening_it(tmp_path: Path) -> None:
    """MixCommitlogTest#testPutAndGet. Difference: RocketMQ starts DLedger after the legacy log by itself; we require
    `migrate-to-dledger`, which can be undone."""
    root = tmp_path / "s"
    put(root, 100, replace(SIZES, dledger=None))
    with pytest.raises(Refused, match="is a plain store"):
        MessageStore.open(root, SIZES)
    assert sorted(p.name for p in root.iterdir()) == ["checkpoint", "commitlog", "consumequeue", "index", "lock"]
