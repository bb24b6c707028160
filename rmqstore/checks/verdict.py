"""The verdict: what the next start of a broker would do to a store.

There is one row for each range of versions that behave alike. It also says what an older version cannot read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from rmqstore.brokers.assumed_settings import VERSION, AssumedSetting, Basis, assumed_settings, assumed_words
from rmqstore.brokers.forecast import StartForecast, StartOptions
from rmqstore.brokers.load import has_plugin
from rmqstore.brokers.outcome import StartOutcome
from rmqstore.brokers.rules import rules_for
from rmqstore.brokers.settings_at_fault import FaultFinder, SettingAtFault, opens_beside
from rmqstore.brokers.simulate import Starts, as_configured, in_dledger_mode, reads_entries
from rmqstore.brokers.writer import writer_of
from rmqstore.checks.account import account, at_start, kept_by, of_records
from rmqstore.checks.beside.checkpoint import TIMES, read_checkpoint, stale_position
from rmqstore.checks.beside.host import host_notes
from rmqstore.checks.beside.permissions import rights_words
from rmqstore.checks.beside.settings import Misfit, misfits
from rmqstore.checks.log import delay_levels
from rmqstore.checks.problems import codes
from rmqstore.checks.problems.account import Account
from rmqstore.checks.problems.report import (
    Fact,
    Finding,
    Report,
    VersionRange,
    damage_words,
    damaged_messages,
    store_words,
)
from rmqstore.checks.problems.table import PROBLEMS
from rmqstore.checks.queues.undelivered import (
    AllDispatched,
    Left,
    Undelivered,
    all_dispatched,
    at_missing_rows,
    left_in_light_queues,
    left_unreadable,
    never_dispatched,
    withheld_words,
)
from rmqstore.checks.queues.wrong_names import WrongNames
from rmqstore.errors import UsageError
from rmqstore.files.broker_config import BrokerConfig, shown_value
from rmqstore.files.config import METADATA, OFFSETS, V2, directory_of, topics_with_attributes
from rmqstore.files.store import QueueKind, Store, StoreKind
from rmqstore.files.store_queues import DOUBLE_WRITE, SEPARATE
from rmqstore.files.versions import RUN_VERSIONS, VERSIONS, version_number
from rmqstore.formats.checkpoint import parse_checkpoint
from rmqstore.formats.consumequeue import QueueName, split_queue_label, topic_of
from rmqstore.formats.message import BORN_HOST_V6, HEAD, MAGIC_V2, STORE_HOST_V6
from rmqstore.formats.properties import is_lmq, is_system_topic
from rmqstore.formats.ranges import Ranges
from rmqstore.formats.rocksdbstore import SCAN_OFFSET, TIMER_FAMILY, TRANS_FAMILY
from rmqstore.formats.text import many
from rmqstore.formats.timer import TIMERCHECK_FILE_SIZE, parse_timercheck
from rmqstore.texts import Joined, Placed, Text, first_few, joined

if TYPE_CHECKING:
    from rmqstore.checks.log.commitlog import LogResult
    from rmqstore.checks.options import VerifyOptions
    from rmqstore.checks.rows import MessageRowFacts
    from rmqstore.checks.verified import Verified
    from rmqstore.scan.units import KnownUnits


_SUBJECT = "RocketMQ {version} "
_TOPICS = re.compile(r" of [0-9,]+ topics?\b")  # named only if every record was read
_FORGOTTEN_TOPICS = (codes.CFG_LOST_TOPICS, codes.CFG_UNSTORED_TOPICS, codes.CFG_UNKNOWN_TOPICS)
_NO_DLEDGER = Text("would not read the DLedger log: DLedger mode came with 4.5.1")


def _row(forecast: StartForecast, answer: _StartVerdict) -> VersionRange:
    """Return what one version would do, as a range of this version alone."""
    verdict = _of_start(answer.sentence)
    words = _without_subject(verdict, forecast.version)
    outcome = answer.consequence.outcome(forecast).words
    if not outcome:
        outcome = _TOPICS.sub("", words) if _TOPICS.search(words) else words
    return VersionRange(
        forecast.version,
        forecast.version,
        wrote=False,
        named=False,
        starts=forecast.starts,
        reason=forecast.reason,
        exit_code=forecast.exit_code,
        messages_lost=answer.consequence.taken,
        outcome=outcome,
        words=words,
        too_old=bool(answer.newer),
        verdict=verdict,
    )


def _behavior(row: VersionRange) -> tuple[object, ...]:
    """Return what is equal for versions that behave alike."""
    return row.starts, row.exit_code, row.messages_lost, row.too_old, _TOPICS.sub("", row.words)


def _without_subject(sentence: str, version: str) -> str:
    """Return what RocketMQ would do, as the sentence says it; `cli/lang/outside.py` lists the templates."""
    if isinstance(sentence, Joined):
        return joined((_without_subject(sentence.parts[0], version), *sentence.parts[1:]), sentence.template)
    if isinstance(sentence, Text) and sentence.template.startswith(_SUBJECT):
        return Text(sentence.template.removeprefix(_SUBJECT), **sentence.values)
    return sentence.partition(f"RocketMQ {version} ")[2] or sentence


def _of_start(sentence: str) -> str:
    """Return a verdict without its first clause, about damage in the log, which every version finds."""
    if isinstance(sentence, Joined):
        return joined(map(_of_start, sentence.parts), sentence.template, sentence.last)
    if isinstance(sentence, Placed) and "damage" in sentence.values:
        return sentence.values["sentence"]
    return sentence


def add_ranges(
    store: Store,
    report: Report,
    row_of: Callable[[str], VersionRange],
    *,
    named: str = "",
    narrow: bool = False,
) -> None:
    """Add a row for each range of versions to the report; `named`: only for this version.

    `row_of` returns the row of one version. `narrow`: simulate only the versions that were confirmed with their real
    classes, because each start is expensive.
    """
    writer = writer_of(store)
    rows: list[VersionRange] = []
    if narrow and not named:
        only = Text("only the starts of {run_versions} were simulated; --broker names others")
        report.notes.append(only.format(run_versions=joined(RUN_VERSIONS)))
    for versions in [[named]] if named else _groups(store, narrow=narrow):
        newest = versions[-1]
        try:
            row = row_of(newest)
        except UsageError:
            verdict, why = Text("RocketMQ {version} has no DLedger mode", version=newest), _NO_DLEDGER
            row = VersionRange(newest, newest, False, False, False, why, None, 0, why, why, True, verdict)
        wrote = writer.known and not row.too_old and any(writer.includes(version) for version in versions)
        if rows and _behavior(row) == _behavior(rows[-1]) and not narrow:
            wrote |= rows[-1].wrote
            rows[-1] = replace(rows[-1], newest=newest, words=row.words, verdict=row.verdict, wrote=wrote)
        else:
            rows.append(replace(row, oldest=versions[0], newest=newest, wrote=wrote, named=bool(named)))
    report.brokers = rows


def _groups(store: Store, *, narrow: bool) -> Iterator[list[str]]:
    """Yield adjacent versions with the same rules, in order."""
    if narrow:
        yield from ([version] for version in RUN_VERSIONS)
        return
    dledger = in_dledger_mode(store, store.config.filled())
    group: list[str] = []
    for version in sorted(VERSIONS, key=version_number):
        if group and _rules(version, dledger=dledger) != _rules(group[-1], dledger=dledger):
            yield group
            group = []
        group.append(version)
    yield group


def _rules(version: str, *, dledger: bool) -> object:
    """Return the rules of a version without what plays no part, so that versions can be compared."""
    rules = replace(rules_for(version), version="", evidence="")
    return rules if dledger else replace(rules, dledger=None, dledger_abnormal=False, dledger_deprecated=False)


class NewerFormat(NamedTuple):
    """A format, in words that follow "cannot read", and the first version that reads it.

    `in_rows`: it is a RocksDB of queues or of configuration, which `rebuild cq --storage files` turns into files.
    """

    words: str
    since: str
    in_rows: bool = False


_V2 = NewerFormat(Text("records of version 2 (topic names of more than 127 bytes)"), "5.1.0")
_IPV6 = NewerFormat(Text("records with IPv6 addresses"), "4.6.0")
_BATCH = NewerFormat(Text("queues of type BatchCQ"), "5.0.0")
_ROCKSDB = NewerFormat(Text("consume queues in RocksDB"), "5.2.0", True)
_SEPARATE = NewerFormat(Text("consume queues in {directory}/", directory=SEPARATE), "5.5.0", True)
_LIGHT = NewerFormat(Text("light queues (%LMQ%) that are only in RocksDB"), "5.5.0")
_CONFIG = Text("topics, groups and consumer offsets in RocksDB")
_ATTRIBUTES_SINCE = "5.0.0"
_CONFIG_SINCE = {METADATA: "5.4.0", V2: "5.3.2"}
_ROWS_SINCE = "5.4.0"


def newer_formats(store: Store, report: Report, forecast: StartForecast) -> list[NewerFormat]:
    """Return what stops the forecast's version in the log, and what of queues and configuration it does not know."""
    rules = rules_for(forecast.version)
    found: list[NewerFormat] = []
    for magic, sys_flag in _at_stop(store, forecast):
        if magic == MAGIC_V2 and not rules.v2:
            found.append(_V2)
        if sys_flag & (BORN_HOST_V6 | STORE_HOST_V6) and not rules.ipv6:
            found.append(_IPV6)
    if not rules.batch_queues and any(files.queue.files for files in store.consume_queues(QueueKind.BATCH)):
        found.append(_BATCH)
    if store.rocksdb_consume_queue and _unseen(store, forecast):
        found.append(_SEPARATE)
    elif not rules.rocksdb_queues and store.kind is StoreKind.ROCKSDB:
        found.append(_ROCKSDB)
    if store.light_in_rocksdb and not rules.light_in_rocksdb and _leaves_light_queues(report, forecast):
        found.append(_LIGHT)
    database = directory_of(store, OFFSETS)
    since = _CONFIG_SINCE.get(database, "5.2.0") if database is not None else forecast.version
    if version_number(forecast.version) < version_number(since):
        words = Text("{config} (config/{database}/)", config=_CONFIG, database=database)
        found.append(NewerFormat(words, since, store.kind is StoreKind.ROCKSDB))
    if version_number(forecast.version) < version_number(_ATTRIBUTES_SINCE):
        attributed = topics_with_attributes(store.files, store.root)
        if attributed:
            words = Text("the attributes of {topics}", topics=many(attributed, "topic"))
            found.append(NewerFormat(words, _ATTRIBUTES_SINCE))
    return list(dict.fromkeys(found))


