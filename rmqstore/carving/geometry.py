"""The size of a log's files, from what the log itself shows.

A BLANK names the bytes that are left in its file, and so the end of the file; the size of files divides all ends. No
record crosses the end of a file, and before each end there is a BLANK.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from math import gcd

from rmqstore.carving.source import SECTOR
from rmqstore.carving.state import CarvingState
from rmqstore.files.broker_config import COMMITLOG_FILE_SIZE


def log_file_size(state: CarvingState, life: int, given: int = 0) -> tuple[int, str]:
    """Return the size of the files of a life's log (bytes), and where it is from: "given", "blanks" or "default".

    A size that contradicts the log, because a piece crosses the end of a file, is not taken unless it is given.
    """
    if given:
        return given, "given"
    ends = [row[0] for row in state.rows(_ENDS, (life,))]
    for size in _candidates(ends):
        usual = size > COMMITLOG_FILE_SIZE and size % COMMITLOG_FILE_SIZE == 0
        if usual and _is_sound(state, life, COMMITLOG_FILE_SIZE):
            return COMMITLOG_FILE_SIZE, "blanks"
        if _is_sound(state, life, size):
            return size, "blanks"
    size = COMMITLOG_FILE_SIZE
    while not _is_sound(state, life, size):
        size *= 2
    return size, "default"


_ENDS = "SELECT DISTINCT file_end FROM pieces WHERE life = ? AND file_end > 0 ORDER BY file_end"
_CROSSING = "SELECT 1 FROM pieces WHERE life = ? AND stop > start AND start / ? != (stop - 1) / ? LIMIT 1"
_TRIED = 8


def _candidates(ends: list[int]) -> Iterator[int]:
    """Yield sizes that divide the ends of files; the later ones leave out ends that no other one confirms."""
    if ends:
        yield gcd(*ends)
        pairs = Counter(gcd(one, other) for one, other in pairwise(ends))
        yield from (size for size, _ in pairs.most_common(_TRIED))


def _is_sound(state: CarvingState, life: int, size: int) -> bool:
    """Return whether no piece crosses the end of a file of this size."""
    if size < SECTOR or size % SECTOR:
        return False
    crossing = state.rows(
        "SELECT 1 FROM pieces WHERE life = ? AND stop > start AND start / ? != (stop - 1) / ? LIMIT 1",
        (life, size, size),
    )
    return not crossing
