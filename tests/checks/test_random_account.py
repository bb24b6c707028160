"""Random damage of up to 12 faults: the account names the messages that were hit, and no others.

The undamaged store shows where each message is. A message whose bytes are as they were is in the log; one that was hit
is in the log, or listed as lost, or the account says that more may be lost.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from rmqstore.checks.examine import examine
from rmqstore.checks.options import VerifyOptions
from rmqstore.documents.content import objects
from rmqstore.errors import Refused
from rmqstore.files.store import open_store
from rmqstore.formats import dledger
from rmqstore.formats.message import is_filler
from rmqstore.formats.properties import is_lmq
from rmqstore.repair.plan.recover_options import RecoverOptions
from rmqstore.repair.planned import after, examine_again, with_loss
from rmqstore.repair.recover import plan_recovery
from tests.planning import look
from tests.real_broker.random_damage import damage_bytes
from tests.repair.salvaging import rows
from tests.seeds import seeds
from tests.stores import copy_store

STORES = ("4.9.7-clean", "5.1.4-killed", "5.4.0-clean", "5.4.0-dledger", "5.5.1-clean", "4.9.7-dledger-killed")
ROUNDS = seeds(6)
Place = tuple[str, int, int]
_UNCERTAIN = (21020, 2585021044, 2585031122)
"""A seed with which a queue has no files, and of a part of the log it was not known whether it had its messages; and
two with which a filler replaces a framed record whose properties nothing proves."""
_FALSE = (1365, 1422)
"""Seeds that once took a record with a flipped bit in its topic or QUEUEID for a queue that lost what is before it."""


def messages(store: Path) -> Mapping[Place, tuple[str, int, bytes]]:
    """Return file, position and bytes of each message, in DLedger with the header of its entry."""
    out = {}
    for row in rows(store):
        name = row.path.relative_to(store).as_posix()
        start = row.at - (0 if name.startswith("commitlog/") else dledger.ENTRY.size)
        with row.path.open("rb") as file:
            file.seek(start)
            out[row.slot] = name, start, file.read(row.at + row.size - start)
    return out


def hit(store: Path, whole: Mapping[Place, tuple[str, int, bytes]]) -> set[Place]:
    """Return the messages whose bytes are not as they were."""
    files = {name: (store / name).read_bytes() if (store / name).exists() else b"" for name, _, _ in whole.values()}
    return {place for place, (name, at, raw) in whole.items() if files[name][at : at + len(raw)] != raw}


@pytest.mark.slow
@pytest.mark.parametrize("name", STORES)
def test_a_plan_loses_what_the_planned_store_lacks(name: str, tmp_path: Path) -> None:
    """The messages of the undamaged store are the truth: a plan counts those that the store will not have after it."""
    for seed in (*_UNCERTAIN, *ROUNDS):
        root = copy_store(name, tmp_path)
        whole = messages(root)
        said = damage_bytes(root, seed, most=12)
        store, verified = look(root)
        try:
            plan = plan_recovery(store, verified, RecoverOptions(role="single", accept_fillers=True))
        except Refused:
            shutil.rmtree(root)
            continue
        planned = after(store, plan)
        loss = with_loss(plan, verified, examine_again(planned, VerifyOptions(jobs=1))).loss
        replaced = {(row["topic"], row["queue_id"], row["queue_offset"]) for row in objects(plan.facts.get("fillers"))}
        left = {row.slot for row in rows(planned) if not is_filler(row.message)} - replaced
        lost = len(whole.keys() - left)
        assert loss.messages == lost or (loss.more.get("at_least") and loss.messages < lost), (seed, said)
        shutil.rmtree(root)


@pytest.mark.slow
@pytest.mark.parametrize("name", STORES)
def test_the_account_names_the_messages_that_were_hit(name: str, tmp_path: Path) -> None:
    for seed in (*_FALSE, *ROUNDS):
        store = copy_store(name, tmp_path)
        whole = messages(store)
        said = damage_bytes(store, seed, most=12)
        account = examine(open_store(store), VerifyOptions(jobs=1)).account
        assert account is not None
        queues = {queue: one for queue, one in account.queues.items() if not is_lmq(queue[0])}
        lost = {(*queue, number) for queue, one in queues.items() for number in one.lost_already}
        there = {(*queue, number) for queue, one in queues.items() for number in one.in_log}
        assert lost <= hit(store, whole), (seed, said)
        assert account.at_least or len(whole.keys() - there - lost) == account.unplaced, (seed, said)
        shutil.rmtree(store)
