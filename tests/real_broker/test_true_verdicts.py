"""Stores whose messages a broker does not serve: the verdict of verify compared with what the broker serves."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqstore.checks.examine import verify
from rmqstore.checks.options import VerifyOptions
from rmqstore.files.store import open_store
from tests.checks.test_true_verdicts import DLEDGER, close_early
from tests.command import run_json
from tests.real_broker.oracle_server import OracleServers
from tests.stores import VERSIONS, copy_store, meta


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("version", VERSIONS)
def test_messages_under_a_blank_are_those_that_the_broker_does_not_read(
    version: str, tmp_path: Path, oracle_servers: OracleServers
) -> None:
    name = f"{version}-dledger-mixed"
    root = copy_store(name, tmp_path)
    close_early(open_store(root), -1, 5)
    report = verify(open_store(root), VerifyOptions(broker=version))
    hidden = [f.facts["messages"] for f in report.findings.listed if f.code == "CL-FALSE-BLANK"]
    reading = oracle_servers.load(version, root, meta(name).oracle_args)
    assert [reading.offsets - reading.readable] == hidden


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("name", DLEDGER)
def test_what_a_start_makes_of_a_log_without_queues_and_configuration(
    name: str, tmp_path: Path, oracle_servers: OracleServers
) -> None:
    version = name[:5]
    root = copy_store(name, tmp_path)
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "config")
    report = verify(open_store(root), VerifyOptions(broker=version))
    assert report.broker is not None
    told = {queue: (ends["min"], ends["max"]) for queue, ends in report.broker["queues"].items()}
    reading = oracle_servers.load(version, root, meta(name).oracle_args)
    assert told == {queue: (ends.min, ends.max) for queue, ends in reading.queues.items() if ends.max}
    assert sum(high - low for low, high in told.values()) == reading.readable


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("name", [f"{version}-{kind}" for version in VERSIONS for kind in ("clean", "dledger")])
def test_log_file_whose_name_lost_its_zeros_is_not_sound(
    name: str, tmp_path: Path, oracle_servers: OracleServers
) -> None:
    version, settings = name[:5], meta(name).oracle_args
    root = copy_store(name, tmp_path)
    log = root / ("dledger-n0/data" if name.endswith("dledger") else "commitlog")
    (log / f"{65536:020}").rename(log / "65536")
    assert oracle_servers.load(version, root, settings).readable < meta(name).oracle_start.readable
    done = run_json("recover", str(root), "--apply", exit_code=0)
    assert done["loss"]["messages"] == 0  # type: ignore[index]
    assert run_json("verify", str(root), "--broker", version, exit_code=0)["counts"] == {}
    assert oracle_servers.load(version, root, settings).readable == meta(name).oracle_start.readable
