"""What the next start of a broker would do to a store: the verdict that most people come for."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from rmqstore.brokers.rules.forecast import StartOptions
from rmqstore.brokers.simulate import in_dledger_mode, simulate_start
from rmqstore.checks.beside.permissions import rights_words
from rmqstore.checks.log import delay_levels as delays
from rmqstore.checks.problems import codes as problem_codes
from rmqstore.checks.problems.damage_words import damage_words
from rmqstore.checks.problems.report import Fact, Finding, Report
from rmqstore.checks.problems.table import PROBLEMS
from rmqstore.checks.queues.undelivered import NothingOwed, left_unreadable, never_dispatched, nothing_owed
from rmqstore.files.store import Store, StoreKind

if TYPE_CHECKING:
    from rmqstore.brokers.rules.forecast import StartForecast
    from rmqstore.checks.verified import Verified, VerifyOptions
    from rmqstore.scan.units import KnownUnits

THOROUGH_BELOW = 256 << 20  # bytes of log up to which the forecast parses every record itself


def add_verdict(store: Store, verified: Verified, options: VerifyOptions) -> None:
    """Complete the report of a whole store with the forecast; `store` has its files as they are on the disk now."""
    report, misplaced = verified.report, verified.misplaced
    result = verified.dledger or verified.legacy
    tiling = result.tiling if result is not None else None
    units = _known_units(store, verified)
    if misplaced is not None and misplaced.store.is_rearranged:
        tiling = units = None  # a broker that starts now finds the files as they are now
    start = partial(
        simulate_start,
        store,
        tiling,
        version=options.broker or None,
        settings=dict(options.settings),
        unreadable_rows=verified.unreadable_rows,
    )
    size = sum(r.bytes for r in verified.logs.results)
    forecast = start(options=StartOptions(thorough=size <= THOROUGH_BELOW), units=units)
    if forecast.messages_lost and size > THOROUGH_BELOW:  # now the topics matter more than the time
        forecast = start()
    report.broker = dict(forecast.to_json())
    but = ""
    if forecast.starts:
        but = (misplaced.verdict if misplaced is not None else "") + _not_here(report) + rights_words(report.findings)
    left = left_unreadable(forecast, verified.logs.queues, report.queues, verified.logs.misfiled.offsets)
    if forecast.starts and forecast.not_dispatched is not None and store.commitlog is not None:
        gone = never_dispatched(store.commitlog, forecast.not_dispatched, verified.logs.queues)
        left = replace(left, gone=gone)
    damage = damage_words(report.findings)
    if not forecast.consume_queues_simulated and problem_codes.CQ_MISSING_UNIT in report.findings.counts:
        damage = damage or "Consumers do not get all messages"  # of these rows the forecast knows nothing
    sentence = left.sentence(forecast, damage) + but
    report.verdict = (_without_messages(report, forecast) or sentence) + _assumed_size(store)
    if left.gone.messages and problem_codes.CQ_BEHIND in report.findings.counts and not report.live:
        facts: dict[str, Fact] = {"messages": left.gone.messages, "queues": left.gone.queues}
        facts["broker"] = forecast.version
        report.findings.add(Finding(problem_codes.CQ_LEFT_BEHIND, "consumequeue", "", 0, 0, facts))
    # of a deleted topic messages stay in the log, too; but not those that a broker without DLedger does not read
    taken = forecast.messages_taken or (left.gone.messages if _leaves_dledger(store, options) else 0)
    if forecast.starts and taken and report.clean and not report.live:
        facts = {"messages": taken, "broker": forecast.version}
        report.findings.add(Finding(problem_codes.BR_START_LOSES, "store", "", 0, 0, facts))
    report.notes.extend([words] if (words := delays.note(store)) else [])
    if report.live:
        report.notes.append("a broker is running on this store: the forecast is not final")


def _leaves_dledger(store: Store, options: VerifyOptions) -> bool:
    """Whether the store has DLedger entries that the broker, as it is configured, does not read."""
    config = store.config.changed(dict(options.settings))
    return store.dledger is not None and bool(store.dledger.data.files) and not in_dledger_mode(store, config)


def _assumed_size(store: Store) -> str:
    """What the forecast depends on where neither broker.conf nor the files say how long the log's files are."""
    for log in (store.commitlog, store.dledger.data if store.dledger is not None else None):
        if log is not None and log.size_from == "default" and (log.files or log.odd):
            return (
                f" (if mappedFileSizeCommitLog is {log.file_size:,}, which the files do not tell: give -c broker.conf)"
            )
    return ""


def _without_messages(report: Report, forecast: StartForecast) -> str:
    """The verdict where consume queues have units and the log has no message: a start loses nothing more, yet all."""
    units = sum(int(f.facts["units"] or 0) for f in report.findings.listed if f.code == problem_codes.CL_NO_MESSAGES)
    if not units or not forecast.starts:
        return ""
    who = f"RocketMQ {forecast.version}"
    gone = "the message that a consume queue names is" if units == 1 else f"the {units:,} that consume queues name are"
    return f"{who} would start without any message: {gone} not in the log"


def _not_here(report: Report) -> str:
    """What a start neither loses nor brings back: goes behind the sentence of the forecast."""
    listed = report.findings.listed
    foreign = report.findings.counts[problem_codes.CL_FOREIGN_FILE]
    words = f", but {foreign:,} file{' belongs' if foreign == 1 else 's belong'} to another log" if foreign else ""
    for where in dict.fromkeys(row.not_here for row in PROBLEMS.values() if row.not_here):
        found = [f for f in listed if f.problem.not_here == where]
        if any(f.problem.of_queues for f in found):
            count = sum(int(f.facts.get("units") or 1) for f in found)
            words += f", but {count:,} consume queue unit{' leads' if count == 1 else 's lead'} {where}"
        elif count := sum(int(f.facts.get("messages") or 0) for f in found):
            words += f", but {count:,} message{' is' if count == 1 else 's are'} {where}"
    return words


def _known_units(store: Store, verified: Verified) -> KnownUnits | None:
    """Units that spare the forecast a second look at the log.

    In DLedger mode an abnormal start of 5.2 and newer cuts units that have their message, and may dispatch it again:
    there it is not enough that all messages have theirs.
    """
    logs, report = verified.logs, verified.report
    whole = store.kind is StoreKind.PLAIN and not any(r.batches for r in logs.results)
    if whole and nothing_owed(logs.queues, report.queues, report.findings.counts):
        return NothingOwed()
    return verified.units
