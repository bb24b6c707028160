"""The state of a store on one page: sound or not, what waits, room on the disk, the last repair and the last backup.

Each answer is that of another command. Only `verify` reads the whole log, once.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from rmqstore.brokers.outlook import Outlook, disk_of, outlook, rules_of
from rmqstore.checks.examine import examine_named
from rmqstore.checks.options import VerifyOptions
from rmqstore.checks.problems.report import Report
from rmqstore.documents.journal import Journal, State, list_journals
from rmqstore.errors import BadBrokerConfig, reason
from rmqstore.files.store import Store
from rmqstore.formats.times import parse_stamp
from rmqstore.views.pending import Pending, pending


@dataclass(slots=True)
class Diagnosis:
    """What each command says about a store.

    `disk`: the forecast of `du --growth`; None if the growth is unknown, which `disk_unknown` explains if it is an
    error. `repairs`: finished repairs that are not undone, oldest first.
    """

    report: Report
    pending: Pending
    disk: Outlook | None = None
    disk_unknown: str = ""
    repairs: list[Journal] = field(default_factory=list)

    @property
    def repaired_at(self) -> int | None:
        """When the last repair was made (ms); None without one."""
        return parse_stamp(self.repairs[-1].name) if self.repairs else None

    @property
    def unread(self) -> list[str]:
        """What could not be read beside what `verify` checks, in words."""
        return [*self.pending.unread, *filter(None, (self.disk_unknown,))]

    @property
    def exit_code(self) -> int:
        """That of `verify`; 4 also if what waits, or the room on the disk, could not be read."""
        return self.report.exit_code or (4 if self.unread else 0)


def diagnose(store: Store, options: VerifyOptions) -> Diagnosis:
    """Verify a whole store, and collect what else its operator asks.

    Errors: as `examine_named`.
    """
    look, verified = examine_named(store, options)
    report = verified.report
    out = Diagnosis(report, pending(look))
    if report.is_snapshot:  # its disk is that of the repository
        return out
    try:
        rules = rules_of(look.config, version=options.broker or None)
        out.disk = outlook(look, rules, time.time_ns() // 1_000_000, disk_of)
    except (OSError, BadBrokerConfig) as error:
        out.disk_unknown = reason(error)
    found = list_journals(look.root, look.config.directories)
    out.repairs = [journal for journal in found if journal.state is State.DONE and not journal.being_made]
    return out
