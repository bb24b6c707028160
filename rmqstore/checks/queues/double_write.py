"""A RocksDB with the same queues beside consume queues in files (rocksdbCQDoubleWriteEnable).

A broker opens it at the start, and load returns false if this fails. It then dispatches again from some log files
before the end of the RocksDB, and serves consumers from the files. Source: CombineConsumeQueueStore (RocketMQ 5.4.0).
"""

from __future__ import annotations

from collections.abc import Mapping

from rmqstore.checks.problems.report import Findings, QueueState
from rmqstore.files.store import Store

NAMED = "consumequeue/: a RocksDB of the same queues exists beside the files (rocksdbCQDoubleWriteEnable)"
BEFORE_READING = (
    "before a broker reads it (storeType=defaultRocksDB, combineCQPreferCQType=defaultRocksDB), run `rmqstore rebuild "
    "STORE cq` with the extra rocksdb, which makes it from the log"
)


def check_double_written(
    store: Store, states: Mapping[str, QueueState], findings: Findings, *, live: bool
) -> tuple[str, str]:
    """Check whether the RocksDB can be opened; return a note, and what was not checked ("" for nothing)."""
    from rmqstore.checks.queues.rocksdb import damaged_database
    from rmqstore.files.rocksdb.database import MISSING_EXTRA, CannotRead, DamagedDatabase, is_readable
    from rmqstore.files.rocksdb.queues import RocksDBQueues

    if not is_readable():
        return f"{NAMED}; consumers are served from the files", f"{NAMED}: whether a broker can open it {MISSING_EXTRA}"
    try:
        bounds = RocksDBQueues(store).bounds()
    except CannotRead as e:
        if isinstance(e, DamagedDatabase) and store.dledger is None:
            findings.add(damaged_database(str(e), beside="the queue files"))
            return "", ""
        return "", f"{NAMED}, and cannot be read: {e}; a broker that writes both does not start with it"
    ends = {f"{t}/{q}": b["max"].queue_offset + 1 for (t, q), b in bounds.items() if "max" in b}
    other = [name for name in {*states, *ends} if ends.get(name, 0) != _end(states, name)]
    words = "; consumers are served from the files, and its rows are not compared with the log"
    if other and not live and states:
        many = "1 queue ends" if len(other) == 1 else f"{len(other)} queues end"
        words += f". {many} elsewhere in it than in the files: {BEFORE_READING}"
    return NAMED + words, ""


def _end(states: Mapping[str, QueueState], name: str) -> int:
    state = states.get(name)
    return state.max if state is not None else 0
