"""DIR-OWNER: files that the broker's user may not write, for example after a restore as another user.

A store does not name the broker's user, so it is the owner of most files that only a broker creates. If all files
belong to root, nothing is checked, because root may write everything.
"""

from __future__ import annotations

import errno
import os
import shlex
import stat
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Finding, Findings
from rmqstore.files.disk import real_path
from rmqstore.files.files import Files
from rmqstore.files.store import Store
from rmqstore.files.walk import entries_on_disk
from rmqstore.formats.text import many
from rmqstore.texts import Text, joined

_TREES = (
    *("commitlog", "consumequeue", "batchconsumequeue", "consumequeue_ext", "index", "config", "timerlog"),
    "consumequeue_rocksdb",
    *("compaction", "rocksdbstore", "kvStore"),
)
_FILES = ("checkpoint", "lock", "abort", "timerwheel", "timercheck")
_MADE_BY_PEOPLE = "config"  # people copy broker.conf and topics.json, so their owners do not count
_READ_WRITE = 6
_ALL = 7


class _Ownership(NamedTuple):
    """Owner, group, mode and kind of entries."""

    uid: int
    gid: int
    mode: int
    directory: bool

    def open_to(self, uid: int, groups: set[int]) -> bool:
        """Return whether a user may read and write the entry (and enter a directory), by owner, group and mode."""
        shift = 6 if self.uid == uid else 3 if self.gid in groups else 0
        needed = _ALL if self.directory else _READ_WRITE
        return (self.mode >> shift) & needed == needed


@dataclass(slots=True)
class _Rights:
    """The number of entries of each kind, and the first one by name; `owners` of files that only a broker creates."""

    count: Counter[_Ownership] = field(default_factory=Counter)
    first: dict[_Ownership, str] = field(default_factory=dict)
    owners: Counter[int] = field(default_factory=Counter)
    links: list[str] = field(default_factory=list)

    def add(self, path: str, status: os.stat_result, *, counts: bool) -> None:
        mode = status.st_mode
        if stat.S_ISLNK(mode):
            self.links.append(path)
        directory = stat.S_ISDIR(mode)
        if directory or stat.S_ISREG(mode):
            kind = _Ownership(status.st_uid, status.st_gid, mode & 0o777, directory)
            self.count[kind] += 1
            if self.count[kind] == 1 or path < self.first[kind]:
                self.first[kind] = path
            if counts and not directory:
                self.owners[status.st_uid] += 1

    @property
    def user(self) -> int | None:
        """The broker's user: the owner of most files, except root; None if all belong to root."""
        return next((uid for uid, files in self.owners.most_common() if uid and files), None)

    def groups(self, uid: int) -> set[int]:
        """Return the groups of a user, from this machine and from the user's files."""
        own = {kind.gid for kind in self.count if kind.uid == uid and not kind.directory}
        name, gid = _account(uid)
        return own | set(os.getgrouplist(name, gid)) if name else own

    def group(self, uid: int) -> int:
        """Return the group of most files of a user."""
        for kind, _ in self.count.most_common():
            if kind.uid == uid and not kind.directory:
                return kind.gid
        return max(0, _account(uid)[1])


class CannotJudge(PermissionError):
    """This user may not read a file that the verdict depends on."""


def require_readable(files: Files, paths: Iterable[Path]) -> None:
    """Refuse files of a log, a queue or the index that this user may not read: they are neither zeros nor gone.

    Errors: CannotJudge, which names the first such file.
    """
    for path in paths:
        if not files.may_read(path) and files.exists(path):  # a file may expire while we look
            raise CannotJudge(errno.EACCES, os.strerror(errno.EACCES), str(path))


def check_rights(store: Store, findings: Findings, *, live: bool = False) -> list[Path]:
    """Report all entries that the broker's user may not write in one finding, with the command that fixes this.

    Return the links below the top, which the same walk finds; their targets do not count.
    """
    if store.part is not None or not store.files.on_this_machine:
        return []
    rights = _rights_in(store)
    _report(store, rights, findings, live=live)
    return [Path(path) for path in sorted(rights.links)]


