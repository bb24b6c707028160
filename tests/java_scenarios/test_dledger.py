"""DLedgerMappedFileStoreTest (DLedger 0.3.2) and DLedgerCommitlogTest (RocketMQ)."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqstore.append.dispatch import DispatchOptions
from rmqstore.append.dledger import DLedgerMmapFileStore, EntryFiles, MemberState, Role
from rmqstore.append.encoder import NewMessage
from rmqstore.append.message_store import MessageStore, StoreOptions
from rmqstore.errors import Refused
from rmqstore.files.store import open_store
from rmqstore.formats.dledger import BODY_OFFSET, INDEX_UNIT, DLedgerEntry
from rmqstore.formats.message import host_bytes
from rmqstore.views.dledger_store import DLedgerCommitLog
from tests.append.rewriting import messages_of
from tests.append.small import clean, units

UNIT = INDEX_UNIT.size


def member(
    directory: Path, size: int = 1 << 20, index_size: int = 100 * UNIT, *, role: Role = Role.LEADER, name: str = "n0"
) -> DLedgerMmapFileStore:
    state = MemberState(name, role, 0, leader_id="n0" if name == "n0" else "n1")
    return DLedgerMmapFileStore(directory, EntryFiles(size, index_size), member=state, hook=None)


def loaded(directory: Path, size: int = 1 << 20, index_size: int = 100 * UNIT) -> DLedgerMmapFileStore:
    store = member(directory, size, index_size)
    store.load()
    return store


# --- DLedgerMappedFileStoreTest --------------------------------------------------------------------------------------


def test_the_committed_index_is_read_again(tmp_path: Path) -> None:
    """DLedgerMappedFileStoreTest#testCommittedIndex"""
    store = member(tmp_path)
    assert [store.append_as_leader(bytes(128)).index for _ in range(100)] == list(range(100))
    store.update_committed_index(0, 90)
    assert (store.end_index, store.committed_index) == (99, 90)
    store.close()
    again = loaded(tmp_path)
    assert (again.begin_index, again.end_index, again.committed_index) == (0, 99, 90)
    again.close()


def test_a_hook_changes_the_body_before_it_is_written(tmp_path: Path) -> None:
    """DLedgerMappedFileStoreTest#testAppendHook. Difference: our hook gets the position, which RocketMQ's hook needs,
    and not the entry."""

    def hook(pos: int, body: bytearray) -> None:
        body[:8] = pos.to_bytes(8, "big")

    store = DLedgerMmapFileStore(tmp_path, EntryFiles(1 << 20, 100 * UNIT), hook=hook)
    for _ in range(10):
        store.append_as_leader(bytes(128))
    found = [store.get(n) for n in range(10)]
    assert [int.from_bytes(e.body[:8], "big") for e in found if e] == [n * (128 + BODY_OFFSET) for n in range(10)]
    store.close()


def test_a_leader_appends_and_commits(tmp_path: Path) -> None:
    """DLedgerMappedFileStoreTest#testAppendAsLeader"""
    store = member(tmp_path)
    for number in range(10):
        assert store.append_as_leader(b"Hello Leader%d" % number).index == number
    for number in range(10):
        entry = store.get(number)
        assert entry is not None
        assert (entry.index, entry.body) == (number, b"Hello Leader%d" % number)
        store.update_committed_index(0, number)
        assert (store.committed_index, store.committed_pos) == (number, entry.pos + entry.size)
    assert store.committed_pos == store.data.max_offset == 10 * (BODY_OFFSET + 13)
    store.close()


@pytest.mark.parametrize(("term", "index"), [(0, -1), (0, 0), (-1, 10), (0, 5)])
def test_older_news_of_the_committed_index_are_ignored(tmp_path: Path, term: int, index: int) -> None:
    """DLedgerMappedFileStoreTest#testAppendAsLeader (the smaller index and term)"""
    store = member(tmp_path)
    for _ in range(10):
        store.append_as_leader(b"x")
    store.update_committed_index(0, 9)
    store.update_committed_index(term, index)
    assert (store.committed_index, store.end_index) == (9, 9)
    store.close()


def test_entries_are_read_again(tmp_path: Path) -> None:
    """DLedgerMappedFileStoreTest#testNormalRecovery"""
    store = member(tmp_path)
    for number in range(10):
        store.append_as_leader(b"Hello Leader With Recovery%d" % number)
    store.close()
    again = loaded(tmp_path)
    assert (again.begin_index, again.end_index) == (0, 9)
    found = [entry.body for n in range(10) if (entry := again.get(n))]
    assert found == [b"Hello Leader With Recovery%d" % n for n in range(10)]
    again.close()


