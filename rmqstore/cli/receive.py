"""`rmqstore receive`."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqstore.cli.backup import kept_options, note_open_to_others
from rmqstore.cli.printing.output import Output
from rmqstore.cli.printing.quantities import DURATION, SIZE, bytes_text, many, time_text
from rmqstore.cli.shared.acl import access_keys
from rmqstore.cli.shared.metrics import Metrics, Sample, metrics_option, of_backup
from rmqstore.cli.shared.options import FILE, command, gathered
from rmqstore.errors import RmqStoreError, UsageError
from rmqstore.texts import Placed, Text, first_few

if TYPE_CHECKING:
    from rmqstore.backup.backup import Backup
    from rmqstore.backup.keeping import KeepRule
    from rmqstore.backup.repository import StoreFolder
    from rmqstore.receiving.receive import Follower, ReceiveOptions

_EVERY = 600.0
_METRICS_SECONDS = 10.0
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class ReceiveHow:
    """ReceiveHow to follow, as the options say."""

    name: str
    every: float | None
    once: bool
    ack: bool
    sync_master: bool
    new_history: bool
    acl: Path | None
    tls: bool
    tls_ca: Path | None
    metrics: Path | None
    max_rate: int = 0

    def options(self, address: str) -> ReceiveOptions:
        """Return the options of the follower. Errors: UsageError, NotReadable."""
        from rmqstore.receiving.receive import ReceiveOptions
        from rmqstore.remoting.connection import BrokerAddress, Tls
        from rmqstore.remoting.frames import Signer

        signer = Signer(*access_keys(self.acl)) if self.acl is not None else None
        tls = Tls(str(self.tls_ca) if self.tls_ca is not None else None) if self.tls or self.tls_ca else None
        limits = (self.ack, self.sync_master, self.max_rate, self.once)
        return ReceiveOptions(BrokerAddress.parse(address), signer, tls, *limits)


@command(
    "receive",
    store=False,
    report=True,
    examples=(
        "rmqstore receive 10.0.0.7:10911 /backup/rocketmq --name broker-a",
        "rmqstore receive 10.0.0.7:10911 /backup/rocketmq --name broker-a --until-caught-up --max-rate 20M",
        "rmqstore receive broker-a:10911 /backup/rocketmq --name broker-a --every 5m --keep 30d \\\n"
        "      --acl tools.yml --metrics /var/lib/node_exporter/receive.prom",
    ),
)
@click.argument("address", metavar="HOST:PORT")
@click.argument("repository", metavar="REPO")
@click.option("--name", required=True, metavar="NAME", help="Name of the store in REPO.")
@click.option(
    "--every", type=DURATION, metavar="TIME", help="Add a snapshot of what has arrived every TIME (default: 10m)."
)
@kept_options
@click.option(
    "--until-caught-up", "once", is_flag=True, help="End when all is there that the master has now, with a snapshot."
)
@click.option("--max-rate", type=SIZE, metavar="SIZE", help="Receive at most this much per second, such as 50M.")
@click.option(
    "--ack", is_flag=True, help="Be a replica: report to the master what is on disk. Producers will rely on it."
)
@click.option("--sync-master", is_flag=True, help="Follow a SYNC_MASTER of RocketMQ 4.x, which has another slave.")
@click.option(
    "--new-history", is_flag=True, help="Begin again if the log is not the one that was received; keep what was."
)
@click.option("--acl", type=FILE, metavar="FILE", help="File with accessKey and secretKey, as conf/tools.yml.")
@click.option("--tls", is_flag=True, help="Ask the broker over TLS, whatever its certificate is.")
@click.option(
    "--tls-ca", type=FILE, metavar="FILE", help="Ask over TLS; the certificate must be signed by one in FILE (PEM)."
)
@metrics_option
@gathered("how", ReceiveHow)
def receive(out: Output, address: str, repository: str, keep: KeepRule, how: ReceiveHow) -> int:
    """Follow a live master into a repository, with nothing on its host.

    HOST:PORT is the master's listenPort (10911). Its log comes over its HA port, topics, groups and offsets over this
    one. What arrives is verified record by record and written to REPO/NAME/receiving, a store by itself; every TIME it
    becomes a snapshot REPO::NAME, which all reading commands take, and `rmqstore restore`. REPO is a directory, which
    is created if it does not exist. The command goes on until it is stopped, connects again after a failure, and
    continues where it was.

    The master does not count this command as a replica, and sends end as without it, unless --ack is given: then a
    SYNC_MASTER tells producers that a message is safe as soon as it is here. The HA port asks nobody for credentials,
    and is not encrypted: allow only the hosts of its slaves and this one to connect to it.

    Masters of RocketMQ 4.x and 5.x; not DLedger, not controller mode. If the log does not continue what was received,
    because the master lost its end, deleted files too early, or is another one, the command stops and says so;
    --new-history then keeps both. Exit code 0: done; 1: the log is damaged on the master, or a snapshot has problems;
    4: the master cannot be reached; 5: refused.
    """
    from rmqstore.backup.repository import Address, Repository, storage_of
    from rmqstore.backup.storage import LocalStorage

    if how.every is not None and how.every <= 0:
        raise UsageError(Text("--every: the time must be greater than 0"), Text("give for example 60s"))
    options = how.options(address)
    place = Address.parse(repository)
    storage = storage_of(place.repository)
    if place.snapshot or place.name or not isinstance(storage, LocalStorage):
        raise UsageError(
            Text("{repository} is not a directory", repository=repository),
            Text("give a directory, and the name with --name; `rmqstore snapshots REPO --copy REPO2` copies it to S3"),
        )
    measured = Metrics(out, how.metrics, "receive", storage.directory / how.name)
    folder = Repository.open_or_create(storage).of(how.name)
    note_open_to_others(out, folder)
    if how.ack:
        out.note(Text("note: the master counts this as a replica: producers get SEND_OK for what is only here"))
    return _Following(out, address, folder, keep, how, measured).run(options, storage.directory / how.name)


class _Following:
    """One run of the command: snapshots, metrics, and what is said."""

    def __init__(
        self, out: Output, address: str, folder: StoreFolder, keep: KeepRule, how: ReceiveHow, metrics: Metrics
    ) -> None:
        self.out = out
        self.address = address
        self.folder = folder
        self.keep = keep
        self.how = how
        self.metrics = metrics
        self.last: Backup | None = None
        self.aside: Path | None = None
        self._written = 0.0

    def run(self, options: ReceiveOptions, place: Path) -> int:
        """Follow until the end; begin again once if that is asked for."""
        from rmqstore.receiving.master import OtherHistory
        from rmqstore.receiving.snapshots import keep_and_set_aside
        from rmqstore.receiving.spool import Spool

        while True:
            try:
                with Spool(place) as spool:
                    return self._follow(spool, options)
            except OtherHistory as error:
                if not self.how.new_history or self.aside is not None:
                    raise
                self.out.note(Text("note: {message}", message=error.message))
                self.aside = keep_and_set_aside(place, self.folder, self.keep)
                self.out.note(Text("note: what was received before is in {path}", path=self.aside))

    def _follow(self, spool: Any, options: ReceiveOptions) -> int:
        from rmqstore.receiving.receive import Follower
        from rmqstore.receiving.snapshots import Snapshots
        from rmqstore.remoting.connection import ConnectionLost

        follower = Follower(spool, options, self.out.note)
        snapshots = Snapshots(follower, self.folder, self.how.every or _EVERY, self.keep)
        for _ in follower.follow():
            try:
                made = snapshots.step()
            except RmqStoreError as error:
                if self.how.once and not isinstance(error, ConnectionLost):  # which `follow` meets, too
                    raise
                self.out.note(Text("warning: no snapshot was made: {message}", message=error.message))
                made = None
            if made is not None:
                self.last = made
                self.out.answer(self._document(follower), self._lines(follower))
            if made is not None or time.monotonic() - self._written > _METRICS_SECONDS:
                self._measure(follower)
            if self.how.once and (made is not None or follower.nothing_there):
                if made is None:
                    self.out.answer(self._document(follower), self._lines(follower))
                return self._exit_code(follower)
        raise AssertionError

    def _measure(self, follower: Follower) -> None:
        self._written = time.monotonic()
        progress, end = follower.progress, follower.spool.end
        samples = [
            Sample("rmqstore_receive_connected", int(progress.connected)),
            Sample("rmqstore_receive_lag_bytes", progress.lag(end)),
            Sample("rmqstore_receive_lag_seconds", round(progress.lag_seconds(end), 3)),
            Sample("rmqstore_receive_offset", max(0, end)),
            Sample("rmqstore_receive_reconnects", progress.reconnects),
        ]
        if self.last is not None:
            samples += of_backup(self.last.manifest)
        self.metrics.write(samples, self._exit_code(follower))

    def _exit_code(self, follower: Follower) -> int:
        return int(bool(follower.spool.faults) or (self.last is not None and self.last.exit_code != 0))

    def _document(self, follower: Follower) -> dict[str, Any]:
        spool, progress, master = follower.spool, follower.progress, follower.master
        return {
            "schema": "rmqstore.receive/1",
            "address": self.address,
            "repository": self.folder.storage.address,
            "name": self.folder.name,
            "master": None
            if master is None
            else {"name": master.name, "cluster": master.cluster, "role": master.role, "version": master.version},
            "replica": self.how.ack,
            "log": None
            if spool.is_empty
            else {"from": spool.begin, "to": spool.end, "last_timestamp": _time(progress.last_time)},
            "received_bytes": progress.received,
            "messages": progress.messages,
            "lag_bytes": progress.lag(spool.end),
            "reconnects": progress.reconnects,
            "damaged": [{"start": start, "stop": stop} for start, stop in spool.faults],
            "set_aside": None if self.aside is None else str(self.aside),
            "snapshot": None if self.last is None else self.last.manifest.snapshot,
            "branches": [] if self.last is None else [one.offset for one in self.last.manifest.branches],
        }

    def _lines(self, follower: Follower) -> Iterator[str]:
        spool, progress, master = follower.spool, follower.progress, follower.master
        name = master.name if master is not None else self.address
        count, size = many(progress.messages, "message"), bytes_text(progress.received)
        yield Text("Received {messages}, {size}, from {name}.", messages=count, size=size, name=name)
        if spool.is_empty:
            yield Text("  the master has no message yet")
            return
        last = f" ({time_text(progress.last_time)})" if progress.last_time > 0 else ""
        yield Text("  the log from {begin:,} to {end:,}{last}", begin=spool.begin, end=spool.end, last=last)
        if self.last is not None:
            manifest = self.last.manifest
            address = f"{self.folder.address}@{manifest.snapshot}"
            yield Text("  snapshot {address}: {messages}", address=address, messages=many(manifest.messages, "message"))
            for branch in manifest.branches:
                yield Text("  {log}: both histories are kept from {offset:,} on", log=branch.log, offset=branch.offset)
        if spool.faults:
            places = first_few([f"{start:,}" for start, _ in spool.faults], _SHOWN)
            yield Text("The log is damaged on the master at {places}; it was kept as it is.", places=places)
            yield Placed("    -> {command}", command=f"rmqstore verify {shlex.quote(self.folder.address)}")


def _time(milliseconds: int) -> int | None:
    return milliseconds if milliseconds >= 0 else None
