"""What commands that print messages share: their lines, and notes on damage that was skipped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqstore.cli.printing.output import Output, Progress
from rmqstore.cli.printing.quantities import in_words, many
from rmqstore.texts import Text

if TYPE_CHECKING:
    from rmqstore.files.store import Store
    from rmqstore.views.dump.messages import Job, Skipped


def write_text(out: Output, store: Store, what: str, job: Job, damage: Skipped, jobs: int, progress: Progress) -> int:
    """Write messages as lines of text; return their number."""
    from rmqstore.views.dump.messages import lines_of, read_text

    header = [lines_of(job).header()] if job.form == "csv" else []
    done = 0
    with out.stream(data=True) as file:
        if job.export:
            file.writelines(header)
        for count, text in read_text(store, what, job, damage, jobs=jobs, progress=progress.add):
            file.writelines(text if done or job.export else [*header, *text])
            done += count
    return done


def tell_damage(out: Output, damage: Skipped) -> int:
    """Write to stderr what was skipped; return the exit code."""
    if not damage:
        return 0
    if damage.count:
        places = many(damage.count - damage.holes, "damaged place") if damage.count > damage.holes else ""
        gaps = many(damage.holes, "gap of missing files", "gaps of missing files") if damage.holes else ""
        what = Text("{places} and {gaps}", places=places, gaps=gaps) if places and gaps else places or gaps
        out.note(Text("warning: {what} ({bytes}) skipped:", what=what, bytes=many(damage.bytes, "byte")))
        for queue, start, stop, why in damage.spans[: 100 if out.verbose else 5]:
            words = Text("  {queue} {start:,} to {stop:,}: {why}")
            out.note(words.format(queue=queue, start=start, stop=stop, why=in_words(why)))
        if damage.count > 5 and not out.verbose:
            out.note(Text("  … and {count:,} more (-v)", count=damage.count - 5))
    if damage.shown:
        out.note(Text("warning: {have} a wrong CRC", have=many(damage.shown, "message has", "messages have")))
    return 1
