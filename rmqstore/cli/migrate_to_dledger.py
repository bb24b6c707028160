"""`rmqstore migrate-to-dledger`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqstore.cli.printing.output import Output
from rmqstore.cli.printing.quantities import many
from rmqstore.cli.shared.apply_command import (
    apply_and_verify,
    open_other,
    read_plan,
    save_plan,
    tell_differences,
    tell_refusals,
)
from rmqstore.cli.shared.options import Applying, WorkOptions, applying, broker_option, command, gathered
from rmqstore.errors import NotReadable, UsageError
from rmqstore.texts import Text

if TYPE_CHECKING:
    from rmqstore.checks.problems.report import Report
    from rmqstore.files.broker_config import BrokerConfig
    from rmqstore.files.store import Store
    from rmqstore.repair.migrate_to_dledger import DLedgerMigration, ReplicaCheck, Target
    from rmqstore.repair.plan.outcome import Outcome
    from rmqstore.repair.plan.plan import Plan


@dataclass(frozen=True, slots=True)
class Member:
    """This node, and the group that it will be in."""

    self_id: str
    group: str | None
    peers: str | None


@command(
    "migrate-to-dledger",
    report=True,
    work=True,
    examples=(
        "rmqstore migrate-to-dledger /data/rocketmq/store --self-id n0 --group broker-a",
        "rmqstore migrate-to-dledger /data/rocketmq/store -c /etc/rocketmq/broker.conf --self-id n0 --apply",
        "rmqstore migrate-to-dledger STORE --self-id n0 --peers 'n0-h0:40911;n1-h1:40911;n2-h2:40911' \\\n"
        "      --check-replica n1.fingerprint --check-replica n2.fingerprint --apply",
    ),
)
@click.option("--self-id", required=True, metavar="ID", help="dLegerSelfId of this node, such as n0.")
@click.option("--group", metavar="NAME", help="dLegerGroup (default: that of broker.conf, else its brokerName).")
@click.option(
    "--peers",
    metavar="TEXT",
    help="dLegerPeers, such as n0-h0:40911;n1-h1:40911 (default: from broker.conf).",
)
@click.option(
    "--check-replica",
    "replicas",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Store or fingerprint file of another node, which must be equal (may be repeated).",
)
@applying()
@broker_option
@gathered("member", Member)
def migrate_to_dledger(
    out: Output,
    store: Path,
    config: BrokerConfig,
    member: Member,
    replicas: tuple[Path, ...],
    applying: Applying,
    work: WorkOptions,
) -> int:
    """Convert a plain store to DLedger, as the first start of a broker in DLedger mode does.

    Closes the commitlog with an 8-byte BLANK at its real end, and creates the first DLedger file after it. Existing
    messages stay where they are, and the broker reads them there. `rmqstore undo` restores the plain store, until a
    broker has run. A store with problems is refused, because the first start of the broker would truncate it.

    With more than one peer, give --check-replica for each other node: if nodes close their commitlogs at different
    offsets, they can never agree again. Exit code 0: done; 1: the plan was not applied; 5: refused.
    """
    from rmqstore.checks.verify import examine
    from rmqstore.files.store import open_store
    from rmqstore.repair.journal.journal import refuse_in_use
    from rmqstore.repair.migrate_to_dledger import plan_migration_to_dledger
    from rmqstore.repair.plan.outcome import Outcome
    from rmqstore.repair.planned import FirstParts, measure

    opened = open_store(store, config)
    refuse_in_use(opened.root, opened.places, stopped=applying.stopped or not applying.apply_it)
    target = _target(opened, member, work.broker)
    migration: DLedgerMigration | None = None
    outcome: Outcome | None = None
    if applying.plan_file is not None:
        plan, document = _saved(opened, applying.plan_file)
    else:
        checks = [_compare(opened, path, work.jobs) for path in replicas]
        first = FirstParts()
        options = work.verifying(last_run=first)
        with out.progress("verify", opened.log_bytes) as progress:
            verified = examine(opened, replace(options, progress=progress.add))
        migration = plan_migration_to_dledger(opened, verified, target, replicas=checks)
        document = migration.to_json() | {"applied": False, "journal": None}
        if migration.plan is None:
            return tell_refusals(out, target.store, document, migration.refusals)
        plan, outcome = measure(opened, migration.plan, verified.report, options, first)
        document["forecast"] = outcome.headline
    if applying.plan_out is not None:
        save_plan(applying.plan_out, plan, store)
    if not applying.apply_it:
        _tell(out, document, _plan_lines(plan, migration))
        return 1
    out.check()
    with apply_and_verify(out, opened, plan, applying, work.verifying()) as (journal, after):
        left = _remaining(after)
        differs = outcome.differences(Outcome.of(after)) if outcome is not None else []
        document |= {"applied": True, "journal": str(journal), "remaining": {"counts": left}, "differs": differs}
        _tell(out, document, _done_lines(plan, migration, journal, left))
    return tell_differences(differs, journal) or (1 if left else 0)


def _tell(out: Output, document: dict[str, Any], lines: Iterable[str]) -> None:
    if out.as_json:
        out.report(document)
    else:
        out.lines(lines, wrap=True)


def _target(store: Store, member: Member, broker: str | None) -> Target:
    from rmqstore.repair.migrate_to_dledger import DEFAULT_GROUP, Target

    given = store.config.given
    return Target(
        str(store.path),
        member.self_id,
        member.group or given.get("dLegerGroup") or given.get("brokerName") or DEFAULT_GROUP,
        member.peers if member.peers is not None else given.get("dLegerPeers", ""),
        broker or "",
        given.get("brokerIP1", "127.0.0.1"),
    )


def _compare(store: Store, path: Path, jobs: int | None) -> ReplicaCheck:
    """Check that another node's store or fingerprint has the same log and would be closed at the same offset."""
    from rmqstore.repair.migrate_to_dledger import ReplicaCheck
    from rmqstore.views.compare import compare
    from rmqstore.views.fingerprint import compare_with, read_fingerprint

    if not path.exists():
        raise NotReadable(Text("{path}: no such file or directory", path=path))
    if path.is_dir():
        found = compare(store, open_other(store, path, "--check-replica"), jobs=jobs)
        where = found.divergence
        if where is not None:
            what = Text(
                "{replace}, first difference at {offset:,}",
                replace=found.relation.replace("-", " "),
                offset=where.offset,
            )
            return ReplicaCheck(str(path), False, what)
        mine, other = found.store, found.other
    else:
        against = compare_with(store, read_fingerprint(path), jobs=jobs)
        if not against.equal:
            what = Text(
                "{replace}, equal until {equal_until:,}",
                replace=against.relation.replace("-", " "),
                equal_until=against.equal_until,
            )
            return ReplicaCheck(str(path), False, what)
        mine, other = against.store, against.other
    if mine.divided_offset != other.divided_offset:
        what = Text(
            "DLedger would begin at {divided_offset:,} there, at {divided_offset2:,} here",
            divided_offset=other.divided_offset,
            divided_offset2=mine.divided_offset,
        )
        return ReplicaCheck(str(path), False, what)
    if other.damaged:
        return ReplicaCheck(str(path), False, many(other.damaged, "damaged place"))
    return ReplicaCheck(str(path), True)


