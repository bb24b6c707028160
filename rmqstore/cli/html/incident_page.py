"""The report of one repair as one HTML page, for those who must account for it."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from rmqstore.checks.problems.table import PROBLEMS, Severity
from rmqstore.cli.html import elements as ui
from rmqstore.cli.html.store_page import real_path_of, run_facts, unchecked, versions
from rmqstore.cli.lang import translated
from rmqstore.cli.printing.quantities import many, time_text
from rmqstore.cli.printing.sentences import BODY_WORDS
from rmqstore.cli.printing.verify_text import repair_commands, verdict_sentence
from rmqstore.documents.journal import State
from rmqstore.texts import Placed, Text
from rmqstore.views.reports import Fate

if TYPE_CHECKING:
    from rmqstore.checks.problems.report import Report
    from rmqstore.views.reports import Concerned, Incident

_LISTED, _PLACES, _QUEUES = 2000, 20, 40
_NOW_WORDS = {
    Fate.FILLER: Text("a filler"),
    Fate.PRESENT: Text("the message"),
    Fate.DAMAGED: Text("damaged"),
    Fate.EXPIRED: Text("expired"),
    Fate.GONE: Text("nothing"),
    Fate.UNKNOWN: Text("unknown"),
}


def page(found: Incident) -> Iterator[str]:
    """Yield the page in pieces. All texts of the store are escaped, and bodies are left out."""
    title = ui.Html(f"{ui.shown(found.report.store)}: {ui.text(Text('report of a repair'))}")
    yield from ui.framed(title, _content(found))


def _content(found: Incident) -> Iterator[ui.Html]:
    yield from _head(found)
    yield from _to_do(found)
    yield from _messages(found)
    yield from _given_back(found)
    yield from _damage(found)
    yield from _done(found)
    yield from _now(found.report)
    yield from unchecked(found.report)


# --- the answer ------------------------------------------------------------------------------------------------------


def _head(found: Incident) -> Iterator[ui.Html]:
    yield ui.element("h1", Text("Repair {folder}", folder=found.folder.name))
    yield ui.paragraph(ui.shown(real_path_of(found.report.store)), cls="soft")
    yield ui.banner(*_verdict(found))
    if found.in_effect:
        lost = len(found.lost) + found.unlisted
        mended = sum(one.message.mended for one in found.messages)
        at_least = "≥ " if found.losses.at_least else ""
        numbers = [
            (ui.shown(f"{at_least}{lost:,}"), Text("messages lost")),
            (ui.number(mended), Text("messages mended")),
            (ui.number(found.restored), Text("messages restored from a copy")),
            (ui.number(len(found.back)), Text("messages given back since")),
        ]
        without = [row for row in found.before.brokers if row.wrote] if found.before is not None else []
        if any(not row.starts for row in without):
            numbers.append((ui.text(Text("no")), Text("start without the repair")))
        elif most := max((row.messages_lost for row in without), default=0):
            numbers.append((ui.number(most), Text("messages that the next start would have deleted without it")))
        yield ui.cards(numbers)
    rows = [(Text("repair began"), time_text(found.began))] if found.began is not None else []
    if found.ended is not None:
        rows.append((_ENDED_WORDS.get(found.state, Text("stopped")), time_text(found.ended)))
    rows.append((Text("journal"), ui.shown(found.folder.path)))
    yield ui.pairs([*rows, *run_facts(found.report)])


_ENDED_WORDS = {State.DONE: Text("repair ended"), State.UNDONE: Text("undone"), State.UNDOING: Text("undo stopped")}


def _verdict(found: Incident) -> tuple[str, str]:
    """Return the state of the banner and the sentence in it."""
    if found.state is State.UNDONE:
        return "warning", Text("This repair was undone: the store is as it was before. Nothing of it is in effect.")
    if found.folder.being_made:
        return "warning", Text("This import has not changed the store yet: run it again to continue, or undo it.")
    if found.state is State.PREPARING:
        return "warning", Text("This repair was never started: it has changed nothing.")
    if not found.in_effect:
        done, batches = found.folder.batches_done, found.folder.record.batches
        unfinished = Text(
            "This repair is unfinished: {done:,} of {batches} are done. No broker may start on this store before it is "
            "resumed or undone."
        )
        return "error", unfinished.format(done=done, batches=many(batches, "batch", "batches"))
    lost = len(found.lost) + found.unlisted
    bad = found.report.has_problems
    if not lost and not found.losses.at_least:
        words = Text("No message is lost.") if not found.back else Text("No message is lost any more.")
        return ("error" if bad else "ok"), Placed("{words} {sound}", words=words, sound=_sound(found.report))
    at_least = Text("At least ") if found.losses.at_least else ""
    count, sound = many(lost, "message"), _sound(found.report)
    if files := found.folder.deleted_of(found.plan):
        words = Text("{files} deleted for ever, with {messages}: this cannot be undone. {sound}")
        if found.folder.record.kept:
            words = Text("{files} deleted for ever, with at most {messages}: this cannot be undone. {sound}")
        return ("error" if bad else "warning"), words.format(
            files=many(len(files), "file"), messages=count, sound=sound
        )
    words = Text("{at_least}{messages} lost. {sound}", at_least=at_least, messages=count, sound=sound)
    return ("error" if bad else "warning"), words


def _sound(report: Report) -> str:
    if report.has_problems:
        return Text("The store has problems today.")
    if report.unchecked:
        return Text("Not everything could be checked today.")
    return Text("The rest of the store is sound today.")


# --- what to do ------------------------------------------------------------------------------------------------------


def _to_do(found: Incident) -> Iterator[ui.Html]:
    yield ui.heading(Text("What to do now"))
    items = list(_items(found))
    yield ui.element("ol", *(ui.element("li", *item) for item in items)) if items else ui.paragraph(Text("Nothing."))


def _items(found: Incident) -> Iterator[tuple[str, ...]]:
    """Yield the next steps, each as a sentence and commands."""
    store, journal = shlex.quote(found.report.store), shlex.quote(str(found.folder.path))
    refusal = found.folder.refusal()
    if refusal is not None:
        yield Text("The journal is not to be trusted: {why}", why=refusal.message), ui.paragraph(refusal.advice)
        return
    if found.state in (State.APPLYING, State.UNDOING):
        if found.state is State.APPLYING:
            yield Text("Finish the repair:"), ui.command(f"rmqstore resume {journal}")
        undo = Text("Or undo it:") if found.state is State.APPLYING else Text("Undo it:")
        yield undo, ui.command(f"rmqstore undo {journal}")
        return
    if found.folder.being_made:
        yield Text("To give the import up:"), ui.command(f"rmqstore undo {journal}")
        return
    if found.report.live:
        yield (Text("A broker is running on the store: stop it before any other repair."),)
    commands = repair_commands(found.report)
    if commands:
        yield Text("Look at the plan for the problems that the store has today:"), *map(ui.command, commands)
    if found.lost and found.in_effect:
        yield from _about_lost(found, store, journal)
    if found.in_effect and not commands and not found.report.live and not found.report.has_problems:
        yield (Text("Start the broker."),)
    if found.folder.deleted_of(found.plan):
        yield (Text("Keep the journal as the record of what was deleted: nothing brings the files back."),)
    elif found.in_effect and not found.later:
        keep = Text(
            "Keep the journal until the losses are settled. Before a broker has written to the store, it can still be "
            "undone:"
        )
        yield keep, ui.command(f"rmqstore undo {journal}")


def _about_lost(found: Incident, store: str, journal: str) -> Iterator[tuple[str, ...]]:
    yield (
        Text("Send the list of lost messages to the teams that produce them, so that they send these again:"),
        ui.command(f"rmqstore lost {store} --journal {journal} --format csv -o lost.csv"),
    )
    nameless = sum(not (one.message.keys or one.message.unique_key) for one in found.lost)
    if nameless:
        yield (
            Text(
                "No key is left of {messages}: compare the store with a list of what producers had acknowledged:",
                messages=many(nameless, "message"),
            ),
            ui.command(f"rmqstore lost {store} --expected acknowledged.txt"),
        )
    left = sum(one.message.body != "gone" for one in found.lost)
    if left:
        yield (
            Text("Save what is left of the bodies, of {messages}:", messages=many(left, "message")),
            ui.command(f"rmqstore lost {store} --journal {journal} --bodies lost-bodies"),
        )
    yield (
        Text("If another copy of the log is found, such as a slave or a backup, restore the messages from it:"),
        ui.command(f"rmqstore recover {store} --replica DIR --heal-fillers"),
    )
    waiting = found.plan.loss.more.get("groups_that_will_see_them")
    groups = sorted(waiting.items()) if isinstance(waiting, dict) else []
    if groups:
        names = ", ".join(f"{group} ({count:,})" for group, count in groups)
        tell = Text(
            "Tell these consumer groups that they receive fillers, which they must skip (property RMQSTORE_FILLER, or "
            "a tag that begins with RMQSTORE-FILLER): {names}"
        )
        yield (tell.format(names=names),)


# --- messages --------------------------------------------------------------------------------------------------------


def _messages(found: Incident) -> Iterator[ui.Html]:
    if found.state is State.PREPARING:
        return
    rows = found.lost if found.in_effect else [one for one in found.messages if not one.message.mended]
    if not rows and not found.unlisted:
        return
    yield ui.heading(Text("Lost messages") if found.in_effect else Text("Messages that the repair would not have kept"))
    queues = Counter(f"{one.message.topic}/{one.message.queue_id}" for one in rows)
    queues.update({queue: count for queue, count in found.losses.unlisted.items() if queue})
    if len(queues) > 1:
        most = [[ui.shown(queue), ui.number(count)] for queue, count in queues.most_common(_QUEUES)]
        yield from ui.HtmlTable((Text("queue"), Text("messages")), ("long", "n")).pieces(most)
        if len(queues) > _QUEUES:
            yield ui.paragraph(Text("… and {queues}", queues=many(len(queues) - _QUEUES, "more queue")), cls="soft")
    more = (Text("body"), ""), (Text("consumed by"), "long"), (Text("there today"), "")
    yield from _list(
        rows, more, lambda one: [BODY_WORDS[one.message.body], ui.consumers(one.message), _NOW_WORDS[one.now]]
    )
    for queue, number in list(found.losses.unlisted.items())[:_QUEUES]:
        if queue in found.losses.expired:
            first, last = found.losses.expired[queue]
            deleted = Text("{messages} of {queue} deleted for ever, queue offsets {first:,} to {last:,}")
            yield ui.paragraph(deleted.format(messages=many(number, "message"), queue=queue, first=first, last=last))
            continue
        where, count = Text(" of {queue}", queue=queue) if queue else "", many(number, "more message")
        yield ui.paragraph(Text("{count}{where} lost, of which only the number is known", count=count, where=where))
    offsets = Text("The groups that have consumed a message are by their offsets before the repair.")
    if found.before is None or found.before.offsets is None:
        offsets = Text(
            "The journal does not tell how far consumer groups were before the repair: the groups that have consumed a "
            "message are by their offsets of today, and may have read a filler in its place."
        )
    yield ui.paragraph(offsets, cls="soft")


def _given_back(found: Incident) -> Iterator[ui.Html]:
    mended = [one for one in found.messages if one.message.mended]
    if not found.in_effect or not (mended or found.back or found.restored):
        return
    yield ui.heading(Text("What was given back"))
    if mended:
        count = many(len(mended), "damaged message")
        yield ui.paragraph(Text("{messages} mended: a checksum proves each of them.", messages=count))
    if found.restored:
        count = many(found.restored, "message")
        yield ui.paragraph(Text("{messages} restored from another copy of the log.", messages=count))
    if found.back:
        count = many(len(found.back), "message")
        yield ui.paragraph(Text("{messages} that this repair could not keep, given back since.", messages=count))
    yield from _list([*mended, *found.back])


def _list(
    rows: list[Concerned],
    more: Sequence[tuple[str, str]] = (),
    more_cells: Callable[[Concerned], list[str]] = lambda one: [],
) -> Iterator[ui.Html]:
    """Yield a table of messages; `more`: titles and classes of further columns."""
    if not rows:
        return
    titles = (Text("stored"), Text("queue"), Text("offset"), "key", Text("unique id"), *(title for title, _ in more))
    classes = ("time", "long", "n", "long", "long", *(cls for _, cls in more))
    cells = ([ui.stored(one.message), *ui.named(one.message), *more_cells(one)] for one in rows[:_LISTED])
    yield from ui.HtmlTable(titles, classes).pieces(cells)
    if len(rows) > _LISTED:
        left = many(len(rows) - _LISTED, "more message")
        yield ui.paragraph(Text("… and {messages}, which the CSV list has", messages=left), cls="soft")


# --- before, and what was done ---------------------------------------------------------------------------------------


def _damage(found: Incident) -> Iterator[ui.Html]:
    yield ui.heading(Text("What was damaged"))
    known = found.before
    if known is None:
        earlier = Text("The journal is of an earlier rmqstore: it does not have the verdict before the repair.")
        unread = Text("This change does not repair damage: the store was not examined before it.")
        yield ui.paragraph(unread if found.plan.facts.get("command") == "offsets" else earlier)
        yield _codes((code, None) for code in found.plan.cures)
        return
    yield ui.paragraph(known.verdict)
    yield _codes(known.counts.items())
    places = [
        [ui.shown(one.code), ui.shown(f"{one.queue} {one.file}".strip()), ui.number(one.offset), ui.number(one.length)]
        for one in known.listed[:_PLACES]
    ]
    if places:
        titles = (Text("problem"), Text("where"), Text("offset"), Text("bytes"))
        yield from ui.HtmlTable(titles, ("", "long", "n", "n")).pieces(places)
    more = sum(known.counts.values()) - len(places)
    if more > 0:
        yield ui.paragraph(Text("… and {places}", places=many(more, "more place")), cls="soft")
    yield from versions(known.brokers, Text("What each broker version would have done"))


def _codes(counts: Iterable[tuple[str, int | None]]) -> ui.Html:
    """Return the problems of these codes in words; those of a plan are untrusted."""
    items = []

    def rank(row: tuple[str, int | None]) -> tuple[int, str]:
        problem = PROBLEMS.get(row[0])
        return (-problem.severity if problem else 1), row[0]

    for code, count in sorted(counts, key=rank):
        problem = PROBLEMS.get(code)
        times = "" if count is None else f" × {count:,}"
        severity = (problem.severity if problem else Severity.NOTE).name.lower()
        tag = ui.element("span", ui.SEVERITY_WORDS[severity], cls=f"tag {severity}")
        about = ui.Html(f": {ui.text(problem.title)}") if problem else ui.Html("")
        items.append(ui.element("li", ui.Html(f"{tag}{ui.shown(code)}{times}{about}")))
    return ui.element("ul", ui.joined(items))


def _done(found: Incident) -> Iterator[ui.Html]:
    from rmqstore.repair.plan.plan_text import describe

    if found.state is State.PREPARING:
        return
    yield ui.heading(Text("What was done") if found.in_effect else Text("What was planned"))
    for line in describe(found.plan, grouped=True):
        yield ui.paragraph(translated(line).strip(), cls="below" if line.startswith(" ") else "")
    if found.later:
        yield ui.paragraph(Text("Changed again since, by {repairs}:", repairs=many(len(found.later), "later repair")))
        yield ui.element("ul", *(ui.element("li", ui.shown(name)) for name in found.later))


def _now(report: Report) -> Iterator[ui.Html]:
    yield ui.heading(Text("The store today"))
    yield ui.paragraph(verdict_sentence(report))
    if report.live:
        yield ui.paragraph(Text("A broker was running on this store: the report is not final."))
    if report.findings.counts:
        yield _codes(report.findings.counts.items())
