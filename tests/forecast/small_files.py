"""Damage to the small files of a store, after which a broker does not start or serves no messages.

The results of the real classes are recorded in `small_files.json` by `python -m tests.real_broker.test_small_files`.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rmqstore.brokers.forecast import StartOptions
from rmqstore.brokers.simulate import simulate_start
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import open_store
from tests.stores import VERSIONS, meta, unpack

ANSWERS = Path(__file__).parent / "small_files.json"
ROCKSDB = "5.4.0-rocksdb"
KINDS = ("noise", "cut", "zero", "gone")


@dataclass(frozen=True, slots=True)
class SmallDamage:
    """Damage to one file: `noise` changes the byte at `at`, `cut` leaves `at` bytes, `zero`, `gone`.

    `clean`: whether the last exit was clean. The backup of a configuration file is removed.
    """

    store: str
    path: str
    kind: str
    at: int
    clean: bool = True

    @property
    def version(self) -> str:
        return self.store.split("-")[0]

    def apply(self, store: Path) -> None:
        path = store / self.path
        data = bytearray(path.read_bytes())
        if self.kind == "gone":
            path.unlink()
        elif self.kind == "zero":
            path.write_bytes(bytes(len(data)))
        elif self.kind == "cut":
            path.write_bytes(data[: self.at])
        else:
            data[self.at] = (data[self.at] + 0x5B) & 0xFF
            path.write_bytes(data)
        path.with_name(path.name + ".bak").unlink(missing_ok=True)
        if not self.clean:
            (store / "abort").touch()

    def __str__(self) -> str:
        return f"{self.store} {self.path} {self.kind} {self.at}{'' if self.clean else ', abort'}"


@dataclass(frozen=True, slots=True)
class SmallAnswer:
    """The result: `max_offset` is None if the store does not start; `readable` counts messages of RocksDB queues."""

    starts: bool
    max_offset: int | None
    readable: int | None = None


def paths() -> Iterator[tuple[str, str]]:
    """Yield (store, path) of every small file that the classes of a store read."""
    for version in VERSIONS:
        yield f"{version}-clean", "checkpoint"
        yield f"{version}-dledger", "dledger-n0/checkpoint"
        yield f"{version}-dledger", "dledger-n0/currterm"
        yield f"{version}-clean", "config/delayOffset.json"
    for path in sorted((unpack(ROCKSDB) / "consumequeue").iterdir()):
        if path.is_file() and path.name not in ("LOCK",):
            yield ROCKSDB, f"consumequeue/{path.name}"


def random_damage(rng: random.Random) -> SmallDamage:
    """Return random damage to one small file."""
    store, path = rng.choice(list(paths()))
    kind = rng.choice((*KINDS, "noise", "noise"))
    size = (unpack(store) / path).stat().st_size
    if not size:
        kind = "gone"
    return SmallDamage(store, path, kind, rng.randrange(max(1, size)), rng.random() < 0.6)


def forecast_of(damage: SmallDamage, store: Path) -> tuple[SmallAnswer, int]:
    """Return the forecast as a result, and the number of messages that it reports as not delivered."""
    dispatch = "dledger" not in damage.store
    config = BrokerConfig(meta(damage.store).oracle_args)
    forecast = simulate_start(
        open_store(store, config), version=damage.version, options=StartOptions(dispatch=dispatch)
    )
    missing = sum(forecast.unreadable_rows.values()) + (forecast.not_dispatched is not None)
    if not forecast.starts and not _read_by_store(damage):
        return SmallAnswer(True, None), 0  # the broker ends, but its store classes do not read this file
    return SmallAnswer(forecast.starts, forecast.max_offset if forecast.starts else None), missing


def _read_by_store(damage: SmallDamage) -> bool:
    return damage.path != "config/delayOffset.json" or damage.version.startswith("4")


def load_answers() -> dict[SmallDamage, SmallAnswer]:
    """Return the recorded results."""
    rows = json.loads(ANSWERS.read_text("utf-8")) if ANSWERS.exists() else []
    return {SmallDamage(*row[:5]): SmallAnswer(*row[5:]) for row in rows}


def save_answers(answers: dict[SmallDamage, SmallAnswer]) -> None:
    rows = [
        [d.store, d.path, d.kind, d.at, d.clean, a.starts, a.max_offset, a.readable]
        for d, a in sorted(answers.items(), key=lambda pair: str(pair[0]))
    ]
    ANSWERS.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n", "utf-8")
