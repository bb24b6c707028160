"""`--metrics FILE`: results for the textfile collector of Prometheus's node exporter.

All commands use the same names, with the labels `store` and `command`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from rmqstore.cli.printing.output import Output
from rmqstore.cli.shared.options import FILE
from rmqstore.files.private import READABLE
from rmqstore.formats.text import CONTROLS, DOT
from rmqstore.texts import Text

if TYPE_CHECKING:
    from rmqstore.backup.manifest import Manifest
    from rmqstore.checks.problems.report import Report
    from rmqstore.views.fleet import Fleet
    from rmqstore.views.info import Info
    from rmqstore.views.usage import Usage

_HELP = {
    "rmqstore_store_clean": "1 if everything was checked and nothing is wrong, else 0.",
    "rmqstore_problems": "Problems found, by code.",
    "rmqstore_next_start_ok": "1 if the next broker start would succeed, and consumers then get all messages, else 0.",
    "rmqstore_messages_lost_at_next_start": "Messages that the next broker start would delete.",
    "rmqstore_messages_lost_already": "Messages that a queue, the index or a gap lists, and the log lacks.",
    "rmqstore_messages_undelivered": "Messages in the log, in each queue, that no consumer gets after the next start.",
    "rmqstore_messages": "Messages in the log; info: in the consume queues.",
    "rmqstore_bytes": "Bytes of the messages; info: of the log's files.",
    "rmqstore_reused_bytes": "Bytes of unchanged log files that were not read again (--since-last).",
    "rmqstore_reused_read_timestamp_seconds": "When the oldest of the reused results was made.",
    "rmqstore_snapshot_timestamp_seconds": "When the last snapshot was made.",
    "rmqstore_snapshot_message_timestamp_seconds": "Store time of the last message in it.",
    "rmqstore_snapshot_end": "Global offset of the log's end in the last snapshot.",
    "rmqstore_snapshot_new_bytes": "Bytes that the last snapshot added to the repository.",
    "rmqstore_snapshot_branches": "Places where the log no longer continues the repository.",
    "rmqstore_receive_connected": "1 while there is a connection to the master, else 0.",
    "rmqstore_receive_lag_bytes": "Bytes of the master's log that have not arrived.",
    "rmqstore_receive_lag_seconds": "Age of the last message that has arrived, while others have not.",
    "rmqstore_receive_offset": "Global offset of the end of what has arrived.",
    "rmqstore_receive_reconnects": "How often this run has connected again.",
    "rmqstore_pending_messages": "Messages that wait, by kind, topic and group.",
    "rmqstore_pending_messages_total": "Messages that wait, by kind.",
    "rmqstore_pending_oldest_timestamp_seconds": "Store time of the oldest of them, by kind.",
    "rmqstore_pending_next_due_timestamp_seconds": "When the first of them is due, by kind.",
    "rmqstore_stores": "Stores, by state: sound, unchecked, unreadable or problems.",
    "rmqstore_verify_timestamp_seconds": "When the store was last verified.",
    "rmqstore_exit_code": "Exit code of the command.",
    "rmqstore_last_run_timestamp_seconds": "When the command ended.",
    "rmqstore_run_seconds": "How long the command took.",
}
_ESCAPES = str.maketrans({**dict.fromkeys(map(chr, CONTROLS), DOT), "\\": "\\\\", '"': '\\"', "\n": "\\n"})


class Sample(NamedTuple):
    """One line: a name of `_HELP`, a value, and the labels; `Metrics` adds `store` and `command`."""

    name: str
    value: float
    labels: Mapping[str, str] = {}


def metrics_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the option --metrics."""
    words = Text("Also write metrics for Prometheus's textfile collector to FILE, which must be named *.prom.")
    return click.option("--metrics", type=FILE, metavar="FILE", help=words)(function)


class Metrics:
    """Writes the metrics of one run of a command on one or several stores; does nothing without a path."""

    def __init__(self, out: Output, path: Path | None, command: str, *stores: Path) -> None:
        self._path, self._command, self._stores = path, command, stores
        self._samples: list[Sample] = []
        self._started = time.monotonic()
        if path is None:
            return
        self._target = Output(path=path, mode=READABLE)
        for store in stores:
            self._target.keep_out_of(store)
        self._target.check()
        if path.suffix != ".prom":
            words = Text("note: the textfile collector ignores {path}: it reads only files named *.prom")
            out.note(words.format(path=path))

    def begin(self) -> None:
        """The work on a store begins now."""
        self._started = time.monotonic()

    def write(self, samples: Iterable[Sample], exit_code: int) -> None:
        """Write the samples of the only store, and those that all commands have. Errors: NotReadable, OSError."""
        self.add(samples, exit_code, *self._stores)
        self.end()

    def add(self, samples: Iterable[Sample], exit_code: int, store: Path | None = None) -> None:
        """Add the samples of a store, whose work ends now, and those that all commands have.

        Without `store`, the samples say of which store they are.
        """
        if self._path is None:
            return
        own = [
            Sample("rmqstore_exit_code", exit_code),
            Sample("rmqstore_last_run_timestamp_seconds", round(time.time(), 3)),
            Sample("rmqstore_run_seconds", round(time.monotonic() - self._started, 3)),
        ]
        labels = (
            {"command": self._command} if store is None else {"store": str(store.absolute()), "command": self._command}
        )
        self._samples += [sample._replace(labels=labels | dict(sample.labels)) for sample in [*samples, *own]]

    def end(self) -> None:
        """Write what was added. Errors: NotReadable, OSError."""
        if self._path is None:
            return
        with self._target.stream() as file:
            for line in _lines(self._samples):
                file.write(line.encode("utf-8", "replace"))
        self._samples = []


