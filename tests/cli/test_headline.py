"""The first lines of `verify`: the damage, the consequences of a broker start, and losses of earlier repairs."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqstore.brokers.forecast import StartOptions
from rmqstore.brokers.simulate import simulate_start
from rmqstore.checks.examine import examine
from rmqstore.checks.options import VerifyOptions
from rmqstore.files.store import open_store
from tests.cases.case import make, read_case
from tests.command import run, run_json
from tests.damage import flip, zero
from tests.rocksdb_rows import need_rocksdict
from tests.stores import copy_store, unpack
from tests.views.decoder import find_records, read_folder


def _headline(store: Path, *options: str) -> str:
    return " ".join(run("verify", str(store), *options).stdout.partition("\n\n")[0].split())


def _damage_bodies(store: Path, count: int) -> None:
    records = (r for r in read_folder(store / "commitlog") if len(r.body) > 100)
    for record in itertools.islice(records, count):
        flip(store / "commitlog" / f"{0:020d}", record.position + 100)


def test_headline_names_damage_that_a_start_does_not_touch(store: Path) -> None:
    _damage_bodies(store, 4)
    assert _headline(store) == "4 messages are damaged; RocketMQ 5.4.0 would start and cut nothing. 4 problems found."


def test_headline_names_one_damaged_message_and_one_lost_page(store: Path) -> None:
    _damage_bodies(store, 1)
    hole = list(read_folder(store / "commitlog"))[225]
    zero(store / "commitlog" / f"{hole.position // 65_536 * 65_536:020d}", hole.position % 65_536, hole.size)
    verdict = run_json("verify", str(store), exit_code=1)["verdict"]
    start = "RocketMQ 5.4.0 would start and cut nothing, but the log lacks 2 messages of log-15445/0"
    assert verdict == f"1 message and 1 stretch of the log are damaged; {start}"


def test_headline_and_log_line_count_the_same_damaged_messages(store: Path) -> None:
    _damage_bodies(store, 2)
    record = next(r for r in read_folder(store / "commitlog") if r.position > 65_536 and r.properties)
    flip(store / "commitlog" / f"{65_536:020d}", record.position + record.size - 65_536 - 3, 7)  # not valid UTF-8
    assert _headline(store).startswith("3 messages are damaged; ")
    assert "550 good records and 3 damaged in 8 files" in run("verify", str(store)).stdout


def test_a_page_of_zeros_over_several_dledger_entries_is_not_one_message(tmp_path: Path) -> None:
    store = copy_store("5.4.0-dledger", tmp_path)
    zero(store / "dledger-n0" / "data" / f"{65_536:020d}", 4096, 4096)  # the end of an entry, and four more
    assert _headline(store).startswith("1 stretch of the log is damaged; ")
    loss = run_json("recover", str(store), exit_code=1)["loss"]
    assert isinstance(loss, dict)
    assert loss["messages"] == 4


def test_headline_does_not_promise_that_nothing_is_lost_if_the_tail_may_be_a_message(store: Path) -> None:
    *_, last = read_folder(store / "commitlog")
    file = sorted((store / "commitlog").iterdir())[-1]
    flip(file, last.position - int(file.name) + 4, 6)  # the magic
    expected = "The last bytes of the log are not a record; RocketMQ 5.4.0 would start and cut nothing, but "
    assert _headline(store).startswith(expected)


def test_headline_of_a_start_that_cuts_the_log_leads_with_the_cut(tmp_path: Path) -> None:
    store = copy_store("4.9.7-clean", tmp_path)
    record = list(read_folder(store / "commitlog"))[560]
    file = store / "commitlog" / f"{record.position // 65_536 * 65_536:020d}"
    flip(file, record.position % 65_536 + 100)
    (store / "abort").touch()
    assert _headline(store).startswith("RocketMQ 5.4.0 would start and lose ")


@pytest.mark.quick_rows
@pytest.mark.parametrize(("name", "count"), [("CL-BODY-CRC--garbled", 1), ("CL-MISSING-FILE", 70)])
def test_fillers_of_a_repair_are_named_until_it_is_undone(name: str, count: int, tmp_path: Path) -> None:
    case = read_case(name)
    assert case.recover is not None
    store = make(case, tmp_path)
    repaired = run_json("recover", str(store), *case.recover.options, "--apply", exit_code=0)
    repair = Path(str(repaired["journal"])).name
    report = run_json("verify", str(store), exit_code=0)
    words = f"{count} filler{'s' if count > 1 else ''} of the repair {repair}"
    assert report["fillers"] == [{"repair": repair, "count": count}]
    assert f"{words} replace{'' if count > 1 else 's'} lost messages" in _list(report["notes"])
    assert _headline(store) == (
        f"RocketMQ 5.4.0 would start and lose nothing. The log holds {words} in place of lost messages. "
        "Nothing else is wrong with this store."
    )
    run_json("undo", str(repaired["journal"]), exit_code=0)
    assert run_json("verify", str(store), exit_code=1)["fillers"] == []


def test_fillers_are_known_by_their_mark_where_the_journal_is_gone(tmp_path: Path) -> None:
    case = read_case("CL-MISSING-FILE")
    assert case.recover is not None
    store = make(case, tmp_path)
    run_json("recover", str(store), *case.recover.options, "--apply", exit_code=0)
    shutil.rmtree(store / ".rmqstore")
    report = run_json("verify", str(store), exit_code=0)
    assert report["fillers"] == [{"repair": None, "count": 70}]
    assert "70 fillers of a repair whose journal is missing replace lost messages" in _list(report["notes"])


def test_sound_store_has_no_fillers() -> None:
    assert run_json("verify", str(unpack("5.4.0-clean")), exit_code=0)["fillers"] == []


def _list(value: object) -> list[Any]:
    assert isinstance(value, list)
    return value


def _empty_last_file(tmp_path: Path) -> Path:
    store = copy_store("4.9.7-clean", tmp_path)
    last = max(int(path.name) for path in (store / "commitlog").iterdir())
    (store / "commitlog" / f"{last + 65_536:020d}").touch()
    return store


def test_headline_begins_with_the_version_that_wrote_the_store_if_it_would_not_start(tmp_path: Path) -> None:
    store = _empty_last_file(tmp_path)
    headline = _headline(store)
    assert headline.startswith("RocketMQ 4.9.3 to 5.1.1 (may have written this store) would not start")
    assert "RocketMQ 5.4.0 would start and lose nothing." in headline
    brokers = run_json("verify", str(store), exit_code=1)["brokers"]
    assert isinstance(brokers, list)
    rows = {row["oldest"]: row for row in brokers}
    assert rows["4.9.3"]["wrote"] and not rows["4.9.3"]["starts"] and rows["4.9.3"]["exit_code"] == 253
    assert rows["5.1.3"]["starts"] and rows["5.1.3"]["newest"] == "5.5.1" and not rows["5.1.3"]["wrote"]
    assert "(may have written this store) would not start" in run("verify", "-q", str(store)).stdout


def test_headline_names_only_the_newest_of_versions_that_behave_alike(tmp_path: Path) -> None:
    """4.9.2 starts, with the shorter file left out; 5.1.1 and 5.4.0 do not start."""
    store = copy_store("4.9.7-clean", tmp_path)
    last = max((store / "commitlog").iterdir())
    os.truncate(last, 32_768)
    headline = _headline(store)
    assert headline.startswith("RocketMQ 5.4.0 would not start")
    assert "4.9.2 would never deliver 30 messages" in headline


def test_broker_narrows_the_answer_to_one_version(tmp_path: Path) -> None:
    store = _empty_last_file(tmp_path)
    result = run_json("verify", str(store), "--broker", "4.9.7", exit_code=1)
    assert isinstance(result["brokers"], list)
    assert [(row["oldest"], row["newest"], row["named"]) for row in result["brokers"]] == [("4.9.7", "4.9.7", True)]
    assert _headline(store, "--broker", "4.9.7").startswith("RocketMQ 4.9.7 would not start")


def test_versions_that_cannot_read_a_format_have_a_row_but_not_the_headline() -> None:
    store = unpack("5.1.4-formats")
    assert _headline(store) == "RocketMQ 5.4.0 would start and lose nothing. Nothing is wrong with this store."
    text = " ".join(run("verify", str(store)).stdout.split())
    assert "RocketMQ 5.0.0 would start and lose 79 messages of 3 topics" in text
    assert "RocketMQ 5.1.0 to 5.5.1 (wrote this store) would start and lose nothing" in text


@pytest.mark.quick_rows(4)
@pytest.mark.parametrize("thorough", [True, False])
@pytest.mark.parametrize(("name", "version", "lost"), [("5.1.4-formats", "5.0.0", 79), ("4.9.7-ipv6", "4.5.2", 176)])
def test_formats_that_a_version_cannot_read_stop_it_in_large_logs_too(
    name: str, version: str, lost: int, thorough: bool
) -> None:
    store = open_store(unpack(name))
    verified = examine(store, VerifyOptions(jobs=1))
    assert verified.legacy is not None
    options = StartOptions(thorough=thorough)  # logs over 256 MB are not read again
    assert simulate_start(store, verified.legacy.tiling, version=version, options=options).messages_lost == lost


def test_several_stores_have_one_line_each_and_the_worst_is_first(tmp_path: Path) -> None:
    worst, sound = _empty_last_file(tmp_path), unpack("5.4.0-clean")
    missing = tmp_path / "missing"
    result = run("verify", str(sound), str(missing), str(worst))
    assert result.exit_code == 1
    assert [line.partition(": ")[0] for line in result.stdout.splitlines()] == [str(worst), str(missing), str(sound)]
    lines = run("verify", str(sound), str(worst), "--json").stdout.splitlines()
    assert [json.loads(line)["store"] for line in lines] == [str(worst), str(sound)]
    assert run("verify", str(sound), str(missing)).exit_code == 3
    quiet = run("verify", "-q", str(sound), str(worst)).stdout.splitlines()
    assert len(quiet) == 1 and quiet[0].startswith(f"{worst}: ")
    assert run("verify", str(sound), str(worst), "--resume").exit_code == 2


def test_adjacent_versions_with_one_outcome_are_named_as_one_range(store: Path) -> None:
    """5.1.2 does not start either; it only exits with another code than 5.1.1."""
    (store / "commitlog" / "not-a-log-file").touch()
    assert "RocketMQ 4.5.1 to 4.9.1 and 4.9.3 to 5.1.2 would not start." in _headline(store)


def test_headline_tells_what_the_broker_will_not_know(store: Path) -> None:
    shutil.rmtree(store / "config")
    assert _headline(store).startswith(
        "RocketMQ 5.4.0 would start and lose nothing, but it does not know 3 topics, and 1 consumer group starts over."
    )


def test_headline_names_a_configuration_file_that_nobody_can_read(store: Path) -> None:
    (store / "config" / "topics.json").write_text("garbage{")
    (store / "config" / "topics.json.bak").unlink()
    words = "RocketMQ 5.4.0 would start and lose nothing, but it reads nothing from topics.json."
    assert _headline(store).startswith(words)


@pytest.mark.quick_rows
@pytest.mark.parametrize("name", ["5.4.0-rocksdb", "5.5.1-rocksdb", "5.5.1-rocksdb-separate"])
@pytest.mark.parametrize("gone", ["directory", "files"])
def test_headline_says_that_the_log_of_queues_in_rocksdb_is_gone(name: str, gone: str, tmp_path: Path) -> None:
    need_rocksdict()
    store = copy_store(name, tmp_path)
    count = len(list(find_records(store)))
    shutil.rmtree(store / "commitlog")
    if gone == "files":
        (store / "commitlog").mkdir()
    version = name.partition("-")[0]
    words = (
        f"RocketMQ {version} would start empty: the log contains none of the {count} messages in the consume queues."
    )
    assert _headline(store).startswith(words)
    assert run("lost", str(store)).exit_code == 1
    for path in store.rglob("MANIFEST-*"):
        path.write_bytes(b"garbage")
    counts: Any = run_json("verify", str(store), exit_code=1)["counts"]
    assert "CQ-ROCKSDB" in counts
