"""Storage: the few operations that a repository needs of the place where its objects are.

An object has a key, a relative POSIX path such as `broker-a/log/commitlog/00000000000000000000`. It appears complete or
not at all, and is never changed afterwards, except by `replace`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import NamedTuple

from rmqstore.errors import UsageError
from rmqstore.texts import Text

_PART = re.compile(r"[A-Za-z0-9_%~+=@,-][A-Za-z0-9._%~+=@,-]{0,199}")
MAX_SMALL = 256 << 20
"""Greatest size of an object that is read as a whole: manifests. Bytes."""


class StoredObject(NamedTuple):
    """The key of an object and its size in bytes."""

    key: str
    size: int


class ObjectWriter(ABC):
    """Writes one object from its beginning to its end. Leaving the block without `finish` leaves no object."""

    @abstractmethod
    def write(self, data: bytes) -> None:
        """Append bytes. Errors: NoSpace, NotReadable, CouldNotCheck."""

    @abstractmethod
    def finish(self) -> None:
        """Make the object appear; it is on disk then. Errors: as `write`; OutputExists."""

    @abstractmethod
    def abandon(self) -> None:
        """Remove what was written."""

    def __enter__(self) -> ObjectWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.abandon()


class Storage(ABC):
    """A place for objects. Can be pickled, so that other processes read the same objects.

    Errors of all methods: NotReadable, NoSpace, CouldNotCheck.
    """

    @property
    @abstractmethod
    def address(self) -> str:
        """The address that the user gave, without credentials."""

    @abstractmethod
    def exists(self) -> bool:
        """Return whether there is anything at the address."""

    @abstractmethod
    def create(self, key: str, data: bytes) -> None:
        """Make a new object. Errors: OutputExists if there is one."""

    @abstractmethod
    def replace(self, key: str, data: bytes) -> None:
        """Make an object, or replace it atomically."""

    @abstractmethod
    def writer(self, key: str) -> ObjectWriter:
        """Return a writer of a new large object."""

    @abstractmethod
    def size(self, key: str) -> int | None:
        """Return the size of an object in bytes; None if it is missing."""

    @abstractmethod
    def read_into(self, key: str, buffer: memoryview, at: int) -> int:
        """Read bytes at a position of an object into a buffer; return their number, 0 at its end."""

    @abstractmethod
    def objects(self, prefix: str) -> Iterator[StoredObject]:
        """Yield the objects whose keys begin with a folder, in no particular order."""

    @abstractmethod
    def folders(self) -> list[str]:
        """Return the names of the folders at the top, sorted."""

    @abstractmethod
    def delete(self, key: str) -> None:
        """Remove an object; it may be missing."""

    @abstractmethod
    def locked(self, key: str) -> AbstractContextManager[None]:
        """Hold a lock, of which only one process at a time can be the holder. Errors: Refused if another is."""

    @abstractmethod
    def clean(self, prefix: str) -> None:
        """Remove what interrupted writers left in a folder; call it only with the lock of its writers."""

    def read(self, key: str, limit: int = MAX_SMALL) -> bytes | None:
        """Return a whole object of at most `limit` bytes; None if it is missing, or longer."""
        size = self.size(key)
        if size is None or size > limit:
            return None
        return self.read_range(key, 0, size)

    def read_range(self, key: str, at: int, size: int) -> bytes:
        """Return up to `size` bytes at a position of an object; short at its end."""
        data = bytearray(size)
        view, have = memoryview(data), 0
        while have < size and (count := self.read_into(key, view[have:], at + have)) > 0:
            have += count
        return bytes(view[:have])


def check_key(key: str) -> str:
    """Return a key. Errors: UsageError for one that could leave the repository."""
    if not all(_PART.fullmatch(part) for part in key.split("/")):
        raise UsageError(Text("{key!r} is not the name of an object", key=key), Text("the repository is damaged"))
    return key


def is_name(text: str) -> bool:
    """Return whether a text can be the name of a store in a repository."""
    return _PART.fullmatch(text) is not None
