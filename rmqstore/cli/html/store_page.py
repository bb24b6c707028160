"""The report of a store as one HTML page."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from rmqstore import __version__
from rmqstore.checks.problems.report import Finding, store_words, wrote_words
from rmqstore.checks.problems.table import PROBLEMS, Severity
from rmqstore.cli.html import elements as ui
from rmqstore.cli.printing.quantities import KINDS, bytes_text, many, time_text
from rmqstore.cli.printing.verify_text import facts_of, groups_of, verdict_sentence
from rmqstore.files.disk import real_path
from rmqstore.texts import Placed, Text, joined
from rmqstore.views.reports import time_span

if TYPE_CHECKING:
    from pathlib import Path

    from rmqstore.checks.problems.report import Report, VersionRange
    from rmqstore.views.reports import RepairLosses, StoreReport

_EXAMPLES, _CODES, _TOPICS, _LAGS, _JOURNALS = 10, 60, 30, 40, 40
_Groups = dict[tuple[str, ...], list[tuple[str, list[Finding]]]]


def page(found: StoreReport) -> Iterator[str]:
    """Yield the page in pieces. All texts of the store are escaped, and bodies are left out."""
    title = ui.Html(f"{ui.shown(found.report.store)}: {ui.text(Text('report of a RocketMQ store'))}")
    yield from ui.framed(title, _content(found))


def _content(found: StoreReport) -> Iterator[ui.Html]:
    report = found.report
    yield from _head(found)
    yield from versions(report.brokers)
    yield from problems(report)
    yield from _repairs(found)
    for repair in found.lost:
        yield from _lost(repair)
    yield from ui.log_map(found)
    yield from ui.over_time(found.usage, found.unit)
    yield from _topics(found)
    yield from _lags(found)
    yield from unchecked(report)


# --- the head --------------------------------------------------------------------------------------------------------


def _head(found: StoreReport) -> Iterator[ui.Html]:
    report = found.report
    yield ui.element("h1", ui.shown(real_path_of(report.store)))
    yield ui.paragraph(KINDS.get(report.kind, report.kind), cls="soft")
    yield ui.banner(_state(found), _verdict(found))
    if report.live:
        yield ui.paragraph(Text("A broker was running on this store: the report is not final."))
    facts = [
        (f"{found.usage.messages:,}", Text("messages")),
        (bytes_text(found.usage.bytes), Text("size of the messages")),
        (f"{sum(row.files for row in found.rows):,}", Text("files of the log")),
        (f"{len(found.usage.tables.get('topic', {})):,}", Text("topics")),
    ]
    if found.usage.fillers:
        facts.append((f"{found.usage.fillers:,}", Text("fillers in place of lost messages")))
    yield ui.cards((ui.shown(value), name) for value, name in facts)
    rows = run_facts(report)
    if (span := time_span(report)) is not None:
        first, last = map(time_text, span)
        rows.append((Text("messages stored"), Text("{first} to {last}", first=first, last=last)))
    yield ui.pairs(rows)
    for note in [*report.notes, *report.filler_notes]:
        yield ui.paragraph(note)


def run_facts(report: Report) -> list[tuple[str, str]]:
    """Where, when and with which version a store was examined."""
    ended = int(time.time() * 1000)
    began = ended - round(report.seconds * 1000)
    rows: list[tuple[str, str]] = []
    rows.append((Text("host"), ui.shown(socket.gethostname())))
    if report.config:
        rows.append(("broker.conf", ui.shown(real_path_of(report.config))))
    examined = Text("{time}, in {seconds:,.1f} s", time=time_text(began), seconds=report.seconds)
    rows.append((Text("examined"), examined))
    if report.writer is not None:
        oldest, newest = report.writer["oldest"], report.writer["newest"]
        range_ = oldest if oldest == newest else Text("{oldest} to {newest}", oldest=oldest, newest=newest)
        rows.append((Text("written by"), Text("RocketMQ {range_}", range_=range_)))
    rows.append((Text("report by"), ui.shown(f"rmqstore {__version__}")))
    return rows


def real_path_of(path: str) -> Path:
    """Return the full path, without links."""
    from pathlib import Path

    return real_path(Path(path))


def _state(found: StoreReport) -> str:
    """Return the state of the banner: only a store of which no message is lost, and none would be, is well."""
    report = found.report
    worst, broker = report.findings.worst, report.broker or {}
    fails = any(row.wrote and (not row.starts or row.messages_lost) for row in report.brokers)
    fails |= report.account is not None and report.account.lacking > 0
    if (worst is not None and worst >= Severity.ERROR) or broker.get("starts") is False or broker.get("messages_lost"):
        return "error"
    if fails:
        return "error"
    doubtful = not report.clean or report.fillers or any(repair.messages for repair in found.lost)
    return "warning" if doubtful or report.differing else "ok"


def _verdict(found: StoreReport) -> ui.Html:
    sentences = [ui.text(verdict_sentence(found.report))]
    if lost := sum(repair.messages for repair in found.lost):
        sentences.append(
            ui.text(Text("{messages} could not be kept in earlier repairs.", messages=many(lost, "message")))
        )
    return ui.Html(" ".join(sentences))


# --- the next start --------------------------------------------------------------------------------------------------


def versions(brokers: Iterable[VersionRange], title: str = Text("The next broker start")) -> Iterator[ui.Html]:
    """Yield what each range of versions would do."""
    rows = list(brokers)
    if not rows:
        return
    yield ui.heading(title)
    titles = ("RocketMQ", Text("starts"), Text("messages lost"), Text("what happens"))
    wrote = wrote_words(rows) if len(rows) > 1 else ""  # of a single range, it would say that all of it wrote the store
    yield from ui.HtmlTable(titles, ("", "", "n", "long")).pieces(_version(row, wrote) for row in rows)


def _version(row: VersionRange, wrote: str) -> list[str]:
    signs = [word for word, is_so in ((wrote, row.wrote), (Text("asked for"), row.named)) if is_so and word]
    marks = (ui.Html(f" {ui.element('span', sign, cls='mark')}") for sign in signs)
    name = ui.Html(f"{ui.text(row.versions)}{ui.joined(marks)}")
    lost = ui.number(row.messages_lost) if row.starts else ui.shown("–")
    return [ui.element("span", name), Text("yes") if row.starts else Text("no"), lost, row.sentence(row.versions)]


# --- problems --------------------------------------------------------------------------------------------------------


def problems(report: Report) -> Iterator[ui.Html]:
    """Yield the problems of a store, one card for each command that repairs some of them."""
    counts = report.findings.counts
    yield ui.heading(Text("Problems"))
    if not counts:
        yield ui.paragraph(Text("No problems were found."))
        return
    groups: _Groups = {}
    for code, examples in groups_of(report)[:_CODES]:
        cures = (report.cure(f) for f in examples)
        groups.setdefault(tuple(dict.fromkeys(filter(None, cures)))[:3], []).append((code, examples))
    for commands, of_command in groups.items():
        yield ui.Html('<div class="card">')
        if commands:
            yield ui.paragraph(Text("Repaired by:"), cls="soft")
            yield ui.joined(map(ui.command, commands))
        for code, examples in of_command:
            yield from _problem(report, code, examples)
        yield ui.Html("</div>\n")
    if report.has_problems:
        where = store_words(report.repairable, report.config)
        plan = Text(
            "A repair first prints its plan, with what would be lost. It writes nothing without --apply, and `rmqstore "
            "undo` undoes it:"
        )
        yield ui.paragraph(plan)
        yield ui.command(f"rmqstore recover {where}")


def _problem(report: Report, code: str, examples: list[Finding]) -> Iterator[ui.Html]:
    problem, count = PROBLEMS[code], report.findings.counts[code]
    severity = problem.severity.name.lower()
    tag = ui.element("span", ui.SEVERITY_WORDS[severity], cls=f"tag {severity}")
    title = ui.Html(f"{tag}{ui.shown(code)} × {count:,}: {ui.text(problem.title)}")
    yield ui.element("h3", title)
    yield ui.paragraph(problem.about)
    if examples:
        titles = (Text("where"), Text("offset"), Text("bytes"), Text("facts"))
        yield from ui.HtmlTable(titles, ("long", "n", "n", "long")).pieces(map(_place, examples[:_EXAMPLES]))
    if count > min(len(examples), _EXAMPLES):
        yield ui.paragraph(Text("… and {count:,} more", count=count - min(len(examples), _EXAMPLES)), cls="soft")
    if problem.needs_operator is not None and problem.severity > Severity.NOTE:
        yield ui.paragraph(Text("to do: {do}", do=problem.needs_operator.do))


def _place(finding: Finding) -> list[str]:
    where = finding.queue if finding.file in ("", finding.queue) else f"{finding.queue} {finding.file}"
    return [ui.shown(where), ui.number(finding.offset), ui.number(finding.length), facts_of(finding)]


def unchecked(report: Report) -> Iterator[ui.Html]:
    """Yield what was not checked."""
    if report.unchecked:
        yield ui.heading(Text("Not checked"))
        yield ui.element("ul", *(ui.element("li", line) for line in report.unchecked[:100]))


# --- repairs ---------------------------------------------------------------------------------------------------------


def _repairs(found: StoreReport) -> Iterator[ui.Html]:
    if not found.journals:
        return
    yield ui.heading(Text("Repairs"))
    fillers = {row.repair: row.count for row in found.report.fillers}
    lost = {row.repair: row for row in found.lost}
    rows = []
    for info in found.journals[-_JOURNALS:]:
        name = info.path.name
        count, back = (lost[name].messages, lost[name].back) if name in lost else (0, 0)
        numbers = (info.record.steps, count, back, fillers.get(name, 0))
        rows.append([ui.shown(name), ui.STATE_WORDS[info.state.value], *map(ui.number, numbers)])
    counted = (Text("steps"), Text("messages lost"), Text("given back since"), Text("fillers"))
    titles = (Text("repair"), Text("state"), *counted)
    yield from ui.HtmlTable(titles, ("long", "", "n", "n", "n", "n")).pieces(rows)
    if len(found.journals) > _JOURNALS:
        left = many(len(found.journals) - _JOURNALS, "more repair")
        yield ui.paragraph(Text("… and {repairs}: see rmqstore journals", repairs=left))
    if unknown := fillers.get("", 0):
        yield ui.paragraph(Text("{fillers} of repairs whose journals are missing.", fillers=many(unknown, "filler")))


def _lost(repair: RepairLosses) -> Iterator[ui.Html]:
    """Yield what an earlier repair lost."""
    if not repair.messages:
        return
    yield ui.heading(Text("Lost in the repair {repair}", repair=repair.repair))
    count = many(repair.messages, "message")
    if repair.at_least:
        count = Text("at least {messages}", messages=count)
    yield ui.paragraph(Text("{messages} could not be kept; fillers are in their place.", messages=count))
    titles = (Text("queue"), Text("offset"), Text("stored"), "keys", Text("unique id"), Text("consumed by"))
    rows = ([*ui.named(one)[:2], ui.stored(one), *ui.named(one)[2:], ui.consumers(one)] for one in repair.listed)
    yield from ui.HtmlTable(titles, ("long", "n", "time", "long", "long", "long")).pieces(rows)
    more = repair.messages - len(repair.listed)
    if more > 0:
        yield ui.paragraph(Text("… and {messages}: see rmqstore lost", messages=many(more, "more message")), cls="soft")


# --- topics and consumers --------------------------------------------------------------------------------------------


def _topics(found: StoreReport) -> Iterator[ui.Html]:
    rows = found.usage.rows("topic")
    if not rows:
        return
    yield ui.heading(Text("Topics"))
    biggest = rows[0]["bytes"] or 1
    table = ui.HtmlTable(("topic", Text("messages"), Text("bytes"), Text("share"), ""), ("long", "n", "n", "n", "bar"))
    yield from table.pieces(
        [
            ui.shown(row["topic"]),
            ui.number(row["messages"]),
            ui.shown(bytes_text(row["bytes"])),
            ui.shown(f"{row['bytes'] / (found.usage.bytes or 1):.1%}"),
            ui.share(row["bytes"] / biggest),
        ]
        for row in rows[:_TOPICS]
    )
    if len(rows) > _TOPICS:
        left = many(len(rows) - _TOPICS, "more topic")
        yield ui.paragraph(Text("… and {topics}: see rmqstore du", topics=left), cls="soft")


def _lags(found: StoreReport) -> Iterator[ui.Html]:
    if found.report.broker is None and not found.lags:
        return
    yield ui.heading(Text("Lag of consumer groups"))
    if found.lags is None:
        yield ui.paragraph(Text("The progress of consumer groups cannot be read."))
        return
    if not found.lags:
        yield ui.paragraph(Text("No group has consumed from this store."))
        return
    biggest = max(lag.messages for lag in found.lags) or 1
    popped = any(lag.pop for lag in found.lags)
    titles = [Text("group"), "topic", Text("not consumed"), *((Text("received through POP"),) if popped else ())]
    classes = ["long", "long", "n", *(("long",) if popped else ())]
    rows = []
    for lag in found.lags[:_LAGS]:
        row = [ui.shown(lag.group), ui.shown(lag.topic), ui.number(lag.messages)]
        if popped:
            states = ((count, ui.POP_WORDS[state.value]) for state, count in sorted(lag.pop.items()))
            row.append(ui.shown(joined(Placed("{n:,} {state}", n=count, state=words) for count, words in states)))
        rows.append([*row, ui.share(lag.messages / biggest)])
    yield from ui.HtmlTable([*titles, ""], [*classes, "bar"]).pieces(rows)
    if len(found.lags) > _LAGS:
        left = many(len(found.lags) - _LAGS, "more row")
        yield ui.paragraph(Text("… and {rows} with a smaller lag", rows=left), cls="soft")
    if popped and (why := found.pop_unknown):
        yield ui.paragraph(Text("What POP groups have received is not completely known: {why}", why=why), cls="soft")