@pytest.mark.parametrize(("deleted", "files", "begin", "end"), [(0, 12, 0, 99), (2, 10, 0, 89), (12, 0, -1, -1)])
def test_after_the_last_data_files_were_lost(tmp_path: Path, deleted: int, files: int, begin: int, end: int) -> None:
    """DLedgerMappedFileStoreTest#testAbnormalRecovery: 9 entries of 1,072 bytes per file"""
    size, index_size = 10 * 1024 + 8, 10 * UNIT
    store = member(tmp_path, size, index_size)
    for _ in range(100):
        store.append_as_leader(bytes(1024))
    assert len(store.data.files) == 12
    store.close()
    for path in sorted((tmp_path / "data").iterdir())[12 - deleted :]:
        path.unlink()
    again = loaded(tmp_path, size, index_size)
    assert (len(again.data.files), again.begin_index, again.end_index) == (files, begin, end)
    assert [n for n in range(100) if again.get(n) is None] == list(range(end + 1, 100))
    assert again.index.max_offset == (end + 1) * UNIT
    again.close()


Follower = tuple[DLedgerMmapFileStore, list[DLedgerEntry]]


@pytest.fixture
def follower(tmp_path: Path) -> Follower:
    """A follower with 10 entries of 1,072 bytes, 7 per file, and the entries."""
    store = member(tmp_path, 8 * 1024 + 8, 8 * UNIT)
    entries = [store.append_as_leader(bytes(1024)) for _ in range(10)]
    store.flush()
    assert (len(store.data.files), store.begin_index, store.end_index) == (2, 0, 9)
    store.member.role, store.member.leader_id = Role.FOLLOWER, "n0"
    return store, entries


@pytest.mark.parametrize("number", [0, 5, 6, 7, 9])
def test_a_follower_cuts_after_an_entry(follower: Follower, number: int) -> None:
    """DLedgerMappedFileStoreTest#testTruncate: the middle, the border of a file, the end"""
    store, entries = follower
    entry = entries[number]
    assert store.truncate(entry, 0, "n0") == number
    assert (store.begin_index, store.end_index) == (0, number)
    assert store.data.max_offset == entry.pos + entry.size
    assert store.index.max_offset == (number + 1) * UNIT
    assert [store.get(n) == entries[n] for n in range(number + 1)] == [True] * (number + 1)
    store.close()


def test_a_follower_that_lacks_the_entry_begins_with_it(follower: Follower) -> None:
    """DLedgerMappedFileStoreTest#testTruncate: after truncations at 5 and 6, entry 9 is beyond the end"""
    store, entries = follower
    store.truncate(entries[5], 0, "n0")
    assert store.truncate(entries[9], 0, "n0") == 9
    assert (store.begin_index, store.end_index) == (9, 9)
    assert store.data.max_offset == entries[9].pos + entries[9].size
    assert store.index.max_offset == 10 * UNIT
    assert (store.get(8), store.get(9)) == (None, entries[9])
    store.close()


def test_a_follower_accepts_the_entries_of_its_leader(tmp_path: Path) -> None:
    """DLedgerMappedFileStoreTest#testAppendAsFollower"""
    store = member(tmp_path, role=Role.FOLLOWER, name="n2")
    pos = 0
    for number in range(10):
        entry = DLedgerEntry(number, 0, pos, b"Hello Follower%d" % number)
        assert store.append_as_follower(entry, 0, "n1").index == number
        pos += entry.size
    assert [e.body for n in range(10) if (e := store.get(n))] == [b"Hello Follower%d" % n for n in range(10)]
    assert store.data.max_offset == pos == 10 * (BODY_OFFSET + 15)
    store.close()


@pytest.mark.parametrize(
    ("index", "pos", "term", "leader", "words"),
    [
        (1, 0, 0, "n1", "entry 1 does not follow -1"),
        (0, 8, 0, "n1", "has position 8, but the data ends at 0"),
        (0, 0, 1, "n1", "the leader's term is 1, this member's term 0"),
        (0, 0, 0, "n3", "n3 is not the leader; n1 is"),
    ],
)
def test_a_follower_accepts_no_other_entries(
    tmp_path: Path, index: int, pos: int, term: int, leader: str, words: str
) -> None:
    """DLedgerMmapFileStore#appendAsFollower (PreConditions), as DLedgerMappedFileStoreTest#testAppendAsFollower"""
    store = member(tmp_path, role=Role.FOLLOWER, name="n2")
    with pytest.raises(Refused, match=words):
        store.append_as_follower(DLedgerEntry(index, 0, pos, b"x"), term, leader)
    assert store.end_index == -1
    store.close()


def test_after_first_files_are_gone_the_begin_is_that_of_the_first_left(tmp_path: Path) -> None:
    """DLedgerMappedFileStoreTest#testReviseWherePosition"""
    store = member(tmp_path, 8 * 1024 + 8, 8 * UNIT)
    entries = [store.append_as_leader(bytes(1024)) for _ in range(20)]
    store.flush()
    assert len(store.data.files) == 3
    store.member.role, store.member.leader_id = Role.FOLLOWER, "n0"
    for file in store.data.files[:2]:
        file.abandon()
    del store.data.files[:2]
    assert store.truncate(entries[15], 0, "n0") == 15
    assert (store.begin_index, store.end_index) == (14, 15)
    assert store.data.max_offset == entries[15].pos + entries[15].size
    assert store.index.max_offset == 16 * UNIT
    assert store.data.flushed_where >= store.data.files[0].start == entries[14].pos
    store.close()


