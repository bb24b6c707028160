"""What all plans for a whole store ask: whether it may be changed, its data directories, the ends of its parts.

A plan for a store to which a broker may be writing can only be shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from rmqstore.brokers.dledger_nodes import written_by_newer
from rmqstore.checks.examine import examine_lasting
from rmqstore.checks.options import VerifyOptions
from rmqstore.checks.verified import Verified
from rmqstore.documents.content import Json
from rmqstore.documents.outcome import Outcome
from rmqstore.documents.plan import Plan
from rmqstore.errors import Refused
from rmqstore.files.recognise import store_above
from rmqstore.files.store import Store, unknown_entries, while_files_expire
from rmqstore.formats import dledger
from rmqstore.repair.plan.plan_builder import PlanBuilder
from rmqstore.repair.planned import SPLIT, FirstParts, after, examine_again, measure, with_loss
from rmqstore.repair.rebuild.unit_buffer import KeptUnits
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
            Text("use a replica; `rmqstore export` exports the readable messages"),
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


NOTE = Text("a broker is running on this store: the plan is not final, and cannot be applied")


class Planned(NamedTuple):
    """A store, its examination, and the plan, all from the same read.

    `outcome`: what a verification will find after the plan; None if a broker is running, nothing is planned, or the
    examination did not read the bodies.
    """

    store: Store
    verified: Verified
    plan: Plan
    outcome: Outcome | None = None


def examine_and_plan(
    store: Store,
    options: VerifyOptions,
    plan: Callable[[Store, Verified], Plan],
    *,
    keep_units: Callable[[], KeptUnits] | None = None,
    cures: bool = True,
) -> Planned:
    """Examine a store and plan; `cures` means that findings are the reason for the plan.

    If a broker is running and no finding persists, such a plan is empty: the findings came from concurrent writes.
    Errors: those of `plan`; StoreIsLive if files expire faster than planning takes.
    """

    first = FirstParts()
    keeping = replace(options, last_run=first, split_size=options.split_size or SPLIT)

    def work(look: Store) -> Planned:
        look, verified = examine_lasting(look, keeping, keep_units=keep_units)
        if cures and verified.report.live and not verified.report.has_problems:
            return Planned(look, verified, _nothing(look, verified))
        made = plan(look, verified)
        if made.empty or verified.report.live:
            return Planned(look, verified, with_loss(made, verified, verified))
        if options.quick:
            return Planned(look, verified, with_loss(made, verified, examine_again(after(look, made), keeping, first)))
        return Planned(look, verified, *measure(look, made, verified, keeping, first))

    return while_files_expire(store, work)


def _nothing(store: Store, verified: Verified) -> Plan:
    refuse_whole(store, verified)
    draft = PlanBuilder(store)
    draft.notes.append(NOTE)
    return draft.plan(data_roots(store))
