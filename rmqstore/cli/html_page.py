"""The report of a store as one HTML page without scripts and network: inline SVG, light and dark, printable."""

from __future__ import annotations

import html
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from rmqstore import __version__
from rmqstore.checks.problems.report import Finding, next_command, store_words
from rmqstore.checks.problems.table import PROBLEMS, Severity
from rmqstore.cli.printing.quantities import bytes_text, many, time_text
from rmqstore.cli.verify_text import facts_of, groups_of, verdict_sentence

if TYPE_CHECKING:
    from rmqstore.brokers.rules.forecast import StartForecast
    from rmqstore.checks.problems.report import Report
    from rmqstore.views.report import MapRow, StoreReport

_EXAMPLES, _CODES, _TOPICS, _LAGS, _LONGEST = 10, 60, 30, 40, 300
_BARS = 120
_CONTROLS = dict.fromkeys((*range(9), *range(11, 32), *range(127, 160)), "·")
_KINDS = {
    "records": "messages",
    "damaged": "damaged",
    "missing": "missing file",
    "filler": "filler of a repair",
    "blank": "end of a file",
    "empty": "not written",
}
_STYLE = """
:root{color-scheme:light dark;--bg:#fff;--fg:#1c2024;--soft:#60646c;--line:#d9dce0;--card:#f6f7f9;--data:#3e63dd;
--grid:#e8eaed;--ok:#18794e;--okbg:#e6f6ec;--bad:#c62a2f;--badbg:#fdecec;--mid:#8a5a00;--midbg:#fff4d6;--blank:#b9bec6;
--empty:#eceef1;--filler:#8e4ec6}
@media (prefers-color-scheme:dark){:root{--bg:#111214;--fg:#edeef0;--soft:#a3a8b0;--line:#363a40;--card:#1a1c1f;
--data:#7b95f4;--grid:#2a2d32;--ok:#5bd197;--okbg:#10291d;--bad:#ff8b8b;--badbg:#351417;--mid:#f2c55c;--midbg:#2e2307;
--blank:#565b63;--empty:#25282c;--filler:#c79bf0}}
*{box-sizing:border-box}body{margin:0;background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,sans-serif}
main{max-width:1180px;margin:0 auto;padding:20px 16px 48px}h1{font-size:1.35rem;margin:0;overflow-wrap:anywhere}
h2{font-size:1.1rem;margin:36px 0 8px}h3{font-size:1rem;margin:0}p{margin:6px 0}.soft{color:var(--soft)}
.verdict{border-radius:8px;padding:14px 16px;margin:16px 0;font-size:1.1rem;font-weight:600}
.ok{background:var(--okbg);color:var(--ok)}.error{background:var(--badbg);color:var(--bad)}
.warning{background:var(--midbg);color:var(--mid)}.note{background:var(--card);color:var(--soft)}
.facts{display:flex;flex-wrap:wrap;gap:12px}.facts div{background:var(--card);border-radius:8px;padding:8px 14px}
.facts b{display:block;font-size:1.2rem;font-variant-numeric:tabular-nums}.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.92rem}th{color:var(--soft);font-weight:600;text-align:left}
th,td{padding:5px 12px 5px 0;border-bottom:1px solid var(--line);vertical-align:top;overflow-wrap:break-word}
.long{overflow-wrap:anywhere;min-width:9em}.n .soft{white-space:normal}
.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}td.bar{width:30%;min-width:80px}
.card{border:1px solid var(--line);border-radius:8px;padding:12px 16px;margin:12px 0;break-inside:avoid}
.tag{border-radius:4px;padding:1px 8px;font-size:.8rem;font-weight:700;text-transform:uppercase;margin-right:6px}
pre{background:var(--card);border-radius:6px;padding:8px 12px;white-space:pre-wrap;overflow-wrap:anywhere;
user-select:all;margin:8px 0}svg{display:block;width:100%}svg text{fill:var(--soft);font:12px system-ui,sans-serif}
.map{display:grid;grid-template-columns:minmax(90px,max-content) 1fr;gap:4px 10px;align-items:center;font-size:.8rem}
.map span{font-variant-numeric:tabular-nums;color:var(--soft);overflow-wrap:anywhere}
.records{fill:var(--data)}.damaged{fill:var(--bad)}.missing{fill:var(--mid)}.filler{fill:var(--filler)}
.blank{fill:var(--blank)}.empty{fill:var(--empty)}.stop{stroke:var(--fg);stroke-width:3}
.legend{display:flex;flex-wrap:wrap;gap:4px 16px;font-size:.85rem}.legend svg{display:inline;width:12px;height:12px}
.axis{stroke:var(--grid)}@media print{body{font-size:12px}h2{break-after:avoid}.wide{overflow:visible}}
@media (max-width:520px){.map{grid-template-columns:1fr;gap:0}.map svg{margin-bottom:6px}td.bar,th.bar{display:none}}
"""


