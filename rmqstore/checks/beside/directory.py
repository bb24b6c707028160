"""DIR-* and DL-STRAY-FILE: directory entries that a broker does not accept.

Only listings and the state files of journals are read. The fact `reason` is one of the `OddKind` words.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

from rmqstore.checks.beside.permissions import CannotJudge, check_rights, require_readable
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Finding, Findings, Report
from rmqstore.files.config import tier_words
from rmqstore.files.disk import named_options
from rmqstore.files.journals import journal_state
from rmqstore.files.mapped_file_queue import DirEntry, MappedFileQueue, OddEntry, OddKind, file_name_to_offset
from rmqstore.files.store import QueueKind, Store, paths_that_miss, unknown_entries
from rmqstore.files.store_queues import CONFIGURED_SIZES
from rmqstore.files.walk import Leads
from rmqstore.texts import Text

_CODE = {
    OddKind.DIRECTORY: codes.DIR_SUB_DIRECTORY,
    OddKind.NOT_AN_OFFSET: codes.DIR_STRAY_FILE,
    OddKind.EMPTY: codes.DIR_EMPTY_FILE,
    OddKind.WRONG_LENGTH: codes.DIR_WRONG_LENGTH,
    OddKind.DUPLICATE: codes.DIR_DUPLICATE_FILE,
    OddKind.MISALIGNED: codes.DIR_STRAY_FILE,
    OddKind.MISNAMED: codes.DIR_STRAY_FILE,
    OddKind.SPECIAL: codes.DIR_STRAY_FILE,
    OddKind.UNREADABLE: codes.DIR_UNREADABLE,
}
_PACKED = re.compile(r"(?P<name>\d{20})\.(gz|bz2|xz|zst|lz4|lzo|zip|Z|tgz|tar(\.\w+)?)")
_FOR_ALL = (OddKind.UNREADABLE, OddKind.DUPLICATE)
"""Kinds that keep their own code in DLedger's directories, because no repair can decide about them."""
_WRONG_SIZE = (OddKind.WRONG_LENGTH, OddKind.MISALIGNED)
_DIRECTORIES = ("consumequeue", "batchconsumequeue", "index", "config", "timerlog")
_OPEN_JOURNAL = ("applying", "undoing")


def check_directory(
    store: Store,
    report: Report,
    *,
    queue_types: Mapping[str, str] | None = None,
    opened_rocksdb: Collection[str] = (),
) -> None:
    """Check names, lengths and kinds of directory entries. The broker of a live store may be creating files.

    `queue_types`: as in `ConfigFacts`; None: do not check the kinds of queue directories. `opened_rocksdb`: RocksDB
    directories ("consumequeue", "config/topics" …) that other checks have opened.

    Errors: CannotJudge.
    """
    findings, live = report.findings, report.live
    parts: tuple[Callable[[], None], ...] = (
        lambda: _top(store, report),
        lambda: _missing_paths(store, findings),
        lambda: _logs(store, findings, live),
        lambda: require_readable(store.files, (entry.path for entry in store.index_files)),
        lambda: _consume_queues(store, findings, live),
        lambda: _strays(store, findings),
        lambda: _queue_kinds(store, findings, queue_types),
        lambda: _journals(store, findings),
        lambda: _links_below(store, check_rights(store, findings, live=live), findings),
        lambda: _not_read(store, report, opened_rocksdb),
        lambda: _no_index(store, report),
        lambda: _unknown(store, report),
    )
    for part in parts:
        try:
            part()
        except CannotJudge:
            raise
        except OSError as e:
            path = Path(os.fsdecode(e.filename)) if e.filename else store.path
            error: dict[str, Fact] = {"path": store.relative(path), "error": e.strerror or type(e).__name__}
            findings.add(Finding(codes.DIR_UNREADABLE, "store", path.name, facts=error))


