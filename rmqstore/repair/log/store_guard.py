"""What every plan for a whole store asks and tells: may it be changed, where lies its log, where do its parts end."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rmqstore.brokers.dledger.library import written_by_newer
from rmqstore.checks.verify import Verified
from rmqstore.errors import Refused
from rmqstore.files.recognise import store_above
from rmqstore.files.store import Store
from rmqstore.formats import dledger
from rmqstore.repair.plan.content import Json


def refuse_whole(store: Store, verified: Verified) -> None:
    """Only whole stores are changed: lock and journal belong to the root, where no broker lists them.

    Errors: Refused.
    """
    if store.part is not None:
        above = store_above(store.path, store.config)
        advice = f"give the whole store: {above}" if above is not None else "give the broker's storePathRootDir"
        raise Refused(f"{store.path} is a part of a store ({store.part})", advice)
    if written_by_newer(store, verified.dledger.tiling if verified.dledger is not None else None):
        raise Refused(
            f"DLedger 0.4 wrote {store.path}, which no RocketMQ release uses: it is read and checked, not repaired",
            "use a replica; `rmqstore export` exports the readable messages",
        )


def refuse_overlap(store: Store) -> None:
    """Two logs with the same addresses: nothing says which of them a unit or an index entry means.

    Errors: Refused.
    """
    if store.overlap is not None:
        raise Refused(
            f"the commitlog and DLedger both have messages from {store.overlap:,} on: DLedger was switched off",
            "give -c broker.conf with enableDLegerCommitLog=false if the broker now runs without DLedger",
        )


def data_roots(store: Store) -> list[Path]:
    """Directories with files of the log; those outside of the store's root are named in a plan."""
    roots = list(store.commitlog_directories)
    if store.dledger is not None:
        roots += store.dledger.data.directories
    return [r for r in roots if r.is_dir()]


def wrote_positions(verified: Verified) -> Mapping[str, Json]:
    """Where every part really ends.

    Units: bytes for logs, timer log and DLedger index, units for consume queues, entries for index files.
    """
    report, entries = verified.report, verified.dledger
    return {
        "commitlog": verified.legacy.wrote if verified.legacy is not None else None,
        "dledger": entries.wrote if entries is not None else None,
        "dledger_index": dledger.index_at(entries.entries.last_index + 1) if entries is not None else None,
        "consumequeue": {label: state.max for label, state in sorted(report.queues.items())},
        "index": {f.name: f.last for f in verified.index.files} if verified.index is not None else {},
        "timerlog": verified.timer.wrote if verified.timer is not None and verified.timer.units else None,
    }
