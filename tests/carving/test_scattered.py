"""Images whose blocks are in any order, of which some are gone: every message comes back whose blocks can be found."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.carving.images import BLOCK, Found, all_blocks, logs_of, records, scattered, surviving
from tests.command import run, run_json
from tests.seeds import seeds
from tests.stores import unpack

HEAD = 36
"""Bytes of a record up to the end of the field that names its place."""


class Scattered:
    """An image of a log in blocks, and what of it can be found."""

    def __init__(self, name: str, seed: int, lost: float, block: int = BLOCK) -> None:
        self.block = block
        self.logs = {path: data for path, data in logs_of(unpack(name)).items() if data.strip(b"\0")}
        chance = random.Random(seed)
        used = [one for one in all_blocks(self.logs, block) if self.logs[one[0]][one[1] * block :][:block].strip(b"\0")]
        self.kept = [one for one in used if chance.random() >= lost]
        order: list[tuple[str, int] | None] = [*self.kept, *[None] * (len(self.kept) // 2)]
        chance.shuffle(order)
        self.image = scattered(self.logs, order, block, seed)
        self.at = {one: number for number, one in enumerate(order) if one is not None}

    def findable(self) -> list[Found]:
        """Return the surviving records that show where their blocks are.

        The head of another record shows it; of the other blocks, one stretch can be found by the CRC, if enough of the
        record is in it and the first block has its size.
        """
        heads = {
            (found.file, found.at // self.block)
            for path, data in self.logs.items()
            for found in records(path, data)
            if found.at % self.block <= self.block - HEAD - (48 if "dledger" in path else 0)
        }
        return [found for found in surviving(self.logs, self.kept, self.block) if self._is_findable(found, heads)]

    def _is_findable(self, found: Found, heads: set[tuple[str, int]]) -> bool:
        first, last = found.at // self.block, (found.at + found.size - 1) // self.block
        dark = [number for number in range(first + 1, last + 1) if (found.file, number) not in heads]
        stretches = sum(
            number - 1 not in dark or self.at[found.file, number] != self.at[found.file, number - 1] + 1
            for number in dark
        )
        body_stop = self._body_stop(found)
        covered = min(body_stop, (last + 1) * self.block) - last * self.block >= 8
        has_size = self.block - found.at % self.block >= 8
        if (found.file, first) not in heads:
            return False
        return not dark or (stretches == 1 and has_size and (last not in dark or covered))

    def _body_stop(self, found: Found) -> int:
        """Return where the bytes end that a CRC covers: the body, or the whole record if it ends with __CRC32#."""
        data = self.logs[found.file]
        at = found.at + (48 if "dledger" in found.file else 0)
        if data[found.at + found.size - 20 :][:9] == b"__CRC32#\x01":
            return found.at + found.size
        flags = int.from_bytes(data[at + 36 : at + 40], "big")
        body_at = at + 88 + (12 if flags & 0x10 else 0) + (12 if flags & 0x20 else 0)
        return body_at + int.from_bytes(data[body_at - 4 : body_at], "big")


def written(out: Path) -> dict[str, bytes]:
    """Return the files of the logs that were carved."""
    return logs_of(out)


@pytest.mark.quick_rows(3)
@pytest.mark.parametrize("lost", [0, 0.1, 0.5])
@pytest.mark.parametrize(
    "name", ["5.4.0-clean", "4.9.7-dledger", "5.4.0-formats", "4.9.7-ipv6", "5.1.4-clean", "5.5.1-dledger"]
)
@pytest.mark.parametrize("seed", seeds(2))
def test_messages_whose_blocks_are_there_come_back(name: str, lost: float, seed: int, tmp_path: Path) -> None:
    disk = Scattered(name, seed, lost)
    (tmp_path / "disk.img").write_bytes(disk.image)
    answer = run_json("carve", str(tmp_path / "disk.img"), str(tmp_path / "out"), "--file-size", "64K", exit_code=1)

    out = {path: data for path, data in written(tmp_path / "out").items() if data.strip(b"\0")}
    for path, data in out.items():  # nothing is invented: every byte is one of the log, or a hole
        original = disk.logs[path]
        assert len(data) == len(original)
        assert all(a in (0, b) for a, b in zip(data, original, strict=True))
    whole = [found for found in surviving(disk.logs, disk.kept) if is_there(out, found, disk.logs)]
    missed = set(disk.findable()) - set(whole)
    assert not missed, f"seed {seed}"
    stores = answer["stores"]
    assert isinstance(stores, list)
    assert [store["messages"] for store in stores] == [len(whole)]


def is_there(out: dict[str, bytes], found: Found, logs: dict[str, bytes]) -> bool:
    """Return whether a record is in its place."""
    stop = found.at + found.size
    return out.get(found.file, b"")[found.at : stop] == logs[found.file][found.at : stop]


@pytest.mark.parametrize("block", [1024, 512])
def test_small_blocks(block: int, tmp_path: Path) -> None:
    disk = Scattered("5.4.0-ipv6", 3, 0.2, block)
    (tmp_path / "disk.img").write_bytes(disk.image)
    answer = run_json("carve", str(tmp_path / "disk.img"), str(tmp_path / "out"), "--file-size", "64K", exit_code=1)
    assert answer["block_size"] == block
    out = written(tmp_path / "out")
    missed = [found for found in disk.findable() if not is_there(out, found, disk.logs)]
    assert not missed


def test_what_is_carved_can_be_repaired(tmp_path: Path) -> None:
    disk = Scattered("5.4.0-clean", 5, 0.1)
    (tmp_path / "disk.img").write_bytes(disk.image)
    out = str(tmp_path / "out")
    found = run_json("carve", str(tmp_path / "disk.img"), out, exit_code=1)
    plan = run_json("recover", out, exit_code=1)
    assert run("recover", out, "--apply", "--force", str(plan["digest"])).exit_code in (0, 1)
    after = run_json("verify", out, exit_code=1)
    counts = after["counts"]
    assert isinstance(counts, dict)
    assert not [code for code in counts if not code.startswith("CFG-")]
    stores = found["stores"]
    assert isinstance(stores, list)
    lines = run("export", out, "-o", str(tmp_path / "all.ndjson"))
    assert lines.exit_code == 0
    assert len((tmp_path / "all.ndjson").read_bytes().splitlines()) == stores[0]["messages"]