def _top(store: Store, report: Report) -> None:
    if store.abort:
        report.notes.append(Text("abort file present: unclean shutdown, or the broker is running"))
    own = store.files.examined(store.path)
    if own is not None and own.link is not None:
        _link(store, own, str(store.path), "", report.findings)
    followed, not_followed = ({entry.path for entry in found} for found in (store.followed, store.not_followed))
    guarded = store.own_files()
    for name, entry in store.top.items():
        if entry.link is not None:
            leads = "" if entry.path in followed else guarded.leads(entry).value
            _link(store, entry, name, leads, report.findings, unnamed=entry.path in not_followed)


def _link(store: Store, entry: DirEntry, path: str, leads: str, findings: Findings, *, unnamed: bool = False) -> None:
    """Report a link; `leads`: where to, of one that is not followed, which gets the option --root if `unnamed`."""
    facts: dict[str, Fact] = {"path": path, "target": entry.link}
    if leads:
        facts["leads"] = leads
    if unnamed:
        facts["option"] = named_options([store.files.real_path(entry.path)]).strip()
    findings.add(Finding(codes.DIR_LINK, "store", entry.path.name, facts=facts))


def _links_below(store: Store, paths: list[Path], findings: Findings) -> None:
    """Report the links below the top that lead out of the store, or in a circle."""
    guarded = store.own_files()
    for path in paths:
        entry = store.files.examined(path)
        if entry is not None and entry.link is not None and not entry.unreadable and path.parent != store.root:
            leads = guarded.leads(entry)
            if leads in (Leads.OUTSIDE, Leads.AROUND):
                _link(store, entry, store.relative(path), leads.value, findings)


def _missing_paths(store: Store, findings: Findings) -> None:
    for path, of_dledger in paths_that_miss(store):
        where = "dledger" if of_dledger else "commitlog"
        findings.add(Finding(codes.DIR_MISSING_PATH, where, facts={"path": str(path)}))


def _logs(store: Store, findings: Findings, live: bool) -> None:
    if store.commitlog is not None and store.part != "dledger-group":
        _queue(store, findings, "commitlog", store.commitlog, "mappedFileSizeCommitLog", live)
    if store.dledger is not None:
        data, index = store.dledger.data, store.dledger.index
        _queue(store, findings, "dledger", data, "mappedFileSizeCommitLog", live, code=codes.DL_STRAY_FILE)
        _queue(store, findings, "dledger-index", index, "", live, code=codes.DL_STRAY_FILE)
    if store.timer_log is not None:
        _queue(store, findings, "timerlog", store.timer_log, "mappedFileSizeTimerLog", live)


def _queue(
    store: Store, findings: Findings, name: str, queue: MappedFileQueue, key: str, live: bool, code: str = ""
) -> None:
    require_readable(store.files, (f.path for f in queue.files))
    other = _other_size(queue, _lengths(queue)) if key else None
    if other is not None:
        _file_size(findings, name, key, queue.file_size, other)
    for odd in queue.odd:
        if _is_being_created(odd, live) or (other is not None and odd.kind in _WRONG_SIZE):
            continue
        findings.add(_odd(store, name, queue, odd, code))


def _lengths(queue: MappedFileQueue) -> Counter[int]:
    """Count the lengths of all files, including those with a name that does not fit the file size."""
    lengths = Counter(f.length for f in queue.files)
    lengths.update(o.length for o in queue.odd if o.kind is OddKind.MISALIGNED)
    return lengths


def _is_being_created(odd: OddEntry, live: bool) -> bool:
    """Return whether a live broker may be creating this file."""
    return live and odd.last and odd.kind in (OddKind.EMPTY, OddKind.WRONG_LENGTH)


def _other_size(queue: MappedFileQueue, lengths: Counter[int]) -> int | None:
    """Return the common size of all files if it differs from the configured size.

    A single shorter file does not count, and files whose names show another size do not: they may have been truncated.
    """
    if queue.size_from != "config" or len(lengths) != 1:
        return None
    (length,) = lengths
    alone = lengths.total() == 1 and length < queue.file_size
    starts = (file_name_to_offset(name) for name in (*(f.name for f in queue.files), *(o.path.name for o in queue.odd)))
    truncated = length == 0 or any(start is not None and start % length for start in starts)
    return None if length == queue.file_size or alone or truncated else length


