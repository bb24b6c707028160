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
