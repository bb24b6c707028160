"""`rmqstore doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqstore.checks.problems.report import problem_counts, store_words
from rmqstore.cli.lang import AsIs
from rmqstore.cli.printing.outlook_text import outlook_words
from rmqstore.cli.printing.output import Output, Styled
from rmqstore.cli.printing.quantities import KINDS, many, time_text, wrapped
from rmqstore.cli.printing.verify_text import line_for_cron, next_commands, verdict_line
from rmqstore.cli.shared.options import WorkOptions, broker_option, command
from rmqstore.texts import Placed, Text, joined

if TYPE_CHECKING:
    from rmqstore.backup.manifest import Manifest
    from rmqstore.files.broker_config import BrokerConfig
    from rmqstore.views.doctor import Diagnosis

_LABEL = 16
_MOST = 3
_WAITING = {
    "delayed": Text("{messages} delayed"),
    "timed": Text("{messages} timed"),
    "half": Text("{messages} half"),
    "pop": Text("{messages} in flight"),
    "retry": Text("{messages} in retry topics"),
}


@command(
    "doctor",
    report=True,
    work=True,
    examples=(
        "rmqstore doctor /data/rocketmq/store -c /etc/rocketmq/broker.conf",
        "rmqstore doctor /data/rocketmq/store --repo /backup/rocketmq::broker-a",
        "rmqstore doctor /data/rocketmq/store --json",
    ),
)
@click.option(
    "--repo", metavar="REPO[::NAME]", help="Repository of its backups, to say when the last was made: a store does not."
)
@broker_option
def doctor(out: Output, store: Path, config: BrokerConfig, work: WorkOptions, repo: str | None) -> int:
    """Show the state of a store on one page, with the commands to run next.

    What it is, whether it is sound, what the next broker start does, what is lost, waits and is not read, how long the
    disk has room, when it was last repaired and backed up, and at most three commands, the most important first. Reads
    the log once. -q prints one line if something is wrong, and nothing otherwise. Exit code 0: no problems; 1:
    problems; 4: not everything was checked.
    """
    from rmqstore.cli.shared.reading import note_live, open_named, refuse_part
    from rmqstore.files.sources import FOR_VERIFY
    from rmqstore.views.doctor import diagnose

    opened = open_named(store, config, FOR_VERIFY)
    refuse_part(opened, Text("name the whole store; `rmqstore verify` checks a part"))
    newest = None if repo is None else _newest(repo)
    note_live(out, opened, Text("the numbers are changing"))
    with out.progress("doctor", opened.log_bytes) as progress:
        found = diagnose(opened, work.verifying(progress.add, ranges=True))
    if out.as_json:
        out.report(_document(found, newest))
    elif out.quiet and out.path is None:
        out.lines(_for_cron(found))
    else:
        out.lines(_text(found, newest, repo, out.width))
    return found.exit_code


def _for_cron(found: Diagnosis) -> Iterator[str]:
    """Yield the line of `verify -q`, and one for what only this command could not read."""
    yield from line_for_cron(found.report)
    if found.unread:
        yield Text("{store}: not checked: {unread}", store=found.report.store, unread=joined(found.unread, "; "))


def _newest(repo: str) -> Manifest | None:
    """Return the newest snapshot of the store in a repository; None without any. Errors: as `folder_of`, `manifest`."""
    from rmqstore.backup.repository import Address, folder_of

    folder = folder_of(Address.parse(repo))
    names = folder.snapshots()
    return folder.manifest(names[-1]) if names else None


def _document(found: Diagnosis, newest: Manifest | None) -> dict[str, Any]:
    from rmqstore.views.disk_usage import outlook_json

    report = found.report
    return {
        "schema": "rmqstore.doctor/1",
        "store": report.store,
        "kind": report.kind,
        "live": report.live,
        "clean": report.clean,
        "verdict": verdict_line(report),
        "starts": None if report.broker is None else bool(report.broker.get("starts")),
        "problems": dict(sorted(problem_counts(report).items())),
        "account": None if report.account is None else report.account.to_json(),
        "waiting": {
            row.kind.value: {"messages": row.messages, "oldest": row.oldest, "next_due": row.next_due}
            for row in found.pending.totals()
        },
        "disk": None if found.disk is None else outlook_json(found.disk),
        "repaired": None
        if not found.repairs
        else {"journal": str(found.repairs[-1].path), "made": found.repaired_at, "repairs": len(found.repairs)},
        "backup": None if newest is None else {"snapshot": newest.snapshot, "time": newest.time},
        "unchecked": [*report.unchecked, *found.unread],
        "next": _next(found, newest)[:_MOST],
    }


def _next(found: Diagnosis, newest: Manifest | None) -> list[str]:
    """Return the commands to run next, the most important first."""
    report, account, where = found.report, found.report.account, store_words(found.report.store, found.report.config)
    out = next_commands(report)
    if account is not None and (account.lost_already or account.lost_at_next_start):
        out.append(f"rmqstore lost {where}")
    if found.disk is not None and not found.disk.rate.is_guess and not found.disk.filling.enough:
        out.append(f"rmqstore du {where} --growth")
    if report.has_problems and not out:
        out.append(f"rmqstore verify {where}")
    if any(row.messages for row in found.pending.totals()):
        out.append(f"rmqstore pending {where}")
    if newest is None and not report.is_snapshot:
        out.append(f"rmqstore backup {where} REPO")
    return list(dict.fromkeys(out))


def _text(found: Diagnosis, newest: Manifest | None, repo: str | None, width: int) -> Iterator[Styled]:
    report, account = found.report, found.report.account
    live = Text(", a broker is running on it") if report.live else ""
    yield Styled(Placed("{store}: {kinds}{live}", store=report.store, kinds=KINDS[report.kind], live=live))
    yield Styled()
    yield from _row(Text("State"), verdict_line(report), width)
    if counts := problem_counts(report):
        codes = (Placed("{code} ×{count:,}", code=AsIs(code), count=count) for code, count in sorted(counts.items()))
        yield from _row(Text("Problems"), joined(codes), width)
    if account is not None:
        yield from _row(Text("Lost"), _lost(found), width)
    yield from _row(Text("Waiting"), _waiting(found), width)
    if unread := next(row.messages for row in found.pending.totals() if row.kind.value == "unread"):
        yield from _row(Text("Not read"), Text("{messages}, of all groups", messages=many(unread, "message")), width)
    else:
        yield from _row(Text("Not read"), _none(found), width)
    if not report.is_snapshot:
        yield from _row(Text("Disk"), _disk(found), width)
        yield from _row(Text("Repaired"), _repaired(found), width)
        yield from _row(Text("Backed up"), _backed_up(newest, repo), width)
    for line in (*report.unchecked, *found.pending.unread):
        yield from _row(Text("Not checked"), line, width)
    yield Styled()
    commands = _next(found, newest)[:_MOST]
    stop_first = report.live and bool(next_commands(report))
    if stop_first:
        yield from map(Styled, wrapped(Text("Next: stop the broker and keep its service stopped. Then:"), width))
    for number, line in enumerate(commands):
        label = Text("Next: ") if not number and not stop_first else "      "
        yield Styled(label, style="bold").append(line)
    if not commands:
        yield Styled(Text("Next: nothing to do."), style="green")


def _row(label: str, text: str, width: int) -> Iterator[Styled]:
    for number, line in enumerate(wrapped(text, max(20, width - _LABEL)) or [""]):
        yield Styled(Placed(f"{{label:<{_LABEL}}}", label="" if number else label), style="dim").append(line)


def _lost(found: Diagnosis) -> str:
    account = found.report.account
    assert account is not None
    words = []
    if account.lost_already:
        least = Text("at least {messages} already") if account.at_least else Text("{messages} already")
        words.append(least.format(messages=many(account.lost_already, "message")))
    if account.lost_at_next_start:
        lost = many(account.lost_at_next_start, "message")
        words.append(Text("{messages} at the next start", messages=lost))
    if account.undelivered:
        words.append(Text("{messages} that no consumer gets", messages=many(account.undelivered, "message")))
    if not words and account.at_least:
        return Text("nothing that is listed, but there may be more")
    return joined(words) or Text("nothing")


def _waiting(found: Diagnosis) -> str:
    rows = [row for row in found.pending.totals() if row.messages and row.kind.value in _WAITING]
    words = joined(_WAITING[row.kind.value].format(messages=many(row.messages, "message")) for row in rows)
    due = min((row.next_due for row in rows if row.next_due is not None), default=None)
    if words and due is not None:
        return Text("{words}; the first is due {time}", words=words, time=time_text(due))
    return words or _none(found)


def _none(found: Diagnosis) -> Text:
    """Return that nothing waits, as far as that is known."""
    return Text("nothing that could be read") if found.pending.unread else Text("nothing")


def _disk(found: Diagnosis) -> str:
    if found.disk_unknown:
        return Text("not known: {why}", why=found.disk_unknown)
    if found.disk is None:
        return Text("The log has no messages of two different times: its growth is unknown.")
    return outlook_words(found.disk)


def _repaired(found: Diagnosis) -> str:
    if found.repaired_at is None:
        return Text("never, or its journal is gone")
    return Placed("{time} ({journal})", time=time_text(found.repaired_at), journal=found.repairs[-1].path)


def _backed_up(newest: Manifest | None, repo: str | None) -> str:
    if newest is not None:
        return Placed("{time} ({repo}@{name})", time=time_text(newest.time), repo=repo, name=newest.snapshot)
    return Text("not known: name the repository with --repo") if repo is None else Text("never, into {repo}", repo=repo)