def _report(store: Store, rights: _Rights, findings: Findings, *, live: bool) -> None:
    runs_as = _who_runs(store) if live else None
    uid = rights.user if runs_as is None else runs_as
    if not uid:
        return
    groups = rights.groups(uid)
    closed = [kind for kind in rights.count if not kind.open_to(uid, groups)]
    if not closed:
        return
    files, directories = (sum(rights.count[k] for k in closed if k.directory is d) for d in (False, True))
    facts: dict[str, Fact] = {"files": files, "directories": directories}
    first = min(closed, key=lambda kind: (kind.directory, rights.first[kind]))
    path = Path(rights.first[first])
    facts |= {"broker_user": _name(uid), "path": store.relative(path)}
    facts |= {"owner": _name(first.uid), "mode": f"{first.mode:04o}"}
    facts["run"] = _command(store, closed, uid, rights.group(uid))
    findings.add(Finding(codes.DIR_OWNER, "store", path.name, facts=facts))


def _who_runs(store: Store) -> int | None:
    """Return the user of the process that has the store open."""
    pid = store.lock_state().pid or next((user.pid for user in store.users().seen), None)
    try:
        return None if pid is None else Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return None


def rights_words(findings: Findings) -> str:
    """Return the end of the verdict about permissions, which the forecast does not consider; "" for no finding."""
    facts = next((f.facts for f in findings.listed if f.code == codes.DIR_OWNER), None)
    if facts is None:
        return ""
    files, directories = int(facts["files"] or 0), int(facts["directories"] or 0)
    parts = [many(files, "file")] if files else []
    parts += [many(directories, "directory", "directories")] if directories else []
    return Text(
        ", but user {broker_user} may not write {parts} of it",
        broker_user=facts["broker_user"],
        parts=joined(parts, " and "),
    )


def _name(uid: int) -> str:
    """Return the name of a user, or the number if this machine does not know it."""
    return _account(uid)[0] or str(uid)


def _account(uid: int) -> tuple[str, int]:
    """Return name and group of a user; ("", -1) if this machine does not know it."""
    import pwd

    try:
        account = pwd.getpwuid(uid)
    except KeyError:
        return "", -1
    return account.pw_name, account.pw_gid


def _command(store: Store, closed: list[_Ownership], uid: int, gid: int) -> str:
    """Return the command that fixes the permissions, ready to copy. `chown -R` does not follow links at the top."""
    where = " ".join(shlex.quote(str(p)) for p in store.places)
    steps = [f"chown -R {uid}:{gid} {where}"] if any(e.uid != uid for e in closed) else []
    # a new owner may need rights that the old one did not have either
    if any(not e._replace(uid=uid).open_to(uid, set()) for e in closed):
        steps.append(f"chmod -R u+rwX {where}")
    return " && ".join(steps)


def _rights_in(store: Store) -> _Rights:
    rights = _Rights()
    followed = {entry.path for entry in store.followed}
    tops = {
        name: e.path
        for name, e in store.top.items()
        if (name in _TREES or name.startswith("dledger-")) and (e.link is None or e.path in followed)
    }
    seen = {real_path(path) for path in tops.values()}  # `places` also has the targets of links at the top
    places = [*tops.values(), *(p for p in store.places[1:] if p not in seen)]
    for path in (store.root, *(store.root / name for name in _FILES)):
        _add(rights, path, counts=True)
    for path in places:
        counts = path.name != _MADE_BY_PEOPLE
        _add(rights, path, counts=counts)
        for below, status in entries_on_disk(path):
            rights.add(below.path, status, counts=counts)
    return rights


def _add(rights: _Rights, path: Path, *, counts: bool) -> None:
    try:
        rights.add(str(path), path.stat(), counts=counts)
    except OSError:
        return  # missing, or unreadable, which has its own finding
