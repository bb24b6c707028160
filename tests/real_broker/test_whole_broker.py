"""A whole broker starts on a copied fixture, serves its messages and accepts new ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqstore.brokers.simulate import simulate_start
from rmqstore.checks.examine import verify
from rmqstore.checks.options import VerifyOptions
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import open_store
from tests.real_broker.whole_broker import BrokerDidNotStart, ClientMessage, WholeBroker, conf_text
from tests.stores import copy_store, meta, write_broker_conf

NewBroker = Callable[..., WholeBroker]


def by_queue(messages: list[ClientMessage]) -> dict[int, list[int]]:
    queues: dict[int, list[int]] = defaultdict(list)
    for message in messages:
        queues[message.queue_id].append(message.queue_offset)
    return queues


@pytest.mark.slow
@pytest.mark.parametrize("name", ["4.9.7-dledger", "5.4.0-killed", "5.5.1-killed"])
def test_broker_serves_a_fixture_and_accepts_messages(name: str, tmp_path: Path, whole_broker: NewBroker) -> None:
    made = meta(name)
    store = copy_store(name, tmp_path)
    with whole_broker(made.version, store, made.broker_conf) as broker:
        acknowledged = broker.produce("Order_11", 8)
        read = broker.read("Order_11")
    for queue_id, offsets in by_queue(read).items():
        recorded = made.oracle_start.queues[f"Order_11/{queue_id}"].max
        assert offsets == list(range(len(offsets)))
        assert len(offsets) >= recorded  # may be more: a broker delivers delayed messages that are due
    seen = {(message.queue_id, message.queue_offset, message.body_crc) for message in read}
    assert len(acknowledged) == 8
    assert seen >= {(message.queue_id, message.queue_offset, message.body_crc) for message in acknowledged}
    assert not (store / "abort").exists()


def a_stray_file(store: Path) -> None:
    (store / "commitlog" / "notes.txt").write_text("left by a person")


def a_directory_for(name: str) -> Callable[[Path], None]:
    def damage(store: Path) -> None:
        (store / name).unlink(missing_ok=True)
        (store / name).mkdir()

    return damage


def a_short_wheel(store: Path) -> None:
    (store / "timerwheel").write_bytes(bytes(1000))


OBSTACLES = {
    "stray": a_stray_file,
    "lock": a_directory_for("lock"),
    "wheel": a_directory_for("timerwheel"),
    "short-wheel": a_short_wheel,
}
QUICK = ("5.1.4-stray",)
STARTS = [
    pytest.param(version, what, marks=() if f"{version}-{what}" in QUICK else pytest.mark.slow)
    for version in ("4.9.7", "5.1.4", "5.4.0", "5.5.1")
    for what in OBSTACLES
    if version != "4.9.7" or "wheel" not in what
]


@pytest.mark.parametrize(("version", "what"), STARTS)
def test_a_broker_that_does_not_start_ends_as_forecast(
    version: str, what: str, tmp_path: Path, whole_broker: NewBroker
) -> None:
    name = f"{version}-clean"
    store = copy_store(name, tmp_path)
    OBSTACLES[what](store)
    config = BrokerConfig.read(write_broker_conf(name, store))
    forecast = simulate_start(open_store(store, config), version=version)
    assert not forecast.starts
    with pytest.raises(BrokerDidNotStart) as caught, whole_broker(version, store, meta(name).broker_conf):
        pass
    assert caught.value.exit_code == forecast.exit_code


SIZE = "mappedFileSizeCommitLog"
CONFS: dict[str, dict[str, str]] = {
    "a blank after the size": {SIZE: "65536 "},
    "no size": {},
    "the old spelling": {"mapedFileSizeCommitLog": "65536"},
    "a byte order mark": {"\ufeff" + SIZE: "65536"},
    "a unit": {SIZE: "64K"},
    "a broken escape": {SIZE: "65536", "x": "\\u12"},
    "a name server without a port": {SIZE: "65536", "namesrvAddr": "localhost"},
    "no name server": {SIZE: "65536", "namesrvAddr": ""},
    "a slave without an id": {SIZE: "65536", "brokerRole": "SLAVE"},
}
CONF_STARTS = [
    pytest.param(
        version, what, marks=() if (version, what) == ("5.4.0", "a blank after the size") else pytest.mark.slow
    )
    for version in ("4.9.7", "5.1.4", "5.4.0", "5.5.1")
    for what in CONFS
    if what != "no name server" or version == "4.9.7"
]


@pytest.mark.parametrize(("version", "what"), CONF_STARTS)
def test_a_broker_that_its_broker_conf_keeps_from_starting_ends_as_forecast(
    version: str, what: str, tmp_path: Path, whole_broker: NewBroker
) -> None:
    name = f"{version}-clean"
    store = copy_store(name, tmp_path)
    conf = {key: value for key, value in meta(name).broker_conf.items() if key != SIZE}
    broker = whole_broker(version, store, conf, **CONFS[what])
    path = tmp_path / "broker.conf"
    path.write_text(conf_text(broker.conf), "utf-8")  # the very file of the broker
    forecast = simulate_start(open_store(store, BrokerConfig.read(path)), version=version)
    assert not forecast.starts
    with pytest.raises(BrokerDidNotStart) as caught, broker:
        pass
    assert caught.value.exit_code == forecast.exit_code


ABSENT = [(), ("dLegerGroup",), ("dLegerPeers",), ("dLegerSelfId",)]


@pytest.mark.slow
@pytest.mark.parametrize("version", ["4.9.7", "5.1.4", "5.4.0", "5.5.1"])
@pytest.mark.parametrize("absent", ABSENT, ids=["a word as id", "no group", "no peers", "no id"])
def test_dledger_mode_without_a_setting_ends_as_forecast(
    absent: tuple[str, ...], version: str, tmp_path: Path, whole_broker: NewBroker
) -> None:
    name = f"{version}-dledger"
    store = copy_store(name, tmp_path)
    broker = whole_broker(version, store, meta(name).broker_conf, **({} if absent else {"dLegerSelfId": "node0"}))
    broker.leave_out(*absent)
    path = tmp_path / "broker.conf"
    path.write_text(conf_text(broker.conf), "utf-8")
    forecast = simulate_start(open_store(store, BrokerConfig.read(path)), version=version)
    if forecast.starts:
        assert absent == ("dLegerGroup",)
        with broker:
            return
    with pytest.raises(BrokerDidNotStart) as caught, broker:
        pass
    assert caught.value.exit_code == forecast.exit_code


@pytest.mark.slow
@pytest.mark.parametrize(("version", "beside"), [("4.9.7", True), ("5.1.4", True), ("5.4.0", False), ("5.5.1", False)])
def test_a_blank_after_the_root_is_a_part_of_it_until_texts_are_trimmed(
    version: str, beside: bool, tmp_path: Path, whole_broker: NewBroker
) -> None:
    name = f"{version}-clean"
    store = copy_store(name, tmp_path)
    other = store.parent / f"{store.name} "
    with whole_broker(version, store, meta(name).broker_conf, storePathRootDir=str(other)) as broker:
        assert broker.conf["storePathRootDir"].endswith(" ")
    assert (other / "checkpoint").exists() is beside


@pytest.mark.slow
@pytest.mark.parametrize("version", ["4.9.7", "5.4.0", "5.5.1"])
def test_a_blank_after_the_mode_serves_no_message_of_a_dledger_store(
    version: str, tmp_path: Path, whole_broker: NewBroker
) -> None:
    name = f"{version}-dledger"
    store = copy_store(name, tmp_path)
    broker = whole_broker(version, store, meta(name).broker_conf, enableDLegerCommitLog="true ")
    path = tmp_path / "broker.conf"
    path.write_text(conf_text(broker.conf), "utf-8")
    report = verify(open_store(store, BrokerConfig.read(path)), VerifyOptions(broker=version))
    assert report.broker is not None
    assert (report.broker["starts"], report.broker["max_offset"]) == (True, 0)
    named = [f.facts["set"] for f in report.findings.listed if f.code == "CFG-SETTING"]
    assert named == ["enableDLegerCommitLog=true"]
    sent = sum(end.max - end.min for end in meta(name).oracle_start.queues.values())
    assert f"never deliver {sent} messages of 21 queues" in report.verdict
    with broker:
        assert broker.read("Order_11") == []
        assert broker.read("Pay_11_Topic") == []
