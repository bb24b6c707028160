"""Work on a store whose log files expire meanwhile.

A broker deletes the oldest files of its log. If such a file disappears, the work is repeated on the store without the
oldest files, as if they had expired before.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from rmqstore.errors import StoreIsLive
from rmqstore.files.store import Store, open_store
from rmqstore.texts import Text

T = TypeVar("T")
_TRIES = 12


def while_files_expire(store: Store, work: Callable[[Store], T]) -> T:
    """Return the result of the work. Errors: those of the work; StoreIsLive if files expire faster than it ends."""
    expiring = store.expiring
    for _ in range(_TRIES):
        try:
            return work(store)
        except FileNotFoundError as error:
            if store.part is not None or not _expired(error, store) or not store.is_live():
                raise
        expiring = 2 * expiring + 1
        store = open_store(store.path, store.config, store.files)
        store.expiring = expiring
    raise StoreIsLive(Text("{path}: files of its log expire faster than they are read", path=store.path))


def _expired(error: FileNotFoundError, store: Store) -> bool:
    """Return whether the missing file belongs to the store."""
    if not isinstance(error.filename, str | bytes | os.PathLike):
        return False
    path = Path(os.fsdecode(error.filename)).absolute()
    roots = (store.path.absolute(), *store.places)
    real = store.files.real_path(path)
    return any(path.is_relative_to(root) or real.is_relative_to(root) for root in roots)
