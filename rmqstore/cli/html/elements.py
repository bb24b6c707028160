"""The parts of a page: escaped texts in the language of the user, elements, tables, and the frame with its styles.

Content is one of three kinds of text: `Html` is markup, `AsIs` a value of a store, and any other `str` a text of the
code, which is translated. Only `Html` is not escaped.

Charts are inline SVG: the map of a log, messages over time, and shares.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from rmqstore.cli import lang
from rmqstore.cli.lang import AsIs
from rmqstore.cli.printing.quantities import bytes_text, step_text, time_text, utc_text
from rmqstore.formats.text import harmless
from rmqstore.texts import Text
from rmqstore.texts import joined as joined_texts

if TYPE_CHECKING:
    from rmqstore.views.lost import LostMessage
    from rmqstore.views.reports import MapRow, StoreReport
    from rmqstore.views.usage import Usage


_LONGEST, _LONGEST_TEXT = 300, 2400
_QUOTED = re.compile(r"`([^`<>]+)`")
_STYLE = """
:root{color-scheme:light dark;--bg:#fff;--fg:#1c2024;--soft:#60646c;--line:#d9dce0;--card:#f6f7f9;--data:#3e63dd;
--grid:#e8eaed;--ok:#18794e;--okbg:#e6f6ec;--bad:#c62a2f;--badbg:#fdecec;--mid:#8a5a00;--midbg:#fff4d6;--blank:#b9bec6;
--empty:#eceef1;--filler:#8e4ec6}
@media (prefers-color-scheme:dark){:root{--bg:#111214;--fg:#edeef0;--soft:#a3a8b0;--line:#363a40;--card:#1a1c1f;
--data:#7b95f4;--grid:#2a2d32;--ok:#5bd197;--okbg:#10291d;--bad:#ff8b8b;--badbg:#351417;--mid:#f2c55c;--midbg:#2e2307;
--blank:#565b63;--empty:#25282c;--filler:#c79bf0}}
*{box-sizing:border-box}body{margin:0;background:var(--bg);color:var(--fg);font:15px/1.5 var(--font)}
:root{--font:system-ui,-apple-system,"Segoe UI",Roboto,"PingFang SC","Hiragino Sans GB","Microsoft YaHei",
"Noto Sans CJK SC","Source Han Sans SC","WenQuanYi Micro Hei",sans-serif}
main{max-width:1180px;margin:0 auto;padding:20px 16px 48px}h1{font-size:1.35rem;margin:0;overflow-wrap:anywhere}
h2{font-size:1.1rem;margin:36px 0 8px}h3{font-size:1rem;margin:0}p{margin:6px 0}.soft{color:var(--soft)}
.verdict{border-radius:8px;padding:14px 16px;margin:16px 0;font-size:1.1rem;font-weight:600}
.ok{background:var(--okbg);color:var(--ok)}.error{background:var(--badbg);color:var(--bad)}
.warning{background:var(--midbg);color:var(--mid)}.note{background:var(--card);color:var(--soft)}
.facts{display:flex;flex-wrap:wrap;gap:12px}.facts div{background:var(--card);border-radius:8px;padding:8px 14px}
.facts b{display:block;font-size:1.2rem;font-variant-numeric:tabular-nums}
dl{display:grid;grid-template-columns:max-content 1fr;gap:2px 16px;margin:8px 0}dt{color:var(--soft)}
dd{margin:0;overflow-wrap:anywhere}
table{border-collapse:collapse;width:100%;font-size:.92rem}th{color:var(--soft);font-weight:600;text-align:left}
th,td{padding:5px 12px 5px 0;border-bottom:1px solid var(--line);vertical-align:top;overflow-wrap:break-word}
.long{overflow-wrap:anywhere;min-width:9em}.n .soft{white-space:normal}.time{white-space:nowrap}
.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}td.bar{width:30%;min-width:80px}
td.bar svg{margin-top:.3em}
.card{border:1px solid var(--line);border-radius:8px;padding:12px 16px;margin:12px 0}
.card h3{margin-top:14px}.card h3:first-of-type{margin-top:4px}
.tag{border-radius:4px;padding:1px 8px;font-size:.8rem;font-weight:700;text-transform:uppercase;margin-right:6px}
.mark{border-radius:4px;padding:1px 8px;font-size:.8rem;background:var(--card);color:var(--soft);white-space:nowrap}
code{background:var(--card);border-radius:4px;padding:0 4px}.below{margin-left:1.5em;color:var(--soft)}
pre{background:var(--card);border-radius:6px;padding:8px 12px;white-space:pre-wrap;overflow-wrap:anywhere;
user-select:all;margin:8px 0}svg{display:block;width:100%}svg text{fill:var(--soft);font:12px var(--font)}
.map{display:grid;grid-template-columns:minmax(90px,max-content) 1fr;gap:4px 10px;align-items:center;font-size:.8rem}
.map span{font-variant-numeric:tabular-nums;color:var(--soft);overflow-wrap:anywhere}
.records{fill:var(--data)}.damaged{fill:var(--bad)}.missing{fill:var(--mid)}.filler{fill:var(--filler)}
.blank{fill:var(--blank)}.empty{fill:var(--empty)}.stop{stroke:var(--fg);stroke-width:3}
.legend{display:flex;flex-wrap:wrap;gap:4px 16px;font-size:.85rem}.legend svg{display:inline;width:12px;height:12px}
.axis{stroke:var(--grid)}.ends{display:flex;justify-content:space-between}figure{margin:8px 0}
li{margin:6px 0}
@media print{:root{--bg:#fff;--fg:#000;--soft:#444;--line:#bbb;--card:#f3f3f3;--ok:#0b5c36;--bad:#a01015;--mid:#6b4500}
html{font-size:11px}body{font-size:1rem}main{max-width:none;padding:0}h2,h3{break-after:avoid}tr,figure,pre,.verdict{break-inside:avoid}
thead{display:table-header-group}*{print-color-adjust:exact}@page{margin:14mm}}
@media screen and (max-width:640px){.map{grid-template-columns:1fr;gap:0}.map svg{margin-bottom:6px}
dl{grid-template-columns:1fr}dd{margin-bottom:6px}
table,tbody,tr,td{display:block}thead,td.bar,td:empty{display:none}tr{border-bottom:1px solid var(--line);padding:6px 0}
td{border:0;padding:1px 0;display:flex;gap:10px;text-align:left;white-space:normal;overflow-wrap:anywhere}
td::before{content:attr(data-label);color:var(--soft);flex:0 0 34%}td>*{min-width:0}.long{min-width:0}
td.n{text-align:left}}
"""


class Html(str):
    """Markup, whose texts are escaped."""

    __slots__ = ()


NOTHING = Html("")


def shown(value: object, longest: int = _LONGEST) -> Html:
    """Return a value of a store: escaped, shortened, without control characters, never translated."""
    text = str(value)
    text = text if len(text) <= longest else text[:longest] + "…"
    return Html(html.escape(harmless(text.encode("utf-8", "backslashreplace").decode())))


def number(value: int) -> Html:
    """Return a number, with separators of its thousands."""
    return shown(f"{value:,}")


def text(sentence: str) -> Html:
    """Return a text in the language of the user."""
    if isinstance(sentence, Html):
        return sentence
    if isinstance(sentence, AsIs):
        return shown(sentence)
    return Html(_QUOTED.sub(r"<code>\1</code>", shown(lang.translated(sentence), _LONGEST_TEXT)))


def element(name: str, /, *content: str, cls: str = "", **attributes: str) -> Html:
    """Return an element; `_` in the name of an attribute stands for `-`. Only `Html` is a text in an attribute."""
    own = {"class": cls, **attributes} if cls else attributes
    values = {key: value if isinstance(value, Html) else shown(value) for key, value in own.items()}
    head = "".join(f' {key.replace("_", "-")}="{value}"' for key, value in values.items())
    return Html(f"<{name}{head}>{''.join(map(text, content))}</{name}>")


def joined(parts: Iterable[Html]) -> Html:
    """Return elements one after the other."""
    return Html("".join(parts))


def heading(words: str) -> Html:
    """Return the title of a section."""
    return element("h2", words)


def paragraph(*content: str, cls: str = "") -> Html:
    """Return a paragraph."""
    return Html(f"{element('p', *content, cls=cls)}\n")


def command(words: str) -> Html:
    """Return a command to copy, which is shown whole."""
    return element("pre", shown(words, _LONGEST_TEXT))


class HtmlTable:
    """A table, which becomes a list of its rows on a narrow screen: each cell then shows its title.

    `kinds`: the class of each column, such as `n` for numbers and `bar`.
    """

    def __init__(self, titles: Sequence[str], kinds: Sequence[str] = ()) -> None:
        self._titles = [text(title) for title in titles]
        self._kinds = [*kinds, *[""] * (len(titles) - len(kinds))]

    def pieces(self, rows: Iterable[Sequence[str]]) -> Iterator[Html]:
        """Yield the markup row by row."""
        heads = (
            element("th", title, cls=kind, scope="col") for title, kind in zip(self._titles, self._kinds, strict=True)
        )
        yield Html(f"<table><thead><tr>{''.join(heads)}</tr></thead><tbody>\n")
        for row in rows:
            cells = (
                element("td", cell, cls=kind, data_label=title) if title else element("td", cell, cls=kind)
                for cell, title, kind in zip(row, self._titles, self._kinds, strict=True)
            )
            yield Html(f"<tr>{''.join(cells)}</tr>\n")
        yield Html("</tbody></table>\n")


def pairs(rows: Iterable[tuple[str, str]]) -> Html:
    """Return names with their values."""
    return element("dl", *(joined((element("dt", name), element("dd", value))) for name, value in rows))


def banner(state: str, sentence: str) -> Html:
    """Return the verdict; `state`: ok, warning or error."""
    sign = {"ok": "✓", "warning": "!", "error": "✕"}[state]
    return element("p", Html(f"{sign} "), sentence, cls=f"verdict {state}")


def cards(facts: Iterable[tuple[str, str]]) -> Html:
    """Return values with their names."""
    return element("div", *(element("div", element("b", value), name) for value, name in facts), cls="facts")


def framed(title: Html, content: Iterable[Html], *, style: str = "") -> Iterator[str]:
    """Yield a whole page in pieces; `style`: CSS of its own."""
    language = "en" if lang.is_english() else "zh-CN"
    yield f'<!doctype html>\n<html lang="{language}"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width,initial-scale=1">'
    yield f"<title>{title}</title><style>{_STYLE}{style}</style></head><body><main>\n"
    yield from content
    yield "</main></body></html>\n"


SEVERITY_WORDS = {"error": Text("error"), "warning": Text("warning"), "note": Text("note")}
STATE_WORDS = {
    "preparing": Text("never started"),
    "applying": Text("unfinished"),
    "done": Text("applied"),
    "undoing": Text("undo unfinished"),
    "undone": Text("undone"),
    "pruning": Text("being removed"),
    "missing": Text("its journal is missing"),
}
POP_WORDS = {
    "acknowledged": Text("acknowledged"),
    "invisible": Text("not acknowledged"),
    "returned": Text("returned to the retry topic"),
    "unknown": Text("unknown"),
}


def named(one: LostMessage) -> list[Html]:
    """Return the cells that name a message: queue, offset, keys, unique id."""
    cells = (f"{one.topic}/{one.queue_id}", f"{one.queue_offset:,}", one.keys or "", one.unique_key or "")
    return list(map(shown, cells))


def stored(one: LostMessage) -> Html:
    """Return when a message was stored, as far as that is known."""
    return shown("" if one.time is None else time_text(one.time))


def consumers(one: LostMessage) -> Html:
    """Return which groups had consumed a message."""
    if one.consumed_by is None:
        return text(Text("unknown"))
    return shown(", ".join(one.consumed_by)) if one.consumed_by else text(Text("no group"))


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
        words = Text("{versions} would cut the log at {offset:,}", versions=joined_texts(versions), offset=offset)
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
            words, kind = Text("{kind}: {start:,} to {stop:,}"), _KIND_WORDS[stretch.kind]
            title = element("title", words.format(kind=kind, start=stretch.start, stop=stretch.stop))
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
