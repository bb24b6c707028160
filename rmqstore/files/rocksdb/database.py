"""A RocksDB of a store, read without changing a byte of it: consume queues (5.2.0 and newer) and configuration.

Needs the extra `rocksdb`. All files of the database are open once it is, so that a broker that compacts meanwhile
takes nothing away. Source: RocksDBConsumeQueueTable, RocksDBConsumeQueueOffsetTable (RocksDB 9, RocketMQ 5.4.0).
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

from rmqstore.files.rocksdb.links import PREFIX, database_files, linked

CHUNK = 1 << 15  # rows at a time
MISSING_EXTRA = "needs the extra rocksdb (pip install 'rmqstore[rocksdb]')"
_TRIES = 3  # a running broker may delete a file between listing and opening
_KEPT = 4
_VERSION_FAMILY, _VERSION_KEY = "kvDataVersion", b"kvDataVersionKey"
_LINKED = re.compile(rf"[^\s']*/{PREFIX}[^/\s]+/")
_DAMAGED = re.compile(r"(?!.*unsupported format_version)(Corruption: |IO error: No such file or directory)")

T = TypeVar("T")


class CannotRead(Exception):
    """A database, or a part of it, that cannot be read; the text says why. Its callers catch it."""


class DamagedDatabase(CannotRead):
    """Wrong bytes or missing files, at which a broker's RocksDB fails as well.

    Not a table format that the library does not know: a newer RocksDB may have written it.
    """


def is_readable() -> bool:
    """Whether the extra `rocksdb` is installed."""
    try:
        return find_spec("rocksdict") is not None
    except (ImportError, ValueError):
        return False


def _library() -> Any:
    """rocksdict, untyped: it is not there for everybody, and its types differ from what it takes."""
    return import_module("rocksdict")


def asked(call: Callable[[], T]) -> T:
    """What the library answers.

    Errors: CannotRead for all of its errors, panics of its Rust part included.
    """
    try:
        return call()
    except (KeyboardInterrupt, GeneratorExit, CannotRead):
        raise
    except BaseException as e:  # noqa: BLE001  # a panic is not an Exception; errors of RocksDB have no type of their own
        text = " ".join(_LINKED.sub("", str(e)).split())[:300] or type(e).__name__
        raise (DamagedDatabase if _DAMAGED.match(text) else CannotRead)(text) from None


class Database:
    """An open RocksDB: rows of its column families in the order of their keys.

    Errors: CannotRead from every method that reads.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.families: tuple[str, ...] = ()
        self._families: dict[str, Any] = {}
        self._db: Any = None
        if not is_readable():
            raise CannotRead(MISSING_EXTRA)
        for left in reversed(range(_TRIES)):
            try:
                self._open()
                return
            except CannotRead:
                if not left:
                    raise
            except OSError as e:
                raise CannotRead(e.strerror or str(e)) from None

    def _open(self) -> None:
        with linked(self.directory) as path:
            self._db = asked(lambda: self._opened(str(path)))
            self._families = {n: asked(lambda n=n: self._db.get_column_family(n)) for n in self.families}  # type: ignore[misc]

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
        """Keys and values in [start, stop), `count` rows at a time; what is good is given before an error is raised."""
        if family not in self._families:
            raise CannotRead(f"it has no column family {family}")
        table = self._families[family]
        rows = asked(lambda: table.items(from_key=start, read_opt=self._read_options(stop)))
        last: bytes | None = None
        while block := asked(lambda: list(islice(rows, count))):
            last = block[-1][0]
            yield [key for key, _ in block], [value for _, value in block]
        # the iterator ends silently at a damaged block as it does at the end: only its status tells them apart
        at = self._at(table, start if last is None else last, stop)
        if last is not None and at.valid():
            asked(at.next)
        asked(at.status)

    def _at(self, table: Any, key: bytes, stop: bytes | None) -> Any:
        cursor = asked(lambda: table.iter(self._read_options(stop)))
        asked(lambda: cursor.seek(key))
        asked(cursor.status)
        return cursor

    def value(self, family: str, key: bytes) -> bytes | None:
        """The value of one key; only the files that may hold its newest value are read."""
        if family not in self._families:
            raise CannotRead(f"it has no column family {family}")
        found = asked(lambda: self._families[family].get(key, None, self._read_options(None)))
        return None if found is None else bytes(found)

    def first_key(self, family: str, start: bytes) -> bytes | None:
        """The first key from `start` on."""
        if family not in self._families:
            raise CannotRead(f"it has no column family {family}")
        cursor = self._at(self._families[family], start, None)
        return bytes(cursor.key()) if cursor.valid() else None

    def keys_before(self, family: str, key: bytes) -> Iterator[bytes]:
        """Keys at and in front of `key`, backwards."""
        if family not in self._families:
            raise CannotRead(f"it has no column family {family}")
        cursor = asked(lambda: self._families[family].iter(self._read_options(None)))
        asked(lambda: cursor.seek_for_prev(key))
        asked(cursor.status)
        while cursor.valid():
            yield bytes(cursor.key())
            asked(cursor.prev)
            asked(cursor.status)


class NoDatabase(Database):
    """Represents a missing database: no row in any of its column families, as the broker creates it again."""

    def __init__(self, directory: Path, families: tuple[str, ...]) -> None:
        self.directory = directory
        self.families = families

    def chunks(
        self, family: str, start: bytes = b"", stop: bytes | None = None, count: int = CHUNK
    ) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """Nothing."""
        return iter(())

    def value(self, family: str, key: bytes) -> bytes | None:
        """None."""
        return None

    def first_key(self, family: str, start: bytes) -> bytes | None:
        """None."""
        return None

    def keys_before(self, family: str, key: bytes) -> Iterator[bytes]:
        """Nothing."""
        return iter(())


_State = tuple[int, str, tuple[tuple[str, int, int], ...]]
_open: OrderedDict[_State, Database] = OrderedDict()
_inherited: list[Database] = []


def open_database(directory: Path) -> Database:
    """The database of a directory: the one already open as long as its files are the same.

    Errors: CannotRead.
    """
    try:
        files = tuple(database_files(directory))
    except OSError as e:
        raise CannotRead(e.strerror or str(e)) from None
    state = (os.getpid(), str(directory.absolute()), files)
    found = _open.get(state)
    if found is None:
        # closing a parent's database would wait for threads that stayed in the parent
        _inherited.extend(_open.pop(other) for other in [s for s in _open if s[0] != state[0]])
        found = _open[state] = Database(directory)
        if len(_open) > _KEPT:
            _open.popitem(last=False)
    else:
        _open.move_to_end(state)
    return found


def config_rows(directory: Path) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """Keys and values of a RocksDB of the configuration (v1), and behind them the version, as a broker loads both.

    Errors: CannotRead. Source: RocksDBConfigManager#loadData, #loadDataVersion (RocketMQ 5.4.0)
    """
    database = open_database(directory)
    yield from database.chunks("default")
    if _VERSION_FAMILY in database.families:
        database.value(_VERSION_FAMILY, _VERSION_KEY)
