"""`rmqstore verify`.

`rmqstore verify STORE STORE…`: one line for each store, worst first.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqstore.cli.printing.json_text import quote_wide
from rmqstore.cli.printing.output import Output, Styled, json_bytes, refuse_inside
from rmqstore.cli.printing.quantities import DURATION, PAGE_MODE
from rmqstore.cli.shared.codes import refuse_unknown_codes
from rmqstore.cli.shared.filters import FilterOptions
from rmqstore.cli.shared.metrics import Metrics, Sample, metrics_option, of_report
from rmqstore.cli.shared.options import FILE, SOURCE, WorkOptions, broker_option, command, gathered
from rmqstore.cli.shared.reading import note_live, open_named
from rmqstore.cli.shared.settings import cache_folder, config_of
from rmqstore.cli.shared.topics import note_unknown_topics, parse_queues
from rmqstore.errors import WORST_LAST, RmqStoreError, UsageError
from rmqstore.files.disk import real_path
from rmqstore.files.private import FILE_MODE
from rmqstore.texts import Text

if TYPE_CHECKING:
    from rmqstore.checks.options import VerifyOptions
    from rmqstore.checks.problems.report import Finding, Report
    from rmqstore.checks.since_last import LastRun
    from rmqstore.files.broker_config import BrokerConfig
    from rmqstore.files.store import Store


SHOWN_BY = {"html": "rmqstore.cli.report"}
"""What shows the result in another way; nothing else in `verify` needs this module."""
_LIVE = Text("records that it is writing now are not reported as damage")


@dataclass(frozen=True, slots=True)
class Checks:
    """What to check; `others`: further stores."""

    only: tuple[str, ...]
    quick: bool
    max_duration: float | None
    resume: bool
    since_last: Path | None
    others: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class OutputFiles:
    """Files to write beside the report."""

    findings_out: Path | None
    html: Path | None
    mode: int | None
    metrics: Path | None


@command(
    "verify",
    report=True,
    filters=True,
    work=True,
    examples=(
        "rmqstore verify /data/rocketmq/store -c /etc/rocketmq/broker.conf",
        "rmqstore verify /data/broker-a/store /data/broker-b/store",
        "rmqstore verify /data/rocketmq/store -q --since-last /var/lib/rmqstore/last-run",
    ),
)
@click.option(
    "--only",
    metavar="CODE",
    multiple=True,
    help="Report only this problem code; `man rmqstore-problems` lists all (may be repeated).",
)
@click.option("--quick", is_flag=True, help="Do not check body CRCs.")
@click.option(
    "--max-duration",
    type=DURATION,
    metavar="TIME",
    help="After this time, such as 10m or 2h, stop at the end of a log file. A later --resume continues.",
)
@click.option("--resume", is_flag=True, help="Continue where --max-duration stopped.")
@click.option(
    "--since-last",
    type=FILE,
    metavar="FILE",
    help="Skip log files that have not changed since the last run, and reuse its result for them. The report says so."
    " FILE stores the results.",
)
@click.option("--findings-out", type=FILE, metavar="FILE", help="Write all findings to FILE as NDJSON.")
@click.option("--html", type=FILE, metavar="FILE", help="Also write the HTML page of `rmqstore report`.")
@click.option("--mode", type=PAGE_MODE, help="Octal mode of the page of --html, such as 644 (default: 600).")
@metrics_option
@broker_option
@click.argument("others", nargs=-1, type=SOURCE, metavar="[STORE]...")
@gathered("checks", Checks)
@gathered("files", OutputFiles)
def verify(
    out: Output,
    store: Path,
    config: BrokerConfig,
    checks: Checks,
    files: OutputFiles,
    filters: FilterOptions,
    work: WorkOptions,
) -> int:
    """Find everything that is wrong with a store, and forecast what the next broker start would do to it.

    Checks every byte of the log, compares it with the consume queues, index, checkpoint and configuration, and
    simulates the recovery of the --broker version. Without -c, a note names the settings that it assumes, if the start
    would end otherwise with another value. For cron, -q prints one line if something is wrong, and nothing
    otherwise. Several stores: one line each, worst first, and the exit code of the worst; with --json one object per
    line. Exit code 0: no problems; 1: problems; 4: not everything was checked.
    """
    if files.mode is not None and files.html is None:
        raise UsageError(Text("--mode needs --html"), Text("other outputs are private"))
    if checks.others:
        stores = [(store, config), *((path, _config_of(out, path, config)) for path in checks.others)]
        return _several(out, stores, checks, files, filters, work)
    from rmqstore.checks.examine import examine_named
    from rmqstore.files.sources import FOR_VERIFY

    refuse_unknown_codes(checks.only)
    if checks.since_last is not None:
        _refuse_with_since_last(checks, files.html, filters)
    opened = open_named(store, config, FOR_VERIFY)
    measured = Metrics(out, files.metrics, "verify", store)
    if files.html is not None:
        refuse_inside(files.html, store)
        importlib.import_module(SHOWN_BY["html"]).refuse_existing(files.html)
    note_live(out, opened, _LIVE)
    note_unknown_topics(out, opened, filters.topics, parse_queues(filters.queues)[1])
    with (
        out.progress("verify", opened.log_bytes) as progress,
        _sink(out, opened, files.findings_out) as sink,
        _last_run(out, opened, checks.since_last) as last_run,
    ):
        start_at = _resume_point(opened) if checks.resume else None
        more = {"max_duration": checks.max_duration, "start_at": start_at, "sink": sink, "last_run": last_run}
        options = _options(checks, filters, work, progress=progress.add, **more)
        look, verified = examine_named(opened, options)
        report = verified.report
        if files.html is not None:
            page = Output(path=files.html, quiet=out.quiet, mode=files.mode)
            importlib.import_module(SHOWN_BY["html"]).write_verified(page, look, verified, options)
    if report.newer_dledger and files.findings_out is not None:
        _take_back_repairs(files.findings_out)
    _remember(opened, report)
    measured.write(of_report(report), report.exit_code)
    if out.as_json:
        out.report(report.to_json())
    elif out.quiet and out.path is None:
        from rmqstore.cli.printing.verify_text import line_for_cron

        out.lines(line_for_cron(report))
    else:
        from rmqstore.cli.printing.verify_text import verify_text

        out.lines(verify_text(report, out.verbose, out.width))
    return report.exit_code


def _config_of(out: Output, path: Path, given: BrokerConfig) -> BrokerConfig:
    """Return the broker.conf of one of several stores: that of the settings file, or else the one given with -c."""
    from rmqstore.cli.shared.options import read_config

    out.keep_out_of(path)
    own = config_of(path)
    return given if own is None else read_config(out, own, tells=False)


def _several(
    out: Output,
    stores: list[tuple[Path, BrokerConfig]],
    checks: Checks,
    files: OutputFiles,
    filters: FilterOptions,
    work: WorkOptions,
) -> int:
    """Verify stores one after the other; return the exit code of the worst. With -q, sound ones are not printed.

    Errors: UsageError for options that are about one store.
    """
    from rmqstore.checks.examine import examine_named
    from rmqstore.files.sources import FOR_VERIFY

    given = {
        "--resume": checks.resume,
        "--max-duration": checks.max_duration is not None,
        "--since-last": checks.since_last is not None,
        "--findings-out": files.findings_out is not None,
        "--html": files.html is not None,
    }
    for name in (name for name, here in given.items() if here):
        raise UsageError(Text("{name} is for a single store", name=name), Text("verify the stores one by one"))
    refuse_unknown_codes(checks.only)
    measured = Metrics(out, files.metrics, "verify", *(path for path, _ in stores))
    results: list[_Result] = []
    for path, config in stores:
        measured.begin()
        try:
            opened = open_named(path, config, FOR_VERIFY)
            note_live(out, opened, _LIVE)
            with out.progress("verify", opened.log_bytes) as progress:
                _, verified = examine_named(opened, _options(checks, filters, work, progress=progress.add))
            results.append(_Result(path, verified.report))
        except RmqStoreError as error:
            results.append(_Result(path, error))
        measured.add(results[-1].samples(), results[-1].found.exit_code, path)
    measured.end()
    results.sort(key=lambda result: result.badness, reverse=True)
    if out.as_json:
        with out.stream() as file:
            for result in results:
                value = result.to_json()
                file.write(json_bytes(quote_wide(value) if out.string_ints else value) + b"\n")
    else:
        mailed = out.quiet and out.path is None
        shown = (result for result in results if result.found.exit_code or not mailed)
        out.lines(Styled(result.line(), style="red" if result.found.exit_code else "green") for result in shown)
    return results[0].found.exit_code


def _options(checks: Checks, filters: FilterOptions, work: WorkOptions, **more: Any) -> VerifyOptions:
    ids, pairs = parse_queues(filters.queues)
    queues = (*sorted(map(str, ids)), *sorted(f"{topic}/{number}" for topic, number in pairs))
    limits: dict[str, Any] = {
        "topics": filters.topics,
        "queues": queues,
        "since": filters.since,
        "until": filters.until,
    }
    return work.verifying(quick=checks.quick, only=checks.only, ranges=True, **limits, **more)


def _refuse_with_since_last(checks: Checks, html: Path | None, filters: FilterOptions) -> None:
    """Errors: UsageError for options that leave parts of the log out, and for --html, which maps every byte."""
    others = {
        "--resume": checks.resume,
        "--max-duration": checks.max_duration is not None,
        "--html": html is not None,
        "--since": filters.since is not None,
        "--until": filters.until is not None,
    }
    for name in (name for name, given in others.items() if given):
        raise UsageError(Text("--since-last and {name} exclude each other", name=name), Text("leave one of them out"))


@contextlib.contextmanager
def _last_run(out: Output, store: Store, path: Path | None) -> Iterator[LastRun | None]:
    """Yield the results of the last run; at the end the new ones replace them in the file."""
    if path is None:
        yield None
        return
    from rmqstore import __version__
    from rmqstore.checks.since_last import LastRun, OldState

    target = Output(path=path, mode=FILE_MODE)
    if target.path is None:
        raise UsageError(Text("--since-last needs a file"), Text("name one outside the store"))
    target.keep_out_of(store.path)
    old = OldState(path, store.path, __version__)
    if old.why_not:
        out.note(Text("note: {why_not}: every file is read", why_not=old.why_not))
    with target.stream() as file:
        last_run = LastRun(store.path, old, file.write)
        yield last_run
        last_run.end()


def _state_file(store: Store) -> Path:
    import hashlib
    import os

    name = hashlib.sha256(os.fsencode(real_path(store.path))).hexdigest()[:32]
    return cache_folder("verify") / f"{name}.json"


def _resume_point(store: Store) -> dict[str, int]:
    """Offsets to continue from, by log. Errors: UsageError if there is nothing to continue."""
    import orjson

    try:
        state = orjson.loads(_state_file(store).read_bytes())
        return {str(name): int(at) for name, at in state["resume_at"].items()}
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        raise UsageError(
            Text("--resume: no unfinished verify of this store"),
            Text("use --max-duration first, or leave --resume out"),
        ) from None


def _remember(store: Store, report: Report) -> None:
    """Save the position where the next --resume continues, or remove it after a complete check."""
    from rmqstore.cli.printing.output import remove_file, write_file

    if report.resume_at is None and not cache_folder("verify").is_dir():
        return  # nothing to remove: no check was ever cut short
    path = _state_file(store)
    if report.resume_at is not None:
        write_file(path, json_bytes({"store": str(store.path), "resume_at": report.resume_at}))
    else:
        remove_file(path)


@contextlib.contextmanager
def _sink(out: Output, store: Store, path: Path | None) -> Iterator[Callable[[Finding], None] | None]:
    """Yield a function that writes a finding to --findings-out; the file appears when all are written."""
    from rmqstore.checks.problems.report import WHOLE_STORE
    from rmqstore.files.recognise import store_above

    if path is None:
        yield None
        return
    target = Output(path=path).keep_out_of(store.path)
    home = (store_above(store.files, store.path, store.config) or WHOLE_STORE) if store.part is not None else store.path
    with target.stream() as file:

        def write(finding: Finding) -> None:
            line = finding.to_json(str(home), store.config.source)
            file.write(json_bytes(quote_wide(line) if out.string_ints else line) + b"\n")

        yield write


def _take_back_repairs(path: Path) -> None:
    """Name no repair in a list of findings: that the store is not repaired was known when all of them were written."""
    import orjson

    if not path.is_file():
        return
    with path.open("rb") as listed, Output(path=path).stream() as file:
        for line in listed:
            row = orjson.loads(line)
            file.write(json_bytes(row | {"next": None} if row["remedy"] == "recover" else row) + b"\n")


@dataclass(frozen=True, slots=True)
class _Result:
    """The report of a store, or why there is none."""

    store: Path
    found: Report | RmqStoreError

    @property
    def badness(self) -> tuple[int, bool, int, int]:
        """Greatest for the worst store."""
        code = self.found.exit_code
        rank = WORST_LAST.index(code if code in WORST_LAST else 1)
        if isinstance(self.found, RmqStoreError):
            return rank, False, 0, 0
        broker = self.found.broker or {"starts": True}
        return rank, not broker["starts"], int(broker.get("messages_lost") or 0), self.found.findings.worst or 0

    def line(self) -> str:
        """Return the answer in one line."""
        from rmqstore.cli.printing.verify_text import verdict_sentence

        if not isinstance(self.found, RmqStoreError):
            return f"{self.store}: {verdict_sentence(self.found)}"
        if self.found.message.startswith(f"{self.store}"):
            return Text("{message} (not checked)", message=self.found.message)
        return Text("{store}: not checked: {message}", store=self.store, message=self.found.message)

    def samples(self) -> Iterable[Sample]:
        """Return the metrics of this store; those that all commands have are all of a store that cannot be opened."""
        return () if isinstance(self.found, RmqStoreError) else of_report(self.found)

    def to_json(self) -> dict[str, object]:
        """Return the object of this store."""
        if not isinstance(self.found, RmqStoreError):
            return self.found.to_json()
        error = {"code": self.found.code, "message": self.found.message, "advice": self.found.advice}
        return {"store": str(self.store), "error": error}
