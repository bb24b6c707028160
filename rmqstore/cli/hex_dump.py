"""`rmqstore dump --format hex`: the bytes of records, with the name of each field."""

from __future__ import annotations

from collections.abc import Iterator

from rmqstore.cli.printing.output import Output
from rmqstore.cli.shared.messages import tell_damage
from rmqstore.errors import UsageError
from rmqstore.files.store import Store
from rmqstore.formats.message import MAGIC_V1, MAGIC_V2
from rmqstore.texts import Text
from rmqstore.views.dump.hexdump import annotate, hex_lines
from rmqstore.views.dump.messages import Job, Log, Skipped, logs_of, read_messages
from rmqstore.views.dump.selection import Selection


def show(out: Output, store: Store, what: str, selection: Selection, *, shown: bool) -> int:
    """Print records in hex, their bodies only if `shown`; return the exit code. Errors: UsageError."""
    logs = logs_of(store, what)
    damage = Skipped()
    with out.paged() as file:

        def write(lines: Iterator[str]) -> None:
            file.write(("\n".join(lines) + "\n\n").encode("utf-8", "backslashreplace"))

        if selection.start is not None and selection.stop is None and (selection.limit or 1) == 1:
            at = selection.start
            for log in logs:
                cut_off = log.body_offset and len(log.queue.pread(8, at)) <= 4
                if log.queue.start <= at < log.queue.stop and not cut_off:
                    write(hex_lines(annotate(log.queue, _entry_start(log, at), log.body_offset, body=shown)))
                    return 0
            raise UsageError(
                Text("no log has the offset {start:,}", start=selection.start),
                Text("see `rmqstore info` for its range"),
            )
        entries = what == "dledger"
        for rows in read_messages(store, what, Job(selection, "text", entries, foreign=what == "commitlog"), damage):
            for row in rows:
                at = int(row["offset"])
                log = next(one for one in logs if one.queue.start <= at < one.queue.stop)
                start = at if entries else at - log.body_offset
                write(hex_lines(annotate(log.queue, start, log.body_offset, body=shown)))
    return tell_damage(out, damage)


def _entry_start(log: Log, at: int) -> int:
    """Return the start of the record at an offset, which in DLedger data may be that of the entry or of its message."""
    entry = at - log.body_offset
    is_message = int.from_bytes(log.queue.pread(8, at)[4:8], "big", signed=True) in (MAGIC_V1, MAGIC_V2)
    return entry if is_message and entry >= log.queue.start else at
