"""Read a RocksDB of a store without changing it: consume queues (5.2.0 and newer) and configuration.

Needs the extra `rocksdb`. Opening a database opens all of its files, so that they stay readable even if a running
broker compacts them away. Source: RocksDBConsumeQueueTable, RocksDBConsumeQueueOffsetTable (RocksDB 9, RocketMQ 5.4.0)
"""

from __future__ import annotations

import os
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from rmqstore.errors import CouldNotCheck, install_command
from rmqstore.files import pace
from rmqstore.files.files import LOCAL, Files
from rmqstore.files.rocksdb.links import PREFIX, database_files, linked
from rmqstore.texts import Text

CHUNK = 1 << 15  # rows at a time
_TRIES = 3  # a running broker may delete a file between listing and opening
_MAX_OPEN = 4  # databases that `open_database` keeps open
_LINKED = re.compile(rf"[^\s']*/{PREFIX}[^/\s]+/")
_UNKNOWN_FORMAT = re.compile(r"Corruption: .*(unsupported format_version|VersionEdit: unknown tag)")
_DAMAGED = re.compile(r"Corruption: |IO error: No such file or directory")

T = TypeVar("T")


def missing_extra() -> str:
    """Return what is missing without the extra `rocksdb`, and the command that installs it."""
    return Text("needs the package rocksdict; to install it, run `{command}`", command=install_command("rocksdb"))


class CannotRead(CouldNotCheck):
    """A RocksDB, or a part of it, cannot be read; the text gives the reason.

    Callers catch it where they have another answer; otherwise it ends the command.
    """

    advice = Text("`rmqstore verify STORE` says what is wrong with this RocksDB, and whether a repair exists")


class DamagedDatabase(CannotRead):
    """A database has damaged or missing files, on which a broker's RocksDB fails too."""


class UnknownFormat(CannotRead):
    """A table or the manifest has a format that the library does not know: a newer RocksDB may have written it.

    The RocksDB of a broker fails on it too: that of RocketMQ 5.4.0 is older than the library.
    """


def is_readable() -> bool:
    """Return whether the extra `rocksdb` is installed."""
    try:
        return find_spec("rocksdict") is not None
    except (ImportError, ValueError):
        return False


def _library() -> Any:
    """Import rocksdict, which is optional; untyped, because its annotations are wrong."""
    return import_module("rocksdict")


def guarded(call: Callable[[], T]) -> T:
    """Call rocksdict and translate its errors.

    Errors: CannotRead for every error, including panics of its Rust code.
    """
    try:
        return call()
    except (KeyboardInterrupt, GeneratorExit, CannotRead):
        raise
    except BaseException as e:  # noqa: BLE001  # a panic is not an Exception, and RocksDB errors have no common type
        text = " ".join(_LINKED.sub("", str(e)).split())[:300] or type(e).__name__
        raise _kind_of(text)(text) from None


def _kind_of(text: str) -> type[CannotRead]:
    if _UNKNOWN_FORMAT.match(text):
        return UnknownFormat
    return DamagedDatabase if _DAMAGED.match(text) else CannotRead