def _leaves_light_queues(report: Report, forecast: StartForecast) -> bool:
    """Whether light queues would end earlier: this version reads them from files, and writes them with enableLmq."""
    return any(
        is_lmq(topic_of(label)) and forecast.queue_ends.get(split_queue_label(label), (0, 0))[1] < state.max
        for label, state in report.queues.items()
    )


def unserved_messages(store: Store, verified: Verified, version: str) -> list[NewerFormat]:
    """Return messages that wait for a service that `version` does not have: it never delivers them, or decides on them.

    Source: TimerMessageStore and PopReviveService (5.0.0), PopConsumerRocksdbStore (5.3.2), TimerMessageRocksDBStore
    and TransMessageRocksDBStore (5.4.0)
    """
    rows = verified.rows
    revive = verified.revive
    received, in_timer = (revive.not_acknowledged, revive.in_timer) if revive is not None else (0, 0)
    timed = max(verified.timer.waiting - in_timer, 0) if verified.timer is not None else 0
    timer_rows = rows.pending_timers if rows is not None else 0
    halves = rows.counts.get(TRANS_FAMILY, 0) if rows is not None else 0
    open_halves = many(halves, "half message in rocksdbstore/", "half messages in rocksdbstore/")
    in_rows = many(timer_rows, "timed message in rocksdbstore/", "timed messages in rocksdbstore/")
    waiting = (
        (timed, NewerFormat(many(timed, "timed message"), "5.0.0")),
        (timer_rows, NewerFormat(in_rows, _timer_since(store, rows))),
        (halves, NewerFormat(open_halves, _ROWS_SINCE)),
        (received, NewerFormat(_popped(received), "5.0.0")),
        (verified.popped, NewerFormat(_popped(verified.popped), "5.3.2")),
    )
    return [one for count, one in waiting if count and version_number(version) < version_number(one.since)]


