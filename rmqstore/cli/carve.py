"""`rmqstore carve`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqstore.cli.printing.output import Output
from rmqstore.cli.printing.quantities import SIZE, bytes_text, many, time_text
from rmqstore.cli.restore import check_target
from rmqstore.cli.shared.options import (
    PATH,
    SOURCE,
    broker_option,
    command,
    config_option,
    gathered,
    read_config,
    renamed,
)
from rmqstore.errors import OutputExists, UsageError
from rmqstore.files.broker_config import FILE_SIZES
from rmqstore.files.disk import real_path
from rmqstore.texts import Placed, Text, first_few, joined

if TYPE_CHECKING:
    from rmqstore.carving.building import NewStoreOptions
    from rmqstore.carving.carve import Carved, CarvedLog, CarvedStore
    from rmqstore.carving.source import RawSource
    from rmqstore.carving.state import CarvingState
    from rmqstore.files.broker_config import BrokerConfig
    from rmqstore.formats.ranges import Ranges

_SECTOR = 512
_SIZES = FILE_SIZES | {"maxHashSlotNum", "maxIndexNum"}
_BESIDE = ".carved"
_STATE = ".unfinished"
_SHOWN = 5
_LISTED = 1000


@dataclass(frozen=True, slots=True)
class CarveOptions:
    """How the stores are built, as the options of `carve` say."""

    broker_conf: Path | None = None
    file_size: int = 0
    self_id: str = "n0"
    broker: str = ""
    jobs: int | None = None

    def log_file_size(self, config: BrokerConfig) -> int:
        """Return the size of the log's files that the user has given, 0 without one. Errors: UsageError."""
        size = self.file_size or (config.given_int("mappedFileSizeCommitLog") or 0)
        if size < 0 or size % _SECTOR:
            raise UsageError(
                Text("the size of log files must be a multiple of {sector} bytes", sector=_SECTOR),
                Text("correct --file-size, or mappedFileSizeCommitLog in broker.conf"),
            )
        return size

    def building(self, out: Output, config: BrokerConfig) -> NewStoreOptions:
        """Return the options of the stores. Errors: UsageError for an impossible id."""
        from rmqstore.carving.building import NewStoreOptions
        from rmqstore.files.broker_config import BrokerConfig

        # its paths are those of the store that is gone
        sizes = BrokerConfig({key: config.given[key] for key in config.given if key in _SIZES})
        return NewStoreOptions(sizes, self.self_id, self.broker, self.jobs, removed=out.note_removed)


@renamed(id="--self-id")
@command(
    "carve",
    store=False,
    report=True,
    examples=(
        "rmqstore carve /mnt/other/sdb1.img /mnt/other/store --dry-run",
        "rmqstore carve /mnt/other/sdb1.img /mnt/other/store",
        "rmqstore carve /dev/sdb1 /mnt/other/store -c broker.conf && rmqstore recover /mnt/other/store",
    ),
)
@click.argument("source", type=SOURCE, metavar="SOURCE")
@click.argument("target", type=PATH, metavar="OUT")
@config_option(Text("broker.conf with the sizes of the log's and the queues' files, if these are not the defaults."))
@click.option("--file-size", type=SIZE, metavar="SIZE", help="Size of the log's files (default: as the log shows).")
@click.option("--self-id", metavar="ID", default="n0", help="dLegerSelfId of a DLedger member (default: n0).")
@broker_option
@click.option("--jobs", type=click.IntRange(1), metavar="N", help="Number of processes (default: one per core).")
@click.option("--dry-run", is_flag=True, help="Show what is there; write nothing.")
@gathered("how", CarveOptions)
def carve(out: Output, source: Path, target: Path, how: CarveOptions, dry_run: bool) -> int:
    """Carve stores from a disk whose files are gone: deleted, or without a readable file system.

    SOURCE is a block device, an image of one, or a directory of fragments of files; it is only read. Records of logs
    are searched for in all of it. Each one counts only if it proves itself, by its CRC and its place, and is written to
    that place in a new log at OUT, for which queues, index and checkpoint are then built. What was overwritten stays a
    hole: `rmqstore recover` closes it. Configuration files are written to OUT/config. Logs of other brokers, and an
    older log that OUT's one has replaced, become stores in OUT.carved. With several brokers, the configuration files
    are there, too: nothing shows whose they are. An interrupted run goes on where it was.

    OUT must not exist, and must be on another disk than the one that SOURCE is an image of: every byte that is written
    to that disk may destroy a message. Exit code 0: done, and the store is sound; 1: it has holes or other problems; 3:
    no message was found; 4: the disk could not read some of SOURCE.
    """
    from rmqstore.carving.carve import scan, survey
    from rmqstore.carving.source import RawSource
    from rmqstore.carving.state import CarvingState

    check_target(target)
    config = read_config(out, how.broker_conf)
    size = how.log_file_size(config)
    opened = RawSource.open(source)
    _refuse_own(opened, target)
    state = CarvingState(None, opened.identity) if dry_run else _state(target, opened)
    try:
        with out.progress("search", opened.size) as progress:
            scan(opened, state, progress.add)
        carved = survey(opened, state, size)
        if not dry_run:
            _build(out, carved, state, target, how.building(out, config))
    finally:
        opened.close()
        state.close()
    if not dry_run:
        _remove_state(_beside(target))
    out.answer(_document(carved, source, target, written=not dry_run), _lines(carved, source, target, dry_run))
    return _exit_code(carved)


