"""Opening a store with incomplete consume queues or index: they are completed, or nothing is changed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rmqstore.append.message_store import MessageStore, StoreOptions
from rmqstore.errors import Refused, StoreIsLive
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import open_store
from rmqstore.formats.checkpoint import parse_checkpoint
from rmqstore.formats.consumequeue import PRE_BLANK
from tests.append.rewriting import index_bytes, queue_bytes
from tests.append.small import SMALL, clean, message, units
from tests.stores import ROOT, copy_store, meta
from tests.untouched import tree


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """200 messages in 11 log files; the queue has 4 files of 50 units."""
    with MessageStore.create(tmp_path / "s", SMALL) as store:
        for number in range(200):
            store.put(message(number, size=700))
    assert len(list((tmp_path / "s" / "commitlog").iterdir())) == 11
    assert len(list((tmp_path / "s" / "consumequeue/TopicTest/0").iterdir())) == 4
    return tmp_path / "s"


def queue(root: Path, number: int) -> Path:
    return root / "consumequeue" / "TopicTest" / "0" / f"{number * 1000:020d}"


def refused(root: Path, words: str) -> None:
    before = tree(root)
    with pytest.raises(Refused, match=words) as error:
        MessageStore.open(root, SMALL)
    assert error.value.advice == "run `rmqstore verify`, then `rmqstore rebuild STORE cq`"
    assert tree(root).items() >= {k: v for k, v in before.items() if k not in ("lock", "abort")}.items()


def test_all_units_are_restored_if_consumequeue_is_missing(root: Path) -> None:
    before = queue_bytes(root)
    shutil.rmtree(root / "consumequeue")
    with MessageStore.open(root, SMALL) as store:
        assert store.put(message(200)).queue_offset == 200
    assert len(units(root)) == 201
    after = queue_bytes(root)
    assert {name: after[name] for name in before} == before
    assert clean(root) == {}


def test_units_of_missing_last_queue_files_are_restored(root: Path) -> None:
    before = queue_bytes(root)
    queue(root, 3).unlink()
    queue(root, 2).unlink()
    with MessageStore.open(root, SMALL):
        pass
    assert queue_bytes(root) == before
    assert clean(root) == {}


def test_a_missing_first_queue_file_is_refused(root: Path) -> None:
    queue(root, 0).unlink()
    refused(root, "TopicTest/0: the log has message 0 of this queue at 0, but its consume queue begins at 50")


def test_a_message_hidden_behind_pre_blanks_is_refused(root: Path) -> None:
    for number in range(3):
        queue(root, number).unlink()
    data = bytearray(queue(root, 3).read_bytes())
    data[: 20 * 20] = PRE_BLANK * 20
    queue(root, 3).write_bytes(data)
    refused(root, "TopicTest/0: the log has message 0 of this queue at 0, but its consume queue begins at 170")


def test_a_missing_queue_file_in_the_middle_is_refused(root: Path) -> None:
    queue(root, 1).unlink()
    refused(root, r"TopicTest/0: the file with the units in \[1000, 2000\) is missing")


def test_a_unit_that_would_be_misplaced_is_refused(root: Path) -> None:
    queue(root, 3).unlink()
    (root / "commitlog" / f"{8 << 14:020d}").unlink()  # messages 153 to 171
    text = "TopicTest/0: the log has message 172 of this queue at 147456, but the next one of its consume queue is 153"
    refused(root, text)


def test_the_checkpoint_is_not_ahead_of_a_log_that_was_cut(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with MessageStore.create(root, SMALL) as store:
        for number in range(60):
            one = message(number, size=700)
            one.store_timestamp = 1_700_000_000_000 + number * 1000
            store.put(one)
    for path in sorted((root / "commitlog").iterdir())[2:]:
        path.unlink()
    (root / "abort").touch()
    MessageStore.open(root, SMALL).close()
    point = parse_checkpoint((root / "checkpoint").read_bytes())
    left = len(units(root))
    assert 0 < left < 60
    assert (point.physic_msg_timestamp, point.logics_msg_timestamp) == (1_700_000_000_000 + (left - 1) * 1000,) * 2
    assert clean(root) == {}


def test_units_of_a_deleted_topic_are_not_restored(root: Path) -> None:
    with MessageStore.open(root, SMALL) as store:
        store.put(message(200, topic="Kept"))
    shutil.rmtree(root / "consumequeue" / "TopicTest")
    (root / "config").mkdir()
    (root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": {"Kept": {"topicName": "Kept"}}}))
    with MessageStore.open(root, SMALL) as store:
        assert store.put(message(201, topic="Kept")).queue_offset == 1
    assert sorted(p.name for p in (root / "consumequeue").iterdir()) == ["Kept"]


def test_topics_of_new_messages_are_added_to_topics_json(root: Path) -> None:
    """A broker serves no other topics. A deleted topic without new messages stays deleted."""
    path = root / "config" / "topics.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"dataVersion": {"counter": 3}, "topicConfigTable": {"Kept": {"topicName": "Kept"}}}))
    with MessageStore.open(root, SMALL):
        pass
    assert json.loads(path.read_bytes())["topicConfigTable"].keys() == {"Kept"}
    with MessageStore.open(root, SMALL) as store:
        store.put(replace(message(200, topic="New"), queue_id=2))
        store.put(message(201, topic="%LMQ%light"))
    after = json.loads(path.read_bytes())
    assert after["dataVersion"]["counter"] == 4
    assert after["topicConfigTable"].keys() == {"Kept", "New"}
    assert after["topicConfigTable"]["New"]["readQueueNums"] == 3


def test_all_index_units_are_restored_if_the_index_is_missing(root: Path) -> None:
    before = [data[40:] for data in index_bytes(root)]
    shutil.rmtree(root / "index")
    with MessageStore.open(root, SMALL):
        pass
    assert [data[40:] for data in index_bytes(root)] == before
    assert clean(root) == {}


def test_index_units_of_missing_last_files_are_restored(root: Path) -> None:
    names = sorted(p.name for p in (root / "index").iterdir())
    before = index_bytes(root)
    for name in names[2:]:
        (root / "index" / name).unlink()
    with MessageStore.open(root, SMALL):
        pass
    after = index_bytes(root)
    assert len(before) > 6
    assert [data[80:] for data in after] == [data[80:] for data in before]
    assert clean(root) == {}


@pytest.mark.parametrize("version", ["4.9.7", "5.4.0"])
def test_a_mixed_store_gets_the_units_of_both_logs(version: str, tmp_path: Path) -> None:
    name = f"{version}-dledger-mixed"
    root = copy_store(name, tmp_path)
    before = queue_bytes(root)
    shutil.rmtree(root / "consumequeue")
    config = BrokerConfig({key: str(value) for key, value in meta(name).settings.items()})
    assert config.role == "single"
    with MessageStore.open(root, StoreOptions(version=version), config=config):
        pass
    assert queue_bytes(root) == before


# --- the lock --------------------------------------------------------------------------------------------------------

OPENS = "import sys, pathlib; from rmqstore import MessageStore; MessageStore.open(pathlib.Path(sys.argv[1]))"


def opened_elsewhere(root: Path) -> str:
    done = subprocess.run([sys.executable, "-c", OPENS, str(root)], cwd=ROOT, capture_output=True, check=False)
    return done.stderr.decode().strip().rpartition("\n")[2].partition(":")[0] if done.returncode else "opened"


def test_a_second_writer_in_the_same_process_is_refused(root: Path) -> None:
    with MessageStore.open(root, SMALL) as store:
        with pytest.raises(StoreIsLive, match=rf"this process \({os.getpid()}\) holds its lock already"):
            MessageStore.open(root, SMALL)
        assert store.put(message(200)).queue_offset == 200
    with MessageStore.open(root, SMALL) as store:
        assert store.put(message(201)).queue_offset == 201


def test_readers_in_the_process_of_the_writer_keep_its_lock(root: Path) -> None:
    with MessageStore.open(root, SMALL):
        assert open_store(root).is_live()
        assert open_store(root).lock_state().pid == os.getpid()
        clean(root)
        assert opened_elsewhere(root) == "rmqstore.errors.StoreIsLive"
    assert opened_elsewhere(root) == "opened"


def test_a_failed_opening_releases_the_lock(root: Path) -> None:
    queue(root, 1).unlink()
    refused(root, "the file with the units")
    shutil.rmtree(root / "consumequeue")
    MessageStore.open(root, replace(SMALL, version="5.4.0")).close()
    assert clean(root) == {}
