"""The files of controller mode as a broker loads them."""

from __future__ import annotations

from rmqstore.files.store import EPOCHS, IDENTITY, Store
from rmqstore.formats.controller import BrokerIdentity, EpochEntry, parse_broker_identity, parse_epoch_file

_LARGEST = 1 << 20  # bytes of an epoch file


def stored_epochs(store: Store) -> tuple[EpochEntry, ...]:
    """Return the epochs that a broker would load: those of the file, or of its .bak; none if both are damaged."""
    for name in (EPOCHS, f"{EPOCHS}.bak"):
        if name in store.top:
            found = parse_epoch_file(store.files.read_at(store.root / name, _LARGEST, 0))
            if not found.faults:
                return found.entries
    return ()


def stored_identity(store: Store) -> BrokerIdentity | None:
    """Return the identity that the controller gave to the broker, or that the broker asked for; None without one."""
    for name in (IDENTITY, f"{IDENTITY}-temp"):
        if name in store.top:
            found = parse_broker_identity(store.files.read_at(store.root / name, _LARGEST, 0))
            if not found.faults:
                return found
    return None
