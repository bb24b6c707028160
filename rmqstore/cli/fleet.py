"""`rmqstore fleet`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from rmqstore.cli.lang import AsIs, translated
from rmqstore.cli.printing.output import Output, Styled
from rmqstore.cli.printing.quantities import DURATION, PAGE_MODE, columns, table_line, time_text, wrapped
from rmqstore.cli.shared.metrics import Metrics, metrics_option, of_fleet
from rmqstore.cli.shared.options import FILE, SOURCE, command
from rmqstore.errors import NotReadable, UsageError
from rmqstore.texts import Text

if TYPE_CHECKING:
    from rmqstore.views.fleet import Fleet, Row

_STYLES = {"sound": "green", "unchecked": "yellow", "unreadable": "yellow", "problems": "red"}


@command(
    "fleet",
    store=False,
    report=True,
    examples=(
        "rmqstore fleet results/",
        "rmqstore fleet results/ --max-age 2d --html fleet.html --metrics /var/lib/node_exporter/rmqstore-fleet.prom",
        "cat results/*.json | rmqstore fleet - --json",
    ),
)
@click.argument("places", nargs=-1, required=True, metavar="FILE|DIR...", type=SOURCE)
@click.option(
    "--max-age",
    type=DURATION,
    metavar="TIME",
    help="A store is not sound by a result that is older than this, such as 2d.",
)
@click.option("--html", type=FILE, metavar="FILE", help="Also write an HTML page, with links to the pages of stores.")
@click.option("--mode", type=PAGE_MODE, help="Octal mode of the page of --html, such as 644 (default: 600).")
@metrics_option
def fleet(
    out: Output,
    places: tuple[Path, ...],
    max_age: float | None,
    html: Path | None,
    mode: int | None,
    metrics: Path | None,
) -> int:
    """Show many stores in one table, the worst first, from results that were collected from their hosts.

    Reads what `verify --json`, `doctor --json` and `backup --json` printed, also one object per line, and files of
    --metrics. A directory is read with all below it: *.json, *.ndjson, *.jsonl and *.prom. The host is the name of the
    file, or of the directory below DIR that it is in; - reads stdin. The newest result of a store counts: its age is
    that of the file. A page HOST.html beside HOST.json is linked from the page. -q prints only stores that are not
    sound. Exit code: that of the worst store, as `verify` gives it.
    """
    from rmqstore.views.fleet import gather

    if mode is not None and html is None:
        raise UsageError(Text("--mode needs --html"), Text("other outputs are private"))
    measured = Metrics(out, metrics, "fleet")
    found = gather(places, int(time.time() * 1000), None if max_age is None else int(max_age * 1000), _stdin)
    if html is not None:
        from rmqstore.cli.html.fleet_page import page

        target = Output(path=html, quiet=out.quiet, mode=mode)
        with target.stream() as file:
            file.writelines(piece.encode("utf-8", "replace") for piece in page(found, html.absolute().parent))
        target.note(Text("page saved to {path}", path=html))
    measured.add(of_fleet(found), found.exit_code)
    measured.end()
    if out.as_json:
        out.report(_document(found))
    elif out.quiet and out.path is None:
        out.lines(_lines(out, found, [row for row in found.rows if row.state.exit_code]))
    else:
        out.lines(_text(out, found))
    return found.exit_code


def _stdin() -> BinaryIO:
    """Errors: NotReadable if it is closed."""
    if sys.stdin is None:
        raise NotReadable(Text("stdin is closed"), Text("name files or directories"))
    return sys.stdin.buffer


def _document(found: Fleet) -> dict[str, Any]:
    return {
        "schema": "rmqstore.fleet/1",
        "states": {state.value: count for state, count in sorted(found.states.items())},
        "stores": [row.to_json() for row in found.rows],
        "unreadable": [{"path": path, "reason": reason} for path, reason in found.unreadable],
    }


def _text(out: Output, found: Fleet) -> Iterator[str | Styled]:
    if found.rows:
        worst = found.rows[0].state
        yield Styled(found.summary, style=f"bold {_STYLES[worst.value]}")
        yield ""
    else:
        yield Styled(Text("No results were found."), style="bold yellow")
    yield from _lines(out, found, list(found.rows))


def _lines(out: Output, found: Fleet, rows: list[Row]) -> Iterator[str | Styled]:
    """Yield the table; on a terminal, a verdict that does not fit is below its row."""
    titles = [Text("host"), Text("store"), Text("lost"), Text("undelivered"), Text("checked"), Text("last backup")]
    heads = [translated(title) for title in titles]
    cells = [_cells(row) for row in rows]
    widths = [max(map(columns, column)) for column in zip(heads, *cells, strict=True)]
    widths[2], widths[3] = -widths[2], -widths[3]
    room = None if out.terminal_width is None else out.terminal_width - sum(map(abs, widths)) - len(widths)
    if rows:
        yield AsIs(f"{table_line(heads, widths)} {translated(Text('verdict'))}")
    for row, own in zip(rows, cells, strict=True):
        words, style = translated(row.verdict), _STYLES[row.state.value]
        line = Styled(AsIs(table_line(own, widths)))
        if room is None or columns(words) <= room:
            yield line.append(AsIs(f" {words}"), style=style)
            continue
        yield line
        for part in wrapped(AsIs(words), out.width, first="  ", then="  "):
            yield Styled(AsIs(part), style=style)
    for path, why in found.unreadable:
        yield Styled(Text("{path}: not read: {why}", path=path, why=why), style="yellow")


def _cells(row: Row) -> tuple[str, ...]:
    counts = (f"{row.lost:,}", f"{row.undelivered:,}") if row.counted else ("", "")
    times = (translated(Text("never")) if time is None else time_text(time) for time in (row.checked, row.backup))
    return row.host, row.store, *counts, *times
