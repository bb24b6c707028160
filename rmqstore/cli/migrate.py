"""`rmqstore migrate-to-dledger` and `rmqstore migrate-to-commitlog`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqstore.cli.printing.output import Output, refuse_inside
from rmqstore.cli.printing.quantities import many
from rmqstore.cli.shared.apply_command import (
    apply_and_verify,
    how_to_apply,
    open_other,
    read_plan,
    save_plan,
    tell_differences,
    tell_refusals,
)
from rmqstore.cli.shared.options import (
    PATH,
    Applying,
    WorkOptions,
    applying,
    broker_option,
    command,
    gathered,
    json_option,
    renamed,
)
from rmqstore.cli.shared.rights import rights_options
from rmqstore.errors import NotReadable, OutputExists, UsageError
from rmqstore.files.disk import real_path
from rmqstore.texts import Text

if TYPE_CHECKING:
    from rmqstore.append.rights import GivenRights
    from rmqstore.checks.problems.report import Report
    from rmqstore.documents.outcome import Outcome
    from rmqstore.documents.plan import Plan
    from rmqstore.files.broker_config import BrokerConfig
    from rmqstore.files.store import Store
    from rmqstore.repair.migrate_to_commitlog import Built, CommitLogMigration, MigrationChoice
    from rmqstore.repair.migrate_to_dledger import DLedgerMigration, ReplicaCheck, Target

_MOST_DIGITS = 9  # of a number of nodes


@dataclass(frozen=True, slots=True)
class Member:
    """This node, and the group that it will be in."""

    self_id: str
    group: str | None
    peers: str | None


@renamed(group="--dledger-group")
@command(
    "migrate-to-dledger",
    report=True,
    work=True,
    examples=(
        "rmqstore migrate-to-dledger /data/rocketmq/store --self-id n0 --dledger-group broker-a",
        "rmqstore migrate-to-dledger /data/rocketmq/store -c /etc/rocketmq/broker.conf --self-id n0 --apply",
        "rmqstore migrate-to-dledger STORE --self-id n0 --peers 'n0-h0:40911;n1-h1:40911;n2-h2:40911' \\\n"
        "      --check-replica n1.fingerprint --check-replica n2.fingerprint --apply",
    ),
)
@click.option("--self-id", required=True, metavar="ID", help="dLegerSelfId of this node, such as n0.")
@click.option(
    "--dledger-group", "group", metavar="NAME", help="dLegerGroup (default: that of broker.conf, else its brokerName)."
)
@click.option(
    "--peers", metavar="TEXT", help="dLegerPeers, such as n0-h0:40911;n1-h1:40911 (default: from broker.conf)."
)
@click.option(
    "--check-replica",
    "replicas",
    multiple=True,
    type=PATH,
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
    from rmqstore.checks.examine import examine
    from rmqstore.documents.outcome import Outcome
    from rmqstore.files.store import open_store
    from rmqstore.repair.journal.lock import refuse_in_use
    from rmqstore.repair.migrate_to_dledger import plan_migration_to_dledger
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
        plan, outcome = measure(opened, migration.plan, verified, options, first)
        document["forecast"] = outcome.headline
    save_plan(out, plan, store, applying)
    if not applying.apply_it:
        out.answer(document, _dledger_plan_lines(plan, migration))
        return 1
    out.check()
    with apply_and_verify(out, opened, plan, applying, work.verifying()) as (applied, after):
        left = _remaining(after)
        differs = outcome.differences(Outcome.of(after)) if outcome is not None else []
        document |= {
            "applied": True,
            "journal": str(applied.journal),
            "remaining": {"counts": left},
            "differs": differs,
        }
        out.answer(document, _dledger_done_lines(plan, migration, applied.journal, left))
    return tell_differences(differs, applied) or (1 if left else 0)


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
            relation = found.relation.replace("-", " ")
            what = Text("{relation}, first difference at {offset:,}", relation=relation, offset=where.offset)
            return ReplicaCheck(str(path), False, what)
        mine, other = found.store, found.other
    else:
        against = compare_with(store, read_fingerprint(path), jobs=jobs)
        if not against.equal:
            relation = against.relation.replace("-", " ")
            what = Text("{relation}, equal until {at:,}", relation=relation, at=against.equal_until)
            return ReplicaCheck(str(path), False, what)
        mine, other = against.store, against.other
    if mine.divided_offset != other.divided_offset:
        theirs, ours = other.divided_offset, mine.divided_offset
        what = Text("DLedger would begin at {theirs:,} there, at {ours:,} here", theirs=theirs, ours=ours)
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
    from rmqstore.cli.shared.saved_plan import measured, without_claims
    from rmqstore.repair.migrate_to_dledger import COMMAND, SCHEMA

    roots = [*store.config.paths("storePathCommitLog"), *store.config.paths("storePathDLedgerCommitLog")]
    plan = read_plan(plan_file, store, [*roots, *(p.parent for p in roots)])
    if plan.facts.get("command") != COMMAND:
        raise UsageError(
            Text("{plan_file} is not a plan of {command}", plan_file=plan_file, command=COMMAND),
            Text("apply it with the command that made it"),
        )
    divided = plan.facts.get("divided_commitlog_offset")
    plan = measured(store, None, without_claims(plan), None)
    return plan, {
        "schema": SCHEMA,
        "store": str(store.path),
        "applied": False,
        "ready": True,
        "refusals": [],
        "divided_commitlog_offset": divided if isinstance(divided, int) else None,
        "steps": plan.summaries(),
        "journal": None,
    }


def _settings_lines(migration: DLedgerMigration | None) -> Iterator[str]:
    if migration is not None:
        yield Text("Set in broker.conf:")
        yield from (f"  {line}" for line in migration.settings)
        yield ""


def _dledger_plan_lines(plan: Plan, migration: DLedgerMigration | None) -> Iterator[str]:
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
    yield how_to_apply(plan)


def _dledger_done_lines(
    plan: Plan, migration: DLedgerMigration | None, journal: Path | None, left: Mapping[str, int]
) -> Iterator[str]:
    from rmqstore.repair.plan.plan_text import describe

    if migration is None:
        yield from describe(plan)
    else:
        yield Text("Done. This is a DLedger store now.")
        if migration.pad is not None:
            closed = Text("  {file} was closed at byte {at:,} ({size} left)")
            yield closed.format(file=migration.pad.file, at=migration.pad.at, size=many(migration.pad.size, "byte"))
        if migration.first_dledger_file is not None:
            yield Text("  DLedger continues in {file}", file=migration.first_dledger_file)
    if left:
        listed = ", ".join(f"{count} × {code}" for code, count in left.items())
        yield Text("  but `rmqstore verify` finds: {listed}", listed=listed)
    yield ""
    yield from _settings_lines(migration)
    yield Text("Result: this can be undone until a broker has run; journal {journal}", journal=journal)


@dataclass(frozen=True, slots=True)
class Group:
    """The other nodes of the group, and what to do with entries that may not be committed."""

    peers: str | None
    replicas: tuple[Path, ...]
    include_uncommitted: bool
    only_committed: bool


@dataclass(frozen=True, slots=True)
class MigrationOptions:
    """What to write, and whether to write it."""

    target: Path
    id_map: Path | None
    dry_run: bool
    rights: GivenRights

    @property
    def ids(self) -> Path:
        """The file that maps old message ids to new ones."""
        return self.id_map or self.target.with_name(f"{self.target.name}.message-ids.csv")


@command(
    "migrate-to-commitlog",
    work=True,
    examples=(
        "rmqstore migrate-to-commitlog /data/rocketmq/store -c /etc/rocketmq/broker.conf --output /data/plain",
        "rmqstore migrate-to-commitlog /data/n0/store --output /data/plain --peers 'n0-h0:1;n1-h1:1;n2-h2:1' \\\n"
        "      --replica /data/n1/store --replica /data/n2/store",
        "rmqstore migrate-to-commitlog /data/rocketmq/store --output /data/plain --include-uncommitted --dry-run",
    ),
)
@click.option(
    "-o",
    "--output",
    "target",
    type=PATH,
    required=True,
    metavar="DIR",
    help="Directory of the new store; must not exist.",
)
@click.option("--self-id", metavar="ID", help="dLegerSelfId, if the store has several DLedger directories.")
@click.option("--peers", metavar="TEXT", help="dLegerPeers, or the number of nodes (default: from broker.conf).")
@click.option(
    "--replica", "replicas", type=PATH, multiple=True, metavar="DIR", help="Store of another node (may be repeated)."
)
@click.option("--include-uncommitted", is_flag=True, help="Include entries after the last committed one.")
@click.option("--only-committed", is_flag=True, help="Leave out entries after the last committed one.")
@click.option(
    "--id-map", type=PATH, metavar="FILE", help="CSV file with old and new message ids (default: DIR.message-ids.csv)."
)
@click.option("--dry-run", is_flag=True, help="Show what would be done; write nothing.")
@rights_options
@json_option
@gathered("group", Group)
@gathered("made", MigrationOptions)
def migrate_to_commitlog(
    out: Output,
    store: Path,
    config: BrokerConfig,
    self_id: str | None,
    group: Group,
    made: MigrationOptions,
    work: WorkOptions,
) -> int:
    """Make a plain store from a DLedger store, which is only read.

    Every DLedger entry becomes a plain record with a new physical offset; the legacy part is copied unchanged. Queue
    offsets and consumer progress do not change. Message ids that contain an offset do: a CSV file maps old to new ids.
    Consume queues, index and checkpoint are rebuilt, configuration is copied. Owner and modes are those of STORE,
    unless --owner and --mode say otherwise. --dry-run writes nothing.

    DLedger saves only every 3 seconds which entry was committed last. In a group of one node, all entries are
    committed. In a larger group, entries after that one need the stores of the other nodes (--replica) or your decision
    (--include-uncommitted, --only-committed). Exit code 0: done; 5: refused.
    """
    from rmqstore.checks.examine import examine
    from rmqstore.files.broker_config import BrokerConfig as Config
    from rmqstore.files.store import open_store
    from rmqstore.repair.journal.lock import refuse_in_use
    from rmqstore.repair.migrate_to_commitlog import BuildOptions, plan_migration_to_commitlog
    from rmqstore.repair.migrate_to_commitlog import migrate_to_commitlog as run

    if self_id is not None:
        config = Config({**config.given, "dLegerSelfId": self_id}, config.source)
    opened = open_store(store, config)
    refuse_in_use(opened.root, opened.places, stopped=True)  # processes that cannot be seen do not matter: no writes
    target, ids = made.target, made.ids
    made.rights.check()
    _free_places(opened, target, ids)
    choice = _choice(opened, group, work.jobs)
    with out.progress("verify", opened.log_bytes) as progress:
        verified = examine(opened, work.verifying(progress.add))
    migration = plan_migration_to_commitlog(opened, verified, choice, target)
    document = migration.to_json() | {"output": str(target), "written": False}
    if not migration.ready:
        return tell_refusals(out, migration.store, document, migration.refusals)
    if made.dry_run:
        out.answer(document, [*_commitlog_plan_lines(migration), "", Text("Nothing was written (--dry-run).")])
        return 0
    with out.progress("migrate", opened.log_bytes) as progress:
        how = BuildOptions(made.rights, out.note_removed, progress.add)
        built = run(opened, verified, migration, target, ids, how)
    written = {"written": True, "id_map": str(ids), **_built(migration, built)}
    out.answer(document | written, _commitlog_done_lines(migration, built, target, ids))
    return 0


def _built(migration: CommitLogMigration, built: Built) -> dict[str, Any]:
    return {
        "messages": built.messages + migration.legacy_messages,
        "wrote": built.wrote,
        "files": built.files,
        "unmapped": built.unmapped,
        "notes": built.notes,
    }


def _free_places(store: Store, target: Path, ids: Path) -> None:
    """Errors: OutputExists, NotReadable; UsageError for outputs inside the store."""
    for path in (target, ids):
        refuse_inside(path, store.path)
        if path.is_symlink() or path.exists():
            raise OutputExists(Text("{path} already exists", path=path))
        if not any(parent.is_dir() for parent in real_path(path).parents):
            raise NotReadable(Text("{parent}: no such directory", parent=path.parent))


def _choice(store: Store, group: Group, jobs: int | None) -> MigrationChoice:
    from rmqstore.repair.migrate_to_commitlog import GroupNode, MigrationChoice
    from rmqstore.views.compare import compare

    if group.include_uncommitted and group.only_committed:
        raise UsageError(
            Text("--include-uncommitted and --only-committed exclude each other"), Text("leave one of them out")
        )
    text = group.peers if group.peers is not None else store.config.given.get("dLegerPeers", "")
    number = text.strip()
    nodes: int | None
    if number.isdecimal() and len(number) <= _MOST_DIGITS:
        nodes = int(number)
    else:
        nodes = len([p for p in text.split(";") if p.strip()]) or None
    if nodes is not None and nodes < 1:
        raise UsageError(Text("--peers: a group has at least one node"), Text("give dLegerPeers, or a number"))
    if nodes is not None and len(group.replicas) >= nodes:
        replicas, members = many(len(group.replicas), "replica"), many(nodes, "node")
        raise UsageError(
            Text("{replicas} for a group of {nodes}, including STORE", replicas=replicas, nodes=members),
            Text("correct --peers, or leave a replica out"),
        )
    found = []
    for path in group.replicas:
        answer = compare(store, open_other(store, path, "--replica"), jobs=jobs)
        other = answer.other.dledger
        if other is None:
            raise UsageError(
                Text("--replica {path} is not a DLedger store", path=path),
                Text("give the store of another node of the group"),
            )
        own = answer.store.dledger or {"last_index": -1}
        equal = own["last_index"] if answer.equal else answer.equal_index
        found.append(GroupNode(str(path), equal, other["last_index"]))
    return MigrationChoice(nodes, tuple(found), group.include_uncommitted, group.only_committed)


def _commitlog_plan_lines(migration: CommitLogMigration) -> Iterator[str]:
    yield Text("{store} becomes a plain store:", store=migration.store)
    if migration.legacy_messages:
        count = many(migration.legacy_messages, "message")
        yield Text("  {messages} of the legacy commitlog are copied unchanged", messages=count)
    entries, last = many(migration.entries, "DLedger entry", "DLedger entries"), migration.last_index
    moved = Text("  {entries} up to index {last:,} ({why}) get new physical offsets from {start:,} on")
    yield moved.format(entries=entries, last=last, why=migration.decided_by, start=migration.start)
    if migration.left_out:
        left = many(migration.left_out, "entry", "entries")
        yield Text("  {entries} after index {last:,} are left out", entries=left, last=last)
    yield Text("  queue offsets and consumer progress do not change")


def _commitlog_done_lines(migration: CommitLogMigration, built: Built, target: Path, ids: Path) -> Iterator[str]:
    yield from _commitlog_plan_lines(migration)
    yield ""
    yield Text("Done: {target}", target=target)
    files, copied = many(built.files, "commitlog file"), many(built.copied, "file")
    yield Text("  {files}, the log ends at {end:,}; {copied} copied", files=files, end=built.wrote, copied=copied)
    yield Text("  old and new message ids: {ids}", ids=ids)
    if built.unmapped:
        yield Text("  {references} to missing messages were not changed", references=many(built.unmapped, "reference"))
    yield from (Text("  note: {note}", note=note) for note in built.notes)
    yield ""
    yield Text("Check it with: rmqstore verify {target}", target=shlex.quote(str(target)))
    settings = Text("storePathRootDir to this directory, and storePathCommitLog to its commitlog/")
    yield Text("Then set enableDLegerCommitLog=false, {settings}.", settings=settings)
