"""What a snapshot does not contain because it follows from its log: consume queues, index, checkpoint, DLedger index.

`restore` rebuilds all of it. Whatever reads a snapshot as a store gets each part when it first asks for it: the part is
planned as in `rmqstore rebuild`, and read through an overlay. Nothing is written but a temporary file with the units.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from rmqstore.backup.manifest import DLEDGER, Manifest
from rmqstore.backup.snapshot_files import SnapshotFiles
from rmqstore.checks.examine import examine
from rmqstore.checks.options import VerifyOptions
from rmqstore.checks.verified import Verified
from rmqstore.documents.plan import Plan
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.files import DirEntry, Files, OpenFile
from rmqstore.files.store import Store, open_store
from rmqstore.files.store_queues import SEPARATE, SHARED
from rmqstore.formats.checkpoint import FILE_SIZE
from rmqstore.repair.overlay import Overlay
from rmqstore.repair.planned import SPLIT, FirstParts, PartsAfter
from rmqstore.repair.rebuild.unit_buffer import KeptUnits
from rmqstore.repair.rebuild_parts import CHECKPOINT, CQ, DLEDGER_INDEX, INDEX, ROWS_BESIDE, plan_rebuild
from rmqstore.scan.workers import Mapper

_PART_OF = {
    **dict.fromkeys((SHARED, SEPARATE, "batchconsumequeue", "consumequeue_ext"), CQ),
    "index": INDEX,
    "checkpoint": CHECKPOINT,
}
"""Entries of the root that follow from the log."""


def parts_of(manifest: Manifest) -> list[str]:
    """Return the parts that the store of a snapshot had, in the order in which they are rebuilt."""
    layout = manifest.layout
    parts = [CQ, *([ROWS_BESIDE] if layout.queues == "both" else [])]  # a broker writes only new rows
    parts += [*([INDEX] if layout.has_index else []), CHECKPOINT]
    return [*parts, DLEDGER_INDEX] if manifest.log(DLEDGER) is not None else parts


def plans_of(store: Store, verified: Verified, parts: list[str]) -> Iterator[Plan]:
    """Yield the plans that rebuild parts of a store without them; none without a good message.

    A mixed store that is restored only up to its commitlog has no DLedger index. Errors: as `plan_rebuild`.
    """
    if any(result.messages for result in verified.results):
        for part in parts:
            if part != DLEDGER_INDEX or verified.dledger is not None:
                yield plan_rebuild(store, verified, part)


class DerivedFiles(Files):
    """The files of a snapshot, and the given parts that follow from its log.

    Listing the root derives nothing. A copy in another process derives again what it is asked for.
    """

    def __init__(self, snapshot: SnapshotFiles, config: BrokerConfig, parts: frozenset[str]) -> None:
        self.snapshot = snapshot
        self._config = config
        self._parts = [part for part in parts_of(snapshot.manifest) if part in parts]
        self._verified: tuple[Store, Verified] | None = None
        self._derived: dict[str, Overlay] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_verified": None, "_derived": {}}

    def read_first(self, options: VerifyOptions, mapper: Mapper | None) -> VerifyOptions:
        """Read the log, and return options with which it is verified without being read again."""
        first = FirstParts()
        options = replace(options, split_size=options.split_size or SPLIT)
        whole = replace(
            options, last_run=first, trusts_units=True, sink=None, only=(), topics=(), queues=(), ranges=False
        )
        self.read_log(whole, mapper)
        after = PartsAfter(first, Overlay(self, (), self.snapshot.root))
        return replace(options, jobs=1, progress=None, last_run=after)

    def read_log(self, options: VerifyOptions, mapper: Mapper | None = None) -> None:
        """Read the log, from which the parts are derived; without this call, they read it when they are asked for.

        Errors: as `examine`.
        """
        store = open_store(self.snapshot.root, self._config, self.snapshot)
        self._verified = store, examine(store, replace(options, units=KeptUnits()), mapper)

    def _files(self, path: Path) -> Files:
        """Return the files that have what is at a path."""
        part = self._part(path)
        if part is None:
            return self.snapshot
        if part not in self._derived:
            if self._verified is None:
                self.read_log(VerifyOptions(keep=0))
            assert self._verified is not None
            steps = [step for plan in plans_of(*self._verified, [part]) for step in plan.steps]
            self._derived[part] = Overlay(self.snapshot, steps, self.snapshot.root)
        return self._derived[part]

    def _part(self, path: Path) -> str | None:
        """Return the part that a path belongs to; None if it is in the snapshot, or nowhere."""
        if not path.is_relative_to(self.snapshot.root):
            return None
        names = path.relative_to(self.snapshot.root).parts
        if len(names) > 1 and names[0].startswith("dledger-") and names[1] == "index":
            part = DLEDGER_INDEX
        else:
            part = _PART_OF.get(names[0], "") if names else ""
        return part if part in self._parts else None

    @property
    def _at_root(self) -> dict[Path, DirEntry]:
        """The entries of the root that can be named without reading the log."""
        layout, root = self.snapshot.manifest.layout, self.snapshot.root
        names = [layout.rocksdb if layout.queues == "rocksdb" else SHARED] if CQ in self._parts else []
        names += ["index"] if INDEX in self._parts else []
        now = self.snapshot.manifest.time * 1_000_000
        found = [DirEntry(root / name, 0, now, True) for name in names]
        if CHECKPOINT in self._parts:
            found.append(DirEntry(root / "checkpoint", FILE_SIZE, now, False))
        return {entry.path: entry for entry in found}

    # --- Files ----------------------------------------------------------------------------------------------------

    @property
    def written_by(self) -> tuple[str, str] | None:
        return self.snapshot.written_by

    @property
    def derives(self) -> bool:
        return True

    def list(self, directory: Path) -> list[DirEntry]:
        listed = self._files(directory).list(directory)
        if directory == self.snapshot.root:
            listed = sorted([*listed, *self._at_root.values()], key=lambda entry: entry.path.name)
        return listed

    def stat(self, path: Path) -> DirEntry | None:
        return self._at_root.get(path) or self._files(path).stat(path)

    def open(self, path: Path) -> OpenFile:
        return self._files(path).open(path)

    def local(self, directory: Path) -> AbstractContextManager[Path]:
        return self._files(directory).local(directory)