def page(found: StoreReport) -> Iterator[str]:
    """Yield the page in pieces. All texts of the store are escaped, and bodies are left out."""
    report = found.report
    yield '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width,initial-scale=1">'
    yield f"<title>{_text(report.store)}: report of a RocketMQ store</title>"
    yield f"<style>{_STYLE}</style></head><body><main>\n"
    yield from _head(found)
    yield from _forecasts(found)
    yield from _findings(report)
    yield from _lost(found)
    yield from _map(found)
    yield from _over_time(found)
    yield from _topics(found)
    yield from _lags(found)
    yield from _unchecked(report)
    made = time_text(int(time.time() * 1000))
    yield f'<p class="soft">Made by rmqstore {_text(__version__)} at {_text(made)}, in {report.seconds:,.1f} s.</p>'
    yield "</main></body></html>\n"


def _text(value: object) -> str:
    """Escape and shorten a text."""
    shown = str(value)
    shown = shown if len(shown) <= _LONGEST else shown[:_LONGEST] + "…"
    return html.escape(shown.encode("utf-8", "backslashreplace").decode().translate(_CONTROLS))


def _head(found: StoreReport) -> Iterator[str]:
    report = found.report
    worst = report.findings.worst
    broker = report.broker or {}
    bad = (
        (worst is not None and worst >= Severity.ERROR) or broker.get("starts") is False or broker.get("messages_lost")
    )
    state, sign = ("error", "✕") if bad else ("ok", "✓") if report.clean else ("warning", "!")
    yield f'<h1>{_text(report.store)}</h1><p class="soft">RocketMQ {_text(report.kind)} store'
    yield "; a broker was running on it, so this report is not final</p>" if report.live else "</p>"
    yield f'<p class="verdict {state}">{sign} {_text_whole(verdict_sentence(report))}</p><div class="facts">'
    times = [log[name] for log in report.logs for name in ("first_timestamp", "last_timestamp") if log.get(name)]
    facts = [
        ("messages", f"{found.usage.messages:,}"),
        ("size of the messages", bytes_text(found.usage.bytes)),
        ("files of the log", f"{sum(row.files for row in found.rows):,}"),
        ("topics", f"{len(found.usage.tables.get('topic', {})):,}"),
    ]
    if times:
        facts.append(("stored", f"{time_text(min(times))} to {time_text(max(times))}"))
    yield from (f"<div><b>{_text(value)}</b>{_text(name)}</div>" for name, value in facts)
    yield "</div>\n"
    for note in [*report.notes, *report.filler_notes]:
        yield f"<p>{_text_whole(note)}</p>"


def _text_whole(text: str) -> str:
    return "".join(_text(text[at : at + _LONGEST]) for at in range(0, min(len(text), 8 * _LONGEST), _LONGEST))


# --- the next start --------------------------------------------------------------------------------------------------


def _forecasts(found: StoreReport) -> Iterator[str]:
    if not found.forecasts:
        return
    yield '<h2>The next broker start</h2><div class="wide"><table><tr><th>RocketMQ</th><th>starts</th>'
    yield '<th class="n">messages lost</th><th class="n">log ends at</th><th class="n">files deleted</th></tr>\n'
    for one in found.forecasts:
        yield from _forecast(one)
    yield "</table></div>\n"


