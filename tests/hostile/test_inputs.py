"""Files that a user names and somebody else wrote: one line, the documented exit code, bounded memory, no hang."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.command import run
from tests.stores import unpack

DEEP = 200_000


def assert_one_line(code: int, *words: str) -> None:
    result = run(*words)
    assert (result.exit_code, len(result.stderr.splitlines())) == (code, 1), result.output
    assert "this is a bug" not in result.stderr


@pytest.mark.parametrize("data", [b"jobs = " + b"[" * DEEP, b"\xff", b"jobs = 1" * 200_000], ids=range(3))
def test_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    path = tmp_path / "rmqstore.toml"
    path.write_bytes(data)
    monkeypatch.setenv("RMQSTORE_SETTINGS", str(path))
    assert_one_line(2, "info", str(unpack("5.4.0-clean")))


@pytest.mark.parametrize("data", [b"[" * DEEP, b'{"schema":' + b"[" * DEEP, b"", b"\0" * 100], ids=range(4))
def test_fingerprints(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "f"
    path.write_bytes(data)
    assert_one_line(2, "compare", str(unpack("5.4.0-clean")), "--against", str(path))


def test_a_pipe_as_a_fingerprint_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "f")
    assert_one_line(3, "compare", str(unpack("5.4.0-clean")), "--against", str(tmp_path / "f"))


@pytest.mark.parametrize("data", [b"[" * DEEP, b"\0" * 100, b'{"schema": 1}'], ids=range(3))
def test_states_of_the_last_run(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "state"
    path.write_bytes(data)
    assert_one_line(2, "verify", str(unpack("5.4.0-clean")), "--since-last", str(path))


@pytest.mark.parametrize("data", [b"[" * DEEP, b'{"topic":' + b"[" * DEEP + b"\n", b"\xff\n", b"[1]\n"], ids=range(4))
def test_exported_lines(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.ndjson"
    path.write_bytes(data)
    assert_one_line(3, "import", str(path), "--output", str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["topic", "store_host", "properties", "body", "queue_offset", "version"])
@pytest.mark.parametrize("values", [[[1]], [{"a": 1}], [[[1]]], [1.5], [None], [True]], ids=repr)
def test_exported_columns_of_another_type(tmp_path: Path, name: str, values: list[object]) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "x.parquet"
    row = {"topic": ["A"], "queue_id": [0], "queue_offset": [0], "store_host": ["127.0.0.1:1"], "properties": ["{}"]}
    pq.write_table(pa.table(row | {name: values}), path)
    assert_one_line(3, "import", str(path), "--output", str(tmp_path / "new"))


@pytest.mark.parametrize("seed", range(40))
def test_exported_columns_with_a_wrong_byte(tmp_path: Path, seed: int, parquet: bytes) -> None:
    choice, data = random.Random(seed), bytearray(parquet)
    for _ in range(3):
        data[-1 - choice.randrange(3000)] = choice.randrange(256)  # the metadata are at the end
    path = tmp_path / "x.parquet"
    path.write_bytes(data)
    result = run("import", str(path), "--output", str(tmp_path / "new"))
    assert (result.exit_code, len(result.stderr.splitlines())) in {(0, 0), (0, 1), (3, 1)}, result.output


@pytest.fixture(scope="module")
def parquet(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    pytest.importorskip("pyarrow")
    path = tmp_path_factory.mktemp("exported") / "x.parquet"
    assert run("export", str(unpack("5.4.0-clean")), "-o", str(path)).exit_code == 0
    return path.read_bytes()


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_exported_columns(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x.{suffix}"
    path.write_bytes(b"PAR1" + b"\xff" * 1000 + b"PAR1")
    assert_one_line(3, "import", str(path), "--output", str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("row", "number"),
    [(b"x" * 3_000_000, 2), (b'"' + b"x\n" * 1_000_000, 524_280)],
    ids=["a line", "a row of many lines"],
)
def test_a_row_of_csv_without_end_is_not_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: bytes, number: int
) -> None:
    monkeypatch.setattr("rmqstore.append.exported_files.MAX_LINE", 1 << 20)
    path = tmp_path / "all.csv"
    path.write_bytes(b"topic,body_base64\n" + row)
    done = run("import", str(path), "--output", str(tmp_path / "new"))
    assert done.exit_code == 3
    assert done.stderr.startswith(f"error: {path}:{number}: the row has more than 1048576 bytes — ")
    assert len(done.stderr.splitlines()) == 1
