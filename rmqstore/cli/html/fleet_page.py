"""Many stores as one HTML page, which sorts its rows without scripts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from rmqstore.cli.html import elements as ui
from rmqstore.cli.printing.quantities import time_text
from rmqstore.texts import Text

if TYPE_CHECKING:
    from rmqstore.views.fleet import Fleet, Row

_BANNERS = {"sound": "ok", "unchecked": "warning", "unreadable": "warning", "problems": "error"}
_TAGS = {
    "sound": Text("sound"),
    "unchecked": Text("unchecked"),
    "unreadable": Text("not opened"),
    "problems": Text("problems"),
}
_TITLES = {
    "state": Text("state"),
    "host": Text("host"),
    "store": Text("store"),
    "lost": Text("lost"),
    "undelivered": Text("undelivered"),
    "checked": Text("checked"),
    "backup": Text("last backup"),
}
"""The orders of the rows, which are those of the columns."""
_STYLE = """
.fleet .tag{white-space:nowrap}input{margin:0 4px 0 0}label{margin-right:14px}
.fleet,.fleet thead,.fleet tbody{display:block}.fleet tbody{display:flex;flex-direction:column}
.fleet tr{display:grid;grid-template-columns:8.5em 1.2fr 1.4fr 4em 8em 7em 7em 3fr;
border-bottom:1px solid var(--line)}
.fleet th,.fleet td{border:0;min-width:0;overflow-wrap:anywhere}
@media screen and (max-width:900px){.fleet thead{display:none}.fleet tr{display:block}
.fleet td{display:flex;padding:1px 0}
.fleet td::before{content:attr(data-label);color:var(--soft);flex:0 0 34%}.fleet td.n{text-align:left}}
"""


def page(found: Fleet, folder: Path) -> Iterator[str]:
    """Yield the page in pieces; it will be in `folder`, from where it links to the pages of stores."""
    title = ui.text(Text("RocketMQ stores"))
    yield from ui.framed(title, _content(found, folder), style=_STYLE + "".join(map(_order, _TITLES)))


def _order(name: str) -> str:
    return f"#by-{name}:checked~table tr{{order:var(--{name})}}\n"


def _content(found: Fleet, folder: Path) -> Iterator[ui.Html]:
    yield ui.element("h1", Text("RocketMQ stores"))
    if not found.rows:
        yield ui.banner("warning", Text("No results were found."))
    else:
        yield ui.banner(_BANNERS[found.rows[0].state.value], found.summary)
        yield from _sorted(found.rows, folder)
    if found.unreadable:
        yield ui.heading(Text("Files that are no results"))
        table = ui.HtmlTable((Text("file"), Text("reason")), ("long",))
        yield from table.pieces((ui.shown(path), ui.shown(why)) for path, why in found.unreadable)


def _sorted(rows: Sequence[Row], folder: Path) -> Iterator[ui.Html]:
    """Yield the table, whose rows the chosen radio button orders: each row knows its place in every order."""
    yield ui.paragraph(Text("Sort by:"), cls="soft")
    for name, title in _TITLES.items():
        checked = {"checked": "checked"} if name == "state" else {}
        button = ui.element("input", type="radio", name="sort", id=f"by-{name}", **checked)
        yield ui.Html(f"{button.removesuffix('</input>')}{ui.element('label', title, **{'for': f'by-{name}'})}\n")
    heads = [ui.text(title) for title in (*_TITLES.values(), Text("verdict"))]
    cells = "".join(ui.element("th", head, scope="col") for head in heads)
    yield ui.Html(f'<table class="fleet"><thead><tr>{cells}</tr></thead><tbody>\n')
    places = _places(rows)
    for number, row in enumerate(rows):
        order = ";".join(f"--{name}:{places[name][number]}" for name in _TITLES)
        kinds = ("", "", "", "n", "n", "", "", "")
        parts = (
            ui.element("td", cell, cls=kind, data_label=head)
            for cell, kind, head in zip(_cells(row, folder), kinds, heads, strict=True)
        )
        yield ui.Html(f'<tr style="{order}">{"".join(parts)}</tr>\n')
    yield ui.Html("</tbody></table>\n")


def _places(rows: Sequence[Row]) -> dict[str, list[int]]:
    """Return the place of each row in every order: text upwards, numbers downwards, the oldest time first."""
    keys: dict[str, Callable[[Row], Any]] = {
        "host": lambda row: (row.host, row.store),
        "store": lambda row: (row.store, row.host),
        "lost": lambda row: -row.lost,
        "undelivered": lambda row: -row.undelivered,
        "checked": lambda row: row.checked or 0,
        "backup": lambda row: row.backup or 0,
    }
    out = {"state": list(range(len(rows)))}
    for name, key in keys.items():
        out[name] = [0] * len(rows)
        for place, number in enumerate(sorted(range(len(rows)), key=lambda number: key(rows[number]))):
            out[name][number] = place
    return out


def _cells(row: Row, folder: Path) -> Iterator[ui.Html]:
    yield ui.element("span", _TAGS[row.state.value], cls=f"tag {_BANNERS[row.state.value]}")
    yield ui.shown(row.host)
    name = ui.shown(row.store)
    if row.page is None:
        yield name
    else:
        yield ui.element("a", name, href=quote(os.path.relpath(row.page.absolute(), folder)))
    yield ui.number(row.lost) if row.counted else ui.NOTHING
    yield ui.number(row.undelivered) if row.counted else ui.NOTHING
    for time in (row.checked, row.backup):
        yield ui.text(Text("never")) if time is None else ui.shown(time_text(time))
    yield ui.text(row.verdict)
