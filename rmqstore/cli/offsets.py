"""`rmqstore offsets`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqstore.cli.printing.output import Output
from rmqstore.cli.printing.quantities import TIME, many, parse_time, printable, time_text, title
from rmqstore.cli.printing.table_output import write_rows
from rmqstore.cli.shared.options import FILE, PATH, Applying, applying, command, gathered, queue_option
from rmqstore.cli.shared.settings import closest
from rmqstore.cli.shared.topics import parse_queues
from rmqstore.errors import AppliedUnchecked, CouldNotCheck, Refused, UsageError
from rmqstore.files.disk import is_snapshot_address
from rmqstore.texts import Placed, Text, joined

if TYPE_CHECKING:
    from rmqstore.checks.beside.config import ConsumerOffsets
    from rmqstore.documents.plan import Plan
    from rmqstore.files.broker_config import BrokerConfig
    from rmqstore.files.config import Committed
    from rmqstore.files.store import Store
    from rmqstore.repair.offsets import OffsetChange
    from rmqstore.views.progress import GroupProgress, QueuePositions

_MOST_DIGITS = 9  # of a queue offset; a longer number may be a time
_SHOWN = 40
_GROUPS = 20  # groups that are named if none was found
_STATES: dict[str, Text] = {
    text: text for text in (Text("acknowledged"), Text("invisible"), Text("returned"), Text("unknown"))
}
_COLUMNS = ("group", "topic", "queue_id", "offset", "min", "max", "lag", "unread_gone", "next_timestamp", "pop")


@dataclass(frozen=True, slots=True)
class OffsetsOptions:
    """Which offsets to show, or which change is wanted; at most one."""

    groups: tuple[str, ...]
    topics: tuple[str, ...]
    queues: tuple[str, ...]
    set_of: tuple[str, str] | None
    target: str | None
    new_group: bool
    clone: tuple[str, str] | None
    source: Path | None
    greatest: bool
    restore_bak: bool
    write_json: Path | None

    def wanted(self) -> Callable[[Committed], bool]:
        """Return which offsets pass the filters. Errors: as `parse_queues`."""
        ids, pairs = parse_queues(self.queues)

        def passes(one: Committed) -> bool:
            return (
                (not self.groups or one.group in self.groups)
                and (not self.topics or one.topic in self.topics)
                and (not self.queues or one.queue_id in ids or (one.topic, one.queue_id) in pairs)
            )

        return passes


@command(
    "offsets",
    report=True,
    formats=("table", "ndjson", "csv"),
    examples=(
        "rmqstore offsets /data/rocketmq/store --group CG_orders",
        "rmqstore offsets /data/rocketmq/store --set CG_orders Order --to '2026-11-22 18:00' --apply",
        "rmqstore offsets /data/rocketmq/store --from /backup/store --max --apply",
    ),
)
@click.option("--group", "groups", multiple=True, metavar="NAME", help="Only this group (may be repeated).")
@click.option("--topic", "topics", multiple=True, metavar="NAME", help="Only this topic (may be repeated).")
@queue_option
@click.option("--set", "set_of", nargs=2, metavar="GROUP TOPIC", help="Move a group in a topic to another place.")
@click.option("--new-group", is_flag=True, help="With --set: the store does not know the group yet.")
@click.option(
    "--to",
    "target",
    metavar="WHEN",
    help="With --set: a time (the first message stored then or later), earliest, latest, or a queue offset.",
)
@click.option("--clone", nargs=2, metavar="GROUP NEW", help="Give NEW, which has no offsets, those of GROUP.")
@click.option(
    "--from",
    "source",
    type=PATH,
    metavar="STORE|FILE",
    help="Take the offsets of another store, for example of a replica or a backup, or of a consumerOffset.json.",
)
@click.option(
    "--max", "greatest", is_flag=True, help="With --from: take only offsets that are greater than those here."
)
@click.option("--restore-bak", is_flag=True, help="Put consumerOffset.json.bak in the place of consumerOffset.json.")
@click.option(
    "--write-json",
    type=FILE,
    metavar="FILE",
    help="Write the offsets as a consumerOffset.json to FILE, also those in RocksDB; the store stays as it is.",
)
@applying()
@gathered("asked", OffsetsOptions)
def offsets(out: Output, store: Path, config: BrokerConfig, asked: OffsetsOptions, applying: Applying) -> int:
    """Show the progress of consumer groups in each queue, or change it while the broker is stopped.

    For each queue: the offset that the group reads next, how many messages it has not received (lag), the store time of
    the next message, how many unread messages are gone with the log before its begin, and what POP consumers have
    received without acknowledging it. Offsets are read and written where the broker keeps them: in JSON files or in
    RocksDB; --write-json and --from FILE carry them from one to the other. A change is a plan that shows how many
    messages each group will receive again or skip; nothing is written without --apply, and `rmqstore undo` undoes it.
    No offset is set beyond the end of its queue. Restart all consumers of a group whose offsets you change: they keep
    their own in memory.

    In CSV, a text that a spreadsheet would run as a formula has a ' before it.
    """
    from rmqstore.checks.beside.config import ConsumerOffsets
    from rmqstore.cli.shared.apply_command import open_for
    from rmqstore.cli.shared.reading import open_named, refuse_part

    wanted = ("set_of", "clone", "source", "restore_bak", "write_json")
    changes = [name for name in wanted if getattr(asked, name)]
    if len(changes) > 1:
        words = Text("--set, --clone, --from, --restore-bak and --write-json exclude each other")
        raise UsageError(words, Text("give one of them"))
    if (asked.target is None) != (asked.set_of is None):
        raise UsageError(Text("--set and --to belong together"), Text("for example: --set GROUP TOPIC --to earliest"))
    if asked.greatest and asked.source is None:
        raise UsageError(Text("--max needs --from"), Text("for example: --from /backup/store --max"))
    shows = applying.plan_file is None and changes in ([], ["write_json"])
    if shows and is_snapshot_address(store):
        opened = open_named(store, config)
    else:
        opened = open_for(out, store, config, applying)
    refuse_part(opened, Text("name the whole store: its config/ has the offsets"))
    known = ConsumerOffsets.read(opened)
    if asked.write_json is not None:
        return _write_json(out, opened, known, asked, asked.write_json)
    if shows:
        return _show(out, opened, known, asked)
    plan, rows = _planned(opened, known, asked, applying)
    return _finish(out, opened, plan, rows, applying)


# --- showing ----------------------------------------------------------------------------------------------------------


def _show(out: Output, store: Store, known: ConsumerOffsets, asked: OffsetsOptions) -> int:
    from rmqstore.views.progress import PopProgress, group_progress

    popped = PopProgress.read(store, known, newest=None)
    unread = joined(dict.fromkeys(filter(None, (known.unreadable, popped.unreadable))), "; ")
    rows = group_progress(store, known, popped, asked.wanted())
    if out.as_json:
        out.report(_document(store) | {"unreadable": unread or None, "offsets": [_row(row) for row in rows]})
    else:
        as_text = out.format == "table"
        found = write_rows(out, (_row(row) | ({"pop": _states(row)} if as_text else {}) for row in rows), _COLUMNS)
        if unread:
            out.note(Text("note: {note}", note=unread))
        if not (found or known.unreadable):
            groups = [*dict.fromkeys(printable(one.group) for one in known.rows())]
            names = joined([*groups[:_GROUPS], *(["…"] if len(groups) > _GROUPS else [])])
            nothing, others = Text("note: no group has offsets here"), Text("note: no such offsets; groups: {names}")
            out.note(others.format(names=names) if names else nothing)
    return 4 if unread else 0


def _document(store: Store) -> dict[str, Any]:
    return {"schema": "rmqstore.offsets/1", "store": str(store.path)}


def _row(row: GroupProgress) -> dict[str, Any]:
    found = asdict(row)
    pop = found.pop("pop")
    return {**found, "lag": row.lag, "pop": pop}


def _states(row: GroupProgress) -> str:
    if row.pop is None:
        return title(Text("unknown"))
    return title(joined(Placed("{count:,} {state}", count=n, state=_STATES[state]) for state, n in row.pop.items()))


def _write_json(out: Output, store: Store, known: ConsumerOffsets, asked: OffsetsOptions, path: Path) -> int:
    """Write the offsets that are asked for to a file, and say how many.

    Errors: CouldNotCheck for offsets of which some cannot be read: a broker would begin at another place without them.
    """
    from rmqstore.repair.offsets import offsets_json

    if known.unreadable:
        raise CouldNotCheck(known.unreadable, Text("nothing was written; `rmqstore verify` tells what is wrong"))
    rows = list(filter(asked.wanted(), known.rows()))
    target = Output(path=path, quiet=out.quiet).keep_out_of(store.path)
    with target.stream() as file:
        file.write(offsets_json(rows))
    count = len({row.group for row in rows})
    words = Text(
        "{offsets} of {groups} written to {path}",
        offsets=many(len(rows), "offset"),
        groups=many(count, "group"),
        path=path,
    )
    out.answer(_document(store) | {"written": str(path), "groups": count, "count": len(rows)}, [words])
    return 0


# --- changing ---------------------------------------------------------------------------------------------------------


def _planned(
    store: Store, known: ConsumerOffsets, asked: OffsetsOptions, applying: Applying
) -> tuple[Plan, list[OffsetChange]]:
    from rmqstore.cli.shared.apply_command import read_plan_of
    from rmqstore.repair.offsets import plan_offset_changes, plan_restore_backup
    from rmqstore.views.progress import QueuePositions

    if applying.plan_file is not None:
        return _saved(store, known, read_plan_of(applying.plan_file, store, "command", "offsets"))
    positions = QueuePositions(store)
    if asked.restore_bak:
        return plan_restore_backup(store), list(_backup_changes(store, known, positions))
    if asked.set_of is not None:
        if not asked.new_group:
            _refuse_unknown_group(store, known, asked.set_of[0])
        changes = _set_changes(known, positions, asked)
        facts = {"set": "/".join(asked.set_of), "to": str(asked.target)}
    elif asked.clone is not None:
        changes = _clone_changes(known, *asked.clone)
        facts = {"clone": asked.clone[0], "as": asked.clone[1]}
    else:
        assert asked.source is not None
        changes = _merge_changes(store, known, positions, asked.source, greatest=asked.greatest)
        facts = {"from": str(asked.source)}
    return plan_offset_changes(store, changes, facts), [c for c in changes if c.old != c.new]


def _saved(store: Store, known: ConsumerOffsets, saved: Plan) -> tuple[Plan, list[OffsetChange]]:
    """Return a saved plan with what it really changes: the offsets before and after it are compared."""
    from rmqstore.checks.beside.config import ConsumerOffsets
    from rmqstore.cli.shared.saved_plan import measured, without_claims
    from rmqstore.repair.offsets import change_between
    from rmqstore.repair.planned import after
    from rmqstore.views.progress import QueuePositions

    plan, positions = measured(store, None, without_claims(saved), None), QueuePositions(store)
    changes = [
        change_between(
            group, topic, queue_id, _stored(known, group, topic, queue_id), offset, positions.bounds(topic, queue_id)
        )
        for topic, queues in ConsumerOffsets.read(after(store, plan)).queues.items()
        for queue_id, groups in queues.items()
        for group, offset in groups.items()
        if _stored(known, group, topic, queue_id) != offset
    ]
    return plan, changes


def _stored(offsets: ConsumerOffsets, group: str, topic: str, queue_id: int) -> int | None:
    return offsets.queues.get(topic, {}).get(queue_id, {}).get(group)


def _refuse_unknown_group(store: Store, known: ConsumerOffsets, group: str) -> None:
    """Errors: UsageError for a group that has no offsets and is not registered: its name may be mistyped."""
    from rmqstore.files.config import GROUPS
    from rmqstore.files.read_rights import config_rows

    registered = config_rows(store, GROUPS)
    names = {row.group for row in known.rows()}.union(registered or ())
    if group in names or registered is None:
        return
    like = closest(group, names)
    raise UsageError(
        Text("the store does not know the group {group}", group=group),
        Text("did you mean {like}? Or add --new-group", like=like) if like else Text("add --new-group if it is new"),
    )


def _set_changes(known: ConsumerOffsets, positions: QueuePositions, asked: OffsetsOptions) -> list[OffsetChange]:
    from rmqstore.repair.offsets import change_between

    assert asked.set_of is not None
    (group, topic), target = asked.set_of, str(asked.target)
    numbers, pairs = parse_queues(asked.queues)
    chosen = sorted(numbers | {queue_id for name, queue_id in pairs if name == topic})
    ids = positions.queues(topic)
    if wrong := [f"{name}/{queue_id}" for name, queue_id in pairs if name != topic]:
        raise UsageError(
            Text("--queue {queue} is not of the topic {topic}", queue=wrong[0], topic=topic), Text("leave it out")
        )
    if missing := sorted(set(chosen) - set(ids)) or not ids:
        which = f"{topic}/{missing[0]}" if isinstance(missing, list) else topic
        raise UsageError(Text("the store has no queue {which}", which=which), Text("`rmqstore info` lists the queues"))
    changes = []
    for queue_id in chosen or ids:
        bounds = positions.bounds(topic, queue_id)
        if bounds is None:
            continue
        new = _target(positions, topic, queue_id, bounds, target)
        old = _stored(known, group, topic, queue_id)
        changes.append(change_between(group, topic, queue_id, old, new, bounds))
    return changes


def _target(positions: QueuePositions, topic: str, queue_id: int, bounds: tuple[int, int], target: str) -> int:
    """Return the queue offset that --to means in a queue. Errors: UsageError for one outside of it, or no time."""
    from rmqstore.views.progress import EARLIEST, LATEST

    if target in (EARLIEST, LATEST):
        return bounds[0] if target == EARLIEST else bounds[1]
    digits = target.replace(",", "")
    if digits.isdecimal() and len(digits) <= _MOST_DIGITS:
        if not bounds[0] <= int(digits) <= bounds[1]:
            queue = f"{topic}/{queue_id}"
            where = Text("{queue}, which has {first:,} to {last:,}", queue=queue, first=bounds[0], last=bounds[1])
            raise UsageError(
                Text("--to {target} is outside of {where}", target=target, where=where),
                Text("give an offset in the queue, earliest or latest"),
            )
        return int(digits)
    try:
        when = parse_time(target)
    except ValueError as error:
        raise UsageError(
            Text("--to {why}", why=TIME.reason(target, error)),
            Text("give a time, earliest, latest or a queue offset"),
        ) from error
    return positions.at_time(topic, queue_id, when)


def _clone_changes(known: ConsumerOffsets, group: str, new: str) -> list[OffsetChange]:
    from rmqstore.repair.offsets import OffsetChange
    from rmqstore.views.progress import of_group

    rows = [one for one in of_group(known, group) if not one.topic.startswith("%RETRY%")]
    if not rows:
        raise UsageError(
            Text("the group {group} has no offsets", group=group), Text("`rmqstore offsets STORE` lists the groups")
        )
    if of_group(known, new):
        raise Refused(Text("the group {new} has offsets already", new=new), Text("use --set, or choose another name"))
    return [OffsetChange(new, one.topic, one.queue_id, None, one.offset) for one in rows]


def _merge_changes(
    store: Store, known: ConsumerOffsets, positions: QueuePositions, source: Path, *, greatest: bool
) -> list[OffsetChange]:
    from rmqstore.repair.offsets import change_between

    changes = []
    for one in sorted(_other_offsets(store, source)):
        bounds = positions.bounds(one.topic, one.queue_id)
        if bounds is None or one.offset < 0:
            continue  # this store does not have the queue, or the other one no offset: brokers answer -1 then
        old = _stored(known, one.group, one.topic, one.queue_id)
        new = min(one.offset, bounds[1])
        if old is None or not greatest or new > old:
            changes.append(change_between(one.group, one.topic, one.queue_id, old, new, bounds))
    return changes


def _other_offsets(store: Store, source: Path) -> Iterable[Committed]:
    """Return the offsets of another store, or of a file. Errors: Refused if they cannot be read; as `open_other`."""
    from rmqstore.checks.beside.config import ConsumerOffsets
    from rmqstore.cli.shared.apply_command import open_other
    from rmqstore.files.config import committed_offsets, config_object
    from rmqstore.files.files import LOCAL

    why: str = Text("it is not a consumerOffset.json")
    if source.is_file():
        table = config_object(LOCAL, source)
        found = committed_offsets(table) if table is not None and "offsetTable" in table else None
        if found is not None:
            return found
    else:
        other = ConsumerOffsets.read(open_other(store, source, "--from"))
        if not other.unreadable:
            return other.rows()
        why = other.unreadable
    raise Refused(
        Text("the offsets of {source} are not readable: {unreadable}", source=source, unreadable=why),
        Text("give another store"),
    )


def _backup_changes(store: Store, known: ConsumerOffsets, positions: QueuePositions) -> Iterator[OffsetChange]:
    from rmqstore.files.config import committed_offsets, config_object
    from rmqstore.repair.offsets import FILES, change_between

    table = config_object(store.files, store.root / "config" / f"{FILES[0]}.bak") or {}
    for one in sorted(committed_offsets(table) or ()):
        old = _stored(known, one.group, one.topic, one.queue_id)
        bounds = positions.bounds(one.topic, one.queue_id)
        if old != one.offset:
            yield change_between(one.group, one.topic, one.queue_id, old, one.offset, bounds)


def _finish(out: Output, store: Store, plan: Plan, changes: list[OffsetChange], applying: Applying) -> int:
    """Print, save or apply the plan; return the exit code."""
    from rmqstore.cli.shared.apply_command import after_apply, how_to_apply, save_plan
    from rmqstore.repair.journal.journal import apply

    save_plan(out, plan, store.path, applying)
    done = None
    if not out.as_json:
        out.lines(_change_lines(store, plan, changes), wrap=True)
    if applying.apply_it and not plan.empty:
        done = apply(plan, **applying.how)
        with after_apply(out, done):
            _check(store, plan)
    applied = done is not None
    if out.as_json:
        out.report(
            _document(store)
            | {"applied": applied, "journal": None if done is None else str(done.journal), "digest": plan.digest}
            | {"changes": [asdict(change) for change in changes], "steps": plan.summaries(), "notes": list(plan.notes)}
        )
    elif applied:
        out.lines([Text("The offsets are as planned. Restart the consumers of these groups.")], wrap=True)
    elif not plan.empty:
        out.lines([how_to_apply(plan)], wrap=True)
    return 0 if applied or plan.empty else 1


def _check(store: Store, plan: Plan) -> None:
    """Read the offsets again. Errors: AppliedUnchecked if they are not those of the plan."""
    from rmqstore.checks.beside.config import ConsumerOffsets
    from rmqstore.files.store import open_store

    found = ConsumerOffsets.read(open_store(store.path, store.config))
    asked = plan.facts.get("offsets")
    rows: Any = asked.get("changes", []) if isinstance(asked, dict) else []
    for row in rows:
        now = _stored(found, row["group"], row["topic"], row["queue_id"])
        if now != row["to"]:
            where = Text("{group} in {topic}/{id}", group=row["group"], topic=row["topic"], id=row["queue_id"])
            raise AppliedUnchecked(
                Text("the plan was applied, but {where} is at {now}, not {to}", where=where, now=now, to=row["to"]),
                Text("undo it"),
            )


def _change_lines(store: Store, plan: Plan, changes: Sequence[OffsetChange]) -> Iterator[str]:
    from rmqstore.formats.properties import KEYS, UNIQ_KEY, parse_properties
    from rmqstore.views.progress import QueuePositions

    if plan.empty:
        yield Text("Nothing to change: the offsets are already so.")
        return
    again, skipped = sum(c.again for c in changes), sum(c.skipped for c in changes)
    words = Text("{offsets} will change: {again} will be delivered again, {skipped} will be skipped.")
    counts = {"again": many(again, "message"), "skipped": many(skipped, "message")}
    yield words.format(offsets=many(len(changes), "offset"), **counts)
    yield ""
    positions = QueuePositions(store)
    for change in changes[:_SHOWN]:
        old = Text("none") if change.old is None else f"{change.old:,}"
        what: str = ""
        if change.again:
            what = Text(", {count:,} again", count=change.again)
        elif change.skipped:
            what = Text(", {count:,} skipped", count=change.skipped)
        at = change.old if change.skipped and change.old is not None else change.new
        found = positions.message(change.topic, change.queue_id, at)
        sample: str = ""
        if found is not None:
            known = parse_properties(found.message.properties)
            key = known.get(KEYS) or known.get(UNIQ_KEY) or Text("without a key")
            first, following = Text("; first one: {key}, stored {time}"), Text("; next message: {key}, stored {time}")
            words = first if change.skipped else following
            sample = words.format(key=key, time=time_text(found.message.store_timestamp))
        where = Text("{group} in {topic}/{id}", group=change.group, topic=change.topic, id=change.queue_id)
        move = Placed("{old} -> {new:,}", old=old, new=change.new)
        yield Placed("  {where}: {move}{what}{sample}", where=where, move=move, what=what, sample=sample)
    if len(changes) > _SHOWN:
        yield Text("  … and {offsets} (--json lists all)", offsets=many(len(changes) - _SHOWN, "more offset"))
    for group in sorted({c.group for c in changes} - {c.group for c in changes if c.old is not None}):
        yield Text("  {group} has no offset there yet: its consumers will begin at these.", group=group)
    yield ""
    places = sorted({str(step["path"]).rpartition("/")[0] for step in plan.summaries()})
    yield Text("Writes to {places} in {steps}.", places=joined(places), steps=many(len(plan.steps), "step"))
