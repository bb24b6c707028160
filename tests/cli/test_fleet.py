"""`fleet`: results of many hosts as one table. No value of a result has to be of the type that it should be."""

from __future__ import annotations

import copy
import json
import os
import random
import re
from pathlib import Path
from typing import Any

import pytest

from tests.command import run, run_json
from tests.damage import zero
from tests.seeds import fresh
from tests.stores import copy_store

OLD = 10 * 86_400


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A sound store and a damaged one."""
    sound, bad = (copy_store("5.4.0-clean", tmp_path_factory.mktemp(name)) for name in ("sound", "bad"))
    zero(sorted((bad / "commitlog").iterdir())[1], 4096, 8192)
    return str(sound), str(bad)


@pytest.fixture(scope="module")
def results(stores: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of three hosts: two objects, one file with two lines."""
    folder, (sound, bad) = tmp_path_factory.mktemp("results"), stores
    for host, words in {"a.example.com": (sound,), "b": (bad,), "c": (sound, bad, f"{sound}-gone")}.items():
        suffix = "json" if len(words) == 1 else "ndjson"
        (folder / f"{host}.{suffix}").write_text(run("verify", *words, "--json").stdout)
    repository = str(folder.parent / f"{folder.name}-repo")
    (folder / "a.example.com.backup.json").write_text(run("backup", sound, repository, "--name", "a", "--json").stdout)
    return folder


def rows(*words: str, exit_code: int = 1) -> list[dict[str, Any]]:
    """Return the stores of `fleet --json`."""
    found = run_json("fleet", *words, exit_code=exit_code)["stores"]
    assert isinstance(found, list)
    return found


def test_the_worst_store_is_first_and_decides_the_exit_code(results: Path, stores: tuple[str, str]) -> None:
    sound, bad = stores
    found = rows(str(results))
    assert [(row["host"], row["store"], row["state"]) for row in found] == [
        ("b", bad, "problems"),
        ("c", bad, "problems"),
        ("c", f"{sound}-gone", "unreadable"),
        ("a.example.com", sound, "sound"),
        ("c", sound, "sound"),
    ]
    assert rows(str(results / "a.example.com.json"), exit_code=0)
    account = run_json("verify", bad, exit_code=1)["account"]
    assert isinstance(account, dict)
    for row in found[:2]:
        assert {name: row[name] for name in account if name in row} == {
            name: account[name] for name in row.keys() & account
        }
        assert row["lost_already"] > 0
    text = run("fleet", str(results)).stdout.splitlines()
    assert text[0] == "5 stores of 3 hosts: 2 with problems, 1 not opened, 2 sound."
    assert len(text) == 3 + len(found)
    assert all(row["verdict"] in line for row, line in zip(found, text[3:], strict=True)), "nothing is cut in a pipe"
    assert len(run("fleet", str(results), "-q").stdout.splitlines()) == 1 + 3


def test_a_backup_belongs_to_the_only_store_of_its_host(results: Path, tmp_path: Path) -> None:
    found = {row["host"]: row for row in rows(str(results))}
    assert found["a.example.com"]["backup"] and not found["b"]["backup"]
    alone = tmp_path / "a.backup.json"
    alone.write_text((results / "a.example.com.backup.json").read_text())
    (row,) = rows(str(alone), exit_code=4)
    assert row["host"] == "a" and row["state"] == "unchecked" and row["store"].endswith("::a")
    assert row["backup"] == found["a.example.com"]["backup"]


