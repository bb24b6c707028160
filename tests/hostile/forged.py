"""Journals as an attacker writes them into a store, with the bytes of the formats rather than with our own writer."""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

NAME = "20260101T000000.000000Z"
DATA = b"* * * * * root echo pwned\n"
HASH = f"sha256:{hashlib.sha256(DATA).hexdigest()}"
_HEADER = struct.Struct("<4sBIQI")


def frame(kind: int, step: int, at: int, payload: bytes = b"") -> bytes:
    """Return a frame of undo.log. Kinds: 1 metadata, 2 old bytes, 4 end of a batch."""
    head = _HEADER.pack(b"RMQU", kind, step, at, len(payload))
    return head + struct.pack("<I", zlib.crc32(payload, zlib.crc32(head))) + payload


def meta(**more: object) -> bytes:
    """Return the metadata frame of step 0."""
    times = {"atime_ns": 0, "mtime_ns": 0, "folder_atime_ns": 10**18, "folder_mtime_ns": 10**18}
    return frame(1, 0, 0, json.dumps({"step": 0, "after": None, **times, **more}).encode())


def forge(
    store: Path,
    step: dict[str, Any],
    *,
    roots: Sequence[Path] = (),
    log: bytes | None = None,
    folder: Path | None = None,
    **state: object,
) -> Path:
    """Write a journal with one step into a store, or to `folder`; without `log` no batch has begun."""
    place = folder or store / ".rmqstore" / NAME
    for name in ("new", "quarantine"):
        (place / name).mkdir(parents=True)
    plan = {
        "schema": "rmqstore.plan/1",
        "store": "/data/rocketmq/store",
        "roots": [str(root) for root in roots],
        "loss": {},
        "cures": [],
        "notes": [],
        "brakes": [],
        "facts": {},
        "spans": [],
        "steps": [step],
    }
    record = {
        "schema": "rmqstore.journal/1",
        "state": "applying",
        "store": str(store),
        "steps": 1,
        "batches": 1,
        "batches_done": 0 if log is None else 1,
        "lock_was_there": True,
        "times_kept": True,
        "store_atime_ns": 10**18,
        "store_mtime_ns": 10**18,
        "homes": [""],
        "home_of": {},
    }
    (place / "plan.json").write_text(json.dumps(plan))
    (place / "undo.log").write_bytes(log or b"")
    (place / "state").write_text(json.dumps({**record, **state}))
    return place


def forge_write(store: Path, path: str, verb: str, *, roots: Sequence[Path] = ()) -> Path:
    """Write a journal whose undo or resume (`verb`) creates a file at `path`."""
    if verb == "resume":
        content = {"staged": {"size": len(DATA), "hash": HASH, "step": 0}}
        step = {"do": "create", "path": path, "size": len(DATA), "like": None, "why": "x", "content": content}
        place = forge(store, step, roots=roots)
        (place / "new" / "000000").write_bytes(DATA)
    else:
        step = {"do": "discard", "path": path, "length": len(DATA), "expect": HASH, "why": "x"}
        place = forge(store, step, roots=roots, log=meta() + frame(4, 0, 0))
        (place / "quarantine" / f"000000-{path.rpartition('/')[2]}").write_bytes(DATA)
    return place
