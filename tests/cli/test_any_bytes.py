"""With any bytes in a store, the reading commands end with a documented exit code and without a traceback."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.command import run
from tests.damage import overwrite
from tests.seeds import seeds
from tests.stores import copy_store
from tests.views.decoder import find_records

COMMANDS = [
    ["info"],
    ["info", "--json"],
    ["verify"],
    ["verify", "--json"],
    ["du"],
    ["dump"],
    ["dump", "--body", "json"],
    ["dump", "--reverse"],
    ["dump", "--positions"],
    ["dump", "--format", "hex"],
    *(
        ["dump", "--what", what, "--format", form]
        for what in (
            "commitlog", "consumequeue", "batchconsumequeue", "index", "dledger", "dledger-index", "checkpoint",
            "config", "timerlog", "timerwheel",
        )
        for form in ("ndjson", "csv", "table")
    ),
]  # fmt: skip


def _break(store: Path, chance: random.Random) -> None:
    for path in sorted(p for p in store.rglob("*") if p.is_file()):
        size = path.stat().st_size
        if not size or chance.random() < 0.3:
            continue
        with path.open("r+b") as file:
            if chance.random() < 0.2:
                file.truncate(chance.randrange(size))
                continue
            for _ in range(chance.randrange(1, 6)):
                file.seek(chance.randrange(min(size, 70_000)))
                file.write(chance.choice([chance.randbytes(chance.randrange(1, 60)), b"\xff" * 8, bytes(40)]))


@pytest.mark.quick_rows
@pytest.mark.parametrize("seed", seeds(2))
@pytest.mark.parametrize("name", ["5.4.0-formats", "4.9.7-dledger-mixed"])
def test_garbled_stores_are_answered(name: str, seed: int, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    _break(store, random.Random(seed))
    for words in COMMANDS:
        result = run(words[0], str(store), *words[1:])
        assert result.exit_code in (0, 1, 3, 4), f"{words}: {result.exit_code}\n{result.stderr}"


@pytest.mark.parametrize("size", [0, 1, 7, 8, 19, 20, 91, 100, 4096])
def test_a_single_file_of_any_length_is_answered(size: int, tmp_path: Path) -> None:
    chance = random.Random(size)
    folder = tmp_path / "commitlog"
    folder.mkdir()
    for content in (chance.randbytes(size), bytes(size), b"\xda\xa3\x20\xa7" * (size // 4)):
        (folder / f"{0:020d}").write_bytes(content)
        for path in (tmp_path, folder, folder / f"{0:020d}"):
            for command in ("info", "dump", "du"):
                result = run(command, str(path))
                assert result.exit_code in (0, 1, 3), f"{command} {path}: {result.stderr}"


def test_a_nul_in_the_topic_of_a_record_is_answered(tmp_path: Path) -> None:
    store = copy_store("5.4.0-killed", tmp_path)
    record = next(r for r in find_records(store) if r.topic == "Order_11")
    path = store / "commitlog" / f"{0:020}"
    overwrite(path, path.read_bytes().index(b"Order_11", record.position) + 3, b"\0")
    for words in (["find", record.msg_id], ["lost"], ["recover"], ["recover", "--apply", "--accept-fillers"], ["lost"]):
        result = run(words[0], str(store), *words[1:])
        assert result.exit_code in (0, 1), f"{words}: {result.exit_code}\n{result.stderr}"
