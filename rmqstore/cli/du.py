"""`rmqstore du`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqstore.cli.lang import AsIs
from rmqstore.cli.printing.output import Output
from rmqstore.cli.printing.quantities import (
    bytes_text,
    columns,
    fitted,
    many,
    printable,
    step_text,
    title,
    utc_text,
)
from rmqstore.cli.shared.filters import FilterOptions, note_no_message, note_unknown_topics
from rmqstore.cli.shared.metrics import Metrics, metrics_option, of_usage
from rmqstore.cli.shared.options import WorkOptions, command, gathered
from rmqstore.cli.shared.reading import note_live, refuse_without_log, tell_damage
from rmqstore.errors import UsageError

if TYPE_CHECKING:
    from rmqstore.files.broker_config import BrokerConfig
    from rmqstore.files.store import Store
    from rmqstore.views.disk_usage import DiskUsage
    from rmqstore.views.usage import Usage

DIMENSIONS = ("topic", "queue", "tag", "host", "day", "hour", "minute")
_EACH = ("topic", "queue", "tag", "host", "day")
_TIMES = ("day", "hour", "minute")
_MOST_STEPS = 400  # of a sparkline, on a very wide terminal
_TOP = 10
_TITLES = {
    "topic": "topic",
    "queue": "queue",
    "tag": "tag",
    "host": "producer host",
    "day": "day (UTC)",
    "hour": "hour (UTC)",
    "minute": "minute (UTC)",
}
_SPARKS = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class Counting:
    """What to count by, and how to show it."""

    by: tuple[str, ...]
    plot: bool
    files: bool
    growth: bool
    fillers: bool
    top: int | None


@command(
    "du",
    report=True,
    filters=True,
    work=True,
    examples=(
        "rmqstore du /data/rocketmq/store --by topic --top 20",
        "rmqstore du /data/rocketmq/store --plot --since yesterday",
        "rmqstore du /data/rocketmq/store -c broker.conf --growth",
    ),
)
@click.option(
    "--by",
    multiple=True,
    type=click.Choice(DIMENSIONS),
    help="Count by this (default: by each separately). If repeated: by the combination.",
)
@click.option("--plot", is_flag=True, help="Show bytes over time as a sparkline for each topic, or for each --by.")
@click.option("--files", is_flag=True, help="Show the disk space of the files, per part of the store and per topic.")
@click.option(
    "--growth",
    is_flag=True,
    help="Show how fast the log grows, per topic, and whether the broker's clean-up keeps room on the disk.",
)
@click.option("--fillers", is_flag=True, help="Count records that repairs put in the place of lost messages, too.")
@click.option(
    "--top",
    type=click.IntRange(1),
    metavar="N",
    help="Show only the N largest rows; those of a time are always all shown (default: 10 in text, all in JSON).",
)
@metrics_option
@gathered("counting", Counting)
def du(
    out: Output,
    store: Path,
    config: BrokerConfig,
    counting: Counting,
    metrics: Path | None,
    filters: FilterOptions,
    work: WorkOptions,
) -> int:
    """Count messages and bytes per topic, queue, tag, producer host, day, hour and minute (UTC).

    Counts all messages of the log, including those that consumers no longer see; bytes are those of whole records. Body
    CRCs are not checked: `rmqstore verify` finds damaged bodies. Damaged parts and missing files are skipped and named
    on stderr; the exit code is then 1. --files does not read the log: it shows the length of files, and the space that
    they use on disk, which is less if they are sparse. --growth takes the rate of the last day of messages, and
    simulates the broker's clean-up (deleteWhen, fileReservedTime and the ratios of broker.conf) for the next 30 days.
    """
    from rmqstore.cli.shared.stores import open_named
    from rmqstore.scan.window import ScanOptions
    from rmqstore.scan.workers import Workers, jobs_or_default
    from rmqstore.views.dump.messages import Skipped, logs_of
    from rmqstore.views.usage import usage

    opened = open_named(store, config)
    if counting.growth:
        return _growth(out, store, opened, counting, filters, metrics, work)
    if counting.files:
        return _files(out, store, opened, counting, filters, metrics)
    logs = logs_of(opened)
    refuse_without_log(opened)
    measured = Metrics(out, metrics, "du", store)
    live = note_live(out, opened, "the numbers are changing")
    selection = filters.selection()
    note_unknown_topics(out, opened, filters.topics, selection.queues)
    unit = _unit_of_plot(opened, filters, out) if counting.plot else ""
    wanted, top = _dimensions(counting.by, unit), counting.top
    damage = Skipped(live=live)
    options = ScanOptions(crc=False, drop_cache=live, max_rate=work.max_rate)
    with out.progress("du", sum(log.queue.bytes_on_disk for log in logs)) as progress:
        found = usage(
            opened,
            wanted,
            selection,
            fillers=counting.fillers,
            workers=Workers(jobs_or_default(work.jobs), progress=progress.add),
            options=options,
            damage=damage,
        )
    measured.write(of_usage(found), 1 if damage else 0)
    if out.as_json:
        out.report(found.to_json(str(store), top))
    else:
        if counting.plot:
            out.lines(_plot(found, wanted, top, out))
        else:
            out.lines(_text(found, str(store), wanted, top or _TOP, out.width))
    if found.fillers and not counting.fillers:
        fillers = many(found.fillers, "filler")
        out.note(f"{fillers} of earlier repairs in the place of lost messages not counted (--fillers counts them)")
    if not found.messages:
        note_no_message(out, selection, logs)
    return tell_damage(out, damage)


def _unit_of_plot(opened: Store, filters: FilterOptions, out: Output) -> str:
    """Return by which unit of time to count for a sparkline, from the ends of the log and --since, --until."""
    from rmqstore.views.info import log_span
    from rmqstore.views.over_time.timeline import unit_for

    span = log_span(opened)
    if span is not None:
        first, last = max(span[0], filters.since or 0), min(span[1], filters.until or span[1])
        span = (first, last) if first <= last else None
    return unit_for(span, min(out.width, _MOST_STEPS))


def _dimensions(by: tuple[str, ...], unit: str) -> tuple[str, ...]:
    """What to count by: the combination of all --by, and for JSON also each; with --plot also the `unit` of time."""
    if unit:
        by = (*(dict.fromkeys(name for name in by if name not in _TIMES)),) or ("topic",)
        return (",".join((*by, unit)),)
    chosen = tuple(d for d in (DIMENSIONS if by else _EACH) if not by or d in by)
    return chosen if len(chosen) == 1 or not by else (*chosen, ",".join(dict.fromkeys(by)))


def _text(found: Usage, store: str, dimensions: tuple[str, ...], top: int, width: int) -> Iterator[str]:
    yield f"{store}: {many(found.messages, 'message')}, {bytes_text(found.bytes)}"
    together = [d for d in dimensions if "," in d]
    for dimension in together or dimensions:
        names = dimension.split(",")
        rows = found.rows(dimension)
        shown = rows if set(names) & {*_TIMES} else rows[:top]
        yield ""
        if not rows:
            yield f"by {', '.join(names)}: no messages"
            continue
        yield from _table(found, names, shown, width, max(r["bytes"] for r in rows) or 1)
        if len(shown) < len(rows):
            yield f"… and {many(len(rows) - len(shown), 'more row')} (--top {len(rows)} shows all)"


def _table(
    found: Usage, names: Sequence[str], rows: Sequence[Mapping[str, Any]], width: int, biggest: int
) -> Iterator[str]:
    """Yield rows with a bar each; the labels share the width that the numbers leave."""
    labels = [[_label(r[name]) for name in names] for r in rows]
    titles = [title(_TITLES[name]) for name in names]
    titles[0] = title(f"by {_TITLES[names[0]]}")
    room = (width - 40 - 2 * len(names)) // len(names)
    wide = [max(columns(t), min(max(columns(label[i]) for label in labels), room, 48)) for i, t in enumerate(titles)]
    bar = max(0, min(30, width - sum(wide) - 2 * len(wide) - 33))
    head = "  ".join(fitted(t, w) for t, w in zip(titles, wide, strict=True))
    yield f"{head} {title('messages', 12)} {title('bytes', 11)} {title('share', 6)}"
    for label, row in zip(labels, rows, strict=True):
        share = row["bytes"] / found.bytes if found.bytes else 0
        text = "  ".join(fitted(t, w) for t, w in zip(label, wide, strict=True))
        line = f"{text} {row['messages']:>12,} {bytes_text(row['bytes']):>11} {share:>6.1%}"
        yield AsIs(f"{line}  {_bar(row['bytes'] / biggest, bar)}".rstrip())


def _label(value: str | None) -> str:
    return title("(none)") if value is None else printable(value)


# --- over time -------------------------------------------------------------------------------------------------------


def _plot(found: Usage, dimensions: tuple[str, ...], top: int | None, out: Output) -> Iterator[str]:
    """Yield a sparkline of bytes over time for each label."""
    from rmqstore.views.over_time.timeline import Timeline, timed
    from rmqstore.views.usage import TIMES

    (dimension,) = dimensions
    rows = found.rows(dimension)
    if not rows:
        yield "no messages"
        return
    *names, unit = dimension.split(",")
    lines: dict[str, list[tuple[int, int]]] = {}
    for row, sized in zip(rows, timed(rows, unit, "bytes"), strict=True):
        lines.setdefault("  ".join(_label(row[name]) for name in names), []).append(sized)
    times = [time for line in lines.values() for time, _ in line]
    name = max(12, min(max(map(columns, lines)), out.width // 3))
    line_of = Timeline.of(min(times), max(times), max(8, out.width - name - 27), least=TIMES[unit])
    yield f"{many(found.messages, 'message')}, {bytes_text(found.bytes)}, bytes per {step_text(line_of.step)}"
    yield f"from {utc_text(line_of.start)} to {utc_text(line_of.stop)} UTC; each line has its own scale"
    yield ""
    head = fitted(title(f"by {', '.join(_TITLES[n] for n in names)}"), name)
    yield f"{head}  {' ' * line_of.count}  {title('most', 10)}  {title('bytes', 10)}"
    ordered = sorted(lines.items(), key=lambda kv: (-sum(size for _, size in kv[1]), kv[0]))
    for label, line in ordered[: top or _TOP]:
        buckets = line_of.sums(line)
        most = max(buckets)
        spark = "".join(_SPARKS[-(-size * 8 // most) if most else 0] for size in buckets)
        yield AsIs(f"{fitted(label, name)}  {spark}  {bytes_text(most):>10}  {bytes_text(sum(buckets)):>10}")
    if len(ordered) > (top or _TOP):
        yield f"… and {many(len(ordered) - (top or _TOP), 'more line')} (--top {len(ordered)} shows all)"


def _growth(
    out: Output,
    store: Path,
    opened: Store,
    counting: Counting,
    filters: FilterOptions,
    metrics: Path | None,
    work: WorkOptions,
) -> int:
    from rmqstore.cli.du_growth import tell_growth

    if counting.by or counting.plot or counting.files or counting.fillers or metrics or filters != FilterOptions():
        raise UsageError("--growth excludes --by, --plot, --files, --fillers, --metrics and filters", "use it alone")
    if opened.part is not None:
        raise UsageError(f"{store} is a part of a store", "name the whole store, whose files the clean-up deletes")
    refuse_without_log(opened)
    note_live(out, opened, "the numbers are changing")
    return tell_growth(out, store, opened, work, counting.top or _TOP)


# --- files -----------------------------------------------------------------------------------------------------------


def _files(
    out: Output,
    store: Path,
    opened: Store,
    counting: Counting,
    filters: FilterOptions,
    metrics: Path | None,
) -> int:
    from rmqstore.views.disk_usage import disk_usage

    if counting.by or counting.plot or metrics or filters != FilterOptions():
        raise UsageError("--by, --plot, --metrics and filters do not apply to --files", "leave them out")
    found = disk_usage(opened)
    if out.as_json:
        out.report({"schema": "rmqstore.du/1", "store": str(store), "files": found.to_json()})
        return 0
    out.lines(_files_text(found, str(store), counting.top or _TOP, out.width))
    return 0


def _files_text(found: DiskUsage, store: str, top: int, width: int) -> Iterator[str]:
    total = sum(s.allocated for s in found.parts.values())
    length = sum(s.bytes for s in found.parts.values())
    yield f"{store}: {bytes_text(total)} on disk, in files of {bytes_text(length)}"
    yield ""
    sizes = f"{title('length', 11)} {title('on disk', 11)}"
    yield f"{fitted(title('part'), 20)} {title('files', 8)} {sizes} {title('share', 6)}"
    for name, space in found.parts.items():
        share = space.allocated / total if total else 0
        used = f"{bytes_text(space.bytes):>11} {bytes_text(space.allocated):>11}"
        yield f"{fitted(title(name), 20)} {space.files:>8,} {used} {share:>6.1%}"
    if not found.topics:
        return
    shown = list(found.topics.items())[:top]
    head = title("queues of topic")
    wide = min(max(columns(head), *(columns(printable(name)) for name, _ in shown)), width - 44)
    yield ""
    yield f"{fitted(head, wide)} {title('queues', 8)} {sizes} {title('empty', 6)}"
    for name, space in shown:
        used = f"{bytes_text(space.bytes):>11} {bytes_text(space.allocated):>11}"
        yield AsIs(f"{fitted(printable(name), wide)} {space.queues:>8,} {used} {space.empty_share:>6.1%}")
    if len(found.topics) > top:
        yield f"… and {many(len(found.topics) - top, 'more topic')} (--top {len(found.topics)} shows all)"


_EIGHTHS = " ▏▎▍▌▋▊▉"


def _bar(share: float, width: int) -> str:
    eighths = round(share * width * 8)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
