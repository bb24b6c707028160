"""What lists messages that the log lacks, alone or beside others: each of them counts once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqstore.checks.examine import examine, verify
from rmqstore.checks.options import VerifyOptions
from rmqstore.checks.problems.account import Account
from rmqstore.cli.printing.verify_text import verdict_sentence
from rmqstore.files.store import open_store
from rmqstore.formats import dledger
from rmqstore.formats.consumequeue import UNIT_SIZE
from rmqstore.formats.message import HEAD
from rmqstore.formats.properties import HALF_TOPIC, OP_HALF_TOPIC, ROCKSDB_HALF_TOPIC
from tests.damage import cut, flip, overwrite, zero
from tests.planning import counts_of
from tests.repair.salvaging import Row, rows
from tests.stores import copy_store


def account_of(root: Path) -> Account:
    account = examine(open_store(root), VerifyOptions(jobs=1)).account
    assert account is not None
    return account


def of_queue(root: Path, topic: str, queue_id: int) -> list[Row]:
    return [row for row in rows(root) if row.slot[:2] == (topic, queue_id)]


def lose_last(root: Path, count: int) -> list[Row]:
    """Zero the last messages of a log, and return them."""
    lost = rows(root)[-count:]
    head = lost[0].body_offset
    for path in sorted({row.path for row in lost}):
        start = lost[0].at - head if path == lost[0].path else 0
        zero(path, start, path.stat().st_size - start)
    return lost


def test_a_whole_message_is_not_also_one_that_only_the_index_shows(tmp_path: Path) -> None:
    """The unit leads to a whole message in an entry with a damaged header; other units of lost messages are gone."""
    root = copy_store("5.4.0-dledger", tmp_path)
    lost = of_queue(root, "Order_11", 1)[-3:]
    whole = of_queue(root, "Pay_11_Topic", 1)[5]
    for row in (*lost, whole):
        zero(row.path, row.at - dledger.ENTRY.size, dledger.ENTRY.size)
    for row in lost:
        zero(row.path, row.at, row.size)
    zero(root / "consumequeue" / "Order_11" / "1" / "00000000000000000000", lost[0].slot[2] * UNIT_SIZE, 60)
    account = account_of(root)
    assert account.lost_already == 3
    assert whole.slot[2] in account.queues["Pay_11_Topic", 1].in_log


@pytest.mark.parametrize("bit", [3, 10, 33])
def test_a_wrong_bit_in_a_unit_makes_no_second_message(bit: int, tmp_path: Path) -> None:
    """The index lists the message at its true offset, and the unit at another one."""
    root = copy_store("5.4.0-clean", tmp_path)
    topic, queue_id, number = lose_last(root, 2)[0].slot
    queue = root / "consumequeue" / topic / str(queue_id) / "00000000000000000000"
    flip(queue, number * UNIT_SIZE + 7 - bit // 8, bit % 8)
    assert account_of(root).lost_already == 2


def test_a_queue_whose_file_is_cut_may_have_listed_more(tmp_path: Path) -> None:
    root = copy_store("5.4.0-clean", tmp_path)
    lost = lose_last(root, 20)
    topic, queue_id, number = lost[0].slot
    queue = root / "consumequeue" / topic / str(queue_id) / "00000000000000000000"
    shutil.rmtree(root / "index")
    cut(queue, number * UNIT_SIZE + 4)
    account = account_of(root)
    count = sum(row.slot[:2] == (topic, queue_id) for row in lost)
    assert (account.lost_already, account.at_least) == (20 - count, True)


def test_a_queue_whose_file_was_cut_after_its_last_unit_lacks_nothing(tmp_path: Path) -> None:
    root = copy_store("5.4.0-clean", tmp_path)
    lose_last(root, 20)
    end = max(row.slot[2] for row in of_queue(copy_store("5.4.0-clean", tmp_path / "whole"), "Order_11", 0)) + 1
    cut(root / "consumequeue" / "Order_11" / "0" / "00000000000000000000", (end + 1) * UNIT_SIZE)
    account = account_of(root)
    assert (account.lost_already, account.at_least) == (20, False)


def test_units_of_batches_list_each_message(tmp_path: Path) -> None:
    """Messages of a batch have a unit: none of them is one that only the index shows."""
    root = copy_store("5.4.0-formats", tmp_path)
    batch = next(row for row in rows(root) if row.slot[:2] == ("BatchCq_11", 0))
    lost = of_queue(root, "Order_11", 3)[-2:]
    for row in (batch, *lost):
        overwrite(row.path, row.at, bytes(row.size))
    cut(root / "consumequeue" / "Order_11" / "3" / "00000000000000000000", lost[0].slot[2] * UNIT_SIZE + 4)
    account = account_of(root)
    assert account.floating == 0
    assert account.unplaced == 2


def test_a_last_queue_file_of_zeros_may_have_listed_more(tmp_path: Path) -> None:
    """The lost messages are those of the last queue file, which a broker makes for a unit."""
    root = copy_store("498_killed_restarted", tmp_path)
    (path,) = (root / "commitlog").iterdir()
    lost = [row for row in rows(root) if row.slot[2] >= 50]
    zero(path, lost[0].at, path.stat().st_size - lost[0].at)
    shutil.rmtree(root / "index")
    zero(root / "consumequeue" / "TopicTest" / "0" / "00000000000000001000", 0, 1000)
    account = account_of(root)
    assert (account.lost_already, account.at_least) == (0, True)


@pytest.mark.parametrize("which", [-1, 5])
def test_a_damaged_record_with_a_wrong_header_is_one_message(which: int, tmp_path: Path) -> None:
    """Its body and its queue offset are damaged: it is the last of its queue, or there is a gap, too."""
    root = copy_store("5.4.0-clean", tmp_path)
    row = of_queue(root, "Order_11", 0)[which]
    leave_alone(root)
    flip(row.path, row.at + HEAD.at("queue_offset"), 0)
    flip(row.path, row.at + HEAD.size + 4, 0)
    assert account_of(root).lost_already == 1


def test_a_queue_without_files_may_have_listed_messages_in_damage(tmp_path: Path) -> None:
    """Its messages were in a lost part of the log, and nothing but its directory is left of it."""
    root = copy_store("5.4.0-clean", tmp_path)
    shutil.rmtree(root / "index")
    for row in of_queue(root, "%DLQ%CG_dlq_11", 0):
        zero(row.path, row.at, row.size)
    queue = root / "consumequeue" / "%DLQ%CG_dlq_11" / "0"
    account = account_of(root)
    assert (account.lost_already, account.at_least) == (7, False)
    for path in queue.iterdir():
        path.unlink()
    assert account_of(root).at_least


def test_a_queue_without_files_beside_a_sound_log_lacks_nothing(tmp_path: Path) -> None:
    """A broker has cut it at the end of the log."""
    root = copy_store("5.4.0-clean", tmp_path)
    (root / "consumequeue" / "Order_11" / "9").mkdir()
    shutil.rmtree(root / "index")
    account = account_of(root)
    assert (account.lost_already, account.at_least) == (0, False)


def test_the_index_shows_messages_where_no_place_of_a_queue_is(tmp_path: Path) -> None:
    """A queue has a gap in its middle, and lost its last messages and its units: each of them counts."""
    root = copy_store("5.4.0-clean", tmp_path)
    gap = of_queue(root, "Order_11", 0)[2]
    zero(gap.path, gap.at, gap.size)
    lost = lose_last(root, 20)
    topic, queue_id, number = lost[0].slot
    assert topic != "Order_11"
    zero(root / "consumequeue" / "Order_11" / "0" / "00000000000000000000", gap.slot[2] * UNIT_SIZE, UNIT_SIZE)
    zero(root / "consumequeue" / topic / str(queue_id) / "00000000000000000000", number * UNIT_SIZE, 20 * UNIT_SIZE)
    assert account_of(root).lost_already == 21


def test_wrong_bits_in_a_time_and_a_queue_offset_make_no_old_records(tmp_path: Path) -> None:
    root = copy_store("498_clean", tmp_path)
    path = sorted((root / "commitlog").iterdir())[1]
    flip(path, 1496, 0)
    flip(path, 1281, 5)
    counts = counts_of(root)
    assert (counts["CL-STORE-TIME"], counts["CL-QUEUE-OFFSET"]) == (1, 1)
    assert "CL-STALE-TAIL" not in counts


@pytest.mark.parametrize(("byte", "bit"), [(8, 7), (8, 5), (9, 2), (10, 4)])
@pytest.mark.parametrize("name", ["5.4.0-clean", "4.9.7-dledger"])
def test_a_wrong_bit_in_the_size_of_a_unit_hides_no_message(name: str, byte: int, bit: int, tmp_path: Path) -> None:
    """After the end of the log, its message seems to reach over the next ones, or to be longer than any record."""
    root = copy_store(name, tmp_path)
    topic, queue_id, number = lose_last(root, 20)[5].slot
    flip(root / "consumequeue" / topic / str(queue_id) / "00000000000000000000", number * UNIT_SIZE + byte, bit)
    assert account_of(root).lost_already == 20


def test_units_after_the_end_in_a_moved_queue_file_list_their_messages(tmp_path: Path) -> None:
    """The first queue file stands in place of the second one, whose units are gone."""
    root = copy_store("498_killed_restarted", tmp_path)
    (path,) = (root / "commitlog").iterdir()
    at = rows(root)[4].at
    zero(path, at, path.stat().st_size - at)
    shutil.rmtree(root / "index")
    queue = root / "consumequeue" / "TopicTest" / "0"
    (queue / "00000000000000000000").rename(queue / "00000000000000001000")
    account = account_of(root)
    assert account.at_least
    assert list(account.queues["TopicTest", 0].lost_already) == list(range(4, 50))


# --- witnesses that outlive queues and index --------------------------------------------------------------------------


def leave_alone(root: Path) -> None:
    """Remove queues, index and the progress of consumers, so that only other witnesses list lost messages."""
    for name in ("consumequeue", "index", "config/consumerOffset.json", "config/consumerOffset.json.bak", "checkpoint"):
        path = root / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def lose_file(root: Path, at: int) -> list[Row]:
    """Remove a log file with messages, by its number, and return its messages."""
    files = sorted({row.path for row in rows(root)})
    lost = [row for row in rows(root) if row.path == files[at]]
    files[at].unlink()
    return lost


LAST, MIDDLE = -1, 1
ALONE = (
    ("5.4.0-formats", LAST, "rmq_sys_wheel_timer"),  # the timer log, and how far the timer has read its queue
    ("5.4.0-pop", LAST, "rmq_sys_wheel_timer"),
    ("5.4.0-timer-rocksdb-pending", LAST, "rmq_sys_wheel_timer"),  # rows of rocksdbstore/
    ("5.5.1-timer-rocksdb-pending", LAST, "rmq_sys_wheel_timer"),
    ("5.4.0-pop-kv", LAST, "%RETRY%PopRawGroup_11_PopRaw_11"),  # rows of kvStore/
    ("5.4.0-pop", MIDDLE, "PopRaw_11"),  # check points in the revive log
    ("5.5.1-pop", MIDDLE, "PopRaw_11"),
)


@pytest.mark.parametrize(("name", "at", "topic"), ALONE)
def test_a_service_alone_lists_messages_that_the_log_lacks(name: str, at: int, topic: str, tmp_path: Path) -> None:
    root = copy_store(name, tmp_path)
    leave_alone(root)
    lost = lose_file(root, at)
    report = verify(open_store(root), VerifyOptions(jobs=1))
    account = report.account
    assert account is not None
    gone = sum(row.slot[0] == topic for row in lost)
    assert 0 < sum(count for (queue, _), count in account.lost_by_queue.items() if queue == topic) <= gone
    assert account.lost_already <= len(lost)
    assert account.at_least
    assert f"the log lacks at least {account.lost_already} messages" in report.headline
    assert "Nothing is wrong" not in verdict_sentence(report)


def test_operation_messages_list_half_messages(tmp_path: Path) -> None:
    root = copy_store("5.4.0-clean", tmp_path)
    leave_alone(root)
    halves, ends = ([row for row in rows(root) if row.slot[0] == topic] for topic in (HALF_TOPIC, OP_HALF_TOPIC))
    ended = {int(word): row.offset for row in ends for word in bytes(row.message.body).split(b",") if word}
    last = max(ended)
    lost = [row for row in halves if row.slot[2] <= last and row.offset < ended[last]][-3:]
    assert [row.slot[2] for row in lost] == [last - 2, last - 1, last]
    for row in [*lost, *halves[halves.index(lost[-1]) + 1 :]]:
        zero(row.path, row.at, row.size)
    account = account_of(root)
    assert [number in account.queues[HALF_TOPIC, 0].lost_already for number in range(last - 2, last + 1)] == [True] * 3
    assert account.at_least


def test_a_row_of_a_half_message_lists_it(tmp_path: Path) -> None:
    root = copy_store("5.5.1-trans-rocksdb", tmp_path)
    leave_alone(root)
    half = [row for row in rows(root) if row.slot[0] == ROCKSDB_HALF_TOPIC][-1]
    zero(half.path, half.at, half.size)
    assert account_of(root).lost_already == 1


def test_the_index_of_dledger_lists_entries_of_a_removed_file(tmp_path: Path) -> None:
    root = copy_store("5.4.0-dledger", tmp_path)
    leave_alone(root)
    assert account_of(root).lost_already == 0
    lost = lose_file(root, 4)
    assert account_of(root).lost_already == len(lost)
