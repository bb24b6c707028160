"""`rmqstore restore` and `rmqstore seed`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqstore.cli.printing.output import Output, refuse_inside
from rmqstore.cli.printing.quantities import OFFSET, TIME, many, parse_time, time_text
from rmqstore.cli.shared.options import PATH, WorkOptions, broker_option, command, gathered, named_roots, renamed
from rmqstore.cli.shared.rights import rights_options
from rmqstore.errors import NotReadable, OutputExists, UsageError
from rmqstore.files.disk import REPOSITORY, real_path
from rmqstore.texts import Placed, Text

if TYPE_CHECKING:
    from rmqstore.backup.restore import RestoredStore, RestoreOptions, SeedOptions
    from rmqstore.files.broker_config import BrokerConfig


_SHOWN_GROUPS = 5


@renamed(id="--self-id")
@command(
    "restore",
    store=False,
    report=True,
    examples=(
        "rmqstore restore /backup/rocketmq::broker-a /data/rocketmq/store",
        "rmqstore restore /backup/rocketmq::broker-a /data/restored --until '2026-11-23 14:05'",
        "rmqstore restore /backup/rocketmq::broker-a@20261123T101500Z /data/restored --role slave",
    ),
)
@click.argument("snapshot", metavar="REPO::NAME[@SNAPSHOT]")
@click.argument("target", type=PATH, metavar="DIR")
@click.option("--until", type=TIME, help="End the log before the first message stored at or after this time.")
@click.option("--at", type=OFFSET, metavar="OFFSET", help="End the log at the last message that ends by OFFSET.")
@click.option(
    "--role",
    type=click.Choice(["master", "slave", "controller", "dledger"]),
    help="What the broker will be (default: what it was).",
)
@click.option("--self-id", metavar="ID", help="dLegerSelfId of a DLedger member (default: what it was).")
@broker_option
@click.option("--jobs", type=click.IntRange(1), metavar="N", help="Number of processes (default: one per core).")
@click.option("--dry-run", is_flag=True, help="Show what would be restored; write nothing.")
@rights_options
@gathered("options", "rmqstore.backup.restore:RestoreOptions")
def restore(out: Output, snapshot: str, target: Path, options: RestoreOptions, dry_run: bool) -> int:
    """Build a complete store from a snapshot: as a whole, before a time, or up to an offset.

    DIR must not exist. The log is cut at the end of a message. Consume queues, index and checkpoint are rebuilt;
    offsets of consumers, delay levels and timers after the end of the log are reduced to it. brokerIdentity is left
    out, so that a controller gives the broker a new id. The store is built beside DIR and verified before it is
    renamed. Its owner and modes are those of the store in the snapshot, unless --owner and --mode say otherwise.

    SNAPSHOT is a name, or a time: then it is the last snapshot before. Without it, --until takes the first snapshot
    after that time, and otherwise the newest counts. Exit code 0: restored; 1: restored, and the log is damaged as it
    was in the snapshot, or a link that led out of the store was left out.
    """
    from rmqstore.backup.repository import Address, find_snapshot, folder_of
    from rmqstore.backup.restore import choose_snapshot, find_cut
    from rmqstore.backup.restore import restore as run
    from rmqstore.backup.snapshot_files import SnapshotFiles

    check_target(target)
    options.rights.check()
    address = Address.parse(snapshot)
    folder = folder_of(address)
    if address.snapshot:
        manifest = find_snapshot(folder, address.snapshot, parse_time)
    else:
        manifest = choose_snapshot(folder, options)
    name = f"{manifest.name}@{manifest.snapshot}"
    document = {
        "schema": "rmqstore.restore/1",
        "repository": folder.storage.address,
        "name": manifest.name,
        "snapshot": manifest.snapshot,
        "output": str(target),
        "role": options.role or None,
        "written": False,
    }
    if dry_run:
        cut = find_cut(SnapshotFiles(folder, manifest, target), options)
        would = Text("{name} would be restored to {target}, up to offset {cut:,}.", name=name, target=target, cut=cut)
        log = {"from": manifest.begin, "to": cut, "last_timestamp": None}
        out.answer(document | {"log": log}, [would, Text("Nothing was written (--dry-run).")])
        return 0
    with out.progress("restore", manifest.size) as copying:
        done = run(folder, manifest, target, replace(options, copied=copying.add, removed=out.note_removed))
    what = Text("Restored {name} to {target}", name=name, target=target)
    lines = _result_lines(done, target, what, folder.address if manifest.earlier() else "")
    out.answer(document | _result(done), lines)
    return done.exit_code


def check_target(target: Path) -> None:
    """Errors: OutputExists, NotReadable; UsageError for a place in a repository."""
    if target.is_symlink() or target.exists():
        raise OutputExists(Text("{target} already exists", target=target))
    parents = real_path(target).parents
    if any(os.path.lexists(parent / REPOSITORY) for parent in parents):
        raise UsageError(Text("{target} is in a repository", target=target), Text("name a directory outside of it"))
    if not any(parent.is_dir() for parent in parents):
        raise NotReadable(Text("{parent}: no such directory", parent=target.parent))


def _result(done: RestoredStore) -> dict[str, Any]:
    """Return the fields of a store that was built."""
    from rmqstore.checks.problems.report import problem_counts

    return {
        "written": True,
        "log": {"from": done.manifest.begin, "to": done.cut, "last_timestamp": done.last_time},
        "messages": done.messages,
        "waiting": done.waiting,
        "counts": problem_counts(done.report),
        "unchecked": done.report.unchecked,
        "broker": done.report.broker,
        "notes": done.notes,
    }


def _result_lines(done: RestoredStore, target: Path, what: str, replica: str = "") -> Iterator[str]:
    """Say what was built; `what` is the first sentence, `replica` may heal it."""
    from rmqstore.checks.problems.report import problem_counts

    manifest = done.manifest
    last: str = ""
    if done.last_time:
        last = Text(", the last one of {time}", time=time_text(done.last_time, exact=True))
    yield Placed("{what}: {messages}{last}.", what=what, messages=many(done.messages, "message"), last=last)
    yield Text("  the log from {begin:,} to {cut:,}", begin=manifest.begin, cut=done.cut)
    counts = problem_counts(done.report)
    if done.report.verdict:
        yield Placed("  {verdict}", verdict=done.report.verdict)
    if counts:
        yield Text("  as in the snapshot, there are problems:")
        yield from (f"    {code} x {count:,}" for code, count in counts.items())
        healing = f" --replica {shlex.quote(replica)}" if replica else ""
        yield f"    -> rmqstore recover {shlex.quote(str(target))}{healing}"
    elif not done.report.unchecked:
        yield Text("  verified: no problems")
    yield from (Text("  not checked: {line}", line=line) for line in done.report.unchecked)
    yield from (Text("  note: {note}", note=note) for note in done.notes)
    rows = sorted(done.waiting.items(), key=lambda row: -row[1])
    for group, count in rows[:_SHOWN_GROUPS]:
        messages = many(count, "message")
        yield Text("  {group} will get {messages} that it had not consumed", group=group, messages=messages)
    if len(rows) > _SHOWN_GROUPS:
        yield Text("  … and {groups}", groups=many(len(rows) - _SHOWN_GROUPS, "more group"))


@renamed(id="--self-id")
@command(
    "seed",
    report=True,
    work=True,
    examples=(
        "rmqstore seed /data/rocketmq/store /data/new-slave --role slave -c /etc/rocketmq/broker.conf",
        "rmqstore seed /data/rocketmq/store /mnt/node2/store --role controller --max-rate 100M",
        "rmqstore seed /data/rocketmq/store /mnt/node3/store --role dledger --self-id n2",
    ),
)
@click.argument("target", type=PATH, metavar="DIR")
@click.option(
    "--role", type=click.Choice(["slave", "controller", "dledger"]), required=True, help="What the new broker will be."
)
@click.option("--self-id", metavar="ID", help="With --role dledger: dLegerSelfId of the new broker, such as n2.")
@rights_options
@broker_option
@gathered("options", "rmqstore.backup.restore:SeedOptions")
@named_roots
def seed(out: Output, store: Path, config: BrokerConfig, target: Path, options: SeedOptions, work: WorkOptions) -> int:
    """Make a new replica from a live master, so that it need not get the whole log from it.

    STORE is only read. DIR must not exist; it gets the log up to now, with consume queues, index, checkpoint and
    configuration, and without brokerIdentity. A broker that starts on it as a slave, or in the same controller or
    DLedger group, goes on from there. As `rmqstore backup` and `rmqstore restore` in one step: the log is verified
    while it is copied, and the new store before it gets its name. Its owner and modes are those of STORE, unless
    --owner and --mode say otherwise. Exit code 0: done; 1: done, and the log is damaged as it is in STORE, or a link
    that leads out of STORE was left out.
    """
    from rmqstore.backup.restore import seed as run
    from rmqstore.files.store import open_store

    refuse_inside(target, store)
    check_target(target)
    options.rights.check()
    opened = open_store(store, config)
    limits: dict[str, Any] = {"broker": work.broker or "", "jobs": work.jobs}
    with out.progress("seed", opened.log_bytes) as progress:
        done = run(opened, target, replace(options, progress=progress.add, removed=out.note_removed, **limits))
    document = {"schema": "rmqstore.seed/1", "store": str(store), "output": str(target), "role": options.role}
    what = Text("Seeded {target} from {store}", target=target, store=store)
    out.answer(document | _result(done), _result_lines(done, target, what))
    return done.exit_code
