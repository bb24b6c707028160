"""Stores of DLedger 0.4: entries without a message and a BLANK at a file's start are normal; wrong magics are not."""

from __future__ import annotations

import contextlib
import json
import shlex
import struct
from pathlib import Path
from typing import Any

import pytest

from rmqstore.brokers.simulate import simulate_start
from rmqstore.checks.examine import examine
from rmqstore.checks.options import VerifyOptions
from rmqstore.errors import Refused
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import Store, open_store
from rmqstore.formats import dledger
from rmqstore.formats.message import build_message
from rmqstore.repair.recover import plan_recovery
from rmqstore.scan.records import scan_file
from rmqstore.scan.tiling import Kind
from tests.command import run, run_json
from tests.damage import flip, overwrite, zero
from tests.forecast.places import Damage, data_files, entries, group
from tests.planning import look
from tests.stores import copy_store, meta

SIZE = 16384
ENTRY = dledger.ENTRY.size
NOOPS = (0, 1, 7, 20, 59, 60)


def _index(store: Path) -> Path:
    return group(store) / "index" / f"{0:020d}"


def _end(store: Path) -> tuple[Path, int, dict[str, int]]:
    """Return the last data file, the position where its entries end, and its last entry."""
    path = data_files(store)[-1]
    last = entries(path)[-1]
    entry = dledger.ENTRY.parse(path.read_bytes(), last)
    return path, last + entry["size"], entry


def internal(magic: int, unit_magic: int = dledger.NORMAL, body: bytes = b"") -> Damage:
    """Append an entry without a message; the leader writes NORMAL into its index unit nevertheless."""

    def damage(store: Path) -> None:
        path, at, last = _end(store)
        size = ENTRY + len(body)
        fields = {"index": last["index"] + 1, "term": last["term"], "pos": int(path.name) + at, "size": size}
        overwrite(path, at, dledger.ENTRY.build(**fields, magic=magic, body_length=len(body)) + body)
        unit = dledger.INDEX_UNIT.build(**fields, magic=unit_magic)
        overwrite(_index(store), fields["index"] * dledger.INDEX_UNIT.size, unit)

    return damage


def reset(number: int, *, file: int = 0, with_index: bool = True) -> Damage:
    """Overwrite a file's first entries with a BLANK, like MmapFileList#resetOffset after a snapshot."""

    def damage(store: Path) -> None:
        for path in data_files(store)[:file]:
            path.unlink()
        path = data_files(store)[0]
        at = entries(path)[number]
        index = dledger.ENTRY.parse(path.read_bytes(), at)["index"]
        overwrite(path, 0, struct.pack(">ii", dledger.BLANK_MAGIC, at).ljust(at, b"\0"))
        if with_index:
            head = struct.pack(">ii", dledger.BLANK_MAGIC, index * dledger.INDEX_UNIT.size)
            overwrite(_index(store), 0, head.ljust(index * dledger.INDEX_UNIT.size, b"\0"))

    return damage


