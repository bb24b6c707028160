"""The commands of docs/incidents.md, run in the situations in which they are shown."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.carving.images import delete_all, ext4, logs_of
from tests.cli.test_lost import damaged
from tests.command import run, run_json
from tests.damage import flip
from tests.stores import ROOT, copy_store, unpack, write_broker_conf
from tests.test_docs import command_lines

PAGE = (ROOT / "docs" / "incidents.md").read_text("utf-8")
SECTIONS = {
    part.partition("\n")[0]: re.findall(r"^```\n(.*?)^```$", part, re.MULTILINE | re.DOTALL)
    for part in PAGE.split("\n## ")[1:]
}


class Scene:
    """A store in a situation. `play` runs the commands of the next block of its section."""

    def __init__(self, title: str, folder: Path, source: str = "5.4.0-clean") -> None:
        self.blocks = iter(SECTIONS[title])
        self.folder = folder
        self.store = copy_store(source, folder, rename="store")
        self.conf = write_broker_conf(source, self.store, fileReservedTime="72").rename(folder / "broker.conf")
        self.names = {"broker.conf": str(self.conf), "/data/store": str(self.store)}

    def play(self, *exit_codes: int) -> list[str]:
        """Run the commands of the next block, with these exit codes; return what each prints."""
        out = []
        commands = list(command_lines(next(self.blocks)))
        assert len(commands) == len(exit_codes)
        for words, code in zip(commands, exit_codes, strict=True):
            as_text = ("--format", "table") if words[0] in ("lost", "offsets") and "--apply" not in words else ()
            result = run(*map(self._named, words), *as_text)
            assert result.exit_code == code, f"{words}: {result.exit_code}\n{result.output}"
            out.append(result.stdout)
        return out

    def _named(self, word: str) -> str:
        for name, path in self.names.items():
            word = path if word == name else word.replace(f"{name}/", f"{path}/")
        return str(self.folder / word) if re.fullmatch(r"[a-z]+\.(ndjson|html|csv)", word) else word


@pytest.fixture
def scene(tmp_path: Path) -> Callable[..., Scene]:
    return lambda title, source="5.4.0-clean": Scene(title, tmp_path, source)


Make = Callable[..., Scene]


def test_every_situation_is_played() -> None:
    source = Path(__file__).read_text("utf-8")
    assert [title for title in SECTIONS if f'scene("{title}"' not in source] == []


def test_before_an_upgrade(scene: Make) -> None:
    now = scene("Before an upgrade or a rollback", "5.5.1-formats")
    every, newer, older = now.play(0, 0, 1)
    assert "brokers" in every and "RocketMQ 5.5" in newer.splitlines()[0]
    assert "4.9" in older.splitlines()[0]
    now.play(0)


def test_the_store_was_deleted(scene: Make) -> None:
    now = scene("The store was deleted")
    image = ext4(now.store, now.folder / "disk.img")
    delete_all(now.store, image)
    now.names |= {"/mnt/other/disk.img": str(image), "/mnt/other/store": str(now.folder / "carved")}
    looked, made, *_ = now.play(0, 0, 0, 0)
    assert "553 messages of 1 store" in looked
    assert made.splitlines()[0] == looked.splitlines()[0]
    assert logs_of(now.folder / "carved") == logs_of(now.store)


def test_a_topic_was_deleted(scene: Make) -> None:
    now = scene("A topic was deleted")
    now.names["Order"] = "Order_11"
    topics = now.store / "config" / "topics.json"
    table = json.loads(topics.read_text())
    table["topicConfigTable"].pop("Order_11")
    topics.write_text(json.dumps(table))
    topics.with_name("topics.json.bak").unlink(missing_ok=True)
    shutil.rmtree(now.store / "consumequeue" / "Order_11")
    lost, _ = now.play(0, 0)
    assert "topics.json does not have the topic Order_11: " in lost
    assert len((now.folder / "order.ndjson").read_text().splitlines()) == 168
    deleted: Any = run_json("lost", str(now.store), exit_code=0)["deleted_topics"]
    table["topicConfigTable"]["Order_11"] = deleted[0]["topic_config"]
    topics.write_text(json.dumps(table))
    now.play(0, 0)
    assert sum(1 for _ in (now.store / "consumequeue" / "Order_11").iterdir()) == 4


def test_offsets_are_lost(scene: Make) -> None:
    now = scene("The offsets of consumers are lost")
    place = now.store / "config" / "consumerOffset.json"
    whole = run_json("offsets", str(now.store), exit_code=0)["offsets"]
    place.with_name("consumerOffset.json.bak").write_text(place.read_text())
    place.write_text('{"offsetTable": {}}')
    now.play(1, 0, 0)
    assert run_json("offsets", str(now.store), exit_code=0)["offsets"] == whole


def test_config_is_lost(scene: Make) -> None:
    now = scene("The directory config/ is lost")
    backup = shutil.copytree(unpack("5.4.0-clean"), now.folder / "backup")
    now.names["/backup/store"] = str(backup)
    shutil.rmtree(now.store / "config")
    plan, *_, after = now.play(1, 1, 0, 1)
    assert "topics.json" in plan and "it does not know 3 topics" in after
    groups = ("--group", "CG_dlq_11")
    before = run_json("offsets", str(backup), *groups, exit_code=0)["offsets"]
    assert before and run_json("offsets", str(now.store), *groups, exit_code=0)["offsets"] == before


def test_broker_conf_has_another_size(scene: Make) -> None:
    now = scene("broker.conf has another file size than the store")
    right = now.conf.read_text()
    now.conf.write_text(right.replace("mappedFileSizeCommitLog=65536", "mappedFileSizeCommitLog=131072"))
    (said,) = now.play(1)
    assert " ".join(said.split()).startswith(
        "broker.conf does not fit the files of this store: set mappedFileSizeCommitLog=65536"
    )
    now.conf.write_text(right)
    assert run("verify", str(now.store), "-c", str(now.conf)).exit_code == 0


def age(store: Path, hours: int, count: int) -> None:
    """Let the first files of the log be some hours old, and the others new."""
    for number, path in enumerate(sorted((store / "commitlog").iterdir())):
        at = time.time_ns() - (hours if number < count else 0) * 3_600_000_000_000
        os.utime(path, ns=(at, at))


def test_messages_have_expired(scene: Make) -> None:
    now = scene("Messages have expired before they were read")
    age(now.store, 5, 3)
    expire, *_ = now.play(0, 0, 0)
    assert "It removes the next files at" in " ".join(expire.split())
    assert (now.folder / "stale.ndjson").exists()


def test_a_slave_differs(scene: Make) -> None:
    now = scene("A slave differs from its master", "5.4.0-master")
    now.names["/data/master"] = str(unpack("5.4.0-master"))
    log = sorted((now.store / "commitlog").iterdir())[0]
    flip(log, 2000)
    first, _, _, last = now.play(1, 1, 0, 0)
    assert first != last


def test_the_disk_is_full(scene: Make) -> None:
    now = scene("The disk is full")
    age(now.store, 40, 3)
    _, growth, _ = now.play(0, 0, 0)
    assert growth.startswith("The messages span only 15 seconds: ")
    deletion = ("--reserved", "24", "--any-hour", "--delete")
    now.names["DIGEST"] = str(run_json("expire", str(now.store), *deletion, exit_code=1)["digest"])
    now.names["/mnt/other"] = str(now.folder / "other")
    plan, done, _ = now.play(1, 0, 0)
    assert "would delete 3 files of the log for ever" in " ".join(plan.split())
    assert now.names["DIGEST"] in plan
    assert "Deleted for ever: no `undo` brings the files back." in " ".join(done.split())
    assert len(list((now.store / "commitlog").iterdir())) == 5
    [journal] = (now.folder / "other" / "journals").iterdir()
    assert run("undo", str(journal)).exit_code == 5


def test_a_repair_is_accounted_for(scene: Make) -> None:
    now = scene("A repair must be accounted for")
    damaged(now.store)
    answer = run_json("recover", str(now.store), "--apply", exit_code=0)
    now.names["/data/store/.rmqstore/JOURNAL"] = str(answer["journal"])
    now.names = dict(sorted(now.names.items(), key=lambda item: -len(item[0])))
    now.play(0, 0)
    assert "messages lost" in (now.folder / "incident.html").read_text("utf-8")
    assert len((now.folder / "lost.csv").read_text("utf-8").splitlines()) == 4
