"""`rmqstore dump --what compaction-log`: the messages that compaction keeps."""

from __future__ import annotations

from rmqstore.cli.dump import DumpOptions, write_messages
from rmqstore.cli.printing.output import Output
from rmqstore.cli.shared.messages import tell_damage
from rmqstore.cli.shared.options import WorkOptions
from rmqstore.cli.shared.selections import note_no_match
from rmqstore.files.store import Store
from rmqstore.messages.rows import BodyStyle
from rmqstore.texts import Text
from rmqstore.views.dump.compaction import CompactedRecords, bytes_to_read
from rmqstore.views.dump.messages import CHUNK, Job, Skipped
from rmqstore.views.dump.selection import Selection


def show(out: Output, store: Store, selection: Selection, asked: DumpOptions, work: WorkOptions) -> int:
    """Print the messages that compaction keeps; return the exit code."""
    damage = Skipped(live=store.is_live())
    style = BodyStyle(asked.body or ("base64" if asked.raw_body else None), asked.raw_body)
    scan = work.scanning(damage.live, chunk=CHUNK)
    job = Job(selection, body=style, iso=out.iso, scan=scan, instead=CompactedRecords(selection, damage))
    if not write_messages(out, store, "messages", job, damage, bytes_to_read(store, selection), 1):
        note_no_match(out, Text("compacted message"), selection, [str(store.path / "compaction")])
    return tell_damage(out, damage)
