"""Generated stores, read back with the layouts byte by byte, are what a broker would have written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.generate import generate, parse_size
from benchmarks.parts import Made, Options, body_lengths
from rmqstore.formats import checkpoint, consumequeue, dledger, index, message
from rmqstore.formats.message import Fault, Message, check_message, parse_message
from tests.untouched import file_bytes

FILE_SIZE = 16 << 10
CQ_FILE_SIZE = 15 * consumequeue.UNIT.size
SLOTS, UNITS = 50, 200
SIZE = 110_000


def options(out: Path) -> Options:
    """Return the options of a store with seven small files, and with mixed body sizes and topics."""
    return Options(
        out,
        SIZE,
        body="0,1-700*6,1500",
        topics=3,
        queues=2,
        tags=3,
        file_size=FILE_SIZE,
        cq_file_size=CQ_FILE_SIZE,
        index=True,
        index_slots=SLOTS,
        index_units=UNITS,
    )


def log(folder: Path, body_offset: int = 0) -> list[tuple[int, Message]]:
    """Check and return all messages of a log in order; every file except the last has to end with a BLANK."""
    found: list[tuple[int, Message]] = []
    files = sorted(folder.iterdir())
    for number, file in enumerate(files):
        data, start = file.read_bytes(), int(file.name)
        assert len(data) == FILE_SIZE
        assert start == number * FILE_SIZE
        at = 0
        while True:
            parsed, _ = parse_message(data, at + body_offset)
            if parsed is None:
                break
            assert check_message(parsed, start + at + body_offset) == Fault.NONE
            found.append((start + at, parsed))
            at += body_offset + parsed.size
        left = FILE_SIZE - at
        if file == files[-1]:
            assert data[at:] == b"\0" * left
        else:
            blank = dledger.BLANK if body_offset else message.BLANK
            assert data[at:] == blank.build(size=left).ljust(left, b"\0")
    return found


def properties(parsed: Message) -> dict[str, str]:
    """Return the properties of a message as a dict."""
    text = parsed.properties.decode()
    assert text.endswith("\x02")
    return dict(pair.split("\x01") for pair in text[:-1].split("\x02"))


def java(text: str) -> int:
    """Compute String.hashCode of an ASCII text, independently of `rmqstore`."""
    value = 0
    for character in text:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def units(root: Path) -> dict[str, list[tuple[int, int, int]]]:
    """Return the consume queue units by topic and queue, up to the first zero unit."""
    out: dict[str, list[tuple[int, int, int]]] = {}
    for queue in (root / "consumequeue").glob("*/*"):
        data = b""
        for file in sorted(queue.iterdir()):
            assert int(file.name) == len(data)
            data += file.read_bytes()
        assert len(data) % CQ_FILE_SIZE == 0
        rows = [tuple(row) for row in consumequeue.UNIT.array(data).tolist()]
        used = [row for row in rows if any(row)]
        assert rows == used + [(0, 0, 0)] * (len(rows) - len(used))
        out[f"{queue.parent.name}/{queue.name}"] = used
    return out


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Made]:
    """A plain store, shared by the tests that only read it."""
    root = tmp_path_factory.mktemp("generated") / "store"
    return root, generate(options(root))


def test_every_byte_of_the_log_is_a_good_record_or_a_blank(plain: tuple[Path, Made]) -> None:
    root, made = plain
    found = log(root / "commitlog")
    assert len(found) == made.messages > 100
    assert found[-1][0] + found[-1][1].size == made.wrote
    assert SIZE - FILE_SIZE < made.wrote <= SIZE
    assert made.files == len(list((root / "commitlog").iterdir())) == 7
    assert {m.magic for _, m in found} == {message.MAGIC_V1}
    assert any(m.body_length == 0 and m.body_crc == 0 for _, m in found)
    assert any(m.body_length == 1500 for _, m in found)


def test_consume_queues_hold_exactly_the_messages(plain: tuple[Path, Made]) -> None:
    root, made = plain
    expected: dict[str, list[tuple[int, int, int]]] = {}
    for offset, m in log(root / "commitlog"):
        queue = expected.setdefault(f"{m.topic_text}/{m.queue_id}", [])
        assert m.queue_offset == len(queue)
        queue.append((offset, m.size, java(properties(m)["TAGS"])))
    assert units(root) == expected
    assert {q: len(u) for q, u in expected.items()} == made.queues


def test_properties_are_unique_and_about_as_long_as_requested(plain: tuple[Path, Made]) -> None:
    found = [m for _, m in log(plain[0] / "commitlog")]
    assert {len(m.properties) for m in found} == {120}
    assert list(properties(found[0])) == ["UNIQ_KEY", "CLUSTER", "TAGS", "KEYS", "WAIT", "note"]
    assert len({properties(m)["UNIQ_KEY"] for m in found}) == len(found)
    assert properties(found[17])["KEYS"] == "order000000000017"
    assert len({properties(m)["TAGS"] for m in found}) == 3


def test_index_files_lead_from_every_key_to_the_message(plain: tuple[Path, Made]) -> None:
    root, made = plain
    files = sorted((root / "index").iterdir())
    assert len(files) == made.index_files == -(-3 * made.messages // (UNITS - 1))
    where: dict[int, set[int]] = {}
    total = 0
    for file in files:
        data = file.read_bytes()
        assert len(data) == index.file_size(SLOTS, UNITS)
        header = index.HEADER.parse(data)
        seen = used = 0
        for slot in range(SLOTS):
            number = index.SLOT.parse(data, index.slot_at(slot))["newest"]
            used += number > 0
            while number:
                unit = index.UNIT.parse(data, index.unit_at(number, SLOTS))
                assert index.slot_of(unit["key_hash"], SLOTS) == slot
                assert unit["prev_index"] < number
                where.setdefault(unit["key_hash"], set()).add(unit["phy_offset"])
                number, seen = unit["prev_index"], seen + 1
        assert header["index_count"] == seen + 1
        assert header["hash_slot_count"] == used
        total += seen
    assert total == 3 * made.messages
    for offset, m in log(root / "commitlog"):
        for key in (properties(m)["UNIQ_KEY"], properties(m)["KEYS"], "T#" + properties(m)["TAGS"]):
            assert offset in where[abs(java(f"{m.topic_text}#{key}"))]


def test_small_files_are_those_of_a_clean_shutdown(plain: tuple[Path, Made]) -> None:
    root, _ = plain
    last = log(root / "commitlog")[-1][1].store_timestamp
    data = (root / "checkpoint").read_bytes()
    assert len(data) == checkpoint.FILE_SIZE
    stored = checkpoint.STORE_CHECKPOINT.parse(data)
    assert stored["physic_msg_timestamp"] == stored["logics_msg_timestamp"] == last
    assert (root / "lock").read_bytes() == b"lock"
    assert not (root / "abort").exists()


def test_same_seed_gives_the_same_bytes_and_another_seed_others(plain: tuple[Path, Made], tmp_path: Path) -> None:
    generate(options(tmp_path / "again"))
    generate(replace(options(tmp_path / "other"), seed=2))
    assert file_bytes(tmp_path / "again") == file_bytes(plain[0])
    assert file_bytes(tmp_path / "other") != file_bytes(plain[0])


def test_v2_records_with_ipv6_hosts_are_good(tmp_path: Path) -> None:
    made = generate(replace(options(tmp_path / "store"), v2=True, ipv6=True, index=False))
    found = [m for _, m in log(tmp_path / "store" / "commitlog")]
    assert len(found) == made.messages
    assert {m.magic for m in found} == {message.MAGIC_V2}
    assert {m.sys_flag for m in found} == {message.BORN_HOST_V6 | message.STORE_HOST_V6}
    assert message.host_text(found[0].store_host) == "[2001:db8::1]:10911"
    assert min(len(m.topic) for m in found) > message.MAX_TOPIC_V1


def test_dledger_entries_and_index_belong_together(tmp_path: Path) -> None:
    root = tmp_path / "store"
    made = generate(replace(options(root), dledger=True, index=False))
    group = root / "dledger-n0"
    found = log(group / "data", body_offset=dledger.ENTRY.size)
    assert len(found) == made.messages
    numbers = dledger.INDEX_UNIT.array((group / "index" / f"{0:020d}").read_bytes()[: 1 << 20])
    for number, (pos, m) in enumerate(found):
        data = (group / "data" / f"{pos // FILE_SIZE * FILE_SIZE:020d}").read_bytes()
        entry = dledger.ENTRY.parse(data, pos % FILE_SIZE)
        wanted = {"magic": dledger.MAGIC, "index": number, "pos": pos, "term": 0, "body_length": m.size}
        assert {k: entry[k] for k in wanted} == wanted
        assert entry["size"] == m.size + dledger.ENTRY.size
        unit = {name: int(numbers[name][number]) for name in ("magic", "pos", "size", "index", "term")}
        assert unit == {name: entry[name] for name in unit}
    assert not numbers[len(found) :]["magic"].any()
    assert f"committedIndex={made.messages - 1}" in (group / "checkpoint").read_text()
    first = units(root)[f"{found[0][1].topic_text}/{found[0][1].queue_id}"][0]
    assert first[:2] == (dledger.ENTRY.size, found[0][1].size)


def test_output_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    with pytest.raises(FileExistsError):
        generate(options(tmp_path))
    assert [p.name for p in tmp_path.iterdir()] == ["mine"]


def test_sizes_and_distributions_are_read_as_written() -> None:
    import numpy as np

    assert [parse_size(t) for t in ("7", "64K", "1G", "2GiB")] == [7, 65536, 1 << 30, 2 << 30]
    drawn = body_lengths("10*9,20-22", 4000, np.random.default_rng(1))
    assert set(drawn.tolist()) == {10, 20, 21, 22}
    assert 3400 < int((drawn == 10).sum()) < 3800
    with pytest.raises(ValueError, match="not a body size"):
        body_lengths("many", 1, np.random.default_rng(1))
