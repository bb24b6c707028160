"""The nodes of a DLedger group as broker.conf names them: dLegerSelfId and dLegerPeers.

Source: MemberState#<init>, DLedgerConfig#getSelfAddress, DLedgerRpcNettyService#<init> (DLedger 0.2.6 to 0.3.3.4);
BrokerController#initialize (RocketMQ 4.9.7, which catches only an IOException), #initializeMessageStore (5.1.4 to
5.5.1). Whole brokers of these versions were given such peers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rmqstore.files.broker_config import BrokerConfig, shown_value
from rmqstore.files.store import DLedgerFiles, Store
from rmqstore.formats.javatext import java_split, parse_int
from rmqstore.scan.tiling import Kind, Tiling
from rmqstore.texts import Text

_SELF_ID, _PEERS = "dLegerSelfId", "dLegerPeers"
_TOO_SHORT = "java.lang.StringIndexOutOfBoundsException"
_PORT = "40911"
_HOST = "HOST"


def own_group(store: Store, config: BrokerConfig) -> DLedgerFiles | None:
    """Return the DLedger files that the broker reads; None if there are none of the node that broker.conf names."""
    wanted = config.given.get("dLegerSelfId", "").strip()
    group = store.dledger
    return None if group is not None and wanted and group.self_id != wanted else group


@dataclass(frozen=True, slots=True)
class NodesFault:
    """Why a broker in DLedger mode ends before it loads its store, and what it logs.

    `in_store`: the constructor of the message store throws, which newer brokers catch.
    """

    reason: str
    log_line: str
    in_store: bool = True


def nodes_fault(config: BrokerConfig) -> NodesFault | None:
    """Return what is wrong with dLegerSelfId, or with dLegerPeers for this node; None if nothing is.

    A setting that is not given is wrong only in a broker.conf (`BrokerConfig.filled`): otherwise it is not known.
    """
    return _self_id_fault(config) or _peers_fault(config)


def _self_id_fault(config: BrokerConfig) -> NodesFault | None:
    """Return why no broker id can be made of dLegerSelfId: the number after its first character.

    Source: DLedgerCommitLog#<init> (4.9.7), BrokerController#getBrokerIdentity (5.1.4 to 5.5.1)
    """
    self_id = config.given.get(_SELF_ID)
    if self_id is None:
        words = Text("DLedger mode needs a dLegerSelfId")
        return NodesFault(words, "java.lang.NullPointerException", in_store=False) if config.complete else None
    if parse_int(self_id[1:]) is not None:
        return None
    words = Text("dLegerSelfId={self_id} is not a letter and a number, such as n0", self_id=shown_value(self_id))
    return NodesFault(words, "java.lang.NumberFormatException" if self_id else _TOO_SHORT, in_store=False)


def _peers_fault(config: BrokerConfig) -> NodesFault | None:
    if _PEERS not in config.given:
        words = Text("DLedger mode needs dLegerPeers")
        return NodesFault(words, "java.lang.NullPointerException") if config.complete else None
    self_id, peers = config.text(_SELF_ID), config.text(_PEERS)
    addresses: dict[str, str] = {}
    for peer in java_split(peers, ";"):
        node, dash, address = peer.partition("-")
        if not dash or not peer.strip("-"):
            words = Text("dLegerPeers: {peer} is not in the form ID-HOST:PORT", peer=peer or '""')
            return NodesFault(words, _TOO_SHORT)
        addresses[node] = address
    if not self_id:
        return None
    if self_id not in addresses:
        words = Text("dLegerPeers does not name this node, dLegerSelfId={self_id}", self_id=self_id)
        return NodesFault(words, "java.lang.IllegalArgumentException: [DLedgerConfig] fail to init self address")
    parts = java_split(addresses[self_id], ":")
    if len(parts) < 2 or parse_int(parts[1]) is None:
        words = Text("dLegerPeers: {peer} has no port", peer=f"{self_id}-{addresses[self_id]}")
        line = "java.lang.ArrayIndexOutOfBoundsException" if len(parts) < 2 else "java.lang.NumberFormatException"
        return NodesFault(words, line)
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


def written_by_newer(store: Store, tiling: Tiling | None = None) -> bool:
    """Return whether a store has snapshots, or entries of types (found in its tiling), that only DLedger 0.4 writes."""
    group = store.dledger
    if group is None:
        return False
    return group.newer or (tiling is not None and tiling.start == group.data.start and tiling.has(Kind.INTERNAL))
