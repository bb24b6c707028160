"""`rmqstore info`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqstore.cli.lang import AsIs
from rmqstore.cli.printing.output import Output
from rmqstore.cli.printing.quantities import (
    KINDS,
    bytes_text,
    columns,
    fitted,
    in_words,
    many,
    queue_time_text,
    span_words,
    time_text,
    title,
    wrapped,
)
from rmqstore.cli.shared.metrics import Metrics, metrics_option, of_info
from rmqstore.cli.shared.options import command
from rmqstore.errors import UsageError
from rmqstore.texts import Placed, Text, joined

if TYPE_CHECKING:
    from rmqstore.files.broker_config import BrokerConfig
    from rmqstore.files.store import Store
    from rmqstore.views.info import ControllerInfo, DLedgerInfo, Info, LogInfo, TopicInfo

_LABEL = 16
_LISTED = 40
_ODD = 5
_EPOCHS = 3
_ROLES = {
    "master": Text("of a master"),
    "slave": Text("of a slave"),
    "controller": Text("of a broker in controller mode"),
}
_SIZE_FROM = {
    "files": Text("from the files"),
    "names": Text("from their names"),
    "config": Text("from broker.conf"),
    "default": Text("assumed"),
}


@command(
    "info",
    report=True,
    examples=(
        "rmqstore info /data/rocketmq/store",
        "rmqstore info /data/rocketmq/store -c /etc/rocketmq/broker.conf -v",
        "rmqstore info /data/rocketmq/store -c /etc/rocketmq/broker.conf --settings --broker 4.9.7 --broker 5.5.1",
    ),
)
@click.option(
    "--settings", is_flag=True, help="Show every setting of the broker, its value and where it comes from, instead."
)
@click.option(
    "--broker",
    "brokers",
    multiple=True,
    metavar="VERSION",
    help="With --settings: the version that reads broker.conf (may be repeated: shows what differs).",
)
@metrics_option
def info(
    out: Output, store: Path, config: BrokerConfig, settings: bool, brokers: tuple[str, ...], metrics: Path | None
) -> int:
    """Show what a store contains, or with --settings the configuration of its broker.

    Kind, files, sizes, first and last offsets, topics and queues, clean or unclean shutdown, whether a broker runs,
    checkpoint, DLedger terms and indexes, time range. Reads only a few kilobytes per file, and does not look for
    problems: that is what `rmqstore verify` does.

    --settings reads the file as mqbroker -c does. It does not know mqbroker -n, which replaces namesrvAddr, nor
    environment variables and system properties; mqbroker -p and -m start no broker. `man rmqstore` says which of them
    count, and when.
    """
    from rmqstore.cli.shared.reading import open_named
    from rmqstore.files.sources import LOG_ONLY
    from rmqstore.views.info import info as look

    opened = open_named(store, config, LOG_ONLY)
    if settings:
        return _settings(out, opened, config, brokers)
    if brokers:
        raise UsageError(Text("--broker needs --settings"), Text("add --settings"))
    measured = Metrics(out, metrics, "info", store)
    seen = look(opened)
    if seen.live:
        pid = seen.lock.get("pid")
        out.note(
            Text("note: a broker is running on this store (pid {pid}); the numbers are changing", pid=pid)
            if pid
            else Text("note: a broker is running on this store; the numbers are changing")
        )
    code = 4 if seen.unchecked else 0
    measured.write(of_info(seen), code)
    out.answer(seen.to_json(), _text(seen, out, config.source), wrap=False)
    return code


def _settings(out: Output, store: Store, config: BrokerConfig, brokers: tuple[str, ...]) -> int:
    """Print the settings of brokers of these versions. Errors: UsageError for an unknown version."""
    from rmqstore.brokers.rules import rules_for
    from rmqstore.brokers.writer import writer_of
    from rmqstore.cli.printing.settings_text import settings_text
    from rmqstore.views.settings import settings_of

    versions = [rules_for(one).version for one in brokers or (writer_of(store).forecast_version,)]
    shown = settings_of(str(store.path), config, list(dict.fromkeys(versions)))
    out.answer(shown.to_json(), settings_text(shown, out.width), wrap=False)
    return 0


def _head(seen: Info) -> Iterator[str]:
    part: str = Placed(": {part}", part=seen.part) if seen.part else ""
    if seen.part is None and seen.role in _ROLES:
        part = Placed(", {role}", role=_ROLES[seen.role])
    yield Placed("{store} — {kind}{part}", store=seen.store, kind=KINDS[seen.kind], part=part)
    if seen.part is None:
        if seen.live:
            pid = seen.lock.get("pid")
            yield Text("A broker is running on it (pid {pid}).", pid=pid) if pid else Text("A broker is running on it.")
        elif seen.abort:
            yield Text("Unclean shutdown (abort file present); no broker is running on it now.")
        else:
            yield Text("Clean shutdown (no abort file); no broker is running on it now.")
    yield ""


def _text(seen: Info, out: Output, config: str) -> Iterator[str]:
    yield from _head(seen)
    if seen.commitlog is not None and (seen.commitlog.files or seen.dledger is None):
        yield from _log("Commitlog", seen.commitlog)
    if seen.dledger is not None:
        yield from _dledger(seen.dledger)
    if seen.controller is not None:
        yield from _controller(seen.controller)
    retained = seen.retained
    if retained is not None:
        start, stop = map(time_text, retained)
        span = span_words(retained[1] - retained[0])
        yield _row(Text("Messages from"), Text("{start} to {stop} ({span})", start=start, stop=stop, span=span))
    if seen.topics:
        queues, count = sum(len(t.queues) for t in seen.topics), sum(t.messages for t in seen.topics)
        counts = many(len(seen.topics), "topic"), many(queues, "queue"), many(count, "message")
        yield _row(Text("Consume queues"), joined(counts))
    if seen.index is not None:
        entries = many(seen.index["entries"], "entry", "entries")
        yield _row(Text("Index"), joined((many(seen.index["files"], "file"), bytes_text(seen.index["bytes"]), entries)))
    yield from _timer(seen)
    if seen.checkpoint is not None:
        labels = (Text("log"), Text("queues"), Text("index"))
        for label, name in zip(labels, ("physic", "logics", "index"), strict=True):
            time = seen.checkpoint[f"{name}_msg_timestamp"]
            said = queue_time_text(time) if name == "logics" else time_text(time)
            yield _row("Checkpoint" if name == "physic" else "", Placed("{label:<9}{said}", label=label, said=said))
    bad = [f"{name} ({row['condition']})" for name, row in seen.config.items() if row["condition"] != "sound"]
    yield from _config_rows(seen, bad, out.width)
    for journal in seen.journals:
        path, state = journal["journal"], journal["state"]
        ends = (
            Text("{path} ({state}): run `rmqstore undo` or `rmqstore resume`", path=path, state=state)
            if journal["refused"] is None
            else Text("{path} ({state}) is not to be trusted: {why}", path=path, state=state, why=journal["refused"])
        )
        yield _row(Text("Open repair"), ends)
    for line in seen.unchecked:
        yield from _wrapped(Text("Not read"), line, out.width)
    for line in seen.notes:
        yield from _wrapped(Text("Note"), line, out.width)
    if bad or seen.unchecked or any(log.odd or log.holes or log.torn for log in seen.logs):
        given = f" -c {shlex.quote(config)}" if config else ""
        yield _row(Text("Look closer"), f"rmqstore verify {shlex.quote(seen.store)}{given}")
    if seen.part is not None and not (seen.commitlog or seen.dledger or seen.topics or seen.index or seen.timerlog):
        yield Text("`rmqstore dump` prints its contents.")
    if seen.topics:
        yield ""
        yield from _topics(seen.topics, out)


def _timer(seen: Info) -> Iterator[str]:
    if seen.timerlog is not None:
        count, size = many(seen.timerlog.files, "file"), bytes_text(seen.timerlog.file_size)
        yield _row(Text("Timer log"), Text("{files}, {size} each", files=count, size=size))
    if seen.rocksdbstore is not None:
        timed, pending, halves, entries = (seen.rocksdbstore[name] for name in ("timer", "pending", "trans", "index"))
        waiting: str = many(timed, "timed message")
        if timed:
            waiting = Text("{timed} ({pending:,} to be delivered)", timed=waiting, pending=pending)
        kept = waiting, many(halves, "half message"), many(entries, "index entry", "index entries")
        yield _row("rocksdbstore", joined(kept))
    if seen.pop_rows is not None:
        popped = many(
            seen.pop_rows,
            "message that POP consumers did not acknowledge",
            "messages that POP consumers did not acknowledge",
        )
        yield _row("kvStore", popped)


def _config_rows(seen: Info, bad: list[str], width: int) -> Iterator[str]:
    if seen.config:
        counts = [_entries(row["entries"], row["what"]) for row in seen.config.values() if row.get("entries")]
        what = many(len(seen.config), "file") + (Placed(": {counts}", counts=joined(counts)) if counts else "")
        yield from _wrapped(Text("Config"), what, width)
    if bad:
        yield _row("", Text("not sound: {bad}", bad=joined(bad)))


def _wrapped(label: str, text: str, width: int) -> Iterator[str]:
    for i, line in enumerate(wrapped(text, max(20, width - _LABEL))):
        yield _row("" if i else label, line)


def _row(label: str, text: str) -> str:
    return Placed(f"{{label:<{_LABEL}}}{{text}}", label=label, text=text)


def _log(name: str, log: LogInfo) -> Iterator[str]:
    source = _SIZE_FROM.get(log.file_size_from, log.file_size_from)
    size = Text("{size} each, {source}", size=bytes_text(log.file_size), source=source)
    files = many(log.files, "file")
    yield _row(name, Placed("{files}, {bytes} ({size})", files=files, bytes=bytes_text(log.bytes), size=size))
    ends = Text("offsets {start:,} to {wrote:,}, the end of the last complete record")
    yield _row("", ends.format(start=log.min_offset, wrote=log.wrote))
    if log.torn:
        yield _row("", Text("torn: {torn:,} bytes after it are an incomplete record", torn=log.torn))
    for start, stop in log.holes:
        gap = bytes_text(stop - start)
        yield _row("", Text("missing: {start:,} to {stop:,} ({size})", start=start, stop=stop, size=gap))
    for odd in log.odd[:_ODD]:
        path, _, kind = odd.rpartition(": ")
        yield _row("", Text("not a file of the log: {path}: {why}", path=path, why=in_words(kind)))
    if len(log.odd) > _ODD:
        yield _row("", Text("… and {entries}", entries=many(len(log.odd) - _ODD, "more odd entry", "more odd entries")))


def _dledger(group: DLedgerInfo) -> Iterator[str]:
    yield from _log("DLedger", group.data)
    yield _row("", Text("group member {self_id} in {group_dir}/", self_id=group.self_id, group_dir=group.group_dir))
    committed = Text("not written") if group.committed_index is None else f"{group.committed_index:,}"
    entries = Text("entries {first:,} to {last:,}, committed (at least) {committed}")
    yield _row("", entries.format(first=group.first_index, last=group.last_index, committed=committed))
    voted = Text(", voted for {voted_for}", voted_for=group.voted_for) if group.voted_for else ""
    term = Text("term {term}{voted}; last entry of term {last}")
    yield _row("", term.format(term=group.term, voted=voted, last=group.last_index_term))
    if group.divided_commitlog_offset is not None:
        yield _row("", Text("continues the commitlog at {at:,}", at=group.divided_commitlog_offset))


def _controller(seen: ControllerInfo) -> Iterator[str]:
    if seen.broker_name is None:
        yield _row(Text("Controller"), Text("no identity: the controller gives this broker a new id"))
    else:
        identity = Text("broker {name} of cluster {cluster}, id {id}, {state}")
        state = Text("registered") if seen.registered else Text("not registered yet")
        id_ = Text("unknown") if seen.broker_id is None else str(seen.broker_id)
        yield _row(
            Text("Controller"), identity.format(name=seen.broker_name, cluster=seen.cluster, id=id_, state=state)
        )
    if not seen.epochs:
        yield _row("", Text("no epochs"))
    for number, start in seen.epochs[-_EPOCHS:]:
        yield _row("", Text("epoch {number} from offset {start:,}", number=number, start=start))
    if len(seen.epochs) > _EPOCHS:
        yield _row("", Text("and {epochs} before", epochs=many(len(seen.epochs) - _EPOCHS, "epoch")))


def _entries(count: int, what: str) -> str:
    return {
        "topics": many(count, "topic"),
        "groups": many(count, "group"),
        "delay levels": many(count, "delay level"),
        "topic@group pairs": many(count, "topic@group pair"),
    }.get(what, Placed("{count:,} {what}", count=count, what=what))


def _topics(topics: list[TopicInfo], out: Output) -> Iterator[str]:
    name = min(max(max(columns(t.topic) for t in topics), 5), max(20, out.name_width - 46))
    titles = f"{title(Text('Queues'), 7)} {title(Text('Messages'), 13)}  {title(Text('Offsets per queue'))}"
    yield AsIs(f"{fitted(title(Text('Topic')), name)} {titles}")
    shown = topics if out.verbose else topics[:_LISTED]
    for topic in shown:
        head = f"{fitted(topic.topic, name)} {len(topic.queues):>7} {topic.messages:>13,}  "
        ranges = [f"{q.queue_id}: {q.min:,}–{q.max:,}" for q in topic.queues]
        if out.verbose:
            yield AsIs(head + (ranges[0] if ranges else ""))
            yield from (" " * columns(head) + r for r in ranges[1:])
        else:
            yield AsIs(head + _fit(ranges, max(12, out.width - columns(head))))
    if len(shown) < len(topics):
        yield Text("… and {topics} (-v lists all)", topics=many(len(topics) - len(shown), "more topic"))


def _fit(parts: list[str], width: int) -> str:
    out = ""
    for i, part in enumerate(parts):
        more = f"{out}  {part}" if out else part
        rest = len(parts) - i - 1
        if len(more) + (len(f"  +{rest}") if rest else 0) > width and out:
            return f"{out}  +{len(parts) - i}"
        out = more
    return out
