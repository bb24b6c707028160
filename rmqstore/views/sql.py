"""SQL over stores with DuckDB: a query reads only the columns that it needs, directly from the stores.

A view is a `pyarrow.dataset.Dataset`. DuckDB passes the columns and simple filters of a query to its scanner, which
reads the stores batch by batch. The views and their columns are those of `rmqstore pipeline sql`.
"""

from __future__ import annotations

import contextlib
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rmqstore.errors import NotReadable, RmqStoreError, UsageError, install_command
from rmqstore.texts import Placed, Text

try:
    import duckdb
    import pyarrow as pa
    import pyarrow.dataset
    import pyarrow.fs
except ImportError as error:  # the extra `sql` is not installed
    raise UsageError(Text("sql needs duckdb and pyarrow"), install_command("sql")) from error

from rmqstore.checks.beside.config import ConsumerOffsets
from rmqstore.files.disk import explained
from rmqstore.files.rocksdb.database import CannotRead
from rmqstore.messages.cells import valid_text
from rmqstore.messages.repaired import repaired_records
from rmqstore.views import tables
from rmqstore.views.dump.messages import Skipped, logs_of, own_log
from rmqstore.views.dump.selection import Selection
from rmqstore.views.progress import PopProgress
from rmqstore.views.stores import StoreRef, log_pieces
from rmqstore.views.tables import MessageOptions, arrow_schema, message_columns

ROWS = 8192
_WHOLE = 1 << 62  # a piece size greater than any file
_SANDBOX: dict[str, Any] = {
    "enable_external_access": "false",  # no file, no network, no extension
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",  # no access to variables of this process
    "temp_directory": "",  # no temporary files, even if memory does not suffice
}
_QUERIES = ("SELECT", "EXPLAIN")

Progress = Callable[[int], None]


@dataclass(slots=True)
class Read:
    """What the scans of a query skipped.

    `damage`: by (label of the store, log). `missing`: descriptions of other things that could not be read. `failure`:
    the error that ended a scan.
    """

    damage: dict[tuple[str, str], Skipped] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    failure: BaseException | None = None

    def take(self, label: str, log: str, damage: Skipped) -> None:
        """Record the damage of a log; keep the most complete one, as a query may scan a log repeatedly or partly."""
        known = self.damage.get((label, log))
        if known is None or (damage.count, damage.shown) > (known.count, known.shown):
            self.damage[label, log] = damage

    def lacks(self, words: str) -> None:
        """Record once that something is missing from the rows."""
        if words not in self.missing:
            self.missing.append(words)


