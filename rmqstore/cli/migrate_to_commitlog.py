"""`rmqstore migrate-to-commitlog`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqstore.cli.printing.output import Output, refuse_inside
from rmqstore.cli.printing.quantities import many
from rmqstore.cli.shared.apply_command import open_other, tell_refusals
from rmqstore.cli.shared.options import WorkOptions, command, gathered
from rmqstore.errors import NotReadable, OutputExists, UsageError
from rmqstore.files.disk import real_path
from rmqstore.texts import Text

if TYPE_CHECKING:
    from rmqstore.files.broker_config import BrokerConfig
    from rmqstore.files.store import Store
    from rmqstore.repair.migrate_to_commitlog import Built, CommitLogMigration, MigrationChoice

_PATH = click.Path(path_type=Path)


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
    type=_PATH,
    required=True,
    metavar="DIR",
    help="Directory of the new store; must not exist.",
)
@click.option("--self-id", metavar="ID", help="dLegerSelfId, if the store has several DLedger directories.")
@click.option("--peers", metavar="TEXT", help="dLegerPeers, or the number of nodes (default: from broker.conf).")
@click.option(
    "--replica", "replicas", type=_PATH, multiple=True, metavar="DIR", help="Store of another node (may be repeated)."
)
@click.option("--include-uncommitted", is_flag=True, help="Include entries after the last committed one.")
@click.option("--only-committed", is_flag=True, help="Leave out entries after the last committed one.")
@click.option(
    "--id-map", type=_PATH, metavar="FILE", help="CSV file with old and new message ids (default: DIR.message-ids.csv)."
)
@click.option("--dry-run", is_flag=True, help="Show what would be done; write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
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
    Consume queues, index and checkpoint are rebuilt, configuration is copied. --dry-run writes nothing.

    DLedger saves only every 3 seconds which entry was committed last. In a group of one node, all entries are
    committed. In a larger group, entries after that one need the stores of the other nodes (--replica) or your decision
    (--include-uncommitted, --only-committed). Exit code 0: done; 5: refused.
    """
    from rmqstore.checks.verify import examine
    from rmqstore.files.broker_config import BrokerConfig as Config
    from rmqstore.files.store import open_store
    from rmqstore.repair.journal.journal import refuse_in_use
    from rmqstore.repair.migrate_to_commitlog import migrate_to_commitlog as run
    from rmqstore.repair.migrate_to_commitlog import plan_migration_to_commitlog

    if self_id is not None:
        config = Config({**config.given, "dLegerSelfId": self_id}, config.source)
    opened = open_store(store, config)
    refuse_in_use(opened.root, opened.places, stopped=True)  # processes that cannot be seen do not matter: no writes
    target, ids = made.target, made.ids
    _free_places(opened, target, ids)
    choice = _choice(opened, group, work.jobs)
    with out.progress("verify", opened.log_bytes) as progress:
        verified = examine(opened, work.verifying(progress.add))
    migration = plan_migration_to_commitlog(opened, verified, choice, target)
    document = migration.to_json() | {"output": str(target), "written": False}
    if not migration.ready:
        return tell_refusals(out, migration.store, document, migration.refusals)
    if made.dry_run:
        if out.as_json:
            out.report(document)
        else:
            out.lines([*_plan_lines(migration), "", Text("Nothing was written (--dry-run).")], wrap=True)
        return 0
    with out.progress("migrate", opened.log_bytes) as progress:
        built = run(opened, verified, migration, target, ids, progress.add)
    if out.as_json:
        out.report(document | {"written": True, "id_map": str(ids)} | _built(migration, built))
    else:
        out.lines(_done_lines(migration, built, target, ids), wrap=True)
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
    if text.strip().isdigit():
        nodes: int | None = int(text)
    else:
        nodes = len([p for p in text.split(";") if p.strip()]) or None
    if nodes is not None and nodes < 1:
        raise UsageError(Text("--peers: a group has at least one node"), Text("give dLegerPeers, or a number"))
    if nodes is not None and len(group.replicas) >= nodes:
        raise UsageError(
            Text(
                "{replicas} for a group of {nodes}, including STORE",
                replicas=many(len(group.replicas), "replica"),
                nodes=many(nodes, "node"),
            ),
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


def _plan_lines(migration: CommitLogMigration) -> Iterator[str]:
    yield Text("{store} becomes a plain store:", store=migration.store)
    if migration.legacy_messages:
        yield Text(
            "  {messages} of the legacy commitlog are copied unchanged",
            messages=many(migration.legacy_messages, "message"),
        )
    yield (
        Text(
            "  {entries} up to index {last_index:,} ({decided_by}) get new physical offsets from {start:,} on",
            entries=many(migration.entries, "DLedger entry", "DLedger entries"),
            last_index=migration.last_index,
            decided_by=migration.decided_by,
            start=migration.start,
        )
    )
    if migration.left_out:
        yield Text(
            "  {entries} after index {last_index:,} are left out",
            entries=many(migration.left_out, "entry", "entries"),
            last_index=migration.last_index,
        )
    yield Text("  queue offsets and consumer progress do not change")


def _done_lines(migration: CommitLogMigration, built: Built, target: Path, ids: Path) -> Iterator[str]:
    yield from _plan_lines(migration)
    yield ""
    yield Text("Done: {target}", target=target)
    copied = many(built.copied, "file")
    yield Text(
        "  {files}, the log ends at {wrote:,}; {copied} copied",
        files=many(built.files, "commitlog file"),
        wrote=built.wrote,
        copied=copied,
    )
    yield Text("  old and new message ids: {ids}", ids=ids)
    if built.unmapped:
        yield Text("  {references} to missing messages were not changed", references=many(built.unmapped, "reference"))
    yield from (f"  note: {note}" for note in built.notes)
    yield ""
    yield Text("Check it with: rmqstore verify {target}", target=shlex.quote(str(target)))
    settings = Text("storePathRootDir to this directory, and storePathCommitLog to its commitlog/")
    yield Text("Then set enableDLegerCommitLog=false, {settings}.", settings=settings)
