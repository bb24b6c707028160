"""Describes a plan in lines of text: messages lost, decisions needed, and the steps, file by file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from rmqstore.documents.content import Json, Zeros, objects
from rmqstore.documents.outcome import AFTER
from rmqstore.documents.steps import (
    Create,
    Delete,
    Discard,
    Extend,
    MakeDirectory,
    Overwrite,
    RemoveEmptyDirectory,
    Rename,
    SetAside,
    Step,
    Truncate,
)
from rmqstore.texts import Placed, Text, joined, many

if TYPE_CHECKING:
    from rmqstore.documents.plan import Plan

_LISTED = 20
_YEAR_10000 = 253_402_300_800_000  # ms
_PLACES = 8  # places listed per line or replica
_WITHOUT_BYTES = (MakeDirectory, RemoveEmptyDirectory)


_FEW = 12  # steps that are listed one by one without being asked for


def describe(plan: Plan, *, limit: int = 200, grouped: bool = False) -> list[str]:
    """Describe a plan: what is lost, what is given back, what stays, then decisions and steps.

    More than `limit` steps become sums per directory; `grouped`: more than a few become one line per part of the store.
    Files that are deleted for ever are always listed one by one.
    """
    if plan.deletes:  # whoever accepts it reads the whole list
        grouped, limit = False, len(plan.steps)
    steps = _describe_groups(plan) if grouped and len(plan.steps) > _FEW else _describe_steps(plan, limit)
    if plan.empty:
        return [*_describe_loss(plan), *_describe_decisions(plan), *steps, *_describe_stays(plan)]
    lines = [*_describe_loss(plan), *_describe_stays(plan), *_describe_decisions(plan), *steps]
    return [*lines, *_describe_outcome(plan)]


def loss_words(plan: Plan) -> str:
    """Return what the plan loses and gives back, for example "2 messages lost, 177 mended"."""
    loss = plan.loss
    at_least = Text("at least ") if loss.more.get("at_least") else ""
    words = [
        Text("{at_least}{messages} lost", at_least=at_least, messages=many(loss.messages, "message"))
        if loss.messages or at_least
        else Text("no message lost")
    ]
    if mended := len(objects(plan.facts.get("mended"))):
        words.append(Text("{mended:,} mended", mended=mended))
    if given_back := sum(_number(row, "messages") for row in plan.restored):
        words.append(Text("{given_back:,} restored", given_back=given_back))
    return joined(words)


def _describe_loss(plan: Plan) -> Iterator[str]:
    loss = plan.loss
    at_least = bool(loss.more.get("at_least"))
    if loss.messages or loss.bytes or loss.queues or at_least:
        topics = Text(" of {topics}", topics=many(len(loss.topics), "topic")) if loss.queues else ""
        size = Placed(", {bytes}", bytes=many(loss.bytes, "byte")) if loss.bytes else ""
        line = Text("Lost: at least {messages}{topics}{size}.") if at_least else Text("Lost: {messages}{topics}{size}.")
        yield line.format(messages=many(loss.messages, "message"), topics=topics, size=size)
        rows = sorted(loss.queues.items(), key=lambda row: (-row[1], row[0]))
        yield from (
            Placed("  {queue}: {messages}", queue=queue, messages=many(count, "message"))
            for queue, count in rows[:_LISTED]
        )
        if len(rows) > _LISTED:
            yield Text("  … and {queues}", queues=many(len(rows) - _LISTED, "more queue"))
    elif plan.facts.get("damaged"):  # properties are lost
        yield Text("No message is lost.")
    elif "stays" not in plan.facts or not plan.empty:
        yield Text("No data will be lost.")
    yield from _describe_damaged(objects(plan.facts.get("damaged")))
    yield from _describe_restored(plan.restored)
    yield from _describe_mended(objects(plan.facts.get("mended")))
    yield from _describe_fillers(objects(plan.facts.get("fillers")))


def _describe_decisions(plan: Plan) -> Iterator[str]:
    yield from (Text("Note: {note}", note=note) for note in plan.notes)
    yield from (Text("Needs a decision: {decision}", decision=decision) for decision in plan.decisions)
    if plan.decisions and not plan.empty:  # an empty plan has nothing to accept
        yield (
            Text("  --force {digest} accepts it", digest=plan.digest)
            if len(plan.decisions) == 1
            else Text("  --force {digest} accepts all of them", digest=plan.digest)
        )


def _describe_damaged(rows: list[Mapping[str, Json]]) -> Iterator[str]:
    """List messages that stay with damaged properties."""
    if not rows:
        return
    yield Text(
        "Damaged: {messages}, whose properties cannot be recovered from the store:", messages=many(len(rows), "message")
    )
    for row in rows[:_LISTED]:
        place = Text(
            "{topic}/{queue_id} {queue_offset} at {offset}",
            topic=row.get("topic"),
            queue_id=row.get("queue_id"),
            queue_offset=row.get("queue_offset"),
            offset=row.get("offset"),
        )
        names = (("keys", "keys"), (Text("unique key"), "unique_key"))
        keys = joined(
            (Placed(", {word} {key!r}", word=word, key=row[name]) for word, name in names if row.get(name)), ""
        )
        time = row.get("store_timestamp")
        yield (
            Placed("  {place}{keys}", place=place, keys=keys)
            if time is None
            else Text("  {place}, stored {time}{keys}", place=place, time=store_time(time), keys=keys)
        )
    if len(rows) > _LISTED:
        yield Text("  … and {messages}", messages=many(len(rows) - _LISTED, "more message"))


def store_time(value: Json) -> str:
    """Format a store time (ms) in UTC."""
    if not isinstance(value, int) or not 0 <= value < _YEAR_10000:
        return str(value)
    return datetime.fromtimestamp(value / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _describe_restored(rows: list[Mapping[str, Json]]) -> Iterator[str]:
    """List messages restored from other copies of the log."""
    if not rows:
        return
    messages: dict[str, int] = {}
    for row in rows:
        name = str(row.get("from"))
        messages[name] = messages.get(name, 0) + _number(row, "messages")
    one = Text("a copy") if len(messages) == 1 else Text("{count:,} copies", count=len(messages))
    yield Text(
        "Restored from {one}: {messages}, {places}.",
        one=one,
        messages=many(sum(messages.values()), "message"),
        places=many(len(rows), "place"),
    )
    yield from (
        Placed("  {name}: {messages}", name=name, messages=many(number, "message"))
        for name, number in list(messages.items())[:_LISTED]
    )
    for row in rows[:_PLACES]:
        what = Placed("{was}; {messages}", was=row.get("was"), messages=many(_number(row, "messages"), "message"))
        yield Text(
            "  offset {offset:,}, {bytes} ({what})",
            offset=_number(row, "offset"),
            bytes=many(_number(row, "length"), "byte"),
            what=what,
        )
    if len(rows) > _PLACES:
        yield Text("  … and {places}", places=many(len(rows) - _PLACES, "more place"))


def _number(row: Mapping[str, Json], name: str) -> int:
    value = row.get(name)
    return value if isinstance(value, int) else 0


def _describe_mended(rows: list[Mapping[str, Json]]) -> Iterator[str]:
    """Count messages corrected with the help of a CRC, with the odds of a false match."""
    bytes_ = [row for row in rows if row.get("bit", 0) is None]
    for what, some in (("bit", [row for row in rows if row not in bytes_]), ("byte", bytes_)):
        if not some:
            continue
        odds = [number for row in some if isinstance(number := row.get("odds"), float)]
        most = (
            Text("; odds of a false match at most 1 in {value:,.0f}", value=1 / max(odds))
            if odds and max(odds) > 0
            else ""
        )
        if len(some) > 1:
            where = Text("each")
        else:
            where = Text("beside its body") if some[0].get("crc") == "record" else Text("in its body")
        why = (
            Text("one flipped bit {where}: the only bit that makes the CRC fit", where=where)
            if what == "bit"
            else Text("one wrong byte {where}: the only byte that makes the CRC fit", where=where)
        )
        yield Text("Mended: {messages} ({why}{most})", messages=many(len(some), "message"), why=why, most=most)


def _offsets(numbers: list[int]) -> str:
    """Format queue offsets, adjacent ones as ranges."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number - runs[-1][1] <= 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    texts = [
        Placed("{low:,}", low=low) if low == high else Text("{low:,} to {high:,}", low=low, high=high)
        for low, high in runs[:_PLACES]
    ]
    more = " …" if len(runs) > _PLACES else ""
    return (
        Text("offsets {texts}{more}", texts=joined(texts), more=more)
        if len(numbers) > 1
        else Text("offset {texts}{more}", texts=joined(texts), more=more)
    )