def _popped(count: int) -> str:
    return many(
        count, "message that POP consumers did not acknowledge", "messages that POP consumers did not acknowledge"
    )


def _timer_since(store: Store, rows: MessageRowFacts | None) -> str:
    """Return the first version that delivers the timed messages that have rows in rocksdbstore/.

    From 5.0.0 on, a broker without these rows reads the timer queue from the position in timercheck on, where it finds
    them if the position is before them (TimerMessageStore#enqueue).
    """
    scanned = rows.positions.get(TIMER_FAMILY, {}).get(SCAN_OFFSET) if rows is not None else None
    raw = store.files.read_at(store.root / "config" / "timercheck", TIMERCHECK_FILE_SIZE, 0)
    return "5.0.0" if parse_timercheck(raw)["last_timer_queue_offset"] < (scanned or 0) else _ROWS_SINCE


def _at_stop(store: Store, forecast: StartForecast) -> Iterator[tuple[int, int]]:
    """Yield magic and SYSFLAG of the record at which the start stops, in each log that has one there.

    The bytes after the last record may be those of an earlier message, which has another PHYSICALOFFSET.
    """
    if forecast.commitlog_stop is None:
        return
    for log, before in store.logs:
        at = forecast.commitlog_stop + before
        raw = log.pread(HEAD.size, at) if log.find(at) is not None else b""
        if len(raw) == HEAD.size and (head := HEAD.unpack(raw))["physical_offset"] == at:
            yield head["magic"], head["sys_flag"]


def newer_finding(store: Store, newer: list[NewerFormat], forecast: StartForecast) -> Finding:
    """Return BR-TOO-OLD for a version that cannot read these formats, with the command that converts them, if any."""
    since = max((one.since for one in newer), key=version_number)
    facts: dict[str, Fact] = {"cannot_read": joined((one.words for one in newer), "; "), "readable_from": since}
    if all(one.in_rows for one in newer) and store.dledger is None:
        facts["run"] = f"rmqstore rebuild {store_words(str(store.path), store.config.source)} cq --storage files"
    return Finding(codes.BR_TOO_OLD, "store", facts=facts | {"broker": forecast.version})


_TAILS = {codes.CL_DIRTY_TAIL, codes.DL_DIRTY_TAIL}
THOROUGH_BELOW = 256 << 20  # bytes of log up to which the forecast parses every record
_PULL = 32  # messages: the default pullBatchSize of consumers
_MANY_QUEUES = 1000  # a start recovers each of them; more would not fit into the files that are remembered


