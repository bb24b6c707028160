"""The versions of RocketMQ whose start rules are known."""

from __future__ import annotations

import re

from rmqstore.errors import UsageError
from rmqstore.texts import Text

RUN_VERSIONS = ("4.9.7", "5.1.4", "5.4.0", "5.5.1")
VERSIONS = (
    *("4.3.0", "4.3.1", "4.3.2", "4.4.0", "4.5.1", "4.5.2", "4.6.0", "4.6.1", "4.7.0", "4.7.1", "4.8.0"),
    *("4.9.0", "4.9.1", "4.9.2", "4.9.3", "4.9.4", "4.9.5", "4.9.6", "4.9.7", "4.9.8"),
    *("5.0.0", "5.1.0", "5.1.1", "5.1.2", "5.1.3", "5.1.4", "5.2.0", "5.3.0", "5.3.1", "5.3.2", "5.3.3", "5.3.4"),
    *("5.4.0", "5.5.0", "5.5.1"),
)
NEWEST = VERSIONS[-1]


def exact_version(version: str | None = None) -> str:
    """Return a known version; `5.1` means the newest 5.1.x, None the newest of all.

    Errors: UsageError for an unknown version, naming those before and after it.
    """
    wanted = (version or NEWEST).strip().lower().removeprefix("v").removeprefix("rocketmq-all-")
    if wanted not in VERSIONS:
        family = [v for v in VERSIONS if v.startswith(wanted + ".")]
        if not family or not wanted:
            near = _nearest(wanted)
            nearest = f"; nearest: {', '.join(near)}" if near else ""
            raise UsageError(
                Text("no rules for RocketMQ {version}{nearest}", version=version, nearest=nearest),
                Text("versions from {versions} to {newest} are supported", versions=VERSIONS[0], newest=NEWEST),
            )
        wanted = family[-1]
    return wanted


def _nearest(wanted: str) -> list[str]:
    """Return the known versions before and after an unknown one, oldest first; empty for what is no version."""
    if re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,4})*", wanted) is None:
        return []
    number = version_number(wanted)
    before = [version for version in VERSIONS if version_number(version) < number]
    after = [version for version in VERSIONS if version_number(version) > number]
    return [*before[-1:], *after[:1]]


def version_number(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, to compare it with others."""
    return tuple(int(part) for part in version.split("."))
