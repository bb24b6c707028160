"""The commands export and import: imports are unchanged, can be restarted, and become visible only when complete."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from rmqstore.append import disk, exported_files, mapped_files
from rmqstore.append.dispatch import DispatchOptions
from rmqstore.append.encoder import NewMessage
from rmqstore.append.mapped_files import WritableMappedFile
from rmqstore.append.message_store import MessageStore, StoreOptions, open_writable
from rmqstore.errors import Refused
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import open_store
from rmqstore.formats.consumequeue import UNIT, is_pre_blank
from rmqstore.formats.message import MAGIC_V2, parse_message
from rmqstore.repair.journal import staging
from tests import command
from tests.append.rewriting import index_bytes, log_bytes, messages_of, queue_bytes
from tests.planning import log_of
from tests.stores import ROOT, copy_store, meta, unpack
from tests.untouched import content, snapshot

KINDS = ("ndjson", "csv", "parquet")


def run(*words: str, exit_code: int = 0) -> Result:
    """Run a command, and check its exit code."""
    result = command.run(*words)
    assert result.exit_code == exit_code, f"{result.output}\n{result.exception!r}"
    return result


def run_json(*words: str) -> dict[str, Any]:
    """Run a command that succeeds, and return the JSON object that it prints."""
    return dict(command.run_json(*words, exit_code=0))


def conf(name: str, folder: Path) -> Path:
    """Write the broker.conf of a fixture, with the file sizes and switches of its broker."""
    path = folder / "broker.conf"
    settings = dict(meta(name).settings)
    if "dledger" in name:
        settings |= {"dLegerSelfId": "n0", "dLegerPeers": "n0-127.0.0.1:40911"}
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return path


def export(store: Path, target: Path, *options: str) -> list[str]:
    run("export", str(store), "-o", str(target), "-q", *options)
    return target.read_text("utf-8").splitlines() if target.suffix != ".parquet" else []


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("5.4.0-clean", "ndjson"),
        ("5.4.0-clean", "csv"),
        ("5.4.0-clean", "parquet"),
        ("5.4.0-formats", "ndjson"),
        ("4.9.7-ipv6", "csv"),
        ("5.1.4-dledger", "ndjson"),
    ],
)
def test_an_export_of_an_imported_export_is_equal(name: str, kind: str, tmp_path: Path) -> None:
    source = unpack(name)
    first, second, made = tmp_path / f"first.{kind}", tmp_path / f"second.{kind}", tmp_path / "made"
    export(source, first)
    options = ["--batch-topic", "BatchCq_11"] if "formats" in name else []
    run("import", str(first), "--output", str(made), "-c", str(conf(name, tmp_path)), *options)
    export(made, second)
    assert second.read_bytes() == first.read_bytes()
    assert len(first.read_bytes()) > 10_000


def test_an_imported_store_is_the_exported_one_byte_for_byte(tmp_path: Path) -> None:
    source, made = unpack("5.4.0-clean"), tmp_path / "made"
    export(source, tmp_path / "all.ndjson")
    done = run_json(
        "import", str(tmp_path / "all.ndjson"), "--output", str(made), "-c", str(conf("5.4.0-clean", tmp_path))
    )
    was, now = open_store(source), open_store(made)
    assert was.commitlog is not None and now.commitlog is not None
    assert log_bytes(now.commitlog) == log_bytes(was.commitlog)
    assert queue_bytes(made) == queue_bytes(source)
    assert index_bytes(made) == index_bytes(source)
    assert (done["messages"], done["resumed"], len(done["queues"])) == (553, 0, 21)
    assert run_json("verify", str(made))["clean"] is True
    topics = json.loads((made / "config" / "topics.json").read_text())["topicConfigTable"]
    assert topics["Order_11"]["readQueueNums"] == 4
    assert sorted(p.name for p in tmp_path.iterdir()) == ["all.ndjson", "broker.conf", "made"]


@pytest.mark.parametrize("kind", KINDS)
def test_records_keep_their_version_whatever_the_length_of_their_topic(kind: str, tmp_path: Path) -> None:
    source, made, export_file = tmp_path / "source", tmp_path / "made", tmp_path / f"all.{kind}"
    options = StoreOptions(commitlog_file_size=1 << 16, index_slots=20, index_units=60)
    versions = [None, 2, 1, 2]
    with MessageStore.create(source, options) as store:
        for number, version in enumerate(versions):
            store.put(NewMessage("Short", b"%d" % number, version=version))
        store.put(NewMessage("l" * 130, b"long"))
    export(source, export_file)
    (tmp_path / "sizes.conf").write_text("mappedFileSizeCommitLog=65536\nmaxHashSlotNum=20\nmaxIndexNum=60\n")
    run("import", str(export_file), "--output", str(made), "-c", str(tmp_path / "sizes.conf"))
    was, now = open_store(source).commitlog, open_store(made).commitlog
    assert was is not None and now is not None
    assert log_bytes(now) == log_bytes(was)
    assert [m.magic == MAGIC_V2 for m in messages_of(now)] == [False, True, False, True, True]
    short = tmp_path / "short"
    words = ("--output", str(short), "-c", str(tmp_path / "sizes.conf"), "--topic-map", f"{'l' * 130}=Other")
    run("import", str(export_file), *words)
    renamed = log_of(short)
    assert [m.magic == MAGIC_V2 for m in messages_of(renamed)] == [False, True, False, True, False]


@pytest.mark.parametrize("text", [False, True])
def test_control_characters_come_back_from_a_csv_without_any(text: bool, tmp_path: Path) -> None:
    source, made = tmp_path / "source", tmp_path / "made"
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    options = StoreOptions(commitlog_file_size=1 << 16, index_slots=20, index_units=60)
    with MessageStore.create(source, options) as store:
        store.put(NewMessage("Red\x1b[31m", b"bell\x07", b"TAGS\x01t\x1b[0m\x02KEYS\x01k\x08\x02"))
        store.put(NewMessage("Literal\\u001b", b"literal\\u001b\tor\r\n", b"TAGS\x01t\\u001b\x02"))
    words = ["--text"] if text else []
    export(source, first, *words)
    assert not {c for c in first.read_bytes() if c < 0x20} - set(b"\t\r\n")
    (tmp_path / "sizes.conf").write_text("mappedFileSizeCommitLog=65536\nmaxHashSlotNum=20\nmaxIndexNum=60\n")
    run("import", str(first), "--output", str(made), "-c", str(tmp_path / "sizes.conf"))
    was, now = open_store(source).commitlog, open_store(made).commitlog
    assert was is not None and now is not None
    assert log_bytes(now) == log_bytes(was)
    export(made, second, *words)
    assert second.read_bytes() == first.read_bytes()


def test_filters_choose_what_is_exported(tmp_path: Path) -> None:
    source = unpack("5.4.0-clean")
    rows = [
        json.loads(line) for line in export(source, tmp_path / "some.ndjson", "--topic", "Order_11", "--queue", "1")
    ]
    assert {(row["topic"], row["queue_id"]) for row in rows} == {("Order_11", 1)}
    assert [row["queue_offset"] for row in rows] == list(range(len(rows)))
    assert len(rows) == meta("5.4.0-clean").oracle_start.queues["Order_11/1"].max
    assert len(export(source, tmp_path / "few.ndjson", "--limit", "5")) == 5
    tag = next(row["tags"] for row in rows if row["tags"])
    tagged = [json.loads(line) for line in export(source, tmp_path / "tag.ndjson", "--tag", tag)]
    assert {row["tags"] for row in tagged} == {tag}
    bare = json.loads(export(source, tmp_path / "bare.ndjson", "--no-body", "--limit", "1")[0])
    assert not {"body", "body_base64", "offset"} & bare.keys()
    placed = json.loads(export(source, tmp_path / "placed.ndjson", "--positions", "--limit", "1")[0])
    assert (placed["offset"], placed["msg_id"][-16:]) == (0, "0" * 16)


def test_decoded_bodies_are_exported_as_they_were_sent(tmp_path: Path) -> None:
    source = unpack("5.4.0-clean")
    raw = [json.loads(line) for line in export(source, tmp_path / "raw.ndjson")]
    plain = [json.loads(line) for line in export(source, tmp_path / "plain.ndjson", "--decode", "--text")]
    packed = [(a, b) for a, b in zip(raw, plain, strict=True) if a["sys_flag"] & 1]
    assert packed
    assert all(not b["sys_flag"] & 0x701 for _, b in packed)
    assert any(len(b.get("body", "")) > len(a["body_base64"]) for a, b in packed)
    run(
        "import",
        str(tmp_path / "plain.ndjson"),
        "--output",
        str(tmp_path / "made"),
        "-c",
        str(conf("5.4.0-clean", tmp_path)),
    )
    assert run_json("verify", str(tmp_path / "made"))["clean"] is True


def test_topics_are_renamed_and_queues_numbered_again(tmp_path: Path) -> None:
    source, made = unpack("5.4.0-clean"), tmp_path / "made"
    lines = export(source, tmp_path / "all.ndjson", "--topic", "Order_11")
    (tmp_path / "half.ndjson").write_text("\n".join(lines[1::2]) + "\n")
    half = str(tmp_path / "half.ndjson")
    answer = run("import", half, "--output", str(made), exit_code=2)
    assert "does not continue Order_11/" in answer.stderr and "half.ndjson:" in answer.stderr
    assert not made.exists()
    settings = str(conf("5.4.0-clean", tmp_path))
    options = ("--renumber", "--topic-map", "Order_11=Copy", "-c", settings, "--now")
    began = time.time_ns() // 1_000_000
    done = run_json("import", half, "--output", str(tmp_path / "other"), *options)
    assert {name.rpartition("/")[0] for name in done["queues"]} == {"Copy"}
    assert sum(done["queues"].values()) == len(lines[1::2])
    log = log_of(tmp_path / "other")
    assert min(m.store_timestamp for m in messages_of(log)) >= began
    assert run_json("verify", str(tmp_path / "other"))["clean"] is True


@pytest.mark.parametrize(
    ("kind", "damage", "words"),
    [
        ("ndjson", lambda line: line[: len(line) // 2], "bad.ndjson:200: not valid JSON"),
        ("ndjson", lambda line: "[1, 2]", "bad.ndjson:200: not a JSON object"),
        ("ndjson", lambda line: line.replace('"queue_id":', '"queue":'), "bad.ndjson:200: queue_id is missing"),
        ("csv", lambda line: line[: len(line) // 3], "bad.csv:200: the row and the header have different"),
        ("csv", lambda line: line.replace(",", ",x", 1), "bad.csv:200: queue_id must be an integer"),
    ],
)
def test_a_damaged_export_is_reported_with_its_line_and_nothing_is_visible(
    kind: str, damage: object, words: str, tmp_path: Path
) -> None:
    good = export(unpack("4.9.7-clean"), tmp_path / f"good.{kind}")
    bad = list(good)
    bad[199] = damage(bad[199])  # type: ignore[operator]
    (tmp_path / f"bad.{kind}").write_text("\n".join(bad) + "\n")
    made = tmp_path / "made"
    options = ("--output", str(made), "-c", str(conf("4.9.7-clean", tmp_path)))
    answer = run("import", str(tmp_path / f"bad.{kind}"), *options, exit_code=3)
    assert words in answer.stderr
    assert not made.exists()
    # the corrected file is a new import, which the remains of the first one do not affect
    assert run_json("import", str(tmp_path / f"good.{kind}"), *options)["messages"] == len(good) - (kind == "csv")


def test_a_parquet_file_that_is_cut_is_reported(tmp_path: Path) -> None:
    export(unpack("4.9.7-clean"), tmp_path / "all.parquet")
    data = (tmp_path / "all.parquet").read_bytes()
    (tmp_path / "all.parquet").write_bytes(data[: len(data) // 2])
    answer = run("import", str(tmp_path / "all.parquet"), "--output", str(tmp_path / "made"), exit_code=3)
    assert "all.parquet" in answer.stderr
    assert not (tmp_path / "made").exists()


STOPS_HALF_WAY = """
import sys, time
from rmqstore.append import exported_files as files
from rmqstore.append import importing
from rmqstore.append.message_store import MessageStore
from rmqstore.cli.main import cli
files.ROWS = 500
importing.SAVE_EVERY = 0
put_table, tables = MessageStore.put_table, []
def counted(store, table, **options):
    put_table(store, table, **options)
    tables.append(len(table))
    if len(tables) == 4:
        print("half way", flush=True)
        time.sleep(1 << 20)  # it is killed here
