"""What commands that read share: STORE, which is a directory, a file or a snapshot, and notes on what was skipped."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rmqstore.cli.printing.output import Output, Progress
from rmqstore.cli.printing.quantities import in_words, many, parse_time
from rmqstore.errors import NotAStore
from rmqstore.files import sources
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.texts import Text

if TYPE_CHECKING:
    from rmqstore.files.store import Store
    from rmqstore.views.dump.messages import Job, Skipped


def note_live(out: Output, store: Store, effect: str) -> bool:
    """Return whether a broker is running on a store, and note on stderr what that means for the answer.

    A part of a store, as its commitlog/, has no lock: a process that has its files mapped or open shows it.
    """
    live = store.lock_state().held if store.part is None else store.is_live()
    if live:
        out.note(Text("note: a broker is running on this store; {effect}", effect=effect))
    return live


def refuse_part(store: Store, advice: str) -> None:
    """Errors: NotAStore for a part of a store."""
    if store.part is not None:
        raise NotAStore(Text("{store} is a part of a store", store=store.path), advice)


def refuse_without_log(store: Store) -> None:
    """Errors: NotAStore for a store, or a part of one, that has no log."""
    if not (store.commitlog or store.dledger):
        elsewhere = Text("if broker.conf sets storePathCommitLog, name this file with -c")
        advice = elsewhere if store.part is None else Text("name a store, or its commitlog/")
        raise NotAStore(Text("{path} has no log", path=store.path), advice)


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


def open_named(path: Path, config: BrokerConfig, parts: frozenset[str] = sources.FOR_READING) -> Store:
    """Open a store or a snapshot, as `files.sources.open_named`; a time may be in the zone of --utc."""
    return sources.open_named(path, config, parts, parse_time)
