"""Compiled loops, where numba is installed, give exactly what the plain ones give."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from rmqstore.formats.message import build_message
from rmqstore.scan import kernels


def test_compiled_loops_agree_with_the_plain_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numba = pytest.importorskip("numba", reason="rmqstore[fast] is not installed")
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))  # beside the source, or at home, it may not write
    from rmqstore.scan.compiled import compile_loops

    loops = compile_loops()
    assert loops is not None
    walk, crcs = loops
    noise = random.Random(5)
    data = bytearray()
    while len(data) < 60_000:
        data += build_message(topic="T" * noise.randrange(1, 40), body=noise.randbytes(noise.randrange(900)))
    for _ in range(200):
        broken = bytearray(data)
        for _ in range(noise.randrange(3)):
            broken[noise.randrange(len(broken))] ^= 1 << noise.randrange(8)
        have = noise.randrange(100, len(broken))
        for size_at in (0, 4):
            arguments = (memoryview(broken), noise.randrange(50), have, size_at, 91, noise.choice((3, 64, 1 << 40)))
            assert walk(*arguments).tolist() == kernels.walk(*arguments).tolist()
    starts = np.array([noise.randrange(50_000) for _ in range(300)], dtype=np.int64)
    stops = starts + np.array([noise.randrange(5_000) for _ in range(300)], dtype=np.int64)
    assert crcs(data, starts, stops).tolist() == kernels.body_crcs(data, starts, stops).tolist()


def test_small_scans_and_a_switch_keep_the_plain_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    from rmqstore.scan import compiled

    assert not compiled.accelerate(compiled.WORTH - 1)
    monkeypatch.setenv("RMQSTORE_FAST", "0")
    assert not compiled.accelerate(1 << 40)
