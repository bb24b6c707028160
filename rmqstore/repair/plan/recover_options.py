"""The options of a recovery, and the choice of its strategy by the broker's role."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rmqstore.checks.problems.problem import Area
from rmqstore.checks.problems.table import PROBLEMS
from rmqstore.errors import UsageError
from rmqstore.files.store import Store
from rmqstore.texts import Text

SALVAGE, TRUNCATE = "salvage", "truncate"
ROLES = ("master", "single", "slave", "controller", "dledger-group")
REPLICAS = ("slave", "controller", "dledger-group")
"""Roles of replicas, which get missing messages from their master or leader again, and must never differ from it."""
MOST_KEPT = 64 << 20
"""Limit for a file's end saved in lost+found, bytes; the journal keeps all of it anyway."""


@dataclass(frozen=True, slots=True)
class RecoverOptions:
    """How to recover a store.

    `strategy` "" depends on the role, `role` "" is that of broker.conf. `only` restricts the repair to these codes, and
    includes those that are not safe. `now_ms` is used if no message has a time. The operator accepts with

    * `accept_fillers`: more than 1,000 visible fillers, and fillers for a missing file;
    * `allow_shift`: queue offsets without a record, so that a queue that a broker rebuilds is shifted;
    * `merge_neighbours`: the loss of a good message beside damage that is too short for a record;
    * `accept_odds`: a flipped bit with higher odds of being wrong, and a wrong byte (see `salvage/candidates.py`).
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
        """Return whether to repair any of these problems."""
        return not self.only or any(code in self.only for code in codes)

    def wants_area(self, *areas: Area) -> bool:
        """Return whether to repair any problem of these areas."""
        return not self.only or any(PROBLEMS[code].area in areas for code in self.only if code in PROBLEMS)

    @property
    def wants_log(self) -> bool:
        """Whether to repair any problem of the log."""
        return self.wants_area(Area.LOG, Area.DLEDGER)


@dataclass(frozen=True, slots=True)
class Choice:
    """The role, the strategy chosen for it, and notes for the user."""

    role: str
    strategy: str
    notes: tuple[str, ...] = ()


def choose(store: Store, options: RecoverOptions) -> Choice:
    """Choose the strategy: the option, otherwise truncate on a replica, and salvage on a master or a single node.

    Errors: UsageError for an unknown strategy or role.
    """
    if options.strategy not in ("", SALVAGE, TRUNCATE):
        raise UsageError(
            Text("unknown strategy {strategy!r}", strategy=options.strategy), Text("use salvage or truncate")
        )
    if options.role not in ("", *ROLES):
        raise UsageError(Text("unknown role {role!r}", role=options.role), f"roles: {', '.join(ROLES)}")
    role = options.role or store.config.role
    notes: list[str] = []
    if role == "unknown":
        notes.append(
            Text("the broker's role is not known (-c broker.conf or --role says it): treated as a single node")
        )
    strategy = options.strategy or (TRUNCATE if role in REPLICAS else SALVAGE)
    if role in REPLICAS and strategy == SALVAGE:
        notes.append(
            Text(
                "this is a {role}: with fillers in place of lost messages it differs from the other replicas", role=role
            )
        )
    return Choice(role, strategy, tuple(notes))
