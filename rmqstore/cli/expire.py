"""`rmqstore expire`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqstore.cli.options import Applying, applying, command
from rmqstore.cli.output import Output

if TYPE_CHECKING:
    from rmqstore.files.broker_config import BrokerConfig


@command(
    "expire",
    report=True,
    work=True,
    broker=True,
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
    help="Hours to keep files (default: fileReservedTime, or 72).",
)
@click.option("--any-hour", is_flag=True, help="Ignore deleteWhen.")
@applying()
def expire(
    out: Output,
    store: Path,
    config: BrokerConfig,
    reserved: int | None,
    any_hour: bool,
    applying: Applying,
    jobs: int | None,
    max_rate: int | None,
    broker: str | None,
) -> int:
    """Show which files the broker's clean-up would delete now, why it keeps the others, and what becomes unreadable.

    A file's age is its modification time, the hour comes from deleteWhen, disk usage is the current one. A broker
    deletes ten files per round; this command shows all rounds. With --apply the files are moved to quarantine:
    `rmqstore undo` restores them, and removing the journal directory frees the space.
    """
    from rmqstore.checks.verify import VerifyOptions, examine
    from rmqstore.cli.apply_command import Change, finish, read_plan_of
    from rmqstore.files.store import open_store
    from rmqstore.repair.expire import ExpireOptions, plan_expire
    from rmqstore.repair.log.store_guard import wrote_positions

    opened = open_store(store, config)
    saved = applying.plan_file and read_plan_of(applying.plan_file, opened, "expire")
    with out.progress("verify", None) as progress:
        verified = examine(
            opened,
            VerifyOptions(jobs=jobs, quick=True, broker=broker or "", max_rate=max_rate or 0, progress=progress.add),
        )
    plan = saved or plan_expire(opened, ExpireOptions(reserved, any_hour, version=broker)).plan
    change = Change("rmqstore.expire/1", opened, config, plan, verified.report, wrote_positions(verified))
    code = finish(out, change, applying, jobs)
    return 0 if plan.empty else code  # what else is wrong with the store is verify's to say
