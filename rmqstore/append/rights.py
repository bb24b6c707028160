"""Owner and modes of a store: what a copy of it gets, so that the same user's broker can open it, and nobody else."""

from __future__ import annotations

import grp
import os
import pwd
import shlex
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

from rmqstore.errors import UsageError
from rmqstore.files.disk import explained
from rmqstore.files.private import DIRECTORY_MODE, FILE_MODE
from rmqstore.files.store import Store
from rmqstore.files.walk import entries_on_disk
from rmqstore.texts import Text

_MODE = 0o775
"""What is taken of a mode: nobody may let all users write to a store."""


@dataclass(frozen=True, slots=True)
class StoreRights:
    """Numbers and names of owner and group, and the modes of directories and files.

    Names are "" where the system of the store had none. `own`: path in the store → mode, where it is another one.
    """

    uid: int
    gid: int
    user: str
    group: str
    directory: int
    file: int
    own: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GivenRights:
    """What the user wants for a new store; None: as its source.

    `owner`: numbers of user and group; `mode`: of directories, and without its execute bits of files.
    """

    owner: tuple[int, int] | None = None
    mode: int | None = None

    def check(self) -> None:
        """Errors: UsageError for an owner that this user cannot set."""
        if self.owner is None or os.geteuid() == 0:
            return
        uid, gid = self.owner
        if uid != os.geteuid() or gid not in (os.getegid(), *os.getgroups()):
            raise UsageError(
                Text("--owner: only root can give a store to another user, or to a group that you are not in"),
                Text("run the command as root, or leave --owner out"),
            )

    def over(self, source: StoreRights | None) -> StoreRights | None:
        """Return the rights of a new store: what is given here, and the rest from its source."""
        if self.owner is None and self.mode is None:
            return source
        rights = source or StoreRights(os.geteuid(), os.getegid(), "", "", DIRECTORY_MODE, FILE_MODE)
        if self.owner is not None:
            uid, gid = self.owner
            rights = replace(rights, uid=uid, gid=gid, user="", group="")
        if self.mode is not None:
            # what only the owner could read there stays so
            own = {path: mode & self.mode for path, mode in rights.own.items() if path != "."}
            rights = replace(rights, directory=self.mode, file=self.mode & 0o666, own=own)
        return rights


def owner_of(text: str) -> tuple[int, int]:
    """Return the numbers of USER[:GROUP], names or numbers (default: the user's own group). Errors: ValueError."""
    user, colon, group = text.partition(":")
    uid, usual = _user(user)
    if colon and group:
        return uid, _group(group)
    if usual is None:
        raise ValueError(Text("{user} has no group of its own: give USER:GROUP", user=user))
    return uid, usual


def _user(text: str) -> tuple[int, int | None]:
    with suppress(KeyError):
        found = pwd.getpwnam(text)
        return found.pw_uid, found.pw_gid
    if not _is_number(text):
        raise ValueError(Text("there is no user {user!r} on this machine", user=text))
    with suppress(KeyError):
        return int(text), pwd.getpwuid(int(text)).pw_gid
    return int(text), None


def _group(text: str) -> int:
    with suppress(KeyError):
        return grp.getgrnam(text).gr_gid
    if not _is_number(text):
        raise ValueError(Text("there is no group {group!r} on this machine", group=text))
    return int(text)


def _is_number(text: str) -> bool:
    """Whether it can be an id: 2^32-1 means "do not change" to chown(2)."""
    return text.isascii() and text.isdigit() and len(text) <= 10 and int(text) < 2**32 - 1


def rights_of(store: Store) -> StoreRights | None:
    """Return the rights of a store: those of its log, and of what lies at its top and in config/ with others.

    None for a store that is not on this machine, such as a snapshot.
    """
    files = store.files
    queue = store.logs[-1][0] if store.logs else None
    last = queue.files[-1].path if queue is not None and queue.files else store.root
    directory, file = files.rights(last.parent if last != store.root else last), files.rights(last)
    if directory is None or file is None:
        return None
    mode = file.mode if last != store.root else directory.mode & 0o666
    own: dict[str, int] = {}
    entries = [*files.list(store.root), *files.list(store.root / "config")]
    for entry in entries:
        found = files.rights(entry.path)
        usual = directory.mode if entry.directory else mode
        if found is not None and found.mode != usual and not entry.special:
            own[entry.path.relative_to(store.root).as_posix()] = found.mode
    top = files.rights(store.root)
    if top is not None and top.mode != directory.mode:
        own["."] = top.mode
    user = group = ""
    with suppress(KeyError):
        user = pwd.getpwuid(file.owner).pw_name
    with suppress(KeyError):
        group = grp.getgrgid(file.group).gr_name
    return StoreRights(file.owner, file.group, user, group, directory.mode, mode, own)


def give_rights(place: Path, target: Path, source: StoreRights | None, given: GivenRights) -> str | None:
    """Give a new store its rights; return which user can start a broker on it, if that may not be the right one.

    `place`: where only its user can enter it, before it is renamed to `target`; `source`: rights of what it was made
    from. Names count more than numbers, which are others on another machine. Without the group, its permissions are
    those of all users. Errors: NotReadable.
    """
    rights = given.over(source)
    done = rights is None or _give(place, rights)
    where = shlex.quote(str(target))
    if source is None and given.owner is None and os.geteuid() == 0:
        return Text("only root can start a broker on it; to give it to another user: chown -R USER: {path}", path=where)
    if rights is None or done:
        return None
    user = rights.user or str(rights.uid)
    owner = f"{user}:{rights.group or rights.gid}"
    return Text(
        "the store is yours, and you can start a broker on it; as root, to give it to {user}: chown -R {owner} {path}",
        user=user,
        owner=shlex.quote(owner),
        path=where,
    )


def _give(place: Path, rights: StoreRights) -> bool:
    """Set owner and modes; return whether the owner could be set."""
    uid, gid = rights.uid, rights.gid
    with suppress(KeyError):
        uid = pwd.getpwnam(rights.user).pw_uid
    with suppress(KeyError):
        gid = grp.getgrnam(rights.group).gr_gid
    root = os.geteuid() == 0
    to_group = root or gid in (os.getegid(), *os.getgroups())
    # the top comes last: until then, nobody else can enter it
    modes = ((Path(entry.path), status.st_mode) for entry, status in entries_on_disk(place))
    for path, kind in chain(modes, [(place, stat.S_IFDIR)]):
        if stat.S_ISLNK(kind):
            continue
        is_directory = stat.S_ISDIR(kind)
        key = path.relative_to(place).as_posix()
        mode = rights.own.get(key, rights.directory if is_directory else rights.file) & _MODE
        if not to_group:
            mode = mode & 0o707 | (mode & 0o007) << 3
        with explained(path):
            os.chown(path, uid if root else -1, gid if to_group else -1, follow_symlinks=False)
            path.chmod(mode | (0o700 if is_directory else 0o600))
    return root or uid == os.geteuid()
