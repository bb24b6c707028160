"""RDB-ACCESS, RDB-ACCESS-ROW: users and permissions of ACL 2.0, in config/users/ and config/acls/.

Only a broker with their metadata providers opens them.
"""

from __future__ import annotations

from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Finding, Report
from rmqstore.files.rocksdb.database import CannotRead, DamagedDatabase, UnknownFormat, is_readable
from rmqstore.files.rocksdb.rows import access_rows
from rmqstore.files.store import Store
from rmqstore.files.store_queues import has_database
from rmqstore.formats.access import ACLS, USERS, parse_acl, parse_user
from rmqstore.texts import Text


def check(store: Store, report: Report) -> None:
    """Read both databases, and compare them: a row without a valid value, and policies of a user that does not exist.

    Source: LocalAuthenticationMetadataProvider, LocalAuthorizationMetadataProvider (5.5.1, run on such rows);
    AuthorizationMetadataManagerImpl#createAcl, which requires the user
    """
    if not is_readable():
        return
    users: set[bytes] | None = set()
    for name in (USERS, ACLS):
        directory = store.root / "config" / name
        if not has_database(store.files, directory):
            users = None if name == USERS else users
            continue
        parse = parse_user if name == USERS else parse_acl
        try:
            for key, value in access_rows(store.files, directory):
                row = parse(key, value)
                if name == USERS and users is not None:
                    users.add(key)
                if row is None:
                    _add(report, name, key, "value")
                elif name == ACLS and users is not None and row.username.encode() not in users:
                    _add(report, name, key, "no-user")
        except (DamagedDatabase, UnknownFormat) as e:
            report.findings.add(Finding(codes.RDB_ACCESS, f"config/{name}", facts={"reason": str(e)}))
            users = None
        except CannotRead as e:
            report.unchecked.append(Text("config/{name}/: this RocksDB cannot be read: {e}", name=name, e=e))
            users = None


def _add(report: Report, name: str, key: bytes, reason: str) -> None:
    facts: dict[str, Fact] = {"reason": reason, "key": key.decode("utf-8", "backslashreplace")}
    report.findings.add(Finding(codes.RDB_ACCESS_ROW, f"config/{name}", facts=facts))
