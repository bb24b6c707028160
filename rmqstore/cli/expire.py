"""`rmqstore expire`."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import click

from rmqstore.cli.printing.outlook_text import outlook_words
from rmqstore.cli.printing.output import Output
from rmqstore.cli.printing.quantities import many, time_text
from rmqstore.cli.shared.options import Applying, WorkOptions, applying, broker_option, command, gathered
from rmqstore.errors import NoSpace, PlanStale, UsageError
from rmqstore.texts import Text, joined

if TYPE_CHECKING:
    from rmqstore.brokers.outlook import Outlook
    from rmqstore.checks.verified import Verified
    from rmqstore.cli.shared.apply_command import Change
    from rmqstore.documents.plan import Plan
    from rmqstore.files.broker_config import BrokerConfig
    from rmqstore.files.store import Store


@dataclass(frozen=True, slots=True)
class ExpiryWanted:
    """What to remove, and whether for ever; see `ExpireOptions`."""

    reserved: int | None
    any_hour: bool
    delete: bool


@command(
    "expire",
    report=True,
    work=True,
    examples=(
        "rmqstore expire /data/rocketmq/store -c broker.conf",
        "rmqstore expire /data/rocketmq/store --reserved 24 --any-hour --apply",
        "rmqstore expire /data/rocketmq/store --reserved 24 --any-hour --delete   # list and digest",
    ),
)
@click.option(
    "--reserved",
    type=click.IntRange(0),
    metavar="HOURS",
    help="Keep files for this many hours (default: fileReservedTime of broker.conf, or 72).",
)
@click.option("--any-hour", is_flag=True, help="Do not wait for the hour of deleteWhen.")
@click.option(
    "--delete",
    is_flag=True,
    help="Delete the files for ever, to free space on a full disk. This is the one change that `undo` cannot take "
    "back: with --apply, it needs --force and the digest of the printed list.",
)
@applying()
@broker_option
@gathered("asked", ExpiryWanted)
def expire(
    out: Output,
    store: Path,
    config: BrokerConfig,
    asked: ExpiryWanted,
    applying: Applying,
    work: WorkOptions,
) -> int:
    """Show which files the broker's clean-up would delete now, why it keeps the others, and which messages are lost.

    Also says when the next files go, and whether the clean-up will keep room on the disk at the rate of the last day of
    messages. As in the broker, the age of a file counts from its last modification, the hour comes from deleteWhen, and
    a full disk makes files expire early. The broker deletes ten files per round; this command shows all rounds. With
    --apply, the files are moved to quarantine: `rmqstore undo` restores them, and removing the journal frees the space.

    On a full disk, --delete deletes the same files for ever, so that their space is free at once. No `undo` brings them
    back. The list is printed with a digest; --delete --apply --force DIGEST deletes exactly these files. If the disk
    has no room for the journal, which says what was deleted, put it on another file system with --journal.
    """
    from rmqstore.brokers.outlook import disk_of, outlook, rules_of
    from rmqstore.cli.shared.apply_command import finish, open_for, plan_change, read_plan_of
    from rmqstore.repair.expire import ExpireOptions, plan_expire

    opened = open_for(out, store, config, applying)

    def plan(look: Store, _: Verified) -> Plan:
        if applying.plan_file is not None:
            saved = read_plan_of(applying.plan_file, look, "expire", may_delete=asked.delete)
            return _own_plan(look, saved, asked.delete, applying.plan_file, work.broker)
        return plan_expire(look, ExpireOptions(**asdict(asked), version=work.broker)).plan

    rules = rules_of(opened.config, asked.reserved, work.broker)
    later = outlook(opened, rules, time.time_ns() // 1_000_000, disk_of) if applying.plan_file is None else None
    change = plan_change(out, "rmqstore.expire/1", opened, work.verifying(ranges=True), plan, cures=False)
    change = replace(change, verdict=_verdict(change.plan, later))
    try:
        code = finish(out, change, applying)
    except NoSpace as error:
        if change.plan.deletes:
            raise
        raise NoSpace(error.message, _how_to_free(change, work.broker)) from error
    return 0 if change.plan.empty else code  # `verify` reports the problems of the store


def _own_plan(look: Store, saved: Plan, delete: bool, path: Path, broker: str | None) -> Plan:
    """Return what the clean-up would do now with the options of a saved plan, if that is the same, else the saved plan.

    Errors: UsageError, and PlanStale, if the plan deletes for ever, and would not be made again: nothing more is
    deleted than the broker's clean-up would delete.
    """
    from rmqstore.cli.shared.saved_plan import own_or_claimed
    from rmqstore.repair.expire import ExpireOptions, plan_expire

    asked = ExpireOptions.of(saved.facts.get("expire"), broker)
    if not delete:
        at_once = replace(asked, any_hour=True)
        return own_or_claimed(saved, lambda: plan_expire(look, asked).plan, lambda: plan_expire(look, at_once).plan)
    if not saved.deletes and not saved.empty:
        raise UsageError(
            Text("{path} is not a plan of --delete", path=path), Text("make a new plan, with --delete --plan-out")
        )
    fresh = plan_expire(look, replace(asked, delete=True)).plan
    if fresh.digest != saved.digest:
        raise PlanStale(Text("the clean-up of a broker would now delete other files than {path} says", path=path))
    return fresh


def _how_to_free(change: Change, broker: str | None) -> Text:
    """Return what frees space if the disk has no room for a journal and its quarantine."""
    from rmqstore.checks.problems.report import store_words
    from rmqstore.repair.expire import ExpireOptions

    asked = ExpireOptions.of(change.plan.facts.get("expire"), broker)
    words = [f"rmqstore expire {store_words(str(change.store.path), change.report.config)}"]
    words += [f"--reserved {asked.reserved}"] if asked.reserved is not None else []
    words += ["--any-hour"] if asked.any_hour else []
    words += [f"--broker {broker}"] if broker else []
    return Text(
        "quarantine on the same disk frees nothing: to delete the files for ever, see `{command}`",
        command=" ".join([*words, "--delete"]),
    )


def _verdict(plan: Plan, later: Outlook | None) -> str:
    """Return what the clean-up removes now, when it removes the next files, and whether that is enough."""
    logs = [step for step in plan.steps if PurePosixPath(step.path).parent.name in ("commitlog", "data")]
    if not logs:
        words = Text("The clean-up would remove no file of the log now.")
    else:
        files, messages = many(len(logs), "file"), many(plan.loss.messages, "message")
        moved = Text("The clean-up would remove {files} of the log, with {messages}.")
        for_ever = Text("This would delete {files} of the log for ever, with {messages}.")
        words = (for_ever if plan.deletes else moved).format(files=files, messages=messages)
    if later is None:
        return words
    filling = later.filling
    sentences = [words]
    if not logs and filling.first_deleted is not None:
        sentences.append(Text("It removes the next files at {time}.", time=time_text(filling.first_deleted)))
    elif not logs:
        sentences.append(Text("It removes none before {until}.", until=time_text(filling.until)))
    return joined([*sentences, outlook_words(later)], " ")
