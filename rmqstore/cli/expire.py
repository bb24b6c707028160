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
@click.option("--reserved", type=click.IntRange(0), metavar="HOURS", help="Instead of fileReservedTime (72).")
@click.option("--any-hour", is_flag=True, help="Do not wait for deleteWhen.")
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
    """Which files the broker's clean-up would delete now, why the others stay, and what becomes unreadable.

    Age goes by modification times, the hour by deleteWhen, the disk by its fill now; a broker deletes ten files per
    round, this is all rounds. With --apply the files go into quarantine: `rmqstore undo` brings them back, and the
    space is won when the journal's directory is removed.
    """
    from rmqstore.checks.verify import VerifyOptions
    from rmqstore.cli.apply_command import Change, finish, open_for
    from rmqstore.repair.beside_live import NOTE, examine_and_plan
    from rmqstore.repair.expire import ExpireOptions, plan_expire
    from rmqstore.repair.log.store_guard import wrote_positions

    opened = open_for(out, store, config, applying)
    with out.progress("verify", None) as progress:
        planned = examine_and_plan(
            opened,
            VerifyOptions(jobs=jobs, quick=True, broker=broker or "", max_rate=max_rate or 0, progress=progress.add),
            lambda look, _: plan_expire(look, ExpireOptions(reserved, any_hour, version=broker)).plan,
            cures=False,
        )
    if planned.verified.report.live:
        out.note(f"note: {NOTE}")
    wrote = wrote_positions(planned.verified)
    change = Change("rmqstore.expire/1", planned.store, config, planned.plan, planned.verified.report, wrote)
    code = finish(out, change, applying, jobs)
    return 0 if planned.plan.empty else code  # what else is wrong with the store is verify's to say