def _beside(target: Path) -> Path:
    return target.with_name(target.name + _BESIDE)


def _refuse_own(source: RawSource, target: Path) -> None:
    """Errors: UsageError for an output within the source."""
    path, place = real_path(source.path), real_path(target)
    if path == place or path in place.parents:
        raise UsageError(
            Text("{target} is inside {source}", target=target, source=source.path), Text("name a place on another disk")
        )


def _state(target: Path, source: RawSource) -> CarvingState:
    """Return the state of this carving, that of an interrupted one if there is one. Errors: OutputExists."""
    from rmqstore.carving.state import CarvingState
    from rmqstore.files.private import make_private_directories

    beside = _beside(target)
    if os.path.lexists(beside) and not (beside / _STATE).is_dir():
        raise OutputExists(Text("{path} already exists", path=beside))
    make_private_directories(beside / _STATE)
    return CarvingState(beside / _STATE / "state.sqlite", source.identity)


def _remove_state(beside: Path) -> None:
    from rmqstore.files.trees import remove_left

    remove_left(beside / _STATE)
    if not any(beside.iterdir()):
        remove_left(beside)


def _build(out: Output, carved: Carved, state: CarvingState, target: Path, how: NewStoreOptions) -> None:
    from rmqstore.carving.carve import build_stores

    total = sum(log.bytes for store in carved.stores for log in store.logs)
    with out.progress("write", total) as progress:
        build_stores(carved, state, target, _beside(target), replace(how, progress=progress.add))


def _exit_code(carved: Carved) -> int:
    codes = {store.report.exit_code for store in carved.stores if store.report is not None}
    if any(log.holes for store in carved.stores for log in store.logs):
        codes.add(1)
    return 1 if 1 in codes else 4 if 4 in codes or carved.unreadable else 0


# --- JSON -------------------------------------------------------------------------------------------------------------


def _document(carved: Carved, source: Path, target: Path, *, written: bool) -> dict[str, Any]:
    return {
        "schema": "rmqstore.carve/1",
        "source": str(source),
        "size": carved.source.size,
        "output": str(target),
        "written": written,
        "block_size": carved.block,
        "unreadable_bytes": carved.unreadable,
        "duplicates": carved.duplicates,
        "stores": [_store(store, target, written=written) for store in carved.stores],
        "documents": [
            {
                "name": one.found.name,
                "length": one.found.length,
                "timestamp": one.found.time,
                "versions": one.versions,
            }
            for one in carved.documents
        ],
        "notes": carved.notes,
    }


def _store(store: CarvedStore, target: Path, *, written: bool) -> dict[str, Any]:
    from rmqstore.checks.problems.report import problem_counts

    report = store.report
    return {
        "path": str(_beside(target) / store.name if store.name else target) if written else None,
        "hosts": store.hosts,
        "beside": store.life.beside,
        "messages": store.messages,
        "first_timestamp": store.life.first_time,
        "last_timestamp": store.life.last_time,
        "file_size": store.file_size,
        "file_size_from": store.size_from,
        "logs": [_log(log) for log in store.logs],
        "counts": {} if report is None else problem_counts(report),
        "unchecked": [] if report is None else report.unchecked,
        "broker": None if report is None else report.broker,
    }