def _remaining(report: Report) -> dict[str, int]:
    """Problems that remain, without those that brokers ignore, by code."""
    from rmqstore.checks.problems.report import problem_counts
    from rmqstore.checks.problems.table import PROBLEMS

    return {code: n for code, n in problem_counts(report).items() if not PROBLEMS[code].ignored_by_brokers}


def _saved(store: Store, plan_file: Path) -> tuple[Plan, dict[str, Any]]:
    """Return a saved plan and its JSON object. Errors: UsageError for a plan of another command or store."""
    from rmqstore.repair.migrate_to_dledger import COMMAND, SCHEMA

    roots = [*store.config.paths("storePathCommitLog"), *store.config.paths("storePathDLedgerCommitLog")]
    plan = read_plan(plan_file, store, [*roots, *(p.parent for p in roots)])
    if plan.facts.get("command") != COMMAND:
        raise UsageError(
            Text("{plan_file} is not a plan of {command}", plan_file=plan_file, command=COMMAND),
            Text("apply it with the command that made it"),
        )
    return plan, {
        "schema": SCHEMA,
        "store": str(store.path),
        "applied": False,
        "ready": True,
        "refusals": [],
        "divided_commitlog_offset": plan.facts.get("divided_commitlog_offset"),
        "steps": plan.summaries(),
        "journal": None,
    }


def _settings_lines(migration: DLedgerMigration | None) -> Iterator[str]:
    if migration is not None:
        yield Text("Set in broker.conf:")
        yield from (f"  {line}" for line in migration.settings)
        yield ""


def _plan_lines(plan: Plan, migration: DLedgerMigration | None) -> Iterator[str]:
    """Describe a plan; `migration` is None for a saved one."""
    from rmqstore.repair.plan.plan_text import describe

    if migration is not None:
        divided = migration.divided_commitlog_offset
        if divided >= 0:
            yield Text("DLedger begins at offset {divided:,}; everything before it stays unchanged.", divided=divided)
        else:
            yield Text("There is no commitlog file: DLedger begins at offset 0 with the first message.")
        yield ""
    yield from describe(plan)
    yield ""
    yield from _settings_lines(migration)
    force = f" --force {plan.digest}" if plan.decisions else ""
    yield Text("Nothing was written. To apply the plan, add --apply{force}", force=force)


def _done_lines(
    plan: Plan, migration: DLedgerMigration | None, journal: Path | None, left: Mapping[str, int]
) -> Iterator[str]:
    from rmqstore.repair.plan.plan_text import describe

    if migration is None:
        yield from describe(plan)
    else:
        yield Text("Done. This is a DLedger store now.")
        if migration.pad is not None:
            pad = migration.pad
            yield Text(
                "  {file} was closed at byte {at:,} ({size:,} bytes were left)", file=pad.file, at=pad.at, size=pad.size
            )
        if migration.first_dledger_file is not None:
            yield Text("  DLedger continues in {first_dledger_file}", first_dledger_file=migration.first_dledger_file)
    if left:
        listed = ", ".join(f"{count} × {code}" for code, count in left.items())
        yield Text("  but `rmqstore verify` finds: {listed}", listed=listed)
    yield ""
    yield from _settings_lines(migration)
    yield Text("Result: this can be undone until a broker has run; journal {journal}", journal=journal)