def _describe_fillers(rows: list[Mapping[str, Json]]) -> Iterator[str]:
    """List the visible fillers by the consumer groups that have not consumed them yet."""
    if not rows:
        return
    number = many(len(rows), "visible filler")
    yield Text("{number} in place of lost messages; consumer groups that have not read there yet:", number=number)
    places: dict[tuple[str, str], dict[str, list[int]]] = {}
    for row in rows:
        groups = row.get("groups")
        names = ", ".join(map(str, groups)) if isinstance(groups, list) else ""
        queues = places.setdefault((names, str(row.get("marked") or Text("bytes only"))), {})
        offset = row.get("queue_offset")
        found = queues.setdefault(f"{row.get('topic')}/{row.get('queue_id')}", [])
        found += [offset] if isinstance(offset, int) else []
    for (names, marked), queues in sorted(places.items(), key=lambda item: not item[0][0])[:_LISTED]:
        shown = [
            Placed("{queue} {offsets}", queue=queue, offsets=_offsets(found))
            for queue, found in list(queues.items())[:_PLACES]
        ]
        more = Text(" and {queues}", queues=many(len(queues) - _PLACES, "more queue")) if len(queues) > _PLACES else ""
        mark = Text("not marked, bytes only") if marked == "bytes only" else Text("marked by {marked}", marked=marked)
        yield Placed(
            "  {shown}{more}: {names} ({mark})",
            shown=joined(shown),
            more=more,
            names=names or Text("no known group"),
            mark=mark,
        )
    if len(places) > _LISTED:
        yield Text("  … and {lists} of groups", lists=many(len(places) - _LISTED, "more list"))


