"""`rmqstore recover`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqstore.cli.printing.output import Output
from rmqstore.cli.shared.codes import refuse_unknown_codes
from rmqstore.cli.shared.options import (
    PLANNING,
    SOURCE,
    Applying,
    WorkOptions,
    applying,
    broker_option,
    command,
    gathered,
    refuse_typed,
)
from rmqstore.errors import DecisionNeeded, Refused, UsageError
from rmqstore.files.disk import is_snapshot_address
from rmqstore.texts import Text

if TYPE_CHECKING:
    from rmqstore.checks.verified import Verified
    from rmqstore.documents.plan import Plan
    from rmqstore.files.broker_config import BrokerConfig
    from rmqstore.files.store import Store
    from rmqstore.repair.plan.recover_options import RecoverOptions
    from rmqstore.repair.replica.replica import Replica
    from rmqstore.repair.replica.sources import HealOptions


@dataclass(frozen=True, slots=True)
class ReplicaOptions:
    """What to take from replicas."""

    replicas: tuple[Path, ...]
    extend: bool
    heal_fillers: bool

    def heal_options(self) -> HealOptions | None:
        """The options of the planner; None without replicas."""
        if not self.replicas:
            return None
        from rmqstore.repair.replica.sources import HealOptions

        return HealOptions(self.extend, self.heal_fillers)


class RoleChoice(click.Choice[str]):
    """The role of a broker. Plans and JSON call `dledger` dledger-group, which was also its name here."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the role as plans name it."""
        chosen = super().convert("dledger" if value == "dledger-group" else value, param, ctx)
        return "dledger-group" if chosen == "dledger" else chosen


@command(
    "recover",
    report=True,
    work=True,
    examples=(
        "rmqstore recover /data/rocketmq/store -c /etc/rocketmq/broker.conf",
        "rmqstore recover /data/rocketmq/store --plan-out plan.json && rmqstore recover /data/rocketmq/store "
        "--plan plan.json --apply",
        "rmqstore recover /data/rocketmq/store --replica /mnt/slave/store --apply",
    ),
)
@applying()
@click.option(
    "--safe",
    is_flag=True,
    help="Unattended, before each start of the broker: apply the plan if it loses nothing and needs no decision, and "
    "otherwise change nothing. Exit code 0: the broker may start; 1: a decision is needed; 5: a broker is running.",
)
@click.option(
    "--strategy",
    type=click.Choice(["salvage", "truncate"]),
    help="Replace damaged messages by fillers (salvage), or cut the log at the first one (truncate). Default: by role.",
)
@click.option(
    "--role",
    type=RoleChoice(["master", "single", "slave", "controller", "dledger"]),
    help="Role of the broker (default: from broker.conf and the store).",
)
@click.option("--only", metavar="CODE", multiple=True, help="Repair only this problem code (may be repeated).")
@click.option(
    "--accept-fillers", is_flag=True, help="Allow more than 1,000 fillers, or fillers for a whole missing file."
)
@click.option(
    "--accept-shift", "allow_shift", is_flag=True, help="Proceed although some queue offsets will have no message."
)
@click.option(
    "--merge-neighbours", is_flag=True, help="Give up a good message next to damage that is too short for a filler."
)
@click.option(
    "--accept-odds",
    is_flag=True,
    help="Also accept uncertain repairs: a flipped bit whose chance of a false match exceeds 1 in 10,000, or any "
    "single wrong byte within that limit.",
)
@click.option(
    "--replica",
    "replicas",
    type=SOURCE,
    metavar="PATH",
    multiple=True,
    help="Take the original bytes from this replica, which is only read: the store or the broker.conf of another node "
    "of the same group, or a backup (may be repeated).",
)
@click.option("--extend", is_flag=True, help="With --replica: also take what it has before and after this log.")
@click.option(
    "--heal-fillers",
    is_flag=True,
    help="With --replica: also restore messages that earlier repairs replaced by fillers.",
)
@broker_option
@gathered("options", "rmqstore.repair.plan.recover_options:RecoverOptions")
@gathered("taken", ReplicaOptions)
def recover(
    out: Output,
    store: Path,
    config: BrokerConfig,
    applying: Applying,
    options: RecoverOptions,
    taken: ReplicaOptions,
    work: WorkOptions,
) -> int:
    """Repair a store so that every broker version that supports its format can start, and keep every message that
    can still be read.

    Prints the plan, losses first. Nothing is written without --apply, and `rmqstore undo` undoes everything. Exit code
    0: nothing to do, or repaired without problems left; 1: the plan was not applied, or problems remain; 4: nothing to
    do, but not everything was checked; 5: refused. `man rmqstore-problems` says what --safe does about each problem.
    """
    if not applying.safe:
        return _recover(out, store, config, applying, options, taken, work)
    refuse_typed(_DECIDES, "--safe", Text("--safe takes no decisions: leave one of them out"))
    if _is_new(store):
        out.note(Text("note: {store} is empty: the broker will create its store", store=store))
        return 0
    try:
        return _recover(out, store, config, replace(applying, apply_it=True), options, taken, work)
    except Refused as refusal:
        raise DecisionNeeded(refusal.message, refusal.advice) from refusal


