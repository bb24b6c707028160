"""`verify --since-last`: unchanged log files are not read again, and all changes are found."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import os
import time
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import orjson
import pytest

from rmqstore.checks import since_last
from rmqstore.scan.window import Window
from tests.command import run, run_json
from tests.damage import flip, zero
from tests.json_outputs import schema_problems
from tests.live_writer import live_store
from tests.seeds import SEED
from tests.stores import STORES, copy_store, unpack

STORE = "5.4.0-clean"
SEALED = f"{196608:020}"


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Accept files as unchanged although they are only a moment old, like the stores of tests."""
    monkeypatch.setattr(since_last, "SETTLED", 0)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the log files that are scanned."""
    names: list[str] = []
    first = Window.__init__

    def noted(self: Window, *args: object) -> None:
        first(self, *args)  # type: ignore[arg-type]
        names.append(self.file.name)

    monkeypatch.setattr(Window, "__init__", noted)
    return names


def verify(store: Path, state: Path, *options: str, code: int = 0) -> Mapping[str, object]:
    return run_json("verify", str(store), "--since-last", str(state), *options, exit_code=code)


def but_for_reused(report: Mapping[str, object]) -> dict[str, object]:
    return {k: v for k, v in report.items() if k not in ("reused", "seconds")}


def reused(report: Mapping[str, object]) -> list[str]:
    found = report["reused"]
    if found is None:
        return []
    assert isinstance(found, dict)
    return [Path(name).name for name in found["files"]]


def codes(report: Mapping[str, object]) -> set[str]:
    found = report["counts"]
    assert isinstance(found, dict)
    return set(found)


@pytest.mark.quick_rows(3)
@pytest.mark.parametrize("name", STORES)
def test_the_answer_is_that_of_a_full_read(name: str, tmp_path: Path, at_once: None) -> None:
    store, state = unpack(name), tmp_path / "state"
    full = but_for_reused(json.loads(run("verify", str(store), "--json").stdout))
    for _ in range(3):
        report = json.loads(run("verify", str(store), "--since-last", str(state), "--json").stdout)
        assert but_for_reused(report) == full


def test_unchanged_files_are_not_read(store: Path, tmp_path: Path, at_once: None, opened: list[str]) -> None:
    state = tmp_path / "state"
    first = verify(store, state)
    assert first["reused"] is None
    assert len(set(opened)) == 8
    opened.clear()
    before = time.time() * 1000
    report = verify(store, state)
    assert set(opened) == {f"{7 * 65536:020}"}  # the last file, which a broker still appends to
    found = report["reused"]
    assert isinstance(found, dict)
    assert found["files"] == [str(store / "commitlog" / f"{i * 65536:020}") for i in range(7)]
    assert found["bytes"] == 7 * 65536
    assert before - 60_000 < found["read_at"] < before  # of the first run, not of this one
    assert report["clean"] is True
    assert schema_problems([("verify", report)])[1] == []


def test_an_old_result_is_marked_wherever_nothing_is_wrong(store: Path, tmp_path: Path, at_once: None) -> None:
    state, metrics = tmp_path / "state", tmp_path / "x.prom"
    verify(store, state)
    words = ("verify", str(store), "--since-last", str(state), "--utc")
    text = " ".join(run(*words, "--metrics", str(metrics)).stdout.split())
    assert "Nothing is wrong with this store. This reuses old results: 7 unchanged log files not read again." in text
    assert "old results 7 unchanged log files (448.0 KiB) were not read again; no problems on 20" in text
    assert f'rmqstore_reused_bytes{{store="{store}",command="verify"}} {7 * 65536}\n' in metrics.read_text()
    (store / "commitlog" / "notes.txt").write_text("x")
    assert "; 7 unchanged log files (448.0 KiB) were not read again; no problems on" in run(*words, "-q").stdout


def test_a_sealed_file_that_was_damaged_is_read(store: Path, tmp_path: Path, at_once: None) -> None:
    state = tmp_path / "state"
    verify(store, state)
    path = store / "commitlog" / SEALED
    times = path.stat()
    flip(path, 47521)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # the change time remains
    report = verify(store, state, code=1)
    assert codes(report) >= {"CL-BODY-CRC"}
    assert len(reused(report)) == 6 and SEALED not in reused(report)
    # results of damaged files are never kept: they are read and reported in every run
    again = verify(store, state, code=1)
    assert but_for_reused(again) == but_for_reused(report)
    assert len(reused(again)) == 6


def test_a_queue_that_changed_is_compared_with_log_files_that_did_not(
    store: Path, tmp_path: Path, at_once: None
) -> None:
    state = tmp_path / "state"
    verify(store, state)
    queue = next(p for p in sorted((store / "consumequeue").rglob("0" * 20)) if "Order_11/0" in str(p))
    flip(queue, 20 * 3 + 19)  # a tags code, which only the message itself contradicts
    report = verify(store, state, code=1)
    assert codes(report) == {"CQ-WRONG-TAG"}
    assert 0 < len(reused(report)) < 7
    assert but_for_reused(report) == but_for_reused(run_json("verify", str(store), exit_code=1))


def test_an_index_entry_that_changed_is_compared_with_log_files_that_did_not(
    store: Path, tmp_path: Path, at_once: None
) -> None:
    state = tmp_path / "state"
    verify(store, state)
    file = min((store / "index").iterdir())
    from rmqstore.files.index import index_sizes
    from rmqstore.files.store import open_store
    from rmqstore.formats import index

    sizes = index_sizes(open_store(store))
    assert sizes is not None
    flip(file, index.unit_at(5, sizes[0]) + 3)  # the key hash
    report = json.loads(run("verify", str(store), "--since-last", str(state), "--json").stdout)
    full = json.loads(run("verify", str(store), "--json").stdout)
    assert full["counts"] and but_for_reused(report) == but_for_reused(full)


def test_a_dledger_index_that_changed_is_compared_with_data_that_did_not(tmp_path: Path, at_once: None) -> None:
    name = next(n for n in STORES if "dledger" in n and len(list(unpack(n).glob("dledger-*/data/*"))) > 2)
    store, state = copy_store(name, tmp_path), tmp_path / "state"
    first = json.loads(run("verify", str(store), "--since-last", str(state), "--json").stdout)
    second = json.loads(run("verify", str(store), "--since-last", str(state), "--json").stdout)
    assert second["reused"] and but_for_reused(first) == but_for_reused(second)
    zero(min(store.glob("dledger-*/index/*")), 64, 32)
    report = json.loads(run("verify", str(store), "--since-last", str(state), "--json").stdout)
    full = json.loads(run("verify", str(store), "--json").stdout)
    assert full["counts"] != first["counts"] and but_for_reused(report) == but_for_reused(full)


def test_a_file_that_was_changed_a_moment_ago_is_read_again(store: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    verify(store, state)
    assert verify(store, state)["reused"] is None


def test_an_old_result_is_used_for_a_month(
    store: Path, tmp_path: Path, at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    verify(store, state)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 29 * 86_400)
    assert len(reused(verify(store, state))) == 7  # and the old results keep their age
    monkeypatch.setattr(time, "time", lambda: now + 31 * 86_400)
    assert reused(verify(store, state)) == []
    assert len(reused(verify(store, state))) == 7


def test_other_options_do_not_use_the_result(store: Path, tmp_path: Path, at_once: None) -> None:
    state = tmp_path / "state"
    assert verify(store, state, "--quick", code=4)["reused"] is None
    assert len(reused(verify(store, state, "--quick", code=4))) == 7
    assert verify(store, state)["reused"] is None


def test_the_state_of_another_store_is_refused(store: Path, tmp_path: Path, at_once: None) -> None:
    state = tmp_path / "state"
    verify(unpack("5.1.4-clean"), state)
    before = state.read_bytes()
    result = run("verify", str(store), "--since-last", str(state))
    assert result.exit_code == 2
    assert "is of another store" in result.stderr
    assert state.read_bytes() == before


@pytest.mark.parametrize("content", [b"{}\n", b"\0" * 100, b"notes\n", b'{"schema": "rmqstore.verify/1"}'])
def test_a_file_of_the_user_is_never_replaced(content: bytes, store: Path, tmp_path: Path) -> None:
    state = tmp_path / "notes"
    state.write_bytes(content)
    result = run("verify", str(store), "--since-last", str(state))
    assert result.exit_code == 2
    assert "is not a file that --since-last wrote" in result.stderr
    assert state.read_bytes() == content


@pytest.mark.parametrize("option", [("--resume",), ("--max-duration", "1h"), ("--since", "-1h"), ("--html", "x.html")])
def test_options_that_leave_parts_out_are_refused(option: tuple[str, ...], store: Path, tmp_path: Path) -> None:
    result = run("verify", str(store), "--since-last", str(tmp_path / "state"), *option)
    assert result.exit_code == 2
    assert f"--since-last and {option[0]} exclude each other" in result.stderr


def test_the_state_is_private_and_outside_the_store(store: Path, tmp_path: Path, at_once: None) -> None:
    assert run("verify", str(store), "--since-last", str(store / "state")).exit_code == 2
    assert run("verify", str(store), "--since-last", "-").exit_code == 2
    state = tmp_path / "state"
    verify(store, state)
    assert state.stat().st_mode & 0o777 == 0o600
    state.chmod(0o622)
    result = run("verify", str(store), "--since-last", str(state))
    assert result.exit_code == 0
    assert f"note: others can write to {state}: every file is read" in result.stderr
    assert "old results" not in result.stdout
    assert state.stat().st_mode & 0o777 == 0o600


def damaged_states(good: bytes) -> Iterator[bytes]:
    """Yield states with lost or wrong bytes, so that the digest does not match."""
    lines = good.splitlines(keepends=True)
    yield good[:-1]
    yield good[: len(good) // 2]
    yield b"".join(lines[:-1])
    yield lines[0]
    yield b"".join([*lines[:2], *lines[3:]])
    for at in (len(lines[0]) + 2, len(good) // 2, len(good) - 10):
        yield good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :]


def test_a_damaged_state_is_not_used(store: Path, tmp_path: Path, at_once: None) -> None:
    state = tmp_path / "state"
    verify(store, state)
    good = state.read_bytes()
    for bad in damaged_states(good):
        state.write_bytes(bad)
        result = run("verify", str(store), "--since-last", str(state), "--json")
        assert result.exit_code == 0, result.output
        assert f"note: {state} is damaged: every file is read" in result.stderr
        assert json.loads(result.stdout)["reused"] is None
        assert len(reused(verify(store, state))) == 7  # replaced by a good one


def rewritten(good: bytes, part: bytes) -> bytes:
    """Return a state with another first part, and a matching digest."""
    head, first, *rest = good.splitlines(keepends=True)
    place = first.split(b"\t")[0]
    lines = [head, place + b"\t" + part + b"\n", *rest[:-1]]
    return b"".join([*lines, hashlib.blake2b(b"".join(lines), digest_size=32).hexdigest().encode() + b"\n"])


def test_a_hostile_state_neither_runs_nor_crashes_anything(store: Path, tmp_path: Path, at_once: None) -> None:
    state = tmp_path / "state"
    verify(store, state)
    good = state.read_bytes()
    first = good.splitlines()[1].split(b"\t")[1]
    kept = orjson.loads(zlib.decompress(base64.b64decode(first)))
    names = [f.name for f in dataclasses.fields(since_last.KeptPart)]
    hostile: list[object] = [None, [], {}, "x", kept[:-1], [*kept, 1]]
    strange = (-1, "x", [[1, 2, 3, 4, 5]])
    for i in range(len(names)):
        hostile += [[*kept[:i], value, *kept[i + 1 :]] for value in (strange if SEED else strange[i % 3 :][:1])]
    bodies = [b"", b"x", b"!!", base64.b64encode(b"x"), base64.b64encode(zlib.compress(b"[" * 100_000))]
    bodies += [base64.b64encode(zlib.compress(orjson.dumps(one))) for one in hostile]
    for body in bodies:
        state.write_bytes(rewritten(good, body))
        result = run("verify", str(store), "--since-last", str(state), "-q")
        assert result.exit_code in (0, 1, 4), (body, result.output, result.exception)


def test_beside_a_live_broker_nothing_false_is_found(tmp_path: Path, at_once: None) -> None:
    state, found = tmp_path / "state", []
    with live_store(tmp_path / "store", pause=0.02) as store:  # slow, so that no file expires between two runs
        for _ in range(6):
            report = verify(store, state)
            assert report["live"] and codes(report) <= {"CK-MISSING"}
            found += reused(report)
    assert found


def test_a_new_version_reads_everything(
    store: Path, tmp_path: Path, at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    verify(store, state)
    monkeypatch.setattr("rmqstore.__version__", "999")
    result = run("verify", str(store), "--since-last", str(state), "--json")
    assert "every file is read" in result.stderr
    assert json.loads(result.stdout)["reused"] is None


def test_a_name_that_is_not_valid_text_differs_from_a_value_that_cannot_be_kept() -> None:
    with pytest.raises(UnicodeEncodeError):
        since_last.encoded({("Topic\udc80", 0): 1})
    with pytest.raises(TypeError):
        orjson.dumps(since_last.encoded([object()]))
