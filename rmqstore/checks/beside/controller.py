"""Compares the epochs of a store of controller mode with its log.

A slave compares its epochs with the master's to find where their histories part, and truncates its log there. Without
epochs it counts as a new replica and skips that. An epoch after the end of the log ends no earlier than the log is
long: the broker appends no further epoch, and as a slave asks the master for messages after its own end.

Source: AutoSwitchHAClient#doTruncate, AutoSwitchHAService#changeToMaster, EpochFileCache#appendEntry,
#setLastEpochEntryEndOffset, #findConsistentPoint (RocketMQ 5.1.4, 5.4.0, 5.5.1; the real classes were run)
"""

from __future__ import annotations

from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import Fact, Finding, Findings
from rmqstore.files.controller import stored_epochs
from rmqstore.files.store import EPOCHS, Store


def check_epochs(store: Store, end: int, findings: Findings) -> None:
    """Report missing epochs of a store of controller mode, and epochs that start after the end of its log.

    `end`: of the log's content (global offset), which has at least one message.
    """
    if not store.controller_files:
        return
    if not {EPOCHS, f"{EPOCHS}.bak"} & store.top.keys():
        facts: dict[str, Fact] = {"log_end": end}
        findings.add(Finding(codes.CFG_NO_EPOCHS, "store", EPOCHS, facts=facts))
        return
    epochs = stored_epochs(store)
    beyond = [one for one in epochs if one.start_offset > end]
    if beyond:
        facts = {"epoch": beyond[0].epoch, "starts_at": beyond[0].start_offset, "log_end": end, "count": len(beyond)}
        if len(beyond) < len(epochs):
            facts["kept"] = len(epochs) - len(beyond)
        findings.add(Finding(codes.CFG_EPOCH_BEYOND, "store", EPOCHS, facts=facts))
