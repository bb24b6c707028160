"""Topics and queues that the user names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from rmqstore.cli.shared.settings import closest
from rmqstore.texts import Text

if TYPE_CHECKING:
    from rmqstore.cli.printing.output import Output
    from rmqstore.files.store import Store
    from rmqstore.formats.consumequeue import QueueName


def parse_queues(texts: tuple[str, ...]) -> tuple[frozenset[int], frozenset[QueueName]]:
    """Parse values of --queue into queue ids and (topic, id) pairs. Errors: click.BadParameter."""
    from rmqstore.formats.consumequeue import parse_queue_id, parse_queue_label

    ids, pairs = set(), set()
    for text in texts:
        if name := parse_queue_label(text):
            pairs.add(name)
        elif (queue_id := parse_queue_id(text)) is not None:
            ids.add(queue_id)
        else:
            raise click.BadParameter(
                Text("{text!r} is not a queue: give a queue id, or TOPIC/ID", text=text), param_hint="--queue"
            )
    return frozenset(ids), frozenset(pairs)


def note_unknown_topics(out: Output, store: Store, topics: Iterable[str], pairs: Iterable[QueueName] = ()) -> None:
    """Write to stderr which topics a store does not have, with a similar one; nothing for a part of a store."""
    wanted = [*topics, *sorted({topic for topic, _ in pairs})]
    if not wanted or store.part is not None:
        return
    from rmqstore.files.topics import topics as topics_of

    known = topics_of(store)
    for topic in wanted if known else ():
        if topic not in known:
            near = closest(topic, known, 0.5)
            hint = Text("; did you mean {near}?", near=near) if near else ""
            words = Text("note: topic {topic!r} has no consume queue and no configuration in this store{hint}")
            out.note(words.format(topic=topic, hint=hint))
