"""A file written with early write-back has the same bytes."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from rmqstore.cli.printing import output
from rmqstore.cli.printing.output import EarlyFile

MIB = 1 << 20


def test_writing_starts_after_every_8_mib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(output, "start_writing", lambda descriptor: asked.append(os.fstat(descriptor).st_size))
    pieces = [bytes([i]) * (3 * MIB) for i in range(7)]
    with (tmp_path / "out").open("wb") as whole, io.BufferedWriter(EarlyFile(whole.fileno())) as file:
        for piece in pieces:
            file.write(piece)
    assert (tmp_path / "out").read_bytes() == b"".join(pieces)
    assert asked == [9 * MIB, 18 * MIB]
