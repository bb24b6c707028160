"""The limit of a rebuild in a member of a DLedger group: only committed entries may have units in a queue.

Brokers dispatch only committed entries. A leader may replace later ones; their units would remain and shift those of
the entries that replace them.
"""

from __future__ import annotations

from rmqstore.checks.problems import codes
from rmqstore.checks.verify import Verified
from rmqstore.files.mapped_file_queue import message_at
from rmqstore.files.store import Store
from rmqstore.formats import consumequeue
from rmqstore.formats.consumequeue import UNIT_SIZE
from rmqstore.scan.dispatch import Name

_GROUP = "dledger-group"


def dispatch_limit(store: Store, verified: Verified, role: str) -> int | None:
    """Return the global offset up to which queues are rebuilt in a group of several peers; None for the whole log.

    Committed entries, and those that have units or index entries already: `committedIndex` is written every few
    seconds, so that a killed follower's may be far too low. 4.9 resumes the dispatch after the last unit of all queues,
    so no queue may end before it.
    """
    if role != _GROUP or verified.dledger is None:
        return None
    return max(verified.logs.committed or 0, _dispatched(store, verified), _indexed(verified))


def _indexed(verified: Verified) -> int:
    """Return the end (global offset) of the last message in the index; 0 without one."""
    log, end = verified.dledger, 0
    for file in verified.index.files if verified.index is not None and log is not None else ():
        if file.last and log is not None:
            message = message_at(log.queue, file.end_phy_offset)
            if message is not None and message.physical_offset == file.end_phy_offset:
                end = max(end, file.end_phy_offset + message.size)
    return end


def _dispatched(store: Store, verified: Verified) -> int:
    """Return the end (global offset) of the last message that has a unit; 0 without one."""
    end = 0
    for (topic, queue_id), part in verified.logs.queues.items():
        if not part.accounted:
            continue
        last = max(b for _, b in part.accounted) - 1
        raw = store.consume_queue(topic, queue_id).queue.pread(UNIT_SIZE, last * UNIT_SIZE)
        if len(raw) == UNIT_SIZE:
            unit = consumequeue.UNIT.parse(raw)
            end = max(end, int(unit["commitlog_offset"]) + int(unit["size"]))
    return end


def lag_needs_abort(verified: Verified, rebuilt: frozenset[Name] | None) -> bool:
    """Return whether messages would get no unit after a normal start in DLedger mode.

    Such a start dispatches from the committed position on. `rebuilt`: the queues that the plan rebuilds, None for all.
    """
    if codes.CQ_BEHIND not in verified.report.findings.counts or rebuilt is None:
        return False
    end = verified.logs.committed or 0
    return any(
        name not in rebuilt and any(m.first_at < end for m in part.missing)
        for name, part in verified.logs.queues.items()
    )
