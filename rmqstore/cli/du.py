"""`rmqstore du`; with --growth, how fast a store grows, and whether the disk has room."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqstore.cli.lang import AsIs
from rmqstore.cli.printing.outlook_text import outlook_lines, outlook_words
from rmqstore.cli.printing.output import Output
from rmqstore.cli.printing.quantities import (
    bytes_text,
    columns,
    fitted,
    many,
    printable,
    step_text,
    table_line,
    title,
    utc_text,
)
from rmqstore.cli.shared.filters import FilterOptions
from rmqstore.cli.shared.messages import tell_damage
from rmqstore.cli.shared.metrics import Metrics, metrics_option, of_usage
from rmqstore.cli.shared.options import WorkOptions, command, gathered
from rmqstore.cli.shared.reading import note_live, open_named, refuse_without_log
from rmqstore.cli.shared.selections import note_no_message, selection_of
from rmqstore.cli.shared.topics import note_unknown_topics
from rmqstore.errors import UsageError
from rmqstore.texts import Placed, Text, joined

if TYPE_CHECKING:
    from rmqstore.files.broker_config import BrokerConfig
    from rmqstore.files.store import Store
    from rmqstore.views.disk_usage import DiskUsage, StoreGrowth
    from rmqstore.views.usage import Usage


DIMENSIONS = ("topic", "queue", "tag", "host", "day", "hour", "minute")
_EACH = ("topic", "queue", "tag", "host", "day")
_TIMES = ("day", "hour", "minute")
_MOST_STEPS = 400  # of a sparkline, on a very wide terminal
_TOP = 10
_TITLES = {
    "topic": "topic",
    "queue": Text("queue"),
    "tag": "tag",
    "host": Text("producer host"),
    "day": Text("day (UTC)"),
    "hour": Text("hour (UTC)"),
    "minute": Text("minute (UTC)"),
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
    from rmqstore.views.dump.messages import Skipped, logs_of
    from rmqstore.views.usage import usage

    opened = open_named(store, config)
    if counting.growth:
        if counting.by or counting.plot or counting.files or counting.fillers or metrics or filters != FilterOptions():
            raise UsageError(
                Text("--growth excludes --by, --plot, --files, --fillers, --metrics and filters"), Text("use it alone")
            )
        return _growth(out, store, opened, work, counting.top or _TOP)
    if counting.files:
        if counting.by or counting.plot or metrics or filters != FilterOptions():
            raise UsageError(
                Text("--by, --plot, --metrics and filters do not apply to --files"), Text("leave them out")
            )
        return _files(out, store, opened, counting.top or _TOP)
    logs = logs_of(opened)
    refuse_without_log(opened)
    measured = Metrics(out, metrics, "du", store)
    live = note_live(out, opened, Text("the numbers are changing"))
    selection = selection_of(filters)
    note_unknown_topics(out, opened, filters.topics, selection.queues)
    unit = _unit_of_plot(opened, filters, out) if counting.plot else ""
    wanted, top = _dimensions(counting.by, unit), counting.top
    damage = Skipped(live=live)
    with out.progress("du", sum(log.queue.bytes_on_disk for log in logs)) as progress:
        found = usage(
            opened,
            wanted,
            selection,
            fillers=counting.fillers,
            workers=work.workers(opened.log_bytes, progress.add),
            options=work.scanning(live, crc=False),
            damage=damage,
        )
    measured.write(of_usage(found), 1 if damage else 0)
    if out.as_json:
        out.report(found.to_json(str(store), top))
    elif counting.plot:
        out.lines(_plot(found, wanted, top, out))
    else:
        out.lines(_text(found, str(store), wanted, top or _TOP, out))
    if found.fillers and not counting.fillers:
        words = Text("{fillers} of earlier repairs in the place of lost messages not counted (--fillers counts them)")
        out.note(words.format(fillers=many(found.fillers, "filler")))
    if not found.messages:
        note_no_message(out, selection, logs)
    return tell_damage(out, damage)


def _unit_of_plot(opened: Store, filters: FilterOptions, out: Output) -> str:
    """Return by which unit of time to count for a sparkline, from the ends of the log and --since, --until."""
    from rmqstore.views.dump.selection import log_span
    from rmqstore.views.usage import unit_for

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


def _text(found: Usage, store: str, dimensions: tuple[str, ...], top: int, out: Output) -> Iterator[str]:
    count, size = many(found.messages, "message"), bytes_text(found.bytes)
    yield Placed("{store}: {count}, {size}", store=store, count=count, size=size)
    together = [d for d in dimensions if "," in d]
    for dimension in together or dimensions:
        names = dimension.split(",")
        rows = found.rows(dimension)
        shown = rows if set(names) & {*_TIMES} else rows[:top]
        yield ""
        if not rows:
            yield Text("by {names}: no messages", names=joined(names))
            continue
        yield from _table(found, names, shown, max(r["bytes"] for r in rows) or 1, out)
        if len(shown) < len(rows):
            yield _more(many(len(rows) - len(shown), "more row"), len(rows))


def _more(left: str, count: int) -> Text:
    return Text("… and {rows} (--top {count} shows all)", rows=left, count=count)


def _table(
    found: Usage, names: Sequence[str], rows: Sequence[Mapping[str, Any]], biggest: int, out: Output
) -> Iterator[str]:
    """Yield rows with a bar each; the labels share the width that the numbers leave."""
    labels = [[_label(r[name]) for name in names] for r in rows]
    titles = [title(_TITLES[name]) for name in names]
    titles[0] = title(Text("by {titles}", titles=_TITLES[names[0]]))
    room = (out.name_width - 40 - 2 * len(names)) // len(names)
    wide = [max(columns(t), min(max(columns(label[i]) for label in labels), room)) for i, t in enumerate(titles)]
    bar = max(0, min(30, out.width - sum(wide) - 2 * len(wide) - 33))
    widths = [*(w + 1 for w in wide[:-1]), wide[-1], -12, -11, -6]
    yield table_line([*titles, title(Text("messages")), title(Text("bytes")), title(Text("share"))], widths)
    for label, row in zip(labels, rows, strict=True):
        share = row["bytes"] / found.bytes if found.bytes else 0
        cells = [*(fitted(t, w) for t, w in zip(label, wide, strict=True)), f"{row['messages']:,}"]
        line = table_line([*cells, bytes_text(row["bytes"]), f"{share:.1%}"], widths)
        yield AsIs(f"{line}  {_bar(row['bytes'] / biggest, bar)}".rstrip())


def _label(value: str | None) -> str:
    return title(Text("(none)")) if value is None else printable(value)


# --- over time -------------------------------------------------------------------------------------------------------


def _plot(found: Usage, dimensions: tuple[str, ...], top: int | None, out: Output) -> Iterator[str]:
    """Yield a sparkline of bytes over time for each label."""
    from rmqstore.views.usage import TIMES, Timeline, timed

    (dimension,) = dimensions
    rows = found.rows(dimension)
    if not rows:
        yield Text("no messages")
        return
    *names, unit = dimension.split(",")
    lines: dict[str, list[tuple[int, int]]] = {}
    for row, sized in zip(rows, timed(rows, unit, "bytes"), strict=True):
        lines.setdefault("  ".join(_label(row[name]) for name in names), []).append(sized)
    times = [time for line in lines.values() for time, _ in line]
    name = max(12, min(max(map(columns, lines)), out.name_width // 3))
    line_of = Timeline.of(min(times), max(times), max(8, out.width - name - 27), least=TIMES[unit])
    count, size, step = many(found.messages, "message"), bytes_text(found.bytes), step_text(line_of.step)
    yield Text("{messages}, {bytes}, bytes per {step}", messages=count, bytes=size, step=step)
    start, stop = utc_text(line_of.start), utc_text(line_of.stop)
    yield Text("from {start} to {stop} UTC; each line has its own scale", start=start, stop=stop)
    yield ""
    head = fitted(title(Text("by {names}", names=joined(_TITLES[n] for n in names))), name)
    yield AsIs(f"{head}  {' ' * line_of.count}  {title(Text('most'), 10)}  {title(Text('bytes'), 10)}")
    ordered = sorted(lines.items(), key=lambda kv: (-sum(size for _, size in kv[1]), kv[0]))
    for label, line in ordered[: top or _TOP]:
        buckets = line_of.sums(line)
        most = max(buckets)
        spark = "".join(_SPARKS[-(-size * 8 // most) if most else 0] for size in buckets)
        yield AsIs(f"{fitted(label, name)}  {spark}  {bytes_text(most):>10}  {bytes_text(sum(buckets)):>10}")
    if len(ordered) > (top or _TOP):
        yield _more(many(len(ordered) - (top or _TOP), "more line"), len(ordered))


# --- files -----------------------------------------------------------------------------------------------------------


def _files(out: Output, store: Path, opened: Store, top: int) -> int:
    from rmqstore.views.disk_usage import disk_usage

    found = disk_usage(opened)
    document = {"schema": "rmqstore.du/1", "store": str(store), "files": found.to_json()}
    out.answer(document, _files_text(found, str(store), top, out.name_width), wrap=False)
    return 0


def _files_text(found: DiskUsage, store: str, top: int, width: int) -> Iterator[str]:
    total = sum(s.allocated for s in found.parts.values())
    length = sum(s.bytes for s in found.parts.values())
    used, size = bytes_text(total), bytes_text(length)
    yield Text("{store}: {used} on disk, in files of {size}", store=store, used=used, size=size)
    yield ""
    sizes, widths = [title(Text("length")), title(Text("on disk"))], (-8, -11, -11, -6)
    yield table_line([title(Text("part")), title(Text("files")), *sizes, title(Text("share"))], (20, *widths))
    for name, space in found.parts.items():
        share, lengths = space.allocated / total if total else 0, map(bytes_text, (space.bytes, space.allocated))
        yield table_line([title(name), f"{space.files:,}", *lengths, f"{share:.1%}"], (20, *widths))
    if not found.topics:
        return
    shown = list(found.topics.items())[:top]
    head = title(Text("queues of topic"))
    wide = min(max(columns(head), *(columns(printable(name)) for name, _ in shown)), width - 44)
    yield ""
    yield table_line([head, title(Text("queues")), *sizes, title(Text("empty"))], (wide, *widths))
    for name, space in shown:
        lengths = map(bytes_text, (space.bytes, space.allocated))
        cells = [printable(name), f"{space.queues:,}", *lengths, f"{space.empty_share:.1%}"]
        yield table_line(cells, (wide, *widths))
    if len(found.topics) > top:
        yield _more(many(len(found.topics) - top, "more topic"), len(found.topics))


_EIGHTHS = " ▏▎▍▌▋▊▉"


def _bar(share: float, width: int) -> str:
    eighths = round(share * width * 8)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def _growth(out: Output, store: Path, opened: Store, work: WorkOptions, top: int) -> int:
    from rmqstore.brokers.outlook import rules_of
    from rmqstore.views.disk_usage import store_growth
    from rmqstore.views.dump.messages import Skipped

    if opened.part is not None:
        raise UsageError(
            Text("{store} is a part of a store", store=store),
            Text("name the whole store, whose files the clean-up deletes"),
        )
    refuse_without_log(opened)
    live = note_live(out, opened, Text("the numbers are changing"))
    damage = Skipped(live=live)
    options = work.scanning(live, crc=False)
    with out.progress("du", None) as progress:
        workers = work.workers(opened.log_bytes, progress.add)
        found = store_growth(opened, rules_of(opened.config, version=work.broker), workers, options, damage)
    growth = None if found is None else found.to_json()
    document = {"schema": "rmqstore.du/1", "store": str(store), "growth": growth}
    out.answer(document, _growth_text(found, top, out.name_width))
    return tell_damage(out, damage)


def _growth_text(found: StoreGrowth | None, top: int, width: int) -> Iterator[str]:
    if found is None:
        yield Text("The log has no messages of two different times: its growth is unknown.")
        return
    yield outlook_words(found.outlook)
    yield ""
    yield from outlook_lines(found.outlook)
    if found.outlook.rate.is_guess:
        return
    yield ""
    shown = found.topics[:top]
    head = title(Text("by topic"))
    wide = max(columns(head), min(width - 46, max((columns(printable(one.topic)) for one in shown), default=0)))
    widths = (wide, -12, -11, -6, -8)
    titles = (Text("messages/h"), Text("bytes/h"), Text("share"), Text("trend"))
    yield table_line([head, *map(title, titles)], widths)
    total = sum(one.bytes for one in found.topics)
    new = title(Text("new")) if found.outlook.rate.before else "–"
    for one in shown:
        share = one.bytes / total if total else 0
        trend = new if one.trend is None else f"{one.trend - 1:+.0%}"
        cells = [printable(one.topic), _rate(one.messages), bytes_text(one.bytes), f"{share:.1%}", trend]
        yield table_line(cells, widths)
    if len(found.topics) > top:
        yield _more(many(len(found.topics) - top, "more topic"), len(found.topics))


def _rate(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 else f"{number:,.1f}"