def add_verdict(store: Store, verified: Verified, options: VerifyOptions) -> None:
    """Add the forecast and the verdict to the report of a whole store; `store` has the present names of all files."""
    report, misplaced = verified.report, verified.misplaced
    base = verified.account = account(misplaced.store if misplaced is not None else store, verified)
    note = delay_levels.note(store)  # of this object, whose levels are known
    many_queues = len(verified.logs.queues) > _MANY_QUEUES
    if options.ranges and not (report.live or many_queues):
        store = store.remembering()
    result = verified.dledger or verified.legacy
    tiling = result.tiling if result is not None else None
    units, names = _known_units(store, verified), None
    if misplaced is not None and misplaced.store.is_rearranged:
        tiling = units = None  # they belong to the renamed files, but a broker that starts now reads the present ones
        verified.wrong_names = names = WrongNames(misplaced, verified.logs.witnesses)
    config = store.config.changed(dict(options.settings))
    starts = partial(
        Starts,
        store,
        tiling,
        settings=dict(options.settings),
        unreadable_rows=verified.unreadable_rows,
        adjust=None if names is None else names.adjust,
    )

    def outcome_of(config: BrokerConfig, forecast: StartForecast) -> StartOutcome:
        return _consequence(store, verified, config, forecast, base).outcome(forecast)

    size = sum(r.bytes for r in verified.logs.results)
    how = _start_options(size, None if tiling is None else result)
    start = starts(options=how, units=units)
    faults = FaultFinder(store, config, start.of_broker, outcome_of)
    forecast = start.of(options.broker or None)
    if forecast.messages_lost and size > THOROUGH_BELOW:  # find out their topics, although it takes longer
        forecast = starts(options=replace(how, thorough=True)).of(options.broker or None)
    report.broker = dict(forecast.to_json())
    _tell_writer(store, report, options.broker and forecast.version)
    answer = _answer(store, verified, config, forecast, faults, base)
    left = answer.consequence.left
    report.account = at_start(base, forecast, kept_by(base, forecast, names), left)
    report.verdict = answer.sentence + _assumed_size(store) + _conditions(config.read_by(forecast.version))
    report.delivers_all = left.is_nothing(forecast) and not (answer.newer or answer.consequence.misfits)
    if options.ranges:
        rereads = units is None and size > THOROUGH_BELOW  # each start would read the end of the log again
        narrow = rereads or many_queues

        def row_of(version: str) -> VersionRange:
            if version == forecast.version:
                return _row(forecast, answer)
            other = start.of(version)
            return _row(other, _answer(store, verified, config, other, faults, base))

        add_ranges(store, report, row_of, named=options.broker and forecast.version, narrow=narrow)
        if config.file is None:
            sound = not store.abort and not report.has_problems
            only_shown = narrow or sound
            assumed = assumed_settings(store, forecast, start, outcome_of, only_shown=only_shown)
            _assume(store, report, options, assumed)
    _tell_separate_rocksdb(store, report, forecast)
    if options.broker:
        _tell_settings(store, report, forecast)
    _tell_queue_position(store, verified, options.broker, forecast)
    found = report.findings
    gone = left.gone
    _tell_faults(report, forecast, answer)
    _tell_lines(report, store.config.read_by(forecast.version))
    if gone.messages and codes.CQ_BEHIND in found.counts and not report.live:
        facts: dict[str, Fact] = {"messages": gone.messages, "queues": gone.queues}
        facts["broker"] = forecast.version
        found.add(Finding(codes.CQ_LEFT_BEHIND, "consumequeue", "", 0, 0, facts))
    _tell_start(store, report, forecast, answer)
    report.notes += _system_note(report.account) + _gone_note(base)
    if note:
        report.notes.append(note)
    report.notes.extend(host_notes(store, max((result.max_time for result in verified.logs.results), default=0)))
    if report.live:
        report.notes.append(Text("a broker is running on this store: the forecast is not final"))


def _tell_start(store: Store, report: Report, forecast: StartForecast, answer: _StartVerdict) -> None:
    """Report what the start does to a store without problems, and what its version cannot read."""
    found, taken = report.findings, answer.consequence.taken
    facts: dict[str, Fact]
    if newer := [*answer.newer, *answer.unserved]:
        found.add(newer_finding(store, newer, forecast))
    if forecast.starts and taken and report.clean and not report.live:
        facts = {"messages": taken, "broker": forecast.version}
        found.add(Finding(codes.BR_START_LOSES, "store", "", 0, 0, facts))
    if not forecast.starts and report.clean and not report.live:
        facts = {"reason": forecast.reason or "", "broker": forecast.version}
        found.add(Finding(codes.BR_NO_START, "store", "", 0, 0, facts))


def _start_options(size: int, result: LogResult | None) -> StartOptions:
    """Return how starts are simulated on a log of `size` bytes; `result`: of the log that they read, if it is known."""
    how = StartOptions(thorough=size <= THOROUGH_BELOW)
    return how if result is None or result.stale_from is None else replace(how, old_from=result.wrote)


def _assume(store: Store, report: Report, options: VerifyOptions, settings: tuple[AssumedSetting, ...]) -> None:
    """Add what the forecast assumes: settings, and the version if others would do something else."""
    if not options.broker and report.differing and report.broker:
        version, other = str(report.broker["version"]), report.differing[0]
        basis = Basis.FILES if writer_of(store).known else Basis.DEFAULT
        settings = (AssumedSetting(VERSION, version, basis, other.versions, other.outcome), *settings)
    report.assumed = settings
    if settings:
        words = Text("without -c broker.conf, the forecast assumes {settings}")
        report.notes.append(words.format(settings=assumed_words(settings)))


@dataclass(frozen=True, slots=True)
class _Consequence:
    """What a start would do to the messages. `taken`: those that it takes from consumers.

    `beside`: the setting because of which the broker opens another directory than this store.
    """

    left: Left
    taken: int
    deleted: Mapping[str, int]
    """The messages of deleted topics, by queue ("TOPIC/ID")."""
    beside: SettingAtFault | None
    misfits: tuple[Misfit, ...] = ()
    """The settings that contradict files beside the log."""

    def outcome(self, forecast: StartForecast) -> StartOutcome:
        """Return what compares this start with others."""
        if not forecast.starts:
            return StartOutcome(starts=False)
        but = self.misfits[0].words if self.misfits else ""
        undelivered = self.left.gone.messages + self.left.hidden.messages
        return StartOutcome(True, self.taken, undelivered, self.left.moved.messages, but)