class Query:
    """A DuckDB connection for one query over some stores. A context manager, which closes the connection.

    `files`: CSV and Parquet files that the query may read, by the name of their table.
    """

    def __init__(
        self,
        refs: Sequence[StoreRef],
        *,
        raw_body: bool = False,
        fillers: bool = False,
        live: Iterable[str] = (),
        files: Mapping[str, Path] = MappingProxyType({}),
        progress: Progress,
    ) -> None:
        self.refs = [replace(ref, label=valid_text(ref.label)) for ref in refs]
        self.read = Read()
        self._body = "raw" if raw_body else "plain"
        self._fillers = fillers
        self._live = frozenset(map(valid_text, live))
        self._progress = progress
        self._connection: Any = duckdb.connect(":memory:", config=_SANDBOX)
        for name in tables.VIEWS:
            self._connection.register(name, self._view(name))
        for name, path in files.items():
            self._connection.register(name, _table_of(path))
        self._connection.execute("SET TimeZone = 'UTC'")
        self._connection.execute("SET lock_configuration = true")

    def __enter__(self) -> Query:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    @contextlib.contextmanager
    def run(self, query: str) -> Iterator[Any]:
        """Yield a `pyarrow.RecordBatchReader` with the rows; repeated column names get numbers.

        Errors: UsageError with DuckDB's message; errors of reading the stores.
        """
        try:
            statements = self._connection.extract_statements(valid_text(query))
            if len(statements) != 1:
                raise UsageError(
                    Text("sql: {count} statements instead of one", count=len(statements)),
                    Text("give one SELECT statement"),
                )
            if statements[0].type.name not in _QUERIES:
                raise UsageError(
                    Text("sql: {type} is not a query", type=statements[0].type.name), Text("give a SELECT statement")
                )
            rows = self._connection.sql(statements[0])
            stream = getattr(rows, "to_arrow_reader", None) or rows.fetch_arrow_reader
            yield _with_unique_names(stream(ROWS))
        except (duckdb.Error, pa.ArrowException) as e:
            if self.read.failure is not None:
                raise self.read.failure from e
            if isinstance(e, duckdb.InterruptException):
                raise KeyboardInterrupt from None
            text = " ".join(re.split(r"\n+LINE \d+:", str(e))[0].split())
            text = re.sub(r"^[A-Z][A-Za-z ]* Error: ", "", text)  # "Parser Error: " adds nothing
            raise UsageError(Text("sql: DuckDB: {text}", text=text), _advice(e, query)) from None

    def columns(self) -> dict[str, list[str]]:
        """Return the names of the columns of each view."""
        return {name: self._view(name).schema.names for name in tables.VIEWS}

    def _view(self, name: str) -> _View:
        if name in ("messages", "dledger"):
            options = MessageOptions(body=self._body, properties=True, entry=name == "dledger")
            return _View(self.read, arrow_schema(message_columns(options)), partial(self._messages, name, options))
        schema, read = {
            "consumequeue": (tables.unit_schema(batch_units=False), self._units),
            "indexfile": (tables.index_schema(), self._index),
            "consumer_offsets": (tables.offsets_schema(), self._offsets),
            "pop": (tables.pop_schema(), self._pop),
            "findings": (tables.findings_schema(), self._findings),
        }[name]
        return _View(self.read, schema, lambda _: (batch for ref in self.refs for batch in read(ref)))

    def _messages(self, view: str, options: MessageOptions, names: tuple[str, ...]) -> Iterator[Any]:
        options = replace(options, only=names, crc="crc_ok" in names, body=options.body if "body" in names else "")
        how = tables.ReadOptions(message=options, selection=Selection(fillers=self._fillers or view == "dledger"))
        for ref in self.refs:
            store = ref.open()
            repaired = repaired_records(store)
            for log in (own_log(log) for log in logs_of(store, view)):
                damage = Skipped(live=ref.label in self._live)
                try:
                    for piece in log_pieces(ref.label, log, _WHOLE):
                        damage.at_file(log.name, piece.file)
                        yield from tables.read_messages([replace(piece, repaired=repaired)], how, damage.feed)
                        self._progress(piece.file.length)
                    damage.close()
                finally:
                    self.read.take(ref.label, log.name, damage)

    def _units(self, ref: StoreRef) -> Iterator[Any]:
        store = ref.open()
        pieces = tables.queue_pieces(ref.label, store, Selection(), _WHOLE, batch_units=False)
        yield from tables.read_units(pieces, batch_units=False)
        if store.rocksdb_consume_queue or store.light_in_rocksdb:
            try:
                yield from tables.read_rows(ref.label, store)
            except CannotRead as e:
                unread = Text("{label}: {folder}/ is a RocksDB that cannot be read: {e}")
                self.read.lacks(unread.format(label=ref.label, folder=store.rocksdb_directory.name, e=e))

    def _index(self, ref: StoreRef) -> Iterator[Any]:
        store = ref.open()
        for file in store.index_files:
            with contextlib.suppress(FileNotFoundError):  # deleted by a live broker
                with store.files.open(file.path):  # raises an error, so that an unreadable file does not seem empty
                    pass
                yield from tables.read_index(ref.label, store.files, file.path, Selection())

    def _offsets(self, ref: StoreRef) -> Iterator[Any]:
        offsets = ConsumerOffsets.read(ref.open())
        if offsets.unreadable:
            self.read.lacks(Placed("{store}: {why}", store=ref.label, why=offsets.unreadable))
        yield tables.one_batch(tables.offsets_schema(), tables.offset_rows(ref.label, offsets))

    def _pop(self, ref: StoreRef) -> Iterator[Any]:
        progress = PopProgress.read(ref.open(), newest=None)
        if progress.unreadable:
            self.read.lacks(Placed("{store}: {why}", store=ref.label, why=progress.unreadable))
        yield tables.one_batch(tables.pop_schema(), tables.popped_rows(ref.label, progress))

    def _findings(self, ref: StoreRef) -> Iterator[Any]:
        for batch in tables.read_findings(ref):
            if batch.num_rows >= tables.KEPT_FINDINGS:
                first = Text("{label}: the view findings has only the first {count:,} findings")
                self.read.lacks(first.format(label=ref.label, count=batch.num_rows))
            yield batch


