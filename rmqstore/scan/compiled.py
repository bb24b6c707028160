"""The two inner loops compiled by numba, for big scans when `rmqstore[fast]` is installed; same results.

Loading numba costs a good half second, so `accelerate` is asked for only where there are some GiB to read. The
CRC comes from a symbol of the isal wheel; it is an undocumented export, so it is looked up, tried against zlib, and
left alone when anything is not as expected.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from rmqstore.scan import kernels, native
from rmqstore.scan.kernels import I64

WORTH = 4 << 30  # bytes: below, loading numba costs more than it saves
_state: dict[str, bool] = {}


def accelerate(total: int) -> bool:
    """Switch the kernels to compiled ones for a scan of `total` bytes; False where that is not worth it or not there.

    `RMQSTORE_FAST=0` keeps it off.
    """
    if total < WORTH or os.environ.get("RMQSTORE_FAST") == "0" or native.load() is not None:
        return False
    if "on" not in _state:
        _state["on"] = _switch()
    return _state["on"]


def _switch() -> bool:
    try:
        loops = compile_loops()
    except Exception:  # noqa: BLE001 - any failure of an optional speed-up means: do without
        return False
    if loops is None:
        return False
    setattr(kernels, "walk", loops[0])  # noqa: B010 - a function of a module is replaced on purpose
    setattr(kernels, "body_crcs", loops[1])  # noqa: B010
    return True


Walk = Callable[[memoryview, int, int, int, int, int], I64]
Crcs = Callable[[bytearray, I64, I64], I64]


def compile_loops() -> tuple[Walk, Crcs] | None:
    """Compiled `walk` and `body_crcs`; None where numba or the CRC symbol is missing or wrong."""
    import llvmlite.binding as llvm
    from isal import isal_zlib
    from numba import njit, types

    library: str = isal_zlib.__file__
    llvm.load_library_permanently(library)
    if llvm.address_of_symbol("crc32_gzip_refl") is None:  # calling a missing symbol would kill the process
        return None
    crc: Any = types.ExternalFunction("crc32_gzip_refl", types.uint32(types.uint32, types.intp, types.uint64))

    @njit(nogil=True, cache=True)
    def sizes(buf: Any, p: Any, have: int, least: int, limit: int, out: Any) -> Any:
        out[0] = p
        n = 1
        while n <= limit and p + 4 <= have:
            size = (
                (np.int64(buf[p]) << 24)
                | (np.int64(buf[p + 1]) << 16)
                | (np.int64(buf[p + 2]) << 8)
                | np.int64(buf[p + 3])
            )
            if size < least:
                break
            p += size
            out[n] = p
            n += 1
        return n

    @njit(nogil=True, cache=True)
    def crcs(buf: Any, starts: Any, stops: Any, out: Any) -> None:
        base = buf.ctypes.data
        for i in range(len(starts)):
            out[i] = np.int64(crc(np.uint32(0), base + starts[i], np.uint64(stops[i] - starts[i]))) & 0x7FFFFFFF

    def walk(view: memoryview, at: int, have: int, size_at: int, least: int, limit: int) -> I64:
        limit = min(limit, (have - at) // least + 1)
        out = np.empty(limit + 1, dtype=np.int64)
        n = sizes(np.frombuffer(view, dtype=np.uint8), at + size_at, have, least, limit, out)
        return kernels.sound_borders(out[:n] - size_at, have, least)

    def body_crcs(raw: bytearray, starts: I64, stops: I64) -> I64:
        out = np.empty(len(starts), dtype=np.int64)
        crcs(np.frombuffer(raw, dtype=np.uint8), starts, stops, out)
        return out

    sample = bytearray(b"123456789" * 40)
    starts, stops = np.array([0, 9, 0], dtype=np.int64), np.array([9, 9, 360], dtype=np.int64)
    wanted = [zlib.crc32(sample[a:b]) & 0x7FFFFFFF for a, b in zip(starts.tolist(), stops.tolist(), strict=True)]
    return (walk, body_crcs) if body_crcs(sample, starts, stops).tolist() == wanted else None
