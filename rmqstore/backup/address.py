"""Addresses of repositories and snapshots: `REPO`, `REPO::NAME`, `REPO::NAME@SNAPSHOT`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rmqstore.backup.manifest import Manifest, is_snapshot
from rmqstore.backup.repository import Repository, StoreFolder
from rmqstore.backup.storage.local import LocalStorage
from rmqstore.backup.storage.storage import Storage
from rmqstore.errors import NotReadable, UsageError
from rmqstore.texts import Text

_MARK = "::"


@dataclass(frozen=True, slots=True)
class Address:
    """A repository, and in it a store and a snapshot of it; "" for what is not named."""

    repository: str
    name: str = ""
    snapshot: str = ""

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read an address. Errors: UsageError for one without a repository."""
        repository, mark, rest = text.rpartition(_MARK)
        if not mark:
            repository, rest = rest, ""
        name, _, snapshot = rest.partition("@")
        if not repository or (mark and not name):
            raise UsageError(
                Text("{text!r} is not an address", text=text), Text("write REPO::NAME or REPO::NAME@SNAPSHOT")
            )
        return cls(repository, name, snapshot)


def is_address(text: str) -> bool:
    """Return whether a text names a store in a repository."""
    return _MARK in text


def storage_of(repository: str) -> Storage:
    """Return the storage at an address. Errors: UsageError for an unknown kind of storage."""
    scheme, mark, _ = repository.partition("://")
    if mark and scheme == "s3":
        from rmqstore.backup.storage.s3 import S3Storage

        return S3Storage(repository)
    if mark:
        raise UsageError(
            Text("{scheme}:// is not supported", scheme=scheme), Text("name a directory, or s3://BUCKET/PREFIX")
        )
    return LocalStorage(Path(repository))


def folder_of(address: Address) -> StoreFolder:
    """Return the folder of the store in an existing repository; without a name, of its only store.

    Errors: NotAStore, NotReadable; UsageError if the repository has several stores.
    """
    repository = Repository.open(storage_of(address.repository))
    if address.name:
        return repository.of(address.name)
    names = repository.names()
    if len(names) != 1:
        some = ", ".join(names[:10]) or "none"
        raise UsageError(
            Text("{repository} has snapshots of several stores: {some}", repository=address.repository, some=some),
            Text("write REPO::NAME"),
        )
    return repository.of(names[0])


def find_snapshot(folder: StoreFolder, wanted: str, parse_time: Callable[[str], int]) -> Manifest:
    """Return a snapshot by its name, or the newest one that was made until a time; "" for the newest.

    Errors: NotReadable without such a snapshot; UsageError for a text that is neither.
    """
    if not wanted or is_snapshot(wanted):
        return folder.find(wanted)
    try:
        until = parse_time(wanted)
    except ValueError as error:
        raise UsageError(
            Text("@{wanted} is neither a snapshot nor a time", wanted=wanted),
            Text("`rmqstore snapshots REPO` lists all"),
        ) from error
    found = None
    for name in folder.snapshots():
        manifest = folder.manifest(name)
        found = manifest if manifest.time <= until else found
    if found is None:
        raise NotReadable(
            Text("{folder} has no snapshot from {wanted} or earlier", folder=folder.name, wanted=wanted),
            Text("give a later time"),
        )
    return found
