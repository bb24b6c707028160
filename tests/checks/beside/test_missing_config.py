"""config/ is gone: what the next broker does not know, told apart from a store on which no broker has run."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rmqstore.formats.configuration import parse_config_object
from tests.command import run, run_json
from tests.rocksdb_rows import need_rocksdict
from tests.stores import copy_store, unpack


def counts(store: Path, exit_code: int) -> object:
    findings = run_json("verify", str(store), exit_code=exit_code)["findings"]
    assert isinstance(findings, list)
    return {f["queue"]: f["facts"]["delivered_again"] for f in findings if f["code"] == "CFG-NO-DELAYS"}


@pytest.mark.parametrize("name", ["4.9.7-clean", "5.1.4-clean", "5.4.0-rocksdb", "5.4.0-dledger"])
def test_delivered_messages_of_delay_levels_are_counted_without_config(name: str, tmp_path: Path) -> None:
    if "rocksdb" in name:
        need_rocksdict()
    store = copy_store(name, tmp_path)
    table = parse_config_object((store / "config" / "delayOffset.json").read_bytes())["offsetTable"]
    assert isinstance(table, Mapping)
    delivered = {f"SCHEDULE_TOPIC_XXXX/{int(level) - 1}": int(str(n)) for level, n in table.items()}
    shutil.rmtree(store / "config")
    found = counts(store, 1)
    assert isinstance(found, dict)
    assert found["SCHEDULE_TOPIC_XXXX/0"] == delivered["SCHEDULE_TOPIC_XXXX/0"] == 18
    assert all(number == delivered[queue] for queue, number in found.items())


def test_they_are_counted_in_the_log_if_their_queues_are_gone(tmp_path: Path) -> None:
    store = copy_store("5.1.4-clean", tmp_path)
    for folder in ("config", "consumequeue/SCHEDULE_TOPIC_XXXX"):
        shutil.rmtree(store / folder)
    findings: Any = run_json("verify", str(store), exit_code=1)["findings"]
    [facts] = [f["facts"] for f in findings if f["code"] == "CFG-NO-DELAYS" and f["queue"].endswith("/0")]
    assert (facts["delivered_again"], facts.get("at_least", False)) == (18, False)


def test_an_import_has_delivered_nothing(tmp_path: Path) -> None:
    made = tmp_path / "made"
    done = run("import", str(unpack("5.4.0-clean")), "-o", str(made))
    assert done.exit_code == 0, done.output
    assert (made / "consumequeue" / "SCHEDULE_TOPIC_XXXX").is_dir()
    assert counts(made, 0) == {}