def _consequence(
    store: Store, verified: Verified, config: BrokerConfig, forecast: StartForecast, base: Account
) -> _Consequence:
    """Return what the start of a broker with a configuration would do, by its forecast and what the checks found."""
    report = verified.report
    of_deleted = (f for f in report.findings.listed if f.code == codes.CQ_DELETED_TOPIC)
    deleted = {f.queue: int(f.facts["messages"] or 0) for f in of_deleted}
    rows_beside = forecast.reads_rows_beside
    kept = kept_by(base, forecast, verified.wrong_names)
    left = Left() if rows_beside else _left(store, verified, forecast, deleted, kept)
    if forecast.starts and forecast.not_dispatched is not None and store.commitlog is not None:
        parts = {name: part for name, part in verified.logs.queues.items() if f"{name[0]}/{name[1]}" not in deleted}
        no_rows = rows_beside or _unseen(store, forecast)
        gone = never_dispatched(store.commitlog, forecast.not_dispatched, None if no_rows else parts)
        left = replace(left, gone=gone)
    leaves_dledger = _leaves_dledger(store, config, forecast.version)
    if forecast.starts and verified.dledger is not None and leaves_dledger:
        all_of_them = Undelivered({name: of_records(part) for name, part in verified.dledger.queues.items()})
        left = replace(left, gone=max(left.gone, all_of_them, key=lambda gone: gone.messages))
    if verified.wrong_names is not None:
        left = replace(left, hidden=_hidden(verified.wrong_names.of(forecast).hidden, kept, left.gone, deleted))
    beside = opens_beside(store, config.read_by(forecast.version)) if forecast.starts else None
    if beside is not None and not forecast.queue_ends:
        left = replace(left, gone=_all_messages(verified))
    # messages without units may belong to a deleted topic; only those of DLedger that the broker ignores are taken
    taken = forecast.messages_taken or (left.gone.messages if leaves_dledger else 0)
    if not forecast.starts:
        return _Consequence(left, taken, deleted, beside)
    found = misfits(store, as_configured(config, forecast.version), rules_for(forecast.version))
    return _Consequence(left, taken, deleted, beside, tuple(found))


@dataclass(frozen=True, slots=True)
class _StartVerdict:
    """What a start would do, in a sentence.

    `newer`: formats that this version cannot read; `unserved`: messages that wait for a service that it lacks.
    """

    sentence: str
    consequence: _Consequence
    newer: list[NewerFormat]
    unserved: list[NewerFormat]
    faults: tuple[SettingAtFault, ...] = ()
    """The settings without which the start would do better."""


def _answer(
    store: Store,
    verified: Verified,
    config: BrokerConfig,
    forecast: StartForecast,
    finder: FaultFinder,
    base: Account,
) -> _StartVerdict:
    """Return what the start of one version would do, by its forecast, the account and what the checks found."""
    report = verified.report
    exceptions = ""
    consequence = _consequence(store, verified, config, forecast, base)
    if forecast.starts:
        exceptions = _forgotten(report)
        exceptions += rights_words(report.findings)
        for misfit in consequence.misfits[:1]:
            exceptions += Text(", but {words}", words=misfit.words)
    newer = newer_formats(store, report, forecast) if forecast.starts else []
    unserved = unserved_messages(store, verified, forecast.version) if forecast.starts else []
    withheld: tuple[str, ...] = ()
    if forecast.starts:
        withheld = (
            withheld_words(report.findings, rules_for(forecast.version)),
            *(one.words for one in unserved),
            _at_missing_rows(store, verified, forecast, consequence.deleted),
        )
    left = replace(consequence.left, withheld=joined(filter(None, withheld), " and "))
    consequence = replace(consequence, left=left)
    exceptions = _log_lacks(verified, forecast, base, left) + exceptions
    if newer:
        but, because = (
            Text("{exceptions}, but it cannot read {newer}"),
            Text("{exceptions}, because it cannot read {newer}"),
        )
        words = but if left.is_nothing(forecast) else because
        exceptions = words.format(exceptions=exceptions, newer=joined((one.words for one in newer), " and "))
    damage = damage_words(report.findings)
    if not forecast.consume_queues_simulated and codes.CQ_MISSING_UNIT in report.findings.counts:
        damage = damage or Text("Consumers do not get all messages")  # the forecast does not know these rows
    if report.findings.counts.keys() & _TAILS:
        damage = damage or Text("The last bytes of the log are not a record")  # they may have been one
    if forecast.starts and consequence.deleted:
        exceptions += _deleted_words(consequence.deleted)
    beside = consequence.beside
    faults: tuple[SettingAtFault, ...] = ()
    if not (forecast.starts and left.is_nothing(forecast)):
        faults = finder.find(forecast)
    if beside is not None and beside not in faults:
        faults = (beside, *faults)
    unnamed = [fault.given for fault in faults if fault.key not in (forecast.reason or "")]
    because = Text(", because of {settings}", settings=joined(unnamed, " and "))
    exceptions = (because if unnamed else "") + exceptions
    sentence = _without_messages(report, forecast) or left.sentence(forecast, damage) + exceptions
    if beside is not None:
        sentence = _beside_sentence(forecast, beside, left)
    return _StartVerdict(sentence, consequence, newer, unserved, faults)


def _tell_lines(report: Report, config: BrokerConfig) -> None:
    """Report the lines of broker.conf that do not have the effect that they seem to have."""
    for line in config.unread:
        facts: dict[str, Fact] = {"line": line.number}
        if line.key:
            facts["text"] = f"{line.key}={shown_value(line.value)}"
        facts |= {"effect": line.words(config.version), "broker": config.version}
        if line.write:
            facts["set"] = line.write
        code = codes.CFG_LINE if line.misleads else codes.CFG_KEY
        report.findings.add(Finding(code, "config", "broker.conf", facts=facts))