_DECIDES = (PLANNING - {"role"}) | {"plan_out", "plan_file", "force"}
"""Options that take a decision, or are for somebody who reads the plan."""


def _is_new(store: Path) -> bool:
    """Return whether a directory is that of a broker that never ran, such as a volume just made."""
    try:
        return not {entry.name for entry in store.iterdir()} - {"lost+found"}
    except OSError:
        return False


def _recover(
    out: Output,
    store: Path,
    config: BrokerConfig,
    applying: Applying,
    options: RecoverOptions,
    taken: ReplicaOptions,
    work: WorkOptions,
) -> int:
    from rmqstore.cli.shared.apply_command import finish, open_for, plan_change, read_plan
    from rmqstore.cli.shared.saved_plan import own_or_claimed
    from rmqstore.files.store import QueueKind, StoreKind
    from rmqstore.repair.rebuild.unit_buffer import KeptUnits
    from rmqstore.repair.replica.own_copies import plan_with_copies

    refuse_unknown_codes(options.only)
    if (taken.extend or taken.heal_fillers) and not taken.replicas:
        raise UsageError(
            Text("--extend needs --replica") if taken.extend else Text("--heal-fillers needs --replica"),
            Text("add --replica with the store of another node, or a backup"),
        )
    opened = open_for(out, store, config.in_role(options.role), applying)
    # without consume queues all of them are rebuilt, from the units that this pass keeps
    gone = opened.kind is not StoreKind.ROCKSDB and not any(True for _ in opened.queue_directories(QueueKind.SIMPLE))
    how = work.verifying(units=KeptUnits() if gone else None)
    found = _open_replicas(taken.replicas, config, work) if taken.replicas else []

    def plan(look: Store, verified: Verified) -> Plan:
        if applying.plan_file is not None:
            saved = read_plan(applying.plan_file, look)
            strategy = saved.facts.get("strategy")
            same = replace(options, strategy=str(strategy) if strategy in ("salvage", "truncate") else "")
            return own_or_claimed(saved, lambda: plan_with_copies(look, verified, same, how))
        return plan_with_copies(look, verified, options, how, replicas=found, heal_options=taken.heal_options())

    cures = applying.plan_file is None and not taken.replicas
    change = plan_change(
        out,
        "rmqstore.recover/1",
        opened,
        work.verifying(ranges=True),
        plan,
        keep_units=KeptUnits if gone else None,
        cures=cures,
    )
    return finish(out, change, applying)


def _open_replicas(paths: tuple[Path, ...], config: BrokerConfig, work: WorkOptions) -> list[Replica]:
    """Open the replicas, before the store is read. Errors: as `open_replica`."""
    from rmqstore.cli.shared.reading import open_named
    from rmqstore.files.broker_config import BrokerConfig
    from rmqstore.files.sources import LOG_ONLY, with_earlier_bytes
    from rmqstore.repair.replica.replica import Replica, open_replica

    found: list[Replica] = []
    for path in paths:
        if is_snapshot_address(path):
            snapshot = open_named(path, BrokerConfig(config.file_sizes()), LOG_ONLY)
            found += [Replica(name, one, work.jobs) for name, one in with_earlier_bytes(snapshot)]
        else:
            found.append(open_replica(path, config.file_sizes(), jobs=work.jobs))
    return found
