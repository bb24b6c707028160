"""What real brokers sent: answers to requests, and the HA stream of their last three records with two heartbeats.

The brokers were given 200 messages; paths and directories of the machine are replaced by others of the same length.
"""

from __future__ import annotations

import base64
import json
import zlib
from functools import cache
from pathlib import Path
from typing import Any

VERSIONS = ("4.9.7", "5.4.0")


@cache
def _document(version: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(__file__).with_name(f"recorded-{version}.json").read_text("utf-8"))
    return found


def answer(version: str, request: str) -> bytes:
    """Return the frame that answered a request: "26", "28", "21", "43", "45", "201", "33", "33 elsewhere"."""
    return zlib.decompress(base64.b64decode(_document(version)["answers"][request]))


def stream(version: str) -> tuple[int, bytes, bytes]:
    """Return the offset that was reported, the bytes of the log from there on, and what the master sent."""
    found = _document(version)
    return found["start"], base64.b64decode(found["log"]), base64.b64decode(found["stream"])
