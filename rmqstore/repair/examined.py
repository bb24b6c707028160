"""Examine a store, plan, and examine the store as it will be after the plan.

A plan for a store to which a broker may be writing can only be shown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from rmqstore.checks.examine import examine_lasting
from rmqstore.checks.options import VerifyOptions
from rmqstore.checks.verified import Verified
from rmqstore.documents.outcome import Outcome
from rmqstore.documents.plan import Plan
from rmqstore.files.store import Store, while_files_expire
from rmqstore.repair.plan.plan_builder import PlanBuilder
from rmqstore.repair.planned import SPLIT, FirstParts, after, examine_again, measure, with_loss
from rmqstore.repair.rebuild.unit_buffer import KeptUnits
from rmqstore.repair.store_guard import data_roots, refuse_whole
from rmqstore.texts import Text

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