def test_metrics_say_the_same_as_json(stores: tuple[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "results" / "host-1" / "var"
    folder.mkdir(parents=True)
    run("verify", *stores, "--metrics", str(folder / "verify.prom"))
    run("backup", stores[0], str(tmp_path / "repo"), "--metrics", str(folder / "backup.prom"))
    found = {row["store"]: row for row in rows(str(tmp_path / "results"))}
    (tmp_path / "host-1.ndjson").write_text(run("verify", *stores, "--json").stdout)
    same = {row["store"]: row for row in rows(str(tmp_path / "host-1.ndjson"))}
    names = ("host", "state", "lost_already", "lost_at_next_start", "undelivered", "problems")
    for store, row in found.items():
        assert [row[name] for name in names] == [same[store][name] for name in names]
    assert found[stores[0]]["backup"]
    again = tmp_path / "fleet.prom"
    assert run("fleet", str(tmp_path / "results"), "--metrics", str(again)).exit_code == 1
    samples = again.read_text()
    assert 'rmqstore_stores{command="fleet",state="problems"} 1' in samples
    lost = found[stores[1]]["lost_already"]
    assert f'rmqstore_messages_lost_already{{command="fleet",host="host-1",store="{stores[1]}"}} {lost}' in samples


def test_the_newest_result_counts_and_an_old_one_is_not_sound(results: Path, tmp_path: Path) -> None:
    old, new = tmp_path / "h.verify.json", tmp_path / "h.doctor.json"
    value = json.loads((results / "b.json").read_text())
    old.write_text(json.dumps(value))
    sound = json.loads((results / "a.example.com.json").read_text())
    new.write_text(json.dumps(sound | {"store": value["store"]}))
    now = new.stat().st_mtime
    os.utime(old, (now - OLD, now - OLD))
    (row,) = rows(str(tmp_path), exit_code=0)
    assert row["state"] == "sound" and row["checked"] == new.stat().st_mtime_ns // 1_000_000
    (row,) = rows(str(tmp_path), "--max-age", "1d", exit_code=0)
    os.utime(new, (now - OLD / 2, now - OLD / 2))
    (row,) = rows(str(tmp_path), "--max-age", "1d", exit_code=4)
    assert row["state"] == "unchecked" and row["verdict"].startswith("the result is old: ")


def test_stdin_has_results_of_one_object_per_line(results: Path) -> None:
    lines = "".join(path.read_text() for path in sorted(results.glob("*json")) if "backup" not in path.name)
    found = run("fleet", "-", "--json", stdin=lines)
    assert found.exit_code == 1
    assert {row["host"] for row in json.loads(found.stdout)["stores"]} == {""}


def test_the_page_orders_its_rows_and_links_to_the_pages_of_stores(results: Path, tmp_path: Path) -> None:
    folder = tmp_path / "results"
    folder.mkdir()
    for path in results.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    (folder / "b.html").write_text("page")
    page = tmp_path / "fleet.html"
    assert run("fleet", str(folder), "--html", str(page)).exit_code == 1
    text = page.read_text()
    assert 'href="results/b.html"' in text and text.count("href=") == 1
    orders = [dict(re.findall(r"--(\w+):(\d+)", style)) for style in re.findall(r'<tr style="([^"]*)"', text)]
    assert len(orders) == 5
    for name in ("state", "host", "store", "lost", "undelivered", "checked", "backup"):
        assert sorted(int(order[name]) for order in orders) == list(range(5))
    assert "<script" not in text
    assert page.stat().st_mode & 0o777 == 0o600
    (folder / "b.json").unlink()
    run("fleet", str(folder), "--html", str(page))
    assert page.read_text().count("<tr style=") == 4, "the page of the day before is replaced"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "it has no result"),
        (b"{", "its JSON is cut or damaged"),
        (b"[]", "it has no result"),
        (b"{}", "it has no result"),
        (b"<html></html>", "it has no result"),
        (b'{"schema":"rmqstore.info/1","store":"/x"}', "it has no result"),
        (b"\xff\xfe\x00{", "it has no result"),
        pytest.param(b'{"a":' * 5000, "its JSON is cut or damaged", id="deep"),
        (b'{"schema":"rmqstore.verify/1"}\n{"schema', "its JSON is cut or damaged"),
    ],
)
def test_a_file_without_a_result_is_named(content: bytes, why: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    found = run_json("fleet", str(path), exit_code=3)
    assert found["stores"] == []
    assert isinstance(found["unreadable"], list)
    assert [row["path"] for row in found["unreadable"]] == [str(path)]
    assert found["unreadable"][0]["reason"].startswith(why)
    assert f"{path}: not read: {why}" in run("fleet", str(path)).stdout


def test_only_files_of_a_directory_are_read(results: Path, tmp_path: Path) -> None:
    (tmp_path / "b.json").write_bytes((results / "b.json").read_bytes())
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "device.json").symlink_to("/dev/zero")
    (tmp_path / "folder.json").mkdir()
    assert [row["host"] for row in rows(str(tmp_path))] == ["b"]


