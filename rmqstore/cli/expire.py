"""`rmqstore expire`."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import click

from rmqstore.cli.printing.outlook_text import outlook_words
from rmqstore.cli.printing.output import Output
from rmqstore.cli.printing.quantities import many, time_text
from rmqstore.cli.shared.options import Applying, WorkOptions, applying, broker_option, command
from rmqstore.texts import Text, joined

if TYPE_CHECKING:
    from rmqstore.brokers.outlook import Outlook
    from rmqstore.checks.verify import Verified
    from rmqstore.documents.plan import Plan
    from rmqstore.files.broker_config import BrokerConfig
    from rmqstore.files.store import Store


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

    Also says when the next files go, and whether the clean-up will keep room on the disk at the rate of the last day of
    messages. As in the broker, the age of a file counts from its last modification, the hour comes from deleteWhen, and
    a full disk makes files expire early. The broker deletes ten files per round; this command shows all rounds. With
    --apply, the files are moved to quarantine: `rmqstore undo` restores them, and removing the journal frees the space.
    """
    from rmqstore.brokers.outlook import disk_of, outlook, rules_of
    from rmqstore.cli.shared.apply_command import finish, open_for, plan_change, read_plan_of
    from rmqstore.cli.shared.saved_plan import own_or_claimed
    from rmqstore.repair.expire import ExpireOptions, plan_expire

    opened = open_for(out, store, config, applying)

    def plan(look: Store, _: Verified) -> Plan:
        if applying.plan_file is not None:
            saved = read_plan_of(applying.plan_file, look, "expire")
            waits, at_once = (ExpireOptions(any_hour=any_hour, version=work.broker) for any_hour in (False, True))
            return own_or_claimed(saved, lambda: plan_expire(look, waits).plan, lambda: plan_expire(look, at_once).plan)
        return plan_expire(look, ExpireOptions(reserved, any_hour, version=work.broker)).plan

    rules = rules_of(opened.config, reserved, work.broker)
    later = outlook(opened, rules, time.time_ns() // 1_000_000, disk_of) if applying.plan_file is None else None
    change = plan_change(out, "rmqstore.expire/1", opened, work.verifying(ranges=True), plan, cures=False)
    change = replace(change, verdict=_verdict(change.plan, later))
    code = finish(out, change, applying)
    return 0 if change.plan.empty else code  # `verify` reports the problems of the store


def _verdict(plan: Plan, later: Outlook | None) -> str:
    """Return what the clean-up removes now, when it removes the next files, and whether that is enough."""
    logs = [step for step in plan.steps if PurePosixPath(step.path).parent.name in ("commitlog", "data")]
    if not logs:
        words = Text("The clean-up would remove no file of the log now.")
    else:
        files, messages = many(len(logs), "file"), many(plan.loss.messages, "message")
        words = Text("The clean-up would remove {files} of the log, with {messages}.", files=files, messages=messages)
    if later is None:
        return words
    filling = later.filling
    sentences = [words]
    if not logs and filling.first_deleted is not None:
        sentences.append(Text("It removes the next files at {time}.", time=time_text(filling.first_deleted)))
    elif not logs:
        sentences.append(Text("It removes none before {until}.", until=time_text(filling.until)))
    return joined([*sentences, outlook_words(later)], " ")
