"""Take the last record from a piece where nothing shows that the block of its end belongs to the log.

A record that crosses the border of a block may go on in the block of another file, and the CRC covers only its body:
topic and properties after it could be those of another message of the same shape. The end is believed if what follows
it belongs to the log (`Follows.OWN`), if a CRC covers bytes of the last block, or if the log seems to end there.
Otherwise only the head is kept, as a border for `joining`.
"""

from __future__ import annotations

from rmqstore.carving.pieces import Follows, LogPiece
from rmqstore.carving.source import SECTOR, RawSource
from rmqstore.carving.state import CarvingState

DEFAULT_BLOCK = 4096
ENOUGH = 8
"""Bytes of a block that a CRC must cover: fewer can fit by chance."""


def block_size(source: RawSource, state: CarvingState) -> int:
    """Return the size of the file system's blocks in bytes, or a divisor of it: what all pieces agree with."""
    block = min(DEFAULT_BLOCK, *(_in_superblock(source, segment.start) for segment in source.segments[:1]))
    while block > SECTOR and state.rows(
        "SELECT 1 FROM pieces WHERE count > 0 AND (source - start) % ? != 0 LIMIT 1", (block,)
    ):
        block //= 2
    return block


def _in_superblock(source: RawSource, at: int) -> int:
    """Return the block size that a file system states at its start; the default without one.

    Source: linux, fs/ext4/ext4.h (struct ext4_super_block), fs/xfs/libxfs/xfs_format.h (struct xfs_dsb)
    """
    try:
        raw = source.read(2048, at)
    except OSError:
        return DEFAULT_BLOCK
    if raw[1080:1082] == b"\x53\xef":
        return 1024 << min(raw[1048], 6)
    if raw[:4] == b"XFSB":
        size = int.from_bytes(raw[4:8], "big")
        return size if size in (SECTOR, 1024, 2048) else DEFAULT_BLOCK
    return DEFAULT_BLOCK


def settle_doubts(source: RawSource, state: CarvingState, block: int) -> int:
    """Take doubtful last records from all pieces, and what lies within the others; return how many were taken."""
    doubtful = 0
    with state.transaction():
        for piece in list(state.pieces("count > 0 AND follows != ?", (Follows.OWN,))):
            if _is_doubtful(source, state, piece, block):
                doubtful += 1
                state.change(_WITHOUT_LAST, (Follows.OWN, piece.number))
            else:
                end = piece.at(piece.stop)
                state.change(_WITHIN, (piece.at(piece.last_at), end, end))
    return doubtful


_WITHOUT_LAST = (
    "UPDATE pieces SET count = count - 1, stop = last_at, follows = ?, start = min(start, last_at) WHERE number = ?"
)
_OTHERS = "SELECT 1 FROM pieces WHERE source >= ? AND source < ? LIMIT 1"
_WITHIN = "DELETE FROM pieces WHERE source > ? AND source + stop - start <= ? AND source < ?"


def _is_doubtful(source: RawSource, state: CarvingState, piece: LogPiece, block: int) -> bool:
    last_block = (piece.stop - 1) // block * block
    if last_block <= piece.last_at:
        return False
    if piece.proven < last_block + ENOUGH:
        # zeros end a log; but they may begin before, and with the head of another record the block is another one's
        others = (piece.at(last_block), piece.at(last_block + block))
        early = b"\0" in source.read(2, piece.at(piece.stop - 2))
        return piece.follows != Follows.ZEROS or early or bool(state.rows(_OTHERS, others))
    return piece.follows == Follows.FOREIGN and piece.proven < piece.stop
