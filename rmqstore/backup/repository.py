"""A repository of snapshots: its format, its names, and what is kept.

rmqstore-repository.json              the format
NAME/log/commitlog/START              a complete file of the log
NAME/log/commitlog/START.tail-OFFSET  a part of the last file, as one snapshot added it
NAME/log/dledger/…                    DLedger data likewise
NAME/config/HASH                      chunks of small files by their content
NAME/snapshots/20261123T101500Z.json  the manifests; a snapshot exists when its manifest does
NAME/unfinished.json                  what an interrupted backup has copied

Addresses of repositories and snapshots: `REPO`, `REPO::NAME`, `REPO::NAME@SNAPSHOT`.
"""

from __future__ import annotations

import hashlib
import importlib
import itertools
import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rmqstore.backup.keeping import KeepRule, name_at
from rmqstore.backup.manifest import (
    REPOSITORY_FORMAT,
    Manifest,
    Unsound,
    is_snapshot,
    order_of,
    parse_manifest,
    read_json,
    refuse_newer,
)
from rmqstore.backup.storage import LocalStorage, Storage, is_name
from rmqstore.errors import CouldNotCheck, NotAStore, NotReadable, Refused, UsageError
from rmqstore.files.disk import REPOSITORY, address_in_repository
from rmqstore.texts import Text, joined

UNFINISHED = "unfinished.json"
_LOCK = "lock"
_MARK = "::"
_PARTS = "log", "config"  # folders with objects of snapshots
_CHUNK = 4 << 20
Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What was removed: names of snapshots, number of objects, their bytes."""

    snapshots: tuple[str, ...]
    objects: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Copied:
    """What was copied to another repository: names of snapshots, and bytes of their objects."""

    snapshots: tuple[str, ...]
    bytes: int


class Repository:
    """A repository that exists."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    @classmethod
    def open(cls, storage: Storage) -> Repository:
        """Open a repository. Errors: NotAStore if there is none; Refused for a newer format; NotReadable."""
        data = storage.read(REPOSITORY)
        if data is None:
            meant = address_in_repository(Path(storage.address)) if isinstance(storage, LocalStorage) else ""
            raise NotAStore(
                Text("{address} is not a repository", address=storage.address),
                Text("did you mean {found}?", found=meant) if meant else Text("`rmqstore backup STORE REPO` makes one"),
            )
        try:
            refuse_newer(read_json(data)["format"], storage.address, REPOSITORY_FORMAT)
        except (ValueError, TypeError, KeyError, Unsound) as error:
            raise CouldNotCheck(
                Text("{address}/{marker} is damaged", address=storage.address, marker=REPOSITORY),
                Text("restore this file from a copy"),
            ) from error
        return cls(storage)

    @classmethod
    def open_or_create(cls, storage: Storage) -> Repository:
        """Open a repository, or make one in an empty place. Errors: as `open`; UsageError for a place in use."""
        if not storage.exists():
            document = {"format": REPOSITORY_FORMAT, "made_by": "rmqstore"}
            storage.create(REPOSITORY, json.dumps(document).encode() + b"\n")
        elif storage.size(REPOSITORY) is None:
            raise UsageError(
                Text("{address} is neither empty nor a repository", address=storage.address),
                Text("name an empty or a new directory"),
            )
        return cls.open(storage)

    def names(self) -> list[str]:
        """Return the names of the stores that have a folder."""
        return [name for name in self.storage.folders() if is_name(name) and name != "lost+found"]

    def of(self, name: str) -> StoreFolder:
        """Return the folder of a store, which may be empty. Errors: UsageError for an impossible name."""
        if not is_name(name):
            raise UsageError(
                Text("{name!r} cannot be a name in a repository", name=name), Text("use letters, digits, - and _")
            )
        return StoreFolder(self.storage, name)


