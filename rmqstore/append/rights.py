"""Owner and modes of a store: what a copy of it gets, so that the same user's broker can open it, and nobody else."""

from __future__ import annotations

import grp
import os
import pwd
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from rmqstore.files.disk import explained
from rmqstore.files.store import Store

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


def give_rights(place: Path, rights: StoreRights) -> bool:
    """Give a new store, which only its user can enter yet, these rights; return whether the owner could be set.

    Names count more than numbers, which are others on another machine. Without the group, its permissions are those of
    all users. Errors: NotReadable.
    """
    uid, gid = rights.uid, rights.gid
    with suppress(KeyError):
        uid = pwd.getpwnam(rights.user).pw_uid
    with suppress(KeyError):
        gid = grp.getgrnam(rights.group).gr_gid
    root = os.geteuid() == 0
    to_group = root or gid in (os.getegid(), *os.getgroups())
    for folder, _, names in os.walk(place, topdown=False):
        for path in (*(Path(folder, name) for name in names), Path(folder)):
            key = path.relative_to(place).as_posix()
            is_directory = path == Path(folder)
            mode = rights.own.get(key, rights.directory if is_directory else rights.file) & _MODE
            if not to_group:
                mode = mode & 0o707 | (mode & 0o007) << 3
            with explained(path):
                os.chown(path, uid if root else -1, gid if to_group else -1, follow_symlinks=False)
                path.chmod(mode | (0o700 if is_directory else 0o600))
    return root or uid == os.geteuid()
