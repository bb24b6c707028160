"""`rmqstore snapshots`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from rmqstore.cli.backup import Kept, branch_row, kept_options
from rmqstore.cli.printing.output import Output
from rmqstore.cli.printing.quantities import bytes_text, many, time_text
from rmqstore.cli.shared.options import command, gathered
from rmqstore.errors import CouldNotCheck, UsageError
from rmqstore.texts import Placed, Text, joined

if TYPE_CHECKING:
    from rmqstore.backup.manifest import Manifest
    from rmqstore.backup.repository import Forgotten, StoreFolder


@dataclass(slots=True)
class Listed:
    """The snapshots of one store. `unreadable`: (snapshot, reason); `faults`: (object, fault) of --check."""

    folder: StoreFolder
    manifests: list[Manifest] = field(default_factory=list)
    unreadable: list[tuple[str, str]] = field(default_factory=list)
    faults: list[tuple[str, str]] = field(default_factory=list)
    forgotten: Forgotten | None = None


@command(
    "snapshots",
    store=False,
    report=True,
    examples=(
        "rmqstore snapshots /backup/rocketmq",
        "rmqstore snapshots /backup/rocketmq::broker-a --check",
        "rmqstore snapshots /backup/rocketmq --forget --keep 30d",
    ),
)
@click.argument("repository", metavar="REPO[::NAME]")
@click.option("--check", is_flag=True, help="Read everything that snapshots need, and compare it with its hashes.")
@click.option("--forget", is_flag=True, help="Remove the snapshots that --keep or --keep-bytes does not keep.")
@kept_options
@gathered("kept", Kept)
def snapshots(out: Output, repository: str, check: bool, forget: bool, kept: Kept) -> int:
    """List the snapshots in a repository, check them, or forget old ones.

    --check reads every object that a snapshot needs, and finds missing and changed ones. --forget removes old snapshots
    and what no other snapshot needs; the newest one always stays. It is refused while a backup writes to the same
    store's folder. Exit code 1: --check found a fault; 4: a snapshot cannot be read.
    """
    from rmqstore.backup.repository import Address, Repository, storage_of

    if forget == (kept.keep is None and kept.keep_bytes is None):
        raise UsageError(Text("--forget needs --keep or --keep-bytes, and these need --forget"), Text("see `--help`"))
    address = Address.parse(repository)
    if address.snapshot:
        raise UsageError(
            Text("{repository} names one snapshot", repository=repository), Text("write REPO or REPO::NAME")
        )
    opened = Repository.open(storage_of(address.repository))
    names = [address.name] if address.name else opened.names()
    found = [_listed(out, opened.of(name), kept if forget else None, check=check) for name in names]
    if address.name and not (found[0].manifests or found[0].unreadable):
        found[0].folder.find()  # says which stores there are
    if out.as_json:
        out.report(_document(address.repository, found, check=check))
    else:
        out.lines(_lines(found, check=check), wrap=True)
    if any(one.faults for one in found):
        return 1
    return 4 if any(one.unreadable for one in found) else 0


def _listed(out: Output, folder: StoreFolder, kept: Kept | None, *, check: bool) -> Listed:
    """Forget, check and list the snapshots of one store."""
    from rmqstore.backup.repository import now

    listed = Listed(folder)
    if kept is not None:
        with folder.locked():
            listed.forgotten = folder.forget(kept.keeping, now())
    for name in folder.snapshots():
        try:
            listed.manifests.append(folder.manifest(name))
        except CouldNotCheck as error:
            listed.unreadable.append((name, error.message))
    if check:
        needed = {key: size for one in listed.manifests for key, size, _ in one.objects()}
        with out.progress("check", sum(needed.values())) as progress:
            listed.faults = list(folder.check(listed.manifests, progress.add))
    return listed


def _document(repository: str, found: list[Listed], *, check: bool) -> dict[str, Any]:
    return {
        "schema": "rmqstore.snapshots/1",
        "repository": repository,
        "stores": [
            {
                "name": one.folder.name,
                "snapshots": [_row(manifest) for manifest in one.manifests],
                "unreadable": [{"snapshot": name, "reason": reason} for name, reason in one.unreadable],
                "faults": [{"object": key, "fault": fault} for key, fault in one.faults] if check else None,
                "forgotten": list(one.forgotten.snapshots) if one.forgotten is not None else [],
                "freed_bytes": one.forgotten.bytes if one.forgotten is not None else 0,
            }
            for one in found
        ],
    }


def _row(manifest: Manifest) -> dict[str, Any]:
    return {
        "snapshot": manifest.snapshot,
        "made": manifest.time,
        "kind": manifest.layout.kind,
        "log": {
            "from": manifest.begin,
            "to": manifest.end,
            "last_timestamp": manifest.last_time if manifest.last_time >= 0 else None,
        },
        "messages": manifest.messages,
        "new_bytes": manifest.new_bytes,
        "bytes": manifest.size,
        "branches": [branch_row(branch) for branch in manifest.branches],
        "counts": dict(manifest.counts),
    }


def _lines(found: list[Listed], *, check: bool) -> Iterator[str]:
    if not found:
        yield Text("no snapshots")
    for number, one in enumerate(found):
        if number:
            yield ""
        yield Placed("{folder}: {snapshots}", folder=one.folder.name, snapshots=many(len(one.manifests), "snapshot"))
        if one.forgotten is not None:
            gone = many(len(one.forgotten.snapshots), "snapshot")
            yield Text("  {gone} forgotten, {bytes} freed", gone=gone, bytes=bytes_text(one.forgotten.bytes))
        for manifest in one.manifests:
            yield from _snapshot_lines(manifest)
        for name, reason in one.unreadable:
            yield f"  {name}: {reason}"
        for key, fault in one.faults:
            yield f"  {key}: {fault}"
        if check and not one.faults:
            yield Text("  every object is as it was written")


def _snapshot_lines(manifest: Manifest) -> Iterator[str]:
    last = f" ({time_text(manifest.last_time)})" if manifest.last_time > 0 else ""
    sizes = Text(
        "{new_bytes} new, {size} in all", new_bytes=bytes_text(manifest.new_bytes), size=bytes_text(manifest.size)
    )
    yield (
        Text(
            "  {snapshot}  the log to {end:,}{last}, {messages}, {sizes}",
            snapshot=manifest.snapshot,
            end=manifest.end,
            last=last,
            messages=many(manifest.messages, "message"),
            sizes=sizes,
        )
    )
    for branch in manifest.branches:
        if branch.missing_to is not None:
            yield Text(
                "      {log}: {offset:,} to {missing_to:,} are missing",
                log=branch.log,
                offset=branch.offset,
                missing_to=branch.missing_to,
            )
            continue
        what = Text("damaged") if branch.damage else Text("a new branch")
        yield Text("      {log}: {what} from {offset:,} on", log=branch.log, what=what, offset=branch.offset)
    with contextlib.suppress(ValueError):
        if manifest.counts:
            counts = joined(
                (Placed("{code} x {count:,}", code=code, count=count) for code, count in manifest.counts.items())
            )
            yield f"      {counts}"
