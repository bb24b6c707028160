"""The C loops: equal to NumPy on any bytes, no access outside the buffer, and replaced by NumPy when not available."""

from __future__ import annotations

import ctypes
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rmqstore.files.mapped_file_queue import MappedFile
from rmqstore.files.store import open_store
from rmqstore.scan import native
from rmqstore.scan.dispatch import QueueTable
from rmqstore.scan.properties import PropertyTexts, read_texts
from rmqstore.scan.records import scan_file
from rmqstore.scan.tiling import Kind
from rmqstore.scan.units import lay_out
from rmqstore.scan.window import ScanOptions
from tests.seeds import seeds
from tests.stores import copy_store

_HERE = Path(__file__).parent
_SOURCES = Path(native.__file__).with_name("loops")
_COLUMNS = (
    *("at", "size", "queue_id", "queue_offset", "sys_flag", "store_timestamp", "body_at", "body_length", "wide"),
    *("topic_at", "topic_length", "properties_at", "properties_length", "wrong_crc", "elsewhere", "has_tail"),
)


@pytest.fixture(scope="module", autouse=True)
def loops() -> None:
    """Override the fixture of the package: these tests choose the loops themselves."""


@pytest.fixture
def compiled() -> native.Native:
    found = native.load()
    if found is None:
        pytest.skip("rmqstore was installed without a C compiler")
    return found


def _seen(file: MappedFile, body_offset: int, options: ScanOptions) -> list[Any]:
    """Return the whole result of a scan of a file."""
    out: list[Any] = []
    table = QueueTable()
    for run in scan_file(file, body_offset=body_offset, options=options):
        out.append((run.kind, run.start, run.stop, run.count, run.cause, run.claimed))
        columns = run.columns
        if columns is None:
            continue
        out.append([getattr(columns, name).tolist() for name in _COLUMNS])
        out.append((columns.port_tops != 0).tolist())
        if run.kind is Kind.RECORDS:
            texts = PropertyTexts(columns)
            read = read_texts(columns, texts=texts)
            values = [sorted(np.stack(texts.values(name)).T.tolist()) for name in (b"TAGS", b"KEYS", b"UNIQ_KEY")]
            out.append((texts.odd.tolist(), values, [texts.holds(byte) for byte in (0, 1, 32, 126, 200)]))
            out.append((read.tags_code.tolist(), read.faults, read.fan_out, read.parsed))
            out.append([(table.topics[q], table.queue_ids[q]) for q in table.of(columns).tolist()])
    return out


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


@pytest.mark.parametrize("name", ["5.4.0-formats", "5.1.4-formats", "4.9.7-ipv6", "5.4.0-dledger"])
def test_c_and_numpy_say_the_same_of_damaged_logs(name: str, tmp_path: Path, compiled: native.Native) -> None:
    rng = random.Random(name)
    for turn in range(6):
        path = copy_store(name, tmp_path / str(turn))
        store = open_store(path)
        log, body_offset = (store.dledger.data, 48) if store.dledger is not None else (store.commitlog, 0)
        assert log is not None
        file = log.files[0]
        wrote = len(file.path.read_bytes().rstrip(b"\0"))
        if turn:
            _damage(file.path, rng, wrote)
        options = ScanOptions(crc=turn != 3, chunk=(2 << 20, 4096, 30_000)[turn % 3])
        by_c = _seen(file, body_offset, options)
        without_crc = native.Native(ctypes.CDLL(str(native.LIBRARY)), None)
        for other in (None, without_crc):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(native, "load", lambda other=other: other)
                by_other = _seen(file, body_offset, options)
            assert len(by_c) == len(by_other) > 1
            for ours, theirs in zip(by_c, by_other, strict=True):
                assert ours == theirs


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
def test_rows_are_laid_out_alike(queues: int, compiled: native.Native) -> None:
    noise = np.random.default_rng(queues)
    number = noise.integers(0, queues, 5000)
    index, offset, tags = (noise.integers(-(1 << 62), 1 << 62, 5000) for _ in range(3))
    size = noise.integers(0, 1 << 31, 5000)
    for columns in ((index, offset), (index, offset, size, tags)):
        by_c = lay_out(number, queues, *columns)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(native, "load", lambda: None)
            by_numpy = lay_out(number, queues, *columns)
        assert by_c.starts == by_numpy.starts
        assert by_c.index.tolist() == by_numpy.index.tolist()
        assert by_c.offset.tolist() == by_numpy.offset.tolist()
        if len(columns) == 4:
            assert by_c.units is not None
            assert by_numpy.units is not None
            assert by_c.units.tobytes() == by_numpy.units.tobytes()
    for wrong in (-1, queues):
        number[17] = wrong
        assert compiled.lay_out(number, queues, index, offset, None, None, None) is None


