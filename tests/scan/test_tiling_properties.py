"""A scan covers all bytes exactly once, finds all records outside the damage, and does not depend on splits."""

from __future__ import annotations

import itertools
import random
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqstore.checks.problems import codes
from rmqstore.files.mapped_file_queue import MappedFile, MappedFileQueue
from rmqstore.formats.message import parse_message
from rmqstore.scan.records import scan_file
from rmqstore.scan.tiling import Kind, Run, Tiling
from rmqstore.scan.window import ScanOptions
from rmqstore.scan.workers import SPLIT_SIZE
from tests.seeds import examples
from tests.stores import unpack

LOGS = {
    "plain": ("5.4.0-clean", "commitlog", 0),
    "formats": ("5.4.0-formats", "commitlog", 0),
    "ipv6": ("4.9.7-ipv6", "commitlog", 0),
    "dledger": ("5.1.4-dledger", "dledger-n0/data", 48),
}


def records_of(data: bytes, base: int, body_offset: int) -> dict[int, int]:
    """Return the sizes of all records by physical offset, from an independent walk over sound bytes."""
    out: dict[int, int] = {}
    at = 0
    while at + body_offset < len(data):
        message, _ = parse_message(data, at + body_offset)
        if message is None:
            break
        out[base + at] = message.size + body_offset
        at += message.size + body_offset
    return out


def scan(path: Path, base: int, size: int, body_offset: int, chunk: int = 1 << 20) -> list[Run]:
    file = MappedFile(path, base, path.stat().st_size, size)
    return list(scan_file(file, body_offset=body_offset, options=ScanOptions(chunk=chunk)))


@pytest.mark.parametrize("log", ["plain", "dledger"])
def test_a_chunk_of_sound_records_is_one_run(log: str) -> None:
    name, folder, body_offset = LOGS[log]
    path = min((unpack(name) / folder).glob("0*"))
    runs = scan(path, 0, path.stat().st_size, body_offset, chunk=16 << 10)
    starts = [run.start for run in runs if run.kind is Kind.RECORDS]
    assert len(starts) > 2
    # each run except the last leaves less than two records of its chunk to the next run
    steps = [b - a for a, b in itertools.pairwise(starts)]
    assert min(steps) > 8 << 10, steps


def record_starts(path: Path, base: int, size: int, body_offset: int) -> set[int]:
    """Collect the starts of all good records of a scan, while its chunks are valid."""
    out: set[int] = set()
    file = MappedFile(path, base, path.stat().st_size, size)
    for run in scan_file(file, body_offset=body_offset, options=ScanOptions(chunk=1 << 14)):
        if run.kind is Kind.RECORDS and run.columns is not None:
            out.update((run.columns.offset - body_offset).tolist())
    return out


@pytest.mark.quick_rows
@pytest.mark.parametrize("log", LOGS)
@given(seed=st.integers(0, 2**32), spans=st.integers(1, 4))
@settings(max_examples=25)
def test_damage_is_tiled_and_all_other_records_are_found(log: str, seed: int, spans: int, tmp_path: Path) -> None:
    name, folder, body_offset = LOGS[log]
    noise = random.Random(seed)
    source = sorted((unpack(name) / folder).iterdir())[noise.randrange(3)]
    data = bytearray(source.read_bytes())
    base, size = int(source.name), len(data)
    sound = records_of(bytes(data), base, body_offset)
    damaged: list[tuple[int, int]] = []
    for _ in range(spans):
        at = noise.randrange(size - 600)
        length = noise.choice((1, 3, 20, 200, 500))
        for i in range(at, at + length):
            data[i] ^= noise.randrange(1, 256)
        damaged.append((base + at, base + at + length))
    path = tmp_path / source.name
    path.write_bytes(data)

    runs = scan(path, base, size, body_offset)
    assert runs[0].start == base
    assert runs[-1].stop == base + size
    assert all(a.stop == b.start for a, b in itertools.pairwise(runs))

    found = record_starts(path, base, size, body_offset)
    untouched = {
        start for start, n in sound.items() if not any(start < stop and begin < start + n for begin, stop in damaged)
    }
    blank = max(start + n for start, n in sound.items())
    in_blank = any(begin < blank + 8 and blank < stop for begin, stop in damaged)
    assert untouched <= found, sorted(untouched - found)
    touched = set(sound) - untouched
    # a record that is found and was not sound can only be one with undetectable damage
    assert found <= untouched | touched or in_blank


@given(data=st.binary(min_size=0, max_size=3000), body_offset=st.sampled_from([0, 48]))
@settings(max_examples=examples(150))
def test_any_bytes_are_tiled_exactly(data: bytes, body_offset: int, tmp_path: Path) -> None:
    path = tmp_path / "00000000000000004096"
    path.write_bytes(data)
    runs = scan(path, 4096, 4096, body_offset, chunk=512)
    tiling = Tiling(4096)
    tiling.extend(Run(r.kind, r.start, r.stop, r.count, r.cause, r.claimed) for r in runs)
    assert tiling.stop == 4096 + 4096
    assert sum(r.stop - r.start for r in runs) == 4096
    assert all(r.kind is Kind.HOLE for r in runs if r.start >= 4096 + len(data))