def written(root: Path, count: int = 61, noops: tuple[int, ...] = NOOPS, unit_magic: int = dledger.NORMAL) -> Store:
    """Write a group like a leader of 0.4: some entries are NOOPs, but their index units have the type NORMAL."""
    data, units, offset = bytearray(), bytearray(), 0
    for number in range(count):
        pos, term = len(data), number // 20
        body, magic = b"", dledger.NOOP
        if number not in noops:
            magic = dledger.NORMAL
            text = f"UNIQ_KEY\x01{number:032X}\x02".encode()
            body = build_message(
                topic="Order",
                body=b"x" * (number % 50),
                properties=text,
                queue_offset=offset,
                physical_offset=pos + ENTRY,
            )
            offset += 1
        fields = {"index": number, "term": term, "pos": pos, "size": ENTRY + len(body)}
        data += dledger.ENTRY.build(**fields, magic=magic, body_length=len(body)) + body
        units += dledger.INDEX_UNIT.build(**fields, magic=dledger.NORMAL if body else unit_magic)
    assert len(data) < SIZE
    group = root / "dledger-n0"
    for folder in ("data", "index"):
        (group / folder).mkdir(parents=True)
    (group / "data" / f"{0:020d}").write_bytes(data.ljust(SIZE, b"\0"))
    with (group / "index" / f"{0:020d}").open("wb") as file:
        file.write(units)
        file.truncate(dledger.INDEX_FILE_SIZE)
    (group / "currterm").write_bytes(dledger.CurrTerm(count // 20, "n0").build())
    return open_store(root, BrokerConfig({"mappedFileSizeCommitLog": str(SIZE)}))


def kinds(store: Store) -> list[tuple[str, int]]:
    assert store.dledger is not None
    (file,) = store.dledger.data.files
    return [(run.kind.name, run.count) for run in scan_file(file, body_offset=ENTRY)]


def problems(store: Store, split_size: int | None = None) -> dict[str, int]:
    counts = examine(store, VerifyOptions(jobs=1, split_size=split_size)).report.findings.counts
    return {code: n for code, n in counts.items() if code.startswith("DL-")}


@pytest.mark.parametrize("unit_magic", [dledger.NORMAL, dledger.NOOP])
def test_entries_without_a_message_are_entries(unit_magic: int, tmp_path: Path) -> None:
    store = written(tmp_path, unit_magic=unit_magic)
    runs = kinds(store)
    assert [n for kind, n in runs if kind == "INTERNAL"] == [1] * len(NOOPS)
    assert sum(n for kind, n in runs if kind == "RECORDS") == 61 - len(NOOPS)
    assert {kind for kind, _ in runs} == {"INTERNAL", "RECORDS", "ZERO"}
    for split_size in (None, 3000, 700):
        assert problems(open_store(tmp_path, store.config), split_size) == {}
    facts = examine(store).report.dledger
    assert facts is not None
    assert (facts["entries"], facts["last_index"], facts["term"]) == (61, 60, 3)


def test_rocketmq_stops_at_its_entries_and_it_is_not_repaired(tmp_path: Path) -> None:
    store = written(tmp_path)
    verified = examine(store)
    assert verified.report.verdict.startswith("RocketMQ 5.5.1 would start")
    assert simulate_start(store, version="5.4.0").stop_reason == "unknown magic 2"
    with pytest.raises(Refused, match=r"DLedger 0\.4 wrote .*: it is read and checked, not repaired"):
        plan_recovery(store, verified)


def test_what_a_snapshot_made_superfluous_is_a_blank_before_the_entries(tmp_path: Path) -> None:
    store = copy_store("5.4.0-dledger", tmp_path)
    reset(10)(store)
    (store / "dledger-n0" / "snapshot" / "snapshot_9").mkdir(parents=True)
    verified = look(store, meta("5.4.0-dledger").oracle_args)[1]
    assert verified.dledger is not None
    first, second, *_ = verified.dledger.tiling
    assert (first.kind, first.start, first.stop == first.claimed, second.kind) == (Kind.BLANK, 0, True, Kind.RECORDS)
    assert verified.dledger.entries.first_index == 10
    info = run_json("info", str(store), exit_code=0)
    assert (info["dledger"]["first_index"], info["dledger"]["last_index"]) == (10, 552)  # type: ignore[index]
    assert {code for code in verified.report.findings.counts if code.startswith("DL-")} == set()


@pytest.mark.parametrize("what", ["magic", "pos", "size", "index", "term", "channel", "body_length"])
def test_a_damaged_one_is_damage(what: str, tmp_path: Path) -> None:
    store = written(tmp_path)
    assert store.dledger is not None
    path = store.dledger.data.files[0].path
    head = struct.pack(">ii", dledger.NOOP, ENTRY)
    at = path.read_bytes().index(head, path.read_bytes().index(head, 1000))
    size = next(f.size for f in dledger.ENTRY if f.name == what)
    flip(path, at + dledger.ENTRY.at(what) + size - 1, 3)
    assert problems(store)
    assert "INTERNAL" in {kind for kind, _ in kinds(store)}  # the others are not affected


def test_a_flipped_magic_of_a_message_s_entry_stays_damage(tmp_path: Path) -> None:
    store = written(tmp_path, noops=())
    assert store.dledger is not None
    path = store.dledger.data.files[0].path
    flip(path, 3, 1)  # 1 becomes 3, CONFIG_CHANGE
    assert kinds(store)[0] == ("DIRTY", 1)
    assert problems(store)["DL-HEADER"] == 1


def test_a_config_change_may_have_a_body(tmp_path: Path) -> None:
    store = copy_store("5.4.0-dledger", tmp_path)
    internal(dledger.CONFIG_CHANGE, dledger.CONFIG_CHANGE, b"{}" * 40)(store)
    verified = look(store, meta("5.4.0-dledger").oracle_args)[1]
    assert verified.dledger is not None
    assert verified.dledger.entries.internal == 1
    assert "DL-HEADER" not in verified.report.findings.counts


def test_a_missing_unit_of_one_is_reported(tmp_path: Path) -> None:
    store = written(tmp_path)
    assert store.dledger is not None
    zero(store.dledger.index.files[0].path, 20 * dledger.INDEX_UNIT.size, dledger.INDEX_UNIT.size)
    assert problems(store) == {"DL-DATA-INDEX": 1}


def test_a_blank_in_front_that_ends_at_no_entry_hides_none(tmp_path: Path) -> None:
    store = written(tmp_path)
    before = kinds(store)
    assert store.dledger is not None
    path = store.dledger.data.files[0].path
    overwrite(path, 0, struct.pack(">ii", dledger.BLANK_MAGIC, 1000))
    after = kinds(store)
    assert after[0] == ("DIRTY", 0)
    assert sum(n for kind, n in after if kind == "RECORDS") == sum(n for kind, n in before if kind == "RECORDS") > 0


def test_verify_does_not_advise_the_repair_that_is_refused(tmp_path: Path) -> None:
    store = copy_store("5.4.0-dledger", tmp_path)
    internal(dledger.NOOP)(store)
    path = data_files(store)[0]
    flip(path, entries(path)[3] + 150)
    text = run("verify", str(store))
    assert text.exit_code == 1 and "rmqstore recover" not in text.output
    advised = f"rmqstore export {store} -o messages.ndjson"
    assert f"Next: {advised}" in text.output and "it is not repaired" in " ".join(text.output.split())
    listed = tmp_path / "findings.ndjson"
    report: Any = run_json("verify", str(store), "--findings-out", str(listed), exit_code=1)
    assert [finding["next"] for finding in report["findings"]] == [None]
    assert [json.loads(line) for line in listed.read_text().splitlines()] == report["findings"]
    assert "rmqstore recover" not in run("doctor", str(store)).output
    with contextlib.chdir(tmp_path):
        assert run(*shlex.split(advised)[1:]).exit_code == 1
    assert (tmp_path / "messages.ndjson").stat().st_size
