"""Whether DLedger 0.4 is meant, which comes with no RocketMQ release: by its name, or by what only it writes."""

from __future__ import annotations

from rmqstore.errors import UsageError
from rmqstore.files.store import Store
from rmqstore.scan.tiling import Kind, Tiling

PROGRAM, VERSION = "DLedger", "0.4.0"


def is_newer(version: str | None) -> bool:
    """Whether a version asked for is of DLedger alone.

    Errors: UsageError for one of those that RocketMQ brings along, and for one that is not known.
    """
    if version is None or not version.lower().startswith("dledger"):
        return False
    number = version.lower().removeprefix("dledger").lstrip("- ")
    if number and not f"{VERSION}.".startswith(f"{number}."):
        raise UsageError(
            f"no rules for DLedger {number} alone; there are some for {VERSION}",
            "older ones come with RocketMQ: name its version (man rmqstore-verify)",
        )
    return True


def written_by_newer(store: Store, tiling: Tiling | None = None) -> bool:
    """Whether only DLedger 0.4 can have written a store: it has snapshots, or (in its tiling) entries of its types."""
    group = store.dledger
    if group is None:
        return False
    return group.newer or (tiling is not None and tiling.start == group.data.start and tiling.has(Kind.INTERNAL))
