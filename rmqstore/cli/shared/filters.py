"""The filters --topic, --queue, --since and --until as typed; `cli.shared.selections` has what they select."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FilterOptions:
    """The filters that commands share, as typed; `since` (inclusive) and `until` (exclusive) in ms."""

    topics: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    since: int | None = None
    until: int | None = None
