"""Finds which of several stores can heal a store, with the proof of `recover --replica`, but without a plan."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

from rmqstore.checks.verify import Verified
from rmqstore.errors import RmqStoreError
from rmqstore.files.store import Store
from rmqstore.repair.replica.heal import Healing
from rmqstore.repair.replica.places import HealOptions
from rmqstore.repair.replica.replica import Replica
from rmqstore.texts import Text


@dataclass(frozen=True, slots=True)
class Offer:
    """The damaged places and bytes that a replica can restore; `command` shows the plan."""

    replica: str
    places: int
    bytes: int
    command: str


@dataclass(slots=True)
class Offers:
    """The offers for one store with a number of damaged `places`; `refused` gives the reason for each other replica."""

    places: int = 0
    offers: list[Offer] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)


def find_offers(store: Store, verified: Verified, replicas: Sequence[Replica]) -> Offers:
    """Find what each replica alone can restore in a damaged store, the most bytes first."""
    out = Offers()
    for replica in replicas:
        healing = Healing(store, verified, [replica], HealOptions())
        try:
            healing.check()
            sources = healing.sources()
        except RmqStoreError as e:
            out.refused[replica.name] = e.message
            continue
        out.places = max(out.places, len(healing.places))
        good = [taken for taken in sources.taken if taken.good]
        if not good:
            out.refused[replica.name] = next(iter([*healing.notes, *sources.notes]), Text("the log needs no bytes"))
            continue
        words = f"rmqstore recover {shlex.quote(str(store.path))} --replica {shlex.quote(replica.name)}"
        places, size = len({id(taken.place) for taken in good}), sum(taken.stop - taken.start for taken in good)
        out.offers.append(Offer(replica.name, places, size, words))
    out.offers.sort(key=lambda offer: -offer.bytes)
    return out
