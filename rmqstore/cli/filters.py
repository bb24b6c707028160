"""What --topic, --queue, --since and --until ask for; filters that say nothing, and topics that the store lacks."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from rmqstore.errors import UsageError

if TYPE_CHECKING:
    from rmqstore.cli.output import Output
    from rmqstore.files.store import Store
    from rmqstore.views.dump.selection import Selection

_MOST = 64 << 20


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters that most commands share, as they were typed; `since` and `until` in ms, half-open."""

    topics: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    since: int | None = None
    until: int | None = None

    def selection(self) -> Selection:
        """The same for records.

        Errors: click.BadParameter for a queue that is none.
        """
        from rmqstore.views.dump.selection import Selection

        ids, pairs = parse_queues(self.queues)
        return Selection(frozenset(self.topics), ids, pairs, since=self.since, until=self.until)


def parse_queues(texts: tuple[str, ...]) -> tuple[frozenset[int], frozenset[tuple[str, int]]]:
    """`--queue` values: plain queue ids, and (topic, id) pairs.

    Errors: click.BadParameter
    """
    ids, pairs = set(), set()
    for text in texts:
        topic, slash, number = text.rpartition("/")
        if not number.isdigit() or (slash and not topic):
            raise click.BadParameter(f"{text!r} is no queue: give a queue id, or TOPIC/ID", param_hint="--queue")
        if slash:
            pairs.add((topic, int(number)))
        else:
            ids.add(int(number))
    return frozenset(ids), frozenset(pairs)


def refuse_unknown_codes(codes: Iterable[str]) -> None:
    """Errors: UsageError for the first --only that is no problem's code, with the nearest one."""
    from rmqstore.checks.problems.table import PROBLEMS

    for code in codes:
        if code not in PROBLEMS:
            import difflib

            close = difflib.get_close_matches(code.upper(), PROBLEMS, 1, 0.5)
            hint = f", did you mean {close[0]}?" if close else ""
            raise UsageError(f"--only {code}: there is no such problem{hint}", "man rmqstore-problems lists all codes")


def refuse_filters(what: str, selection: Selection, fitting: Collection[str]) -> None:
    """Errors: UsageError for a filter that says nothing about what is dumped."""
    for name in _filters(selection):
        if name not in fitting:
            raise UsageError(f"--{name} says nothing about --what {what}", "leave it out, or dump messages")
    if what == "index" and (bool(selection.keys) != bool(selection.topics)):
        raise UsageError("an index entry has only a hash of topic and key", "give both --topic and --key")


def _filters(selection: Selection) -> list[str]:
    """The filters that are given, each by one of its options."""
    given = {
        "topic": selection.by_queue,
        "tag": bool(selection.tags),
        "key": bool(selection.keys),
        "msg-id": bool(selection.msg_ids),
        "since": selection.since is not None or selection.until is not None,
        "from": selection.start is not None or selection.stop is not None,
    }
    return [name for name, is_given in given.items() if is_given]


def refuse_with_positions(out: Output, selection: Selection) -> None:
    """Errors: UsageError for what --positions, which is about the whole log, knows nothing of."""
    others = {"limit": selection.limit is not None, "reverse": selection.reverse, "format hex": out.format == "hex"}
    for name in [*_filters(selection), *(name for name, is_given in others.items() if is_given)]:
        raise UsageError(f"--{name} says nothing about --positions", "leave it out")


def note_unknown_topics(
    out: Output, store: Store, topics: Iterable[str], pairs: Iterable[tuple[str, int]] = ()
) -> None:
    """Names topics that no consume queue and no configuration knows, with the nearest one; silent for a part."""
    wanted = [*topics, *sorted({topic for topic, _ in pairs})]
    if not wanted or store.part is not None:
        return
    import difflib

    known = _known(store)
    for topic in wanted if known else ():
        if topic not in known:
            near = difflib.get_close_matches(topic, known, 1, 0.5)
            hint = f"; did you mean {near[0]}?" if near else ""
            out.note(f"note: no consume queue and no configuration of this store names the topic {topic!r}{hint}")


def _known(store: Store) -> frozenset[str]:
    from rmqstore.files.mapped_file_queue import list_directory, read_at
    from rmqstore.formats.configjson import ConfigJsonError, parse_config_object

    names = {
        entry.path.name
        for tree in ("consumequeue", "batchconsumequeue")
        for entry in list_directory(store.root / tree)
        if entry.directory
    }
    for name in ("topics.json", "topics.json.bak"):
        try:
            table = parse_config_object(read_at(store.root / "config" / name, _MOST, 0)).get("topicConfigTable")
        except (ConfigJsonError, OSError):
            continue
        if isinstance(table, dict):
            names |= table.keys()
    return frozenset(names)
