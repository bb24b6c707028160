"""Repairs the store checkpoint: its length, and times and offsets that are later than the log."""

from __future__ import annotations

from dataclasses import replace

from rmqstore.checks.beside.checkpoint import LAST_OFFSET, LAST_TIME, TIMES
from rmqstore.checks.problems import codes
from rmqstore.checks.verify import Verified
from rmqstore.files.disk.reading import read_at
from rmqstore.formats.checkpoint import FILE_SIZE, STORE_CHECKPOINT, StoreCheckpoint, parse_checkpoint
from rmqstore.repair.plan.plan_builder import PlanBuilder
from rmqstore.repair.plan.recover_options import RecoverOptions

_CODES = (codes.CK_LENGTH, codes.CK_AHEAD, codes.CK_GARBAGE)


def plan_checkpoint(
    draft: PlanBuilder, verified: Verified, options: RecoverOptions, last_time: int, end: int, *, force: bool = False
) -> None:
    """Add the steps for `checkpoint`; `last_time` (ms) and `end` (bytes) are those of the repaired log.

    Without a finding, it is changed only with `force`, or if the repair removes the latest message.
    """
    store = draft.store
    found = [code for code in _CODES if code in verified.report.findings.counts and options.wants(code)]
    path, entry = store.root / "checkpoint", store.checkpoint
    raw = read_at(path, FILE_SIZE, 0) if entry is not None and not entry.directory and not entry.special else b""
    old = parse_checkpoint(raw)
    late = not options.only and 0 < last_time < max(getattr(old, name) for name in TIMES)
    if store.part is not None or not (found or ((force or late) and entry is not None)):
        return
    why = "times and offsets taken from the log"
    wanted = true_checkpoint(old, last_time, end).build()
    draft.cures.update(found)
    if entry is None or entry.directory or entry.special or entry.length != FILE_SIZE:
        draft.replace(path, wanted, why, old="its size is not 4,096 bytes")
        return
    size = STORE_CHECKPOINT.size
    if raw[:size] != wanted[:size]:
        draft.overwrite(path, 0, wanted[:size], why)


def true_checkpoint(old: StoreCheckpoint, last_time: int, end: int) -> StoreCheckpoint:
    """Return a checkpoint with its sound values; others become the log's last time, or 0 if it is unknown.

    A time that is too early only makes recovery read more. With 0, recovery begins at the first file (5.4.0: at the
    tenth from the end), and with `abort` present brokers delete the index files. The time of the index becomes 0
    nevertheless, since the time of its last full file is unknown here.
    """
    values = {}
    for name in TIMES:
        value = getattr(old, name)
        sound = 0 <= value <= LAST_TIME and (not last_time or value <= last_time)
        values[name] = value if sound else 0 if name == "index_msg_timestamp" else max(last_time, 0)
    confirm = old.confirm_phy_offset
    master = old.master_flushed_offset
    values["confirm_phy_offset"] = confirm if 0 <= confirm <= end else end
    values["master_flushed_offset"] = master if 0 <= master <= LAST_OFFSET else 0
    return replace(old, **values)