class _View(pyarrow.dataset.Dataset):  # type: ignore[misc]  # pyarrow has no types
    """A view for DuckDB. `read` yields batches with at least the given columns."""

    def __init__(self, state: Read, schema: Any, read: Callable[[tuple[str, ...]], Iterator[Any]]) -> None:
        self._state = state
        self._own_schema = schema
        self._read = read

    @property
    def schema(self) -> Any:
        """All columns."""
        return self._own_schema

    def scanner(self, columns: list[str] | None = None, filter: Any = None, **_: Any) -> _Scanner:  # noqa: A002
        """Return a scan of some columns of the rows that match a filter. DuckDB calls this for every scan."""
        names = list(columns) if columns is not None else self._own_schema.names
        # expressions do not list their columns; a column named only in a string of the filter is read needlessly
        words = set() if filter is None else set(re.findall(r"\w+", str(filter)))
        needed = tuple(name for name in self._own_schema.names if name in names or name in words)
        schema = pa.schema([self._own_schema.field(name) for name in names])
        return _Scanner(pa.RecordBatchReader.from_batches(schema, self._batches(schema, needed, filter)))

    def _batches(self, schema: Any, needed: tuple[str, ...], condition: Any) -> Iterator[Any]:
        try:
            for batch in self._read(needed):
                if condition is None:
                    yield batch.select(schema.names).cast(schema) if batch.schema != schema else batch
                else:
                    table = pa.Table.from_batches([batch]).filter(condition)
                    yield from table.select(schema.names).cast(schema).to_batches()
        except (RmqStoreError, OSError) as e:
            self._state.failure = e
            raise


class _Scanner:
    """The part of `pyarrow.dataset.Scanner` that DuckDB uses."""

    def __init__(self, rows: Any) -> None:
        self._rows = rows
        self.projected_schema = rows.schema

    def to_reader(self) -> Any:
        """Return the reader of the batches."""
        return self._rows


def _table_of(path: Path) -> Any:
    """Return a file of the user as a dataset, which is read batch by batch. Errors: NotReadable, UsageError."""
    kind = path.suffix.lower().removeprefix(".")
    if kind not in ("csv", "parquet"):
        raise UsageError(Text("{path} is neither *.csv nor *.parquet", path=path), Text("convert it first"))
    with explained(path):
        if not stat.S_ISREG(path.stat().st_mode):
            raise NotReadable(Text("{path} is not a file", path=path))
        path.open("rb").close()
    try:
        return pyarrow.dataset.dataset(str(path), format=kind, filesystem=pyarrow.fs.LocalFileSystem())
    except (pa.ArrowException, OSError) as error:
        why = str(error).splitlines()[0]
        raise UsageError(Text("{path} cannot be read: {why}", path=path, why=why), Text("check its format")) from None


def _advice(error: Exception, query: str) -> str:
    """Return advice on an error of DuckDB: the names of two columns are reserved words of SQL."""
    if "file system operations are disabled" in str(error):
        return Text("name it as --table NAME=FILE, and use NAME")
    bare = [name for name in ("offset", "group") if re.search(rf'(?<!")\b{name}\b(?!")', query.lower())]
    if bare and isinstance(error, duckdb.ParserException):
        words = " and ".join(f'"{name}"' for name in bare)
        return Text("write {words} in double quotes (reserved in SQL)", words=words)
    return Text("there are these views: `{views}`", views=", ".join(tables.VIEWS))


def _with_unique_names(rows: Any) -> Any:
    names: list[str] = []
    for name in rows.schema.names:
        number, own = 1, name
        while own in names:
            own, number = f"{name}_{number}", number + 1
        names.append(own)
    if names == rows.schema.names:
        return rows
    schema = pa.schema([field.with_name(name) for field, name in zip(rows.schema, names, strict=True)])
    batches = (pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in rows)
    return pa.RecordBatchReader.from_batches(schema, batches)
