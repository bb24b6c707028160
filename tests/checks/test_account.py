"""The account of the messages: its numbers are those of the messages that damage took, counted by their places."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from pathlib import Path

import pytest

from rmqstore.checks.examine import verify
from rmqstore.checks.options import VerifyOptions
from rmqstore.checks.problems.report import Report
from rmqstore.cli.printing.verify_text import verdict_sentence
from rmqstore.files.store import open_store
from rmqstore.formats import dledger
from rmqstore.formats.consumequeue import UNIT_SIZE
from rmqstore.formats.message import HEAD
from tests.checks.looks import unit
from tests.command import run_json
from tests.damage import overwrite, zero
from tests.repair.salvaging import rows
from tests.stores import copy_store

NOTHING = {
    "lost_already": 0,
    "lost_at_next_start": 0,
    "undelivered": 0,
    "gone_before_begin": 0,
    "unread_gone": {},
    "at_least": False,
}


def look(root: Path, version: str = "5.4.0") -> Report:
    return verify(open_store(root), VerifyOptions(jobs=1, broker=version))


def account_of(report: Report) -> dict[str, object]:
    assert report.account is not None
    assert report.to_json()["account"] == report.account.to_json()
    return report.account.to_json()


def log_files(root: Path) -> list[Path]:
    return sorted((root / "commitlog").iterdir())


def test_the_first_log_file_is_gone_and_the_note_has_numbers(tmp_path: Path) -> None:
    root = copy_store("5.4.0-clean", tmp_path)
    offsets = root / "config" / "consumerOffset.json"
    text = offsets.read_text()
    assert '"Pay_11_Topic@CG_tag_11":{\n\t\t\t0:33,\n\t\t\t1:46' in text
    times = offsets.stat()
    offsets.write_text(text.replace("\t\t\t0:33,\n\t\t\t1:46", "\t\t\t0:0,\n\t\t\t1:46"))
    os.utime(offsets, ns=(times.st_atime_ns, times.st_mtime_ns))  # when the broker last ran
    unread = sum(row.path == log_files(root)[0] and row.slot[:2] == ("Pay_11_Topic", 0) for row in rows(root))
    gone = sum(row.path == log_files(root)[0] for row in rows(root))
    assert (gone, unread) == (120, 3)
    log_files(root)[0].unlink()
    report = look(root)
    assert account_of(report) == NOTHING | {"gone_before_begin": gone, "unread_gone": {"CG_tag_11": unread}}
    assert (report.clean, report.exit_code) == (True, 0)
    assert verdict_sentence(report) == (
        "RocketMQ 5.4.0 would start and lose nothing. Nothing is wrong with this store, which begins at 65,536 "
        "(120 earlier messages are gone)."
    )
    assert report.notes[-1] == (
        "consume queues or the index still list 120 messages before the log's begin at 65,536; groups that had not "
        "read all of them, and how many: CG_tag_11 (3)"
    )


def test_a_store_without_an_index_says_of_how_many_messages_no_key_is_found(tmp_path: Path) -> None:
    root = copy_store("5.4.0-clean", tmp_path)
    shutil.rmtree(root / "index")
    report = look(root)
    assert report.exit_code == 0
    assert verdict_sentence(report).endswith(
        "Nothing is wrong with this store, but it has no index: queries by key find none of 553 messages."
    )


def test_the_last_log_file_is_gone(tmp_path: Path) -> None:
    root = copy_store("5.4.0-clean", tmp_path)
    log_files(root)[-1].unlink()
    report = look(root)
    assert account_of(report) == NOTHING | {"lost_already": 20}
    assert report.headline == "RocketMQ 5.4.0 would start and lose nothing, but the log lacks 20 messages of 7 queues"
    assert report.account is not None
    assert sum(report.account.lost_by_queue.values()) == 20


def swap(one: Path, two: Path) -> None:
    before = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(before)


@pytest.mark.parametrize(("version", "cut", "hidden"), [("5.4.0", 0, 92), ("4.9.7", 145, 0)])
def test_swapped_log_files_hide_their_messages_until_they_are_renamed(
    version: str, cut: int, hidden: int, tmp_path: Path
) -> None:
    """4.9.7 ends its log where the last records are now, and deletes the files after them, whatever they hold."""
    root = copy_store("5.4.0-clean", tmp_path)
    files = log_files(root)
    by_file = Counter(row.path for row in rows(root))
    left = by_file[files[7]] if cut else 0  # without units: they are cut
    assert (cut, hidden) in ((by_file[files[5]] + by_file[files[6]], 0), (0, by_file[files[5]] + by_file[files[7]]))
    swap(files[5], files[7])
    report = look(root, version)
    assert account_of(report) == NOTHING | {"lost_at_next_start": cut, "undelivered": hidden + left}
    assert report.headline.endswith(
        f"2 log files have wrong names: consumers get errors or other messages in place of {hidden} messages"
        if hidden
        else f"leave {left} messages of 7 queues without consume queue units: nobody gets them, but 2 log files have "
        "wrong names"
    )
    listed = run_json("lost", str(root), "--broker", version, exit_code=1)["messages"]
    assert isinstance(listed, list)
    assert len(listed) == len({(row["topic"], row["queue_id"], row["queue_offset"]) for row in listed})
    assert Counter(row["cause"] for row in listed) == +Counter({"cut": cut, "no-unit": hidden + left})


def test_wrong_queue_offsets_of_the_last_records_are_no_lost_messages(tmp_path: Path) -> None:
    root = copy_store("5.4.0-clean", tmp_path)
    last = [row for row in rows(root) if row.slot[:2] == ("Order_11", 0)][-2:]
    for row in last:
        overwrite(row.path, row.at + HEAD.at("queue_offset"), (row.message.queue_offset + 16).to_bytes(8, "big"))
    assert account_of(look(root)) == NOTHING | {"undelivered": 2}
    overwrite(last[0].path, last[0].at - 300, bytes(100))  # now messages may be missing before them
    assert account_of(look(root))["lost_already"] != 0


@pytest.mark.parametrize(("size", "served"), [(-1, False), (1, True), (1 << 16, False)])
def test_no_consumer_gets_a_message_whose_unit_is_too_short_or_reaches_over_its_file(
    size: int, served: bool, tmp_path: Path
) -> None:
    root = copy_store("5.4.0-clean", tmp_path)
    row = next(row for row in rows(root) if row.slot == ("Order_11", 0, 2))
    overwrite(
        root / "consumequeue" / "Order_11" / "0" / "00000000000000000000",
        2 * UNIT_SIZE + 8,
        (row.size + size).to_bytes(4, "big"),
    )
    report = look(root)
    assert account_of(report) == NOTHING | {"undelivered": int(not served)}
    assert ("never deliver 1 message of 1 queue" in report.headline) is not served
    listed = run_json("lost", str(root), exit_code=int(not served))["messages"]
    assert isinstance(listed, list)
    assert [(row["topic"], row["queue_id"], row["queue_offset"], row["cause"]) for row in listed] == (
        [] if served else [("Order_11", 0, 2, "no-unit")]
    )


def test_messages_that_a_start_puts_at_wrong_queue_offsets_are_delivered(tmp_path: Path) -> None:
    """The last three of a queue without units get the first three units; nobody gets the others."""
    root = copy_store("5.1.4-killed", tmp_path)
    queue = root / "consumequeue" / "log-15445" / "2" / "00000000000000000000"
    zero(queue, 0, queue.stat().st_size)
    report = look(root, "5.5.1")
    assert report.account is not None
    one = report.account.queues["log-15445", 2]
    assert (one.served.parts, one.undelivered.parts) == (((90, 93),), ((0, 90),))
    assert report.headline.endswith("and put 3 messages of 1 queue at wrong queue offsets")


def test_only_the_index_lists_the_last_messages(tmp_path: Path) -> None:
    root = copy_store("5.4.0-clean", tmp_path)
    first = rows(root)[-14]
    zero(first.path, first.at, first.path.stat().st_size - first.at)
    shutil.rmtree(root / "consumequeue")
    assert account_of(look(root)) == NOTHING | {"lost_already": 14, "at_least": True}


def test_only_the_index_of_dledger_lists_the_last_messages(tmp_path: Path) -> None:
    root = copy_store("5.4.0-dledger", tmp_path)
    first = rows(root)[-14]
    zero(first.path, first.at - dledger.ENTRY.size, first.path.stat().st_size - first.at + dledger.ENTRY.size)
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "index")
    account = account_of(look(root))
    assert (account["lost_already"], account["at_least"]) == (14, True)


def test_a_damaged_message_is_listed_by_its_unit(tmp_path: Path) -> None:
    root = copy_store("5.4.0-clean", tmp_path)
    hit = [row for row in rows(root) if row.slot[:2] == ("Order_11", 1)][5]
    overwrite(hit.path, hit.at, b"\xff" * 8)
    report = look(root)
    assert report.account is not None
    assert report.account.lost_by_queue == {("Order_11", 1): 1}
    assert list(report.account.queues["Order_11", 1].lost_already) == [hit.slot[2]]


def test_queues_that_do_not_begin_at_0_are_not_counted_from_0(tmp_path: Path) -> None:
    """The messages of queues that are missing count, and not the places before the begin of the log."""
    root = copy_store("5.4.0-clean", tmp_path)
    for path in log_files(root)[:-1]:
        path.unlink()
    left = [row for row in rows(root) if row.slot[0] in ("Order_11", "Pay_11_Topic")]
    for topic in ("Order_11", "Pay_11_Topic"):
        shutil.rmtree(root / "consumequeue" / topic)
    report = look(root)
    account = account_of(report)
    assert (account["undelivered"], account["lost_already"]) == (len(left), 0)
    assert f"never deliver {len(left)} messages of " in report.verdict


def test_a_unit_that_its_queue_leaves_no_room_for_lists_nothing(tmp_path: Path) -> None:
    root = copy_store("5.4.0-clean", tmp_path)
    queue = root / "consumequeue" / "Order_11" / "0" / "00000000000000000000"
    overwrite(queue, 50 * 20, unit(100, 300))  # after the last message of the queue, but before it in the log
    assert account_of(look(root)) == NOTHING


@pytest.mark.parametrize("name", ["4.9.7-clean", "5.1.4-killed", "5.4.0-formats", "5.4.0-dledger-mixed", "5.5.1-slave"])
def test_a_sound_store_lacks_nothing(name: str, tmp_path: Path) -> None:
    account = account_of(look(copy_store(name, tmp_path), name[:5]))
    assert account == NOTHING


def test_a_record_at_a_wrong_place_is_one_lost_message(tmp_path: Path) -> None:
    """Its QUEUEID is wrong, and no unit is left that would say so."""
    root = copy_store("5.4.0-clean", tmp_path)
    hit = next(row for row in rows(root) if row.slot == ("Order_11", 0, 7))
    overwrite(hit.path, hit.at + HEAD.at("queue_id"), (1).to_bytes(4, "big"))
    account = account_of(look(root))
    assert account["lost_already"] == 0  # its unit shows that it is there


def test_a_log_whose_messages_have_all_expired_is_no_loss(tmp_path: Path) -> None:
    root = copy_store("5.4.0-clean", tmp_path)
    last = log_files(root)[-1]
    for path in log_files(root):
        path.unlink()
    (last.parent / f"{int(last.name) + 65536:020}").write_bytes(bytes(65536))
    report = look(root)
    assert (dict(report.findings.counts), report.exit_code) == ({}, 0)
    assert account_of(report) | {"unread_gone": {}} == NOTHING | {"gone_before_begin": 553}


def test_a_message_whose_entry_has_a_damaged_header_is_not_lost(tmp_path: Path) -> None:
    root = copy_store("5.4.0-dledger", tmp_path)
    found = rows(root)
    row = found[len(found) // 2]
    overwrite(row.path, row.at - row.body_offset, b"\xff" * 8)
    report = look(root)
    assert dict(report.findings.counts) == {"DL-HEADER": 1}
    assert account_of(report) == NOTHING
