"""A single flipped bit in a body is found by its CRC, and the body is restored; other damage gets a filler."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rmqstore.append.encoder import NewMessage
from rmqstore.append.message_store import MessageStore
from rmqstore.formats.crcbits import flip_bits, flipped_bits
from rmqstore.formats.message import HEAD, HEADS_BY_FLAG, body_crc, build_message, parse_message
from rmqstore.repair.salvage.candidates import unflip_beside_body, unflip_body
from tests import damage
from tests.append.writing import FIRST_TIME, OPTIONS
from tests.command import run, run_json
from tests.repair.salvaging import Row, pick, rows
from tests.seeds import fresh, seeds
from tests.stores import copy_store, unpack

JOURNAL = ".rmqstore"
STORES = (
    "4.9.7-clean",
    "5.4.0-clean",
    "4.9.7-dledger",
    "5.4.0-dledger",
    "5.1.4-formats",
    "5.4.0-formats",
    "5.4.0-ipv6",
)
COMPRESSED, BATCH = 1, 0xC0
HALVES = (5205, 1), (11450, 0)
"""Two bits, (bytes behind it, bit), whose flips change the lower 31 bits of a CRC-32 in the same way."""


class Flip(NamedTuple):
    row: Row
    at: int
    bit: int


def body_at(row: Row) -> int:
    """Return the position of the body in its record."""
    return HEADS_BY_FLAG[row.message.sys_flag & 0x30].size


def has_body(row: Row) -> bool:
    return len(row.message.body) > 2


def chosen(store: Path, seed: int, count: int) -> list[Row]:
    """Choose records that are not adjacent and not the last ones, which would be a torn end that a broker truncates."""
    found = [row for row in rows(store)[:-5:2] if has_body(row)]
    return sorted(random.Random(seed).sample(found, count), key=lambda row: row.offset)


def flip_one(row: Row, noise: random.Random) -> Flip:
    at, bit = body_at(row) + noise.randrange(len(row.message.body)), noise.randrange(8)
    damage.flip(row.path, row.at + at, bit)
    return Flip(row, at, bit)


def expected(flip: Flip) -> dict[str, object]:
    """Return the facts that a plan lists about a flip."""
    topic, queue_id, queue_offset = flip.row.slot
    return {
        "offset": flip.row.offset,
        "topic": topic,
        "queue_id": queue_id,
        "queue_offset": queue_offset,
        "at": flip.at,
        "bit": flip.bit,
        "mask": 1 << flip.bit,
        "odds": 8 * len(flip.row.message.body) / 2**31,
        "crc": "body",
    }


def recover(store: Path, *options: str) -> Mapping[str, Any]:
    return run_json("recover", str(store), "--apply", *options, exit_code=0)


def files(store: Path) -> dict[str, bytes]:
    """Return the bytes of all files by name."""
    found = sorted(path for path in store.rglob("*") if path.is_file())
    return {str(p.relative_to(store)): p.read_bytes() for p in found if JOURNAL not in p.parts}


def stored_crc(row: Row, value: int) -> None:
    damage.overwrite(row.path, row.at + HEAD.at("body_crc"), value.to_bytes(4, "big"))


def claim(row: Row, body: bytes, at: int, bit: int) -> None:
    """Write a body into a record, with the CRC of that body with one bit flipped."""
    other = bytearray(body)
    other[at] ^= 1 << bit
    place = row.at + body_at(row)
    if row.path.read_bytes()[place : place + len(body)] != body:
        damage.overwrite(row.path, place, body)
    stored_crc(row, body_crc(bytes(other)))


@pytest.mark.quick_rows(2)
@pytest.mark.parametrize("name", STORES)
def test_every_mended_record_has_its_original_bytes_and_undo_takes_it_back(name: str, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    before = files(store)
    noise = random.Random(f"flips in {name}")
    flips = [flip_one(row, noise) for row in chosen(store, 3, 12)]
    damaged = files(store)
    answer = recover(store)
    assert (answer["loss"]["messages"], answer["loss"]["visible_fillers"]) == (0, 0)
    assert answer["facts"]["mended"] == [expected(flip) for flip in flips]
    assert files(store) == before
    assert {step["do"] for step in answer["steps"]} == {"overwrite"}
    assert len(answer["steps"]) == len(flips)
    run_json("verify", str(store), exit_code=0)
    run_json("undo", answer["journal"], exit_code=0)
    assert files(store) == damaged


@pytest.mark.quick_rows(2)
@pytest.mark.parametrize(
    ("what", "number"), [("zlib", 3), ("lz4", 1), ("zstd", 2), ("batch", 0), ("record crc", 0), ("v2", 0)]
)
def test_records_of_every_kind_are_mended(what: str, number: int, tmp_path: Path) -> None:
    def wanted(row: Row) -> bool:
        flag = row.message.sys_flag
        kinds = {
            "batch": bool(flag & BATCH),
            "record crc": row.message.carries_crc,
            "v2": row.message.magic != first.message.magic,
        }
        return has_body(row) and kinds.get(what, bool(flag & COMPRESSED) and flag >> 8 & 7 == number)

    store = copy_store("5.4.0-formats", tmp_path)
    first = rows(store)[0]
    before = files(store)
    flip = flip_one(pick(store, wanted, 1), random.Random(what))
    answer = recover(store)
    assert answer["facts"]["mended"] == [expected(flip)]
    assert files(store) == before


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("name", ["5.4.0-clean", "5.4.0-dledger", "5.4.0-formats"])
def test_several_wrong_bytes_get_a_filler(name: str, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    noise = random.Random(f"garbled {name}")
    damaged = chosen(store, 5, 20)
    for row in damaged:
        body = len(row.message.body)
        length = noise.randint(2, min(32, body))
        damage.garble(row.path, row.at + body_at(row) + noise.randint(0, body - length), length, noise.randrange(99))
    answer = recover(store)
    assert answer["loss"]["messages"] == len(damaged)
    assert "mended" not in answer["facts"]


def test_no_false_repair_in_random_damage_and_every_flip_is_found() -> None:
    noise = random.Random(17)
    mended = 0
    for _ in range(3000):
        body = noise.randbytes(noise.randint(16, 400))
        raw = build_message(topic="T", body=body)
        at = HEAD.size + noise.randrange(len(body))
        flipped = raw[:at] + bytes([raw[at] ^ 1 << noise.randrange(8)]) + raw[at + 1 :]
        found = unflip_body(flipped, parsed(flipped))
        mended += found is not None and found.record == raw
        length = noise.randint(2, 16)
        at = HEAD.size + noise.randint(0, len(body) - length)
        noisy = bytes(byte ^ noise.randrange(1, 256) for byte in raw[at : at + length])
        garbled = raw[:at] + noisy + raw[at + length :]
        assert unflip_body(garbled, parsed(garbled)) is None
    assert mended == 3000


def parsed(raw: bytes) -> Any:
    message, _ = parse_message(raw)
    assert message is not None
    return message


def test_flipped_bit_in_the_stored_crc_is_put_right(store: Path) -> None:
    before = files(store)
    for bit, row in enumerate(chosen(store, 31, 31)):
        damage.flip(row.path, row.at + HEAD.at("body_crc") + 3 - bit // 8, bit % 8)
    answer = recover(store)
    assert answer["loss"]["messages"] == 0
    assert files(store) == before


def test_two_bits_that_both_explain_the_crc_are_ambiguous() -> None:
    body = random.Random(1).randbytes(12_000)
    raw = build_message(topic="T", body=body)
    for behind, bit in HALVES:
        at = HEAD.size + len(body) - 1 - behind
        flipped = raw[:at] + bytes([raw[at] ^ 1 << bit]) + raw[at + 1 :]
        assert body_crc(parsed(flipped).body) != parsed(flipped).body_crc
        assert unflip_body(flipped, parsed(flipped)) is None
        other = raw[:at] + bytes([raw[at] ^ 1 << bit + 2]) + raw[at + 1 :]
        found = unflip_body(other, parsed(other))
        assert found is not None
        assert found.record == raw


def test_compressed_body_that_would_not_decompress_gets_a_filler(store: Path) -> None:
    row = pick(store, lambda r: bool(r.message.sys_flag & COMPRESSED) and len(r.message.body) > 200, 4)
    body = bytearray(row.message.body)
    for i in range(4):
        body[i] ^= 0xA5
    claim(row, bytes(body), 100, 3)
    answer = recover(store)
    assert (answer["loss"]["messages"], "mended" in answer["facts"]) == (1, False)


def test_unknown_compression_gets_a_filler() -> None:
    body = b"x" * 50
    raw = bytearray(build_message(topic="T", body=body, sys_flag=COMPRESSED | 5 << 8))
    raw[HEAD.size + 10] ^= 4
    assert unflip_body(bytes(raw), parsed(bytes(raw))) is None


@pytest.mark.parametrize(("bit", "mended"), [(7, 0), (0, 1)])
def test_text_that_would_become_invalid_gets_a_filler(bit: int, mended: int, tmp_path: Path) -> None:
    def text(row: Row) -> bool:
        body = row.message.body
        return not row.message.sys_flag & COMPRESSED and len(body) > 50 and all(32 <= byte < 127 for byte in body)

    store = copy_store("5.4.0-clean", tmp_path)
    row = pick(store, text, 12)
    place = next(i for i, byte in enumerate(row.message.body) if chr(byte).isalnum())
    claim(row, row.message.body, place, bit)
    answer = recover(store)
    assert answer["loss"]["messages"] == 1 - mended
    assert len(answer["facts"].get("mended", [])) == mended


def large_store(path: Path, length: int) -> Row:
    """Create a store with one large body of random bytes, and return its record."""
    noise = random.Random(length)
    body = noise.randbytes(length)
    options = replace(OPTIONS, commitlog_file_size=1 << 16)
    with MessageStore.create(path, options) as store:
        for number in range(700):
            text = f"UNIQ_KEY\x01{number:032X}\x02".encode()
            store.put(
                NewMessage(
                    "T", body if number == 4 else noise.randbytes(500), text, 0, store_timestamp=FIRST_TIME + number
                )
            )
    return pick(path, lambda row: len(row.message.body) == length)


def test_ambiguous_flip_in_a_store_gets_a_filler(tmp_path: Path) -> None:
    row = large_store(tmp_path / "store", 12_000)
    behind, bit = HALVES[0]
    damage.flip(row.path, row.at + HEAD.size + 11_999 - behind, bit)
    answer = recover(tmp_path / "store")
    assert (answer["loss"]["messages"], "mended" in answer["facts"]) == (1, False)


@pytest.mark.parametrize("accept", [False, True])
def test_large_body_is_mended_with_the_option_only(accept: bool, tmp_path: Path) -> None:
    store = tmp_path / "store"
    row = large_store(store, 30_000)
    before = files(store)
    flip = flip_one(row, random.Random(1))
    answer = recover(store, *["--accept-odds"] * accept)
    assert answer["loss"]["messages"] == 1 - accept
    assert answer["facts"].get("mended", []) == [expected(flip)] * accept
    assert (files(store) == before) is accept


@pytest.mark.parametrize(("length", "accepted"), [(26_843, True), (26_844, False)])
def test_odds_over_1_in_10_000_need_the_option(length: int, accepted: bool) -> None:
    raw = bytearray(build_message(topic="T", body=random.Random(length).randbytes(length)))
    raw[HEAD.size + 70] ^= 16
    damaged = bytes(raw)
    raw[HEAD.size + 70] ^= 16
    found = unflip_body(damaged, parsed(damaged))
    assert (found is not None) is accepted
    found = unflip_body(damaged, parsed(damaged), accept_odds=True)
    assert found is not None
    assert found.record == raw


def test_plan_contains_the_number_of_flips_and_the_odds(store: Path) -> None:
    noise = random.Random(9)
    flips = [flip_one(row, noise) for row in chosen(store, 9, 2)]
    least = 2**31 / (8 * max(len(flip.row.message.body) for flip in flips))
    result = run("recover", str(store))
    assert result.exit_code == 1
    assert (
        "Mended: 2 messages (one flipped bit each: the only bit that makes the CRC fit; odds of a false match at most "
        f"1 in {least:,.0f})" in result.stdout
    )


@pytest.mark.quick_rows(2)
@pytest.mark.parametrize("name", ["4.9.7-clean", "5.1.4-clean", "5.4.0-clean", "5.4.0-killed"])
def test_index_and_queues_of_a_mended_body_are_not_written(name: str, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    steps = {step["path"] for step in run_json("recover", str(store), "--only", "CL-BODY-CRC", exit_code=0)["steps"]}  # type: ignore[attr-defined]
    assert steps == set()
    flip = flip_one(pick(store, has_body, 30), random.Random(4))
    answer = recover(store, "--only", "CL-BODY-CRC")
    assert [step["path"] for step in answer["steps"]] == [f"commitlog/{flip.row.path.name}"]


@pytest.mark.parametrize("stored", [-(1 << 31), -11, 1 << 31, 9_999_999_999])
def test_a_stored_crc_with_more_than_31_bits_names_no_bit(stored: int) -> None:
    assert flipped_bits(40, stored, 0x1234567) == []


@pytest.mark.parametrize("bits", [(31,), (31, 30), (31, 3)])
def test_a_damaged_stored_body_crc_is_no_reason_to_fail(bits: tuple[int, ...], store: Path) -> None:
    """One wrong bit of the stored CRC is corrected; with more wrong bits, nothing proves the body."""
    row = pick(store, lambda r: r.slot[0].startswith("Order") and len(r.message.body) > 40)
    for bit in bits:
        damage.flip(row.path, row.at + HEAD.at("body_crc") + 3 - bit // 8, bit % 8)
    plan = run_json("recover", str(store), "--role", "single", exit_code=1)
    assert plan["loss"]["messages"] == (0 if len(bits) == 1 else 1)  # type: ignore[index]


# --- one wrong byte -----------------------------------------------------------------------------------------------


def wrong_byte(row: Row, at: int, mask: int = 0x5A) -> None:
    old = row.path.read_bytes()[row.at + at]
    damage.overwrite(row.path, row.at + at, bytes([old ^ mask]))


@pytest.mark.quick_rows
@pytest.mark.parametrize("accept", [False, True])
@pytest.mark.parametrize("name", ["4.9.7-clean", "5.4.0-dledger", "5.4.0-formats"])
def test_wrong_byte_of_a_body_is_mended_with_the_option_only(name: str, accept: bool, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    before = files(store)
    row = pick(store, lambda r: 50 < len(r.message.body) < 800, 20)
    at = body_at(row) + 20
    wrong_byte(row, at, 0x06)
    answer = recover(store, *["--accept-odds"] * accept)
    assert answer["loss"]["messages"] == 1 - accept
    topic, queue_id, queue_offset = row.slot
    one = {
        "offset": row.offset,
        "topic": topic,
        "queue_id": queue_id,
        "queue_offset": queue_offset,
        "at": at,
        "bit": None,
        "mask": 6,
        "odds": 255 * len(row.message.body) / 2**31,
        "crc": "body",
    }
    assert answer["facts"].get("mended", []) == [one] * accept
    assert (files(store) == before) is accept


def test_plan_names_bits_and_bytes(store: Path) -> None:
    bit, byte = [row for row in chosen(store, 9, 8) if 50 < len(row.message.body) < 800][:2]
    damage.flip(bit.path, bit.at + body_at(bit) + 3, 1)
    wrong_byte(byte, body_at(byte) + 3, 0x03)
    odds = 2**31 / (255 * len(byte.message.body))
    output = run("recover", str(store), "--accept-odds").stdout
    assert "Mended: 1 message (one flipped bit in its body: the only bit that makes the CRC fit; odds" in output
    assert (
        "Mended: 1 message (one wrong byte in its body: the only byte that makes the CRC fit; odds of a false match "
        f"at most 1 in {odds:,.0f})" in output
    )


@pytest.mark.parametrize(("length", "accepted"), [(842, True), (843, False)])
def test_wrong_byte_above_the_odds_is_never_mended(length: int, accepted: bool) -> None:
    raw = build_message(topic="T", body=random.Random(length).randbytes(length))
    damaged = flip_bits(raw, HEAD.size + 70, 0x81)
    assert unflip_body(damaged, parsed(damaged)) is None
    found = unflip_body(damaged, parsed(damaged), accept_odds=True)
    assert (found is not None and found.record == raw) is accepted


@pytest.mark.slow
@pytest.mark.parametrize("name", STORES)
def test_repaired_flips_anywhere_in_records_restore_the_original(name: str, tmp_path: Path) -> None:
    """Flip one bit in every second record, in any of its bytes. RMQSTORE_ROUNDS is the number of rounds (1)."""
    flips = mended = same = 0
    for seed in seeds(int(os.environ.get("RMQSTORE_ROUNDS", "1"))):
        dice, store = random.Random(f"{name} {seed}"), copy_store(name, tmp_path / str(seed))
        found = {row.offset: row for row in rows(store)[:-5:2]}
        before = {offset: stored(row) for offset, row in found.items()}
        for row in found.values():
            damage.flip(row.path, row.at + dice.randrange(row.size), dice.randrange(8))
        words = ("recover", str(store), "--role", "single", "--accept-fillers")
        plan = run_json(*words, exit_code=1)
        force = ("--force", str(plan["digest"])) if plan["brakes"] else ()
        done = run(*words, "--apply", "--json", *force)
        assert done.exit_code in (0, 1), done.output
        by_crc = [one["offset"] for one in json.loads(done.stdout)["facts"].get("mended", ())]
        assert [offset for offset in by_crc if stored(found[offset]) != before[offset]] == []
        flips, mended = flips + len(found), mended + len(by_crc)
        same += sum(stored(row) == before[offset] for offset, row in found.items())
        shutil.rmtree(store)
    print(f"{name}: {flips:,} flips, {mended:,} mended by a CRC, {same:,} records are the original again")
    assert mended > flips // 8  # bodies are short, so most flips hit header and properties


def stored(row: Row) -> bytes:
    """Return the current bytes at the place of a record."""
    return row.path.read_bytes()[row.at : row.stop]


@pytest.mark.slow
def test_false_mends_of_multi_byte_damage_are_not_more_than_the_odds() -> None:
    dice, odds, mended, false = random.Random(fresh(31)), 0.0, 0, 0
    found = [row for name in STORES for row in rows(unpack(name)) if has_body(row)]
    raws = [(row, stored(row)) for row in dice.choices(found, k=500)]
    for _ in range(20):
        for row, raw in raws:
            start, length = body_at(row), len(row.message.body)
            garbled = raw
            for at in dice.sample(range(length), min(length, dice.randint(2, 16))):
                garbled = flip_bits(garbled, start + at, dice.randrange(1, 256))
            odds += 8 * length / 2**31
            one = unflip_body(garbled, parsed(garbled))
            mended += one is not None
            false += one is not None and one.record != raw
    print(f"{20 * len(raws):,} damages of 2 to 16 bytes: {mended} mended, {false} of them false; {odds:.3f} expected")
    assert false <= odds + 4 * odds**0.5 + 0.5


def test_no_false_repair_in_multi_byte_damage_and_every_wrong_byte_is_found() -> None:
    noise = random.Random(23)
    mended = 0
    for _ in range(1000):
        raw = build_message(topic="T", body=noise.randbytes(noise.randint(16, 842)))
        length = len(parsed(raw).body)
        wrong = flip_bits(raw, HEAD.size + noise.randrange(length), noise.randrange(1, 256))
        found = unflip_body(wrong, parsed(wrong), accept_odds=True)
        mended += found is not None and found.record == raw
        garbled = raw
        for at in noise.sample(range(length), noise.randint(2, 16)):
            garbled = flip_bits(garbled, HEAD.size + at, noise.randrange(1, 256))
        assert unflip_body(garbled, parsed(garbled), accept_odds=True) is None
    assert mended == 1000


def keyed(body: bytes, seed: int) -> bytes:
    return build_message(topic="T", body=body, properties=f"KEYS\x01key-{seed:08}".encode(), append_crc=True)


def test_wrong_byte_beside_the_body_is_found_by_the_record_crc() -> None:
    noise = random.Random(29)
    for seed in range(300):
        raw = keyed(noise.randbytes(noise.randint(16, 2000)), seed)
        at = raw.index(b"key-") + noise.randrange(12)
        wrong = flip_bits(raw, at, 0x03)
        assert unflip_beside_body(wrong, parsed(wrong)) is None
        found = unflip_beside_body(wrong, parsed(wrong), accept_odds=True)
        assert found is not None
        assert (found.record, found.restored and found.restored.mask) == (raw, 3)
        garbled = wrong
        for other in noise.sample(range(raw.index(b"key-"), raw.index(b"key-") + 12), noise.randint(2, 12)):
            garbled = flip_bits(garbled, other, noise.choice([4, 8, 12, 20]))
        assert unflip_beside_body(garbled, parsed(garbled), accept_odds=True) is None


@pytest.mark.parametrize(("length", "accepted"), [(20_000, True), (30_000, False)])
def test_flipped_bit_beside_the_body_has_the_same_odds_as_one_in_it(length: int, accepted: bool) -> None:
    raw = build_message(topic="T", body=b"b", properties=b"KEYS\x01" + b"k" * length, append_crc=True)
    flipped = flip_bits(raw, len(raw) - 100, 4)
    assert (unflip_beside_body(flipped, parsed(flipped)) is not None) is accepted
    found = unflip_beside_body(flipped, parsed(flipped), accept_odds=True)
    assert found is not None
    assert found.record == raw


def test_flipped_bit_beside_the_body_is_listed_in_the_plan(tmp_path: Path) -> None:
    store = copy_store("5.4.0-formats", tmp_path)
    before = files(store)
    row = pick(store, lambda r: r.message.carries_crc and b"KEYS\x01" in r.message.properties, 1)
    at = row.size - len(row.message.properties) + row.message.properties.index(b"KEYS\x01") + 6
    damage.flip(row.path, row.at + at, 0)
    answer = recover(store)
    (one,) = answer["facts"]["mended"]
    assert (one["offset"], one["at"], one["bit"], one["crc"]) == (row.offset, at, 0, "record")
    assert files(store) == before
