"""Removes obstacles to a start: quarantines stray, empty and foreign entries, corrects the names and lengths of files.

Pure. The rest of a recovery is planned for the store with the new names: `store.moved` maps each file to its new path.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from rmqstore.checks.beside.directory import in_wrong_place
from rmqstore.checks.misplaced_files import CODES, COPY
from rmqstore.checks.problems import codes
from rmqstore.checks.verified import Verified
from rmqstore.documents.steps import Rename, SetAside, Span
from rmqstore.errors import NotReadable, Refused, reason
from rmqstore.files.files import Files
from rmqstore.files.mapped_file_queue import MappedFileQueue, OddEntry, OddKind, file_name_to_offset
from rmqstore.files.store import QueueKind, Store
from rmqstore.repair.plan.plan_builder import PlanBuilder, fingerprint_entry, readable
from rmqstore.repair.plan.recover_options import MOST_KEPT, RecoverOptions
from rmqstore.texts import Text, many

_CODE = {
    OddKind.DIRECTORY: (codes.DIR_SUB_DIRECTORY, Text("a directory among a queue's files")),
    OddKind.NOT_AN_OFFSET: (codes.DIR_STRAY_FILE, Text("not a broker file")),
    OddKind.MISALIGNED: (codes.DIR_STRAY_FILE, Text("its name does not match a file of this size")),
    OddKind.MISNAMED: (codes.DIR_STRAY_FILE, Text("its name does not have 20 digits, so a broker sorts it wrongly")),
    OddKind.SPECIAL: (codes.DIR_STRAY_FILE, Text("not a regular file")),
    OddKind.EMPTY: (codes.DIR_EMPTY_FILE, Text("0 bytes")),
    OddKind.WRONG_LENGTH: (codes.DIR_WRONG_LENGTH, Text("wrong length")),
}


def plan_directories(draft: PlanBuilder, verified: Verified, options: RecoverOptions, *, filled: bool = True) -> None:
    """Add the steps for all odd entries of the store's directories.

    `filled`: the plan fills the places of files that are missing at the beginning of a log, or removes later files.
    """
    store = draft.store
    if codes.DIR_QUEUE_KIND in options.only:
        _queue_kinds(draft, verified)
    if store.commitlog is not None:
        _plan_queue(draft, options, store.commitlog, log=True, filled=filled)
    if store.dledger is not None:
        _plan_queue(draft, options, store.dledger.data, log=True, filled=filled, code=codes.DL_STRAY_FILE)
        _plan_queue(draft, options, store.dledger.index, code=codes.DL_STRAY_FILE)
    if store.timer_log is not None:
        _plan_queue(draft, options, store.timer_log, log=True)
    kinds = [QueueKind.BATCH, QueueKind.EXT]
    if not store.rocksdb_consume_queue:
        kinds.append(QueueKind.SIMPLE)
    for files in store.consume_queues(*kinds):
        # the bitmaps of an extension cannot be rebuilt
        _plan_queue(draft, options, files.queue, log=files.kind is QueueKind.EXT)
    if options.wants(codes.DIR_STRAY_FILE):
        for path, entry in in_wrong_place(store):
            if entry.directory:  # `lock`, which no plan may touch
                draft.notes.append(Text("{path} is a directory: move it away by hand", path=draft.path(path)))
            elif entry.special or entry.link is not None:
                draft.notes.append(
                    Text("{path} is neither a directory nor a file: move it away by hand", path=draft.path(path))
                )
            else:
                draft.discard(path, Text("a directory belongs there"))
        for entry in store.index_strays:
            draft.discard(entry.path, Text("cannot be opened as an index file"))


def _queue_kinds(draft: PlanBuilder, verified: Verified) -> None:
    """Discard queues in the tree of the other kind; the right ones are rebuilt from the log."""
    for finding in verified.report.findings.listed:
        if finding.code == codes.DIR_QUEUE_KIND:
            folder = draft.store.root / str(finding.facts["directory"]) / str(finding.facts["topic"])
            if draft.store.files.is_directory(folder):
                draft.discard(folder, Text("queues of the wrong type"))


def _plan_queue(
    draft: PlanBuilder,
    options: RecoverOptions,
    queue: MappedFileQueue,
    *,
    log: bool = False,
    filled: bool = True,
    code: str = "",
) -> None:
    """Add the steps for one queue of files. `log`: their contents cannot be rebuilt."""
    for odd in queue.odd:
        if odd.kind not in _CODE or draft.is_gone(odd.path):
            continue
        if log and odd.kind is OddKind.MISNAMED:
            continue
        own, why = _CODE[odd.kind]
        own = code or own
        if not options.wants(own):
            continue
        entry = draft.store.files.examined(odd.path) if odd.kind is OddKind.SPECIAL else None
        if odd.kind is OddKind.SPECIAL and (entry is None or entry.link is None):
            draft.notes.append(
                Text("{path} is a pipe, a socket or a device: move it away by hand", path=draft.path(odd.path))
            )
            continue
        if not filled and _proves_loss(queue, odd):
            continue
        if log and odd.kind is OddKind.WRONG_LENGTH:
            _correct_length(draft, queue, odd)
        else:
            draft.discard(odd.path, why)


def _proves_loss(queue: MappedFileQueue, odd: OddEntry) -> bool:
    """Return whether an entry is an empty file before all others: the only evidence that messages before are lost."""
    start = file_name_to_offset(odd.path.name)
    return odd.kind is OddKind.EMPTY and start is not None and queue.begin <= start < queue.start


def _correct_length(draft: PlanBuilder, queue: MappedFileQueue, odd: OddEntry) -> None:
    """Extend or truncate a file; bytes cut off are kept in lost+found."""
    path, size = odd.path, queue.file_size
    name = draft.path(path)
    if any(step.path == name and step.do in ("extend", "truncate", "discard") for step in draft.steps):
        return
    after = min(_data_end(draft.store.files, path), odd.length) - size
    if after > 0:
        kept = min(after, MOST_KEPT)
        draft.spans.append(
            Span(name, size, kept, f"{path.parent.name}-{path.name}-tail.bin", Text("after the file's end"))
        )
    draft.resize(path, odd.length, size, Text("{bytes} instead of {size:,}", bytes=many(odd.length, "byte"), size=size))


def _data_end(files: Files, path: Path) -> int:
    """Return the end of the last data of a file; a hole after it is not worth keeping."""
    try:
        opened = files.open(path)
    except OSError as error:
        raise NotReadable(Text("{path} cannot be read: {strerror}", path=path, strerror=reason(error))) from error
    with opened:
        return opened.data_end(opened.length)


MISPLACED = tuple(CODES.values())
_WHY = Text("the name that its records prove")
_DIGITS = Text("the same offset in 20 digits")
_ROOM = Text("moved aside: contains no valid record")


def store_in_place(store: Store, verified: Verified, options: RecoverOptions) -> Store:
    """Return the store for which to plan: with the log files at their right paths.

    Errors: Refused if options select other problems, but not the wrong names.
    """
    misplaced = verified.misplaced
    if misplaced is None or not misplaced.store.is_rearranged:
        return store
    if not options.wants(*MISPLACED):
        codes = [code for code in MISPLACED if verified.report.findings.counts[code]]
        raise Refused(
            Text("log files have wrong names, and everything else was checked with the right names"),
            Text("add {codes}", codes=" ".join(f"--only {code}" for code in codes)),
        )
    return misplaced.store


def plan_misplaced(draft: PlanBuilder, verified: Verified) -> None:
    """Plan the renames; entries at the new paths that are not log files go into quarantine."""
    moved, misplaced, files = draft.store.moved, verified.misplaced, draft.store.files
    if misplaced is None:
        return
    why_of = {file.claim.file.path: _DIGITS if file.only_digits else _WHY for file in misplaced.files}
    for now, then in sorted(moved.items(), key=lambda row: row[1].name):
        if files.has_entry(then) and then not in moved:
            draft.discard(then, Text("it is in the place of a log file"))
        expect, entry = readable(now, partial(fingerprint_entry, now)), files.examined(now)
        size = entry.length if entry is not None else 0
        why = why_of.get(now, _ROOM)
        draft.add(SetAside(draft.name(now), expect, why, size))
        draft.add(Rename(draft.name(then), draft.name(now), why, size))
    for path in sorted(draft.store.left_out):
        draft.discard(path, Text("another log file contains the same bytes"))
    if moved:
        words = (
            Text("1 log file gets its right name")
            if len(moved) == 1
            else Text("{count:,} log files get their right names", count=len(moved))
        )
        draft.notes.append(Text("{words}, content unchanged; the rest of this plan assumes these names", words=words))
    for file in misplaced.files:
        path = file.claim.file.path
        if file.why_not and path not in draft.store.left_out and (file.why_not != COPY or file.claim.file.start >= 0):
            name, right = file.claim.file.name, file.right_name
            draft.notes.append(
                Text(
                    "{name} contains the records of {right}, but cannot be renamed: {why_not}. If a backup or "
                    "replica has the right {name}, restore it before --apply: otherwise its content is lost",
                    name=name,
                    right=right,
                    why_not=file.why_not,
                )
            )