def _system_note(account: Account) -> list[str]:
    """Return a note with the number of messages of system topics that are lost or not delivered."""
    counts: Counter[str] = Counter()
    for (topic, _), one in account.queues.items():
        if is_system_topic(topic):
            cut = len(one.in_log) - len(one.kept)
            counts[topic] += len(one.lost_already - one.fillers) + cut + len(one.undelivered) + len(one.more)
    counts = +counts
    if not counts:
        return []
    topics = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    return [
        Text(
            "what is lost or not delivered includes {messages} of system topics: {topics}",
            messages=many(counts.total(), "message"),
            topics=first_few([Placed("{topic} ({count:,})", topic=topic, count=count) for topic, count in topics], 4),
        )
    ]


def _gone_note(base: Account) -> list[str]:
    """Return a note with the numbers of messages before the begin of the log that queues and the index still list."""
    if not base.gone_before_begin:
        return []
    words = Text(
        "consume queues or the index still list {messages} before the log's begin at {begin:,}",
        messages=many(base.gone_before_begin, "message"),
        begin=base.begin_at,
    )
    if not base.unread_gone:
        return [words]
    worst = sorted(base.unread_gone.items(), key=lambda one: (-one[1], one[0]))
    groups = first_few([Placed("{group} ({count:,})", group=group, count=count) for group, count in worst], 3)
    return [Text("{words}; groups that had not read all of them, and how many: {groups}", words=words, groups=groups)]


def _tell_faults(report: Report, forecast: StartForecast, answer: _StartVerdict) -> None:
    """Report the settings at fault, each with the line to write."""
    if report.live:
        return
    named = {f.facts.get("key") for f in report.findings.listed if f.code == codes.DIR_FILE_SIZE}
    for fault in (fault for fault in answer.faults if fault.key not in named):
        facts: dict[str, Fact] = {"setting": fault.given, "set": fault.line, "broker": forecast.version}
        if not forecast.starts:
            facts["reason"] = forecast.reason or ""
        elif messages := answer.consequence.taken or answer.consequence.left.gone.messages:
            facts["messages"] = messages
        report.findings.add(Finding(codes.CFG_SETTING, "config", "broker.conf", facts=facts))
    told = {fault.key for fault in answer.faults}
    for misfit in answer.consequence.misfits:
        if misfit.key not in told:
            facts = {"setting": misfit.given, "set": misfit.line, "broker": forecast.version, "reason": misfit.words}
            report.findings.add(Finding(codes.CFG_SETTING, "config", "broker.conf", facts=facts))


def _hidden(
    hidden: Mapping[QueueName, Ranges], kept: Mapping[QueueName, Ranges], gone: Undelivered, deleted: Container[str]
) -> Undelivered:
    """Return the messages in files with wrong names that no consumer gets for this reason alone."""
    out = Undelivered()
    for name, places in hidden.items():
        if f"{name[0]}/{name[1]}" not in deleted:
            out.add(name, (places & kept.get(name, Ranges())) - gone.places.get(name, Ranges()))
    return out


def _left(
    store: Store,
    verified: Verified,
    forecast: StartForecast,
    deleted: Container[str],
    kept: Mapping[QueueName, Ranges],
) -> Left:
    """Return what the start leaves in the log, without the messages of the `deleted` queues ("TOPIC/ID")."""
    parts = verified.logs.queues
    states = {label: state for label, state in verified.report.queues.items() if label not in deleted}
    if not (store.light_in_rocksdb and rules_for(forecast.version).light_in_rocksdb):
        others = store.rocksdb_consume_queue and forecast.consume_queues_simulated  # files, not rows
        return left_unreadable(forecast, states, verified.logs, kept, other_units=others)
    light = [name for name in map(split_queue_label, states) if store.reads_rows(name[0])]
    in_files = {label: state for label, state in states.items() if not store.reads_rows(topic_of(label))}
    left = left_unreadable(forecast, in_files, verified.logs, kept)
    if store.commitlog is not None:
        more = left_in_light_queues(forecast, parts, light, store.commitlog, verified.dispatched_rows)
        for name, places in more.places.items():
            left.gone.add(name, places)
    return left


def _at_missing_rows(store: Store, verified: Verified, forecast: StartForecast, deleted: Container[str]) -> str:
    """Return how many messages consumers do not get because rows in RocksDB are missing; "" for none."""
    rules = rules_for(forecast.version)
    every = forecast.reads_rows_beside or not forecast.consume_queues_simulated
    light = store.light_in_rocksdb and rules.light_in_rocksdb
    parts = {
        name: part
        for name, part in verified.logs.queues.items()
        if part.gaps and (every or (light and store.reads_rows(name[0]))) and f"{name[0]}/{name[1]}" not in deleted
    }
    if not parts:
        return ""
    fails = rules.pull_fails_without_row and store.config.bool("iteratorWhenUseRocksdbConsumeQueue")
    kept = at_missing_rows(store, parts, forecast, seen=not _unseen(store, forecast), before=_PULL if fails else 0)
    words = Text("up to {messages}, because a queue offset has no row in RocksDB", messages=kept.text())
    return words if kept.messages else ""


