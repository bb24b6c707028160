"""A store without what its links lead to outside of it: for all that hands its bytes to others."""

from __future__ import annotations

from rmqstore.errors import Refused
from rmqstore.files.disk import named_options
from rmqstore.files.store import Store, open_store
from rmqstore.texts import Text


def own_store(store: Store) -> Store:
    """Return the same store through its `OwnFiles`. Errors: Refused if a log is behind a link that is not followed."""
    if not store.files.on_this_machine:
        return store
    for entry in store.not_followed:
        if entry.path.name == "commitlog" or entry.path.name.startswith("dledger-"):
            target = store.files.real_path(entry.path)
            raise Refused(
                Text("{link} is a link that leads out of the store, to {target}", link=entry.path, target=target),
                Text("add{options}, if that directory belongs to this broker", options=named_options([target])),
            )
    return open_store(store.path, store.config, store.own_files())