def _describe_steps(plan: Plan, limit: int) -> Iterator[str]:
    if plan.empty:
        yield (
            Text("Nothing to do.")
            if "stays" not in plan.facts
            else Text("Nothing is planned: no file would be changed.")
        )
        return
    if plan.cures:
        yield Text("Cures: {cures}", cures=joined(plan.cures))
    yield Text("{steps} in {store}:", steps=many(len(plan.steps), "step"), store=plan.store)
    if len(plan.steps) <= limit:
        yield from (_describe_step(plan.steps[number]) for number in plan.ordered())
    else:
        yield from _describe_sums(plan, limit)
    yield from _saved_spans(plan)


def _saved_spans(plan: Plan) -> Iterator[str]:
    if plan.spans:
        size = sum(span.length for span in plan.spans)
        yield Text(
            "Saved to lost+found: {spans}, {bytes}",
            spans=many(len(plan.spans), "damaged span"),
            bytes=many(size, "byte"),
        )


def _describe_groups(plan: Plan) -> Iterator[str]:
    """Count the parts of the store that the steps concern, by what happens to them."""
    if plan.cures:
        yield Text("Cures: {cures}", cures=joined(plan.cures))
    yield Text("{steps} in {store} (-v lists them):", steps=many(len(plan.steps), "step"), store=plan.store)
    done: dict[tuple[str, str], set[str]] = {}
    for step in plan.steps:
        kind, unit = _part(PurePosixPath(step.path), directory=isinstance(step, _WITHOUT_BYTES))
        done.setdefault((kind, unit), set()).add(step.do)
    rows: dict[tuple[str, str], int] = {}
    for (kind, _), steps in done.items():
        rows[_verb(kind, steps), kind] = rows.get((_verb(kind, steps), kind), 0) + 1
    for (verb, kind), count in sorted(rows.items(), key=lambda row: (row[0][1] in _MADE_AGAIN, row[0])):
        yield _group_words(verb, _counted(kind, count))
    yield from _saved_spans(plan)


