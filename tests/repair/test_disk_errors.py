"""All writing code handles a full disk, an exceeded quota, and a file size limit in the same way."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from rmqstore.append import disk as append_disk
from rmqstore.errors import CouldNotCheck, NoSpace, NotReadable, OutputExists
from rmqstore.files import disk
from rmqstore.repair.journal import journal
from rmqstore.repair.journal.disk import Disk
from tests.repair.trees import build, full_plan, look

FULL = [errno.ENOSPC, errno.EDQUOT, errno.EFBIG]


@pytest.mark.parametrize("number", FULL)
def test_journal_that_has_no_room_is_no_space(number: int, tmp_path: Path) -> None:
    class Full(Disk):
        def write_at(self, descriptor: int, data: bytes, at: int) -> None:
            raise OSError(number, os.strerror(number))

    store = build(tmp_path / "store")
    before = look(store)
    with pytest.raises(NoSpace, match="no space for the journal"):
        journal.apply(full_plan(store), disk=Full())
    assert look(store) == before


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        *((number, NoSpace) for number in FULL),
        (errno.EEXIST, OutputExists),
        (errno.EACCES, NotReadable),
        (errno.ENOENT, NotReadable),
        (errno.EIO, CouldNotCheck),
    ],
)
def test_every_writer_explains_an_error_alike(number: int, kind: type[Exception]) -> None:
    error = disk.explain(OSError(number, os.strerror(number)), Path("x"))
    assert type(error) is kind and append_disk.explain is disk.explain
