"""`--metrics FILE` of verify, info and du, and `verify -q`."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path

import pytest

from tests.command import run, run_json
from tests.damage import garble, zero
from tests.stores import ROOT, copy_store, unpack

STORE = "5.4.0-clean"
_LINE = re.compile(r'([a-z_]+)\{((?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)*)\} (-?[0-9.e+]+)')
_LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')


def read(path: Path) -> dict[tuple[str, str], float]:
    """Check the format of a metrics file, and return its values by (name, the label other than store and command)."""
    out: dict[tuple[str, str], float] = {}
    typed: list[str] = []
    for line in path.read_text("utf-8").splitlines():
        if line.startswith("# TYPE "):
            assert line.endswith(" gauge")
            typed.append(line.split()[2])
        elif not line.startswith("# HELP "):
            match = _LINE.fullmatch(line)
            assert match is not None, line
            assert match[1] == typed[-1]  # a name's samples follow its type, without a gap
            labels = dict(_LABEL.findall(match[2]))
            assert labels.pop("store").startswith("/")
            labels.pop("command")
            key = (match[1], next(iter(labels.values()), ""))
            assert key not in out
            out[key] = float(match[3])
    assert len(set(typed)) == len(typed)
    return out


def test_verify_writes_what_it_found(tmp_path: Path) -> None:
    store, file = copy_store(STORE, tmp_path), tmp_path / "verify.prom"
    (store / "abort").touch()
    zero(store / "checkpoint", 0, 40)
    garble(store / "commitlog" / f"{65536 * 3:020}", 4000, 20)
    report = run_json("verify", str(store), "--metrics", str(file), exit_code=1)
    found = read(file)
    assert found["rmqstore_store_clean", ""] == 0
    counts = report["counts"]
    assert isinstance(counts, dict)
    assert {code: n for (name, code), n in found.items() if name == "rmqstore_problems"} == counts
    broker, log = report["broker"], report["commitlog"]
    assert isinstance(broker, dict) and isinstance(log, dict)
    assert found["rmqstore_messages_lost_at_next_start", ""] == broker["messages_lost"] > 0
    assert found["rmqstore_next_start_ok", ""] == 0
    assert found["rmqstore_messages", ""] == log["messages"]
    assert found["rmqstore_bytes", ""] == log["bytes"]
    assert found["rmqstore_exit_code", ""] == 1
    assert abs(found["rmqstore_last_run_timestamp_seconds", ""] - time.time()) < 60
    assert 0 < found["rmqstore_run_seconds", ""] < 60


def test_start_that_drops_messages_from_queues_is_not_ok(tmp_path: Path) -> None:
    store, file = copy_store("5.4.0-dledger", tmp_path), tmp_path / "verify.prom"
    (store / "abort").touch()  # with it, 5.4.0 truncates the queues even of an undamaged store
    broker = run_json("verify", str(store), "--metrics", str(file), exit_code=1)["broker"]
    assert isinstance(broker, dict)
    assert (broker["messages_lost"], bool(broker["units_cut"])) == (0, True)
    assert read(file)["rmqstore_next_start_ok", ""] == 0


def test_start_that_leaves_messages_without_units_is_not_ok(tmp_path: Path) -> None:
    store, file = copy_store(STORE, tmp_path), tmp_path / "verify.prom"
    shutil.rmtree(store / "consumequeue" / "Order_11")
    report = run_json("verify", str(store), "--metrics", str(file), exit_code=1)
    assert "never deliver" in str(report["verdict"])
    found = read(file)
    assert (found["rmqstore_messages_lost_at_next_start", ""], found["rmqstore_next_start_ok", ""]) == (0, 0)


@pytest.mark.parametrize("name", [STORE, "5.4.0-dledger", "5.1.4-dledger-mixed"])
def test_a_clean_store_is_1_and_one_that_was_not_checked_is_0(name: str, tmp_path: Path) -> None:
    file = tmp_path / "verify.prom"
    report = run_json("verify", str(unpack(name)), "--metrics", str(file), exit_code=0)
    found = read(file)
    assert (found["rmqstore_store_clean", ""], found["rmqstore_exit_code", ""]) == (1, 0)
    logs = [log for log in (report["commitlog"], report["dledger"]) if isinstance(log, dict)]
    assert (
        found["rmqstore_messages", ""] == sum(int(log.get("messages") or log.get("entries") or 0) for log in logs) > 500
    )
    assert run("verify", str(unpack(name)), "--quick", "--metrics", str(file)).exit_code == 4
    assert read(file)["rmqstore_store_clean", ""] == 0


def test_info_and_du_count_by_topic(tmp_path: Path) -> None:
    store, file = unpack(STORE), tmp_path / "x.prom"
    report = run_json("du", str(store), "--metrics", str(file), exit_code=0)
    found = read(file)
    by = report["by"]
    assert isinstance(by, dict)
    for row in by["topic"]:
        assert found["rmqstore_messages", row["topic"]] == row["messages"]
        assert found["rmqstore_bytes", row["topic"]] == row["bytes"]
    run_json("du", str(store), "--by", "day", "--metrics", str(file), exit_code=0)
    assert read(file)["rmqstore_messages", ""] == report["messages"]
    seen = run_json("info", str(store), "--metrics", str(file), exit_code=0)
    log, topics = seen["commitlog"], seen["topics"]
    assert isinstance(log, dict) and isinstance(topics, dict)
    assert read(file)["rmqstore_bytes", ""] == log["bytes"]
    assert read(file)["rmqstore_messages", "Order_11"] == topics["Order_11"]["messages"]


def test_names_cannot_break_the_format(tmp_path: Path) -> None:
    store, file = tmp_path / 'a "quoted"\\ \n\x1bstore', tmp_path / "x.prom"
    copy_store(STORE, tmp_path, rename=store.name)
    assert run("info", str(store), "--metrics", str(file)).exit_code == 0
    assert read(file)
    assert "\x1b" not in file.read_text()


def test_the_file_is_never_in_the_store_and_its_name_is_looked_at(store: Path, tmp_path: Path) -> None:
    assert run("verify", str(store), "--metrics", str(store / "x.prom")).exit_code == 2
    assert not (store / "x.prom").exists()
    result = run("info", str(store), "--metrics", str(tmp_path / "x.txt"))
    assert result.exit_code == 0 and "reads only files named *.prom" in result.stderr
    assert run("info", str(store), "--metrics", str(tmp_path / "no" / "x.prom")).exit_code == 3


def test_verify_quiet_prints_nothing_but_problems(tmp_path: Path) -> None:
    result = run("verify", str(unpack(STORE)), "-q")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")
    store = copy_store(STORE, tmp_path)
    garble(store / "commitlog" / f"{65536 * 3:020}", 4000, 20)
    result = run("verify", str(store), "-q")
    assert result.exit_code == 1
    assert result.stdout.count("\n") == 1 and result.stdout.startswith(f"{store}: ")
    assert "CL-BODY-CRC x 1" in result.stdout
    result = run("verify", str(unpack(STORE)), "-q", "--quick")
    assert result.exit_code == 4 and "not checked: " in result.stdout
    report = run_json("verify", str(store), "-q", exit_code=1)
    assert report["schema"] == "rmqstore.verify/1"


def test_the_page_names_every_metric() -> None:
    from rmqstore.cli.shared.metrics import _HELP

    page = (ROOT / "docs" / "monitoring.md").read_text("utf-8")
    assert set(re.findall(r"\brmqstore_[a-z_]+", page)) - {"rmqstore_verify"} == set(_HELP)
