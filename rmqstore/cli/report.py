"""`rmqstore report`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqstore.cli.printing.output import Output
from rmqstore.cli.shared.options import FILE, WorkOptions, broker_option, command
from rmqstore.errors import OutputExists

if TYPE_CHECKING:
    from rmqstore.files.broker_config import BrokerConfig
    from rmqstore.views.report import StoreReport


@command(
    "report",
    work=True,
    examples=(
        "rmqstore report /data/rocketmq/store -o report.html",
        "rmqstore report /data/rocketmq/store -c /etc/rocketmq/broker.conf -o report.html --jobs 4",
        "rmqstore verify /data/rocketmq/store --html report.html",
    ),
)
@click.option(
    "-o",
    "--output",
    required=True,
    type=FILE,
    metavar="FILE",
    help="Write the page to FILE, which must not exist.",
)
@broker_option
def report(out: Output, store: Path, config: BrokerConfig, work: WorkOptions) -> int:
    """Verify a store and write the result as one HTML page.

    Contents: the verdict, what the next start of each tested broker version would do, the problems with the commands
    that repair them, a map of the log, messages over time and by topic, the lag of consumer groups, and what was not
    checked. The page needs no network and no JavaScript, and contains no bodies. Exit code: that of verify.
    """
    from rmqstore.files.store import open_store
    from rmqstore.views.report import store_report

    assert out.path is not None
    refuse_existing(out.path)
    opened = open_store(store, config)
    with out.progress("report", None) as progress:
        found = store_report(opened, work.verifying(progress.add, ranges=True), progress=progress.add)
    write_page(out, found)
    return found.report.exit_code


def refuse_existing(path: Path) -> None:
    """Errors: OutputExists for a page that exists: it may be an older report that is still needed."""
    if Output(path=path).is_file:
        raise OutputExists(f"{path} already exists")


def write_page(out: Output, found: StoreReport) -> None:
    """Write the page to the output atomically."""
    from rmqstore.cli.html_page import page

    with out.stream() as file:
        for piece in page(found):
            file.write(piece.encode("utf-8", "replace"))
    out.note(f"report saved to {out.path}")
