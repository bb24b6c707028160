"""`rmqstore find`."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqstore.cli.printing.output import Output
from rmqstore.cli.printing.quantities import columns, fitted, in_words, many, printable, time_text, title, wrapped
from rmqstore.cli.printing.sentences import (
    detail,
    lost_lines,
    lost_words,
    note_of_another_place,
    queue_place,
    record_words,
)
from rmqstore.cli.shared.filters import FilterOptions
from rmqstore.cli.shared.messages import tell_damage
from rmqstore.cli.shared.options import BODY, WorkOptions, command, gathered
from rmqstore.cli.shared.reading import note_live, open_named, refuse_without_log
from rmqstore.cli.shared.topics import note_unknown_topics
from rmqstore.errors import CouldNotCheck, UsageError
from rmqstore.files.read_rights import Refusal
from rmqstore.formats import properties
from rmqstore.formats.message import host_text
from rmqstore.formats.properties import SCHEDULE_TOPIC, TIMER_TOPIC
from rmqstore.texts import Placed, Text, joined

if TYPE_CHECKING:
    from rmqstore.files.broker_config import BrokerConfig
    from rmqstore.messages.rows import BodyStyle
    from rmqstore.scan.columns import Repaired
    from rmqstore.views.lookup import Found
    from rmqstore.views.lost import MissingMessage
    from rmqstore.views.progress import Popped
    from rmqstore.views.search import Answer, Question
    from rmqstore.views.stories import Event, Lifecycle, MessageStatus, Story

_GROUPS = 8
_EVENTS = {
    "half": Text("half message"),
    "committed": Text("committed"),
    "op": Text("ended"),
    "rolled-back": Text("rolled back"),
    "checked-too-often": Text("given up"),
    "delayed": Text("delayed"),
    "timer": Text("timed"),
    "retry": Text("retried"),
    "dlq": Text("dead letter"),
    "stored": Text("stored"),
    "delivered": Text("delivered"),
}

_NOT_DELIVERED = {
    "undecided": Text("not committed and not rolled back: consumers do not get it"),
    "rolled-back": Text("rolled back: consumers do not get it"),
    "given-up": Text("given up by the broker, because the producer never decided: consumers do not get it"),
}


_REFUSED: dict[str, Text] = {
    Refusal.NO_TOPIC: Text("the broker does not know the topic {topic}, which was deleted or never configured"),
    Refusal.NO_PERMISSION: Text("the topic {topic} has no read permission"),
    Refusal.NO_QUEUE: Text("queue {queue_id} of {topic} is not below its readQueueNums"),
}


@dataclass(frozen=True, slots=True)
class FindOptions:
    """The options of `find`."""

    grep: str
    limit: int
    read_log: bool
    index_only: bool
    body: str | None

    @property
    def depth(self) -> str:
        """Whether to read the log."""
        return "always" if self.read_log else "never" if self.index_only else "if-needed"


@command(
    "find",
    report=True,
    filters=True,
    work=True,
    examples=(
        "rmqstore find /data/rocketmq/store ORDER-123",
        "rmqstore find /data/rocketmq/store 7F00000100002A9F000000000002C297 --json",
        "rmqstore find /data/rocketmq/store --grep 'order.?123' --topic Order --since -2h",
    ),
)
@click.argument("texts", metavar="[TEXT]...", nargs=-1)
@click.option("--grep", metavar="REGEX", default="", help="Only messages whose body or properties contain this.")
@click.option(
    "--limit", type=click.IntRange(1), default=1000, metavar="N", help="Show at most N messages (default 1000)."
)
@click.option("--read-log", is_flag=True, help="Read the log even if the index has an answer, which may be incomplete.")
@click.option("--index-only", is_flag=True, help="Never read the log, even if ids and index have no answer.")
@click.option("--body", type=BODY, help="Show bodies, in this form (default: not shown).")
@gathered("asked", FindOptions)
def find(
    out: Output,
    store: Path,
    config: BrokerConfig,
    texts: tuple[str, ...],
    filters: FilterOptions,
    asked: FindOptions,
    work: WorkOptions,
) -> int:
    """Find messages, and show whether consumers get them.

    TEXT is a key, a unique id, an offset message id or TOPIC/QUEUE/OFFSET; several are allowed. Ids and index files
    give an answer at once; for the rest, find reads the log, and says so. It shows for each message: its record, its
    queue entry, its index entries, the groups that have consumed it, and the messages that a delay, a timer, a
    transaction or a retry made of it. Exit code 1: nothing was found.
    """
    from rmqstore.files.config import tier_words
    from rmqstore.messages.rows import BodyStyle
    from rmqstore.scan.workers import jobs_or_default
    from rmqstore.views.search import Means, Question, search
    from rmqstore.views.stories import Stories

    if asked.read_log and asked.index_only:
        raise UsageError(Text("--read-log and --index-only exclude each other"), Text("leave one of them out"))
    if asked.grep and asked.index_only:
        raise UsageError(Text("--grep needs the log, which --index-only leaves out"), Text("leave one of them out"))
    if filters.queues:
        raise UsageError(Text("--queue does not apply to find"), Text("use --topic, or TOPIC/QUEUE/OFFSET as TEXT"))
    opened = open_named(store, config)
    refuse_without_log(opened)
    live = note_live(out, opened, Text("messages that it stores from now on are not found"))
    note_unknown_topics(out, opened, filters.topics)
    wanted, topics = tuple(dict.fromkeys(texts)), frozenset(filters.topics)
    question = Question(wanted, topics, filters.since, filters.until, asked.grep, asked.limit, asked.depth)
    scan = work.scanning(live)
    started = time.monotonic()

    def note(said: str) -> None:
        out.note(Text("note: {note}", note=said))

    with out.progress("find", opened.log_bytes) as progress:
        answer = search(
            opened, question, Means(jobs_or_default(work.jobs, opened.log_bytes), scan, note, progress.add, live)
        )
    stories = Stories(opened)
    told = stories.of(answer.sorted())
    for story in told:
        named = [answer.named.get(event.found.offset, ()) for event in story.events]
        story.texts = tuple(text for text in question.texts if any(text in texts for texts in named))
    style = BodyStyle(asked.body, False)
    if out.as_json:
        from rmqstore.messages.repaired import repaired_records

        known = repaired_records(opened)
        rows = [_row(one, *stories.described[one.log_offset], style, known) for one in answer.sorted()]
        report = _report(store, answer, rows, time.monotonic() - started) | {"unread": list(stories.unread)}
        out.report(report | {"answers": _answers(question, answer, told)})
    else:
        out.lines(_text(store, question.texts, told, answer, style, out.width))
    _tell(out, question.texts, answer)
    if words := tier_words(opened.files, opened.root):
        out.note(Text("note: {note}", note=words))
    for why in stories.unread:
        out.note(Text("warning: not everything was read: {why}", why=why))
    if stories.unread:
        return CouldNotCheck.exit_code
    return 0 if answer.found or answer.kept else 1


def _tell(out: Output, texts: tuple[str, ...], answer: Answer) -> None:
    if not (answer.found or answer.kept or answer.lost or answer.traces) and (out.as_json or not texts):
        out.note(Text("nothing found for {texts}", texts=joined(texts)) if texts else Text("nothing found"))
    for offset, found in sorted(answer.found.items()):
        for text in sorted(answer.named.get(offset, ())):
            if words := note_of_another_place(text, found):
                out.note(words)
    if answer.more:
        words = Text("note: only the first {messages}: --limit shows more, --topic and --since narrow it")
        out.note(words.format(messages=many(len(answer.found), "message")))
    if answer.open_texts:
        out.note(Text("note: the log was not searched for {texts}", texts=joined(answer.open_texts)))
    if answer.searched == "time":
        out.note(Text("note: found by the time in the id; --read-log also finds copies that were stored much later"))
    if not texts or answer.unanswered(texts):
        tell_damage(out, answer.damage)


# --- JSON ------------------------------------------------------------------------------------------------------------


def _report(store: Path, answer: Answer, rows: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
    return {
        "schema": "rmqstore.find/1",
        "store": str(store),
        "messages": rows,
        "traces": [asdict(trace) for _, trace in sorted(answer.traces.items())],
        "lost": [lost.to_json() for lost in answer.lost.values()],
        "compacted": [_kept_row(found) for found in answer.kept.values()],
        "searched": answer.searched,
        "log_read": [{"start": start, "stop": stop} for start, stop in answer.read],
        "more": answer.more,
        "not_searched": list(answer.open_texts),
        "damaged_spans": answer.damage.count,
        "seconds": round(seconds, 3),
    }


def _row(
    found: Found, status: MessageStatus, lifecycle: Lifecycle, body: BodyStyle, repaired: Repaired
) -> dict[str, Any]:
    from rmqstore.messages.rows import message_row

    row = message_row(found.message, found.log_offset, found.file, found.sound, body, repaired)
    consumers = None
    if status.consumers is not None:
        consumers = [
            {
                "group": p.group,
                "offset": p.offset,
                "consumed": status.has_consumed(p, found.message.queue_offset),
                **_popped(status.popped.get(p.group)),
            }
            for p in status.consumers
        ]
    return row | {
        "record": status.record,
        "queue_entry": asdict(status.queue_entry),
        "index": asdict(status.index),
        "consumers": consumers,
        "outcome": lifecycle.outcome or None,
        "due": lifecycle.due,
        "related": [
            {
                "relation": r.relation,
                "topic": r.found.message.topic_text,
                "queue_id": r.found.message.queue_id,
                "queue_offset": r.found.message.queue_offset,
                "offset": r.found.offset,
                "store_timestamp": r.found.message.store_timestamp,
            }
            for r in lifecycle.related
        ],
    }


def _kept_row(found: Found) -> dict[str, Any]:
    topic, queue_id, queue_offset = found.queue_place
    return {
        "topic": topic,
        "queue_id": queue_id,
        "queue_offset": queue_offset,
        "store_timestamp": found.message.store_timestamp,
        "file": found.file,
        "position_in_file": found.at,
    }


def _answers(question: Question, answer: Answer, stories: list[Story]) -> list[dict[str, Any]]:
    """Return what became of each message, and of each text that names none."""
    rows: list[dict[str, Any]] = []
    for story in stories:
        row = _answer_row(list(story.texts), story.ending, [event.found.offset for event in story.events])
        row["read_past_by"] = [p.group for p in story.past]
        row["not_read_by"] = [p.group for p in story.before]
        row["sent_back_by"] = story.sent_back
        row["popped_by"] = {group: found.state.value for group, found in story.popped.items()}
        rows.append(row | {"due": story.due})
    rows += [_answer_row(sorted(answer.named[key]), "compacted", []) for key in answer.kept]
    for place, lost in answer.lost.items():
        rows.append(_answer_row(sorted(answer.named[place]), "lost", [lost.message.offset]))
    return rows + [_answer_row([text], _unknown(text, answer), []) for text in answer.unanswered(question.texts)]


def _answer_row(texts: list[str], state: str, offsets: list[int | None]) -> dict[str, Any]:
    empty: list[str] = []
    row = {"texts": texts, "state": state, "offsets": [offset for offset in offsets if offset is not None]}
    return row | {"read_past_by": empty, "not_read_by": empty, "sent_back_by": empty, "popped_by": {}, "due": None}


def _popped(found: Popped | None) -> dict[str, Any]:
    if found is None:
        return {}
    times = {"pop_time": found.pop_time or None, "visible_time": found.visible_time or None}
    return {"pop": {"state": found.state.value, **times, "times": found.times, "again": found.again}}


def _unknown(text: str, answer: Answer) -> str:
    """Return in one word what is known of a text that names no message, found or lost."""
    for trace in answer.traces.values():
        if trace.key == text:
            return trace.state
    return "not-searched" if text in answer.open_texts else "never"


# --- text ------------------------------------------------------------------------------------------------------------


def _text(
    store: Path, texts: tuple[str, ...], stories: list[Story], answer: Answer, body: BodyStyle, width: int
) -> Iterator[str]:
    blocks = [_story(story, body, width) for story in stories]
    blocks += [_kept(found, sorted(answer.named[key]), width) for key, found in answer.kept.items()]
    blocks += [_loss(store, lost, sorted(answer.named[place]), width) for place, lost in answer.lost.items()]
    unknown = answer.unanswered(texts)
    if unknown:
        answers = [_nothing(text, answer) for text in unknown]
        if any(_unknown(text, answer) == "never" for text in unknown) and not answer.damage:
            answers.append(detail(Text("earlier logs"), f"rmqstore lost {shlex.quote(str(store))} --stale"))
        blocks.append(iter(answers))
    for number, lines in enumerate(blocks):
        if number:
            yield ""
        yield from lines


def _story(story: Story, body: BodyStyle, width: int) -> Iterator[str]:
    """One line that answers, the records in the order of time, and what consumers get."""
    yield from wrapped(Placed("{name}: {ending}", name=_name(story), ending=_ending(story)), width, then="  ")
    message = story.events[0].found.message
    born = time_text(message.born_timestamp, exact=True)
    yield detail(Text("sent"), Text("{time} by {host}", time=born, host=host_text(message.born_host)))
    for event in story.events:
        yield from _event(event, width)
    yield detail(Text("record"), record_words(story.status.record))
    yield detail(Text("queue entry"), _queue_entry(story.status))
    yield detail(Text("index"), _index(story.main, story.status))
    if story.is_for_consumers:
        for line in _consumers(story.main, story.status):
            yield from wrapped(line, width, then=" " * 15)
    if body.style:
        yield from _body(story.main, body)


def _name(story: Story) -> str:
    """What the user called the message, else its key, id or place."""
    if story.texts:
        return joined(map(printable, story.texts))
    known = properties.parse_properties(story.main.message.properties)
    topic, queue_id, queue_offset = story.main.queue_place
    key = known.get(properties.KEYS) or known.get(properties.UNIQ_KEY)
    return printable(key or f"{topic}/{queue_id}/{queue_offset}")


def _ending(story: Story) -> str:
    """How a message ended, in a sentence."""
    if story.ending in _NOT_DELIVERED:
        return _NOT_DELIVERED[story.ending]
    arrived = Text("arrived, committed") if story.committed else title(Text("arrived"))
    if story.dead is not None:
        when = time_text(story.dead.message.store_timestamp, exact=True)
        retries = many(story.dead.message.reconsume_times, "retry", "retries")
        given_up = Text("given up by {group} at {when} after {retries}: a dead letter")
        return joined((arrived, given_up.format(group=printable(story.given_up_by), when=when, retries=retries)))
    if story.main.message.topic_text in (SCHEDULE_TOPIC, TIMER_TOPIC):
        if story.ending == "overdue":
            due = "" if story.due is None else time_text(story.due, exact=True)
            return Text("{arrived}, but overdue: it was due at {due} and is not delivered", arrived=arrived, due=due)
        if story.due is None:
            return Text("{arrived}, not delivered yet", arrived=arrived)
        return _due(
            story.due,
            Text("{arrived}, due at {time}, not delivered yet"),
            Text("{arrived}, due since {time}, not delivered yet"),
            arrived=arrived,
        )
    if story.status.record != "sound":
        return Text("{arrived}, but damaged: {fault}", arrived=arrived, fault=in_words(story.status.record))
    if (why := _REFUSED.get(story.ending)) is not None:
        topic, queue_id, _ = story.main.queue_place
        why = why.format(topic=printable(topic), queue_id=queue_id)
        stored = joined([title(Text("stored")), *_readers(story)])
        return Text("{stored}; no consumer gets it now: {why}", stored=stored, why=why)
    if story.status.queue_entry.state in ("missing", "wrong"):
        words = Text("{arrived}, but consumers do not get it: its queue entry is {state}")
        return words.format(arrived=arrived, state=in_words(story.status.queue_entry.state))
    return joined([arrived, *_readers(story)])


def _readers(story: Story) -> Iterator[str]:
    """Which groups have read past a message, sent it back, or not come to it."""
    unread = {p.group for p in story.before}
    past, before = _groups(p.group for p in story.past), _groups(sorted(unread))
    sent_back = [group for group in story.sent_back if group not in story.popped]
    if sent_back:
        times = Placed(" ({times})", times=many(len(story.retries), "time")) if story.retries else ""
        yield Text("sent back by {groups}{times}", groups=_groups(sent_back), times=times)
        if story.due is not None:
            coming, overdue = Text("the next retry due at {time}"), Text("the next retry overdue since {time}")
            yield _due(story.due, overdue if story.ending == "overdue" else coming, overdue)
    yield from _pop_readers(story)
    if past:
        yield Text("read past by {past}", past=past)
        if before:
            yield Text("not by {before}", before=before)
    elif before:
        comes = story.ending not in _REFUSED and unread - story.not_allowed
        yield (Text("not read by {before} yet") if comes else Text("not read by {before}")).format(before=before)
    elif story.status.consumers is not None and not story.sent_back and not story.popped:
        yield Text("no group has read this topic")
    if unread & story.not_allowed:
        names = _groups(sorted(unread & story.not_allowed))
        yield Text("{names} may not consume (consumeEnable=false)", names=names)


def _pop_readers(story: Story) -> Iterator[str]:
    """What POP groups did with the message."""
    from rmqstore.views.progress import PopState

    again = [p for p in story.popped.values() if p.again]
    if again:
        yield Text("received by {groups}: delivered again when a broker starts", groups=_groups(p.group for p in again))
    retries = Placed(" ({retries})", retries=many(len(story.retries), "retry", "retries")) if story.retries else ""
    for state in PopState:
        found = [p for p in story.popped.values() if p.state is state and not p.again]
        if not found:
            continue
        names = _groups(p.group for p in found)
        if state is PopState.ACKNOWLEDGED:
            yield Text("acknowledged by {names}{retries}", names=names, retries=retries)
        elif state is PopState.INVISIBLE:
            yield _due(
                max(p.visible_time for p in found),
                Text("received by {names} and not acknowledged{retries}: delivered again at {time}"),
                Text("received by {names} and not acknowledged{retries}: to be delivered again since {time}"),
                names=names,
                retries=retries,
            )
        elif state is PopState.RETURNED:
            yield Text(
                "not acknowledged in time by {names}: back in the retry topic{retries}", names=names, retries=retries
            )
        else:
            yield Text("received by {names}: the store does not tell whether it was acknowledged", names=names)


def _due(moment: int, coming: Text, past: Text, **values: object) -> Text:
    """Say when something will be or was due (ms): it stays due while no broker runs, and the answer says so."""
    words = past if moment < time.time() * 1000 else coming
    return words.format(time=time_text(moment, exact=True), **values)


def _groups(names: Iterable[str]) -> str:
    every = [printable(name) for name in names]
    shown, more = every[:_GROUPS], len(every) - _GROUPS
    if more > 0:
        return Text("{shown} and {groups}", shown=joined(shown), groups=many(more, "more group"))
    return joined(shown, last=" and ")


def _event(event: Event, width: int) -> Iterator[str]:
    """One record of a message: when, what, and where; in one line if it fits, else in two."""
    message = event.found.message
    when = f"  {fitted(title(_EVENTS[event.what]), 13)}{time_text(message.store_timestamp, exact=True)}"
    due = "" if event.due is None else Text(", due {due}", due=time_text(event.due, exact=True))
    where = queue_place(*event.found.queue_place)
    log = Text("log offset {offset:,}{due}", offset=event.found.offset, due=due)
    lines = [joined((when, where, log), "  ")]
    if columns(lines[0]) > width:
        lines = [joined((when, where), "  "), log]
    if columns(lines[0]) > width:
        lines = [when, joined((where, log), "  ")]
        if columns(lines[1]) + 15 > width:
            lines[1:] = [where, log]
    yield lines[0]
    yield from (Placed("{indent}{line}", indent=" " * 15, line=line) for line in lines[1:])


def _loss(store: Path, lost: MissingMessage, texts: list[str], width: int) -> Iterator[str]:
    """One line that answers, and what is known of a lost message."""
    name = joined(map(printable, texts))
    yield from wrapped(Text("{where}: LOST: {lost}", where=name, lost=lost_words(lost)), width, then="  ")
    yield from lost_lines(store, lost, width)


def _kept(found: Found, texts: list[str], width: int) -> Iterator[str]:
    """One line that answers, and where compaction has a message."""
    words = Text("{where}: not in the log (any more), but compaction keeps the last message: consumers get it")
    yield from wrapped(words.format(where=joined(map(printable, texts))), width, then="  ")
    stored = time_text(found.message.store_timestamp, exact=True)
    yield detail(Text("stored"), Text("{time} as {place}", time=stored, place=queue_place(*found.queue_place)))
    yield detail(
        Text("file"), Text("{file} at {at:,}, {size:,} bytes", file=found.file, at=found.at, size=found.message.size)
    )


def _nothing(text: str, answer: Answer) -> str:
    """One line for a text that names no message, found or lost."""
    never = Text("{text}: never arrived, as far as this store tells")
    if answer.damage:
        never = Text("{text}: not found, but not all of the log can be read")
    words = {
        "expired": Text("{text}: expired: the log file with its message is deleted"),
        "gone": Text("{text}: not here: an index entry points past the end of the log"),
        "not-searched": Text("{text}: not found by id or index; the log was not searched"),
        "never": never,
    }
    return words[_unknown(text, answer)].format(text=printable(text))


def _queue_entry(status: MessageStatus) -> str:
    entry = status.queue_entry
    if entry.state == "present":
        tag = {True: Text(", tag matches"), False: Text(", but with another tag"), None: ""}[entry.tag_matches]
        return Text("present{tag}", tag=tag)
    return {
        "missing": Text("missing: consumers do not get this message"),
        "wrong": Text("wrong: it points to log offset {offset:,}", offset=entry.offset or 0),
        "not-wanted": Text("none: prepared and rolled back messages have none"),
        "unreadable": Text("unknown: the RocksDB of the queues cannot be read"),
        "not-here": Text("unknown: only a part of the store is here"),
    }[entry.state]


def _index(found: Found, status: MessageStatus) -> str:
    index = status.index
    if index.state == "present":
        return Text("present ({keys})", keys=_keys(found, index.present))
    if index.state == "partly":
        return Text("incomplete: {keys} missing", keys=_keys(found, index.missing))
    return {
        "missing": Text("missing: queries by key or id do not find this message"),
        "not-wanted": Text("none: the message has no key"),
        "no-index": Text("no index files"),
        "not-here": Text("unknown: only a part of the store is here"),
    }[index.state]


def _keys(found: Found, keys: tuple[str, ...]) -> str:
    """Keys in words: `key`, `2 keys`, `unique id`."""
    unique = properties.parse_properties(found.message.properties).get(properties.UNIQ_KEY)
    own = [key for key in keys if key != unique]
    words = [many(len(own), "key") if len(own) > 1 else "key"] if own else []
    return joined([*words, Text("unique id")] if unique in keys else words)


def _consumers(found: Found, status: MessageStatus) -> Iterator[str]:
    if status.consumers is None:
        yield Text("  consumers    unknown: the progress of consumer groups cannot be read")
        return
    if not status.consumers:
        yield Text("  consumers    no group has read this topic")
        return
    offset = found.message.queue_offset
    for number, progress in enumerate(status.consumers[:_GROUPS]):
        name = "" if number else title(Text("consumers"))
        popped = status.popped.get(progress.group)
        if popped is not None:
            yield Placed("  {name:<13}{group} {words}", name=name, group=progress.group, words=_pop_words(popped))
            if popped.again:
                again = Text("a broker that starts delivers it again: the offset in the store is {offset:,}")
                yield Placed("{name:<15}{words}", name="", words=again.format(offset=progress.offset))
            continue
        past = Text("  {name:<13}{group} has read past it (at {offset:,})")
        before = Text("  {name:<13}{group} has not read it (at {offset:,})")
        words = past if progress.has_consumed(offset) else before
        yield words.format(name=name, group=progress.group, offset=progress.offset)
    if len(status.consumers) > _GROUPS:
        more = many(len(status.consumers) - _GROUPS, "more group")
        yield Text("  {name:<13}… and {groups} (--json)", name="", groups=more)


def _pop_words(found: Popped) -> str:
    """What a group did with a message that it received through POP."""
    from rmqstore.views.progress import PopState

    if found.state is PopState.ACKNOWLEDGED:
        return Text("has acknowledged it")
    if found.state is PopState.INVISIBLE:
        return _due(
            found.visible_time,
            Text("has received it, not acknowledged it, and gets it again at {time}"),
            Text("has received it, not acknowledged it, and is to get it again since {time}"),
        )
    if found.state is PopState.RETURNED:
        return Text("has not acknowledged it in time: it is in the group's retry topic")
    return Text("has received it; the store does not tell whether it has acknowledged it")


def _body(found: Found, style: BodyStyle) -> Iterator[str]:
    from rmqstore.cli.get import body_lines
    from rmqstore.messages.rows import message_row

    row = message_row(found.message, found.log_offset, found.file, found.sound, style)
    compressed = bool(found.message.sys_flag & 1)
    yield from body_lines(row, found.message.body_length, compressed=compressed)
