"""Repairs the store checkpoint: its length, and times and offsets that are later than the log."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rmqstore.checks.beside.checkpoint import LAST_OFFSET, LAST_TIME, TIMES
from rmqstore.checks.problems import codes
from rmqstore.files.store import Store
from rmqstore.formats.checkpoint import FILE_SIZE, STORE_CHECKPOINT, StoreCheckpoint, parse_checkpoint
from rmqstore.repair.plan.plan_builder import PlanBuilder
from rmqstore.repair.recovery import LogAfter, Recovery
from rmqstore.repair.repaired_log import last_record_start
from rmqstore.texts import Text

_CODES = (codes.CK_LENGTH, codes.CK_AHEAD, codes.CK_GARBAGE)


@dataclass(frozen=True, slots=True)
class KeptEnd:
    """The end of the repaired log: its greatest store time (ms), its end, and the start of its last record (offsets).

    Without a message, all are 0. `stale`: the queues are complete, and the checkpoint's logicsPhysicalOffset is of an
    earlier time.
    """

    last_time: int
    end: int
    last_start: int
    stale: bool = False


def plan_checkpoint(case: Recovery, draft: PlanBuilder, log: LogAfter) -> None:
    """Add the steps for the times and offsets of `checkpoint`, from the last messages.

    It is fitted if a finding is about it, if the log ends earlier, and if the repair removes the latest message.
    """
    store = draft.store
    old = parse_checkpoint(_content(store))
    late = 0 < log.last_time < max(getattr(old, name) for name in TIMES)
    late |= bool(draft.steps) and old.logics_physical_offset >= log.end
    removed = log.ends_earlier or (late and not case.options.only)
    if store.part is None and (case.wanted.intersection(_CODES) or (removed and store.checkpoint is not None)):
        fit_checkpoint(draft, KeptEnd(log.last_time, log.end, last_record_start(case.verified.logs, log.end)))


def fit_checkpoint(draft: PlanBuilder, kept: KeptEnd) -> None:
    """Add the steps after which `checkpoint` has no value that the end of the log contradicts."""
    store, entry, raw = draft.store, draft.store.checkpoint, _content(draft.store)
    why = Text("times and offsets taken from the log")
    wanted = true_checkpoint(parse_checkpoint(raw), kept).build()
    if entry is None or entry.directory or entry.special or entry.length != FILE_SIZE:
        draft.replace(store.root / "checkpoint", wanted, why, old=Text("its size is not 4,096 bytes"))
        return
    size = STORE_CHECKPOINT.size
    if raw[:size] != wanted[:size]:
        draft.overwrite(entry.path, 0, wanted[:size], why)


def _content(store: Store) -> bytes:
    entry = store.checkpoint
    return store.files.read_at(entry.path, FILE_SIZE, 0) if entry is not None and entry.regular else b""


def true_checkpoint(old: StoreCheckpoint, kept: KeptEnd) -> StoreCheckpoint:
    """Return a checkpoint with its sound values; others become the log's last time, or 0 if it is unknown.

    A time that is too early only makes recovery read more. With 0, recovery begins at the first file (5.4.0: at the
    tenth from the end), and with `abort` present brokers delete the index files. The time of the index becomes 0
    nevertheless, since the time of its last full file is unknown here. A stale logicsPhysicalOffset, or one after the
    end of the log, becomes the start of the last message; one of 0 stays, because it is right for every broker.
    """
    values = {}
    last_time, end = kept.last_time, kept.end
    for name in TIMES:
        value = getattr(old, name)
        sound = 0 <= value <= LAST_TIME and (not last_time or value <= last_time)
        values[name] = value if sound else 0 if name == "index_msg_timestamp" else max(last_time, 0)
    confirm = old.confirm_phy_offset
    master = old.master_flushed_offset
    values["confirm_phy_offset"] = confirm if 0 <= confirm <= end else end
    values["master_flushed_offset"] = master if 0 <= master <= LAST_OFFSET else 0
    logics = old.logics_physical_offset
    sound = 0 <= logics < end and not kept.stale
    values["logics_physical_offset"] = logics if sound or not logics else kept.last_start
    return replace(old, **values)
