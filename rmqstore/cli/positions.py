"""`rmqstore dump --positions`: the runs of the log, its real wrote position, and where a broker would stop."""

from __future__ import annotations

from itertools import chain
from typing import Any

from rmqstore.brokers.forecast import StartOptions
from rmqstore.brokers.simulate import simulate_start
from rmqstore.cli.printing.output import Output
from rmqstore.cli.printing.table_output import write_rows
from rmqstore.errors import NotAStore
from rmqstore.files.store import Store
from rmqstore.scan.workers import jobs_or_default
from rmqstore.texts import Text
from rmqstore.views.dump.messages import logs_of
from rmqstore.views.dump.positions import positions


def show(out: Output, store: Store, what: str, broker: str | None, jobs: int | None) -> int:
    """Print a row per run and per log; return the exit code. Errors: NotAStore without a log."""
    if not logs_of(store, what):
        raise NotAStore(Text("{path} has no log", path=store.path), Text("see `rmqstore info`"))
    found = list(positions(store, what, jobs=jobs_or_default(jobs)))
    stop = _broker_stop(out, store, broker)
    write_rows(
        out,
        chain(chain.from_iterable(one.rows() for one in found), (one.summary() | stop for one in found)),
        exact=True,
    )
    return 1 if any(one.tiling.first_bad() for one in found) else 0


def _broker_stop(out: Output, store: Store, broker: str | None) -> dict[str, Any]:
    """Return the columns for where a broker's recovery would stop; none for a part of a store."""
    if store.part is not None:
        return {}
    forecast = simulate_start(store, version=broker, options=StartOptions(thorough=False)).to_json()
    if not forecast["starts"]:
        words = Text("note: RocketMQ {version} would not start: {reason}")
        out.note(words.format(version=forecast["version"], reason=forecast["reason"]))
    return {"broker": forecast["version"], "broker_stop": forecast["commitlog_stop"]}
