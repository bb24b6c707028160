"""`rmqstore du --growth`: how fast a store grows, and whether the disk has room."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rmqstore.cli.lang import AsIs
from rmqstore.cli.printing.outlook_text import outlook_lines, outlook_words
from rmqstore.cli.printing.output import Output
from rmqstore.cli.printing.quantities import bytes_text, columns, fitted, many, printable, title
from rmqstore.texts import Placed, Text

if TYPE_CHECKING:
    from rmqstore.cli.shared.options import WorkOptions
    from rmqstore.files.store import Store
    from rmqstore.views.disk_usage import StoreGrowth


def tell_growth(out: Output, store: Path, opened: Store, work: WorkOptions, top: int) -> int:
    """Print the growth of a store; return the exit code."""
    from rmqstore.cli.shared.reading import tell_damage
    from rmqstore.repair.expire import rules_of
    from rmqstore.scan.window import ScanOptions
    from rmqstore.scan.workers import Workers, jobs_or_default
    from rmqstore.views.disk_usage import store_growth
    from rmqstore.views.dump.messages import Skipped

    live = opened.lock_state().held
    damage = Skipped(live=live)
    options = ScanOptions(crc=False, drop_cache=live, max_rate=work.max_rate)
    with out.progress("du", None) as progress:
        workers = Workers(jobs_or_default(work.jobs), progress=progress.add)
        found = store_growth(opened, rules_of(opened.config, version=work.broker), workers, options, damage)
    if out.as_json:
        growth = None if found is None else found.to_json()
        out.report({"schema": "rmqstore.du/1", "store": str(store), "growth": growth})
    elif found is None:
        out.lines([Text("The log has no messages of two different times: its growth is unknown.")], wrap=True)
    else:
        out.lines(_text(found, top, out.width), wrap=True)
    return tell_damage(out, damage)


def _text(found: StoreGrowth, top: int, width: int) -> Iterator[str]:
    yield outlook_words(found.outlook)
    yield ""
    yield from outlook_lines(found.outlook)
    yield ""
    shown = found.topics[:top]
    head = title(Text("by topic"))
    wide = max(columns(head), min(width - 46, max((columns(printable(one.topic)) for one in shown), default=0)))
    rates = f"{title('messages/h', 12)} {title('bytes/h', 11)}"
    yield Placed(
        "{fitted} {rates} {title} {title2}",
        fitted=fitted(head, wide),
        rates=rates,
        title=title(Text("share"), 6),
        title2=title(Text("trend"), 8),
    )
    total = sum(one.bytes for one in found.topics)
    for one in shown:
        share = one.bytes / total if total else 0
        new = title("new" if found.outlook.rate.before else "–", 8)
        trend = new if one.trend is None else f"{one.trend - 1:>+8.0%}"
        numbers = f"{_rate(one.messages):>12} {bytes_text(one.bytes):>11} {share:>6.1%} {trend}"
        yield AsIs(f"{fitted(printable(one.topic), wide)} {numbers}")
    if len(found.topics) > top:
        yield Text(
            "… and {topics} (--top {count} shows all)",
            topics=many(len(found.topics) - top, "more topic"),
            count=len(found.topics),
        )


def _rate(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 else f"{number:,.1f}"