class StoreFolder:
    """The snapshots and objects of one store."""

    def __init__(self, storage: Storage, name: str) -> None:
        self.storage = storage
        self.name = name
        self._stored: int | None = None
        """Bytes of all objects of snapshots, once they have been listed."""

    @property
    def address(self) -> str:
        """`REPO::NAME`."""
        return f"{self.storage.address}{_MARK}{self.name}"

    def key(self, rest: str) -> str:
        """Return the key of an object of this store."""
        return f"{self.name}/{rest}"

    # --- snapshots ------------------------------------------------------------------------------------------------

    def snapshots(self) -> list[str]:
        """Return the names of all snapshots, oldest first."""
        found = (entry.key.rpartition("/")[2] for entry in self.storage.objects(self.key("snapshots")))
        return sorted((n.removesuffix(".json") for n in found if is_snapshot(n.removesuffix(".json"))), key=order_of)

    def manifest(self, snapshot: str) -> Manifest:
        """Read a manifest. Errors: NotReadable if it is missing; Refused, CouldNotCheck."""
        data = self.storage.read(self.key(f"snapshots/{snapshot}.json"))
        if data is None:
            raise NotReadable(
                Text("{name}@{snapshot}: no such snapshot", name=self.name, snapshot=snapshot),
                Text("`rmqstore snapshots REPO` lists all"),
            )
        return parse_manifest(data, self.name, snapshot)

    def latest(self) -> Manifest | None:
        """Read the manifest of the newest snapshot; None without one. Errors: as `manifest`."""
        names = self.snapshots()
        return self.manifest(names[-1]) if names else None

    def find(self, wanted: str = "") -> Manifest:
        """Return the newest snapshot, or the one with this name.

        Errors: NotReadable without it; as `manifest`.
        """
        names = self.snapshots()
        if not names:
            known = ", ".join(Repository(self.storage).names()[:10])
            raise NotReadable(
                Text("{address} has no snapshot of {name}", address=self.storage.address, name=self.name),
                Text("it has: {known}", known=known) if known else None,
            )
        return self.manifest(wanted or names[-1])

    def next_name(self, now_ms: int) -> str:
        """Return a new name: the time, or a number after the newest name if the clock was set back."""
        name = name_at(now_ms)
        names = self.snapshots()
        if names and order_of(name) <= order_of(names[-1]):
            stem, number = order_of(names[-1])
            return f"{stem}-{number + 1}"
        return name

    # --- writing --------------------------------------------------------------------------------------------------

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of all that writes to this folder. Errors: Refused if another process holds it."""
        with self.storage.locked(self.key(_LOCK)):
            self.storage.clean(self.name)
            yield

    def save(self, manifest: Manifest) -> None:
        """Write a manifest; from then on the snapshot exists. Errors: Refused if the lock was lost meanwhile."""
        self.storage.check_lock(self.key(_LOCK))
        self.storage.create(self.key(f"snapshots/{manifest.snapshot}.json"), manifest.to_json())
        self.storage.delete(self.key(UNFINISHED))

    def save_unfinished(self, manifest: Manifest) -> None:
        """Note what a running backup has copied."""
        self.storage.replace(self.key(UNFINISHED), manifest.to_json())

    @property
    def is_unfinished(self) -> bool:
        """Whether the last backup was interrupted."""
        return self.storage.size(self.key(UNFINISHED)) is not None

    def unfinished(self) -> Manifest | None:
        """Return what an interrupted backup has copied; None if that is unknown."""
        try:
            data = self.storage.read(self.key(UNFINISHED))
            return None if data is None else parse_manifest(data, self.name, read_json(data)["snapshot"])
        except (CouldNotCheck, ValueError, TypeError, KeyError):
            return None

    def free_key(self, key: str, snapshot: str) -> str:
        """Return the key (without the store's name) of a new object: this one, or with the snapshot if it is taken."""
        if self.storage.size(self.key(key)) is None:
            return key
        key = f"{key}.{snapshot}"
        names = itertools.chain([key], (f"{key}-{number}" for number in itertools.count(1)))
        return next(name for name in names if self.storage.size(self.key(name)) is None)

    # --- keeping and checking -------------------------------------------------------------------------------------

    def has_enough_to_forget(self, keep: KeepRule, made: Manifest) -> bool:
        """Whether one snapshot in twenty is outdated after a new one, or the objects have more bytes than are kept.

        `forget` reads all manifests: with a snapshot per minute there are tens of thousands.
        """
        if keep.size is not None:
            if self._stored is None:
                self._stored = sum(entry.size for part in _PARTS for entry in self.storage.objects(self.key(part)))
            else:
                self._stored += made.new_bytes
            if self._stored > keep.size:
                return True
        names = self.snapshots() if keep.age is not None or keep.counts else []
        return 0 < len(names) <= 20 * len(keep.outdated(names, made.time))

    def forget(self, keep: KeepRule, now_ms: int) -> Forgotten:
        """Remove the snapshots that are not kept, and all objects that no snapshot needs; the newest always stays.

        Call it with the lock. Errors: as `manifest`: nothing is removed if a manifest cannot be read; as `save`.
        """
        self.storage.check_lock(self.key(_LOCK))
        names = self.snapshots()
        if not names:  # nothing says what is needed; objects without any snapshot are those of an unfinished one
            return Forgotten((), 0, 0)
        manifests = {name: self.manifest(name) for name in names}
        gone = keep.outdated(names, now_ms)
        gone += _beyond(keep.size, [one for name, one in manifests.items() if name not in gone])
        for name in gone:  # the manifest first: a snapshot without its objects never exists
            self.storage.delete(self.key(f"snapshots/{name}.json"))
        needed = {key for name, one in manifests.items() if name not in gone for key, _, _ in one.objects()}
        unfinished = self.unfinished()
        if unfinished is not None:
            needed |= {key for key, _, _ in unfinished.objects()}
        objects = size = self._stored = 0
        for folder in _PARTS:
            for entry in list(self.storage.objects(self.key(folder))):
                if entry.key.removeprefix(f"{self.name}/") in needed:
                    self._stored += entry.size
                else:
                    self.storage.delete(entry.key)
                    objects, size = objects + 1, size + entry.size
        return Forgotten(tuple(gone), objects, size)

    def copy_to(self, target: StoreFolder, progress: Progress | None = None) -> Copied:
        """Copy the snapshots that another folder of this name lacks, oldest first; an interrupted copy is continued.

        Errors: Refused, before anything is written, if the target has a snapshot or an object of another history;
        CouldNotCheck for an object that is not as its manifest says: its snapshot does not exist in the target then.
        """
        with target.locked():
            there = {name: target.manifest(name) for name in target.snapshots()}
            known = {key: digest for one in there.values() for key, _, digest in one.objects()}
            missing: list[Manifest] = []
            for name in self.snapshots():
                manifest = self.manifest(name)
                other = next((key for key, _, digest in manifest.objects() if known.get(key, digest) != digest), "")
                if other or there.get(name, manifest) != manifest:
                    raise Refused(
                        Text("{address} has another history: {what}", address=target.address, what=other or name),
                        Text("copy to another repository"),
                    )
                missing += [] if name in there else [manifest]
            copied = 0
            for manifest in missing:
                for key, size, digest in manifest.objects():
                    if known.get(key) != digest:
                        copied += self._copy_object(target, key, size, digest, progress)
                        known[key] = digest
                target.save(manifest)
        return Copied(tuple(one.snapshot for one in missing), copied)

    def _copy_object(self, target: StoreFolder, key: str, size: int, digest: str, progress: Progress | None) -> int:
        """Copy an object unless an interrupted copy has; return the bytes that were written."""
        if target.storage.size(target.key(key)) == size and target.hash_of(key, size, progress) == digest:
            return 0
        target.storage.check_lock(target.key(_LOCK))
        target.storage.delete(target.key(key))
        seen = hashlib.sha256()
        with target.storage.writer(target.key(key)) as writer:
            for at in range(0, size, _CHUNK):
                data = self.storage.read_range(self.key(key), at, min(_CHUNK, size - at))
                seen.update(data)
                writer.write(data)
                if progress is not None:
                    progress(len(data))
            if seen.hexdigest() != digest:
                raise CouldNotCheck(
                    Text("{address}/{key} is not as it was written", address=self.address, key=key),
                    Text("`rmqstore snapshots {address} --check` lists all faults", address=self.address),
                )
            writer.finish()
        return size

    def check(self, manifests: Iterable[Manifest], progress: Progress | None = None) -> Iterator[tuple[str, str]]:
        """Read every object that snapshots need, and yield the key and the fault of each that is not as it was."""
        done: set[tuple[str, int, str]] = set()
        for manifest in manifests:
            for key, size, digest in manifest.objects():
                if (key, size, digest) in done:
                    continue
                done.add((key, size, digest))
                found = self.storage.size(self.key(key))
                if found is None:
                    yield key, "missing"
                elif found != size:
                    yield key, Text("has {found:,} bytes instead of {size:,}", found=found, size=size)
                elif self.hash_of(key, size, progress) != digest:
                    yield key, Text("its bytes do not have the hash of the manifest")

    def hash_of(self, key: str, size: int, progress: Progress | None = None) -> str:
        """Return the SHA-256, in hexadecimal digits, of the first `size` bytes of an object."""
        digest = hashlib.sha256()
        buffer = memoryview(bytearray(min(_CHUNK, max(size, 1))))
        at = 0
        while at < size and (count := self.storage.read_into(self.key(key), buffer[: size - at], at)) > 0:
            digest.update(buffer[:count])
            at += count
            if progress is not None:
                progress(count)
        return digest.hexdigest()


def now() -> int:
    """Return the current time (ms)."""
    return int(time.time() * 1000)


def _beyond(size: int | None, manifests: list[Manifest]) -> list[str]:
    """Return the oldest snapshots, without which the others need at most `size` bytes; never the newest."""
    gone: list[str] = []
    left = manifests[:]
    while size is not None and len(left) > 1:
        if sum({key: one for manifest in left for key, one, _ in manifest.objects()}.values()) <= size:
            break
        gone.append(left.pop(0).snapshot)
    return gone


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


STORED_BY = {"s3": ("rmqstore.backup.s3", "S3Storage")}
"""Scheme of an address → module and class of its storage. A path without a scheme is a directory."""


def storage_of(repository: str) -> Storage:
    """Return the storage at an address. Errors: UsageError for an unknown kind of storage."""
    scheme, mark, _ = repository.partition("://")
    if mark and scheme in STORED_BY:
        module, kind = STORED_BY[scheme]
        storage: Storage = getattr(importlib.import_module(module), kind)(repository)
        return storage
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
        some = joined(names[:10]) or Text("none")
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
    for name in reversed(folder.snapshots()):
        if order_of(name)[0] <= name_at(until) and (manifest := folder.manifest(name)).time <= until:
            return manifest
    raise NotReadable(
        Text("{folder} has no snapshot from {wanted} or earlier", folder=folder.name, wanted=wanted),
        Text("give a later time"),
    )
