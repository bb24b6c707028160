"""Who is at the other end, whether it can be followed, and whether its log continues what has been received."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from rmqstore.errors import CouldNotCheck, Refused
from rmqstore.receiving.spool import GREATEST_OFFSET, Spool
from rmqstore.remoting.requests import RemoteBroker
from rmqstore.texts import Text

_VERSION = re.compile(r"V(\d+)_(\d+)_(\d+)")
_PARTS = "brokerRole", "brokerName", "haListenPort", "mappedFileSizeCommitLog"
_WHO = Text("give HOST:PORT of a broker that is a master (its listenPort, 10911)")


class OtherHistory(Refused):
    """The master's log does not continue what has been received."""

    code = "other-history"
    advice = Text("to keep what has been received, and begin again with the master's log, add --new-history")


@dataclass(frozen=True, slots=True)
class Master:
    """A broker, as it describes itself. `begin`, `end`: global offsets of its log, equal while it is empty.

    `settings`: its configuration without the paths of its machine.
    """

    name: str
    cluster: str
    role: str
    version: str
    ha_port: int
    file_size: int
    begin: int
    end: int
    settings: dict[str, str]

    @property
    def source(self) -> dict[str, str]:
        """What tells this master from others."""
        return {"cluster": self.cluster, "name": self.name}

    @property
    def is_empty(self) -> bool:
        """Whether it has no message yet."""
        return self.end <= self.begin


def bounds(broker: RemoteBroker) -> tuple[int, int]:
    """Return where the log of a broker begins and ends. Errors: CouldNotCheck."""
    return _bounds_in(broker, broker.runtime())


def _bounds_in(broker: RemoteBroker, runtime: Mapping[str, str]) -> tuple[int, int]:
    try:
        begin, end = int(runtime["commitLogMinOffset"]), int(runtime["commitLogMaxOffset"])
    except (KeyError, ValueError) as error:
        raise CouldNotCheck(
            Text("{address} does not say where its log ends", address=str(broker.address)), _WHO
        ) from error
    if max(begin, end) > GREATEST_OFFSET:
        words = Text("{address} describes a log that no broker has", address=str(broker.address))
        raise CouldNotCheck(words, _WHO)
    return (end, end) if begin < 0 else (begin, end)


def examine(broker: RemoteBroker) -> Master:
    """Ask a broker who it is. Errors: CouldNotCheck if it is none."""
    given = broker.configuration()
    if lacks := [name for name in _PARTS if not given.get(name)]:
        words = Text("{address} is not a broker: it has no {name}", address=str(broker.address), name=lacks[0])
        raise CouldNotCheck(words, _WHO)
    runtime = broker.runtime()
    number = _VERSION.match(runtime.get("brokerVersionDesc", ""))
    begin, end = _bounds_in(broker, runtime)
    try:
        port, size = int(given["haListenPort"]), int(given["mappedFileSizeCommitLog"])
    except ValueError:
        port = size = 0
    if not (0 < port < 1 << 16 and 0 < size < 1 << 31 and 0 <= begin <= end):
        words = Text("{address} describes a log that no broker has", address=str(broker.address))
        raise CouldNotCheck(words, _WHO)
    return Master(
        given["brokerName"],
        given.get("brokerClusterName", ""),
        given["brokerRole"],
        ".".join(number.groups()) if number else "",
        port,
        size,
        begin,
        end,
        {name: value for name, value in given.items() if "storepath" not in name.lower()},
    )


def refuse_unsupported(master: Master, *, ack: bool, sync_master: bool) -> None:
    """Errors: Refused for a broker that cannot be followed, or should not be."""
    given = master.settings
    if given.get("enableDLegerCommitLog") == "true":
        raise Refused(
            Text("{name} is a member of a DLedger group, which receive does not follow", name=master.name),
            Text("run `rmqstore backup` on the host of a member, with --every"),
        )
    if given.get("enableControllerMode") == "true":
        raise Refused(
            Text("{name} runs in controller mode, which receive does not follow", name=master.name),
            Text("run `rmqstore backup` on its host, with --every"),
        )
    if master.role == "SLAVE" or given.get("brokerId", "0") != "0":
        raise Refused(
            Text("{name} is a slave: it hands its log to nobody", name=master.name),
            Text("give the address of its master, or run `rmqstore backup` on the slave's host"),
        )
    waits = master.role == "SYNC_MASTER" and master.version.startswith("4.") and not ack
    if waits and not sync_master:
        words = Text("{name} is a SYNC_MASTER of {version}: if it has no slave, every send would wait 3 to 4 s")
        raise Refused(
            words.format(name=master.name, version=master.version),
            Text("if it has a slave, add --sync-master; `rmqstore backup` on its host does not disturb it"),
        )


def refuse_other_history(spool: Spool, master: Master, broker: RemoteBroker) -> None:
    """Errors: OtherHistory if the log does not continue what has been received."""
    if spool.is_empty:
        return
    refuse_gap_or_end(spool.end, master.begin, master.end)
    at = spool.last_record
    if at < master.begin:
        return
    size = int.from_bytes(spool.read(4, at), "big")
    if broker.record_at(at) != spool.read(size, at):
        words = Text("the record at {at:,} is another one than has been received: another master, or another history")
        raise OtherHistory(words.format(at=at))


def refuse_gap_or_end(own: int, begin: int, end: int) -> None:
    """Errors: OtherHistory for a log that has lost what follows `own`, or has never reached it."""
    if own < begin:
        words = Text("the master has deleted its log from {own:,} to {begin:,}, before it was received")
        raise OtherHistory(words.format(own=own, begin=begin))
    if own > end:
        words = Text(
            "the master's log ends at {end:,}, and {own:,} has been received: it has lost its end, or is another"
        )
        raise OtherHistory(words.format(own=own, end=end))
