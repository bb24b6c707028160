"""`rmqstore expire`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import click

from rmqstore.cli.printing.output import Output
from rmqstore.cli.printing.quantities import many
from rmqstore.cli.shared.options import Applying, WorkOptions, applying, broker_option, command

if TYPE_CHECKING:
    from rmqstore.checks.verify import Verified
    from rmqstore.files.broker_config import BrokerConfig
    from rmqstore.files.store import Store
    from rmqstore.repair.plan.plan import Plan


@command(
    "expire",
    report=True,
    work=True,
    examples=(
        "rmqstore expire /data/rocketmq/store -c broker.conf",
        "rmqstore expire /data/rocketmq/store --reserved 24 --any-hour --apply",
        "rmqstore expire /data/rocketmq/store -c broker.conf --json | jq '.loss, .notes'",
    ),
)
@click.option(
    "--reserved",
    type=click.IntRange(0),
    metavar="HOURS",
    help="Keep files for this many hours (default: fileReservedTime of broker.conf, or 72).",
)
@click.option("--any-hour", is_flag=True, help="Do not wait for the hour of deleteWhen.")
@applying()
@broker_option
def expire(
    out: Output,
    store: Path,
    config: BrokerConfig,
    reserved: int | None,
    any_hour: bool,
    applying: Applying,
    work: WorkOptions,
) -> int:
    """Show which files the broker's clean-up would delete now, why it keeps the others, and which messages are lost.

    As in the broker, the age of a file counts from its last modification, the hour comes from deleteWhen, and a full
    disk makes files expire early. The broker deletes ten files per round; this command shows all rounds. With --apply,
    the files are moved to quarantine: `rmqstore undo` restores them, and removing the journal frees the space.
    """
    from rmqstore.checks.verify import NO_BODY_CRCS
    from rmqstore.cli.shared.apply_command import finish, open_for, plan_change, read_plan_of
    from rmqstore.repair.expire import ExpireOptions, plan_expire

    opened = open_for(out, store, config, applying)

    def plan(look: Store, _: Verified) -> Plan:
        if applying.plan_file is not None:
            return read_plan_of(applying.plan_file, look, "expire")
        return plan_expire(look, ExpireOptions(reserved, any_hour, version=work.broker)).plan

    change = plan_change(out, "rmqstore.expire/1", opened, work.verifying(quick=True), plan, cures=False)
    unchecked = change.report.unchecked
    unchecked[:] = [line for line in unchecked if line != NO_BODY_CRCS]  # a clean-up does not depend on bodies
    change = replace(change, verdict=_verdict(change.plan))
    code = finish(out, change, applying, work.jobs)
    return 0 if change.plan.empty else code  # `verify` reports the problems of the store


def _verdict(plan: Plan) -> str:
    """Return what the clean-up removes, in one line."""
    logs = [step for step in plan.steps if PurePosixPath(step.path).parent.name in ("commitlog", "data")]
    if not logs:
        return "The clean-up would remove no file of the log now."
    return (
        f"The clean-up would remove {many(len(logs), 'file')} of the log, with {many(plan.loss.messages, 'message')}."
    )