class Database:
    """An open RocksDB, whose methods return the rows of its column families in key order.

    Errors: CannotRead from every method that reads.
    """

    def __init__(self, directory: Path, files: Files = LOCAL) -> None:
        self.directory = directory
        self.files = files
        self.families: tuple[str, ...] = ()
        self._families: dict[str, Any] = {}
        self._db: Any = None
        if not is_readable():
            raise CannotRead(missing_extra())
        for tries_left in reversed(range(_TRIES)):
            try:
                self._open()
                return
            except CannotRead:
                if not tries_left:
                    raise
            except OSError as e:
                raise CannotRead(e.strerror or str(e)) from None

    def _open(self) -> None:
        with self.files.local(self.directory) as local, linked(local) as path:
            self._db = guarded(lambda: self._opened(str(path)))
            self._families = {n: guarded(lambda n=n: self._db.get_column_family(n)) for n in self.families}  # type: ignore[misc]

    def _opened(self, path: str) -> Any:
        library = _library()
        self.families = tuple(library.Rdict.list_cf(path))
        options = library.Options(raw_mode=True)
        options.set_max_open_files(-1)
        options.set_db_log_dir(path)
        options.set_skip_stats_update_on_db_open(True)
        families = {name: library.Options(raw_mode=True) for name in self.families}
        access = library.AccessType.read_only()
        return library.Rdict(path, options=options, column_families=families, access_type=access)

    @staticmethod
    def _read_options(stop: bytes | None) -> Any:
        options = _library().ReadOptions()
        options.fill_cache(False)
        options.set_total_order_seek(True)
        if stop is not None:
            options.set_iterate_upper_bound(stop)
        return options

    def chunks(
        self, family: str, start: bytes = b"", stop: bytes | None = None, count: int = CHUNK
    ) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """Yield keys and values in [start, stop), `count` rows at a time; all readable rows come before an error."""
        table = self._family(family)
        rows = guarded(lambda: table.items(from_key=start, read_opt=self._read_options(stop)))
        last: bytes | None = None
        while block := guarded(lambda: list(islice(rows, count))):
            last = block[-1][0]
            keys, values = [key for key, _ in block], [value for _, value in block]
            pace.took(sum(map(len, keys)) + sum(map(len, values)))
            yield keys, values
        # at a damaged block the iterator ends silently, as at the end of the data: only a cursor's status shows damage
        cursor = self._cursor(table, start if last is None else last, stop)
        if last is not None and cursor.valid():
            guarded(cursor.next)
        guarded(cursor.status)

    def rows(self, family: str) -> Iterator[tuple[bytes, bytes]]:
        """Yield all keys with their values; all readable rows come before an error."""
        for keys, values in self.chunks(family):
            yield from zip(keys, values, strict=True)

    def _family(self, name: str) -> Any:
        if name not in self._families:
            raise CannotRead(Text("it has no column family {name}", name=name))
        return self._families[name]

    def _cursor(self, table: Any, key: bytes, stop: bytes | None) -> Any:
        """Return a cursor at the first key from `key` on."""
        cursor = guarded(lambda: table.iter(self._read_options(stop)))
        guarded(lambda: cursor.seek(key))
        guarded(cursor.status)
        return cursor

    def value(self, family: str, key: bytes) -> bytes | None:
        """Return the value of a key; this reads only the files that may contain its newest value."""
        table = self._family(family)
        found = guarded(lambda: table.get(key, None, self._read_options(None)))
        pace.took(len(key) + len(found or b""))
        return None if found is None else bytes(found)

    def first_key(self, family: str, start: bytes) -> bytes | None:
        """Return the first key from `start` on; None if there is none."""
        cursor = self._cursor(self._family(family), start, None)
        return bytes(cursor.key()) if cursor.valid() else None

    def keys_before(self, family: str, key: bytes) -> Iterator[bytes]:
        """Yield the keys up to and including `key`, in descending order."""
        table = self._family(family)
        cursor = guarded(lambda: table.iter(self._read_options(None)))
        guarded(lambda: cursor.seek_for_prev(key))
        guarded(cursor.status)
        while cursor.valid():
            found = bytes(cursor.key())
            pace.took(len(found))
            yield found
            guarded(cursor.prev)
            guarded(cursor.status)


class NoDatabase(Database):
    """A missing database, which has empty column families: a broker recreates it like this."""

    def __init__(self, directory: Path, families: tuple[str, ...]) -> None:
        self.directory = directory
        self.families = families

    def chunks(
        self, family: str, start: bytes = b"", stop: bytes | None = None, count: int = CHUNK
    ) -> Iterator[tuple[list[bytes], list[bytes]]]:
        return iter(())

    def value(self, family: str, key: bytes) -> bytes | None:
        return None

    def first_key(self, family: str, start: bytes) -> bytes | None:
        return None

    def keys_before(self, family: str, key: bytes) -> Iterator[bytes]:
        return iter(())


_State = tuple[int, Files, str, tuple[tuple[str, int, int], ...]]
_open: OrderedDict[_State, Database] = OrderedDict()
_inherited: list[Database] = []


def open_database(files: Files, directory: Path) -> Database:
    """Open the database in a directory, or return the one that is already open if its files have not changed.

    Errors: CannotRead.
    """
    try:
        listed = tuple(database_files(files, directory))
    except OSError as e:
        raise CannotRead(e.strerror or str(e)) from None
    state = (os.getpid(), files, str(directory.absolute()), listed)
    found = _open.get(state)
    if found is None:
        # keep databases inherited by fork alive: closing one would wait for threads that exist only in the parent
        _inherited.extend(_open.pop(other) for other in [s for s in _open if s[0] != state[0]])
        found = _open[state] = Database(directory, files)
        if len(_open) > _MAX_OPEN:
            _open.popitem(last=False)
    else:
        _open.move_to_end(state)
    return found
