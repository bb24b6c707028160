"""Which queues a broker reads if consumequeue/ has both files and a RocksDB, decided by broker.conf or config/."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import Store, open_store
from rmqstore.files.store_queues import QueueHome
from tests.stores import copy_store, unpack

DOUBLE = {"rocksdbCQDoubleWriteEnable": "true"}
ROWS = {"storeType": "defaultRocksDB"}


def both(tmp_path: Path) -> Path:
    """Return a store with queue files of one real broker and the RocksDB of another."""
    store = copy_store("5.4.0-clean", tmp_path)
    for path in (unpack("5.4.0-rocksdb") / "consumequeue").iterdir():
        shutil.copyfile(path, store / "consumequeue" / path.name)
    return store


def home(store: Path, **given: str) -> QueueHome:
    return open_store(store, BrokerConfig(given)).queue_home


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, QueueHome.FILES),
        (DOUBLE, QueueHome.FILES),
        ({"storeType": "default"}, QueueHome.FILES),
        (ROWS, QueueHome.ROCKSDB),
        (ROWS | DOUBLE, QueueHome.ROCKSDB),
        ({"storeType": "default", "combineCQPreferCQType": "defaultRocksDB"} | DOUBLE, QueueHome.UNKNOWN),
    ],
)
def test_configuration_decides_first(given: dict[str, str], expected: QueueHome, tmp_path: Path) -> None:
    assert home(both(tmp_path), **given) is expected


def test_without_configuration_the_place_of_the_topics_decides(tmp_path: Path) -> None:
    store = both(tmp_path)
    config = store / "config"
    shutil.copytree(unpack("5.4.0-rocksdb") / "config" / "topics", config / "topics")
    assert home(store) is QueueHome.UNKNOWN
    (config / "topics.json").unlink()
    assert home(store) is QueueHome.ROCKSDB
    shutil.rmtree(config / "topics")
    assert home(store) is QueueHome.FILES  # a broker loads topics.json.bak
    (config / "topics.json.bak").unlink()
    assert home(store) is QueueHome.UNKNOWN


@pytest.mark.parametrize(("name", "expected"), [("5.4.0-clean", "files"), ("5.4.0-rocksdb", "rocksdb")])
def test_stores_of_one_kind_are_what_they_were(name: str, expected: str) -> None:
    store = open_store(unpack(name))
    assert (store.queue_home.value, store.rocksdb_beside) == (expected, False)
    assert store.rocksdb_consume_queue == (expected == "rocksdb")


def test_queue_files_that_are_all_gone_are_missed_only_where_the_broker_has_files(tmp_path: Path) -> None:
    store = both(tmp_path)
    for path in (store / "consumequeue").iterdir():
        if path.is_dir():
            shutil.rmtree(path)
    assert home(store) is QueueHome.ROCKSDB
    assert home(store, **DOUBLE) is QueueHome.FILES


@pytest.mark.parametrize("given", [{}, ROWS])
def test_a_database_that_is_gone_is_still_where_the_queues_are(given: dict[str, str], tmp_path: Path) -> None:
    store = copy_store("5.4.0-rocksdb", tmp_path)
    shutil.rmtree(store / "consumequeue")
    assert home(store, **given) is QueueHome.ROCKSDB
    assert home(store, storeType="default") is QueueHome.FILES
    assert home(copy_store("5.4.0-clean", tmp_path), **given) is (QueueHome.ROCKSDB if given else QueueHome.FILES)


def test_only_the_database_s_own_files_belong_there(tmp_path: Path) -> None:
    def strays(of: Store) -> list[str]:
        return [s.path.name for s in of.strays]

    store = both(tmp_path)
    (store / "consumequeue" / "notes.txt").touch()
    assert open_store(store).rocksdb_beside
    assert strays(open_store(store)) == ["notes.txt"]
    assert "CURRENT" in strays(open_store(store_copy_without_manifest(store)))


def store_copy_without_manifest(store: Path) -> Path:
    """Remove the manifest, without which the remaining files are not a database."""
    for path in (store / "consumequeue").iterdir():
        if path.name.startswith("MANIFEST-") or path.name == "IDENTITY":
            path.unlink()
    return store
