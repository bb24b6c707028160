"""`rmqstore report`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqstore.cli.printing.output import Output
from rmqstore.cli.printing.quantities import PAGE_MODE, many
from rmqstore.cli.shared.options import FILE, FOLDER, WorkOptions, broker_option, command, gathered
from rmqstore.errors import CouldNotCheck, OutputExists, UsageError
from rmqstore.texts import Text

if TYPE_CHECKING:
    from rmqstore.checks.options import VerifyOptions
    from rmqstore.checks.verified import Verified
    from rmqstore.files.broker_config import BrokerConfig
    from rmqstore.files.store import Store
    from rmqstore.views.reports import StoreReport


@dataclass(frozen=True, slots=True)
class PageFiles:
    """What is written beside the page of the store, and who may read the page."""

    incident: Path | None
    list_path: Path | None
    mode: int | None


@command(
    "report",
    work=True,
    examples=(
        "rmqstore report /data/rocketmq/store -o report.html",
        "rmqstore report /data/rocketmq/store -c /etc/rocketmq/broker.conf -o report.html --jobs 4",
        "rmqstore report /data/rocketmq/store --incident /data/rocketmq/store/.rmqstore/20261123T021500.000000Z "
        "-o incident.html --csv lost.csv",
    ),
)
@click.option(
    "-o", "--output", required=True, type=FILE, metavar="FILE", help="Write the page to FILE, which must not exist."
)
@click.option(
    "--incident",
    type=FOLDER,
    metavar="JOURNAL",
    help="Report on one repair, by its journal, for those who must account for it.",
)
@click.option(
    "--csv",
    "list_path",
    type=FILE,
    metavar="FILE",
    help="With --incident: write the messages as CSV, too; a ' is before texts that a spreadsheet would run.",
)
@click.option(
    "--mode", type=PAGE_MODE, help="Octal mode of the page, such as 644 (default: 600, only you can read it)."
)
@broker_option
@gathered("files", PageFiles)
def report(out: Output, store: Path, config: BrokerConfig, work: WorkOptions, files: PageFiles) -> int:
    """Verify a store and write the result as one HTML page.

    Contents: the verdict, what the next start of each range of broker versions would do, the problems with the commands
    that repair them, repairs and fillers, a map of the log, messages over time and by topic, the progress of consumer
    groups, and what was not checked. The page needs no network and no JavaScript, and contains no bodies. Exit code:
    that of verify.

    With --incident: what was damaged, what each broker version would have done, what was done and when, every lost
    message, what was given back, and what to do now. `rmqstore journals STORE` lists the journals.
    """
    from rmqstore.cli.shared.reading import open_named
    from rmqstore.files.sources import FOR_VERIFY
    from rmqstore.views.reports import store_report

    assert out.path is not None
    out.mode = files.mode
    incident, list_path = files.incident, files.list_path
    if list_path is not None and incident is None:
        raise UsageError(
            Text("--csv needs --incident"), Text("`rmqstore lost STORE --format csv` lists what is lost today")
        )
    refuse_existing(out.path)
    opened = open_named(store, config, FOR_VERIFY)
    if incident is not None:
        return _incident(out, opened, work, incident, list_path)
    with out.progress("report", None) as progress:
        found = store_report(opened, work.verifying(progress.add, ranges=True), progress=progress.add)
    write_page(out, found)
    return found.report.exit_code


def _incident(out: Output, opened: Store, work: WorkOptions, journal: Path, list_path: Path | None) -> int:
    """Write the page of one repair, and its list of messages."""
    from rmqstore.checks.examine import examine_named
    from rmqstore.cli.html.incident_page import page
    from rmqstore.cli.printing.table_output import write_rows
    from rmqstore.cli.shared.reading import refuse_part
    from rmqstore.documents.journal import State, open_journal
    from rmqstore.files.disk import real_path
    from rmqstore.views.reports import incident, rows

    refuse_part(opened, Text("name the whole store, which has the journals"))
    folder = open_journal(journal, named=opened.config.directories)
    if real_path(folder.store) != real_path(opened.root):
        raise UsageError(
            Text("{journal} is the journal of another store: {store}", journal=journal, store=folder.store),
            Text("name that store"),
        )
    if folder.state in (State.PRUNING, State.MISSING):
        raise CouldNotCheck(
            Text("{path} is {state}: what it did is not known", path=folder.path, state=folder.state.value)
        )
    listed = None if list_path is None else Output(path=list_path, format="csv", quiet=out.quiet)
    if listed is not None:
        listed.keep_out_of(opened.path)
        refuse_existing(list_path or Path())
    with out.progress("report", opened.log_bytes) as progress:
        look, verified = examine_named(opened, work.verifying(progress.add, ranges=True))
        found = incident(look, folder, verified.report)
    _write(out, page(found))
    if listed is not None:
        count = write_rows(listed, rows(found))
        out.note(Text("{messages} listed in {list_path}", messages=many(count, "message"), list_path=list_path))
    return verified.report.exit_code


def refuse_existing(path: Path) -> None:
    """Errors: OutputExists for a page that exists: it may be an older report that is still needed."""
    if Output(path=path).is_file:
        raise OutputExists(Text("{path} already exists", path=path))


def write_verified(out: Output, store: Store, verified: Verified, options: VerifyOptions) -> None:
    """Write the page of a store that was verified in this way."""
    from rmqstore.views.reports import report_of

    write_page(out, report_of(store, verified, options))


def write_page(out: Output, found: StoreReport) -> None:
    """Write the page to the output atomically."""
    from rmqstore.cli.html.store_page import page

    _write(out, page(found))


def _write(out: Output, pieces: Iterable[str]) -> None:
    with out.stream() as file:
        file.writelines(piece.encode("utf-8", "replace") for piece in pieces)
    out.note(Text("report saved to {path}", path=out.path))
