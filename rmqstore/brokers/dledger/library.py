"""Whether DLedger 0.4, which no RocketMQ release has, wrote a store: by what only it writes."""

from __future__ import annotations

from rmqstore.files.store import Store
from rmqstore.scan.tiling import Kind, Tiling


def written_by_newer(store: Store, tiling: Tiling | None = None) -> bool:
    """Whether only DLedger 0.4 can have written a store: it has snapshots, or (in its tiling) entries of its types."""
    group = store.dledger
    if group is None:
        return False
    return group.newer or (tiling is not None and tiling.start == group.data.start and tiling.has(Kind.INTERNAL))
