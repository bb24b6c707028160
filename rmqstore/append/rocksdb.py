"""Create a RocksDB database from rows in key order; needs the extra `rocksdb`.

The rows go to SST files, which the empty database ingests: without memtable, write-ahead log and compaction, so memory
use does not grow with the number of rows. Table format 5 can be read by RocksDB 6.6 and newer.

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
_ROWS_PER_FILE = 4_000_000


class NewDatabase:
    """A new database with the given column families, in a directory that does not exist yet.

    `identity` is a hash of all rows, which is equal for databases with the same rows. Their files differ, because
    RocksDB writes times and random names to them.
    Errors: CannotRead from every method if rocksdict fails; OSError.
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
        """The hash of all rows as 64 hex digits."""
        return self._hash.hexdigest()

    def put(self, family: str, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        """Append rows, whose keys must be greater than all keys in the column family."""
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
        if count < _ROWS_PER_FILE:
            self._open[family] = writer, count
        else:
            writer.finish()
            self._open.pop(family, None)

    def finish(self) -> list[Path]:
        """Close the database and return its files in the order in which they can be moved into place."""
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
        ingest_options = library.IngestExternalFileOptions()
        ingest_options.set_move_files(True)
        try:
            for name in self._families:
                is_default = name == "default"  # exists in every database
                table = database if is_default else database.create_column_family(name, _options())
                if self._files[name]:
                    table.ingest_external_file([str(path) for path in self._files[name]], ingest_options)
                if not is_default:
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