def _deleted_words(deleted: Mapping[str, int]) -> str:
    """Return the end of the verdict about messages of deleted topics, by queue."""
    topics = sorted(set(map(topic_of, deleted)))
    whose = (
        Text("the deleted topic {topics}", topics=topics[0])
        if len(topics) == 1
        else Text("{count:,} deleted topics", count=len(topics))
    )
    words = Text("; {messages} of {whose} stay in the log until they expire")
    return words.format(messages=many(sum(deleted.values()), "message"), whose=whose)


def _unseen(store: Store, forecast: StartForecast) -> bool:
    """Return whether the broker does not know the directory of the queues' RocksDB, and makes one without rows."""
    return store.rocksdb_directory.name == SEPARATE and not rules_for(forecast.version).separate_rocksdb_queues


def _leaves_dledger(store: Store, config: BrokerConfig, version: str) -> bool:
    """Return whether the store has DLedger entries that the broker does not read according to its configuration."""
    has_entries = store.dledger is not None and bool(store.dledger.data.files)
    return has_entries and not reads_entries(store, as_configured(config, version))


def _all_messages(verified: Verified) -> Undelivered:
    return Undelivered({name: of_records(part) for name, part in verified.logs.queues.items()})


def _beside_sentence(forecast: StartForecast, fault: SettingAtFault, left: Left) -> str:
    """Return the verdict of a broker that opens another directory than this store."""
    beside = Text("would start with another directory than this store, because of {setting}", setting=fault.given)
    if not left.gone.messages:  # storePathCommitLog names the log of this store
        words = Text("RocketMQ {version} {beside}, and know none of its topics, consumer groups and offsets")
        return words.format(version=forecast.version, beside=beside)
    words = Text("RocketMQ {version} {beside}, and deliver none of {messages}")
    return words.format(version=forecast.version, beside=beside, messages=left.gone.text())


def _assumed_size(store: Store) -> str:
    """Return the assumption about the size of log files, if neither broker.conf nor the files show it; else ""."""
    for log in (store.commitlog, store.dledger.data if store.dledger is not None else None):
        if log is not None and log.size_from == "default" and (log.files or log.odd):
            return Text(
                " (if mappedFileSizeCommitLog is {file_size:,}, which the files do not tell: give -c broker.conf)",
                file_size=log.file_size,
            )
    return ""


def _conditions(config: BrokerConfig) -> str:
    """Return what the verdict assumes about the broker's place: classes of plug-ins, and where it is started."""
    names = [name for name in config.plugins if has_plugin(name, rules_for(config.version)) is None]
    plugins = Text(" (if the broker's lib/ has the class {names}, which is not RocketMQ's: messageStorePlugIn)")
    from_there = Text(" (if the broker is started in the directory from which {settings} leads to this store)")
    relative = [config.line_of(key) for key in config.relative_paths] if config.file is not None else []
    words = [plugins.format(names=joined(names))] if names else []
    return joined(words + ([from_there.format(settings=joined(relative, " and "))] if relative else []), "")


def _without_messages(report: Report, forecast: StartForecast) -> str:
    """Return the verdict for a log without messages whose consume queues have units; "" for other stores."""
    units = sum(int(f.facts["units"] or 0) for f in report.findings.listed if f.code == codes.CL_NO_MESSAGES)
    if not units or not forecast.starts:
        return ""
    who = Text("RocketMQ {version}", version=forecast.version)
    gone = (
        Text("the log does not contain the message in the consume queues")
        if units == 1
        else Text("the log contains none of the {units:,} messages in the consume queues", units=units)
    )
    return Text("{who} would start empty: {gone}", who=who, gone=gone)


def _log_lacks(verified: Verified, forecast: StartForecast, base: Account, left: Left) -> str:
    """Return what a verdict says about files with wrong names, and about what the log lacks before any start."""
    if not forecast.starts:
        return Text("; the log lacks {messages}", messages=base.lacking_words()) if base.lacking else ""
    named = verified.misplaced.verdict(left.hidden.messages) if verified.misplaced is not None else ""
    return _not_here(verified.report, base, named, loses=not left.is_nothing(forecast))


def _not_here(report: Report, base: Account, words: str, *, loses: bool) -> str:
    """Return `words` with the end of the verdict about messages and units that a start neither loses nor restores.

    `loses`: the verdict says that the start loses messages; otherwise, it begins with the number of damaged ones.
    """
    listed = report.findings.listed
    foreign = report.findings.counts[codes.CL_FOREIGN_FILE]
    if foreign:
        belong = many(foreign, "file belongs", "files belong")
        words = Text("{words}, but {belong} to another log", words=words, belong=belong)
    if base.lacking:
        if not loses and damaged_messages(report.findings) == base.lacking:
            return words  # the verdict begins with them
        if words or loses:
            return Text("{words}, and the log lacks {messages}", words=words, messages=base.lacking_words())
        return Text(", but the log lacks {messages}", messages=base.lacking_words())
    for where in dict.fromkeys(row.not_here for row in PROBLEMS.values() if row.not_here):
        found = [f for f in listed if f.problem.not_here == where]
        if any(f.problem.of_queues for f in found):
            count = sum(int(f.facts.get("units") or 1) for f in found)
            point = many(count, "consume queue unit points", "consume queue units point")
            words = Text("{words}, but {point} {where}", words=words, point=point, where=where)
        elif count := sum(int(f.facts.get("messages") or 0) for f in found):
            are = many(count, "message is", "messages are")
            words = Text("{words}, but {are} {where}", words=words, are=are, where=where)
    return words or _later_messages(listed)


