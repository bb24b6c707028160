"""The results of a broker start that a forecast must predict exactly."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rmqstore.brokers.forecast import PROCESS_EXIT, StartForecast
from rmqstore.brokers.load import HIDDEN
from rmqstore.brokers.rules import rules_for
from rmqstore.files.store import Store
from rmqstore.files.store_queues import is_database_file
from rmqstore.formats.properties import is_lmq
from tests.real_broker.oracle import OracleResult

ANSWERS = Path(__file__).parent / "answers.json"
HEAP = 400 << 20
"""The oracle runs with 512 MiB; a broker that allocates more for one record dies."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One start: whether the store loads (or the process dies or hangs), the ends of log and queues, removed files."""

    load: bool
    dies: bool
    min_offset: int | None
    max_offset: int | None
    queues: dict[str, tuple[int, int]]
    gone: tuple[str, ...]


def of_oracle(result: OracleResult, gone: set[str]) -> Answer:
    """Return the result of a run of the real classes; `gone` are the files that it removed."""
    # an exception in the constructor ends a whole broker with LOAD_FALSE (BrokerController#initializeMessageStore)
    dies = result.crash is not None and not result.crash.startswith("construct:")
    loads = result.load and result.crash is None
    ends = {name: (q.min, q.max) for name, q in sorted(result.queues.items()) if q.max or q.min > 0}
    return Answer(
        loads,
        dies,
        result.min_phy if loads else None,
        result.max_phy if loads else None,
        ends if loads else {},
        tuple(sorted(gone)),
    )


def of_forecast(forecast: StartForecast, store: Path) -> Answer:
    """Return the result that a forecast predicts."""
    ends = {
        f"{topic}/{queue_id}": end
        for (topic, queue_id), end in sorted(forecast.queue_ends.items())
        if end[1] or end[0] > 0
    }
    gone = set(forecast.other_files_deleted)
    gone |= {path for name in forecast.files_deleted if (path := _below(store, name)) is not None}
    return Answer(
        forecast.starts,
        not forecast.starts
        and forecast.exit_code in (PROCESS_EXIT, None)
        and HIDDEN not in forecast.notes,  # load() of the store's classes returned false there
        forecast.min_offset,
        forecast.max_offset,
        dict(sorted(ends.items())),
        tuple(sorted(gone)),
    )


def as_far_as_simulated(answer: Answer, forecast: StartForecast, store: Store) -> Answer:
    """Return a result of the real classes without the ends of queues in RocksDB: a forecast has none of them.
    What a start leaves without rows is compared in tests/real_broker (`test_rocksdb_start`, `test_light_queues`).
    """
    if not forecast.consume_queues_simulated:
        return replace(answer, queues={})
    if not (store.light_in_rocksdb and rules_for(forecast.version).light_in_rocksdb):
        return answer
    return replace(answer, queues={name: ends for name, ends in answer.queues.items() if not is_lmq(name)})


def _below(store: Path, name: str) -> str | None:
    return f"commitlog/{name}" if (store / "commitlog" / name).exists() else None


def files_of(store: Path) -> set[str]:
    """Return all files of a store, except those that every run creates or removes."""
    paths = {p.relative_to(store).as_posix() for p in store.rglob("*") if p.is_file()}
    kept = {p for p in paths if not p.startswith(("rocksdbstore/", "consumequeue_rocksdb/")) and p != "abort.bak"}
    return {p for p in kept if not (p.startswith("consumequeue/") and p.count("/") == 1 and _of_rocksdb(p))}


def _of_rocksdb(path: str) -> bool:
    return is_database_file(path.rpartition("/")[2])


def load_answers() -> dict[str, Answer]:
    """Return the recorded results by case name."""
    out = {}
    document = json.loads(ANSWERS.read_text("utf-8"))
    tables = document["queues"]
    for name, row in document["answers"].items():
        queues = {key: (ends[0], ends[1]) for key, ends in tables[row["queues"]].items()}
        for key, ends in row["changed"].items():
            queues[key] = (ends[0], ends[1])
        for key in row["missing"]:
            del queues[key]
        out[name] = Answer(row["load"], row["dies"], row["min_offset"], row["max_offset"], queues, tuple(row["gone"]))
    return out


def save_answers(answers: dict[str, Answer]) -> None:
    """Record results; queue ends are stored as differences from tables that many cases share."""
    tables: list[dict[str, tuple[int, int]]] = [{}]
    rows: dict[str, dict[str, object]] = {}
    for name, answer in sorted(answers.items()):
        best = min(range(len(tables)), key=lambda i: len(tables[i].items() ^ answer.queues.items()))
        if len(tables[best].items() ^ answer.queues.items()) > 24 and len(tables) < 24:
            tables.append(answer.queues)
            best = len(tables) - 1
        row = asdict(answer)
        row["queues"] = best
        row["changed"] = {k: v for k, v in answer.queues.items() if tables[best].get(k) != v}
        row["missing"] = sorted(k for k in tables[best] if k not in answer.queues)
        rows[name] = row
    lines = ",\n".join(
        f" {json.dumps(k, ensure_ascii=False)}: {json.dumps(v, ensure_ascii=False)}" for k, v in rows.items()
    )
    shared = ",\n".join(f"  {json.dumps(t, ensure_ascii=False)}" for t in tables)
    ANSWERS.write_text(f'{{"queues": [\n{shared}\n ],\n "answers": {{\n{lines}\n }}}}\n', "utf-8")
