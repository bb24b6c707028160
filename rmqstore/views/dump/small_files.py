"""The small files of a store as rows: checkpoints, currterm, epochs, and the broker's JSON files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rmqstore.files.files import Files
from rmqstore.files.store import Store
from rmqstore.formats import checkpoint, configuration, controller, dledger, timer
from rmqstore.views.dump.config_values import config_files

_LARGEST = 256 << 20
_TEXT = 1 << 20
Row = dict[str, Any]


def checkpoint_rows(store: Store) -> Iterator[Row]:
    """Yield {"file", "what", "bytes", fields …} for every existing file that records the progress of something."""
    for path, what in _checkpoint_files(store):
        raw = store.files.read_at(path, _TEXT, 0)
        row: Row = {"file": path.name if path == store.path else store.relative(path), "what": what, "bytes": len(raw)}
        match what:
            case "checkpoint":
                row |= asdict(checkpoint.parse_checkpoint(raw))
            case "timercheck":
                row |= timer.parse_timercheck(raw)
            case "dledger-checkpoint":
                point = dledger.parse_dledger_checkpoint(raw)
                row |= {"committed_index": point.committed_index, "end_index": point.end_index}
                row["faults"] = list(point.faults)
            case "currterm":
                term = dledger.parse_currterm(raw)
                row |= {"term": term.term, "vote_leader": term.vote_leader, "faults": list(term.faults)}
            case "epochFileCheckpoint":
                epochs = controller.parse_epoch_file(raw)
                row["epochs"] = [{"epoch": e.epoch, "start_offset": e.start_offset} for e in epochs.entries]
                row["faults"] = list(epochs.faults)
            case "brokerIdentity":
                row["text"] = raw.decode("utf-8", "backslashreplace").strip()
        yield row


def _checkpoint_files(store: Store) -> Iterator[tuple[Path, str]]:
    if store.part is not None:
        kinds = ("checkpoint", "dledger-checkpoint", "currterm", "timercheck", "epochFileCheckpoint", "brokerIdentity")
        if store.part in kinds:
            yield store.path, store.part
        if store.part == "dledger-group":
            yield from _existing(store.files, store.path, {"checkpoint": "dledger-checkpoint", "currterm": "currterm"})
        return
    names = ("checkpoint", "epochFileCheckpoint", "brokerIdentity")
    yield from _existing(store.files, store.root, {n: n for n in names})
    yield from _existing(store.files, store.root / "config", {"timercheck": "timercheck"})
    if store.dledger is not None:
        yield from _existing(
            store.files, store.dledger.directory, {"checkpoint": "dledger-checkpoint", "currterm": "currterm"}
        )


def _existing(files: Files, folder: Path, names: dict[str, str]) -> Iterator[tuple[Path, str]]:
    for name, what in names.items():
        if files.is_file(folder / name):
            yield folder / name, what


def config_rows(store: Store) -> Iterator[Row]:
    """Yield {"file", "bytes", "condition", "value"} for the broker's JSON files; the value of invalid JSON is None."""
    for path, *_ in config_files(store):
        raw = store.files.read_at(path, _LARGEST, 0)
        row: Row = {
            "file": path.name,
            "bytes": len(raw),
            "condition": configuration.ConfigState.SOUND.value,
            "value": None,
        }
        try:
            row["value"] = configuration.parse_config_json(raw)
        except configuration.ConfigJsonError as e:
            row |= {"condition": e.condition.value, "error": str(e)}
        yield row