def test_values_beyond_their_room_are_left_to_numpy(compiled: native.Native) -> None:
    text = b"TAGS\x01a\x02" * 200
    buf = np.frombuffer(bytearray(text), dtype=np.uint8)
    span = np.array([0], dtype=np.int64), np.array([len(text)], dtype=np.int64)
    assert compiled.texts(buf, *span, (b"TAGS",), (b"DELAY",)) is None
    few = compiled.texts(buf, span[0], span[1] // 10, (b"TAGS",), (b"DELAY",))
    assert few is not None
    assert few.values[0][1].tolist() == [5 + 7 * i for i in range(20)]


def test_bytes_that_must_not_change_are_read_as_well(compiled: native.Native) -> None:
    buf = np.frombuffer(b"hello world", dtype=np.uint8)
    codes, plain = compiled.hashes(buf, np.array([0, 6]), np.array([5, 99]))
    assert codes.tolist() == [99162322, 0]  # "hello".hashCode(); an incomplete span has no hash
    assert plain.tolist() == [True, True]


def test_numpy_does_the_work_where_the_library_is_off_missing_broken_or_of_another_version(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    load = native.load.__wrapped__
    monkeypatch.setenv("RMQSTORE_FAST", "0")
    assert load() is None
    monkeypatch.delenv("RMQSTORE_FAST")
    monkeypatch.setattr(native, "LIBRARY", tmp_path / "text.so")
    assert load() is None
    (tmp_path / "text.so").write_text("no library")
    assert load() is None
    monkeypatch.undo()
    monkeypatch.setattr(native, "ABI", -1)
    assert load() is None


def test_a_crc_function_that_is_not_there_or_wrong(monkeypatch: pytest.MonkeyPatch, compiled: native.Native) -> None:
    load = native.load.__wrapped__
    with monkeypatch.context() as patch:
        patch.setattr(native, "CRC32", "no_such_function")
        found = load()
        assert found is not None
        assert not found.has_crcs
    with monkeypatch.context() as patch:
        patch.setattr(native, "CRC32", "zng_adler32_z")
        found = load()
        assert found is not None
        assert not found.has_crcs
    if compiled.has_crcs:
        assert load() is not None


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


def test_either_of_two_numbers_is_found_wherever_it_is() -> None:
    loops = native.load()
    if loops is None or not loops.finds:
        pytest.skip("this build of the loops does not have it")
    one, other = 0xDAA320A7, 0xDAA320AB
    for at in range(70):
        for number in (one, other):
            buf = bytearray(b"\xda" * at + number.to_bytes(4, "big") + b"\xda\xa3 " * 3)
            found = loops.find_either(np.frombuffer(buf, np.uint8), len(buf), 0, (one, other))
            assert found == at
            assert loops.find_either(np.frombuffer(buf, np.uint8), at + 3, 0, (one, other)) == -1
            assert loops.find_either(np.frombuffer(buf, np.uint8), len(buf), at + 1, (one, other)) == -1
