"""The C loops: right about any bytes, without access outside the buffer."""

from __future__ import annotations

import ctypes
import random
import shutil
import subprocess
import zlib
from pathlib import Path

import numpy as np
import pytest

from rmqstore.errors import CouldNotCheck
from rmqstore.files.store import open_store
from rmqstore.formats.message import body_crc
from rmqstore.scan import native
from rmqstore.scan.dispatch import QueueTable
from rmqstore.scan.records import scan_file
from rmqstore.scan.tiling import Kind
from rmqstore.scan.units import lay_out
from rmqstore.scan.window import ScanOptions
from tests.seeds import seeds
from tests.stores import copy_store

_HERE = Path(__file__).parent
_SOURCES = Path(native.__file__).with_name("loops")
_FIELDS = ("size", "queue_id", "queue_offset", "sys_flag", "store_timestamp", "body_length")


@pytest.fixture
def compiled() -> native.Native:
    return native.load()


def _damage(path: Path, rng: random.Random, wrote: int) -> None:
    raw = bytearray(path.read_bytes())
    for _ in range(rng.randrange(1, 30)):
        at = rng.randrange(wrote)
        match rng.randrange(4):
            case 0:
                raw[at] ^= 1 << rng.randrange(8)
            case 1:
                raw[at : at + 4] = rng.randbytes(4)
            case 2:
                raw[at] = rng.choice(b"\0\1\2\x7f\x80\xff")
            case _:
                raw[at : min(at + rng.randrange(300), wrote)] = b""
                raw += bytes(path.stat().st_size - len(raw))
    path.write_bytes(raw)


@pytest.mark.parametrize("chunk", [2 << 20, 4096, 30_000])
@pytest.mark.parametrize("name", ["5.4.0-formats", "5.1.4-formats", "4.9.7-ipv6", "5.4.0-dledger"])
def test_columns_have_what_a_parser_reads_in_each_record(name: str, chunk: int, tmp_path: Path) -> None:
    rng = random.Random(name)
    for turn in range(3):
        store = open_store(copy_store(name, tmp_path / str(turn)))
        log, body_offset = (store.dledger.data, 48) if store.dledger is not None else (store.commitlog, 0)
        assert log is not None
        file = log.files[0]
        if turn:
            _damage(file.path, rng, len(file.path.read_bytes().rstrip(b"\0")))
        table, sound = QueueTable(), 0
        for run in scan_file(file, body_offset=body_offset, options=ScanOptions(chunk=chunk)):
            columns = run.columns
            if columns is None or not len(columns):
                continue
            messages = [columns.message(i) for i in range(len(columns))]
            for field in _FIELDS:
                assert getattr(columns, field).tolist() == [getattr(message, field) for message in messages], field
            crcs = [bool(m.body) and body_crc(m.body) != m.body_crc for m in messages]
            assert columns.wrong_crc.tolist() == crcs
            places = [m.physical_offset != at for m, at in zip(messages, columns.offset.tolist(), strict=True)]
            assert columns.elsewhere.tolist() == places
            assert columns.has_tail.tolist() == [m.carries_crc for m in messages]
            queues = [(table.topics[q], table.queue_ids[q]) for q in table.of(columns).tolist()]
            assert queues == [(m.topic, m.queue_id) for m in messages]
            sound += run.count if run.kind is Kind.RECORDS else 0
            assert run.kind is Kind.DIRTY or not any(crcs)
        assert sound > 1


def test_more_queues_than_slots(compiled: native.Native) -> None:
    topics = [b"%x" % (i * i) for i in range(5000)]
    slots = native.QueueSlots(compiled)
    for some in range(0, 5001, 250):
        slots.add(topics[:some], [i % 7 for i in range(some)])
    buf = np.frombuffer(bytearray(b"".join(topics)), dtype=np.uint8)
    length = np.array([len(topic) for topic in topics], dtype=np.int64)
    at = np.cumsum(length) - length
    found, unknown = slots.find(buf, at, length, np.arange(5000) % 7)
    assert unknown == 0
    assert found.tolist() == list(range(5000))
    found, unknown = slots.find(buf, at, length, np.arange(5000) % 7 + 1)
    assert unknown == 5000
    assert set(found.tolist()) == {-1}


