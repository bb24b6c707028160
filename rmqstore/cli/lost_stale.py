"""`rmqstore lost --stale`: records of earlier logs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqstore.cli.printing.output import Output
from rmqstore.cli.printing.quantities import bytes_text, many, time_text
from rmqstore.cli.printing.table_output import write_rows
from rmqstore.cli.shared.options import WorkOptions
from rmqstore.cli.shared.reading import note_live, refuse_without_log
from rmqstore.texts import Placed, Text

if TYPE_CHECKING:
    from rmqstore.files.store import Store
    from rmqstore.views.dump.old_records import OldRecordFinder

_SHOWN = 100
_LISTED = 10_000
_COLUMNS = ("topic", "queue_id", "queue_offset", "offset", "why", "keys", "unique_key", "store_timestamp")
_WHY = {
    "cut": Text("the log was cut before them, and a broker has not overwritten them yet"),
    "reused": Text("they name another place in the log: from an earlier use of the file or of the write buffer"),
}
_WHERE = {"after-end": Text("after the end of the log"), "after-blank": Text("after the record that closes a file")}


@dataclass(slots=True)
class _Summary:
    """Counts of old records, their bytes, and their store times, by (log, where, why). `listed`: the first rows."""

    messages: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    bytes: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    times: dict[tuple[str, str, str], tuple[int, int]] = field(default_factory=dict)
    listed: list[dict[str, Any]] = field(default_factory=list)

    def add(self, row: dict[str, Any]) -> None:
        """Count a row, and list it if it is one of the first."""
        kind = row["log"], row["where"], row["why"]
        self.messages[kind] += 1
        self.bytes[kind] += row["size"]
        first, last = self.times.get(kind, (row["store_timestamp"],) * 2)
        self.times[kind] = min(first, row["store_timestamp"]), max(last, row["store_timestamp"])
        if len(self.listed) < _LISTED:
            self.listed.append(row)


def list_old_records(out: Output, store: Path, opened: Store, work: WorkOptions) -> int:
    """List the old records of a store; return the exit code: 0, or 4 if a part of a log cannot be read."""
    from rmqstore.scan.window import ScanOptions
    from rmqstore.views.dump.old_records import OldRecordFinder

    refuse_without_log(opened)
    live = note_live(out, opened, Text("the end of its log moves on, over old records"))
    with out.progress("lost", opened.log_bytes) as progress:
        options = ScanOptions(drop_cache=live, max_rate=work.max_rate)
        finder = OldRecordFinder(opened, jobs=work.jobs, options=options, live=live, progress=progress.add)
    if out.as_json:
        _report(out, store, finder)
    elif out.format == "table":
        _text(out, store, finder)
    else:
        write_rows(out, _rows(finder))
    if finder.unreadable:
        out.note(
            Text("warning: a part of the log cannot be read; what follows it may be called old (see `rmqstore verify`)")
        )
    return 4 if finder.unreadable else 0


def _rows(finder: OldRecordFinder) -> Iterator[dict[str, Any]]:
    from rmqstore.views.dump.old_records import row_of

    for old in finder.found():
        yield from (row_of(old, i) for i in range(len(old.columns)))


def _summary(finder: OldRecordFinder) -> _Summary:
    summary = _Summary()
    for row in _rows(finder):
        summary.add(row)
    return summary


def _report(out: Output, store: Path, finder: OldRecordFinder) -> None:
    summary = _summary(finder)
    kinds = [
        {"log": log, "where": where, "why": why, "messages": count, "bytes": summary.bytes[log, where, why]}
        | dict(zip(("first_timestamp", "last_timestamp"), summary.times[log, where, why], strict=True))
        for (log, where, why), count in summary.messages.items()
    ]
    logs = [
        {"log": r.name, "end": r.wrote, "last_timestamp": r.max_time if r.messages else None} for r in finder.results
    ]
    out.report(
        {
            "schema": "rmqstore.lost-stale/1",
            "store": str(store),
            "logs": logs,
            "kinds": kinds,
            "copies": finder.copies,
            "messages": summary.listed,
            "more": sum(summary.messages.values()) - len(summary.listed),
        }
    )


def _text(out: Output, store: Path, finder: OldRecordFinder) -> None:
    summary = _summary(finder)
    out.lines(_words(store, finder, summary), wrap=True)
    if summary.listed:
        write_rows(replace(out, format="table"), summary.listed[:_SHOWN], _COLUMNS)
    left = sum(summary.messages.values()) - _SHOWN
    if left > 0:
        out.lines(
            [Text("… and {records} (--format csv or ndjson lists all)", records=many(left, "more record"))], wrap=True
        )


def _words(store: Path, finder: OldRecordFinder, summary: _Summary) -> Iterator[str]:
    """Yield what was found, and why it is old."""
    total = sum(summary.messages.values())
    if not total:
        yield Text("No records of an earlier log are left.")
        return
    size = bytes_text(sum(summary.bytes.values()))
    yield Text(
        "{records} of an earlier log ({size}). They are no messages of this log.",
        records=many(total, "record"),
        size=size,
    )
    for kind, count in summary.messages.items():
        log, where, why = kind
        first, last = summary.times[kind]
        yield Placed(
            "{log}: {records} {where}: {why}",
            log=log,
            records=many(count, "record"),
            where=_WHERE[where],
            why=_WHY[why],
        )
        yield Text("  stored from {first} to {last}", first=time_text(first), last=time_text(last))
    for result in finder.results:
        if result.messages:
            yield Text(
                "The last message of {result} was stored at {max_time}.",
                result=result.name,
                max_time=time_text(result.max_time),
            )
    yield Text(
        "A broker and `rmqstore recover` overwrite them. `rmqstore export {store} --stale -o FILE` saves them.",
        store=store,
    )
    yield ""