def _file_size(findings: Findings, name: str, key: str, configured: int, actual: int) -> None:
    facts: dict[str, Fact] = {"key": key, "configured": configured, "actual": actual, "set": f"{key}={actual}"}
    findings.add(Finding(codes.DIR_FILE_SIZE, name, facts=facts))


def _odd(store: Store, name: str, queue: MappedFileQueue, odd: OddEntry, code: str) -> Finding:
    start = file_name_to_offset(odd.path.name) or 0
    facts: dict[str, Fact] = {"reason": odd.kind.value, "path": store.relative(odd.path)}
    packed = _PACKED.fullmatch(odd.path.name)
    if packed is not None and all(f.name != packed["name"] for f in queue.files):
        facts["compressed_file"] = packed["name"]
    if odd.kind is OddKind.WRONG_LENGTH:
        facts["length"] = odd.length
        facts["expected"] = queue.file_size
    if odd.kind is OddKind.DUPLICATE and (other := queue.find(start)) is not None:
        facts["other"] = store.relative(other.path)
    own = _CODE[odd.kind] if odd.kind in _FOR_ALL else code or _CODE[odd.kind]
    return Finding(own, name, odd.path.name, start, odd.length, facts)


def _consume_queues(store: Store, findings: Findings, live: bool) -> None:
    for kind in CONFIGURED_SIZES:
        if kind is QueueKind.SIMPLE and store.rocksdb_consume_queue:
            continue
        lengths: Counter[int] = Counter()
        wrong: list[tuple[str, MappedFileQueue, OddEntry]] = []
        size = 0
        for files in store.consume_queues(kind):
            queue = files.queue
            require_readable(store.files, (f.path for f in queue.files))
            lengths.update(_lengths(queue))
            if queue.size_from == "config":
                size = queue.file_size
            for odd in queue.odd:
                if _is_being_created(odd, live):
                    continue
                if odd.kind in _WRONG_SIZE:
                    wrong.append((files.label, queue, odd))
                else:
                    findings.add(_odd(store, files.label, queue, odd, ""))
        given = store.config.given_int(kind.size_key) is not None
        if given and size and len(lengths) == 1 and (actual := next(iter(lengths))) != size:
            _file_size(findings, kind.tree, kind.size_key, size, actual)
            continue
        for label, queue, odd in wrong:
            findings.add(_odd(store, label, queue, odd, ""))


def in_wrong_place(store: Store) -> Iterator[tuple[Path, DirEntry]]:
    """Yield files in place of directories that every broker uses, and a directory in place of `lock`.

    With a file in place of the queues, a start writes no unit. With one in place of the index, dispatch ends at the
    next message with a key. In place of the configuration, offsets are not saved. Only the log shows an error.
    """
    for name in _DIRECTORIES if store.part is None else ():
        entry = store.top.get(name)
        if entry is not None and not entry.directory:
            yield entry.path, entry
    lock = store.top.get("lock") if store.part is None else None
    if lock is not None and lock.directory:
        yield lock.path, lock


def _strays(store: Store, findings: Findings) -> None:
    for path, entry in in_wrong_place(store):
        reason = "directory" if entry.directory else "no-directory"
        facts: dict[str, Fact] = {"reason": reason, "path": store.relative(path)}
        findings.add(Finding(codes.DIR_STRAY_FILE, "store", path.name, 0, entry.length, facts))
    for stray in store.strays:
        facts = {"path": store.relative(stray.path), "directory": stray.directory}
        findings.add(Finding(codes.DIR_FOREIGN_ENTRY, stray.path.parent.name, stray.path.name, 0, stray.length, facts))
    if store.part not in (None, "index"):
        return
    files, strays = ({e.path for e in found} for found in (store.index_files, store.index_strays))
    for entry in store.index_entries:
        if entry.path not in files:
            facts = {"path": store.relative(entry.path), "directory": entry.directory}
            code = codes.DIR_STRAY_FILE if entry.path in strays else codes.DIR_FOREIGN_ENTRY
            findings.add(Finding(code, "index", entry.path.name, 0, entry.length, facts))


