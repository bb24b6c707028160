"""Configuration files that a plan replaces: owner, mode and times come from the file that is replaced."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rmqstore.formats.configuration import parse_config_object
from tests import damage
from tests.command import run, run_json
from tests.repair.salvaging import rows
from tests.stores import copy_store, write_broker_conf
from tests.untouched import content


@pytest.mark.quick_rows(2)
@pytest.mark.parametrize("name", ["5.4.0-clean", "5.4.0-rocksdb"])
def test_offsets_are_reduced_in_a_store_without_topics(name: str, tmp_path: Path) -> None:
    """A store with its configuration in RocksDB has no topics.json, and others may have lost it."""
    store = copy_store(name, tmp_path)
    conf = ("-c", str(write_broker_conf(name, store)))
    (store / "config" / "topics.json").unlink(missing_ok=True)
    path = store / "config" / "delayOffset.json"
    text, count = re.subn(r"\b1:\d+", "1:1099511627776", path.read_text())
    assert count == 1
    path.write_text(text)
    path.chmod(0o600)
    last = rows(store)[-40]
    damage.garble(last.path, last.at, last.size)
    before = content(store)
    words = ("recover", str(store), *conf, "--strategy", "truncate")
    plan = run_json(*words, exit_code=1)
    done = run(*words, "--apply", "--force", str(plan["digest"]), "--json")
    assert done.exit_code in (0, 1), done.output
    assert "1099511627776" not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    run_json("undo", json.loads(done.stdout)["journal"], exit_code=0)
    assert content(store) == before


def test_delay_offsets_from_the_bak_end_with_their_queue(store: Path) -> None:
    """The log has lost its end, and delayOffset.json is broken: its .bak has offsets of delayed messages lost."""
    last = max(row.offset for row in rows(store) if row.slot[0] == "SCHEDULE_TOPIC_XXXX")
    for path in (store / "commitlog").iterdir():
        if int(path.name) > last // 65536 * 65536 - 1:
            path.unlink()
    offsets = store / "config" / "delayOffset.json"
    offsets.with_name("delayOffset.json.bak").write_text(json.dumps({"offsetTable": {"1": 18, "3": 4}}))
    offsets.write_text("{")
    run_json("recover", str(store), "--accept-fillers", "--apply", exit_code=0)
    table = parse_config_object(offsets.read_bytes())["offsetTable"]
    assert isinstance(table, dict)
    assert table["1"] == sum(row.slot[:2] == ("SCHEDULE_TOPIC_XXXX", 0) for row in rows(store)) < 18
