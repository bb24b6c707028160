"""Files before the first one of the log: whether the broker can have deleted them because of their age.

Deleted files leave no other trace: units that point before the log are normal until their queue file expires too.
Source: MappedFileQueue#deleteExpiredFileByTime (RocketMQ 4.9.7 to 5.4.0)
"""

from __future__ import annotations

from rmqstore.checks.log.commitlog import LogResult
from rmqstore.files.store import Store
from rmqstore.texts import Text

_HOUR_MS = 3_600_000


def too_young_to_expire(store: Store, first: LogResult) -> list[str]:
    """Return a note if the files before the log were too young for that when the broker last ran.

    The last message of a file is not older than the first one of the next file, because a broker then closes the file
    with a BLANK. A running broker writes the checkpoint and its configuration every few seconds.
    """
    if not first.queue.start or not first.messages:
        return []
    files = [entry for name, entry in store.top.items() if name == "checkpoint"]
    files += store.files.list(store.root / "config")
    active = max((entry.mtime_ns // 1_000_000 for entry in files), default=0)
    hours = store.config.int("fileReservedTime")
    if not 0 <= active - first.first_time < hours * _HOUR_MS:
        return []
    return [
        Text(
            "the {queue} begins at {start:,}: the files before it were less than {hours} hours old "
            "(fileReservedTime) when the broker last ran, so they did not expire by age. They were "
            "deleted for lack of space or by a person, are lost, or were never here (a slave that began "
            "later)",
            queue=first.queue.name,
            start=first.queue.start,
            hours=hours,
        )
    ]
