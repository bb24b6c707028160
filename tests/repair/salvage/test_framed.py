"""Several damaged header fields of one record, none covered by a checksum: one plan repairs all of them."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest

from rmqstore.formats import properties
from rmqstore.formats.message import HEAD
from tests import damage
from tests.command import run, run_json
from tests.repair.salvaging import Row, pick
from tests.stores import copy_store


def sys_flag(row: Row) -> None:
    damage.flip(row.path, row.at + HEAD.at("sys_flag") + 3, 0)  # "compressed"


def queue_offset(row: Row) -> None:
    damage.flip(row.path, row.at + HEAD.at("queue_offset") + 4, 3)


def host(row: Row) -> None:
    damage.flip(row.path, row.at + HEAD.at("born_host") + 5, 2)


def text(row: Row) -> None:
    """Change UNIQ_KEY's separator to a letter, so that the property has no name."""
    damage.flip(row.path, row.stop - len(row.message.properties) + row.message.properties.index(b"UNIQ_KEY") + 8, 6)


def tags(row: Row) -> None:
    damage.flip(row.path, row.stop - len(row.message.properties) + row.message.properties.index(b"TAGS\x01") + 5, 2)


DAMAGES = {break_it.__name__: break_it for break_it in (sys_flag, queue_offset, host, text, tags)}


@pytest.mark.quick_rows(4)
@pytest.mark.parametrize(
    "names", [*combinations(DAMAGES, 2), ("sys_flag", "queue_offset", "host", "text")], ids="+".join
)
def test_one_plan_mends_all(names: tuple[str, ...], tmp_path: Path) -> None:
    store = copy_store("4.9.7-clean", tmp_path)
    row = pick(store, _plain, 7)
    was = row.path.read_bytes()
    for name in names:
        DAMAGES[name](row)
    done = run_json("recover", str(store), "--role", "single", "--apply", exit_code=0)
    assert done["loss"]["messages"] == 0  # type: ignore[index]
    assert row.path.read_bytes() == was
    assert run("verify", str(store)).exit_code == 0


def _plain(row: Row) -> bool:
    text, topic = row.message.properties, row.message.topic_text
    plain = not properties.is_system_topic(topic) and not topic.startswith("%") and not row.message.carries_crc
    return plain and b"TAGS\x01" in text and b"UNIQ_KEY\x01" in text and not row.message.sys_flag
