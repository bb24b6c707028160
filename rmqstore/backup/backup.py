"""backup: add a snapshot of a store to a repository.

The parts are read in an order in which nothing refers to what comes later: consumer offsets, delay offsets and timers,
then the log up to its present end, then topics and groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from rmqstore.backup.layout import layout_of
from rmqstore.backup.log_copy import CopyOptions, LogCopier
from rmqstore.backup.manifest import BranchStart, LogCopy, Manifest
from rmqstore.backup.other_files import OtherFiles
from rmqstore.backup.repository import Forgotten, KeepRule, StoreFolder, now
from rmqstore.errors import NotAStore, UsageError
from rmqstore.files.store import Store, open_store, while_files_expire
from rmqstore.texts import Text

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class BackupOptions:
    """How to make a snapshot: bytes per second to read (0: no limit), what to keep, whether to compare everything."""

    max_rate: int = 0
    keep: KeepRule = KeepRule()  # noqa: RUF009  # immutable
    full: bool = False
    progress: Progress | None = None


@dataclass(frozen=True, slots=True)
class Backup:
    """A snapshot that was made, and what was forgotten afterwards. `since`: the snapshot before; "" without one."""

    manifest: Manifest
    since: str
    forgotten: Forgotten

    @property
    def exit_code(self) -> int:
        return int(self.manifest.damaged or bool(self.manifest.branches or self.manifest.unread))


def back_up(store: Store, folder: StoreFolder, options: BackupOptions | None = None) -> Backup:
    """Add a snapshot of a store, which may be in use, to the folder of its name.

    Errors: NotAStore for a part of a store, and without a log; Refused if another backup writes to the folder; NoSpace,
    NotReadable and CouldNotCheck of the repository; OSError of the store.
    """
    options = options or BackupOptions()
    if store.part is not None:
        raise UsageError(Text("{path} is a part of a store", path=store.path), Text("name the storePathRootDir"))
    if not store.logs:
        raise NotAStore(
            Text("{path} has no log", path=store.path), Text("name the storePathRootDir, and broker.conf with -c")
        )
    with folder.locked():
        before = folder.latest()
        started = now()
        snapshot = folder.next_name(started)
        attempts = [folder.is_unfinished]

        def run(look: Store) -> Manifest:
            attempts.append(True)
            return _Run(look, folder, before, snapshot, options).run(started)

        made = while_files_expire(store, run)
        folder.save(made)
        forgotten = Forgotten((), 0, 0)
        if not options.keep.everything or sum(attempts) > 1:  # an earlier attempt has left objects
            forgotten = folder.forget(options.keep, started)
    return Backup(made, before.snapshot if before is not None else "", forgotten)


class _Run:
    """One pass over a store."""

    def __init__(
        self, store: Store, folder: StoreFolder, before: Manifest | None, snapshot: str, options: BackupOptions
    ) -> None:
        self.store = store
        self.folder = folder
        self.before = before
        self.snapshot = snapshot
        self.options = options
        self.unfinished = folder.unfinished()
        self.done: list[LogCopy] = []

    def run(self, started: int) -> Manifest:
        """Copy everything that the repository lacks; return the manifest, which is not written yet."""
        live = self.store.is_live()
        if self.unfinished is None:
            blank = Manifest(self.folder.name, self.snapshot, started, layout_of(self.store), (), ())
            self.folder.save_unfinished(blank)  # until the end: a later run knows that this one was interrupted
        others = OtherFiles(self.store, self.folder, self.before.others if self.before is not None else ())
        others.copy_before_log()
        if live:
            self.store = _again(self.store)
        layout = layout_of(self.store)
        blank = Manifest(self.folder.name, self.snapshot, started, layout, (), ())
        counts: Counter[str] = Counter()
        branches: list[BranchStart] = []
        new_bytes = unread = 0
        logs = self.store.logs
        for queue, body_offset in logs:
            options = CopyOptions(
                self.snapshot,
                since=self.before.snapshot if self.before is not None else "",
                live=live,
                followed=queue is not logs[-1][0],
                full=self.options.full,
                max_rate=self.options.max_rate,
                progress=self.options.progress,
                saved=lambda log: self._save(blank, log),
            )
            copied = LogCopier(
                self.store, queue, body_offset, self.folder, self._known(queue.name, started), options
            ).copy()
            self.done.append(copied.log)
            counts.update(copied.counts)
            branches += copied.branches
            new_bytes += copied.new_bytes
            unread += copied.unread
        others.copy_after_log()
        return replace(
            blank,
            logs=tuple(self.done),
            others=tuple(sorted(others.found, key=lambda other: other.path)),
            counts=dict(sorted(counts.items())),
            branches=tuple(branches),
            new_bytes=new_bytes + others.new_bytes,
            unread=unread,
        )

    def _save(self, blank: Manifest, log: LogCopy) -> None:
        """Note what was copied, for a run after an interruption."""
        self.folder.save_unfinished(replace(blank, logs=(*self.done, log)))

    def _known(self, name: str, started: int) -> LogCopy | None:
        """Return what the repository has of a log: of the last snapshot, and of an interrupted run after it."""
        known = self.before.log(name) if self.before is not None else None
        more = self.unfinished.log(name) if self.unfinished is not None else None
        if known is not None and self.options.keep.age is not None:
            oldest = started - self.options.keep.age
            files = tuple(f for f in known.files if f.start + known.file_size > known.begin or f.last_time >= oldest)
            known = replace(known, files=files)
        if more is not None:
            there = self._there(more)
            if known is None or known.file_size != more.file_size:
                return there
            merged = {file.start: file for file in (*known.files, *there.files)}
            end = max(known.end, there.end)
            return replace(known, end=end, files=tuple(merged[start] for start in sorted(merged)))
        return known

    def _there(self, log: LogCopy) -> LogCopy:
        """Return the files of an interrupted run whose objects are there."""

        def complete(key: str, size: int) -> bool:
            return self.folder.storage.size(self.folder.key(key)) == size

        files = tuple(f for f in log.files if all(complete(piece.object, piece.size) for piece in f.pieces))
        return replace(log, files=files, end=max((f.start + log.file_size for f in files), default=log.begin))


def _again(store: Store) -> Store:
    """Return the store as it is listed now."""
    again = open_store(store.path, store.config)
    again.expiring = store.expiring
    return again
