"""Read rocksdbstore/: the rows that brokers since 5.4.0 keep of timed messages, half messages and the index.

Source: MessageRocksDBStorage (RocketMQ 5.4.0 and 5.5.1)
"""

from __future__ import annotations

from collections.abc import Iterator

from rmqstore.files.rocksdb.database import CHUNK, CannotRead, Database, NoDatabase, open_database
from rmqstore.files.store import MESSAGE_ROWS, Store
from rmqstore.formats.rocksdbstore import FAMILIES, LAST_OFFSET, POSITION_KEYS, parse_position

DIRECTORY = MESSAGE_ROWS
Rows = tuple[list[bytes], list[bytes]]


class MessageRows:
    """The open database of rocksdbstore/. A family that the database lacks has no rows.

    Errors: CannotRead if the database cannot be opened, and from every method that reads.
    """

    def __init__(self, database: Database) -> None:
        self.database = database

    @staticmethod
    def open(store: Store) -> MessageRows:
        """Open the rows of a store, which may have none. Errors: CannotRead."""
        return MessageRows.of(store) or MessageRows(NoDatabase(store.root / DIRECTORY, FAMILIES))

    @staticmethod
    def of(store: Store) -> MessageRows | None:
        """Return the rows of a store; None if it cannot have any. Errors: CannotRead."""
        return MessageRows(open_database(store.files, store.root / DIRECTORY)) if store.may_have_message_rows else None

    @property
    def unknown_families(self) -> list[str]:
        """Column families that no known broker has."""
        return sorted(set(self.database.families) - set(FAMILIES))

    def chunks(self, family: str, start: bytes = b"", count: int = CHUNK) -> Iterator[Rows]:
        """Yield keys and values of a family in key order, with its position keys, from `start` on."""
        if family in self.database.families:
            yield from self.database.chunks(family, start, count=count)

    def rows(self, family: str, count: int = CHUNK) -> Iterator[Rows]:
        """Yield keys and values of the rows of messages, in key order, without the position keys."""
        positions = POSITION_KEYS[family]
        for keys, values in self.chunks(family, count=count):
            if any(key in positions for key in keys):
                kept = [i for i, key in enumerate(keys) if key not in positions]
                keys, values = [keys[i] for i in kept], [values[i] for i in kept]
            yield keys, values

    def count(self, family: str) -> int:
        """Return the number of rows of a family."""
        return sum(len(keys) for keys, _ in self.rows(family))

    def stored(self, family: str, key: bytes) -> bytes | None:
        """Return the bytes of a position key; None if it is missing."""
        return self.database.value(family, key) if family in self.database.families else None

    def position(self, family: str, key: bytes) -> int | None:
        """Return the value of a position key; None if it is missing, or too short for a number."""
        value = self.stored(family, key)
        return None if value is None else parse_position(value)


def last_offset(store: Store, family: str) -> int | None:
    """Return `lastOffsetPy` of the family `trans` or `default` (the index), a log offset; None if it is not stored.

    A dispatch before this offset writes no row. Since 5.5.0, it also limits where a start begins to dispatch, if
    transRocksDBEnable or indexRocksDBEnable is true.

    Errors: CannotRead, also without the extra `rocksdb`.
    Source: MessageRocksDBStorage#getLastOffsetPy, CommitLogDispatchStore#getDispatchFromPhyOffset (RocketMQ 5.5.1)
    """
    rows = MessageRows.of(store)
    return None if rows is None else rows.position(family, LAST_OFFSET)


__all__ = ["DIRECTORY", "CannotRead", "MessageRows", "last_offset"]
