"""`rmqstore rebuild`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqstore.cli.printing.output import Output
from rmqstore.cli.shared.filters import FilterOptions, parse_queues
from rmqstore.cli.shared.options import Applying, WorkOptions, applying, command, gathered

if TYPE_CHECKING:
    from rmqstore.checks.verify import Verified
    from rmqstore.files.broker_config import BrokerConfig
    from rmqstore.files.store import Store
    from rmqstore.repair.plan.plan import Plan

PARTS = ("cq", "index", "checkpoint", "dledger-index")


@command(
    "rebuild",
    report=True,
    work=True,
    examples=(
        "rmqstore rebuild /data/rocketmq/store cq",
        "rmqstore rebuild /data/rocketmq/store cq --topic Order --queue 3 --apply",
        "rmqstore rebuild /data/rocketmq/store index --apply",
    ),
)
@click.argument("part", type=click.Choice(PARTS), metavar="PART")
@click.option("--topic", "topics", multiple=True, metavar="NAME", help="Only this topic (may be repeated).")
@click.option(
    "--queue", "queues", multiple=True, metavar="ID", help="Only this queue: id or TOPIC/ID (may be repeated)."
)
@applying()
@gathered("filters", FilterOptions)
def rebuild(
    out: Output,
    store: Path,
    config: BrokerConfig,
    part: str,
    filters: FilterOptions,
    applying: Applying,
    work: WorkOptions,
) -> int:
    """Rebuild consume queues, index, checkpoint or DLedger index from the log, even if they are missing.

    PART is cq (consume queues), index, checkpoint or dledger-index. The log itself is not changed: damage in it is
    reported, and damaged messages get no units. Only what differs is written. Consume queues in RocksDB get a new
    database (this needs the package rocksdict); the journal keeps the old one. Nothing is written without --apply;
    `rmqstore undo` undoes it.
    """
    from rmqstore.cli.shared.apply_command import finish, open_for, plan_change, read_plan_of
    from rmqstore.repair.rebuild.unit_buffer import KeptUnits
    from rmqstore.repair.rebuild_parts import plan_rebuild

    opened = open_for(out, store, config, applying)
    ids, pairs = parse_queues(filters.queues)

    def plan(look: Store, verified: Verified) -> Plan:
        if applying.plan_file is not None:
            return read_plan_of(applying.plan_file, look, "part", part)
        return plan_rebuild(look, verified, part, topics=frozenset(filters.topics), queue_ids=ids, queues=pairs)

    fresh = applying.plan_file is None
    keep_units = KeptUnits if fresh and part == "cq" else None
    change = plan_change(out, "rmqstore.rebuild/1", opened, work.verifying(), plan, keep_units=keep_units, cures=fresh)
    return finish(out, change, applying, work.jobs)
