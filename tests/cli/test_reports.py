"""`info`, `verify` and `du`: their output as text and as JSON."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rmqstore.checks.problems.table import PROBLEMS
from rmqstore.cli.du import _plot
from rmqstore.cli.printing.output import Output
from rmqstore.cli.printing.quantities import columns
from rmqstore.views.usage import Table, Usage, _time
from tests.command import run, run_json
from tests.damage import flip, zero
from tests.rocksdb_rows import without_extra
from tests.stores import BROKER_STORES, copy_store, meta, unpack
from tests.views.decoder import find_records, read_folder

ROCKSDB = [name for name in BROKER_STORES if meta(name).broker_conf.get("storeType") == "defaultRocksDB"]
# Loading a killed store completes its queues, and a follower truncates uncommitted entries: for these stores, the
# results of the real store differ from the files.
AS_ON_DISK = [n for n in BROKER_STORES if n not in ROCKSDB and "killed" not in n and "dledger3" not in n]


# --- info ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", AS_ON_DISK)
def test_info_finds_the_queues_that_the_real_store_reads(name: str) -> None:
    info = run_json("info", str(unpack(name)), exit_code=0)
    queues = info["queues"]
    assert isinstance(queues, dict)
    expected = meta(name).oracle_load.queues
    assert expected
    for label, queue in expected.items():
        if label not in queues:
            assert queue.max == 0, label  # the real store also reports queues of topics without messages
            continue
        found = queues[label]
        if found["kind"] == "simple":
            assert (found["min"], found["max"]) == (queue.min, queue.max), label


@pytest.mark.parametrize("name", ["5.4.0-clean", "4.9.7-ipv6", "5.4.0-killed"])
def test_info_finds_the_end_of_the_log(name: str) -> None:
    records = list(read_folder(unpack(name) / "commitlog"))
    log = run_json("info", str(unpack(name)), exit_code=0)["commitlog"]
    assert isinstance(log, dict)
    assert log["wrote"] == records[-1].position + records[-1].size
    assert (log["first_timestamp"], log["last_timestamp"]) == (records[0].store_timestamp, records[-1].store_timestamp)


def test_info_finds_the_end_without_consume_queues() -> None:
    whole = run_json("info", str(unpack("5.4.0-clean")), exit_code=0)["commitlog"]
    part = run_json("info", str(unpack("5.4.0-clean") / "commitlog"), exit_code=0)["commitlog"]
    assert isinstance(whole, dict)
    assert isinstance(part, dict)
    assert part["wrote"] == whole["wrote"]
    assert (whole["found_by"], part["found_by"]) == ("consume queues", "last file")


def test_info_of_a_dledger_store_names_terms_and_indexes() -> None:
    store = unpack("5.1.4-dledger-mixed")
    entries = list(read_folder(store / "dledger-n0" / "data", entries=True))
    group = run_json("info", str(store), exit_code=0)["dledger"]
    assert isinstance(group, dict)
    assert (group["first_index"], group["last_index"]) == (0, len(entries) - 1)
    assert group["data"]["wrote"] == entries[-1].position + entries[-1].size
    assert group["divided_commitlog_offset"] == entries[0].position - 48
    assert (group["group_dir"], group["self_id"]) == ("dledger-n0", "n0")


@pytest.mark.parametrize("name", ROCKSDB)
def test_info_never_calls_a_rocksdb_store_complete_without_the_extra(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_extra(monkeypatch)
    info = run_json("info", str(unpack(name)), exit_code=4)
    assert info["kind"] == "rocksdb"
    assert info["unchecked"]


def test_info_says_whether_the_broker_stopped_cleanly() -> None:
    clean, killed = run("info", str(unpack("5.4.0-clean"))), run("info", str(unpack("5.4.0-killed")))
    assert "Clean shutdown (no abort file)" in clean.stdout
    assert "Unclean shutdown (abort file present)" in killed.stdout


def test_info_of_a_sparse_store_reads_next_to_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "commitlog"
    folder.mkdir()
    for n in range(64):
        with (folder / f"{n << 30:020d}").open("wb") as file:
            file.truncate(1 << 30)
    log = run_json("info", str(tmp_path), exit_code=0)["commitlog"]
    assert isinstance(log, dict)
    assert (log["files"], log["bytes"], log["wrote"]) == (64, 64 << 30, 0)


# --- verify ----------------------------------------------------------------------------------------------------------


def test_verify_text_leads_with_the_verdict_and_ends_with_what_to_do() -> None:
    result = run("verify", str(unpack("5.4.0-clean")))
    lines = result.stdout.splitlines()
    assert result.exit_code == 0
    assert lines[0] == "RocketMQ 5.4.0 would start and lose nothing. Nothing is wrong with this store."
    assert lines[-1] == "Next: nothing to do."


def test_verify_text_has_colours_only_on_request() -> None:
    store = str(unpack("5.4.0-clean"))
    lines = run("verify", store, "--color", "always").stdout.splitlines()
    assert lines[0] == "\x1b[1;32mRocketMQ 5.4.0 would start and lose nothing. Nothing is wrong with this store.\x1b[0m"
    assert lines[1:3] == ["", f"{store}: plain store"]
    assert "\x1b[2m  queues       \x1b[0m21 consume queues of 9 topics, lengths match the log" in lines
    assert lines[-1] == "\x1b[32mNext: nothing to do.\x1b[0m"
    plain = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines]
    assert run("verify", store).stdout.splitlines() == plain


def test_verify_text_shows_place_facts_and_cure_of_each_problem(store: Path) -> None:
    record = next(r for r in read_folder(store / "commitlog") if len(r.body) > 100)
    flip(store / "commitlog" / f"{0:020d}", record.position + 100)
    result = run("verify", str(store))
    assert result.exit_code == 1
    lines = [line.strip() for line in result.stdout.splitlines()]
    assert f"ERROR   CL-BODY-CRC  {PROBLEMS['CL-BODY-CRC'].title}" in lines
    assert any(line.startswith(f"commitlog  file {0:020d}  at {record.position:,} (") for line in lines)
    assert any(line.startswith(f"topic {record.topic}, queue id {record.queue_id}, ") for line in lines)
    assert any(line.startswith("cure: rmqstore recover") for line in lines)
    assert any(line.startswith("Next: rmqstore recover") for line in lines)


def test_verify_text_ends_with_the_open_journal(tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path, rename="s")
    record = next(r for r in read_folder(store / "commitlog") if len(r.body) > 100)
    flip(store / "commitlog" / f"{0:020d}", record.position + 100)
    journal = Path(str(run_json("recover", str(store), "--apply", exit_code=0)["journal"]))
    state = journal / "state"
    state.write_text(state.read_text("utf-8").replace('"done"', '"applying"'), "utf-8")
    text = run("verify", str(store)).stdout
    last = text[text.index("Next: ") :]
    assert last.startswith(f"Next: rmqstore resume {journal}\n")
    assert f"rmqstore undo {journal}\n" in last
    assert "recover" not in last


def test_verify_text_fits_80_columns(tmp_path: Path) -> None:
    store = copy_store("5.4.0-killed", tmp_path, rename="s")
    for number in range(0, 20, 3):
        zero(store / "commitlog" / f"{number * 65536:020d}", 5000, 3000)
    result = run("verify", str(store))
    assert result.exit_code == 1
    long = [line for line in result.stdout.splitlines() if len(line) > 80 and str(store) not in line]
    assert long == []


def test_findings_out_has_every_finding(tmp_path: Path) -> None:
    store = copy_store("5.4.0-killed", tmp_path)
    for number in range(5):
        zero(store / "commitlog" / f"{number * 65536:020d}", 5000, 3000)
    out = tmp_path / "findings.ndjson"
    report = run_json("verify", str(store), "--findings-out", str(out), exit_code=1)
    written = Counter(json.loads(line)["code"] for line in out.read_text("utf-8").splitlines())
    assert written == report["counts"]


def test_findings_out_has_64_bit_numbers_as_texts_if_asked_to(tmp_path: Path) -> None:
    store, out = copy_store("5.4.0-clean", tmp_path), tmp_path / "findings"
    zero(store / "commitlog" / f"{0:020}", 5000, 3000)
    run("verify", str(store), "--findings-out", str(out), "--string-ints")
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert rows and all(isinstance(row["offset"], str) for row in rows)


def test_verify_refuses_a_code_that_there_is_not() -> None:
    result = run("verify", str(unpack("5.4.0-clean")), "--only", "cl-body-cr")
    assert result.exit_code == 2
    assert "did you mean CL-BODY-CRC?" in result.stderr


def test_verify_of_a_part_that_was_left_out_is_exit_4() -> None:
    report = run_json("verify", str(unpack("5.4.0-clean")), "--quick", exit_code=4)
    assert report["clean"] is False
    assert report["counts"] == {}


# --- du --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["5.4.0-killed", "4.9.7-ipv6", "5.4.0-formats"])
def test_du_counts_what_an_independent_reader_counts(name: str) -> None:
    records = list(read_folder(unpack(name) / "commitlog"))
    found = run_json("du", str(unpack(name)), exit_code=0)
    count = sum(r.messages for r in records)
    assert (found["messages"], found["bytes"]) == (count, sum(r.size for r in records))
    by = found["by"]
    assert isinstance(by, dict)
    expected: dict[str, Counter[str | None]] = {
        "topic": Counter(),
        "bytes": Counter(),
        "queue": Counter(),
        "tag": Counter(),
    }
    for r in records:
        expected["topic"][r.topic] += r.messages
        expected["bytes"][r.topic] += r.size
        expected["queue"][f"{r.topic}/{r.queue_id}"] += r.messages
        expected["tag"][r.properties.get("TAGS")] += r.messages
    assert {row["topic"]: row["bytes"] for row in by["topic"]} == expected["bytes"]
    for name_of in ("topic", "queue", "tag"):
        assert {row[name_of]: row["messages"] for row in by[name_of]} == expected[name_of]
    assert sum(r["messages"] for r in by["host"]) == sum(r["messages"] for r in by["day"]) == count


def test_du_filters_and_cuts() -> None:
    store = str(unpack("5.4.0-killed"))
    records = [r for r in read_folder(unpack("5.4.0-killed") / "commitlog") if r.topic == "Order_11"]
    found = run_json("du", store, "--topic", "Order_11", "--by", "queue", "--top", "2", exit_code=0)
    assert found["messages"] == len(records)
    by = found["by"]
    assert isinstance(by, dict)
    assert list(by) == ["queue"]
    assert len(by["queue"]) == 2


def test_du_says_what_it_passed_over(tmp_path: Path) -> None:
    store = copy_store("5.4.0-killed", tmp_path)
    zero(store / "commitlog" / f"{0:020d}", 5000, 3000)
    result = run("du", str(store))
    assert result.exit_code == 1
    assert result.stderr.startswith("warning: 1 damaged place (")


@pytest.mark.parametrize("name", ["5.4.0-killed", "4.9.7-ipv6", "5.1.4-dledger"])
def test_du_counts_several_dimensions_together_and_hours(name: str) -> None:
    records = list(find_records(unpack(name)))
    hours = {r.position: f"{datetime.fromtimestamp(r.store_timestamp / 1000, UTC):%Y-%m-%dT%H}:00Z" for r in records}
    found = run_json("du", str(unpack(name)), "--by", "tag", "--by", "topic", "--by", "hour", exit_code=0)["by"]
    assert isinstance(found, dict)
    assert list(found) == ["topic", "tag", "hour", "tag,topic,hour"]
    expected = Counter((r.properties.get("TAGS"), r.topic, hours[r.position]) for r in records)
    rows = found["tag,topic,hour"]
    assert {(row["tag"], row["topic"], row["hour"]): row["messages"] for row in rows} == expected
    assert sum(row["bytes"] for row in rows) == sum(r.size for r in records)
    assert {row["hour"]: row["messages"] for row in found["hour"]} == Counter(hours.values())


@pytest.mark.parametrize("width", ["80", "120"])
def test_du_tables_fit_the_terminal(width: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", width)
    for words in (
        ("--by", "topic", "--by", "day"),
        ("--by", "queue", "--by", "tag", "--by", "host"),
        ("--plot",),
        ("--files",),
    ):
        lines = run("du", str(unpack("5.4.0-clean")), *words).stdout.splitlines()[1:]
        assert len(lines) > 5
        assert max(map(columns, lines)) <= int(width), words


def test_du_plots_bytes_over_time_with_all_of_them_in_it() -> None:
    hour = 494_000
    table: Table = {("Order", _time((hour + n) * 3_600_000, "hour")): [1, size] for n, size in enumerate([8, 0, 4, 1])}
    table["Pay", _time(hour * 3_600_000, "hour")] = [1, 5]
    lines = list(_plot(Usage(5, 18, {"topic,hour": table}), ("topic,hour",), None, Output(path=Path("x"))))
    assert lines[0] == "5 messages, 18 B, bytes per hour"
    assert [line.split() for line in lines[4:]] == [
        ["Order", "█", "▄▁", "8", "B", "13", "B"],
        ["Pay", "█", "5", "B", "5", "B"],
    ]
    wide: Table = {("Order", _time((hour + n) * 3_600_000, "hour")): [1, 1] for n in range(2000)}
    lines = list(_plot(Usage(2000, 2000, {"topic,hour": wide}), ("topic,hour",), None, Output(path=Path("x"))))
    assert max(map(len, lines)) <= 80
    assert lines[-1].split()[-2:] == ["2,000", "B"]


def test_du_files_counts_every_file_once() -> None:
    for name in ("5.4.0-clean", "5.1.4-dledger-mixed", "5.4.0-rocksdb"):
        store = unpack(name)
        files = [path for path in store.rglob("*") if path.is_file()]
        found = run_json("du", str(store), "--files", exit_code=0)["files"]
        assert isinstance(found, dict)
        parts = {row["part"]: row for row in found["parts"]}
        assert sum(row["files"] for row in parts.values()) == len(files)
        assert sum(row["bytes"] for row in parts.values()) == sum(path.stat().st_size for path in files)
        assert sum(row["allocated"] for row in parts.values()) == sum(path.stat().st_blocks * 512 for path in files)
        logs = [*(store / "commitlog").glob("*"), *store.glob("dledger-*/data/*")]
        assert parts["log"]["bytes"] == sum(path.stat().st_size for path in logs)
    found = run_json("du", str(unpack("5.4.0-clean")), "--files", exit_code=0)["files"]
    assert isinstance(found, dict)
    topics = {row["topic"]: row for row in found["topics"]}
    queues = list((unpack("5.4.0-clean") / "consumequeue" / "Order_11").rglob("0*"))
    size = sum(path.stat().st_size for path in queues if path.is_file())
    written = sum(len(path.read_bytes().rstrip(b"\0")) // 20 + 1 for path in queues if path.is_file())
    assert topics["Order_11"]["bytes"] == size
    assert topics["Order_11"]["used"] == pytest.approx(written * 20, abs=80)
    assert topics["Order_11"]["empty_share"] == pytest.approx(1 - written * 20 / size, abs=0.02)


def test_du_files_counts_a_log_outside_of_the_store(store: Path, tmp_path: Path) -> None:
    (store / "commitlog").rename(tmp_path / "log")
    config = tmp_path / "broker.conf"
    config.write_text(f"storePathRootDir={store}\nstorePathCommitLog={tmp_path}/log\n")
    found = run_json("du", str(store), "--files", "-c", str(config), exit_code=0)["files"]
    assert isinstance(found, dict)
    assert {row["part"]: row["bytes"] for row in found["parts"]}["log"] == 8 * 65536


def test_du_files_of_one_file_is_that_file() -> None:
    path = unpack("5.4.0-clean") / "commitlog" / f"{65536:020}"
    found = run_json("du", str(path), "--files", exit_code=0)["files"]
    assert isinstance(found, dict)
    assert [(row["files"], row["bytes"]) for row in found["parts"]] == [(1, 65536)]


def test_du_files_has_no_filters() -> None:
    assert run("du", str(unpack("5.4.0-clean")), "--files", "--topic", "Order_11").exit_code == 2
    assert run("du", str(unpack("5.4.0-clean")), "--files", "--by", "topic").exit_code == 2