def test_a_file_that_becomes_a_pipe_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "b.json"
    os.mkfifo(path)
    monkeypatch.setattr(Path, "is_file", lambda self: True)
    found = run_json("fleet", str(tmp_path), exit_code=3)
    assert found["unreadable"] == [{"path": str(path), "reason": "not a regular file"}]


@pytest.mark.parametrize("number", ["9" * 4200, 10**30], ids=["text", "number"])
def test_numbers_that_no_store_has(number: object, tmp_path: Path) -> None:
    names = ("lost_already", "lost_at_next_start", "undelivered")
    document = {"schema": "rmqstore.verify/1", "store": "/s", "account": dict.fromkeys(names, number)}
    (tmp_path / "a.json").write_text(json.dumps(document | {"backup": {"time": number}, "counts": {"CL-CRC": number}}))
    for words in (["--json"], ["--metrics", str(tmp_path / "m.prom")], ["--html", str(tmp_path / "page.html")], []):
        result = run("fleet", str(tmp_path), *words)
        assert result.exit_code in (1, 3, 4), f"{result.output} {result.exception!r}"


def test_a_result_that_would_fill_the_memory_is_not_parsed(tmp_path: Path) -> None:
    path = tmp_path / "x.ndjson"
    path.write_bytes(b'{"schema":"rmqstore.verify/1","store":"/s"}\n{"x":[' + b"[]," * (6 << 20) + b"[]]}")
    found = run_json("fleet", str(path), exit_code=3)
    assert found["unreadable"] == [{"path": str(path), "reason": "a result in it is larger than 16 MiB"}]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    found = run_json("fleet", str(tmp_path / "none"), exit_code=3)
    assert found["unreadable"] == [{"path": str(tmp_path / "none"), "reason": "No such file or directory"}]


def test_no_value_of_a_result_ends_the_command(results: Path, tmp_path: Path) -> None:
    chooser = random.Random(fresh(5001))
    document = json.loads((results / "b.json").read_text())
    kept = {
        name: document[name]
        for name in ("schema", "store", "clean", "broker", "account", "counts", "verdict", "error")
        if name in document
    }
    strange: list[Any] = [
        None,
        True,
        -1,
        1.5,
        1e308,
        10**30,
        "",
        "\x1b[31m",
        "‮",
        [],
        {},
        [[1]],
        {"a": {"b": 1}},
        float("inf"),
    ]
    for number in range(60):
        value = copy.deepcopy(kept)
        for _ in range(chooser.randrange(1, 4)):
            inner = chooser.choice([value, *(one for one in value.values() if isinstance(one, dict) and one)])
            inner[chooser.choice(list(inner))] = chooser.choice(strange)
        value["schema"] = chooser.choice(["rmqstore.verify/1", "rmqstore.doctor/1", "rmqstore.backup/1"])
        (tmp_path / f"{number}.json").write_text(json.dumps(value))
    page = tmp_path / "page.html"
    for words in (("--json",), (), ("-q",), ("--html", str(page))):
        result = run("fleet", str(tmp_path), *words)
        assert result.exit_code in (0, 1, 3, 4), result.output
        assert "\x1b" not in result.stdout and "‮" not in result.stdout.replace("\\u202e", "")
    assert "‮" not in page.read_text()
