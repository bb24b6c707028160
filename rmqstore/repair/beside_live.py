"""Plans for a store to which a broker may be writing; such a plan can only be shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from rmqstore.checks.verify import Verified, VerifyOptions, examine_lasting
from rmqstore.files.store import Store, while_files_expire
from rmqstore.repair.log.store_guard import data_roots, refuse_whole
from rmqstore.repair.plan.outcome import Outcome
from rmqstore.repair.plan.plan import Plan
from rmqstore.repair.plan.plan_builder import PlanBuilder
from rmqstore.repair.planned.examined import measure
from rmqstore.repair.planned.known_parts import SPLIT, FirstParts
from rmqstore.repair.rebuild.unit_buffer import KeptUnits
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
        if made.empty or verified.report.live or options.quick:
            return Planned(look, verified, made)
        return Planned(look, verified, *measure(look, made, verified.report, keeping, first))

    return while_files_expire(store, work)


def _nothing(store: Store, verified: Verified) -> Plan:
    refuse_whole(store, verified)
    draft = PlanBuilder(store)
    draft.notes.append(NOTE)
    return draft.plan(data_roots(store))
