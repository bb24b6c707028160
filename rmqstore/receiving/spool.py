"""What has arrived: a store directory with a commitlog of proven records, written at its end only.

receiving/commitlog/START    files of full size, as a broker makes them
receiving/config/…           topics, groups and offsets, as the master last told them
receiving/.rmqstore/received.json  whose log it is, and what of it is not sound on the master either
receiving/lock               held while something writes: every other command takes it for a running broker's

After a crash, the end is where the records of the last file stop being sound. Bytes after it are removed.

The repository is not trusted: its directories are opened below the one that the user named, following no link, and
everything is written in the open directories, so that whoever replaces one by a link meanwhile gains nothing.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from rmqstore.append.disk import explained, write_all
from rmqstore.backup.storage import refuse_link
from rmqstore.errors import CouldNotCheck, Refused
from rmqstore.files.beneath import refuse_special
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.disk import RECEIVING, explain
from rmqstore.files.lock import LOCK_NAME, HeldLock, take_lock
from rmqstore.files.mapped_file_queue import MappedFile, offset_to_file_name
from rmqstore.files.private import FILE_MODE, create_anew, private_directory_beneath
from rmqstore.files.reading import open_beneath
from rmqstore.files.store import Store, open_store
from rmqstore.files.users import JOURNAL_FOLDER
from rmqstore.receiving.proof import Proven
from rmqstore.scan.records import scan_file
from rmqstore.scan.tiling import Kind
from rmqstore.texts import Text

_STATE_NAME = "received.json"
_STATE = f"{JOURNAL_FOLDER}/{_STATE_NAME}"
"""In a directory that is in no snapshot."""
_LOG, _CONFIG, _OWN = "commitlog", "config", JOURNAL_FOLDER
SCHEMA = "rmqstore.receiving/1"
GREATEST_OFFSET = 1 << 62
"""No log is longer; so all offsets within a file of it, and of the next one, are a long."""
_MOST_FAULTS = 10_000
_LONGEST_STATE = 4 << 20
_BROKEN = Text(
    "keep the directory, move it away, and run the command again: it then starts from the master's first file"
)


class _Folders:
    """The open directories of a spool. Errors: OSError; CouldNotCheck for a link in the place of one."""

    def __init__(self, folder: Path) -> None:
        self._place = folder.parent
        self._open: dict[str, int] = {}
        root = Path(folder.name, RECEIVING)
        for name, relative in (("", root), *((name, root / name) for name in (_LOG, _CONFIG, _OWN))):
            try:
                refuse_link(self._place, relative)
                with explained(self._place / relative):
                    self._open[name] = private_directory_beneath(self._place, relative)
            except BaseException:
                self.close()
                raise
        self.state = root / _STATE
        """The path of the state below the repository."""

    def __getitem__(self, name: str) -> int:
        """Return the descriptor of a directory; "" for that of the spool."""
        return self._open[name]

    def read_state(self) -> bytes:
        descriptor = open_beneath(self._place, self.state)
        with os.fdopen(descriptor, "rb") as file:
            return file.read(_LONGEST_STATE)

    def replace(self, folder: str, name: str, data: bytes) -> None:
        """Replace a small file atomically."""
        at, temporary = self[folder], name + ".tmp"
        descriptor = create_anew(temporary, at)
        try:
            write_all(descriptor, data, 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(temporary, name, src_dir_fd=at, dst_dir_fd=at)
        os.fsync(at)

    def close(self) -> None:
        for descriptor in self._open.values():
            os.close(descriptor)
        self._open.clear()


class Spool:
    """The spool in the folder of a store of a repository; open it with `with`.

    `begin`, `end`: global offsets of the log, `end` after its last proven byte; both -1 while it is empty.
    Errors: StoreIsLive if another process has it; NotReadable, NoSpace; CouldNotCheck for files that no run has left.
    """

    def __init__(self, folder: Path) -> None:
        self.root = folder / RECEIVING
        self._log = self.root / _LOG
        self._folder = folder
        self._folders: _Folders | None = None
        self.begin = self.end = self.flushed = -1
        self.file_size = 0
        self.source: dict[str, str] = {}
        """Name, cluster and id of the master."""
        self.faults: list[tuple[int, int]] = []
        """(start, stop) of what is damaged on the master."""
        self.last_record = -1
        """Where the last sound record of the last two files begins; -1 without one."""
        self.unproven = False
        """Whether the bytes up to the end of the last file are kept without a proof."""
        self._settings = BrokerConfig()
        self._file = -1
        self._lock: HeldLock | None = None

    def __enter__(self) -> Spool:
        self._folders = folders = _Folders(self._folder)
        try:
            with explained(self.root / LOCK_NAME):
                self._lock = take_lock(self.root / LOCK_NAME, lambda path: _open_own(path, folders[""]))
            self._load(folders)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Flush, and release the lock; a second call does nothing."""
        try:
            if self._file >= 0:
                with explained(self._log):
                    os.fdatasync(self._file)
        finally:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1
            if self._lock is not None:
                self._lock.release()
                self._lock = None
            if self._folders is not None:
                self._folders.close()
                self._folders = None

    # --- reading ---------------------------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        """Whether nothing has been received yet."""
        return self.end < 0

    def store(self) -> Store:
        """Return the spool as a store. Errors: as `open_store`."""
        return open_store(self.root, self._settings)

    def read(self, size: int, offset: int) -> bytes:
        """Return bytes at a global offset, all in one file; short at its end."""
        start = offset // self.file_size * self.file_size
        return self._mapped(start).read_at(min(size, self.end - offset), offset - start)

    # --- writing ---------------------------------------------------------------------------------------------------

    def belongs_to(self, source: Mapping[str, str], file_size: int, settings: Mapping[str, str]) -> None:
        """Note whose log it is. Errors: Refused if it is another broker's, or has files of another size."""
        if not self.is_empty and self.file_size != file_size:
            raise Refused(
                Text("{root}: its files have {own:,} bytes, those of the master {other:,}",
                     root=self.root, own=self.file_size, other=file_size),
                Text("the master's mappedFileSizeCommitLog has changed: use another --name"),
            )  # fmt: skip
        if self.source and self.source != source:
            own, other = (f"{one.get('cluster')}/{one.get('name')}" for one in (self.source, source))
            raise Refused(
                Text("{root} is the log of {own}, and this is {other}", root=self.root, own=own, other=other),
                Text("use another --name"),
            )
        self.file_size = file_size
        self._settings = BrokerConfig(dict(settings), Text("the master"))
        if self.source != source:
            self.source = dict(source)
            self._save()

    def start_at(self, offset: int) -> None:
        """Let the empty log begin at an offset, the start of a file."""
        self.begin = self.end = self.flushed = offset
        self._save()

    def append(self, found: Proven, *, unproven: bool) -> None:
        """Write bytes at the end; what is no sound record is noted when it is on disk, so that a later run knows it."""
        view = memoryview(found.data)
        with explained(self._log):
            while len(view):
                start = self.end // self.file_size * self.file_size
                if self._file < 0:
                    self._open(start)
                part = view[: start + self.file_size - self.end]
                write_all(self._file, part, self.end - start)
                self.end += len(part)
                view = view[len(part) :]
                if self.end == start + self.file_size:
                    self._close_file()
        self.last_record = max(self.last_record, found.last_record)
        if found.faults or unproven != self.unproven:
            self._note(found.faults, unproven)

    def _note(self, faults: list[tuple[int, int]], unproven: bool) -> None:
        for start, stop in faults:
            follows = self.faults and self.faults[-1][1] == start
            self.faults.append((self.faults.pop()[0] if follows else start, stop))
        if len(self.faults) > _MOST_FAULTS:
            raise CouldNotCheck(
                Text("the log that arrives is damaged nearly everywhere"),
                Text("`rmqstore verify` on the master's host shows what is wrong with its store"),
            )
        self.unproven = unproven
        self.flush()
        self._save()

    def flush(self) -> None:
        """Return when all that was appended is on disk."""
        if self._file >= 0 and self.flushed < self.end:
            with explained(self._log):
                os.fdatasync(self._file)
            self.flushed = self.end

    def put_config(self, name: str, data: bytes) -> None:
        """Replace a configuration file."""
        with explained(self.root / _CONFIG / name):
            self._opened.replace(_CONFIG, name, data)

    def drop_before(self, offset: int) -> None:
        """Remove the files that end before an offset."""
        for start in self._starts():
            if start + self.file_size <= min(offset, self.end // self.file_size * self.file_size):
                with explained(self._log):
                    os.unlink(offset_to_file_name(start), dir_fd=self._opened[_LOG])
                self.begin = start + self.file_size

    # --- the parts -------------------------------------------------------------------------------------------------

    @property
    def _opened(self) -> _Folders:
        if self._folders is None:
            raise RuntimeError
        return self._folders

    def _starts(self) -> list[int]:
        """Return the starts of the files, sorted. Errors: CouldNotCheck for another entry."""
        with explained(self._log), os.scandir(self._opened[_LOG]) as entries:
            names = sorted(entry.name for entry in entries)
        if any(not name.isdigit() or len(name) != 20 for name in names):
            raise CouldNotCheck(Text("{log} has files that are not of a log", log=self._log), _BROKEN)
        return [int(name) for name in names]

    def _mapped(self, start: int) -> MappedFile:
        path = self._log / offset_to_file_name(start)
        return MappedFile(path, start, self.file_size, self.file_size)

    def _open(self, start: int) -> None:
        """Open a file of the log for writing; a new one gets its full size. Errors: OSError."""
        name, log = offset_to_file_name(start), self._opened[_LOG]
        self._file = _open_own(self._log / name, log)
        if os.fstat(self._file).st_size < self.file_size:
            os.ftruncate(self._file, self.file_size)
            os.fsync(log)

    def _close_file(self) -> None:
        os.fdatasync(self._file)
        self.flushed = self.end
        os.close(self._file)
        self._file = -1

    def _save(self) -> None:
        document = {
            "schema": SCHEMA,
            "source": self.source,
            "file_size": self.file_size,
            "begin": self.begin,
            "damaged": self.faults,
            "unproven": self.unproven,
        }
        with explained(self.root / _STATE):
            self._opened.replace(_OWN, _STATE_NAME, json.dumps(document).encode() + b"\n")

    def _load(self, folders: _Folders) -> None:
        try:
            found: Any = json.loads(folders.read_state())
        except FileNotFoundError:
            if self._starts():
                raise CouldNotCheck(Text("{root} has no {state}", root=self.root, state=_STATE), _BROKEN) from None
            return
        except OSError as error:
            raise explain(error, self.root / _STATE) from error
        except (ValueError, RecursionError) as error:
            raise CouldNotCheck(Text("{root}/{state} is damaged", root=self.root, state=_STATE), _BROKEN) from error
        try:
            if found["schema"] != SCHEMA:
                raise ValueError
            self.source = {str(name): str(value) for name, value in found["source"].items()}
            self.file_size, self.begin = int(found["file_size"]), int(found["begin"])
            self.faults = [(int(start), int(stop)) for start, stop in found["damaged"]]
            self.unproven = bool(found["unproven"])
            if self.begin > GREATEST_OFFSET or any(not 0 <= start < stop for start, stop in self.faults):
                raise ValueError
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
            raise CouldNotCheck(Text("{root}/{state} is damaged", root=self.root, state=_STATE), _BROKEN) from error
        if self.begin >= 0:
            self._find_end()

    def _find_end(self) -> None:
        """Find the end of the last run, and remove what is behind it."""
        starts = self._starts()
        if self.file_size <= 0 or any(b - a != self.file_size for a, b in pairwise(starts)):
            raise CouldNotCheck(Text("{log} lacks files", log=self._log), _BROKEN)
        self.end = self.begin
        if starts:
            self.begin, last = starts[0], self._mapped(starts[-1])
            self.end = self._sound_end(last)
            if self.last_record < 0 and len(starts) > 1:
                self._sound_end(self._mapped(starts[-2]))
            with explained(last.path):
                self._open(last.start)
                if self.end < last.stop:
                    os.ftruncate(self._file, self.end - last.start)
                    os.ftruncate(self._file, self.file_size)
                os.fsync(self._file)
            if self.end == last.stop:
                self._close_file()
        self.flushed = self.end
        self.unproven = self.unproven and bool(self.faults) and self.faults[-1][1] == self.end
        self.faults = [(start, stop) for start, stop in self.faults if stop <= self.end]

    def _sound_end(self, file: MappedFile) -> int:
        """Return where the sound records of a file end, and what is known to be none; note the last record.

        A BLANK at the end is received again: the bytes after it may be missing.
        """
        end = file.start
        for run in scan_file(file):
            if run.kind is Kind.RECORDS and run.columns is not None:
                self.last_record = max(self.last_record, int(run.columns.offset[-1]))
            known = next((stop for start, stop in self.faults if start <= run.start < stop), -1)
            stop = run.stop if run.kind is Kind.RECORDS else min(known, run.stop)
            if stop <= end:
                break
            end = stop
            if end < run.stop:
                break
        return end


def set_aside(folder: Path, suffix: str) -> Path:
    """Rename the spool of a folder, which then has none; return the new path. Errors: as those of `Spool`."""
    with Spool(folder) as spool:
        aside = spool.root.with_name(f"{RECEIVING}-{suffix}")
        with explained(aside):
            at = private_directory_beneath(folder.parent, Path(folder.name))
            try:
                os.rename(RECEIVING, aside.name, src_dir_fd=at, dst_dir_fd=at)
                os.fsync(at)
            finally:
                os.close(at)
    return aside


def _open_own(path: Path, folder: int) -> int:
    """Open or create a file in an open directory for writing; it has no other name, which would be changed, too.

    Errors: OSError, also for a link and for anything but a regular file.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = os.open(path.name, flags, FILE_MODE, dir_fd=folder)
    try:
        refuse_special(descriptor, path)
        if os.fstat(descriptor).st_nlink > 1:
            words = Text("it has another name (a hard link), which would be changed, too")
            raise OSError(errno.EMLINK, words, str(path))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