@pytest.mark.parametrize("log", LOGS)
def test_chunk_size_does_not_change_the_runs(log: str) -> None:
    name, folder, body_offset = LOGS[log]
    for source in sorted((unpack(name) / folder).iterdir())[:3]:
        base, size = int(source.name), source.stat().st_size

        def tiling(
            chunk: int, source: Path = source, base: int = base, size: int = size, body_offset: int = body_offset
        ) -> list[Run]:
            t = Tiling(base)
            t.extend(Run(r.kind, r.start, r.stop, r.count) for r in scan(source, base, size, body_offset, chunk))
            return list(t)

        assert tiling(200) == tiling(4096) == tiling(1 << 20)


BY_NEIGHBOURS = {codes.CL_STORE_TIME, codes.CL_TIME_BACK}
"""Found by comparing a record with two others of its split; the smallest splits here have one record."""


@given(seed=st.integers(0, 2**32))
@settings(max_examples=12)
def test_splits_and_jobs_do_not_change_the_answer(seed: int, tmp_path: Path) -> None:
    from rmqstore.checks.log.commitlog import PassWork, read_log
    from rmqstore.checks.log.findings import check_log
    from rmqstore.checks.log.log_pass import PassOptions
    from rmqstore.checks.problems.report import Findings

    noise = random.Random(seed)
    folder = tmp_path / f"s{seed}"
    folder.mkdir(exist_ok=True)
    for source in sorted((unpack("5.1.4-clean") / "commitlog").iterdir())[:3]:
        data = bytearray(source.read_bytes())
        for _ in range(2):
            at, length = noise.randrange(len(data) - 5000), noise.choice((1, 40, 5000))
            data[at : at + length] = noise.randbytes(length) if noise.random() < 0.5 else bytes(length)
        (folder / source.name).write_bytes(data)
    queue = MappedFileQueue.open("commitlog", [folder], default=1 << 30)

    def answer(split_size: int, jobs: int) -> object:
        findings = Findings()
        options = PassOptions(folder, (), ScanOptions(), crosscheck=False)
        result = read_log(queue, options, findings, work=PassWork(jobs, split_size))
        check_log(result, findings)
        kept = [f for f in findings.listed if f.code not in BY_NEIGHBOURS]
        listed = sorted((f.code, f.offset, f.length, tuple(sorted(f.facts.items(), key=str))) for f in kept)
        counts = {code: n for code, n in findings.counts.items() if code not in BY_NEIGHBOURS}
        return listed, counts, list(result.tiling), result.messages, result.wrote

    whole = answer(SPLIT_SIZE, 1)
    assert answer(1000, 1) == whole
    assert answer(7777, 1) == whole
    if seed % 4 == 0:
        assert answer(8192, 2) == whole


def test_a_record_longer_than_the_chunk_is_one_record(tmp_path: Path) -> None:
    from rmqstore.formats.message import build_message

    big = build_message(topic="T", body=b"x" * 300_000, physical_offset=0)
    small = build_message(topic="T", body=b"y", physical_offset=len(big))
    path = tmp_path / "00000000000000000000"
    path.write_bytes((big + small).ljust(1 << 20, b"\0"))
    runs = scan(path, 0, 1 << 20, 0, chunk=4096)
    assert [(r.kind, r.start, r.stop) for r in runs] == [
        (Kind.RECORDS, 0, len(big)),
        (Kind.RECORDS, len(big), len(big) + len(small)),
        (Kind.ZERO, len(big) + len(small), 1 << 20),
    ]


def test_a_huge_size_field_does_not_cost_memory(tmp_path: Path) -> None:
    from rmqstore.formats.message import HEAD, build_message

    record = bytearray(build_message(topic="T", body=b"x" * 100))
    record[: HEAD.at("magic")] = (900 << 20).to_bytes(4, "big")
    path = tmp_path / "00000000000000000000"
    with path.open("wb") as f:
        f.write(record)
        f.truncate(1 << 30)
    file = MappedFile(path, 0, 1 << 30, 1 << 30)
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    runs = list(scan_file(file))
    assert [r.kind for r in runs] == [Kind.DIRTY, Kind.ZERO]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000


def test_stale_records_after_a_blank_are_not_found(tmp_path: Path) -> None:
    from rmqstore.formats.message import build_blank, build_message

    first = build_message(topic="T", body=b"x", physical_offset=0)
    size = 4096
    blank = build_blank(size - len(first))
    at = len(first) + len(blank)
    stale = build_message(topic="T", body=b"old", physical_offset=at)
    path = tmp_path / "00000000000000000000"
    path.write_bytes((first + blank + stale).ljust(size, b"\0"))
    runs = scan(path, 0, size, 0)
    assert [(r.kind, r.start, r.stop) for r in runs] == [(Kind.RECORDS, 0, len(first)), (Kind.BLANK, len(first), size)]


def test_partial_is_kept_importable() -> None:
    """Workers receive `scan_split`, so it must be a module-level function that can be pickled with its options."""
    import pickle

    from rmqstore.checks.log.log_pass import PassOptions, scan_split

    job = partial(scan_split, options=PassOptions(Path("x"), (), ScanOptions()))
    assert pickle.loads(pickle.dumps(job)).keywords == job.keywords
