"""Which broker a new replica of a store is, and the command that makes one."""

from __future__ import annotations

import shlex

from rmqstore.files.store import Store

SLAVE, CONTROLLER, DLEDGER = ROLES = ("slave", "controller", "dledger")
"""The roles of `rmqstore seed`."""


def replica_role(store: Store) -> str:
    """Return the role that a new replica of a store has: that of its group, or a slave."""
    if store.dledger is not None and store.dledger.data.files:
        return DLEDGER
    return CONTROLLER if store.controller_files else SLAVE


def seed_command(path: str, role: str) -> str:
    """Return the command that makes a replica of the store at a path; DIR and ID stand for what the user chooses."""
    member = " --self-id ID" if role == DLEDGER else ""
    return f"rmqstore seed {shlex.quote(path)} DIR --role {role}{member}"
