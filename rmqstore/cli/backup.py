"""`rmqstore backup` and `rmqstore snapshots`."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqstore.checks.problems import codes
from rmqstore.cli.printing.output import Output
from rmqstore.cli.printing.quantities import DURATION, SIZE, bytes_text, many, time_text
from rmqstore.cli.shared.metrics import Metrics, metrics_option, of_backup
from rmqstore.cli.shared.options import RATE, command, gathered, named_roots
from rmqstore.errors import CouldNotCheck, NoSpace, NotReadable, Refused, UsageError, about
from rmqstore.files import pace
from rmqstore.files.disk import named_options, real_path
from rmqstore.texts import Placed, Text, joined

if TYPE_CHECKING:
    from rmqstore.backup.backup import Backup, BackupOptions
    from rmqstore.backup.keeping import KeepRule
    from rmqstore.backup.manifest import Manifest
    from rmqstore.backup.repository import Copied, Forgotten, StoreFolder
    from rmqstore.files.broker_config import BrokerConfig
    from rmqstore.files.store import Store


_PASSING = (CouldNotCheck, NotReadable, NoSpace, Refused)
"""Errors after which --every tries again."""


def kept_options(function: Callable[..., int]) -> Callable[..., int]:
    """Pass the --keep options as one `KeepRule`, `keep`."""
    function = gathered("keep", "rmqstore.backup.keeping:KeepRule")(function)
    words = Text("Forget the oldest snapshots while they need more than SIZE.")
    function = click.option("--keep-bytes", "size", type=SIZE, metavar="SIZE", help=words)(function)
    for period, words in reversed(_PERIODS.items()):
        function = click.option(f"--keep-{period}", period, type=click.IntRange(0), metavar="N", help=words)(function)
    words = Text("Keep the last N snapshots, and those that another --keep option keeps; forget the others.")
    function = click.option("--keep-last", "last", type=click.IntRange(0), metavar="N", help=words)(function)
    words = Text("Keep snapshots, and log files that the broker has deleted, that are not older than TIME (30d).")
    return click.option("--keep", "age", type=DURATION, callback=_in_ms, metavar="TIME", help=words)(function)


def _in_ms(context: click.Context, option: click.Parameter, seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1000)


_PERIODS = {
    "hourly": Text("Keep the last snapshot of each of N hours that have any (UTC)."),
    "daily": Text("Keep the last snapshot of each of N days that have any (UTC)."),
    "weekly": Text("Keep the last snapshot of each of N weeks that have any (Monday to Sunday, UTC)."),
    "monthly": Text("Keep the last snapshot of each of N months that have any (UTC)."),
}


@dataclass(frozen=True, slots=True)
class How:
    """How a snapshot is made."""

    name: str | None
    full: bool
    metrics: Path | None
    max_rate: int = 0


@command(
    "backup",
    report=True,
    examples=(
        "rmqstore backup /data/rocketmq/store /backup/rocketmq -c /etc/rocketmq/broker.conf",
        "rmqstore backup /data/rocketmq/store s3://backups/rocketmq --name broker-a --keep 30d",
        "rmqstore backup /data/rocketmq/store /backup/rocketmq --every 60s --max-rate 50M \\\n"
        "      --metrics /var/lib/node_exporter/rmqstore.prom",
    ),
)
@click.argument("repository", metavar="REPO")
@click.option(
    "--name", metavar="NAME", help="Name of the store in REPO (default: brokerName, or the name of its directory)."
)
@click.option("--every", type=DURATION, metavar="TIME", help="Add a snapshot every TIME, such as 60s, until stopped.")
@kept_options
@click.option("--full", is_flag=True, help="Read the whole log again, and compare it with the repository.")
@click.option("--max-rate", type=SIZE, metavar="SIZE", help=RATE)
@metrics_option
@gathered("how", How)
@named_roots
def backup(
    out: Output, store: Path, config: BrokerConfig, repository: str, every: float | None, keep: KeepRule, how: How
) -> int:
    """Add a snapshot of a store to a repository, beside a running broker or a stopped one.

    REPO is a directory, which is created if it does not exist, or s3://BUCKET/PREFIX: then endpoint and credentials
    come from AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID and the other usual variables and files. Only what is new since the
    last snapshot is read and written. The log is verified while it is copied: damage goes into the snapshot as it is
    and is named, and what the repository already has stays. If the log no longer continues what the repository has, as
    after a truncation, the place is named, and both versions are kept. Consume queues and index are not stored:
    `rmqstore restore` rebuilds them.

    Without a --keep option, everything is kept, also log files that the broker has deleted. A snapshot stays if one of
    these options keeps it, and a deleted log file while a snapshot as old as its last message stays. Exit code 0: done;
    1: the log is damaged, no longer continues the repository, or the store has links that lead out of it, whose
    targets are not copied; 5: refused.
    """
    from rmqstore.backup.backup import BackupOptions
    from rmqstore.backup.repository import Address, Repository, storage_of
    from rmqstore.files.store import open_store

    if every is not None and every <= 0:
        raise UsageError(Text("--every: the time must be greater than 0"), Text("give for example 60s"))
    address = Address.parse(repository)
    opened = open_store(store, config)
    _refuse_in_store(opened, address.repository)
    if address.snapshot or (address.name and how.name not in (None, address.name)):
        raise UsageError(
            Text("{repository} names a snapshot or another name", repository=repository),
            Text("write REPO, and the name with --name"),
        )
    measured = Metrics(out, how.metrics, "backup", store)
    name = how.name or address.name or default_name(opened)
    folder = Repository.open_or_create(storage_of(address.repository)).of(name)
    note_open_to_others(out, folder)
    options = BackupOptions(keep, how.full)
    with pace.at_most(how.max_rate):
        if every is None:
            return _once(out, opened, folder, options, measured)
        return _for_ever(out, opened, folder, options, measured, every)


def note_open_to_others(out: Output, folder: StoreFolder) -> None:
    """Note that other users can read the repository, if they can."""
    if folder.storage.open_to_others:
        make = f"chmod -R go= {shlex.quote(folder.storage.address)}"
        words = Text("note: other users can read {repository}; to make it private: {command}")
        out.note(words.format(repository=folder.storage.address, command=make))


def default_name(store: Store) -> str:
    """Return the name of a store in a repository: its brokerName, with the id of a slave; else its directory."""
    given = store.config.given
    name, number = given.get("brokerName", "").strip(), given.get("brokerId", "0").strip()
    if name:
        return name if number in ("", "0") else f"{name}-{number}"
    return real_path(store.path).name


def _refuse_in_store(store: Store, repository: str) -> None:
    """Errors: UsageError for a repository inside the store."""
    if "://" in repository:
        return
    path = real_path(Path(repository))
    if any(path == place or place in path.parents for place in store.places):
        raise UsageError(
            Text("{repository} is inside the store", repository=repository),
            Text("name a directory outside of it, best on another disk"),
        )


def _once(out: Output, store: Store, folder: StoreFolder, options: BackupOptions, metrics: Metrics) -> int:
    from rmqstore.backup.backup import back_up

    with out.progress("backup", store.log_bytes) as progress:
        made = back_up(store, folder, replace(options, progress=progress.add))
    metrics.write(of_backup(made.manifest), made.exit_code)
    out.answer(_document(folder, made), _lines(store, folder, made))
    return made.exit_code


def _for_ever(
    out: Output, store: Store, folder: StoreFolder, options: BackupOptions, metrics: Metrics, every: float
) -> int:
    """Make a snapshot again and again; after an error that may pass, try again."""
    from rmqstore.files.store import open_store

    first = True
    while True:
        started = time.monotonic()
        metrics.begin()
        try:
            _once(out, open_store(store.path, store.config), folder, options, metrics)
        except (*_PASSING, OSError) as error:
            if first:
                raise
            if isinstance(error, OSError):
                error = CouldNotCheck(about(error.filename or folder.storage.address, error))
            out.note(Text("warning: no snapshot was made: {message}", message=error.message))
        first = False
        time.sleep(max(every - (time.monotonic() - started), 0))


def _document(folder: StoreFolder, made: Backup) -> dict[str, Any]:
    manifest = made.manifest
    return {
        "schema": "rmqstore.backup/1",
        "repository": folder.storage.address,
        "name": manifest.name,
        "snapshot": manifest.snapshot,
        **_contents(manifest),
        "verified": not manifest.unread,
        "unread_bytes": manifest.unread,
        "forgotten": list(made.forgotten.snapshots),
        "freed_bytes": made.forgotten.bytes,
    }


def _contents(manifest: Manifest) -> dict[str, Any]:
    """Return the JSON of what a snapshot contains."""
    last = manifest.last_time if manifest.last_time >= 0 else None
    return {
        "log": {"from": manifest.begin, "to": manifest.end, "last_timestamp": last},
        "messages": manifest.messages,
        "new_bytes": manifest.new_bytes,
        "bytes": manifest.size,
        "branches": [
            {
                "log": branch.log,
                "offset": branch.offset,
                "timestamp": branch.time,
                "since": branch.since,
                "damage": branch.damage,
                "missing_to": branch.missing_to,
            }
            for branch in manifest.branches
        ],
        "counts": dict(manifest.counts),
        "left_out": [{"path": one.path, "target": one.target, "leads": one.leads} for one in manifest.left_out],
    }


def _lines(store: Store, folder: StoreFolder, made: Backup) -> Iterator[str]:
    manifest = made.manifest
    last, count = _last(manifest), many(manifest.messages, "message")
    yield Text("Snapshot {name}: {messages}.", name=f"{manifest.name}@{manifest.snapshot}", messages=count)
    yield Text("  the log from {begin:,} to {end:,}{last}", begin=manifest.begin, end=manifest.end, last=last)
    yield Placed("  {sizes}", sizes=_sizes(manifest))
    if secret := secret_parts(manifest):
        yield Text("  it contains passwords in plain text, those of {parts}: keep it private", parts=joined(secret))
    if made.forgotten.snapshots or made.forgotten.objects:
        yield _forgotten(made.forgotten)
    for branch in manifest.branches:
        yield ""
        yield _branch_line(folder.name, branch)
    if manifest.counts:
        yield ""
        heals = _can_heal(store, manifest)
        if heals:
            yield Text("The log is damaged, and the repository has earlier bytes of some of these places:")
        else:
            yield Text("The log is damaged:")
        yield from (f"  {code} x {count:,}" for code, count in manifest.counts.items())
        path, healing = shlex.quote(str(store.path)), shlex.quote(folder.address)
        yield f"    -> rmqstore recover {path} --replica {healing}" if heals else f"    -> rmqstore verify {path}"
    elif not manifest.branches and not manifest.unread:
        yield Text("  the records are sound (`rmqstore verify` also checks queues and index)")
    if manifest.unread:
        yield ""
        unread = bytes_text(manifest.unread)
        yield Text("The disk could not read {unread} of the log; the snapshot has zeros there.", unread=unread)
    yield from _left_out_lines(store, manifest)


def _left_out_lines(store: Store, manifest: Manifest) -> Iterator[str]:
    """Name the links that are not in a snapshot."""
    if manifest.left_out:
        yield ""
        yield Text("Links are not in the snapshot:")
    yield from (Placed("  {link}", link=left.words) for left in manifest.left_out)
    if manifest.lacks:
        yield Text("  To back up what is there, put the file or the directory in the place of its link.")
    named = named_options(store.files.real_path(entry.path) for entry in store.not_followed)
    if named:
        yield Text("  For directories that belong to this broker, add{options}", options=named)


_SECRET = re.compile(r"config/(users|acls)(?=/)|(?:[^/]+/)*plain_acl[^/]*\.yml")
"""RocksDBs of users and permissions (BrokerStartup, 5.3.0), and the file of the older ACL (PlainPermissionManager)."""


def secret_parts(manifest: Manifest) -> list[str]:
    """Return the parts of a snapshot with passwords of clients in plain text."""
    found = (_SECRET.match(other.path) for other in manifest.others)
    return sorted({match[0] for match in found if match is not None})


def _can_heal(store: Store, manifest: Manifest) -> bool:
    """Return whether the repository has other bytes of a damaged file, or a file that is missing in the store."""
    if manifest.earlier():
        return True
    if not manifest.counts.keys() & {codes.CL_MISSING_FILE, codes.DL_MISSING_FILE}:
        return False
    logs = ((queue, manifest.log(queue.name)) for queue, _ in store.logs)
    starts = ((queue, file.start) for queue, log in logs if log is not None for file in log.files)
    return any(queue.begin <= start and queue.find(start) is None for queue, start in starts)


def _last(manifest: Manifest) -> str:
    return f" ({time_text(manifest.last_time)})" if manifest.last_time > 0 else ""


def _sizes(manifest: Manifest) -> str:
    return Text("{new} new, {size} in all", new=bytes_text(manifest.new_bytes), size=bytes_text(manifest.size))


def _forgotten(gone: Forgotten) -> str:
    count, freed = many(len(gone.snapshots), "snapshot"), bytes_text(gone.bytes)
    return Text("  {snapshots} forgotten, {bytes} freed", snapshots=count, bytes=freed)


def _branch_line(name: str, branch: Any) -> str:
    """Say where a log no longer continues the repository."""
    log, at, since, after = branch.log, branch.offset, f"{name}@{branch.since}", ""
    if branch.time is not None:
        after = Text(", after the message of {time}", time=time_text(branch.time, exact=True))
    if branch.missing_to is not None:
        expired = Text(
            "The {log} has expired from {at:,} to {stop:,}{after}: these messages are in no snapshot. Make snapshots "
            "more often."
        )
        return expired.format(log=log, at=at, stop=branch.missing_to, after=after)
    if branch.damage:
        damaged = Text("The {log} is damaged at {at:,}{after}. {since} has other bytes there.")
        return damaged.format(log=log, at=at, after=after, since=since)
    differs = Text("The {log} does not continue {since}: it differs from {at:,} on{after}. Both versions are kept.")
    return differs.format(log=log, since=since, at=at, after=after)


@dataclass(slots=True)
class Listed:
    """The snapshots of one store. `unreadable`: (snapshot, reason); `faults`: (object, fault) of --check."""

    folder: StoreFolder
    manifests: list[Manifest] = field(default_factory=list)
    unreadable: list[tuple[str, str]] = field(default_factory=list)
    faults: list[tuple[str, str]] = field(default_factory=list)
    forgotten: Forgotten | None = None
    copied: Copied | None = None

    @property
    def needed_bytes(self) -> int:
        """The bytes of the objects that the snapshots need, each object once."""
        return sum({key: size for one in self.manifests for key, size, _ in one.objects()}.values())


@command(
    "snapshots",
    store=False,
    report=True,
    examples=(
        "rmqstore snapshots /backup/rocketmq::broker-a --check",
        "rmqstore snapshots /backup/rocketmq --forget --keep-hourly 24 --keep-daily 7 --keep-monthly 12",
        "rmqstore snapshots /backup/rocketmq --copy s3://backups/rocketmq",
    ),
)
@click.argument("repository", metavar="REPO[::NAME]")
@click.option("--check", is_flag=True, help="Read everything that snapshots need, and compare it with its hashes.")
@click.option("--copy", metavar="REPO2", help="Copy the snapshots that REPO2 lacks to it.")
@click.option("--forget", is_flag=True, help="Remove the snapshots that no --keep option keeps.")
@click.option("--all", "every", is_flag=True, help="List each snapshot; otherwise, earlier days have one line each.")
@kept_options
def snapshots(
    out: Output, repository: str, check: bool, copy: str | None, forget: bool, every: bool, keep: KeepRule
) -> int:
    """List the snapshots in a repository, check them, copy them, or forget old ones.

    --check reads every object that a snapshot needs, and finds missing and changed ones. --copy compares what it copies
    with its hashes; what REPO2 has already is not copied again. --forget removes old snapshots and what no other
    snapshot needs; the newest one always stays. It is refused while a backup writes to the same store's folder. Exit
    code 1: --check found a fault; 4: a snapshot cannot be read.
    """
    from rmqstore.backup.keeping import KeepRule
    from rmqstore.backup.repository import Address, Repository, storage_of

    if forget == (keep == KeepRule()):
        raise UsageError(Text("--forget needs a --keep option, and these need --forget"), Text("see `--help`"))
    if copy is not None and forget:
        raise UsageError(Text("--copy and --forget exclude each other"), Text("copy first, then forget"))
    address = Address.parse(repository)
    if address.snapshot:
        raise UsageError(
            Text("{repository} names one snapshot", repository=repository), Text("write REPO or REPO::NAME")
        )
    opened = Repository.open(storage_of(address.repository))
    names = [address.name] if address.name else opened.names()
    found = [_listed(out, opened.of(name), keep if forget else None, check=check) for name in names]
    if address.name and not (found[0].manifests or found[0].unreadable):
        found[0].folder.find()  # says which stores there are
    if copy is not None:
        _copy(out, found, copy)
    out.answer(
        _snapshots_document(address.repository, found, check=check), _list_lines(found, check=check, every=every)
    )
    if any(one.faults for one in found):
        return 1
    return 4 if any(one.unreadable for one in found) else 0


def _copy(out: Output, found: list[Listed], address: str) -> None:
    """Copy what another repository lacks of each store. Errors: as `StoreFolder.copy_to`; UsageError."""
    from rmqstore.backup.repository import Address, Repository, storage_of

    wanted = Address.parse(address)
    if wanted.name:
        raise UsageError(Text("{address} names a store", address=address), Text("write REPO2: the name stays"))
    storage = storage_of(address)
    if any(storage.address == one.folder.storage.address for one in found):
        raise UsageError(Text("{address} is the repository itself", address=address), Text("name another one"))
    target = Repository.open_or_create(storage)
    for one in found:
        with out.progress("copy", one.needed_bytes) as progress:
            one.copied = one.folder.copy_to(target.of(one.folder.name), progress.add)


def _listed(out: Output, folder: StoreFolder, keep: KeepRule | None, *, check: bool) -> Listed:
    """Forget, check and list the snapshots of one store."""
    from rmqstore.backup.repository import now

    listed = Listed(folder)
    if keep is not None:
        with folder.locked():
            listed.forgotten = folder.forget(keep, now())
    for name in folder.snapshots():
        try:
            listed.manifests.append(folder.manifest(name))
        except CouldNotCheck as error:
            listed.unreadable.append((name, error.message))
    if check:
        with out.progress("check", listed.needed_bytes) as progress:
            listed.faults = list(folder.check(listed.manifests, progress.add))
    return listed


def _snapshots_document(repository: str, found: list[Listed], *, check: bool) -> dict[str, Any]:
    return {
        "schema": "rmqstore.snapshots/1",
        "repository": repository,
        "stores": [
            {
                "name": one.folder.name,
                "snapshots": [
                    {"snapshot": made.snapshot, "made": made.time, "kind": made.layout.kind, **_contents(made)}
                    for made in one.manifests
                ],
                "unreadable": [{"snapshot": name, "reason": reason} for name, reason in one.unreadable],
                "faults": [{"object": key, "fault": fault} for key, fault in one.faults] if check else None,
                "forgotten": list(one.forgotten.snapshots) if one.forgotten is not None else [],
                "freed_bytes": one.forgotten.bytes if one.forgotten is not None else 0,
                "copied": list(one.copied.snapshots) if one.copied is not None else [],
                "copied_bytes": one.copied.bytes if one.copied is not None else 0,
            }
            for one in found
        ],
    }


def _list_lines(found: list[Listed], *, check: bool, every: bool) -> Iterator[str]:
    if not found:
        yield Text("no snapshots")
    for number, one in enumerate(found):
        if number:
            yield ""
        yield Placed("{folder}: {snapshots}", folder=one.folder.name, snapshots=many(len(one.manifests), "snapshot"))
        if one.forgotten is not None:
            yield _forgotten(one.forgotten)
        if one.copied is not None:
            copied = many(len(one.copied.snapshots), "snapshot")
            yield Text("  {snapshots} copied, {bytes}", snapshots=copied, bytes=bytes_text(one.copied.bytes))
        yield from (line for few in _by_day(one.manifests, every=every) for line in _manifest_lines(few))
        for name, reason in one.unreadable:
            yield Placed("  {name}: {reason}", name=name, reason=reason)
        for key, fault in one.faults:
            yield Placed("  {key}: {fault}", key=key, fault=fault)
        if check and not one.faults:
            yield Text("  every object is as it was written")


def _by_day(manifests: list[Manifest], *, every: bool) -> Iterator[list[Manifest]]:
    """Yield those that are listed together: of one day before the last one, if there is nothing to say about them."""
    day_of = itemgetter(slice(8))
    for day, group in groupby(manifests, key=lambda one: day_of(one.snapshot)):
        quiet: list[Manifest] = []
        for manifest in group:
            if every or manifest.branches or manifest.counts or day == day_of(manifests[-1].snapshot):
                yield from [quiet] if quiet else []
                yield [manifest]
                quiet = []
            else:
                quiet.append(manifest)
        yield from [quiet] if quiet else []


def _manifest_lines(few: list[Manifest]) -> Iterator[str]:
    """Yield the lines of a snapshot, or one line for several."""
    if len(few) == 1:
        yield from _snapshot_lines(few[0])
        return
    new = bytes_text(sum(manifest.new_bytes for manifest in few))
    log = Text("the log to {end:,}{last}", end=few[-1].end, last=_last(few[-1]))
    facts = joined((many(len(few), "snapshot"), log, Text("{new} new", new=new)))
    yield Placed("  {first} to {last}  {facts}", first=few[0].snapshot, last=few[-1].snapshot, facts=facts)


def _snapshot_lines(manifest: Manifest) -> Iterator[str]:
    log = Text("the log to {end:,}{last}", end=manifest.end, last=_last(manifest))
    facts = joined((log, many(manifest.messages, "message"), _sizes(manifest)))
    yield Placed("  {snapshot}  {facts}", snapshot=manifest.snapshot, facts=facts)
    for branch in manifest.branches:
        if branch.missing_to is not None:
            missing = Text("      {log}: {at:,} to {stop:,} are missing")
            yield missing.format(log=branch.log, at=branch.offset, stop=branch.missing_to)
            continue
        what = Text("damaged") if branch.damage else Text("a new branch")
        yield Text("      {log}: {what} from {offset:,} on", log=branch.log, what=what, offset=branch.offset)
    if manifest.counts:
        yield f"      {', '.join(f'{code} x {count:,}' for code, count in manifest.counts.items())}"
