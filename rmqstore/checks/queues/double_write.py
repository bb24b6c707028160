"""A RocksDB with the same queues beside consume queues in files (rocksdbCQDoubleWriteEnable).

A broker opens it at the start, and load returns false if this fails. It then dispatches again from some log files
before the end of the RocksDB, and serves consumers from the files. Source: CombineConsumeQueueStore (RocketMQ 5.4.0).
`files/rocksdb/written_rows.py` says which queues it writes; those that are only in the RocksDB are compared with the
log.
"""

from __future__ import annotations

from collections.abc import Mapping

from rmqstore.checks.problems.report import QueueState, Report
from rmqstore.files.rocksdb.written_rows import BEFORE_READING, beside_words
from rmqstore.files.store import Store
from rmqstore.files.store_queues import PREFERRED, chooses_rocksdb
from rmqstore.formats.consumequeue import topic_of
from rmqstore.formats.properties import is_lmq
from rmqstore.formats.text import many
from rmqstore.texts import Text


def check_double_written(store: Store, states: Mapping[str, QueueState], report: Report) -> bool:
    """Check the ends of the queues in the RocksDB; return whether it cannot be opened."""
    from rmqstore.checks.queues.rocksdb import unreadable_database
    from rmqstore.files.rocksdb.database import CannotRead, DamagedDatabase, is_readable, missing_extra
    from rmqstore.files.rocksdb.queues import RocksDBQueues
    from rmqstore.files.rocksdb.written_rows import written_rows

    named = beside_words(store)
    if not is_readable():
        report.notes.append(Text("{named}; consumers are served from the files", named=named))
        report.unchecked.append(
            Text(
                "{named}: to check whether a broker can open it, rmqstore {missing_extra}",
                named=named,
                missing_extra=missing_extra(),
            )
        )
        return False
    try:
        bounds = RocksDBQueues(store).bounds()
    except CannotRead as e:
        finding = unreadable_database(store, e, beside=Text("the queue files"))
        if finding is not None and not (isinstance(e, DamagedDatabase) and store.dledger is not None):
            report.findings.add(finding)
        else:
            report.unchecked.append(
                Text(
                    "{named}, and cannot be read: {e}; a broker that writes both does not start with it",
                    named=named,
                    e=e,
                )
            )
        return True
    ends = {f"{t}/{q}": b["max"].queue_offset + 1 for (t, q), b in bounds.items() if "max" in b}
    none, rule = QueueState(0, 0, 0), written_rows(store)
    both = [name for name in {*states, *ends} if rule.equals_files(topic_of(name))]
    other = [name for name in both if ends.get(name, 0) != states.get(name, none).max]
    if chooses_rocksdb(store.config, PREFERRED):
        report.unchecked.append(
            Text(
                "{named}; consumers are served from it ({preferred}), and its rows are not compared with the "
                "log: verify the store with a broker.conf that has storeType=defaultRocksDB",
                named=named,
                preferred=PREFERRED,
            )
        )
        return False
    note = Text("{named}; consumers are served from the files, and its rows are not compared with the log", named=named)
    if rule.light and any(is_lmq(topic) for topic, _ in bounds):
        note = Text("{note}, except those of light queues (%LMQ%), which are only there", note=note)
    if rule.topics is not None:
        note = Text(
            "{note}; only topics with message.type=LITE are written twice (rocksdbCQSelectiveDoubleWriteEnable)",
            note=note,
        )
    if other and not report.live and states:
        differ = many(len(other), "queue ends", "queues end")
        note = Text(
            "{note}. {differ} at other offsets in RocksDB than in the files: {before_reading}",
            note=note,
            differ=differ,
            before_reading=BEFORE_READING,
        )
    report.notes.append(note)
    return False