def _forgotten(report: Report) -> str:
    """Return the end of the verdict about topics and progress that the broker will not know."""
    listed = report.findings.listed
    files = [f.file for f in listed if f.code == codes.CFG_UNREADABLE]
    topics = sum(int(f.facts["count"] or 0) for f in listed if f.code in _FORGOTTEN_TOPICS)
    groups = sum(int(f.facts["count"] or 0) for f in listed if f.code == codes.CFG_NO_OFFSETS)
    parts: list[str] = [Text("it reads nothing from {files}", files=joined(files))] if files else []
    if topics:
        parts.append(Text("it does not know {topics}", topics=many(topics, "topic")))
    if groups:
        parts.append(many(groups, "consumer group starts over", "consumer groups start over"))
    return Text(", but {parts}", parts=joined(parts, ", and ")) if parts else ""


def _later_messages(listed: list[Finding]) -> str:
    """Return the end of the verdict if only the index or the checkpoint knows messages after the end of the log."""
    dangling = [f for f in listed if f.code == codes.IX_DANGLING_ENTRY]
    entries = sum(int(f.facts["count"] or 0) for f in dangling if "wrote" in f.facts)  # others point into the log
    if entries:
        return Text(
            ", but {point} after the end of the log", point=many(entries, "index entry points", "index entries point")
        )
    ahead = (f for f in listed if f.code == codes.CK_AHEAD and f.facts["field"] in TIMES)
    if any(not f.facts.get("in_future") for f in ahead):
        return Text(", but the checkpoint has the time of a later message")
    return ""


def _tell_separate_rocksdb(store: Store, report: Report, forecast: StartForecast) -> None:
    """Add a note if the broker is too old for the RocksDB in consumequeue_rocksdb/, and makes one elsewhere."""
    rules = rules_for(forecast.version)
    makes = rules.rocksdb_queues if store.rocksdb_consume_queue else store.rocksdb_beside and rules.combined_queues
    if makes and _unseen(store, forecast):
        on = "" if store.rocksdb_consume_queue else Text(" (with rocksdbCQDoubleWriteEnable=true)")
        report.notes.append(
            Text(
                "RocketMQ {version} does not read {separate}/; it creates a RocksDB in consumequeue/{on}, and until "
                "its files are moved away, RocketMQ 5.5.0 and newer do not start again",
                version=forecast.version,
                separate=SEPARATE,
                on=on,
            )
        )


def _tell_settings(store: Store, report: Report, forecast: StartForecast) -> None:
    """Add notes on settings that the named version needs, or will drop, and that no file of the store shows."""
    rules = rules_for(forecast.version)
    unknown = store.rocksdb_beside and DOUBLE_WRITE not in store.config.given
    if rules.double_write_needs_lmq and unknown and not writer_of(store).includes(forecast.version):
        report.notes.append(
            Text(
                "RocketMQ 5.5.0 and newer start with rocksdbCQDoubleWriteEnable=true only if broker.conf has "
                "combineCQUseRocksdbForLmq=true, too; -c broker.conf tells whether it has"
            )
        )
    if rules.dledger_deprecated and in_dledger_mode(store, as_configured(store.config, forecast.version)):
        report.notes.append(
            Text(
                "DLedger mode is deprecated in RocketMQ 5.5.1, and still works; `rmqstore migrate-to-commitlog` "
                "makes a plain store of this one"
            )
        )


def _tell_queue_position(store: Store, verified: Verified, asked: str, forecast: StartForecast) -> None:
    """Add a note if the broker does not keep the checkpoint's logicsPhysicalOffset, or an older one has not kept it."""
    if not rules_for(forecast.version).logics_offset:
        if asked and parse_checkpoint(read_checkpoint(store) or b"").logics_physical_offset > 0:
            verified.report.notes.append(
                Text(
                    "RocketMQ {version} does not keep the checkpoint's logicsPhysicalOffset, from which RocketMQ "
                    "5.5.0 and newer recover after a crash: before one of these runs on this store again, "
                    "correct it with `rmqstore rebuild STORE checkpoint`",
                    version=forecast.version,
                )
            )
        return
    stale = stale_position(store, verified.logs)
    if stale is None:
        return
    offset, starts_record = stale
    no_record = Text(", where no record starts: with enableAcceleratedRecovery it deletes the log from there on")
    verified.report.notes.append(
        Text(
            "an older broker has run on this store since the checkpoint got its logicsPhysicalOffset, "
            "{offset:,}; after a crash, RocketMQ {version} recovers from there{no_record}; `rmqstore "
            "rebuild STORE checkpoint` corrects it",
            offset=offset,
            version=forecast.version,
            no_record="" if starts_record else no_record,
        )
    )


def _tell_writer(store: Store, report: Report, asked: str) -> None:
    """Add the versions that can have written the store; a note if the version that the user named is not among them."""
    writer = writer_of(store)
    report.writer = writer.to_json() if writer.known else None
    if asked and not writer.includes(asked):
        report.notes.append(Text("the store was last written by {writer}", writer=writer.words()))


def _known_units(store: Store, verified: Verified) -> KnownUnits | None:
    """Return known units, so that the forecast need not read the log again; None if they are unknown.

    `AllDispatched` does not apply in DLedger mode: an abnormal start of 5.2 and newer cuts units and dispatches their
    messages again.
    """
    logs, report = verified.logs, verified.report
    whole = store.kind is StoreKind.PLAIN and not any(r.batches for r in logs.results)
    if whole and all_dispatched(logs.queues, report.queues, report.findings.counts):
        return AllDispatched()
    return verified.units