def _lines(samples: Iterable[Sample]) -> Iterator[str]:
    """Yield the lines of the text format, grouped by name as it requires."""
    groups: dict[str, list[Sample]] = {}
    for sample in samples:
        groups.setdefault(sample.name, []).append(sample)
    for name, group in groups.items():
        yield f"# HELP {name} {_HELP[name]}\n# TYPE {name} gauge\n"
        for sample in group:
            pairs = (f'{key}="{text.translate(_ESCAPES)}"' for key, text in sample.labels.items())
            yield f"{name}{{{','.join(pairs)}}} {sample.value:.17g}\n"


_MAY_TAKE_MESSAGES = ("unreadable_rows", "not_dispatched", "depends_on_commits", "commits_from", "outside_dledger")
"""Fields of the forecast for messages that consumers may not get."""


def of_report(report: Report) -> Iterator[Sample]:
    """Yield the samples of `verify`."""
    yield Sample("rmqstore_store_clean", int(report.clean))
    for code, count in sorted(report.findings.counts.items()):
        yield Sample("rmqstore_problems", count, {"code": code})
    if report.broker is not None:
        broker, lost = report.broker, int(report.broker["messages_lost"] or 0)
        takes = any(broker[name] not in (None, 0, {}) for name in _MAY_TAKE_MESSAGES)
        yield Sample("rmqstore_next_start_ok", int(report.delivers_all and not takes))
        yield Sample("rmqstore_messages_lost_at_next_start", lost)
    if report.account is not None:
        yield Sample("rmqstore_messages_lost_already", report.account.lost_already)
        yield Sample("rmqstore_messages_undelivered", report.account.undelivered)
    if logs := report.logs:
        yield Sample("rmqstore_messages", sum(int(log.get("messages") or log.get("entries") or 0) for log in logs))
        yield Sample("rmqstore_bytes", sum(int(log.get("bytes") or 0) for log in logs))
    if report.reused is not None:
        yield Sample("rmqstore_reused_bytes", report.reused.bytes)
        yield Sample("rmqstore_reused_read_timestamp_seconds", report.reused.read_at / 1000)


def of_info(seen: Info) -> Iterator[Sample]:
    """Yield the samples of `info`."""
    yield Sample("rmqstore_bytes", sum(log.bytes for log in seen.logs))
    for topic in seen.topics:
        yield Sample("rmqstore_messages", topic.messages, {"topic": topic.topic})


def of_usage(found: Usage) -> Iterator[Sample]:
    """Yield the samples of `du`, per topic if it counted by topic."""
    table = found.tables.get("topic")
    if table is None:
        yield Sample("rmqstore_messages", found.messages)
        yield Sample("rmqstore_bytes", found.bytes)
        return
    for topic, (messages, size) in sorted(table.items(), key=lambda kv: str(kv[0])):
        yield Sample("rmqstore_messages", messages, {"topic": str(topic)})
        yield Sample("rmqstore_bytes", size, {"topic": str(topic)})


def of_backup(made: Manifest) -> Iterator[Sample]:
    """Yield the samples of `backup`."""
    yield Sample("rmqstore_snapshot_timestamp_seconds", made.time / 1000)
    if made.last_time >= 0:
        yield Sample("rmqstore_snapshot_message_timestamp_seconds", made.last_time / 1000)
    yield Sample("rmqstore_snapshot_end", made.end)
    yield Sample("rmqstore_snapshot_new_bytes", made.new_bytes)
    yield Sample("rmqstore_snapshot_branches", len(made.branches))
    yield Sample("rmqstore_messages", made.messages)
    yield Sample("rmqstore_bytes", made.size)
    for code, count in sorted(made.counts.items()):
        yield Sample("rmqstore_problems", count, {"code": code})


def of_fleet(found: Fleet) -> Iterator[Sample]:
    """Yield the samples of `fleet`: how many stores are in each state, and what results say of each."""
    for state, count in sorted(found.states.items()):
        yield Sample("rmqstore_stores", count, {"state": state.value})
    for row in found.rows:
        of = {"host": row.host, "store": row.store}
        yield Sample("rmqstore_store_clean", int(row.state == "sound"), of)
        if row.starts is not None:
            yield Sample("rmqstore_next_start_ok", int(row.starts and not row.lost_at_next_start), of)
        if row.counted:
            yield Sample("rmqstore_messages_lost_at_next_start", row.lost_at_next_start, of)
            yield Sample("rmqstore_messages_lost_already", row.lost_already, of)
            yield Sample("rmqstore_messages_undelivered", row.undelivered, of)
        if row.checked is not None:
            yield Sample("rmqstore_verify_timestamp_seconds", row.checked / 1000, of)
        if row.backup is not None:
            yield Sample("rmqstore_snapshot_timestamp_seconds", row.backup / 1000, of)
        for code, count in row.problems.items():
            yield Sample("rmqstore_problems", count, {**of, "code": code})
