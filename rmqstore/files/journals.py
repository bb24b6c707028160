"""The journals of repairs in a store, as documents: their state, and the plans of completed repairs.

A journal is not trusted: a plan is JSON that anybody may have written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rmqstore.files.files import Files
from rmqstore.files.store import Store

_STATE_LIMIT = 1 << 20  # bytes
_PLAN_LIMIT = 256 << 20  # bytes; a plan keeps large contents in separate files
_DONE = "done"
IMPORT_FACT = "import"
"""The fact of the plan of an import into the store, which repairs nothing."""


def journal_state(files: Files, folder: Path) -> tuple[Path, str]:
    """Return the directory of a journal (here, or where the pointer leads), and its state; "" without a journal."""
    pointer = files.read_at(folder / "journal", 4096, 0)
    if pointer:
        folder = Path(os.fsdecode(pointer.strip(b"\n")))
    raw = files.read_at(folder / "state", _STATE_LIMIT, 0)
    if not raw:
        return folder, "missing" if pointer else ""
    try:
        state = json.loads(raw)
    except (ValueError, RecursionError):
        return folder, "missing"
    word = state.get("state") if isinstance(state, dict) else None
    return folder, word if isinstance(word, str) else "missing"


def repairs(store: Store) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (name of the journal, plan) of every completed repair, oldest first."""
    for entry in sorted(store.files.list(store.journal_directory), key=lambda e: e.path.name):
        if not entry.directory:
            continue
        journal, state = journal_state(store.files, entry.path)
        if state != _DONE:
            continue
        try:
            plan = json.loads(store.files.read_at(journal / "plan.json", _PLAN_LIMIT, 0))
        except (ValueError, RecursionError):
            continue
        facts = plan.get("facts") if isinstance(plan, dict) else None
        if isinstance(plan, dict) and not (isinstance(facts, dict) and IMPORT_FACT in facts):
            yield entry.path.name, plan
