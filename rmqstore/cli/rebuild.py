"""`rmqstore rebuild`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqstore.cli.filters import parse_queues
from rmqstore.cli.options import Applying, applying, command
from rmqstore.cli.output import Output

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
@click.argument("part", type=click.Choice(PARTS))
@click.option("--topic", "topics", multiple=True, metavar="NAME", help="Only this topic (may be repeated).")
@click.option("--queue", "queues", multiple=True, metavar="ID", help="Only this queue: a queue id, or TOPIC/ID.")
@applying()
def rebuild(
    out: Output,
    store: Path,
    config: BrokerConfig,
    part: str,
    topics: tuple[str, ...],
    queues: tuple[str, ...],
    applying: Applying,
    jobs: int | None,
    max_rate: int | None,
) -> int:
    """Rebuild consume queues, index, checkpoint or DLedger index from the log, also when they are missing.

    The log itself is not changed: damage in it is reported, and damaged messages get no units. Only what differs is
    written. Nothing is written without --apply; `rmqstore undo` undoes it.
    """
    from rmqstore.checks.verify import VerifyOptions
    from rmqstore.cli.apply_command import Change, finish, open_for, read_plan_of
    from rmqstore.repair.beside_live import NOTE, examine_and_plan
    from rmqstore.repair.log.store_guard import wrote_positions
    from rmqstore.repair.rebuild.unit_buffer import KeptUnits
    from rmqstore.repair.rebuild_parts import plan_rebuild

    opened = open_for(out, store, config, applying)
    ids, pairs = parse_queues(queues)

    def plan(look: Store, verified: Verified) -> Plan:
        if applying.plan_file is not None:
            return read_plan_of(applying.plan_file, look, "part", part)
        return plan_rebuild(look, verified, part, topics=frozenset(topics), queue_ids=ids, queues=pairs)

    with out.progress("verify", opened.log_bytes) as progress:
        planned = examine_and_plan(
            opened,
            VerifyOptions(jobs=jobs, max_rate=max_rate or 0, progress=progress.add),
            plan,
            keep_units=KeptUnits if part == "cq" and not applying.plan_file else None,
            cures=applying.plan_file is None,
        )
    if planned.verified.report.live:
        out.note(f"note: {NOTE}")
    wrote = wrote_positions(planned.verified)
    change = Change("rmqstore.rebuild/1", planned.store, config, planned.plan, planned.verified.report, wrote)
    return finish(out, change, applying, jobs)
