"""Detection, from the newest index units, of whether a store's broker indexes whole TAGS values."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rmqstore.append.dispatch import DispatchOptions
from rmqstore.append.message_store import MessageStore, StoreOptions
from rmqstore.checks.beside.index import indexes_tags
from rmqstore.checks.examine import examine
from rmqstore.files.files import LOCAL
from rmqstore.files.index import index_chain
from rmqstore.files.store import open_store
from rmqstore.formats.index import key_hash
from tests.append.small import SMALL, message
from tests.stores import copy_store


def options(*, tag_key: bool, units: int = 60) -> StoreOptions:
    dispatch = DispatchOptions(consume_queue_file_size=1000, tag_key=tag_key)
    return replace(SMALL, index_units=units, dispatch=dispatch)


def written(root: Path, *, before: bool, after: bool, units: int) -> bool:
    with MessageStore.create(root, options(tag_key=before, units=units)) as store:
        for number in range(100):
            store.put(message(number))
    with MessageStore.open(root, options(tag_key=after, units=units)) as store:
        for number in range(100, 200):
            store.put(message(number))
    look = open_store(root)
    files = [entry.path for entry in reversed(look.index_files)]
    return indexes_tags(look, examine(look).logs, files, SMALL.index_slots)


@pytest.mark.parametrize("units", [60, 1000])  # several index files, or one written by both brokers
@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("after", [False, True])
def test_broker_that_wrote_last_decides(tmp_path: Path, before: bool, after: bool, units: int) -> None:
    assert written(tmp_path / "s", before=before, after=after, units=units) is after


@pytest.mark.parametrize("name", ["4.9.7-killed", "5.1.4-clean", "5.1.4-dledger", "5.4.0-killed", "5.4.0-dledger"])
def test_stores_of_real_brokers_show_the_indexing_of_their_version(tmp_path: Path, name: str) -> None:
    store = open_store(copy_store(name, tmp_path))
    files = [entry.path for entry in reversed(store.index_files)]
    assert files
    assert indexes_tags(store, examine(store).logs, files, 100) is name.startswith("5.4.0")


def test_chain_of_a_key_leads_to_its_message_and_ends(tmp_path: Path) -> None:
    with MessageStore.create(tmp_path / "s", options(tag_key=False, units=1000)) as store:
        for number in range(100):
            store.put(message(number))
    (entry,) = open_store(tmp_path / "s").index_files
    wanted = key_hash("TopicTest#k17")
    chain = list(index_chain(LOCAL, entry.path, SMALL.index_slots, 1000, wanted))
    assert [number for number, unit in chain if unit["key_hash"] == wanted] == [18]  # unit 0 is never used
    assert [number for number, _ in chain] == sorted({number for number, _ in chain}, reverse=True)
    assert not list(index_chain(LOCAL, entry.path, SMALL.index_slots, 1, wanted))
