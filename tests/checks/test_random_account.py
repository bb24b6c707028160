"""Random damage of 3 to 12 faults: the account names the messages that were hit, and no others, also after a plan.

The undamaged store shows where each message is. A message whose bytes are as they were is in the log; one that was hit
is in the log, or listed as lost, or the account says that more may be lost. A plan loses what the planned store lacks.
Messages before the begin of the log are not counted: a broker deletes the first files itself.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from rmqstore.checks.log.queue_parts import place_of
from rmqstore.checks.options import VerifyOptions
from rmqstore.checks.problems.account import Account
from rmqstore.checks.verified import Verified
from rmqstore.documents.content import objects
from rmqstore.errors import Refused
from rmqstore.files.store import Store
from rmqstore.formats import dledger
from rmqstore.formats.message import is_filler
from rmqstore.formats.properties import is_lmq
from rmqstore.repair.plan.recover_options import RecoverOptions
from rmqstore.repair.planned import after, examine_again, with_loss
from rmqstore.repair.recover import plan_recovery
from tests.planning import look
from tests.real_broker.random_damage import damage_bytes
from tests.repair.salvaging import Row, rows
from tests.seeds import seeds
from tests.stores import STORES, copy_store

ROUNDS = seeds(2)
FEW = ("4.9.7-clean", "5.1.4-killed", "5.4.0-clean", "5.4.0-dledger", "5.5.1-clean", "4.9.7-dledger-killed")
_UNCERTAIN = (21020, 2585021044, 2585031122)
"""A seed with which a queue has no files, and of a part of the log it was not known whether it had its messages; and
two with which a filler replaces a framed record whose properties nothing proves."""
_FALSE = (1365, 1422)
"""Seeds that once took a record with a flipped bit in its topic or QUEUEID for a queue that lost what is before it."""
DISAGREED = (
    ("4.9.7-before-dledger", 100),
    ("5.4.0-controller-master", 100),
    ("498_clean", 101),
    ("498_killed_restarted", 101),
    ("5.4.0-dledger", 102),
    ("4.9.7-dledger", 200),
    ("498_killed_restarted", 201),
    ("5.1.4-dledger-mixed", 1),
    ("498_killed_restarted", 51005),
    ("5.4.0-master", 51001),
    ("head_formats_propcrc", 51002),
    ("head_many", 52000),
    ("498_before_dledger", 52003),
    ("498_dledger", 52003),
    ("head_formats", 52003),
    ("498_before_dledger", 52005),
)
"""Many faults that were once counted wrongly: room in two files that follow each other; a wrong bit in a unit whose
message the index shows, too; wrong bits in a time and a queue offset, which made old records of those after them; a
last queue file of zeros; an index that is damaged, too; a wrong bit in the size of a unit; a queue file in place of the
next one; a wrong high bit in the size of a unit (twice); a queue of which only the directory is left; damaged records
with wrong headers; units that were lost in two gaps and between them; a wrong offset in the index, within a message; a
log that seems to reach into DLedger's; a batch queue without a file; and a wrong offset far after the end."""
Place = tuple[str, int, int]


class Known(NamedTuple):
    """A message of the undamaged store: its file, its position there, in the log, and its bytes."""

    name: str
    start: int
    at: int
    raw: bytes


def places(row: Row) -> list[Place]:
    """Return the places of a record: several for an inner batch."""
    (topic, queue_id), start, stop = place_of(row.message)
    return [(topic, queue_id, number) for number in range(start, stop)]


def messages(store: Path) -> dict[Place, Known]:
    """Return the messages of a store, in DLedger with the header of their entry."""
    out: dict[Place, Known] = {}
    for row in rows(store):
        name = row.path.relative_to(store).as_posix()
        start = row.at - (0 if name.startswith("commitlog/") else dledger.ENTRY.size)
        with row.path.open("rb") as file:
            file.seek(start)
            known = Known(name, start, int(row.path.name) + start, file.read(row.at + row.size - start))
        out |= dict.fromkeys(places(row) if row.message.is_dispatched else (), known)
    return out


def hit(store: Path, whole: Mapping[Place, Known]) -> set[Place]:
    """Return the messages whose bytes are not as they were."""
    names = {known.name for known in whole.values()}
    files = {name: (store / name).read_bytes() if (store / name).exists() else b"" for name in names}
    return {place for place, (name, at, _, raw) in whole.items() if files[name][at : at + len(raw)] != raw}


def many_faults(store: Path, seed: int) -> list[str]:
    """Do 3 to 12 faults, and return descriptions."""
    least = random.Random(f"{store.name} many {seed}").randint(3, 12)
    return damage_bytes(store, f"many {seed}", least=least, most=least)


def disagreements(root: Path, whole: Mapping[Place, Known]) -> list[str]:
    """Return what the account of a damaged store, and of the store after its repair, says wrongly."""
    store, verified = look(root)
    account = verified.account
    assert account is not None
    whole = {place: known for place, known in whole.items() if known.at >= account.begin_at}
    return [*_of_account(account, whole, hit(root, whole)), *_of_plan(store, verified, whole)]


def _of_account(account: Account, whole: Mapping[Place, Known], damaged: set[Place]) -> list[str]:
    queues = {queue: one for queue, one in account.queues.items() if not is_lmq(queue[0])}
    lost = {(*queue, number) for queue, one in queues.items() for number in one.lost_already}
    there = {(*queue, number) for queue, one in queues.items() for number in one.in_log}
    missing = whole.keys() - there - lost
    out = [f"lost, and not hit: {sorted(lost - damaged)[:5]}"] if not lost <= damaged else []
    if account.unplaced > len(missing) or not (account.at_least or account.unplaced == len(missing)):
        out.append(f"{account.unplaced} without a place, not {len(missing)}: {sorted(missing)[:5]}")
    return out


def _of_plan(store: Store, verified: Verified, whole: Mapping[Place, Known]) -> list[str]:
    try:
        plan = plan_recovery(store, verified, RecoverOptions(role="single", accept_fillers=True))
    except Refused:
        return []
    planned = after(store, plan)
    loss = with_loss(plan, verified, examine_again(planned, VerifyOptions(jobs=1))).loss
    replaced = {(row["topic"], row["queue_id"], row["queue_offset"]) for row in objects(plan.facts.get("fillers"))}
    left = {place for row in rows(planned) if not is_filler(row.message) for place in places(row)} - replaced
    lost = len(whole.keys() - left)
    right = loss.messages == lost or (loss.more.get("at_least") and loss.messages < lost)
    return [] if right else [f"the plan loses {lost}, not {loss.messages}"]


@pytest.mark.slow
@pytest.mark.parametrize("name", FEW)
def test_the_account_is_right_after_a_few_faults(name: str, tmp_path: Path) -> None:
    for seed in (*_UNCERTAIN, *_FALSE, *ROUNDS):
        store = copy_store(name, tmp_path)
        whole = messages(store)
        said = damage_bytes(store, seed, most=12)
        assert disagreements(store, whole) == [], (seed, said)
        shutil.rmtree(store)


@pytest.mark.slow
@pytest.mark.parametrize("name", STORES)
def test_the_account_is_right_after_many_faults(name: str, tmp_path: Path) -> None:
    for seed in ROUNDS:
        store = copy_store(name, tmp_path)
        whole = messages(store)
        said = many_faults(store, seed)
        assert disagreements(store, whole) == [], (seed, said)
        shutil.rmtree(store)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "seed"), DISAGREED)
def test_the_account_is_right_where_it_was_once_wrong(name: str, seed: int, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    whole = messages(store)
    said = many_faults(store, seed)
    assert disagreements(store, whole) == [], said
