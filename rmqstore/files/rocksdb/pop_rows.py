"""Read kvStore/: the messages that POP consumers have received and not acknowledged (PopConsumerRocksdbStore)."""

from __future__ import annotations

from collections.abc import Iterator

from rmqstore.files.rocksdb.database import open_database
from rmqstore.files.store import Store
from rmqstore.formats.pop import KV_DIRECTORY, KV_FAMILY, PopRow, parse_pop_row


def pop_rows(store: Store) -> Iterator[tuple[bytes, bytes, PopRow | None]]:
    """Yield key, value and content of each row of kvStore/; the content is None if it has another form.

    Errors: CannotRead.
    """
    if not store.has_pop_rows:
        return
    database = open_database(store.files, store.root / KV_DIRECTORY)
    if KV_FAMILY in database.families:
        for keys, values in database.chunks(KV_FAMILY):
            yield from zip(keys, values, map(parse_pop_row, keys, values), strict=True)
