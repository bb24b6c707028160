"""The real store classes read a generated store like one of their own."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.generate import generate
from benchmarks.parts import Options
from tests.real_broker.oracle import Oracle, Setting
from tests.untouched import file_bytes

pytestmark = pytest.mark.broker

SETTINGS = {
    "mappedFileSizeCommitLog": 65536,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
}
SMALL = Options(
    Path(), 500_000, body="10-900", file_size=65536, cq_file_size=2000, index_slots=100, index_units=400, rate=50
)


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("shape", ["v1", "v2", "dledger"])
def test_every_message_of_a_generated_store_is_readable(
    shape: str, tmp_path: Path, oracle: Callable[[str], Oracle]
) -> None:
    wide, group = shape == "v2", shape == "dledger"
    made = generate(replace(SMALL, out=tmp_path / "store", v2=wide, ipv6=wide, dledger=group))
    more: dict[str, Setting] = (
        {"enableDLegerCommitLog": True, "dLegerGroup": "generated", "dLegerSelfId": "n0"} if group else {}
    )
    result = oracle("5.4.0").load(tmp_path / "store", {**SETTINGS, **more}, start=group)
    assert result.crash is None
    assert result.max_phy == made.wrote
    assert {name: q.readable for name, q in result.queues.items()} == made.queues
    assert result.readable == result.offsets == made.messages


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("version", ["4.9.7", "5.4.0"])
def test_the_broker_builds_the_same_consume_queues_and_index(
    version: str, tmp_path: Path, oracle: Callable[[str], Oracle]
) -> None:
    tags = version == "5.4.0"  # older versions write no index units for TAGS
    generate(replace(SMALL, out=tmp_path / "store", index=True, index_tags=tags))
    shutil.copytree(tmp_path / "store", tmp_path / "bare")
    for part in ("consumequeue", "index"):
        shutil.rmtree(tmp_path / "bare" / part)
    (tmp_path / "bare" / "checkpoint").unlink()
    (tmp_path / "bare" / "abort").touch()
    more = {"commitLogRecoverMaxNum": 1000} if tags else {}
    result = oracle(version).load(tmp_path / "bare", {**SETTINGS, **more}, start=True, shutdown=True)
    assert result.shutdown == "clean"
    assert file_bytes(tmp_path / "bare" / "consumequeue") == file_bytes(tmp_path / "store" / "consumequeue")
    built, made = file_bytes(tmp_path / "bare" / "index"), file_bytes(tmp_path / "store" / "index")
    assert list(built.values()) == list(made.values())  # the names differ: they are the times of creation
