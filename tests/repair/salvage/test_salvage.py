"""Damage in the middle of a real log: lost records get fillers, proved fields are repaired, the rest is unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqstore.formats.message import FILLER_KEY, HEAD, HEADS_BY_FLAG, parse_message
from rmqstore.formats.properties import parse_properties, property_faults
from rmqstore.repair.journal import journal
from tests import damage
from tests.repair.salvaging import Row, apply, log_faults, pick, rows, salvage
from tests.repair.trees import look as snapshot
from tests.stores import VERSIONS, copy_store


def plain(row: Row) -> bool:
    return row.message.topic_text == "Order_11" and len(row.message.body) > 200


@pytest.mark.parametrize("version", VERSIONS)
def test_garbled_body_becomes_one_marked_filler_at_its_queue_offset(version: str, tmp_path: Path) -> None:
    store = copy_store(f"{version}-clean", tmp_path)
    before = rows(store)
    row = pick(store, plain, 20)
    damage.garble(row.path, row.at + HEAD.size, 8)
    undamaged = snapshot(store)
    result = salvage(store)
    (filler,) = result.fillers
    assert (filler.topic, filler.queue_id, filler.queue_offset) == row.slot
    assert (filler.marked, filler.offset, filler.length) == ("property", row.offset, row.size)
    assert (result.loss.messages, result.loss.queues) == (1, {f"{row.slot[0]}/{row.slot[1]}": 1})
    assert (result.rebuild_queues, result.decisions) == (frozenset(), ())
    done = apply(store, result)
    assert log_faults(store) == {}
    after = rows(store)
    assert [r.message for r in after if r.offset != row.offset] == [r.message for r in before if r.offset != row.offset]
    new = next(r.message for r in after if r.offset == row.offset)
    old = row.message
    kept = parse_properties(old.properties).items() - {("__CRC32#", "")}
    assert parse_properties(new.properties).items() - kept == {(FILLER_KEY, str(row.size))}
    assert (new.store_timestamp, new.born_timestamp, new.born_host) == (
        old.store_timestamp,
        old.born_timestamp,
        old.born_host,
    )
    assert new.body.startswith(b'{"rmqstore": "filler"')
    journal.undo(done)
    assert snapshot(store) == undamaged


@pytest.mark.quick_rows(6)
@pytest.mark.parametrize(
    ("field", "byte", "bit"),
    [
        ("size", 3, 0),
        ("size", 0, 6),
        ("magic", 2, 5),
        ("body_crc", 1, 3),
        ("queue_id", 3, 1),
        ("queue_offset", 7, 2),
        ("queue_offset", 5, 2),
        ("physical_offset", 6, 4),
        ("sys_flag", 3, 4),
        ("body_length", 3, 0),
        ("body_length", 1, 7),
    ],
)
def test_header_field_that_its_unit_proves_is_mended_without_loss(field: str, byte: int, bit: int, store: Path) -> None:
    row = pick(store, plain, 30)
    damage.flip(row.path, row.at + HEAD.at(field) + byte, bit)
    assert log_faults(store) != {}
    result = salvage(store)
    apply(store, result)
    assert (result.loss.messages, result.fillers, result.refusals) == (0, (), ())
    assert log_faults(store) == {}
    assert next(r.message for r in rows(store) if r.offset == row.offset) == row.message


def test_topic_and_topic_length_are_put_back(tmp_path: Path) -> None:
    store = copy_store("4.9.7-clean", tmp_path)
    first, second, third = (pick(store, plain, n) for n in (10, 25, 40))
    topic_at = first.at + HEAD.size + len(first.message.body)
    damage.flip(first.path, topic_at, 1)  # the length
    damage.flip(second.path, second.at + HEAD.size + len(second.message.body) + 3, 7)  # no longer UTF-8
    damage.flip(third.path, third.at + HEAD.size + len(third.message.body) + 3, 0)  # another topic
    result = salvage(store)
    apply(store, result)
    assert (result.loss.messages, result.fillers, result.refusals) == (0, (), ())
    assert log_faults(store) == {}
    found = {r.offset: r.message for r in rows(store)}
    assert [found[r.offset] for r in (first, second, third)] == [r.message for r in (first, second, third)]


def test_property_separator_comes_back_where_names_prove_it(store: Path) -> None:
    row = pick(store, lambda r: plain(r) and b"TAGS\x01" in r.message.properties, 12)
    at = row.stop - len(row.message.properties) + row.message.properties.index(b"TAGS\x01") + 4
    damage.flip(row.path, at, 6)
    result = salvage(store)
    apply(store, result)
    assert (result.loss.messages, result.fillers, result.spans) == (0, (), ())
    assert log_faults(store) == {}
    assert next(r.message for r in rows(store) if r.offset == row.offset) == row.message


def test_property_that_nothing_proves_is_made_readable_and_the_message_stays(store: Path) -> None:
    row = pick(store, lambda r: plain(r) and b"UNIQ_KEY\x01" in r.message.properties, 12)
    at = row.stop - len(row.message.properties) + row.message.properties.index(b"UNIQ_KEY\x01") + 12
    damage.flip(row.path, at, 7)
    result = salvage(store)
    apply(store, result)
    assert (result.loss.messages, result.fillers, len(result.spans)) == (0, (), 1)
    assert "cannot be identified" in result.notes[0]
    assert log_faults(store) == {"CL-CONTRADICTED": 1}  # the index still contains the lost key
    new = next(r.message for r in rows(store) if r.offset == row.offset)
    assert (new.body, new.topic, property_faults(new.properties)) == (row.message.body, row.message.topic, [])


@pytest.mark.parametrize("version", VERSIONS)
def test_zeroed_page_loses_exactly_the_messages_that_it_touched(version: str, tmp_path: Path) -> None:
    store = copy_store(f"{version}-clean", tmp_path)
    before = rows(store)
    path = sorted({r.path for r in before})[2]
    damage.zero(path, 5 * 4096, 4096)
    result = salvage(store)
    apply(store, result)
    hit = [r for r in before if r.path == path and r.at < 6 * 4096 and r.stop > 5 * 4096]
    assert log_faults(store) == {}
    slots = {(f.topic, f.queue_id, f.queue_offset) for f in result.fillers}
    assert slots <= {r.slot for r in hit}
    assert result.loss.messages == len(slots) == result.visible_fillers
    mended = [r for r in hit if r.slot not in slots]
    found = {r.offset: r.message for r in rows(store)}
    assert [found[r.offset] for r in mended] == [r.message for r in mended]
    others = [r for r in before if r not in hit]
    assert [found[r.offset] for r in others] == [r.message for r in others]
    times = [r.message.store_timestamp for r in rows(store)]
    assert times == sorted(times)


def test_filler_keeps_its_length_to_the_byte(store: Path) -> None:
    row = pick(store, plain, 50)
    damage.garble(row.path, row.at, row.size)
    result = salvage(store)
    apply(store, result)
    message, _ = parse_message(row.path.read_bytes(), row.at)
    assert message is not None
    assert (message.size, message.physical_offset) == (row.size, row.offset)
    assert result.spans[0].name == f"{row.offset}.bin"


def test_store_time_before_a_pause_of_years_stays(store: Path) -> None:
    """Only PHYSICALOFFSET is damaged; the store times of the next records are two years later."""
    last = pick(store, plain, 50)
    for row in [row for row in rows(store) if row.offset <= last.offset]:
        for name in ("born_timestamp", "store_timestamp"):
            head = HEADS_BY_FLAG[row.message.sys_flag & 0x30]
            time = getattr(row.message, name) - 730 * 86_400_000
            damage.overwrite(row.path, row.at + head.at(name), time.to_bytes(8, "big"))
    last = pick(store, plain, 50)
    damage.flip(last.path, last.at + HEAD.at("physical_offset") + 3, 2)
    result = salvage(store)
    assert (result.loss.messages, result.decisions) == (0, ())
    assert ["physical_offset" in step.why for step in result.steps] == [True]
    apply(store, result)
    assert next(row.message for row in rows(store) if row.offset == last.offset) == last.message


def test_plan_names_the_fields_of_a_record_with_ipv6_hosts(tmp_path: Path) -> None:
    store = copy_store("5.4.0-ipv6", tmp_path)
    row = pick(store, lambda row: plain(row) and len(row.message.store_host) == 20, 10)
    head = HEADS_BY_FLAG[row.message.sys_flag & 0x30]
    damage.flip(row.path, row.at + HEAD.at("physical_offset") + 3, 2)
    damage.flip(row.path, row.at + head.at("store_timestamp"), 6)
    assert "mended in place: physical_offset, store_timestamp" in [step.why for step in salvage(store).steps]