MessageStore.put_table = counted
cli.main(sys.argv[1:], prog_name="rmqstore")
"""


def test_no_unit_reaches_its_file_before_its_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    export(unpack("5.4.0-clean"), tmp_path / "all.ndjson")
    monkeypatch.setattr(exported_files, "ROWS", 50)
    monkeypatch.setattr(mapped_files, "COMMIT_AT", 1)  # so that every unit is written at once
    log_end = units = 0
    pwrite, create_file = WritableMappedFile._pwrite, disk.create_file

    def check(data: bytes | bytearray | memoryview) -> None:
        nonlocal units
        for offset, size, _ in UNIT.array(bytes(data)).tolist():
            assert is_pre_blank(offset, size) or offset + size <= log_end
            units += 1

    def observed(file: WritableMappedFile, data: bytes | bytearray | memoryview, at: int) -> None:
        nonlocal log_end
        if "consumequeue" in file.path.parts:
            check(data)
        pwrite(file, data, at)
        if file.path.parent.name == "commitlog":
            time.sleep(0.005)  # units would overtake the record if they did not wait
            log_end = file.start + at + len(data)

    def created(path: Path, size: int, content: bytes = b"", unsynced: set[Path] | None = None) -> int:
        check(content if "consumequeue" in path.parts else b"")
        return create_file(path, size, content, unsynced)

    monkeypatch.setattr(WritableMappedFile, "_pwrite", observed)
    monkeypatch.setattr(mapped_files, "create_file", created)
    threads = set(threading.enumerate())  # a Spark session of other tests has some
    run("import", str(tmp_path / "all.ndjson"), "-o", str(tmp_path / "made"), "-c", str(conf("5.4.0-clean", tmp_path)))
    assert units > 50
    assert set(threading.enumerate()) <= threads  # a later scan may fork


@pytest.mark.parametrize("dledger", [None, pytest.param("n0", marks=pytest.mark.slow)])
def test_an_import_that_was_killed_goes_on_where_it_was(dledger: str | None, tmp_path: Path) -> None:
    lines = export(unpack("5.4.0-clean"), tmp_path / "all.ndjson")
    many = []
    for again in range(6):
        for line in lines:
            row = json.loads(line)
            row["topic"] = f"{row['topic'][:100]}_{again}"
            many.append(json.dumps(row))
    (tmp_path / "many.ndjson").write_text("\n".join(many) + "\n")
    settings = str(conf("5.4.0-clean", tmp_path))
    words = ["import", str(tmp_path / "many.ndjson"), "-c", settings, *(("--dledger", dledger) if dledger else ())]
    run(*words, "--output", str(tmp_path / "whole"))
    target = tmp_path / "made"
    building = tmp_path / ".made.importing"
    command = [sys.executable, "-c", STOPS_HALF_WAY, *words, "--output", str(target)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == b"half way\n"
        killed.kill()
    assert killed.returncode == -signal.SIGKILL
    assert len(list((building / (f"dledger-{dledger}/data" if dledger else "commitlog")).iterdir())) > 5
    assert not target.exists()
    done = run_json(*words, "--output", str(target))
    assert 0 < done["resumed"] < done["messages"] == len(many)
    assert queue_bytes(target) == queue_bytes(tmp_path / "whole")
    a, b = export(target, tmp_path / "a.ndjson"), export(tmp_path / "whole", tmp_path / "b.ndjson")
    assert a == b
    assert run_json("verify", str(target))["clean"] is True
    assert not building.exists()


def test_a_full_disk_leaves_nothing_visible_and_the_import_can_go_on(tmp_path: Path) -> None:
    export(unpack("5.4.0-clean"), tmp_path / "all.ndjson")
    words = ["import", str(tmp_path / "all.ndjson"), "-o", str(tmp_path / "made")]
    words += ["-c", str(conf("5.4.0-clean", tmp_path))]
    few = 40_000

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (few, few))

    done = subprocess.run(
        [sys.executable, "-m", "rmqstore", *words], cwd=ROOT, preexec_fn=limit, capture_output=True, check=False
    )
    assert done.returncode == 5
    left, error = done.stderr.decode().splitlines()
    assert left.startswith(f"The unfinished store is {tmp_path / '.made.importing'}. Run the same command again")
    assert "File too large" in error
    assert {p.name for p in tmp_path.iterdir()} >= {".made.importing", ".made.importing.json"}
    assert not (tmp_path / "made").exists()
    assert run_json(*words)["messages"] == 553
    assert not {p.name for p in tmp_path.iterdir()} & {".made.importing", ".made.importing.json"}


def test_an_output_that_exists_is_refused(tmp_path: Path) -> None:
    export(unpack("4.9.7-clean"), tmp_path / "all.ndjson")
    (tmp_path / "made").mkdir()
    answer = run("import", str(tmp_path / "all.ndjson"), "--output", str(tmp_path / "made"), exit_code=5)
    assert f"{tmp_path / 'made'} already exists" in answer.stderr
    assert list((tmp_path / "made").iterdir()) == []


def test_the_good_messages_of_a_damaged_store_make_a_new_one(tmp_path: Path) -> None:
    damaged = copy_store("5.4.0-clean", tmp_path)
    log = log_of(damaged)
    path = log.files[1].path
    data = bytearray(path.read_bytes())
    message, _ = parse_message(data)
    assert message is not None
    data[100] ^= 0xFF
    path.write_bytes(data)
    settings = str(conf("5.4.0-clean", tmp_path))
    words = ("import", str(damaged), "--output", str(tmp_path / "made"), "-c", settings, "--renumber")
    answer = run(*words, exit_code=1)
    assert "552 messages" in answer.stdout
    assert "damaged place" in answer.stderr
    assert run_json("verify", str(tmp_path / "made"))["clean"] is True


def test_a_dry_run_reads_every_row_and_writes_nothing(tmp_path: Path) -> None:
    export(unpack("4.9.7-clean"), tmp_path / "all.ndjson")
    before = sorted(tmp_path.iterdir())
    done = run_json("import", str(tmp_path / "all.ndjson"), "--output", str(tmp_path / "made"), "--dry-run")
    assert (done["applied"], done["messages"]) == (False, 571)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_export_that_may_not_be_read_is_exit_3(tmp_path: Path) -> None:
    (tmp_path / "all.ndjson").write_text("{}\n")
    (tmp_path / "all.ndjson").chmod(0)
    answer = run("import", str(tmp_path / "all.ndjson"), "--output", str(tmp_path / "made"), exit_code=3)
    assert "all.ndjson: Permission denied" in answer.stderr
    assert not (tmp_path / "made").exists()


def test_a_store_is_not_imported_into_itself(store: Path) -> None:
    before = snapshot(store)
    result = run("import", str(store), "--output", str(store / "commitlog" / "new"), exit_code=2)
    assert "lies inside the store" in result.stderr
    assert snapshot(store) == before


@pytest.mark.parametrize("content", [None, b"no export\n", b'{"topic": "T"}\n'])
def test_an_unreadable_source_does_not_affect_the_next_import(content: bytes | None, tmp_path: Path) -> None:
    source, target = tmp_path / "typo.ndjson", tmp_path / "made" / "new"
    if content is not None:
        source.write_bytes(content)
    run("import", str(source), "--output", str(target), exit_code=3)
    assert [path.name for path in tmp_path.iterdir()] == ([source.name] if content is not None else [])


def test_a_store_whose_log_is_elsewhere_is_not_taken_as_empty(tmp_path: Path, store: Path) -> None:
    (store / "commitlog").rename(tmp_path / "on another disk")
    answer = run("import", str(store), "--output", str(tmp_path / "made"), exit_code=3)
    assert "has no log" in answer.stderr
    assert not (tmp_path / "made").exists()


def test_lost_places_in_light_queues_and_batches_are_reported(tmp_path: Path) -> None:
    source, made, again = tmp_path / "source", tmp_path / "made", tmp_path / "again"
    lmq = StoreOptions(commitlog_file_size=1 << 16, dispatch=DispatchOptions(lmq=True))
    with MessageStore.create(source, lmq) as store:
        for number in range(3):
            store.put(NewMessage("T", b"%d" % number, properties=b"INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b\x02"))
    assert run_json("import", str(source), "--output", str(made))["queues"]["%LMQ%b/0"] == 3
    assert run_json("verify", str(made), "--jobs", "1")["clean"] is True
    export(unpack("5.4.0-formats"), tmp_path / "all.ndjson")
    answer = run("import", str(tmp_path / "all.ndjson"), "--output", str(again), exit_code=2)
    assert "add --batch-topic BatchCq_11" in answer.stderr
    assert run_json("import", str(unpack("5.4.0-formats")), "--output", str(again))["messages"] == 644
    assert run_json("verify", str(again), "--jobs", "1")["clean"] is True


@pytest.mark.parametrize("name", ["5.4.0-clean", "4.9.7-ipv6", "5.4.0-dledger"])
def test_messages_are_appended_to_a_sound_store(name: str, tmp_path: Path) -> None:
    """The same messages are appended again from a file: all queues continue, and the store stays sound."""
    store = copy_store(name, tmp_path)
    settings = str(conf(name, tmp_path))
    before = [json.loads(line) for line in export(store, tmp_path / "before.ndjson", "-c", settings)]
    options = ["--dledger", "n0"] if "dledger" in name else []
    words = ("import", str(tmp_path / "before.ndjson"), "--into", str(store), "-c", settings, *options)
    refused = run(*words, exit_code=2)
    assert "before.ndjson:1: queue offset" in refused.stderr and "does not continue" in refused.stderr
    assert run_json(*words, "--renumber")["messages"] == len(before)
    after = [json.loads(line) for line in export(store, tmp_path / "after.ndjson", "-c", settings)]
    assert after[: len(before)] == before
    moved = {"queue_offset", "properties", "properties_base64", "last_separator"}
    assert [{k: v for k, v in row.items() if k not in moved} for row in after[len(before) :]] == [
        {k: v for k, v in row.items() if k not in moved} for row in before
    ]
    assert run_json("verify", str(store), "-c", settings)["clean"] is True


def test_nothing_is_appended_where_one_message_is_wrong(store: Path, tmp_path: Path) -> None:
    settings = str(conf("5.4.0-clean", tmp_path))
    lines = export(store, tmp_path / "all.ndjson", "--topic", "Order_11")
    (tmp_path / "bad.ndjson").write_text("\n".join([*lines, "{}"]) + "\n")
    log = log_of(store)
    before = log_bytes(log)
    words = ("import", str(tmp_path / "bad.ndjson"), "--into", str(store), "-c", settings, "--renumber")
    answer = run(*words, exit_code=3)
    assert f"bad.ndjson:{len(lines) + 1}: topic is missing" in answer.stderr
    after = log_of(store)
    assert log_bytes(after) == before
    assert run_json("verify", str(store), "-c", settings)["clean"] is True


def _into(tmp_path: Path, store: Path) -> tuple[list[str], int]:
    """Return the words of an import into a store, of six times its own messages, and their number."""
    lines = export(store, tmp_path / "all.ndjson")
    (tmp_path / "many.ndjson").write_text("\n".join(lines * 6) + "\n")
    settings = str(conf("5.4.0-clean", tmp_path))
    words = ["import", str(tmp_path / "many.ndjson"), "--into", str(store), "-c", settings, "--renumber"]
    return words, 6 * len(lines)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_an_import_into_a_store_that_was_stopped_goes_on_where_it_was(
    number: signal.Signals, store: Path, tmp_path: Path
) -> None:
    words, count = _into(tmp_path, store)
    before = content(store)
    with subprocess.Popen(
        [sys.executable, "-c", STOPS_HALF_WAY, *words], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as stopped:
        assert stopped.stdout is not None and stopped.stderr is not None
        assert stopped.stdout.readline() == b"half way\n"
        stopped.send_signal(number)
        said = stopped.stderr.read().decode().splitlines()
    [journal] = (store / ".rmqstore").iterdir()
    if number is not signal.SIGKILL:
        assert stopped.returncode == 6
        assert said == [
            "error: stopped before the store was changed: interrupted — run the same command again to "
            f"continue, or `rmqstore undo {journal}` to give up"
        ]
    assert log_bytes(log_of(store)) == log_bytes(log_of(unpack("5.4.0-clean")))
    refused = run(*words, "--topic-map", "Order_11=Other", exit_code=5)
    assert f"{journal} is an unfinished import of other files, or with other settings" in refused.stderr
    assert "an import that has not changed the store yet" in run("resume", str(journal), exit_code=5).stderr
    done = run_json(*words)
    assert 0 < done["resumed"] < done["messages"] == count
    assert done["journal"] == str(journal)
    assert run_json("verify", str(store), "-c", words[5])["clean"] is True
    assert len(export(store, tmp_path / "after.ndjson")) == 7 * count // 6
    again = run_json(*words)
    assert (again["messages"], again["resumed"]) == (count, count)
    run("undo", str(journal))
    assert content(store) == before


def test_an_import_into_a_full_disk_is_refused_before_anything_is_written(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words, _ = _into(tmp_path, store)
    before = content(store)
    monkeypatch.setattr(staging, "free_bytes", lambda place: 3_000_000)
    refused = run(*words, exit_code=5)
    assert f"{store}: " in refused.stderr and "bytes are needed, 3,000,000 are free" in refused.stderr
    assert content(store) == before
    assert not (store / ".rmqstore").exists()


def test_messages_with_a_place_in_light_queues_are_not_appended(tmp_path: Path) -> None:
    store = copy_store("5.4.0-formats", tmp_path)
    words = ("import", str(unpack("5.4.0-formats")), "--into", str(store), "--renumber")
    answer = run(*words, "-c", str(conf("5.4.0-formats", tmp_path)), exit_code=2)
    assert "contains queue offsets of another store" in answer.stderr
    assert run_json("verify", str(store))["clean"] is True


def test_a_store_that_is_not_sound_is_not_appended_to(store: Path, tmp_path: Path) -> None:
    lines = export(store, tmp_path / "all.ndjson", "--limit", "1")
    assert len(lines) == 1
    unit = next((store / "consumequeue" / "Order_11" / "0").iterdir())
    data = bytearray(unit.read_bytes())
    data[5] ^= 0x40
    unit.write_bytes(data)
    words = ("import", str(tmp_path / "all.ndjson"), "--into", str(store), "--renumber")
    answer = run(*words, "-c", str(conf("5.4.0-clean", tmp_path)), exit_code=5)
    assert "has problems: CQ-" in answer.stderr
    run("import", str(tmp_path / "all.ndjson"), exit_code=2)


@pytest.mark.parametrize("ending", [b"\0" * 300, b""])
def test_an_import_keeps_the_topics_of_a_padded_file(ending: bytes, store: Path, tmp_path: Path) -> None:
    """Every version reads topics.json with NUL bytes after it, as after a power failure, or with a trailing comma."""
    path = store / "config" / "topics.json"
    text = path.read_bytes()
    known = set(json.loads(text)["topicConfigTable"])
    words = ("--renumber", "--topic-map", "Order_11=New")
    path.write_bytes(text + ending if ending else text.rstrip()[:-1].rstrip() + b",\n}")
    settings = str(conf("5.4.0-clean", tmp_path))
    export(store, tmp_path / "new.ndjson", "--topic", "Order_11", "--limit", "1")
    run("import", str(tmp_path / "new.ndjson"), "--into", str(store), "-c", settings, *words)
    assert set(json.loads(path.read_bytes())["topicConfigTable"]) == known | {"New"}


def test_an_import_refuses_topics_that_cannot_be_read(store: Path, tmp_path: Path) -> None:
    path = store / "config" / "topics.json"
    (store / "config" / "topics.json.bak").unlink(missing_ok=True)
    path.write_bytes(b"{ /* edited */" + path.read_bytes()[1:])
    before = path.read_bytes()
    with pytest.raises(Refused, match=r"topics\.json cannot be read"):
        open_writable(store, config=BrokerConfig.read(conf("5.4.0-clean", tmp_path)))
    assert path.read_bytes() == before
    export(store, tmp_path / "new.ndjson", "--topic", "Order_11", "--limit", "1")
    words = ("import", str(tmp_path / "new.ndjson"), "--into", str(store), "-c", str(conf("5.4.0-clean", tmp_path)))
    assert "CFG-SYNTAX" in run(*words, exit_code=5).stderr
