"""`rmqstore recover`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqstore.cli.filters import refuse_unknown_codes
from rmqstore.cli.options import Applying, applying, command
from rmqstore.cli.output import Output
from rmqstore.errors import UsageError

if TYPE_CHECKING:
    from rmqstore.checks.verify import Verified, VerifyOptions
    from rmqstore.files.broker_config import BrokerConfig
    from rmqstore.files.store import Store
    from rmqstore.repair.plan.plan import Plan
    from rmqstore.repair.replica.replica import Replica


@command(
    "recover",
    report=True,
    work=True,
    broker=True,
    examples=(
        "rmqstore recover /data/rocketmq/store -c /etc/rocketmq/broker.conf",
        "rmqstore recover /data/rocketmq/store --plan-out plan.json && rmqstore recover /data/rocketmq/store "
        "--plan plan.json --apply",
        "rmqstore recover /data/rocketmq/store --replica /mnt/slave/store --apply",
    ),
)
@applying()
@click.option(
    "--strategy",
    type=click.Choice(["salvage", "truncate"]),
    help="How to treat damage in the log (default: by the role of the broker).",
)
@click.option(
    "--role",
    type=click.Choice(["master", "single", "slave", "controller", "dledger-group"]),
    help="Role of the broker (default: from broker.conf and the store).",
)
@click.option("--only", metavar="CODE", multiple=True, help="Repair only this problem code (may be repeated).")
@click.option(
    "--accept-fillers", is_flag=True, help="Allow more than 1,000 fillers, or fillers for a whole missing file."
)
@click.option("--accept-shift", is_flag=True, help="Proceed although some queue offsets will have no message.")
@click.option(
    "--merge-neighbours", is_flag=True, help="Sacrifice a good message next to damage that is too short for a record."
)
@click.option(
    "--accept-odds",
    is_flag=True,
    help="Restore a flipped bit even if other damage looks like one more often than 1 time in 10,000, and one wrong "
    "byte unless it does.",
)
@click.option(
    "--replica",
    "replicas",
    type=click.Path(path_type=Path, readable=False),
    metavar="PATH",
    multiple=True,
    help="Take the original bytes from this replica: the store or the broker.conf of another node of the same group, "
    "or a backup (may be repeated). It is only read.",
)
@click.option("--extend", is_flag=True, help="With --replica: also take what it has before and behind this log.")
@click.option(
    "--heal-fillers",
    is_flag=True,
    help="With --replica: also restore messages that earlier repairs replaced by fillers.",
)
def recover(
    out: Output,
    store: Path,
    config: BrokerConfig,
    applying: Applying,
    strategy: str | None,
    role: str | None,
    only: tuple[str, ...],
    accept_fillers: bool,
    accept_shift: bool,
    merge_neighbours: bool,
    accept_odds: bool,
    replicas: tuple[Path, ...],
    extend: bool,
    heal_fillers: bool,
    jobs: int | None,
    max_rate: int | None,
    broker: str | None,
) -> int:
    """Repair a store so that every broker version that its format allows starts, and keep every message that is left.

    Prints the plan; losses come first. Nothing is written without --apply, and `rmqstore undo` undoes everything.
    Exit code 0: nothing to do, or done and no problems left; 1: a plan that is not applied, or problems left; 4:
    nothing to do, but not everything was checked; 5: refused.
    """
    from rmqstore.checks.verify import VerifyOptions
    from rmqstore.cli.apply_command import Change, finish, open_for, read_plan
    from rmqstore.files.store import QueueKind, StoreKind
    from rmqstore.repair.beside_live import NOTE, examine_and_plan
    from rmqstore.repair.log.store_guard import wrote_positions
    from rmqstore.repair.plan.recover_options import RecoverOptions
    from rmqstore.repair.rebuild.unit_buffer import KeptUnits
    from rmqstore.repair.recover import plan_recovery
    from rmqstore.repair.replica.heal import plan_with_replicas
    from rmqstore.repair.replica.places import Wishes

    refuse_unknown_codes(only)
    if (extend or heal_fillers) and not replicas:
        option = "--extend" if extend else "--heal-fillers"
        raise UsageError(f"{option} needs --replica", "give the store of another node, or a backup")
    opened = open_for(out, store, config, applying)
    # without consume queues all of them are rebuilt, from the units that this pass meets
    gone = opened.kind is not StoreKind.ROCKSDB and not any(True for _ in opened.queue_directories(QueueKind.SIMPLE))
    wishes = RecoverOptions(
        strategy=strategy or "",
        role=role or "",
        only=only,
        accept_fillers=accept_fillers,
        allow_shift=accept_shift,
        merge_neighbours=merge_neighbours,
        accept_odds=accept_odds,
    )

    how = VerifyOptions(jobs=jobs, max_rate=max_rate or 0, broker=broker or "", units=KeptUnits() if gone else None)
    found = _open_replicas(replicas, config, how)

    def plan(look: Store, verified: Verified) -> Plan:
        if applying.plan_file is not None:
            return read_plan(applying.plan_file, look)
        if found:
            return plan_with_replicas(look, verified, found, Wishes(extend, heal_fillers), wishes, how)
        return plan_recovery(look, verified, wishes)

    with out.progress("verify", opened.log_bytes) as progress:
        options = VerifyOptions(jobs=jobs, max_rate=max_rate or 0, broker=broker or "", progress=progress.add)
        cures = applying.plan_file is None and not replicas
        planned = examine_and_plan(opened, options, plan, keep_units=KeptUnits if gone else None, cures=cures)
    if planned.verified.report.live:
        out.note(f"note: {NOTE}")
    wrote = wrote_positions(planned.verified)
    change = Change("rmqstore.recover/1", planned.store, config, planned.plan, planned.verified.report, wrote)
    return finish(out, change, applying, jobs)


def _open_replicas(paths: tuple[Path, ...], config: BrokerConfig, how: VerifyOptions) -> list[Replica]:
    """What --replica names, before the store itself is read. Errors: as `open_replica`."""
    from rmqstore.repair.replica.replica import open_replica

    sizes = {k: v for k, v in config.given.items() if k.startswith(("mappedFileSize", "mapperFileSize"))}
    return [open_replica(path, sizes, jobs=how.jobs, max_rate=how.max_rate) for path in paths]
