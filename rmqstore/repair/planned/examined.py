"""The store as it will be after a plan, and its examination, which reads only what the plan changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rmqstore.checks.problems.report import Report
from rmqstore.checks.verify import Verified, VerifyOptions, examine
from rmqstore.files.store import Store, open_store
from rmqstore.repair.plan.outcome import Outcome, measured
from rmqstore.repair.plan.plan import Plan
from rmqstore.repair.planned.known_parts import SPLIT, FirstParts, PartsAfter
from rmqstore.repair.planned.overlay import Overlay


def after(store: Store, plan: Plan) -> Store:
    """Return a store as it will be after a plan.

    Errors: as `open_store`.
    """
    return open_store(
        store.path, store.config.changed(plan.settings), Overlay(store.files, plan.steps, Path(plan.store))
    )


def measure(
    store: Store,
    plan: Plan,
    before: Report,
    options: VerifyOptions | None = None,
    first: FirstParts | None = None,
) -> tuple[Plan, Outcome]:
    """Examine a store as it will be after a plan; return the plan with what was measured, and the outcome.

    `before`: the report on the store as it is, made with the same options. Errors: as `examine_again`.
    """
    outcome = Outcome.of(examine_again(after(store, plan), options or VerifyOptions(), first).report)
    return measured(plan, before, outcome), outcome


def examine_again(planned: Store, options: VerifyOptions, first: FirstParts | None = None) -> Verified:
    """Examine a store as it will be after a plan; parts that it does not change are taken from the `first` examination.

    Errors: as `examine`, and those of the contents of the plan.
    """
    parts = None
    if first is not None and isinstance(planned.files, Overlay):
        parts = PartsAfter(first, planned.files)
        options = replace(options, split_size=options.split_size or SPLIT)
    own = replace(options, jobs=1, last_run=parts, units=None, sink=None, progress=None)
    return examine(planned, own)
