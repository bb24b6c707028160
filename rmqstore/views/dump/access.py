"""Users and permissions of ACL 2.0 as rows, and as commands that make them again. Passwords are in neither."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from rmqstore.files.rocksdb.database import CannotRead
from rmqstore.files.rocksdb.links import database_files
from rmqstore.files.rocksdb.rows import access_rows
from rmqstore.files.store import Store
from rmqstore.files.store_queues import has_database
from rmqstore.formats.access import ACLS, USERS, Acl, AclUser, PolicyEntry, UserStatus, parse_acl, parse_user

NOT_READ = "not-read"


@dataclass(slots=True)
class AccessRows:
    """What a database says. `faults`: keys of rows without a valid value. `error`: why it cannot be read, or ""."""

    name: str
    bytes: int
    users: list[AclUser] = field(default_factory=list)
    acls: list[Acl] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    error: str = ""

    def row(self) -> dict[str, Any]:
        """Return the row of `dump --what config`."""
        rows = self.users if self.name == USERS else self.acls
        condition = NOT_READ if self.error else "sound" if not self.faults else "broken"
        value = None if self.error else {self.name: [asdict(one) for one in rows]}
        row = {"file": f"{self.name}/", "bytes": self.bytes, "condition": condition, "value": value}
        return row | ({"error": self.error} if self.error else {}) | ({"faults": self.faults} if self.faults else {})


def access_of(store: Store) -> Iterator[AccessRows]:
    """Yield what config/users/ and config/acls/ say, of a whole store that has them."""
    for name in (USERS, ACLS) if store.part is None else ():
        directory = store.root / "config" / name
        if has_database(store.files, directory):
            found = AccessRows(name, sum(length for _, length, _ in database_files(store.files, directory)))
            try:
                for key, value in access_rows(store.files, directory):
                    _take(found, key, value)
            except CannotRead as error:
                found.error = str(error)
            yield found


def _take(found: AccessRows, key: bytes, value: bytes) -> None:
    user = parse_user(key, value) if found.name == USERS else None
    acl = parse_acl(key, value) if found.name == ACLS else None
    if user is not None:
        found.users.append(user)
    elif acl is not None:
        found.acls.append(acl)
    else:
        found.faults.append(key.decode("utf-8", "backslashreplace"))


def commands(found: AccessRows) -> Iterator[str]:
    """Yield the mqadmin commands that make users or policies again, for a shell. `$BROKER`: the broker's address.

    A password is not printed: `PASSWORD_OF_NAME` has its place. mqadmin makes policies of type Custom only.
    Source: CreateUserSubCommand, UpdateUserSubCommand, CreateAclSubCommand (RocketMQ 5.5.0)
    """
    for user in found.users:
        name, password = shlex.quote(user.username), shlex.quote(f"PASSWORD_OF_{user.username}")
        kind = f" -t {user.type}" if user.type else ""
        yield f'mqadmin createUser -b "$BROKER" -u {name} -p {password}{kind}'
        if user.status == UserStatus.disable.name:
            yield f'mqadmin updateUser -b "$BROKER" -u {name} -s {user.status}'
    for acl in found.acls:
        for entry in acl.entries:
            yield f'mqadmin createAcl -b "$BROKER" -s {shlex.quote(acl.subject)}{_options(entry)}'


def _options(entry: PolicyEntry) -> str:
    lists = (("r", entry.resource), ("a", ",".join(entry.actions)), ("i", ",".join(entry.source_ips)))
    return "".join(f" -{name} {shlex.quote(value)}" for name, value in (*lists, ("d", entry.decision)) if value)
