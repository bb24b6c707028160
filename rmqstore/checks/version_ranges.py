"""What the start of each RocketMQ version would do to a store: one row per range of versions that behave alike."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from rmqstore.brokers.rules.forecast import StartForecast
from rmqstore.brokers.rules.versions import RUN_VERSIONS, VERSIONS, rules_for, version_number
from rmqstore.brokers.rules.writer import writer_of
from rmqstore.brokers.simulate import in_dledger_mode
from rmqstore.checks.problems.report import Report, VersionRange
from rmqstore.checks.queues.undelivered import Left
from rmqstore.errors import UsageError
from rmqstore.files.store import Store
from rmqstore.formats.text import many
from rmqstore.texts import Joined, Placed, Text, joined

_TOPICS = re.compile(r" of [0-9,]+ topics?\b")  # named only if every record was read
_NO_DLEDGER = Text("has no DLedger mode")


@dataclass(frozen=True, slots=True)
class VersionAnswer:
    """What one version would do. `words`: what follows "RocketMQ 5.4.0"; `outcome`: in short.

    `too_old`: it cannot read a format in the store.
    """

    starts: bool
    reason: str | None
    exit_code: int | None
    messages_lost: int
    words: str
    outcome: str
    too_old: bool
    verdict: str

    @staticmethod
    def of(forecast: StartForecast, sentence: str, left: Left, taken: int, *, too_old: bool) -> VersionAnswer:
        """Return the answer of a forecast and its verdict."""
        words = sentence.partition(f"RocketMQ {forecast.version} ")[2] or sentence
        if not forecast.starts:
            outcome: str = Text("would not start")
        elif taken:
            outcome = Text("would lose {messages}", messages=many(taken, "message"))
        elif left.gone.messages:
            outcome = Text("would never deliver {messages}", messages=many(left.gone.messages, "message"))
        elif left.moved.messages:
            outcome = Text("would put {messages} at wrong queue offsets", messages=many(left.moved.messages, "message"))
        else:
            outcome = _TOPICS.sub("", words)
        return VersionAnswer(
            forecast.starts, forecast.reason, forecast.exit_code, taken, words, outcome, too_old, _of_start(sentence)
        )

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for versions that behave alike."""
        return self.starts, self.exit_code, self.messages_lost, self.too_old, _TOPICS.sub("", self.words)


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
    answer_of: Callable[[str], VersionAnswer],
    *,
    named: str = "",
    narrow: bool = False,
) -> None:
    """Add a row for each range of versions to the report; `named`: only for this version.

    `narrow`: simulate only the versions that were confirmed with their real classes, because each start is expensive.
    """
    writer = writer_of(store)
    last: tuple[object, ...] | None = None
    rows: list[VersionRange] = []
    if narrow and not named:
        report.notes.append(
            Text(
                "only the starts of {run_versions} were simulated; --broker names others",
                run_versions=joined(RUN_VERSIONS),
            )
        )
    for versions in [[named]] if named else _groups(store, narrow=narrow):
        try:
            answer = answer_of(versions[-1])
        except UsageError:  # no DLedger in this version
            answer = VersionAnswer(
                False,
                _NO_DLEDGER,
                None,
                0,
                _NO_DLEDGER,
                _NO_DLEDGER,
                too_old=True,
                verdict=Text("RocketMQ {version} has no DLedger mode", version=versions[-1]),
            )
        wrote = writer.known and not answer.too_old and any(writer.includes(version) for version in versions)
        if rows and answer.key == last and not narrow:
            rows[-1] = replace(
                rows[-1], newest=versions[-1], words=answer.words, verdict=answer.verdict, wrote=wrote or rows[-1].wrote
            )
            continue
        last = answer.key
        rows.append(
            VersionRange(
                versions[0],
                versions[-1],
                wrote,
                bool(named),
                answer.starts,
                answer.reason,
                answer.exit_code,
                answer.messages_lost,
                answer.outcome,
                answer.words,
                answer.too_old,
                answer.verdict,
            )
        )
    report.brokers = rows


def _groups(store: Store, *, narrow: bool) -> Iterator[list[str]]:
    """Yield adjacent versions with the same rules, in order."""
    if narrow:
        yield from ([version] for version in RUN_VERSIONS)
        return
    dledger = in_dledger_mode(store, store.config)
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
    return rules if dledger else replace(rules, dledger=None, dledger_abnormal=False)