_MADE_AGAIN = ("consume queue", "index file")


def _part(path: PurePosixPath, *, directory: bool) -> tuple[str, str]:
    """Return which kind of part of a store a path belongs to, and the part: queues are directories."""
    top = path.parts[0] if path.parts else ""
    if top in ("consumequeue", "batchconsumequeue") and len(path.parts) >= 3:
        return "consume queue", "/".join(path.parts[:3])
    if directory:
        return "directory", str(path)
    if top == "index":
        return "index file", str(path)
    if top == "commitlog" or path.is_absolute():
        return "log file", str(path)
    if top.startswith("dledger-"):
        return "DLedger file", str(path)
    return "configuration file" if top == "config" else "other file", str(path)


def _verb(kind: str, steps: set[str]) -> str:
    """Return what happens to a part by the kinds of its steps."""
    if steps <= {"discard", "set-aside"}:
        return "discard"
    if steps <= {"remove-empty-directory"}:
        return "remove"
    if kind in _MADE_AGAIN and steps & {"create", "overwrite", "extend"}:
        return "rebuild"
    if steps <= {"create", "make-directory"}:
        return "create"
    return "truncate" if steps <= {"truncate"} else "change"


def _counted(kind: str, count: int) -> str:
    """Return a number of parts of a store in words."""
    words = {
        "consume queue": many(count, "consume queue"),
        "index file": many(count, "index file"),
        "log file": many(count, "log file"),
        "DLedger file": many(count, "DLedger file"),
        "configuration file": many(count, "configuration file"),
        "directory": many(count, "directory", "directories"),
    }
    return words.get(kind) or many(count, "other file")


def _group_words(verb: str, counted: str) -> str:
    """Return a line of the grouped plan."""
    lines = {
        "rebuild": Text("  rebuild {counted}", counted=counted),
        "create": Text("  create {counted}", counted=counted),
        "remove": Text("  remove {counted}", counted=counted),
        "truncate": Text("  truncate {counted}", counted=counted),
        "change": Text("  change {counted}", counted=counted),
    }
    return lines.get(verb) or Text("  move {counted} into quarantine", counted=counted)


def _describe_sums(plan: Plan, limit: int) -> Iterator[str]:
    """Count steps by kind and directory; if that makes too many lines, by kind and top-level directory."""
    folder = cache(lambda path: str(PurePosixPath(path).parent))
    rows = _sums(plan, folder)
    if len(rows) > limit:
        rows = _sums(plan, cache(lambda path: _top(PurePosixPath(path))))
    shown = sorted(rows, key=lambda key: (-rows[key][0], key))
    for key in shown[:limit]:
        do, place, why = key
        count, size = rows[key]
        amount = Placed(": {bytes}", bytes=many(size, "byte")) if size else ""
        yield _with_why(
            Text("  {do} x {count:,} in {place}/{amount}", do=do, count=count, place=place, amount=amount), why
        )
    if len(rows) > limit:
        rest = sum(rows[key][0] for key in shown[limit:])
        yield Text(
            "  … and {steps} in {kinds}", steps=many(rest, "more step"), kinds=many(len(rows) - limit, "more kind")
        )


def _top(path: PurePosixPath) -> str:
    """Return the top-level directory of a path in the store; outside the store, its parent."""
    return str(path.parent) if path.is_absolute() or len(path.parts) < 2 else path.parts[0]