def _queue_kinds(store: Store, findings: Findings, queue_types: Mapping[str, str] | None) -> None:
    if queue_types is None or store.part is not None:
        return
    for kind, wanted in ((QueueKind.SIMPLE, "SimpleCQ"), (QueueKind.BATCH, "BatchCQ")):
        if kind is QueueKind.SIMPLE and store.rocksdb_consume_queue:
            continue
        seen = ""
        for topic, _, _ in store.queue_directories(kind):
            if topic == seen:
                continue
            seen = topic
            own = queue_types.get(topic, "SimpleCQ")
            if own != wanted:
                facts: dict[str, Fact] = {"topic": topic, "directory": kind.tree, "queue_type": own}
                facts["in_topics_json"] = topic in queue_types
                findings.add(Finding(codes.DIR_QUEUE_KIND, topic, topic, facts=facts))


def _journals(store: Store, findings: Findings) -> None:
    if store.part is not None:
        return
    for entry in store.files.list(store.journal_directory):
        if not entry.directory:
            continue
        journal, state = journal_state(store.files, entry.path)
        if state in (*_OPEN_JOURNAL, "missing"):
            about: dict[str, Fact] = {"journal": str(journal), "state": state}
            findings.add(Finding(codes.DIR_OPEN_JOURNAL, "store", entry.path.name, facts=about))


def _not_read(store: Store, report: Report, opened_rocksdb: Collection[str]) -> None:
    if store.part is not None:
        return
    name = store.rocksdb_directory.name
    if store.rocksdb_consume_queue and name not in opened_rocksdb:
        report.unchecked.append(Text("{name}/: consume queues in RocksDB are not checked", name=name))
    report.unchecked += [
        Text("config/{name}/: configuration in RocksDB is not checked", name=name)
        for name in store.rocksdb_config
        if f"config/{name}" not in opened_rocksdb
    ]
    left = store.left_by_dledger
    report.notes += [
        Text("{name}/: left by DLedger, without which the broker now runs: not checked", name=name) for name in left
    ]
    others = [name for name in store.other_dledger if name not in left]
    report.unchecked += [Text("{name}/: a second DLedger directory, not checked", name=name) for name in others]
    if words := tier_words(store.files, store.root):
        report.notes.append(words)
    elif "tiered_index_file" in store.top:
        report.notes.append(Text("tiered_index_file/ belongs to tiered storage and is not read"))


def _no_index(store: Store, report: Report) -> None:
    """Note that there is no index file, although a broker writes the first one with its first message."""
    indexed = store.config.bool("messageIndexEnable") and not store.files.derives
    if store.part is not None or not indexed or store.index_files:
        return
    with contextlib.suppress(OSError):  # a log that cannot be listed has its own finding
        if store.logs:
            report.no_index = True
            help_ = Text("`rmqstore rebuild STORE index` rebuilds it")
            report.notes.append(Text("index/ has no file: queries by key or id find nothing; {help_}", help_=help_))


def _unknown(store: Store, report: Report) -> None:
    """Name entries at the top that no broker creates; those that may hold positions in the log are not checked."""
    for unknown in unknown_entries(store):
        path = store.relative(unknown.entry.path)
        about: dict[str, Fact] = {"path": path, "directory": unknown.entry.directory}
        if unknown.holds:
            about["reason"] = unknown.holds
            report.unchecked.append(unknown.words)
        report.findings.add(Finding(codes.DIR_FOREIGN_ENTRY, "store", unknown.name, 0, unknown.entry.length, about))
