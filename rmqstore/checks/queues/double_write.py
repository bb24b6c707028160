"""A RocksDB with the same queues beside consume queues in files (rocksdbCQDoubleWriteEnable).

A broker opens it at the start, and load returns false if this fails. It then dispatches again from some log files
before the end of the RocksDB, and serves consumers from the files. Source: CombineConsumeQueueStore (RocketMQ 5.4.0).
"""

from __future__ import annotations

from collections.abc import Mapping

from rmqstore.checks.problems.report import QueueState, Report
from rmqstore.files.store import Store
from rmqstore.formats.text.counts import many

NAMED = "consumequeue/: a RocksDB of the same queues exists beside the files (rocksdbCQDoubleWriteEnable)"
BEFORE_READING = (
    "before a broker reads it (storeType=defaultRocksDB, combineCQPreferCQType=defaultRocksDB), run `rmqstore rebuild "
    "STORE cq` with the extra rocksdb, which makes it from the log"
)


def check_double_written(store: Store, states: Mapping[str, QueueState], report: Report) -> bool:
    """Check the ends of the queues in the RocksDB; return whether it cannot be opened."""
    from rmqstore.checks.queues.rocksdb import damaged_database, unknown_format
    from rmqstore.files.rocksdb.database import CannotRead, DamagedDatabase, UnknownFormat, is_readable, missing_extra
    from rmqstore.files.rocksdb.queues import RocksDBQueues

    if not is_readable():
        report.notes.append(f"{NAMED}; consumers are served from the files")
        report.unchecked.append(f"{NAMED}: to check whether a broker can open it, rmqstore {missing_extra()}")
        return False
    try:
        bounds = RocksDBQueues(store).bounds()
    except CannotRead as e:
        if isinstance(e, DamagedDatabase) and store.dledger is None:
            report.findings.add(damaged_database(str(e), beside="the queue files"))
        elif isinstance(e, UnknownFormat):
            report.findings.add(unknown_format(str(e), beside="the queue files"))
        else:
            report.unchecked.append(
                f"{NAMED}, and cannot be read: {e}; a broker that writes both does not start with it"
            )
        return True
    ends = {f"{t}/{q}": b["max"].queue_offset + 1 for (t, q), b in bounds.items() if "max" in b}
    none = QueueState(0, 0, 0)
    other = [name for name in {*states, *ends} if ends.get(name, 0) != states.get(name, none).max]
    note = f"{NAMED}; consumers are served from the files, and its rows are not compared with the log"
    if other and not report.live and states:
        differ = many(len(other), "queue ends", "queues end")
        note += f". {differ} elsewhere in it than in the files: {BEFORE_READING}"
    report.notes.append(note)
    return False
