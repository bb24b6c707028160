"""A split: the part of a log file that one process reads."""

from __future__ import annotations

from dataclasses import dataclass

from rmqstore.files.mapped_file_queue import MappedFile


@dataclass(frozen=True, slots=True)
class Split:
    """The bytes [start, stop) of a file; `exact` if a record is known to start at `start`."""

    file: MappedFile
    start: int
    stop: int
    body_offset: int = 0
    exact: bool = False
