"""An unreadable DLedger entry behind the committed position: what is dispatched behind it depends on time.

Seen on 5.4.0: ReputMessageService#doReput jumps to the end of what is readable, which is what is committed at that
moment (`[BUG]dispatch message to consume queue error, COMMITLOG OFFSET`), and then reads on in the middle of an entry.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rmqstore.brokers.simulate import simulate_start
from rmqstore.checks.verify import verify
from rmqstore.files.store import open_store
from tests.damage import zero
from tests.forecast.dledger_damages import dledger_checkpoint, swap_data_files
from tests.repair.salvaging import rows

Copy = Callable[[str], Path]


@pytest.mark.parametrize(("number", "depends"), [(-100, True), (10, False)])
def test_what_is_skipped_depends_on_commits_only_behind_the_committed_position(
    number: int, depends: bool, store_copy: Copy
) -> None:
    store = store_copy("5.4.0-dledger-killed")
    row = rows(store)[number]
    zero(row.path, row.at, row.size)  # its entry stays: DLedger's own recovery does not mind
    forecast = simulate_start(open_store(store), version="5.4.0")
    assert forecast.starts
    assert forecast.depends_on_commits == (row.offset - row.lead if depends else None)
    said = f"; behind the damage at {row.offset - row.lead:,} it may skip more, which depends on when a leader commits"
    assert (said in forecast.sentence()) == depends
    assert (said in str(verify(open_store(store)).verdict)) == depends


def test_no_entry_is_committed_while_the_log_ends_in_front_of_its_first_entry(store_copy: Copy) -> None:
    """Seen on 5.4.0: these queue ends, and nothing can be read (DLedgerMmapFileStore#updateCommittedIndex skips)."""
    store = store_copy("5.4.0-dledger")
    swap_data_files(0, -1)(store)
    dledger_checkpoint("endIndex=5\ncommittedIndex=5\n")(store)
    forecast = simulate_start(open_store(store), version="5.4.0")
    assert (forecast.starts, forecast.max_offset, forecast.commits_from) == (True, 0, 516)
    ends = {name: forecast.queue_ends[name, 0] for name in ("%DLQ%CG_dlq_11", "RMQ_SYS_TRANS_HALF_TOPIC")}
    assert ends == {"%DLQ%CG_dlq_11": (0, 1), "RMQ_SYS_TRANS_HALF_TOPIC": (0, 36)}
    said = ", but no message of DLedger can be read before entry 516 is appended"
    assert forecast.sentence().endswith(said)
    assert said in str(verify(open_store(store)).verdict)
