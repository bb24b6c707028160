"""A new RocksDB, made from rows that come in the order of their keys. Needs the extra `rocksdb`.

The rows go into SST files, which the empty database takes in as they are: no memtable, no write-ahead log, no
compaction. Memory does not grow with the rows. Table format 5 can be read by every RocksDB since 6.6.

Source: RocksDBOptionsFactory#createCQCFOptions, #createOffsetCFOptions (RocketMQ 5.4.0)
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from rmqstore.files.rocksdb.database import guarded

_FORMAT = 5
_BLOCK = 32 << 10
_BLOOM_BITS = 16
_ROWS_OF_A_FILE = 4_000_000


class NewDatabase:
    """A database with these column families in a directory that does not exist yet.

    `identity` is a hash of all rows: two databases with the same rows have the same one, though their bytes differ
    (RocksDB writes times and random names into its files).
    Errors: CannotRead from every method where the library fails; OSError.
    """

    def __init__(self, directory: Path, families: Sequence[str]) -> None:
        self.directory = directory
        self._parts = directory.with_name(f"{directory.name}.parts")
        self._parts.mkdir(parents=True)
        self._families = tuple(families)
        self._files: dict[str, list[Path]] = {name: [] for name in families}
        self._open: dict[str, tuple[Any, int]] = {}
        self._hash = hashlib.sha256()
        self.rows = 0

    @property
    def identity(self) -> str:
        """64 hex digits."""
        return self._hash.hexdigest()

    def put(self, family: str, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        """Rows behind all those that the column family has."""
        if not keys:
            return
        self._hash.update(f"{family}:{len(keys)}:".encode())
        self._hash.update(b"".join(keys))
        self._hash.update(b"".join(values))
        self.rows += len(keys)
        guarded(lambda: self._put(family, keys, values))

    def _put(self, family: str, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        writer, count = self._open.get(family, (None, 0))
        if writer is None:
            path = self._parts / f"{family}-{len(self._files[family])}"
            writer = import_module("rocksdict").SstFileWriter(_options())
            writer.open(str(path))
            self._files[family].append(path)
        for key, value in zip(keys, values, strict=True):
            writer[key] = value
        count += len(keys)
        if count < _ROWS_OF_A_FILE:
            self._open[family] = writer, count
        else:
            writer.finish()
            self._open.pop(family, None)

    def finish(self) -> list[Path]:
        """Close the database; the files that make it up, in the order in which they can be put in place."""
        guarded(self._finish)
        shutil.rmtree(self._parts)
        tables = sorted(self.directory.glob("*.sst"))
        return [*tables, *(self.directory / "IDENTITY",), *self.directory.glob("MANIFEST-*")]

    def _finish(self) -> None:
        library = import_module("rocksdict")
        for writer, _ in self._open.values():
            writer.finish()
        self._open.clear()
        options = _options()
        options.create_if_missing(True)
        options.set_db_log_dir(str(self._parts))
        database = library.Rdict(str(self.directory), options=options)
        taking = library.IngestExternalFileOptions()
        taking.set_move_files(True)
        try:
            for name in self._families:
                known = name == "default"
                table = database if known else database.create_column_family(name, _options())
                if self._files[name]:
                    table.ingest_external_file([str(path) for path in self._files[name]], taking)
                if not known:
                    table.close()
        finally:
            database.close()


def _options() -> Any:
    library = import_module("rocksdict")
    tables = library.BlockBasedOptions()
    tables.set_format_version(_FORMAT)
    tables.set_block_size(_BLOCK)
    tables.set_bloom_filter(_BLOOM_BITS, False)
    tables.set_checksum_type(library.ChecksumType.crc32c())
    options = library.Options(raw_mode=True)
    options.set_block_based_table_factory(tables)
    options.set_compression_type(library.DBCompressionType.zstd())
    options.set_disable_auto_compactions(True)
    return options
