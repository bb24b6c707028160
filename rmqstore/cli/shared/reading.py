"""What commands that read share: STORE, which is a directory, a file or a snapshot."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rmqstore.cli.printing.output import Output
from rmqstore.cli.printing.quantities import parse_time
from rmqstore.errors import NotAStore
from rmqstore.files import sources
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.texts import Text

if TYPE_CHECKING:
    from rmqstore.files.store import Store


def note_live(out: Output, store: Store, effect: str) -> bool:
    """Return whether a broker is running on a store, and note on stderr what that means for the answer.

    A part of a store, as its commitlog/, has no lock: a process that has its files mapped or open shows it.
    """
    live = store.lock_state().held if store.part is None else store.is_live()
    if live:
        out.note(Text("note: a broker is running on this store; {effect}", effect=effect))
    return live


def refuse_part(store: Store, advice: str) -> None:
    """Errors: NotAStore for a part of a store."""
    if store.part is not None:
        raise NotAStore(Text("{store} is a part of a store", store=store.path), advice)


def refuse_without_log(store: Store) -> None:
    """Errors: NotAStore for a store, or a part of one, that has no log."""
    if not (store.commitlog or store.dledger):
        elsewhere = Text("if broker.conf sets storePathCommitLog, name this file with -c")
        advice = elsewhere if store.part is None else Text("name a store, or its commitlog/")
        raise NotAStore(Text("{path} has no log", path=store.path), advice)


def open_named(path: Path, config: BrokerConfig, parts: frozenset[str] = sources.FOR_READING) -> Store:
    """Open a store or a snapshot, as `files.sources.open_named`; a time may be in the zone of --utc."""
    return sources.open_named(path, config, parts, parse_time)
