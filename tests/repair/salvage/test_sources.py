"""A further source of bytes, such as a replica: what it gives is taken if it is sound and no witness contradicts it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rmqstore.checks.problems import codes
from rmqstore.files.store import open_store
from rmqstore.formats.message import HEAD
from rmqstore.repair.journal import journal
from rmqstore.repair.plan.content import Content, Literal, Reencoded
from rmqstore.repair.plan.plan import Plan
from rmqstore.repair.plan.recover_options import RecoverOptions
from rmqstore.repair.recover import plan_recovery
from rmqstore.repair.salvage.sources import Proven
from tests import damage
from tests.repair.salvaging import log_faults, look, rows
from tests.stores import copy_store, unpack

STORES = ("5.4.0-clean", "5.4.0-dledger", "4.9.7-clean")


@dataclass
class Replica:
    """Gives the bytes of an undamaged store. `least` and `most`: size of the places that it knows, in bytes.

    `change` spoils what it gives.
    """

    store: Path
    least: int = 0
    most: int = 1 << 30
    change: Callable[[bytes], bytes] = lambda data: data
    streams: bool = False
    asked: list[tuple[int, int, int]] = field(default_factory=list)

    def proven(self, start: int, stop: int, lead: int) -> Proven | None:
        self.asked.append((start, stop, lead))
        opened = open_store(self.store)
        queue = opened.dledger.data if lead and opened.dledger is not None else opened.commitlog
        if queue is None or not self.least <= stop - start <= self.most:
            return None
        data = self.change(queue.pread(stop - start, start))
        content: Content = Reencoded(len(data), lambda: [data[:5], data[5:]]) if self.streams else Literal(data)
        return Proven(content, "a replica")


def recover(store: Path, *sources: Replica) -> Plan:
    opened, verified = look(store)
    plan = plan_recovery(opened, verified, RecoverOptions(role="single", now_ms=1), sources)
    if plan.steps:
        journal.apply(plan, force_digest=plan.digest)
    return plan


def log_bytes(store: Path) -> dict[str, bytes]:
    files = (*store.glob("commitlog/*"), *store.glob("dledger-*/data/*"))
    return {path.relative_to(store).as_posix(): path.read_bytes() for path in files}


@pytest.mark.parametrize("name", STORES)
def test_a_source_gives_back_the_bytes_of_damaged_records(name: str, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    for row in rows(store)[7:10]:
        damage.garble(row.path, row.at, row.size)
    plan = recover(store, Replica(unpack(name)))
    assert (plan.loss.messages, plan.loss.bytes, log_faults(store)) == (0, 0, {})
    assert log_bytes(store) == log_bytes(unpack(name))
    assert "the original bytes, from a replica" in {step.why for step in plan.steps}


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("name", STORES)
def test_a_source_gives_back_a_missing_file_and_the_end_of_a_short_one(
    name: str, streams: bool, tmp_path: Path
) -> None:
    store = copy_store(name, tmp_path)
    paths = sorted({row.path for row in rows(store)})
    paths[2].unlink()
    damage.cut(paths[4], paths[4].stat().st_size // 2)
    plan = recover(store, Replica(unpack(name), streams=streams))
    assert (plan.loss.messages, log_faults(store)) == (0, {})
    assert log_bytes(store) == log_bytes(unpack(name))


@pytest.mark.parametrize("before", [False, True])
def test_entries_beside_those_that_a_source_gave_back_keep_their_index(before: bool, tmp_path: Path) -> None:
    """A file comes back; the entry before or behind it is damaged, and the source knows nothing of it."""
    store = copy_store("5.4.0-dledger", tmp_path)
    paths = sorted({row.path for row in rows(store)})
    row = next(r for r in (reversed(rows(store)) if before else rows(store)) if r.path == paths[1 if before else 3])
    damage.garble(row.path, row.at, row.size)
    paths[2].unlink()
    for file in (store / "dledger-n0" / "index").iterdir():
        file.unlink()
    plan = recover(store, Replica(unpack("5.4.0-dledger"), least=60_000))
    assert (plan.loss.messages, plan.loss.more["visible_fillers"]) == (1, 1)
    assert log_faults(store) == {}
    was, now = log_bytes(unpack("5.4.0-dledger")), log_bytes(store)
    changed = [name for name in was if was[name] != now[name]]
    assert changed == [row.path.relative_to(store).as_posix()]


def test_a_source_gives_back_messages_whose_consume_queues_are_gone_too(tmp_path: Path) -> None:
    store = copy_store("5.4.0-dledger", tmp_path)
    row = rows(store)[40]
    damage.garble(row.path, row.at - row.lead, row.size + row.lead)
    queue = store / "consumequeue" / row.seat[0] / str(row.seat[1])
    for path in queue.iterdir():
        path.unlink()
    plan = recover(store, Replica(unpack("5.4.0-dledger")))
    assert (plan.loss.messages, log_faults(store)) == (0, {})
    assert log_bytes(store) == log_bytes(unpack("5.4.0-dledger"))


@pytest.mark.parametrize("name", STORES)
def test_a_source_is_asked_for_single_records_where_it_has_not_the_whole_span(name: str, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    found = rows(store)[7:10]
    for row in found:
        damage.garble(row.path, row.at + HEAD.size, row.size - HEAD.size)
    source = Replica(unpack(name), most=max(row.size + row.lead for row in found))
    plan = recover(store, source)
    assert (plan.loss.messages, log_faults(store)) == (0, {})
    assert log_bytes(store) == log_bytes(unpack(name))


def test_the_next_source_is_asked_where_the_first_knows_nothing(tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    row = rows(store)[7]
    damage.garble(row.path, row.at, row.size)
    silent, other = Replica(unpack("5.4.0-clean"), most=0), Replica(unpack("5.4.0-clean"))
    assert recover(store, silent, other).loss.messages == 0
    assert silent.asked == other.asked == [(row.offset, row.offset + row.size, 0)]


def swap_queue_offset(data: bytes) -> bytes:
    at = HEAD.at("queue_offset") + 7
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def swap_body(data: bytes) -> bytes:
    return data[: HEAD.size] + bytes([data[HEAD.size] ^ 1]) + data[HEAD.size + 1 :]


@pytest.mark.parametrize(
    "change", [swap_queue_offset, swap_body, lambda data: data[:-1], lambda data: bytes(len(data))]
)
def test_bytes_that_a_witness_contradicts_are_not_taken(change: Callable[[bytes], bytes], tmp_path: Path) -> None:
    """The unit says another queue offset; the CRC another body; a byte is missing; there is no record."""
    store = copy_store("5.4.0-clean", tmp_path)
    row = rows(store)[7]
    damage.garble(row.path, row.at, row.size)
    plan = recover(store, Replica(unpack("5.4.0-clean"), change=change))
    assert (plan.loss.messages, plan.loss.more["visible_fillers"]) == (1, 1)


def test_a_missing_file_needs_a_decision_where_no_source_has_it(tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    sorted({row.path for row in rows(store)})[2].unlink()
    plan = recover(store, Replica(unpack("5.4.0-clean"), most=0))
    assert codes.CL_MISSING_FILE in plan.facts["stays"]  # type: ignore[operator]
