"""Recognizes stores of DLedger 0.4, which no RocketMQ release contains."""

from __future__ import annotations

from rmqstore.files.store import Store
from rmqstore.scan.tiling import Kind, Tiling


def written_by_newer(store: Store, tiling: Tiling | None = None) -> bool:
    """Return whether a store has snapshots, or entries of types (found in its tiling), that only DLedger 0.4 writes."""
    group = store.dledger
    if group is None:
        return False
    return group.newer or (tiling is not None and tiling.start == group.data.start and tiling.has(Kind.INTERNAL))