def _sums(plan: Plan, folder: Callable[[str], str]) -> dict[tuple[str, str, str], tuple[int, int]]:
    """Sum up steps: (kind, directory, why) -> (steps, bytes)."""
    out: dict[tuple[str, str, str], tuple[int, int]] = {}
    for step in plan.steps:
        key = (step.do, folder(step.path), step.why)
        count, size = out.get(key, (0, 0))
        out[key] = (count + 1, size + (0 if isinstance(step, _WITHOUT_BYTES) else step.length))
    return out


def _describe_stays(plan: Plan) -> Iterator[str]:
    """List the problems that the plan does not repair, why, and what to do; tolerate any JSON."""
    rows = plan.facts.get("stays")
    if not isinstance(rows, Mapping) or not rows or "expire" in plan.facts:  # a clean-up was not asked to repair
        return
    if plan.empty:
        yield Text("Not repaired by any step (`rmqstore verify` shows the places):")
    else:
        yield Text("This plan does not repair:")
    alike: dict[tuple[str, str], list[str]] = {}
    for code, row in rows.items():
        if isinstance(row, Mapping):
            alike.setdefault((_words(row.get("why")), _words(row.get("do"))), []).append(f"{code} x {row.get('count')}")
    for (why, do), codes in alike.items():
        yield Placed("  {codes}: {why}", codes=joined(codes), why=why)
        yield Placed("    -> {do}", do=do)


def _words(value: Json) -> str:
    """Return a text of the plan with its template; a plan that was read from a file may have any JSON."""
    return value if isinstance(value, str) else str(value)


def _describe_outcome(plan: Plan) -> Iterator[str]:
    """Say what a verification will find after the plan, and what the next start would do; tolerate any JSON."""
    row = plan.facts.get(AFTER)
    if not isinstance(row, Mapping):
        return
    counts, unchecked = row.get("counts"), row.get("unchecked")
    numbers = [n for n in counts.values() if isinstance(n, int)] if isinstance(counts, Mapping) else []
    left = Text("{problems} left", problems=many(sum(numbers), "problem")) if numbers else Text("no problems")
    if isinstance(unchecked, Sequence) and unchecked and not numbers:
        left = Text("no problems, but not everything can be checked")
    yield ""
    verdict = row.get("verdict")
    if not isinstance(verdict, Text):  # the plan was read from a file
        verdict = str(verdict).rstrip(".")
    then = Placed("{left}. {verdict}.", left=left, verdict=verdict)
    yield (
        Text("After this repair: {then}", then=then)
        if "strategy" in plan.facts
        else Text("After this change: {then}", then=then)
    )


def _with_why(line: str, why: str) -> str:
    return Placed("{line} ({why})", line=line, why=why) if why else line


def _describe_step(step: Step) -> str:
    if isinstance(step, Overwrite):
        zeros = Text(" with zeros") if isinstance(step.content, Zeros) else ""
        line = Text(
            "overwrite {path} at {at:,}: {bytes}{zeros}",
            path=step.path,
            at=step.at,
            bytes=many(step.length, "byte"),
            zeros=zeros,
        )
    elif isinstance(step, Truncate | Extend):
        line = Text(
            "{do} {path} from {from_size:,} to {bytes}",
            do=step.do,
            path=step.path,
            from_size=step.from_size,
            bytes=many(step.to_size, "byte"),
        )
    elif isinstance(step, Create):
        line = Text("create {path}: {bytes}", path=step.path, bytes=many(step.size, "byte"))
    elif isinstance(step, Discard):
        line = Text("move {path} into quarantine", path=step.path)
    elif isinstance(step, Delete):
        line = Text("delete {path} for ever: {bytes}", path=step.path, bytes=many(step.length, "byte"))
    elif isinstance(step, SetAside):
        line = Text("set {path} aside", path=step.path)
    elif isinstance(step, Rename):
        line = Text(
            "rename {source}, already set aside, to {name}",
            source=step.source,
            name=PurePosixPath(step.path).name,
        )
    elif isinstance(step, MakeDirectory):
        line = Text("make directory {path}/", path=step.path)
    else:
        line = Text("remove empty directory {path}/", path=step.path)
    return _with_why("  " + line, step.why)