def _log(log: CarvedLog) -> dict[str, Any]:
    return {
        "log": "dledger" if log.dledger else "commitlog",
        "from": log.spans.start,
        "to": log.spans.stop,
        "messages": log.messages,
        "bytes": log.bytes,
        "spans": [list(span) for span in log.spans.parts[:_LISTED]],
        "span_count": len(log.spans.parts),
        "missing_bytes": len(log.holes),
    }


# --- text -------------------------------------------------------------------------------------------------------------


def _lines(carved: Carved, source: Path, target: Path, dry_run: bool) -> Iterator[str]:
    messages = many(sum(store.messages for store in carved.stores), "message")
    words = Text("{source} ({size}) has {messages} of {stores}.")
    stores = many(len(carved.stores), "store")
    yield words.format(source=source, size=bytes_text(carved.source.size), messages=messages, stores=stores)
    for store in carved.stores:
        yield ""
        yield from _store_lines(store, _beside(target) / store.name if store.name else target, dry_run)
    if carved.documents:
        yield ""
        yield from _document_lines(carved, target)
    if carved.duplicates:
        yield ""
        yield Text("{messages} were found more than once.", messages=many(carved.duplicates, "message"))
    if carved.unreadable:
        yield ""
        yield Text("The disk could not read {unread} of the source.", unread=bytes_text(carved.unreadable))
    yield from (Text("note: {note}", note=note) for note in carved.notes)
    if dry_run:
        yield ""
        yield Text("Nothing was written (--dry-run).")


def _store_lines(store: CarvedStore, path: Path, dry_run: bool) -> Iterator[str]:
    first, last = time_text(store.life.first_time), time_text(store.life.last_time)
    messages, hosts = many(store.messages, "message"), joined(store.hosts)
    facts = Text("{path}: {messages} of {hosts}, stored from {first} to {last}")
    yield facts.format(path=path, messages=messages, hosts=hosts, first=first, last=last)
    if store.life.beside:
        yield Text("  a log beside another one, as of a compacted topic")
    for log in store.logs:
        name = Text("DLedger entries") if log.dledger else Text("commitlog")
        words = Text("  {log}: {messages}, {bytes} from {start:,} to {stop:,}")
        count, size = many(log.messages, "message"), bytes_text(log.bytes)
        yield words.format(log=name, messages=count, bytes=size, start=log.spans.start, stop=log.spans.stop)
        yield from _hole_lines(log.holes)
    yield Placed("  {size}", size=_size_words(store))
    report = store.report
    if report is None or dry_run:
        return
    from rmqstore.checks.problems.report import problem_counts

    if report.verdict:
        yield Placed("  {verdict}", verdict=report.verdict)
    counts = problem_counts(report)
    yield from (f"    {code} x {count:,}" for code, count in counts.items())
    if counts:
        yield f"    -> rmqstore recover {shlex.quote(str(path))}"
    elif not report.unchecked:
        yield Text("  verified: no problems")
    yield from (Text("  not checked: {line}", line=line) for line in report.unchecked)


def _document_lines(carved: Carved, target: Path) -> Iterator[str]:
    names = joined(sorted(one.found.name for one in carved.documents))
    if carved.brokers == 1:
        yield Text("Configuration files, the newest version of each: {names}.", names=names)
        return
    words = Text("Configuration files of one of these brokers, in {path}: {names}.")
    yield words.format(path=_beside(target) / "config", names=names)


def _hole_lines(holes: Ranges) -> Iterator[str]:
    if not holes:
        return
    places = [Text("{start:,} to {stop:,}", start=start, stop=stop) for start, stop in holes.parts[:_SHOWN]]
    shown = first_few(places, _SHOWN, len(holes.parts))
    yield Text("    missing: {bytes} in {places}", bytes=bytes_text(len(holes)), places=shown)


def _size_words(store: CarvedStore) -> str:
    size = store.file_size
    if store.size_from == "blanks":
        return Text("files of {size:,} bytes, as the log shows", size=size)
    if store.size_from == "given":
        return Text("files of {size:,} bytes, as given", size=size)
    return Text("files of {size:,} bytes: the log does not show their size, --file-size gives another one", size=size)
