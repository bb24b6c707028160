"""The state of a carving: what was found so far, in a private database beside the output.

It keeps the memory constant however many pieces there are, and an interrupted carving goes on where it was.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from rmqstore.carving.documents import FoundDocument
from rmqstore.carving.pieces import COLUMNS, LogPiece, ScanFindings
from rmqstore.errors import CouldNotCheck, Refused
from rmqstore.files.private import create_private
from rmqstore.texts import Text

try:
    import sqlite3
except ImportError as error:  # a Python that was built without it, as that of the tarball and of the .deb and .rpm
    raise Refused(
        Text("carve keeps its state in SQLite, which this Python lacks"),
        Text("run it where rmqstore is installed with pip, in a Python 3.11 or newer; the image can be read anywhere"),
    ) from error

_FORMAT = 1
SCANNED = "scanned_to"
_STORED = tuple(name for name in COLUMNS if name != "number")
_TYPES = {"host": "BLOB"}
_SCHEMA = f"""
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT);
CREATE TABLE pieces (
    number INTEGER PRIMARY KEY, strand INTEGER, life INTEGER,
    {", ".join(f"{name} {_TYPES.get(name, 'INTEGER')}" for name in _STORED)}
);
CREATE INDEX by_place ON pieces (body_offset, start);
CREATE INDEX by_stop ON pieces (body_offset, stop);
CREATE INDEX by_source ON pieces (source);
CREATE INDEX by_strand ON pieces (strand, start);
CREATE INDEX by_life ON pieces (life, start);
CREATE TABLE documents (
    source INTEGER PRIMARY KEY, name TEXT, length INTEGER, time INTEGER, counter INTEGER, offsets INTEGER
);
"""
_INSERT = f"INSERT INTO pieces ({', '.join(_STORED)}) VALUES ({', '.join('?' * len(_STORED))})"


class CarvingState:
    """The database. `path` None: in memory and temporary files of its own, for a dry run."""

    def __init__(self, path: Path | None, source: str) -> None:
        self.path = path
        self._db = self._opened(source)

    def _opened(self, source: str) -> sqlite3.Connection:
        if self.path is not None:
            os.close(create_private(self.path))
        db = sqlite3.connect(self.path or "", isolation_level=None)  # "": a private temporary file
        try:
            db.execute("PRAGMA journal_mode = " + ("WAL" if self.path else "OFF"))
            db.execute("PRAGMA synchronous = " + ("NORMAL" if self.path else "OFF"))
            begun = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        except sqlite3.DatabaseError as error:
            db.close()
            raise self._broken() from error
        if begun:
            self._db = db
            if (self.fact("format"), self.fact("source")) != (_FORMAT, source):
                db.close()
                raise CouldNotCheck(
                    Text("{path} belongs to another source, or to another version", path=self.path),
                    Text("remove it to begin again"),
                )
            return db
        db.executescript(_SCHEMA)
        self._db = db
        self.remember("format", _FORMAT)
        self.remember("source", source)
        return db

    def _broken(self) -> CouldNotCheck:
        return CouldNotCheck(Text("{path} is damaged", path=self.path), Text("remove it to begin again"))

    def close(self) -> None:
        """Close the database."""
        self._db.close()

    # --- facts ----------------------------------------------------------------------------------------------------

    def fact(self, name: str, default: Any = None) -> Any:
        """Return a small value by its name."""
        row = self._db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return default if row is None else json.loads(row[0])

    def remember(self, name: str, value: Any) -> None:
        """Keep a small value."""
        self._db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, json.dumps(value)))

    # --- pieces ---------------------------------------------------------------------------------------------------

    def add(self, pieces: Iterable[LogPiece]) -> None:
        """Add pieces."""
        with self.transaction():
            self._insert(pieces)

    def add_found(self, found: ScanFindings) -> None:
        """Add what was found, and note how far the source is read, both or neither."""
        with self.transaction():
            self._insert(found.pieces)
            self._db.executemany(
                "INSERT OR REPLACE INTO documents VALUES (?, ?, ?, ?, ?, ?)",
                ((one.source, one.name, one.length, *one.version) for one in found.documents),
            )
            self.remember(SCANNED, found.done)

    def _insert(self, pieces: Iterable[LogPiece]) -> None:
        self._db.executemany(_INSERT, ([getattr(piece, name) for name in _STORED] for piece in pieces))

    def documents(self) -> list[tuple[FoundDocument, int]]:
        """Return the newest version of each configuration file, and how many versions there are."""
        rows = self.rows(
            "SELECT source, name, length, time, counter, offsets, count(*) OVER (PARTITION BY name), row_number() OVER "
            "(PARTITION BY name ORDER BY time DESC, counter DESC, offsets DESC, source) AS place FROM documents"
        )
        return [
            (FoundDocument(row[0], row[1], row[2], (row[3], row[4], row[5])), row[6]) for row in rows if row[7] == 1
        ]

    def pieces(self, where: str, values: tuple[Any, ...] = ()) -> Iterator[LogPiece]:
        """Yield pieces in the order of their places. Nothing but the `values` may come from outside."""
        names = ", ".join(COLUMNS)
        words = f"SELECT {names} FROM pieces WHERE {where} ORDER BY body_offset, start, number"
        with closing(self._db.execute(words, values)) as rows:
            for row in rows:
                yield LogPiece(*row)

    def change(self, words: str, values: tuple[Any, ...] = ()) -> int:
        """Run one statement, and return the number of changed rows."""
        return self._db.execute(words, values).rowcount

    def rows(self, words: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a short answer."""
        return self._db.execute(words, values).fetchall()

    def transaction(self) -> sqlite3.Connection:
        """Return a context that commits at its end, or rolls back."""
        self._db.execute("BEGIN")
        return self._db
