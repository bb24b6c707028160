"""What all plans for a whole store ask: whether it may be changed, its data directories, the ends of its parts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rmqstore.brokers.dledger_nodes import written_by_newer
from rmqstore.checks.verified import Verified
from rmqstore.documents.content import Json
from rmqstore.errors import Refused
from rmqstore.files.recognise import store_above
from rmqstore.files.store import Store, unknown_entries
from rmqstore.formats import dledger
from rmqstore.texts import Text


def refuse_whole(store: Store, verified: Verified) -> None:
    """Refuse parts of a store, because lock and journal belong to its root, and stores of DLedger 0.4.

    Errors: Refused.
    """
    if store.part is not None:
        above = store_above(store.files, store.path, store.config)
        advice = (
            Text("give the whole store: {above}", above=above)
            if above is not None
            else Text("give the broker's storePathRootDir")
        )
        raise Refused(Text("{path} is a part of a store ({part})", path=store.path, part=store.part), advice)
    if written_by_newer(store, verified.dledger.tiling if verified.dledger is not None else None):
        raise Refused(
            Text(
                "DLedger 0.4 wrote {path}, which no RocketMQ release uses: it is read and checked, not repaired",
                path=store.path,
            ),
            Text("copy the store of another node; `rmqstore export` saves the readable messages of this one"),
        )


def refuse_overlap(store: Store) -> None:
    """Refuse two logs with the same offsets: a unit or an index entry could belong to either.

    Errors: Refused.
    """
    if store.overlap is not None:
        raise Refused(
            Text(
                "the commitlog and DLedger both have messages from {overlap:,} on: DLedger was switched off",
                overlap=store.overlap,
            ),
            Text("give -c broker.conf with enableDLegerCommitLog=false if the broker now runs without DLedger"),
        )


def refuse_unknown(store: Store) -> None:
    """Refuse a repair after which the log ends earlier, if an unknown entry of the store may hold positions in it.

    Errors: Refused.
    """
    for unknown in unknown_entries(store):
        if unknown.holds:
            raise Refused(
                Text(
                    "{path} is unknown, and {holds}: it may point to messages that this repair cuts",
                    path=unknown.entry.path,
                    holds=unknown.holds,
                ),
                Text(
                    "use --replica with --extend; or find out what it is, move it out of the store, and run this again"
                ),
            )


def data_roots(store: Store) -> list[Path]:
    """Return the existing directories for log files."""
    roots = list(store.commitlog_directories)
    if store.dledger is not None:
        roots += store.dledger.data.directories
    return [r for r in roots if store.files.is_directory(r)]


def wrote_positions(verified: Verified) -> Mapping[str, Json]:
    """Return the end of the valid data in each part.

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
