"""The nodes of a DLedger group as broker.conf names them: dLegerSelfId and dLegerPeers.

Source: MemberState#<init>, DLedgerConfig#getSelfAddress, DLedgerRpcNettyService#<init> (DLedger 0.2.6 to 0.3.3.4);
BrokerController#initialize (RocketMQ 4.9.7, which catches only an IOException), #initializeMessageStore (5.1.4 to
5.5.1). Whole brokers of these versions were given such peers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import DLedgerFiles, Store
from rmqstore.formats.javatext import java_split, parse_int
from rmqstore.texts import Text

_PORT = "40911"
_HOST = "HOST"


def own_group(store: Store, config: BrokerConfig) -> DLedgerFiles | None:
    """Return the DLedger files that the broker reads; None if there are none of the node that broker.conf names."""
    wanted = config.given.get("dLegerSelfId", "").strip()
    group = store.dledger
    return None if group is not None and wanted and group.self_id != wanted else group


@dataclass(frozen=True, slots=True)
class PeersFault:
    """Why the constructor of the message store throws, and what the broker logs."""

    reason: str
    log_line: str


def peers_fault(config: BrokerConfig) -> PeersFault | None:
    """Return what is wrong with dLegerPeers for this node; None if nothing is, or if it is not known."""
    if "dLegerPeers" not in config.given:
        return None
    self_id, peers = config.text("dLegerSelfId"), config.text("dLegerPeers")
    addresses: dict[str, str] = {}
    for peer in java_split(peers, ";"):
        node, dash, address = peer.partition("-")
        if not dash or not peer.strip("-"):
            words = Text("dLegerPeers: {peer} is not in the form ID-HOST:PORT", peer=peer or '""')
            return PeersFault(words, "java.lang.StringIndexOutOfBoundsException")
        addresses[node] = address
    if not self_id:
        return None
    if self_id not in addresses:
        words = Text("dLegerPeers does not name this node, dLegerSelfId={self_id}", self_id=self_id)
        return PeersFault(words, "java.lang.IllegalArgumentException: [DLedgerConfig] fail to init self address")
    parts = java_split(addresses[self_id], ":")
    if len(parts) < 2 or parse_int(parts[1]) is None:
        words = Text("dLegerPeers: {peer} has no port", peer=f"{self_id}-{addresses[self_id]}")
        line = "java.lang.ArrayIndexOutOfBoundsException" if len(parts) < 2 else "java.lang.NumberFormatException"
        return PeersFault(words, line)
    return None


def mended_peers(config: BrokerConfig, self_id: str) -> str:
    """Return a value for dLegerPeers in which every node, and `self_id`, has an address; HOST is to be replaced."""
    peers = list(_mended(config.text("dLegerPeers")))
    if not any(peer.startswith(f"{self_id}-") for peer in peers):
        peers.append(f"{self_id}-{_HOST}:{_PORT}")
    return ";".join(peers)


def _mended(peers: str) -> Iterator[str]:
    for peer in filter(None, peers.split(";")):
        node, dash, address = peer.partition("-")
        if not dash:  # ID:PORT
            node, _, port = peer.partition(":")
            address = f"{_HOST}:{port}"
        host, _, port = address.partition(":")
        yield f"{node}-{host or _HOST}:{port if parse_int(port) is not None else _PORT}"