# --- DLedgerCommitlogTest --------------------------------------------------------------------------------------------

SIZES = StoreOptions(
    commitlog_file_size=16 << 10,
    index_slots=1000,
    index_units=1000,
    dispatch=DispatchOptions(consume_queue_file_size=1040),
    dledger="n0",
)
V6 = host_bytes("[1050::5:600:300c:326b]:0")


def new(number: int, queue_id: int = 0, *, v6: bool = False) -> NewMessage:
    one = NewMessage("T", b"Once, there was a chance for me! %04d" % number, b"KEYS\x01k%04d\x02" % number, queue_id)
    if v6:
        one.born_host = one.store_host = V6
    return one


def put(root: Path, count: int, options: StoreOptions = SIZES, first: int = 0) -> None:
    opener = MessageStore.open if root.exists() else MessageStore.create
    with opener(root, options) as store:
        found = store.put_many([new(n) for n in range(first, first + count)])
    assert [p.queue_offset for p in found] == list(range(first, first + count))


def data_of(root: Path) -> list[Path]:
    return sorted((root / "dledger-n0" / "data").iterdir())


@pytest.mark.parametrize(("lost", "left"), [(0, 1000), (4, 696), (11, 87), (12, 0)])
def test_units_of_messages_that_were_lost_are_cut(tmp_path: Path, lost: int, left: int) -> None:
    """DLedgerCommitlogTest#testTruncateCQ: abnormal recovery with some, and with none, of the log files"""
    root = tmp_path / "s"
    put(root, 1000)
    files = data_of(root)
    assert len(files) == 12
    for path in files[len(files) - lost :]:
        path.unlink()
    (root / "abort").touch()
    with MessageStore.open(root, SIZES) as store:
        assert store.dispatcher.queue("T", 0).next_offset == left
    assert (len(data_of(root)), len(units(root, "T"))) == (12 - lost, left)
    assert clean(root) == ({} if left else {"CK-MISSING": 1})  # without messages, the checkpoint is that of a new store


@pytest.mark.parametrize("exit_", ["clean", "killed"])
def test_a_member_opens_after_either_exit(tmp_path: Path, exit_: str) -> None:
    """DLedgerCommitlogTest#testRecover"""
    root = tmp_path / "s"
    put(root, 500)
    if exit_ == "killed":
        (root / "abort").touch()
    put(root, 1, first=500)
    assert len(units(root, "T")) == 501
    assert clean(root) == {}


def test_a_queue_file_that_is_gone_after_a_crash_comes_back(tmp_path: Path) -> None:
    """DLedgerCommitlogTest#testDLedgerAbnormallyRecover: 100 messages in each of two queues, a file of queue 0 is
    deleted, the checkpoint is 0"""
    root = tmp_path / "s"
    with MessageStore.create(root, SIZES) as store:
        for queue_id in (0, 1):
            store.put_many([new(n, queue_id) for n in range(100)])
    (root / "checkpoint").write_bytes(bytes(4096))
    (root / "abort").touch()
    (root / "consumequeue" / "T" / "0" / f"{1040:020d}").unlink()
    MessageStore.open(root, SIZES).close()
    assert [len(units(root, "T", queue_id)) for queue_id in (0, 1)] == [100, 100]
    assert clean(root) == {}


@pytest.mark.parametrize("batch", [1, 2])
def test_entries_of_both_kinds_of_hosts(tmp_path: Path, batch: int) -> None:
    """DLedgerCommitlogTest#testPutAndGetMessage, #testBatchPutAndGetMessage, and the asynchronous ones. Difference:
    each message of a batch has its own entry, as in RocketMQ since 4.9."""
    root = tmp_path / "s"
    results = []
    with MessageStore.create(root, SIZES) as store:
        for number in range(10):
            results += store.put_batch([new(number * batch + n, v6=number > 4) for n in range(batch)])
    assert [p.queue_offset for p in results] == list(range(10 * batch))
    group = open_store(root).dledger
    assert group is not None
    found = list(messages_of(group.data, BODY_OFFSET))
    assert [(m.queue_offset, m.physical_offset) for m in found] == [(p.queue_offset, p.offset) for p in results]
    assert [m.store_host for m in found] == [p.store_host for p in results]
    assert {len(p.message_id) for p in results} == {32, 56}
    assert DLedgerCommitLog(open_store(root)).divided_commitlog_offset == 0


@pytest.mark.parametrize("v6", [False, True])
def test_what_is_flushed_is_committed(tmp_path: Path, v6: bool) -> None:
    """DLedgerCommitlogTest#testCommittedPos, #testIPv6HostMsgCommittedPos. Difference: a single member is its own
    majority, so it commits what is on its disk, while a leader waits for its followers."""
    with MessageStore.create(tmp_path / "s", SIZES) as store:
        one = store.put(new(0, v6=v6))
        log = store.log.store  # type: ignore[attr-defined]
        assert log.committed_pos == -1
        store.flush()
        assert (log.committed_index, log.committed_pos) == (0, one.offset + one.size)