def _forecast(one: StartForecast) -> Iterator[str]:
    starts = "yes" if one.starts else f"no: {one.reason}" + (f" (exit code {one.exit_code})" if one.exit_code else "")
    stop = "" if one.commitlog_stop is None else f"{one.commitlog_stop:,}"
    deleted = len(one.files_deleted) + len(one.other_files_deleted)
    topics = ", ".join(f"{topic} {n:,}" for topic, n in sorted(one.lost_by_topic.items(), key=lambda kv: -kv[1])[:3])
    lost = f"{one.messages_lost:,}" + (f"<br><span class=soft>{_text(topics)} …</span>" if topics else "")
    tested = "" if one.evidence == "run" else ' <span class="soft">(by its source)</span>'
    yield f'<tr><td>{_text(one.version)}{tested}</td><td>{_text(starts)}</td><td class="n">{lost}</td>'
    yield f'<td class="n">{stop}</td><td class="n">{deleted:,}</td></tr>\n'


# --- findings --------------------------------------------------------------------------------------------------------


def _findings(report: Report) -> Iterator[str]:
    counts = report.findings.counts
    yield "<h2>Problems</h2>"
    if not counts:
        yield "<p>No problems were found.</p>\n"
        return
    for code, examples in groups_of(report)[:_CODES]:
        problem = PROBLEMS[code]
        severity = problem.severity.name.lower()
        yield f'<div class="card"><h3><span class="tag {severity}">{severity}</span>{_text(code)} × {counts[code]:,}: '
        yield f"{_text(problem.title)}</h3><p>{_text_whole(problem.about)}</p>"
        if examples:
            yield from _places(examples[:_EXAMPLES])
        if counts[code] > min(len(examples), _EXAMPLES):
            yield f'<p class="soft">… and {counts[code] - min(len(examples), _EXAMPLES):,} more</p>'
        commands = [next_command(f, report.repairable, report.config) for f in examples]
        for command in list(dict.fromkeys(filter(None, commands)))[:3]:
            yield f"<pre>{_text(command)}</pre>"
        yield "</div>\n"
    if report.has_problems:
        where = store_words(report.repairable, report.config)
        yield "<p>A repair first prints its plan, with what would be lost. It writes nothing without "
        yield f"<code>--apply</code>:</p><pre>rmqstore recover {_text(where)}</pre>\n"


def _places(examples: Iterable[Finding]) -> Iterator[str]:
    yield '<div class="wide"><table><tr><th>where</th><th class="n">offset</th>'
    yield '<th class="n">bytes</th><th>facts</th></tr>'
    for finding in examples:
        where = finding.queue if finding.file in ("", finding.queue) else f"{finding.queue} {finding.file}"
        yield f'<tr><td class="long">{_text(where)}</td>'
        yield f'<td class="n">{finding.offset:,}</td><td class="n">{finding.length:,}</td>'
        yield f'<td class="long">{_text(facts_of(finding))}</td></tr>'
    yield "</table></div>"


# --- the map ---------------------------------------------------------------------------------------------------------


def _map(found: StoreReport) -> Iterator[str]:
    if not found.rows:
        return
    yield "<h2>Map of the log</h2>"
    several = max(row.files for row in found.rows)
    if several > 1:
        yield f'<p class="soft">Up to {several} files share a row.</p>'
    kinds = {stretch.kind for row in found.rows for stretch in row.stretches}
    yield '<p class="legend">'
    for kind, name in _KINDS.items():
        if kind in kinds:
            square = f'<rect class="{kind}" width="12" height="12"/>'
            yield f'<span><svg viewBox="0 0 12 12" aria-hidden="true">{square}</svg> {name}</span>'
    stops = _stops(found)
    for offset, versions in stops.items():
        yield f"<span>▏{_text(', '.join(versions))} would cut the log at {offset:,}</span>"
    yield '</p><div class="map">\n'
    log = ""
    for row in found.rows:
        label = row.name if row.log == log or len({r.log for r in found.rows}) == 1 else f"{row.log} {row.name}"
        log = row.log
        yield f"<span>{_text(label)}</span>{_bar(row, stops)}\n"
    yield "</div>\n"


