"""Charts of the reports as inline SVG: the map of a log, messages over time, and shares."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from rmqstore.cli.html.elements import Html, element, heading, paragraph, shown, text
from rmqstore.cli.printing.quantities import bytes_text, step_text, utc_text
from rmqstore.texts import Text, joined

if TYPE_CHECKING:
    from rmqstore.views.reports import MapRow, StoreReport
    from rmqstore.views.usage import Usage

_BARS = 96
_KIND_WORDS = {
    "records": Text("messages"),
    "damaged": Text("damaged"),
    "missing": Text("missing file"),
    "filler": Text("filler of a repair"),
    "blank": Text("end of a file"),
    "empty": Text("not written"),
}


def log_map(found: StoreReport) -> Iterator[Html]:
    """Yield a row for each file of the logs, or for several, with the state of their bytes."""
    if not found.rows:
        return
    yield heading(Text("Map of the log"))
    several = max(row.files for row in found.rows)
    if several > 1:
        yield paragraph(Text("Up to {several} files share a row.", several=several), cls="soft")
    kinds = {stretch.kind for row in found.rows for stretch in row.stretches}
    stops = _stops(found)
    yield Html('<p class="legend">')
    for kind, name in _KIND_WORDS.items():
        if kind in kinds:
            square = f'<svg viewBox="0 0 12 12" aria-hidden="true"><rect class="{kind}" width="12" height="12"/></svg>'
            yield element("span", Html(f"{square} {text(name)}"))
    for offset, versions in stops.items():
        words = Text("{versions} would cut the log at {offset:,}", versions=joined(versions), offset=offset)
        yield element("span", Html(f"▏{text(words)}"))
    yield Html('</p><div class="map">\n')
    log = ""
    for row in found.rows:
        label = row.name if row.log == log or len({r.log for r in found.rows}) == 1 else f"{row.log} {row.name}"
        log = row.log
        yield Html(f"{element('span', shown(label))}{_bar(row, stops)}\n")
    yield Html("</div>\n")


def _stops(found: StoreReport) -> dict[int, list[str]]:
    """Offsets at which versions would cut the log and lose messages."""
    out: dict[int, list[str]] = {}
    for one in found.forecasts:
        if one.starts and one.messages_lost and one.commitlog_stop is not None:
            out.setdefault(one.commitlog_stop, []).append(f"RocketMQ {one.version}")
    return out


def _bar(row: MapRow, stops: Iterable[int]) -> Html:
    length = row.stop - row.start
    parts = []
    for stretch in row.stretches:
        x, width = ((stretch.start - row.start) * 1000 / length, (stretch.stop - stretch.start) * 1000 / length)
        title = ""
        if stretch.kind in ("damaged", "missing", "filler"):
            width = max(width, 3)
            title = element(
                "title",
                Text(
                    "{kind_words}: {start:,} to {stop:,}",
                    kind_words=_KIND_WORDS[stretch.kind],
                    start=stretch.start,
                    stop=stretch.stop,
                ),
            )
        parts.append(f'<rect class="{stretch.kind}" x="{x:.2f}" width="{width:.2f}" height="14">{title}</rect>')
    # problems are drawn last, so that nothing covers a thin mark
    parts.sort(key=lambda part: "<title>" in part)
    for offset in stops:
        if row.start <= offset < row.stop:
            x = (offset - row.start) * 1000 / length
            title = element("title", Text("cut at {offset:,}", offset=offset))
            parts.append(f'<line class="stop" x1="{x:.2f}" x2="{x:.2f}" y2="14">{title}</line>')
    states = ", ".join(sorted({text(_KIND_WORDS[s.kind]) for s in row.stretches}))
    return _drawn(14, states, "".join(parts))


def _drawn(height: int, label: str, content: str) -> Html:
    return Html(
        f'<svg viewBox="0 0 1000 {height}" height="{height}" preserveAspectRatio="none" role="img" '
        f'aria-label="{label}">{content}</svg>'
    )


def over_time(found: Usage, unit: str) -> Iterator[Html]:
    """Yield messages and bytes over time, in steps that fit the span; `unit`: by which time they are counted."""
    rows = found.rows(unit)
    if not rows:
        return
    from rmqstore.views.usage import TIMES, Timeline, timed

    messages, sizes = timed(rows, unit, "messages"), timed(rows, unit, "bytes")
    times = [time for time, _ in messages]
    line = Timeline.of(min(times), max(times), _BARS, least=TIMES[unit])
    ends = utc_text(line.start), utc_text(line.stop)
    yield heading(Text("Messages over time"))
    yield paragraph(Text("Each bar: {step}, UTC", step=step_text(line.step, counted=True)), cls="soft")
    sums = line.sums(messages)
    yield _columns(Text("Messages"), sums, f"{max(sums):,}", ends)
    sums = line.sums(sizes)
    yield _columns(Text("Bytes"), sums, bytes_text(max(sums)), ends)


def _columns(what: str, values: Sequence[int], most: str, ends: tuple[str, str]) -> Html:
    slot = 1000 / len(values)
    width = min(max(slot - (1 if slot > 4 else 0), 0.5), 60)  # a single bar must not fill the whole width
    top = max(values) or 1
    bars = "".join(
        f'<rect class="records" x="{i * slot + (slot - width) / 2:.2f}" y="{118 - value * 100 / top:.2f}" '
        f'width="{width:.2f}" height="{value * 100 / top:.2f}"/>'
        for i, value in enumerate(values)
        if value
    )
    axes = '<line class="axis" x2="1000" y1="118" y2="118"/><line class="axis" x2="1000" y1="18" y2="18"/>'
    caption = element("figcaption", Text("{what}, at most {most}", what=what, most=most), cls="soft")
    marks = element("div", *(element("span", shown(end)) for end in ends), cls="soft ends")
    return Html(f"{element('figure', caption, _drawn(120, text(what), axes + bars), marks)}\n")


def share(part: float) -> Html:
    """Return a bar for a part of a whole."""
    return Html(
        '<svg viewBox="0 0 100 10" height="12" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="records" width="{part * 100:.1f}" height="10" rx="1"/></svg>'
    )
