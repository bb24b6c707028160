"""What stops a broker before its store is loaded, and how a broker ends whose store was not loaded.

Source: BrokerController#initializeMessageStore, #shutdown, BrokerStartup#createBrokerController; DefaultMessageStore's
constructor; TimerWheel's constructor; TimerMessageStore#shutdown. Whole brokers of 4.9.7, 5.1.4 and 5.4.0 did so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rmqstore.brokers.rules.forecast import LOAD_FALSE, PROCESS_EXIT
from rmqstore.brokers.rules.versions import BrokerRules
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import Store
from rmqstore.formats.timer import wheel_size

HIDDEN = (
    "the broker's log ends with a NullPointerException in TimerMessageStore#shutdown: that follows from the "
    "failed start and does not cause it"
)
_SNAPSHOT = re.compile(r"timerwheel\.([0-9]{1,19})")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a start ends before load(): what is wrong, what the log says, and the exit code of the process."""

    reason: str
    log_line: str
    exit_code: int


def refusal_before_load(store: Store, rules: BrokerRules, config: BrokerConfig) -> Refusal | None:
    """What makes the making of the message store fail: `lock` or the timer wheel."""
    lock = store.top.get("lock")
    if lock is not None and lock.directory:
        code = PROCESS_EXIT if rules.shutdown_throws else LOAD_FALSE
        return Refusal("lock is a directory", "java.io.FileNotFoundException: lock (Is a directory)", code)
    if not rules.timer_wheel or not config.bool("timerWheelEnable"):
        return None
    name = _wheel_read(store, rules, config)
    wheel = store.top.get(name)
    if wheel is None:
        return None
    if wheel.directory:
        return Refusal(f"{name} is a directory", f"java.io.FileNotFoundException: {name} (Is a directory)", LOAD_FALSE)
    if wheel.length not in (0, wheel_size()):
        code = LOAD_FALSE if rules.any_wheel_failure_is_caught else PROCESS_EXIT
        line = f"Timer wheel length:{wheel.length} != expected:{wheel_size()}"
        return Refusal(f"{name} is {wheel.length:,} bytes long, not {wheel_size():,}", line, code)
    return None


def _wheel_read(store: Store, rules: BrokerRules, config: BrokerConfig) -> str:
    """The file that the wheel is read from: the newest snapshot where the broker makes some."""
    if rules.wheel_snapshots and config.bool("timerWheelSnapshotFlush"):
        found = [int(match[1]) for name in store.top if (match := _SNAPSHOT.fullmatch(name)) is not None]
        if found:
            return f"timerwheel.{max(found)}"
    return "timerwheel"


def exit_without_store(rules: BrokerRules, config: BrokerConfig) -> int:
    """The exit code after a load() that gave false."""
    return PROCESS_EXIT if rules.shutdown_throws and config.bool("timerWheelEnable") else LOAD_FALSE
