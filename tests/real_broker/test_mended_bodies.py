"""Bodies with one flipped bit, repaired by their CRCs: the real classes read every message with its original bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import damage
from tests.command import run_json
from tests.real_broker.oracle_server import OracleServers
from tests.real_broker.reading import messages, not_the_same
from tests.repair.salvage.test_whole_bodies import lose_page
from tests.repair.salvaging import rows
from tests.stores import VERSIONS, copy_store, meta

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("version", VERSIONS)
def test_mended_store_is_read_completely(version: str, tmp_path: Path, oracle_servers: OracleServers) -> None:
    name = f"{version}-clean"
    sound, store = copy_store(name, tmp_path / "sound"), copy_store(name, tmp_path / "damaged")
    damaged = [row for row in rows(store)[10:-10:40] if row.message.body]
    for number, row in enumerate(damaged):
        damage.flip(row.path, row.at + 88, number % 8)
    answer = run_json("recover", str(store), "--apply", exit_code=0)
    assert isinstance(answer["loss"], dict)
    assert isinstance(answer["facts"], dict)
    assert answer["loss"]["messages"] == 0
    assert [row["offset"] for row in answer["facts"]["mended"]] == [row.offset for row in damaged]
    settings = meta(name).broker_conf
    before, after = (oracle_servers.load(version, each, settings) for each in (sound, store))
    assert len(messages(before)) > 500
    assert messages(after).keys() == messages(before).keys()
    assert not_the_same(before, after) == {}


@pytest.mark.parametrize("version", VERSIONS)
def test_messages_without_their_properties_are_read_with_their_bodies(
    version: str, tmp_path: Path, oracle_servers: OracleServers
) -> None:
    name = f"{version}-clean"
    sound, store = copy_store(name, tmp_path / "sound"), copy_store(name, tmp_path / "damaged")
    damaged = [row for row in rows(store) if row.message.topic_text == "Order_11" and row.message.is_dispatched][5::20]
    for row in damaged:
        lose_page(row)
    answer = run_json("recover", str(store), "--apply", exit_code=0)
    assert isinstance(answer["loss"], dict)
    assert answer["loss"]["messages"] == 0
    settings = meta(name).broker_conf
    before, after = (oracle_servers.load(version, each, settings) for each in (sound, store))
    assert messages(after).keys() == messages(before).keys()
    assert set(not_the_same(before, after).values()) == {row.offset for row in damaged}
    now = {message.commitlog_offset: message for message in messages(after).values()}
    assert all((now[row.offset].size, now[row.offset].body_crc) == (row.size, row.message.body_crc) for row in damaged)
