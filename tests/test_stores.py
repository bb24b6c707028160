"""The fixtures themselves: unpacked stores and copies are identical to what the broker left on disk."""

from __future__ import annotations

import hashlib
import re
import tarfile
from pathlib import Path

import pytest

from tests import damage
from tests.stores import BROKER_STORES, CLASS_STORES, FIXTURES, archive, copy_store, meta, sent, unpack

SPARSE = "5.4.0-dledger"


def digests(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_there_are_stores_of_every_kind() -> None:
    assert (len(BROKER_STORES), len(CLASS_STORES)) == (65, 10)


@pytest.mark.parametrize("name", ["4.9.7-killed", "5.4.0-rocksdb", "head_formats"])
def test_copy_has_the_names_bytes_modes_and_times_of_the_archive(name: str, tmp_path: Path) -> None:
    copy = copy_store(name, tmp_path)
    with tarfile.open(archive(name)) as tar:
        for member in tar:
            path = copy.joinpath(*Path(member.name).parts[1:])
            status = path.stat()
            assert status.st_mode & 0o7777 == member.mode, member.name
            assert status.st_mtime == member.mtime, member.name
            if member.isfile():
                data = tar.extractfile(member)
                assert data is not None
                assert path.read_bytes() == data.read(), member.name
        assert len(tar.getnames()) == 1 + len(list(copy.rglob("*")))


def test_copy_keeps_holes(tmp_path: Path) -> None:
    for store in (unpack(SPARSE), copy_store(SPARSE, tmp_path)):
        wheel = (store / "timerwheel").stat()
        assert wheel.st_size == 38_707_200
        assert wheel.st_blocks * 512 < 200_000


def test_changing_a_copy_does_not_change_the_master(tmp_path: Path) -> None:
    before = digests(unpack("head_formats"))
    copy = copy_store("head_formats", tmp_path)
    damage.garble(copy / "checkpoint", 0, 8)
    assert digests(unpack("head_formats")) == before
    assert digests(copy) != before


@pytest.mark.parametrize("name", BROKER_STORES)
def test_every_store_has_metadata(name: str) -> None:
    made = meta(name)
    assert name.startswith(made.version)
    assert made.abort_present == (unpack(name) / "abort").exists()
    assert made.oracle_load.load
    assert len(sent(name)) > 100


def test_readme_names_every_store() -> None:
    text = (FIXTURES / "README.md").read_text("utf-8")
    named = set(re.findall(r"`([\w.-]+)`", text))
    for name in (*BROKER_STORES, *CLASS_STORES):
        version, _, kind = name.partition("-")
        member = re.sub(r".*(-n\d)$", r"\1", kind)
        assert {name, f"VERSION-{kind}", member} & named, f"{name} ({version}) is not in fixtures/README.md"


@pytest.mark.parametrize("bit", range(8))
def test_flip_changes_one_bit_and_back(bit: int, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"\x00\x5a\xff")
    damage.flip(file, 1, bit)
    assert file.read_bytes()[1] ^ 0x5A == 1 << bit
    damage.flip(file, 1, bit)
    assert file.read_bytes() == b"\x00\x5a\xff"


def test_garble_changes_every_byte(tmp_path: Path) -> None:
    file = tmp_path / "file"
    before = bytes(range(256)) * 4
    file.write_bytes(before)
    damage.garble(file, 100, 800)
    after = file.read_bytes()
    assert all(a != b for a, b in zip(after[100:900], before[100:900], strict=True))
    assert (after[:100], after[900:]) == (before[:100], before[900:])


def test_insert_and_remove_span_move_what_follows(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"abcdef")
    damage.insert(file, 2, b"XY")
    assert file.read_bytes() == b"abXYcdef"
    damage.remove_span(file, 1, 3)
    assert file.read_bytes() == b"acdef"