def _stops(found: StoreReport) -> dict[int, list[str]]:
    """Offsets at which versions would cut the log and lose messages."""
    out: dict[int, list[str]] = {}
    for one in found.forecasts:
        if one.starts and one.messages_lost and one.commitlog_stop is not None:
            out.setdefault(one.commitlog_stop, []).append(f"RocketMQ {one.version}")
    return out


def _bar(row: MapRow, stops: Iterable[int]) -> str:
    length = row.stop - row.start
    parts = []
    for stretch in row.stretches:
        x, width = ((stretch.start - row.start) * 1000 / length, (stretch.stop - stretch.start) * 1000 / length)
        title = ""
        if stretch.kind in ("damaged", "missing", "filler"):
            width = max(width, 3)
            title = f"<title>{_KINDS[stretch.kind]}: {stretch.start:,} to {stretch.stop:,}</title>"
        parts.append(f'<rect class="{stretch.kind}" x="{x:.2f}" width="{width:.2f}" height="14">{title}</rect>')
    # problems are drawn last, so that nothing covers a thin mark
    parts.sort(key=lambda part: "<title>" in part)
    for offset in stops:
        if row.start <= offset < row.stop:
            x = (offset - row.start) * 1000 / length
            parts.append(
                f'<line class="stop" x1="{x:.2f}" x2="{x:.2f}" y2="14"><title>cut at {offset:,}</title></line>'
            )
    shown = ", ".join(sorted({_KINDS[s.kind] for s in row.stretches}))
    return (
        f'<svg viewBox="0 0 1000 14" height="14" preserveAspectRatio="none" role="img" aria-label="{shown}">'
        f"{''.join(parts)}</svg>"
    )


# --- usage -----------------------------------------------------------------------------------------------------------


