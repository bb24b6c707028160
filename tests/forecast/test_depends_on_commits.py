"""An unreadable DLedger entry after the committed position: what is dispatched after it depends on timing.

Observed on 5.4.0: ReputMessageService#doReput jumps to the end of the readable data, which is the committed position at
that moment (`[BUG]dispatch message to consume queue error, COMMITLOG OFFSET`), and continues in the middle of an entry.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqstore.brokers.simulate import simulate_start
from rmqstore.checks.examine import verify
from rmqstore.files.store import open_store
from rmqstore.formats.message import build_blank
from tests.damage import overwrite, zero
from tests.forecast.damages import no_queues
from tests.forecast.dledger_damages import dledger_checkpoint, swap_data_files
from tests.repair.salvaging import rows
from tests.stores import VERSIONS, copy_store


@pytest.mark.parametrize(("number", "depends"), [(-100, True), (10, False)])
def test_what_is_skipped_depends_on_commits_only_after_the_committed_position(
    number: int, depends: bool, tmp_path: Path
) -> None:
    store = copy_store("5.4.0-dledger-killed", tmp_path)
    row = rows(store)[number]
    zero(row.path, row.at, row.size)  # the entry header stays, so DLedger's own recovery accepts the entry
    forecast = simulate_start(open_store(store), version="5.4.0")
    assert forecast.starts
    assert forecast.depends_on_commits == (row.offset - row.body_offset if depends else None)
    start = row.offset - row.body_offset
    text = f"; after the damage at {start:,} it may skip more messages, depending on when a leader commits"
    assert (text in forecast.sentence()) == depends
    report = verify(open_store(store))
    assert (text in str(report.verdict)) == depends
    assert report.broker is not None
    assert report.broker["depends_on_commits"] == forecast.depends_on_commits


@pytest.mark.parametrize("version", VERSIONS[:-1])
def test_blank_in_the_place_of_a_message_gets_a_unit_and_what_follows_depends_on_commits(
    version: str, tmp_path: Path
) -> None:
    """Observed on 4.9.7, 5.1.4 and 5.4.0: a queue without a topic gets a unit, and the rest of the committed data is
    skipped. 5.5.1 refuses the negative size.

    DLedgerCommitLog#checkMessageAndReturnSize adds the entry's 48 bytes to the size 0 of the BLANK, so that
    ReputMessageService#doReput handles it as a message.
    """
    store = copy_store("4.9.7-dledger-killed", tmp_path)
    no_queues(store)
    path, at = store / "dledger-n0/data/00000000000000196608", 40930
    overwrite(path, at, b"\xff" * 4 + build_blank(8)[4:])
    forecast = simulate_start(open_store(store), version=version)
    assert forecast.starts
    assert forecast.queue_ends["", 0] == (0, 1)
    assert forecast.depends_on_commits == 196608 + at


def test_no_entry_is_committed_while_the_log_ends_in_front_of_its_first_entry(tmp_path: Path) -> None:
    """Observed on 5.4.0: these queue ends, and no readable message (see DLedgerMmapFileStore#updateCommittedIndex)."""
    store = copy_store("5.4.0-dledger", tmp_path)
    swap_data_files(0, -1)(store)
    dledger_checkpoint("endIndex=5\ncommittedIndex=5\n")(store)
    forecast = simulate_start(open_store(store), version="5.4.0")
    assert (forecast.starts, forecast.max_offset, forecast.commits_from) == (True, 0, 516)
    ends = {name: forecast.queue_ends[name, 0] for name in ("%DLQ%CG_dlq_11", "RMQ_SYS_TRANS_HALF_TOPIC")}
    assert ends == {"%DLQ%CG_dlq_11": (0, 1), "RMQ_SYS_TRANS_HALF_TOPIC": (0, 36)}
    text = ", but no DLedger message can be read until entry 516 is appended"
    assert forecast.sentence().endswith(text)
    report = verify(open_store(store))
    assert text in str(report.verdict)
    assert report.broker is not None
    assert report.broker["commits_from"] == 516
