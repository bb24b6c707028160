"""DLedgerMmapFileStore: leader, follower, truncation, and opening by the rules of a member's start."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqstore.append.dledger import DLedgerMmapFileStore, EntryFiles, MemberState, Role
from rmqstore.errors import MessageRefused, Refused
from rmqstore.formats.dledger import (
    BODY_OFFSET,
    ENTRY,
    INDEX_UNIT,
    DLedgerEntry,
    build_blank,
    parse_currterm,
    parse_dledger_checkpoint,
)
from rmqstore.formats.message import HEAD, build_message
from tests.damage import flip

SIZE = 4096
INDEX_SIZE = 32 * 50


def member(directory: Path, *, role: Role = Role.LEADER, term: int = 3, start: int = 0) -> DLedgerMmapFileStore:
    state = MemberState("n0" if role is Role.LEADER else "n1", role, term, leader_id="n0")
    return DLedgerMmapFileStore(directory, EntryFiles(SIZE, INDEX_SIZE, start=start), member=state)


def body(number: int, size: int = 100) -> bytes:
    return build_message(topic="T", body=b"%03d" % number + bytes(size), queue_offset=number)


def filled(directory: Path, count: int = 60, start: int = 0) -> list[DLedgerEntry]:
    store = member(directory, start=start)
    entries = [store.append_as_leader(body(number)) for number in range(count)]
    store.flush()
    store.update_committed_index(3, count - 5)
    store.persist_term()
    store.close()
    return entries


def test_a_leader_numbers_entries_and_the_hook_writes_their_address(tmp_path: Path) -> None:
    store = member(tmp_path, start=3 * SIZE)
    first, second = store.append_as_leader(body(0)), store.append_as_leader(body(1))
    assert (first.index, first.term, first.pos, second.index) == (0, 3, 3 * SIZE, 1)
    assert second.pos == first.pos + first.size
    at = HEAD.at("physical_offset")
    assert int.from_bytes(second.body[at : at + 8], "big") == second.pos + BODY_OFFSET
    head = ENTRY.build(size=first.size, index=0, term=3, pos=3 * SIZE, body_length=len(first.body))
    assert store.data.read(3 * SIZE, first.size) == head + first.body
    assert (store.begin_index, store.end_index, store.get(1), store.get(2)) == (0, 1, second, None)
    with pytest.raises(MessageRefused, match="DLedger's limit is"):
        store.append_as_leader(bytes(4 << 20))
    with pytest.raises(MessageRefused, match="does not fit into a file of 4096"):
        store.append_as_leader(bytes(SIZE))


def test_a_full_data_file_ends_with_a_blank_of_magic_and_size(tmp_path: Path) -> None:
    entries = filled(tmp_path)
    last = next(e for e in reversed(entries) if e.pos < SIZE)
    data = (tmp_path / "data" / f"{0:020d}").read_bytes()
    at = last.pos + last.size
    assert data[at:] == build_blank(SIZE - at).ljust(SIZE - at, b"\0")
    assert [p.name for p in sorted((tmp_path / "index").iterdir())] == [f"{0:020d}", f"{INDEX_SIZE:020d}"]
    assert parse_dledger_checkpoint((tmp_path / "checkpoint").read_bytes()).committed_index == 55
    term = parse_currterm((tmp_path / "currterm").read_bytes())
    assert (term.term, term.vote_leader) == (3, "n0")


def test_a_follower_takes_what_follows_and_ends_with_the_leaders_bytes(tmp_path: Path) -> None:
    entries = filled(tmp_path / "a")
    follower = member(tmp_path / "b", role=Role.FOLLOWER)
    for entry in entries:
        follower.append_as_follower(entry, 3, "n0")
    follower.close()
    for name in ("data", "index"):
        a, b = sorted((tmp_path / "a" / name).iterdir()), sorted((tmp_path / "b" / name).iterdir())
        assert [p.name for p in a] == [p.name for p in b]
        assert [p.read_bytes() for p in a] == [p.read_bytes() for p in b]


@pytest.mark.parametrize(
    ("index", "pos", "term", "leader", "words"),
    [
        (1, 0, 3, "n0", "entry 1 does not follow -1"),
        (0, 64, 3, "n0", "has position 64, but the data ends at 0"),
        (0, 0, 4, "n0", "the leader's term is 4, this member's term 3"),
        (0, 0, 3, "n2", "n2 is not the leader; n0 is"),
    ],
)
def test_a_follower_refuses_what_does_not_fit(
    index: int, pos: int, term: int, leader: str, words: str, tmp_path: Path
) -> None:
    follower = member(tmp_path, role=Role.FOLLOWER)
    with pytest.raises(Refused, match=words):
        follower.append_as_follower(DLedgerEntry(index, 3, pos, body(0)), term, leader)
    assert follower.end_index == -1


def test_roles_and_a_full_disk_are_respected(tmp_path: Path) -> None:
    leader, follower = member(tmp_path / "a"), member(tmp_path / "b", role=Role.FOLLOWER)
    with pytest.raises(Refused, match="is not the leader"):
        follower.append_as_leader(body(0))
    with pytest.raises(Refused, match="is not a follower"):
        leader.append_as_follower(DLedgerEntry(0, 3, 0, body(0)), 3, "n0")
    leader.disk_full = True
    with pytest.raises(Refused, match="the disk is full"):
        leader.append_as_leader(body(0))


def test_truncate_cuts_after_an_equal_entry_and_replaces_another(tmp_path: Path) -> None:
    entries = filled(tmp_path)
    follower = member(tmp_path, role=Role.FOLLOWER)
    follower.load()
    assert follower.truncate(entries[40], 3, "n0") == 40
    assert (follower.end_index, follower.data.max_offset) == (40, entries[40].pos + entries[40].size)
    other = DLedgerEntry(30, 3, entries[30].pos, body(900, size=7))
    assert follower.truncate(other, 3, "n0") == 30
    assert (follower.get(30), follower.get(31)) == (other, None)
    follower.close()
    again = member(tmp_path)
    again.load()
    assert (again.begin_index, again.end_index, again.get(30)) == (0, 30, other)
    data = b"".join(p.read_bytes() for p in sorted((tmp_path / "data").iterdir()))
    assert not any(data[other.pos + other.size :])


def test_a_member_opens_at_its_last_entry_with_its_committed_index(tmp_path: Path) -> None:
    entries = filled(tmp_path)
    store = member(tmp_path)
    store.load()
    assert (store.begin_index, store.end_index, store.end_term) == (0, 59, 3)
    assert (store.committed_index, store.committed_pos) == (55, entries[55].pos + entries[55].size)
    assert [store.get(i) for i in range(60)] == entries
    assert store.append_as_leader(body(60)).index == 60


@pytest.mark.parametrize("removed", [False, True])
def test_index_units_are_written_again_where_they_are_wrong_or_missing(removed: bool, tmp_path: Path) -> None:
    filled(tmp_path)
    index = sorted((tmp_path / "index").iterdir())
    before = [p.read_bytes() for p in index]
    if removed:
        index[0].unlink()
    else:
        flip(index[0], 45 * INDEX_UNIT.size + 5)
    index[1].unlink()
    store = member(tmp_path)
    store.load()
    store.close()
    assert [p.read_bytes() for p in sorted((tmp_path / "index").iterdir())] == before


def test_a_wrong_header_in_the_last_file_ends_the_log_there(tmp_path: Path) -> None:
    entries = filled(tmp_path)
    last = sorted((tmp_path / "data").iterdir())[-1]
    victim = next(e for e in entries if e.pos > int(last.name))
    data = bytearray(last.read_bytes())
    data[victim.pos - int(last.name) + 15] ^= 1
    last.write_bytes(data)
    store = member(tmp_path)
    store.load()
    assert (store.end_index, store.data.max_offset) == (victim.index - 1, victim.pos)


def test_what_ends_a_members_process_is_refused(tmp_path: Path) -> None:
    filled(tmp_path)
    files = sorted((tmp_path / "data").iterdir())
    (tmp_path / "data" / "notes").write_bytes(b"x")
    with pytest.raises(Refused):
        member(tmp_path).load()
    (tmp_path / "data" / "notes").unlink()
    middle = files[1].read_bytes()
    files[1].unlink()
    with pytest.raises(Refused, match="a file in the middle is missing"):
        member(tmp_path).load()
    files[1].write_bytes(bytes([9]) + middle[1:])
    index = sorted((tmp_path / "index").iterdir())
    for path in index:  # without an index, recovery walks all files, and the walk ends two files before the last
        path.unlink()
    assert len(files) > 3
    with pytest.raises(Refused, match="more than a file before"):
        member(tmp_path).load()


def test_committed_never_falls_nor_passes_the_end(tmp_path: Path) -> None:
    store = member(tmp_path)
    for number in range(5):
        store.append_as_leader(body(number))
    for term, index, expected in ((3, 2, 2), (3, 1, 2), (2, 4, 2), (3, -1, 2), (3, 99, 4)):
        store.update_committed_index(term, index)
        assert store.committed_index == expected
