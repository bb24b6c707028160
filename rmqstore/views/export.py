"""The messages of a store as rows that another store, or a table, can take."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from rmqstore.files.store import Store
from rmqstore.messages.rows import BodyStyle, Row
from rmqstore.scan.window import ScanOptions
from rmqstore.views.dump.messages import Job, Skipped, read_messages
from rmqstore.views.dump.old_records import earlier_records
from rmqstore.views.dump.selection import Selection


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """The contents of exported rows.

    `body`: include bodies. `decode`: decompress them, and clear the compression bits of SYSFLAG. `text`: UTF-8 bodies
    as text instead of base64. `positions`: include offset, size and message id, which are only valid in this store.
    `fillers`: include the records that repairs put in the place of lost messages. `stale`: instead of the messages of
    the log, the records of earlier logs in bytes that do not belong to it. `split_batches`: the messages of batch
    records instead of these.
    """

    body: bool = True
    decode: bool = False
    text: bool = False
    positions: bool = False
    fillers: bool = False
    stale: bool = False
    split_batches: bool = False
    scan: ScanOptions = field(default_factory=ScanOptions)

    def job(self, selection: Selection, form: str) -> Job:
        """Return the job that reads these rows."""
        style = BodyStyle(("text" if self.text else "base64") if self.body else None, not self.decode)
        selection = replace(selection, fillers=self.fillers)
        return Job(
            selection,
            form,
            body=style,
            export=True,
            positions=self.positions,
            instead=earlier_records if self.stale else None,
            stale=self.stale,
            split_batches=self.split_batches,
            scan=self.scan,
        )


def export_messages(
    store: Store,
    selection: Selection | None = None,
    options: ExportOptions | None = None,
    *,
    damage: Skipped | None = None,
    jobs: int = 1,
) -> Iterator[list[Row]]:
    """Yield the selected sound records as rows, some thousand at a time, with the fields of `rmqstore export`.

    Fills in `damage`. Errors: OSError only for files that cannot be opened.
    """
    job = (options or ExportOptions()).job(selection or Selection(), "text")
    return read_messages(store, "messages", job, damage, jobs=jobs)
