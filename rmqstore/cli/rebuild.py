"""`rmqstore rebuild`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from rmqstore.cli.printing.output import Output
from rmqstore.cli.shared.filters import FilterOptions
from rmqstore.cli.shared.options import Applying, WorkOptions, applying, command, gathered, queue_option
from rmqstore.cli.shared.topics import parse_queues
from rmqstore.errors import UsageError
from rmqstore.texts import Text

if TYPE_CHECKING:
    from rmqstore.checks.verified import Verified
    from rmqstore.documents.plan import Plan
    from rmqstore.files.broker_config import BrokerConfig
    from rmqstore.files.store import Store

STORAGES = ("files", "rocksdb")
PARTS = ("cq", "index", "checkpoint", "dledger-index")


@dataclass(frozen=True, slots=True)
class RebuildTarget:
    """The part to rebuild; `storage`: the form that consume queues get, None: the one that they have."""

    part: str
    storage: Literal["files", "rocksdb"] | None = None


@command(
    "rebuild",
    report=True,
    work=True,
    examples=(
        "rmqstore rebuild /data/rocketmq/store cq --topic Order --queue 3 --apply",
        "rmqstore rebuild /data/rocketmq/store index --apply",
        "rmqstore rebuild /data/rocketmq/store cq --storage rocksdb -c broker.conf",
    ),
)
@click.argument("part", type=click.Choice(PARTS), metavar="PART")
@click.option("--topic", "topics", multiple=True, metavar="NAME", help="Only this topic (may be repeated).")
@queue_option
@click.option(
    "--storage",
    type=click.Choice(STORAGES),
    metavar="FORM",
    help="Convert all consume queues to files or to rocksdb, with topics, groups and offsets.",
)
@applying()
@gathered("filters", FilterOptions)
@gathered("target", RebuildTarget)
def rebuild(
    out: Output,
    store: Path,
    config: BrokerConfig,
    target: RebuildTarget,
    filters: FilterOptions,
    applying: Applying,
    work: WorkOptions,
) -> int:
    """Rebuild consume queues, index, checkpoint or DLedger index from the log, even if they are missing.

    PART is cq (consume queues), index, checkpoint or dledger-index. The log itself is not changed: damage in it is
    reported, and damaged messages get no units. Only what differs is written. Consume queues in RocksDB get a new
    database (this needs the package rocksdict); the journal keeps the old one. Nothing is written without --apply;
    `rmqstore undo` undoes it.

    With --storage, the consume queues change their form: the new ones are built from the log, the old ones go into
    quarantine, and topics, subscription groups and consumer offsets go to where the broker then reads them, JSON files
    or RocksDB. The plan names the settings that broker.conf then needs. Only a store without problems is converted.
    """
    from rmqstore.cli.shared.apply_command import finish, open_for, plan_change, read_plan_of
    from rmqstore.cli.shared.saved_plan import own_or_claimed
    from rmqstore.repair.rebuild.unit_buffer import KeptUnits
    from rmqstore.repair.rebuild_parts import plan_rebuild

    part, storage = target.part, target.storage
    opened = open_for(out, store, config, applying)
    ids, pairs = parse_queues(filters.queues)

    def plan(look: Store, verified: Verified) -> Plan:
        if applying.plan_file is not None:
            saved = read_plan_of(applying.plan_file, look, "part", part)
            if saved.facts.get("storage") != storage:
                raise UsageError(Text("{plan_file} is a plan with another --storage", plan_file=applying.plan_file))
            return own_or_claimed(saved, lambda: plan_rebuild(look, verified, part, storage=storage))
        topics = frozenset(filters.topics)
        return plan_rebuild(look, verified, part, topics=topics, queue_ids=ids, queues=pairs, storage=storage)

    fresh = applying.plan_file is None
    keep_units = KeptUnits if part == "cq" else None
    change = plan_change(out, "rmqstore.rebuild/1", opened, work.verifying(), plan, keep_units=keep_units, cures=fresh)
    if storage is not None:
        change = replace(change, verdict=_verdict(change.plan, storage))
    return finish(out, change, applying)


def _verdict(plan: Plan, storage: str) -> str:
    """Return what a conversion moves. Topics, groups and offsets stay if the broker keeps them in config/rdb."""
    if any(step.path.startswith("config/") for step in plan.steps):
        return (
            Text("All consume queues, topics, groups and offsets move to files.")
            if storage == "files"
            else Text("All consume queues, topics, groups and offsets move to RocksDB.")
        )
    return (
        Text("All consume queues move to files; topics, groups and offsets stay where they are.")
        if storage == "files"
        else Text("All consume queues move to RocksDB; topics, groups and offsets stay where they are.")
    )
