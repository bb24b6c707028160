"""Finds what stops a broker before it loads its store, and the exit code of a broker that could not load it.

Source: BrokerController#initializeMessageStore, #shutdown, BrokerStartup#createBrokerController; DefaultMessageStore's
constructor; TimerWheel's constructor; TimerMessageStore#shutdown. Confirmed with whole brokers of 4.9.7, 5.1.4, 5.4.0,
5.5.1.
"""

from __future__ import annotations

from dataclasses import dataclass

from rmqstore.brokers.rules.forecast import LOAD_FALSE, PROCESS_EXIT
from rmqstore.brokers.rules.versions import BrokerRules
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import Store
from rmqstore.formats.timer import snapshot_position, wheel_size
from rmqstore.texts import Text

HIDDEN = Text(
    "the broker's log ends with a NullPointerException in TimerMessageStore#shutdown: a "
    "consequence of the failed start, not its cause"
)


@dataclass(frozen=True, slots=True)
class StartRefusal:
    """Why a start ends before load(): the reason, the line in the broker's log, and the exit code of the process."""

    reason: str
    log_line: str
    exit_code: int


def refusal_before_load(store: Store, rules: BrokerRules, config: BrokerConfig) -> StartRefusal | None:
    """Return what makes the constructor of the message store fail, `lock` or the timer wheel; None if nothing does."""
    lock = store.top.get("lock")
    if lock is not None and lock.directory:
        code = PROCESS_EXIT if rules.shutdown_throws else LOAD_FALSE
        return StartRefusal(Text("lock is a directory"), "java.io.FileNotFoundException: lock (Is a directory)", code)
    if not rules.timer_wheel or not config.bool("timerWheelEnable"):
        return None
    name = _wheel_read(store, rules, config)
    wheel = store.top.get(name)
    if wheel is None:
        return None
    if wheel.directory:
        return StartRefusal(
            Text("{name} is a directory", name=name),
            f"java.io.FileNotFoundException: {name} (Is a directory)",
            LOAD_FALSE,
        )
    if wheel.length not in (0, wheel_size()):
        code = LOAD_FALSE if rules.any_wheel_failure_is_caught else PROCESS_EXIT
        line = f"Timer wheel length:{wheel.length} != expected:{wheel_size()}"
        return StartRefusal(
            Text(
                "{name} is {length:,} bytes long, not {wheel_size:,}",
                name=name,
                length=wheel.length,
                wheel_size=wheel_size(),
            ),
            line,
            code,
        )
    return None


def _wheel_read(store: Store, rules: BrokerRules, config: BrokerConfig) -> str:
    """Return the file that the broker reads the timer wheel from: the newest snapshot if it uses snapshots."""
    if rules.wheel_snapshots and config.bool("timerWheelSnapshotFlush"):
        found = [at for name in store.top if (at := snapshot_position(name)) is not None]
        if found:
            return f"timerwheel.{max(found)}"
    return "timerwheel"


def exit_without_store(rules: BrokerRules, config: BrokerConfig) -> int:
    """Return the exit code of a broker whose load() returned false."""
    return PROCESS_EXIT if rules.shutdown_throws and config.bool("timerWheelEnable") else LOAD_FALSE