@pytest.mark.parametrize("queues", [1, 7, 70_000])
def test_rows_are_grouped_by_queue_in_their_order(queues: int, compiled: native.Native) -> None:
    noise = np.random.default_rng(queues)
    number = noise.integers(0, queues, 5000)
    index, offset, tags = (noise.integers(-(1 << 62), 1 << 62, 5000) for _ in range(3))
    size = noise.integers(0, 1 << 31, 5000)
    order = np.argsort(number, kind="stable")
    for columns in ((index, offset), (index, offset, size, tags)):
        laid = lay_out(number, queues, *columns)
        assert laid.starts == np.searchsorted(number[order], np.arange(queues + 1)).tolist()
        assert laid.index.tolist() == index[order].tolist()
        assert laid.offset.tolist() == offset[order].tolist()
        if len(columns) == 4:
            assert laid.units is not None
            assert laid.units["commitlog_offset"].tolist() == offset[order].tolist()
            assert laid.units["size"].tolist() == size[order].tolist()
            assert laid.units["tags_code"].tolist() == tags[order].tolist()
    for wrong in (-1, queues):
        number[17] = wrong
        with pytest.raises(ValueError, match="out of range"):
            compiled.lay_out(number, queues, index, offset, None, None, None)


def test_a_name_that_occurs_often(compiled: native.Native) -> None:
    text = b"TAGS\x01a\x02" * 200
    buf = np.frombuffer(bytearray(text), dtype=np.uint8)
    start, length = np.array([0], dtype=np.int64), np.array([len(text)], dtype=np.int64)
    found = compiled.texts(buf, start, length, (b"TAGS",), (b"DELAY",))
    assert found.values[0][1].tolist() == [5 + 7 * i for i in range(200)]


def test_bytes_that_must_not_change_are_read_as_well(compiled: native.Native) -> None:
    buf = np.frombuffer(b"hello world", dtype=np.uint8)
    codes, plain = compiled.hashes(buf, np.array([0, 6]), np.array([5, 99]))
    assert codes.tolist() == [99162322, 0]  # "hello".hashCode(); an incomplete span has no hash
    assert plain.tolist() == [True, True]


def test_a_library_that_is_missing_broken_or_of_another_version(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    load = native.load.__wrapped__
    with monkeypatch.context() as patch:
        patch.setattr(native, "LIBRARY", tmp_path / "text.so")
        with pytest.raises(CouldNotCheck, match=r"text\.so"):
            load()
        (tmp_path / "text.so").write_text("no library")
        with pytest.raises(CouldNotCheck, match=r"text\.so"):
            load()
    monkeypatch.setattr(native, "ABI", -1)
    with pytest.raises(CouldNotCheck, match="another version") as error:
        load()
    assert "install" in error.value.advice


@pytest.mark.parametrize("name", ["no_such_function", "zng_adler32_z"])
def test_without_the_crc_function_of_zlib_ng(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "CRC32", name)
    loops = native.load.__wrapped__()
    raw = bytearray(random.Random(1).randbytes(1000))
    stops = np.arange(1001)
    crcs = loops.body_crcs(raw, np.zeros(1001, dtype=np.int64), stops)
    assert crcs.tolist() == [0, *(zlib.crc32(raw[:n]) & 0x7FFFFFFF for n in range(1, 1001))]


@pytest.mark.parametrize(
    "flags", [pytest.param((), id="as built"), pytest.param(("-U__SSE2__",), id="without SSE2", marks=pytest.mark.slow)]
)
def test_no_byte_outside_is_read(flags: tuple[str, ...], tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("there is no C compiler")
    program = tmp_path / "fuzz"
    sanitize = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    words = [compiler, "-g", "-O1", "-std=c11", "-Wall", "-Wextra", "-Werror", *flags, *sanitize, "-o", str(program)]
    made = subprocess.run([*words, str(_HERE / "native_fuzz.c")], capture_output=True, text=True, check=False)
    if made.returncode and ("sanitize" in made.stderr or "asan" in made.stderr):
        pytest.skip("the C compiler has no address sanitizer")
    assert made.returncode == 0, made.stderr
    for seed in seeds(3):
        ran = subprocess.run([str(program), str(seed), "10000"], capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        assert int(ran.stdout) > 10_000


def test_the_library_is_of_this_source(compiled: native.Native) -> None:
    """An editable installation keeps its library when the source changes; the version number shows it."""
    assert f"#define ABI {native.ABI}\n" in (_SOURCES / "bytes.h").read_text()
    library = ctypes.CDLL(str(native.LIBRARY))
    assert library.rmqstore_abi() == native.ABI


def test_either_of_two_numbers_is_found_wherever_it_is(compiled: native.Native) -> None:
    one, other = 0xDAA320A7, 0xDAA320AB
    for at in range(70):
        for number in (one, other):
            buf = bytearray(b"\xda" * at + number.to_bytes(4, "big") + b"\xda\xa3 " * 3)
            found = compiled.find_either(np.frombuffer(buf, np.uint8), len(buf), 0, (one, other))
            assert found == at
            assert compiled.find_either(np.frombuffer(buf, np.uint8), at + 3, 0, (one, other)) == -1
            assert compiled.find_either(np.frombuffer(buf, np.uint8), len(buf), at + 1, (one, other)) == -1
