"""Pairs of replicas written by real brokers, damage to one of them, and its healing."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmqstore.checks.options import VerifyOptions
from rmqstore.documents.plan import Plan
from rmqstore.files.store import open_store
from rmqstore.repair.plan.recover_options import RecoverOptions
from rmqstore.repair.planned import measure
from rmqstore.repair.replica.heal import plan_with_replicas
from rmqstore.repair.replica.replica import open_replica
from rmqstore.repair.replica.sources import HealOptions
from tests import damage
from tests.planning import look
from tests.repair.salvaging import Row


@dataclass(frozen=True, slots=True)
class Pair:
    """A store and its replicas, by fixture names. If both are the same, the replica is a backup."""

    store: str
    replicas: tuple[str, ...]


PAIRS = {
    "master": Pair("5.4.0-master", ("5.4.0-slave",)),
    "slave": Pair("5.4.0-slave", ("5.4.0-master",)),
    "leader": Pair("5.4.0-dledger3-n0", ("5.4.0-dledger3-n1",)),
    "follower": Pair("5.4.0-dledger3-n1", ("5.4.0-dledger3-n0", "5.4.0-dledger3-n2")),
    "killed follower": Pair("5.4.0-dledger3-n2", ("5.4.0-dledger3-n0",)),
    "backup": Pair("4.9.7-clean", ("4.9.7-clean",)),
    "backup, mixed": Pair("5.4.0-dledger-mixed", ("5.4.0-dledger-mixed",)),
    "backup, formats": Pair("5.4.0-formats", ("5.4.0-formats",)),
    "backup, killed": Pair("5.1.4-killed", ("5.1.4-killed",)),
    "backup, IPv6": Pair("4.9.7-ipv6", ("4.9.7-ipv6",)),
    "backup, RocksDB": Pair("5.4.0-rocksdb", ("5.4.0-rocksdb",)),
}


def plan_healing(
    store: Path, replicas: Sequence[Path], *, extend: bool = False, fillers: bool = False, role: str = "single"
) -> Plan:
    opened, verified = look(store)
    found = [open_replica(path, {}) for path in replicas]
    options = RecoverOptions(role=role)
    how = VerifyOptions(jobs=1)
    plan = plan_with_replicas(opened, verified, found, HealOptions(extend, fillers), options, how)
    return measure(opened, plan, verified, how)[0]


def restored(plan: Plan) -> Any:
    """Return the facts of a plan about the bytes that it takes from replicas."""
    return plan.facts["restored"]


def log_files(store: Path) -> dict[str, bytes]:
    """Return the content of all log files by name."""
    opened = open_store(store)
    queues = [opened.commitlog, opened.dledger.data if opened.dledger is not None else None]
    return {f.path.name: f.path.read_bytes() for queue in queues if queue is not None for f in queue.files}


def damage_place(rng: random.Random, found: Sequence[Row]) -> str:
    """Damage one place of a store in a way that verify can find; return a description, or "" if nothing was done.

    `found`: the remaining records.
    """
    paths = sorted({row.path for row in found})
    path = rng.choice(paths)
    own = [row for row in found if row.path == path]
    row, last = rng.choice(own), path == paths[-1]
    match rng.choice(("bit", "bytes", "head", "page", "torn", "missing", "blank")):
        case "bit":
            body = row.stop - len(row.message.properties) - len(row.message.topic) - 3 - len(row.message.body)
            damage.flip(path, rng.randrange(body, body + len(row.message.body)), rng.randrange(8))
            return f"a bit of the body at {row.offset}"
        case "bytes":
            length = min(rng.choice((700, 3000, 20_000)), path.stat().st_size - row.at)
            damage.garble(path, row.at - row.body_offset, length, rng.randrange(1 << 30))
            return f"{length} bytes at {row.offset}"
        case "head":
            damage.garble(path, row.at + rng.choice((0, 4, 28)), 4, rng.randrange(1 << 30))
            return f"the head of {row.offset}"
        case "page":
            at = row.at // 4096 * 4096
            if any(path.read_bytes()[at : at + 4096]):
                damage.zero(path, at, min(4096 * rng.choice((1, 1, 3)), path.stat().st_size - at))
                return f"a page of {path.name} at {at}"
        case "torn" if not last:
            damage.cut(path, rng.randrange(1, path.stat().st_size))
            return f"{path.name} is cut"
        case "missing" if path not in (paths[0], paths[-1]):
            path.unlink()
            return f"{path.name} is missing"
        case "blank" if not last and path.stat().st_size - own[-1].stop >= 8:
            damage.garble(path, own[-1].stop, 8, rng.randrange(1 << 30))
            return f"the BLANK of {path.name}"
    return ""
