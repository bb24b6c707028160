"""The journals of repairs in a store, as documents: their state, and the plans of completed repairs.

A journal is not trusted: a plan is JSON that anybody may have written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rmqstore.files.disk import real_path
from rmqstore.files.files import LOCAL, Files
from rmqstore.files.store import Store
from rmqstore.files.users import JOURNAL_FOLDER

POINTER = "journal"
_STATE_LIMIT = 1 << 20  # bytes
_MAX_POINTER = 1 << 14  # bytes
_PLAN_LIMIT = 256 << 20  # bytes; a plan keeps large contents in separate files
_DONE = "done"
IMPORT_FACT = "import"
"""The fact of the plan of an import into the store, which repairs nothing."""


def pointer_of(folder: Path, files: Files = LOCAL) -> Path | None:
    """Return the path of the journal to which a folder in a store points, None if it is no pointer."""
    try:
        text = os.fsdecode(files.read_small(folder / POINTER, _MAX_POINTER))
    except (OSError, ValueError):
        return None
    return real_path(Path(text)) if text.startswith("/") and "\0" not in text else None


def name_each_other(pointer: Path, store: str, folder: Path) -> bool:
    """Return whether a pointer leads to a journal of its own store. `store`: what the journal at `pointer` names."""
    if pointer.name != folder.name or pointer.parent.name == JOURNAL_FOLDER or "\0" in store:
        return False
    return real_path(Path(store)) == real_path(folder.parent.parent)


def journal_state(files: Files, folder: Path) -> tuple[Path, str]:
    """Return the directory of a journal (here, or where the pointer leads), and its state; "" without a journal."""
    pointer = pointer_of(folder, files)
    place = folder if pointer is None else pointer
    raw = files.read_at(place / "state", _STATE_LIMIT, 0)
    if not raw:
        return place, "missing" if pointer is not None else ""
    try:
        state = json.loads(raw)
    except (ValueError, RecursionError):
        return place, "missing"
    word, store = (state.get("state"), state.get("store")) if isinstance(state, dict) else (None, None)
    if not isinstance(word, str) or not isinstance(store, str):
        return place, "missing"
    if pointer is not None and not name_each_other(pointer, store, folder):
        return folder, "missing"
    return place, word


def repairs(store: Store) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (name of the journal, plan) of every completed repair, oldest first."""
    for entry in sorted(store.files.list(store.journal_directory), key=lambda e: e.path.name):
        if not entry.directory or entry.link is not None:
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