def _over_time(found: StoreReport) -> Iterator[str]:
    rows = found.usage.rows("hour")
    if not rows:
        return
    from rmqstore.cli.du import hour_number, hour_text, span_words

    hours = [hour_number(row["hour"]) for row in rows]
    first, last = min(hours), max(hours)
    step = -(-(last - first + 1) // _BARS)
    count = (last - first) // step + 1
    messages, sizes = [0] * count, [0] * count
    for row, hour in zip(rows, hours, strict=True):
        messages[(hour - first) // step] += row["messages"]
        sizes[(hour - first) // step] += row["bytes"]
    ends = (hour_text(first), hour_text(first + count * step))
    yield f"<h2>Messages over time</h2><p class='soft'>Per {_text(span_words(step))}, UTC.</p>\n"
    yield _columns("messages", messages, f"{max(messages):,} messages", ends)
    yield _columns("bytes", sizes, bytes_text(max(sizes)), ends)


def _columns(what: str, values: Sequence[int], most: str, ends: tuple[str, str]) -> str:
    slot = 1000 / len(values)
    width = min(max(slot - (1 if slot > 4 else 0), 0.5), 60)  # a single hour must not fill the whole width
    top = max(values) or 1
    bars = "".join(
        f'<rect class="records" x="{i * slot + (slot - width) / 2:.2f}" y="{118 - value * 100 / top:.2f}" '
        f'width="{width:.2f}" height="{value * 100 / top:.2f}"/>'
        for i, value in enumerate(values)
        if value
    )
    return (
        f'<figure style="margin:8px 0"><figcaption class="soft">{what}, at most {_text(most)}</figcaption>'
        f'<svg viewBox="0 0 1000 120" height="120" preserveAspectRatio="none" role="img" aria-label="{what} over time">'
        f'<line class="axis" x2="1000" y1="118" y2="118"/><line class="axis" x2="1000" y1="18" y2="18"/>{bars}</svg>'
        f'<div class="soft" style="display:flex;justify-content:space-between"><span>{_text(ends[0])}</span>'
        f"<span>{_text(ends[1])}</span></div></figure>\n"
    )


def _lost(found: StoreReport) -> Iterator[str]:
    """What each earlier repair lost."""
    for repair in found.lost:
        yield f"<h2>Lost in the repair {_text(repair.repair)}</h2>"
        yield f"<p>{many(repair.messages, 'message')} could not be kept; fillers are in their place.</p>"
        yield '<div class="wide"><table><tr><th>queue</th><th class="n">offset</th><th>stored</th><th>keys</th>'
        yield "<th>unique id</th><th>read past by</th></tr>\n"
        for one in repair.listed:
            stored = "" if one.store_timestamp is None else time_text(one.store_timestamp)
            yield f'<tr><td class="long">{_text(one.topic)}/{one.queue_id}</td><td class="n">{one.queue_offset:,}</td>'
            yield f'<td>{_text(stored)}</td><td class="long">{_text(one.keys or "")}</td>'
            groups = "unknown" if one.consumed_by is None else ", ".join(one.consumed_by)
            yield f'<td class="long">{_text(one.unique_key or "")}</td><td class="long">{_text(groups)}</td></tr>\n'
        yield "</table></div>"
        more = repair.messages - len(repair.listed)
        if more > 0:
            yield f'<p class="soft">… and {many(more, "more message")}: see rmqstore lost</p>\n'


def _topics(found: StoreReport) -> Iterator[str]:
    rows = found.usage.rows("topic")
    if not rows:
        return
    yield '<h2>Topics</h2><div class="wide"><table><tr><th>topic</th><th class="n">messages</th>'
    yield '<th class="n">bytes</th><th class="n">share</th><th class="bar"></th></tr>\n'
    biggest = rows[0]["bytes"] or 1
    for row in rows[:_TOPICS]:
        share = row["bytes"] / (found.usage.bytes or 1)
        yield f'<tr><td class="long">{_text(row["topic"])}</td><td class="n">{row["messages"]:,}</td>'
        yield f'<td class="n">{bytes_text(row["bytes"])}</td><td class="n">{share:.1%}</td>'
        yield f'<td class="bar">{_share(row["bytes"] / biggest)}</td></tr>\n'
    yield "</table></div>"
    if len(rows) > _TOPICS:
        yield f'<p class="soft">… and {many(len(rows) - _TOPICS, "more topic")}: see rmqstore du</p>\n'


def _lags(found: StoreReport) -> Iterator[str]:
    if found.report.broker is None and not found.lags:
        return
    yield "<h2>Lag of consumer groups</h2>"
    if found.lags is None:
        yield "<p>The progress of consumer groups cannot be read.</p>\n"
        return
    if not found.lags:
        yield "<p>No group has consumed from this store.</p>\n"
        return
    yield '<div class="wide"><table><tr><th>group</th><th>topic</th>'
    yield '<th class="n">not consumed</th><th class="bar"></th></tr>'
    biggest = found.lags[0].messages or 1
    for lag in found.lags[:_LAGS]:
        yield f'<tr><td class="long">{_text(lag.group)}</td><td class="long">{_text(lag.topic)}</td>'
        yield f'<td class="n">{lag.messages:,}</td>'
        yield f'<td class="bar">{_share(lag.messages / biggest)}</td></tr>\n'
    yield "</table></div>"
    if len(found.lags) > _LAGS:
        yield f'<p class="soft">… and {many(len(found.lags) - _LAGS, "more row")} with a smaller lag</p>\n'


def _share(part: float) -> str:
    return (
        '<svg viewBox="0 0 100 10" height="12" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="records" width="{part * 100:.1f}" height="10" rx="1"/></svg>'
    )


def _unchecked(report: Report) -> Iterator[str]:
    if report.unchecked:
        yield "<h2>Not checked</h2><ul>"
        yield from (f"<li>{_text_whole(line)}</li>" for line in report.unchecked[:100])
        yield "</ul>\n"
