"""Run migrate-to-commitlog like a user."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from tests.command import run_json


def migrate(store: Path, output: Path, *more: str, exit_code: int = 0) -> Mapping[str, object]:
    words = ("migrate-to-commitlog", str(store), "--output", str(output), "--jobs", "1", *more)
    return run_json(*words, exit_code=exit_code)


def refused(store: Path, output: Path, *more: str) -> str:
    document = migrate(store, output, *more, exit_code=5)
    assert not output.exists()
    assert list(output.parent.glob(f".{output.name}*")) == []
    assert (document["ready"], document["written"]) == (False, False)
    return json.dumps(document["refusals"])


def verified(store: Path) -> Mapping[str, object]:
    return run_json("verify", str(store), "--jobs", "1", exit_code=0)
