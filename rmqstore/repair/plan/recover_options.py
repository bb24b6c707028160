"""What a recovery is asked to do, and what the broker's role says about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rmqstore.checks.problems.problem import Area
from rmqstore.checks.problems.table import PROBLEMS
from rmqstore.errors import UsageError
from rmqstore.files.store import Store

SALVAGE, TRUNCATE = "salvage", "truncate"
ROLES = ("master", "single", "slave", "controller", "dledger-group")
REPLICAS = ("slave", "controller", "dledger-group")
"""These get what they lack from their master or leader again, and must never differ from it."""
MOST_KEPT = 64 << 20
"""Bytes of a file's end that lost+found keeps; the journal can restore all of it anyway."""


@dataclass(frozen=True, slots=True)
class RecoverOptions:
    """How to recover.

    `strategy` and `role`: "" for what broker.conf says. `only` these codes, those that are not safe included.
    `accept_fillers`, `allow_shift`, `merge_neighbours`, `accept_odds`: see the salvage planner. `now_ms`
    is used where no message has a time.
    """

    strategy: str = ""
    role: str = ""
    only: tuple[str, ...] = ()
    accept_fillers: bool = False
    allow_shift: bool = False
    merge_neighbours: bool = False
    accept_odds: bool = False
    now_ms: int = 0
    progress: Callable[[int], None] | None = None

    def wants(self, *codes: str) -> bool:
        """Whether one of these problems is to be cured."""
        return not self.only or any(code in self.only for code in codes)

    def wants_area(self, *areas: Area) -> bool:
        """Whether any problem of one of these areas is to be cured."""
        return not self.only or any(PROBLEMS[code].area in areas for code in self.only if code in PROBLEMS)


@dataclass(frozen=True, slots=True)
class Choice:
    """The strategy that was chosen, and what is to be said about it."""

    role: str
    strategy: str
    notes: tuple[str, ...] = ()


def choose(store: Store, options: RecoverOptions) -> Choice:
    """Salvage on a master or a single node, truncate on a replica; the option goes before both.

    Errors: UsageError for an unknown strategy or role.
    """
    if options.strategy not in ("", SALVAGE, TRUNCATE):
        raise UsageError(f"unknown strategy {options.strategy!r}", "use salvage or truncate")
    if options.role not in ("", *ROLES):
        raise UsageError(f"unknown role {options.role!r}", f"it is one of {', '.join(ROLES)}")
    role = options.role or store.config.role
    notes: list[str] = []
    if role == "unknown":
        notes.append("the broker's role is not known (-c broker.conf or --role says it): treated as a single node")
    strategy = options.strategy or (TRUNCATE if role in REPLICAS else SALVAGE)
    if role in REPLICAS and strategy == SALVAGE:
        notes.append(f"this is a {role}: what salvage puts in place of lost messages differs from the other replicas")
    return Choice(role, strategy, tuple(notes))
