"""The report of `verify` as text: verdict, contents, findings (worst first), what was not checked, what to do."""

from __future__ import annotations

import importlib
import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

from rmqstore.checks.problems import codes as problem_codes
from rmqstore.checks.problems.account import GONE
from rmqstore.checks.problems.report import (
    Fact,
    Finding,
    Report,
    Reused,
    damaged_records,
    option_of,
    problem_counts,
    store_words,
    wrote_words,
)
from rmqstore.checks.problems.table import PROBLEMS, Problem, Severity
from rmqstore.cli.lang import AsIs
from rmqstore.cli.printing.output import Styled
from rmqstore.cli.printing.quantities import (
    KINDS,
    bytes_text,
    columns,
    fitted,
    in_words,
    many,
    time_text,
    title,
    wrapped,
)
from rmqstore.formats.consumequeue import topic_of
from rmqstore.texts import Placed, Text, first_few, joined

EXAMPLES = 3
_STYLE = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.NOTE: "cyan"}
_SEVERITY_WORDS = {Severity.ERROR: Text("ERROR"), Severity.WARNING: Text("WARNING"), Severity.NOTE: Text("NOTE")}
_FACT_WORDS = {"stored": "recorded CRC", "computed": "computed CRC"}
"""Facts whose name alone is not clear."""
_INDENT = "  "
TOLD_BY = {problem_codes.DIR_OPEN_JOURNAL: "rmqstore.cli.printing.open_journals"}
"""What tells how to go on after a problem that few stores have, by its code."""
_NEXT = "      "


def verify_text(report: Report, verbose: int = 0, width: int = 80) -> Iterator[Styled]:
    """Yield the lines of the report, at most `width` columns wide except for names, paths, commands and titles."""
    verdict, style = _verdict(report)
    yield from (Styled(line, style=style) for line in wrapped(verdict, width))
    yield Styled()
    yield from _what(report, width)
    groups = groups_of(report)
    if groups:
        yield Styled()
        shown = [group for group in groups if verbose or not report.wrong_sizes or group[0] in _OF_SETTINGS]
        yield _totals(report, [code for code, _ in shown])
        for code, examples in shown:
            yield Styled()
            yield from _group(report, PROBLEMS[code], examples, verbose, width)
        if len(shown) < len(groups):
            more = sum(report.findings.counts[group[0]] for group in groups if group not in shown)
            yield Styled()
            findings = many(more, "more finding")
            yield from wrapped_lines(
                Text("{findings} may only follow from that (-v lists them)", findings=findings), width
            )
    if report.unchecked:
        yield Styled()
        yield Styled(Text("Not checked"), style="bold yellow")
        for line in report.unchecked:
            yield from wrapped_lines(line, width, _INDENT, _INDENT + "  ")
    yield Styled()
    yield from _next(report, width)


_OF_SETTINGS = (
    problem_codes.DIR_FILE_SIZE,
    problem_codes.IX_CONFIG_SIZE,
    problem_codes.DIR_MISSING_PATH,
    problem_codes.CFG_SETTING,
    problem_codes.CFG_LINE,
)
"""Problems that do not follow from wrong sizes in broker.conf."""


def line_for_cron(report: Report) -> Iterator[str]:
    """Yield one line for cron to send by mail; none for a clean store."""
    if report.clean:
        return
    none, some = Text("no problems were found"), Text("problems were found")
    found = report.headline or (some if report.exit_code == 1 else none)
    codes = ", ".join(f"{code} x {count:,}" for code, count in sorted(report.findings.counts.items()))
    line = Placed("{store}: {found}", store=report.store, found=found) + (f" ({codes})" if codes else "")
    if report.unchecked:
        line += Text("; not checked: {unchecked}", unchecked=joined(report.unchecked, "; "))
    if report.reused is not None:
        line += Placed("; {words}", words=reused_words(report.reused))
    yield line


def verdict_sentence(report: Report) -> str:
    """Return the verdict on one line."""
    return " ".join(wrapped(_verdict(report)[0], 1 << 20))


def verdict_line(report: Report) -> str:
    """Return the verdict as one text, which can still be translated."""
    return _verdict(report)[0]


def _verdict(report: Report) -> tuple[str, str]:
    """Return the verdict and its style."""
    worst = report.findings.worst
    starts = report.broker is None or bool(report.broker.get("starts"))
    lost = int(report.broker.get("messages_lost") or 0) if report.broker else 0
    for row in report.differing:
        starts, lost = starts and (row.starts or not row.wrote), lost or (row.messages_lost if row.wrote else 0)
    lost = lost or (report.account.lacking if report.account is not None else 0)
    if (worst is not None and worst >= Severity.ERROR) or not starts or lost:
        style = "bold red"
    elif not report.clean:
        style = "bold yellow"
    else:
        style = "bold green"
    counts = problem_counts(report)
    problems = sum(counts.values())
    if report.clean and report.fillers and not _start_drops(report):
        fillers = joined((row.text() for row in report.fillers), " and ")
        state = Text(
            "The log holds {fillers} in place of lost messages. Nothing else is wrong with this store.", fillers=fillers
        )
    elif report.clean:
        state = Text("The store itself is sound.") if _start_drops(report) else _nothing_wrong(report)
    elif not problems:
        state = Text("No problems were found, but not everything was checked.")
    elif len(counts) == 1:
        state = Text("{problems} found.", problems=many(problems, "problem"))
    else:
        state = Text("{problems} of {count} kinds found.", problems=many(problems, "problem"), count=len(counts))
    if report.clean and report.reused is not None:
        files = many(len(report.reused.files), "unchanged log file")
        state = Text("{state} This reuses old results: {files} not read again.", state=state, files=files)
    verdict = report.headline
    if report.wrong_sizes:
        return Placed("{verdict}.", verdict=verdict), style
    return Placed("{verdict}. {state}", verdict=verdict, state=state) if verdict else state, style


def _nothing_wrong(report: Report) -> Text:
    """Return that nothing is wrong; of a log that cannot have expired by age, also what is gone before its begin."""
    account = report.account
    messages = sum(int(log.get("messages") or log.get("entries") or 0) for log in report.logs)
    if report.no_index and messages:
        return Text(
            "Nothing is wrong with this store, but it has no index: queries by key find none of {messages}.",
            messages=many(messages, "message"),
        )
    if account is None or account.begin != GONE or not account.gone_before_begin:
        return Text("Nothing is wrong with this store.")
    return Text(
        "Nothing is wrong with this store, which begins at {begin:,} ({messages} gone).",
        begin=account.begin_at,
        messages=many(account.gone_before_begin, "earlier message is", "earlier messages are"),
    )


def _what(report: Report, width: int) -> Iterator[Styled]:
    live = Text(", a broker is running on it") if report.live else ""
    yield Styled(Placed("{store}: {kinds}{live}", store=report.store, kinds=KINDS[report.kind], live=live))
    damaged = Counter(log for log, _ in damaged_records(report.findings))
    if report.commitlog:
        words = _log_words(report.commitlog, "messages", "min_offset", damaged["commitlog"])
        yield from _row("commitlog", words, width)
    if report.dledger:
        d = report.dledger
        words = _log_words(d, "entries", "first_pos", damaged["dledger"])
        yield from _row(d.get("group_dir") or "dledger", words, width)
        if int(d["last_index"]) >= 0:
            entries = Text("index {first:,} to {last:,}, term {term}")
            entries = entries.format(first=d["first_index"], last=d["last_index"], term=d["term"])
            yield from _row("", entries, width)
    if report.queues:
        behind = sum(1 for q in report.queues.values() if q.max < q.expected_max)
        ahead = sum(1 for q in report.queues.values() if q.max > q.expected_max)
        topics = len(set(map(topic_of, report.queues)))
        if behind and ahead:
            state = Text("{behind} shorter, {ahead} longer than the log requires", behind=behind, ahead=ahead)
        elif behind:
            state = Text("{behind} shorter than the log requires", behind=behind)
        elif ahead:
            state = Text("{ahead} longer than the log requires", ahead=ahead)
        else:
            state = Text("lengths match the log")
        if not report.commitlog and not report.dledger:
            state = Text("not compared with a log")
        elif report.resume_at is not None:
            state = Text("not yet compared with the whole log")
        queues = many(len(report.queues), "consume queue")
        lengths = Text("{queues} of {topics}, {state}", queues=queues, topics=many(topics, "topic"), state=state)
        yield from _row(Text("queues"), lengths, width)
    if report.reused is not None:
        yield from _row(Text("old results"), reused_words(report.reused), width)
    if report.broker:
        yield from _forecast(report.broker, width)
    yield from _versions(report, width)
    if problem_codes.DIR_FILE_SIZE in report.findings.counts:
        words = Text("the files were read with the sizes in broker.conf: the numbers are not those of the store")
        yield from _row(Text("note"), words, width)
    for note in [*report.notes, *(report.filler_notes if not report.clean or _start_drops(report) else [])]:
        yield from _row(Text("note"), note, width)


def reused_words(reused: Reused) -> str:
    """Describe the results that --since-last reused."""
    one = Text("{files} ({bytes}) was not read again; no problems on {time}")
    several = Text("{files} ({bytes}) were not read again; no problems on {time}")
    files = many(len(reused.files), "unchanged log file")
    words = one if len(reused.files) == 1 else several
    return words.format(files=files, bytes=bytes_text(reused.bytes), time=time_text(reused.read_at))


def _log_words(log: dict[str, Any], counted: str, start: str, listed: int) -> str:
    """Describe a log; `listed` counts its damaged records with a finding, also those that brokers accept."""
    good, damaged = int(log[counted]), int(log.get("damaged") or 0)
    accepted = max(0, listed - damaged)
    good, damaged = good - accepted, damaged + accepted
    if damaged:
        text = many(good, "good record") if counted == "messages" else many(good, "good entry", "good entries")
        text = Text("{text} and {damaged:,} damaged", text=text, damaged=damaged)
    else:
        text = many(good, "record") if counted == "messages" else many(good, "entry", "entries")
    if log.get("files"):
        text = Text("{text} in {files}", text=text, files=many(int(log["files"]), "file"))
    text = Text("{text}, offsets {log:,} to {wrote:,}", text=text, log=int(log[start]), wrote=int(log["wrote"]))
    if log.get("first_timestamp") and log.get("last_timestamp"):
        first, last = (time_text(int(log[name])) for name in ("first_timestamp", "last_timestamp"))
        text = Text("{text}, stored {start} to {stop}", text=text, start=first, stop=last)
    return text


def _forecast(broker: dict[str, Any], width: int) -> Iterator[Styled]:
    if broker.get("starts"):
        deleted = [*(broker.get("files_deleted") or []), *(broker.get("other_files_deleted") or [])]
        if deleted:
            words = Text("deletes {files}: {names}", files=many(len(deleted), "file"), names=first_few(deleted, 3))
            yield from _row(Text("next start"), words, width)
        lost = broker.get("lost_by_topic") or {}
        if lost:
            worst = sorted(lost.items(), key=lambda kv: -int(kv[1]))
            names = ", ".join(f"{t} {int(n):,}" for t, n in worst[:5]) + (" …" if len(worst) > 5 else "")
            yield from _row(Text("would lose"), names, width)
    elif broker.get("log_line"):
        yield from _row(Text("broker log"), AsIs(broker["log_line"]), width)


def _versions(report: Report, width: int) -> Iterator[Styled]:
    """Yield a line for each range of versions that behave alike."""
    rows = [] if len(report.brokers) == 1 and report.brokers[0].named else report.brokers
    if len(rows) == 1:
        words = Text("all versions, {versions}, would do the same", versions=rows[0].versions)
        yield from _row(Text("brokers"), words, width)
        return
    wrote = wrote_words(rows)
    for i, row in enumerate(rows):
        who = Placed("{versions} ({wrote})", versions=row.versions, wrote=wrote) if row.wrote else row.versions
        line = row.sentence(who)
        yield from _row("" if i else Text("brokers"), line, width)


def _row(label: str, text: str, width: int) -> Iterator[Styled]:
    for i, line in enumerate(wrapped(text, max(20, width - 15)) or [""]):
        label = "" if i else label
        yield Styled(Placed("  {label:<12} ", label=label), style="dim").append(line)


def _totals(report: Report, shown: list[str]) -> Styled:
    counts: dict[Severity, int] = {}
    for code in shown:
        severity = PROBLEMS[code].severity
        counts[severity] = counts.get(severity, 0) + report.findings.counts[code]
    text = Styled(Text("Found: "), style="bold")
    for i, severity in enumerate(sorted(counts, reverse=True)):
        text.append(Text(", ") if i else "").append(_counted(counts[severity], severity), style=_STYLE[severity])
    return text


def _counted(count: int, severity: Severity) -> str:
    if severity is Severity.ERROR:
        return many(count, "error")
    return many(count, "warning") if severity is Severity.WARNING else many(count, "note")


def groups_of(report: Report) -> list[tuple[str, list[Finding]]]:
    """Return the codes with their listed findings, worst first; findings over the limit are only counted."""
    groups: dict[str, list[Finding]] = {code: [] for code in report.findings.counts}
    for finding in report.ordered():
        groups.setdefault(finding.code, []).append(finding)

    def rank(problem: Problem) -> tuple[int, float, int, str]:
        """Worst first; then problems that explain others, then the most frequent."""
        count = report.findings.counts[problem.code]
        return -problem.severity, problem.explains or math.inf, -count, problem.code

    order = sorted((PROBLEMS[code] for code in groups), key=rank)
    return [(problem.code, groups[problem.code]) for problem in order]


def _group(report: Report, problem: Problem, findings: list[Finding], verbose: int, width: int) -> Iterator[Styled]:
    count = report.findings.counts[problem.code]
    style = _STYLE[problem.severity]
    times = f"  ×{count:,}" if count > 1 else ""
    head = Styled(fitted(title(_SEVERITY_WORDS[problem.severity]), 8), style=style).append(problem.code, style=style)
    indent = " " * (columns(head.plain) + 2)
    lines = wrapped(
        Placed("{title}{times}", title=problem.title, times=times), max(width, len(indent) + 20), indent, indent
    )
    yield head.append(f"  {lines[0].strip()}")
    yield from map(Styled, lines[1:])
    yield from (Styled(line, style="dim") for line in wrapped(problem.about, width, "    ", "    "))
    shown = findings if verbose else findings[:EXAMPLES]
    for finding in shown:
        yield Styled(Placed("    {place}", place=_place(finding)))
        facts = facts_of(finding)
        if facts:
            yield from below(facts, width)
    if count > len(shown):
        more = count - len(shown)
        hint = "" if verbose else Text(" (-v lists them; --findings-out FILE has all)")
        yield Styled(Text("    … and {more:,} more{hint}", more=more, hint=hint), style="dim")
    cure = report.cure(findings[0]) if findings else None
    if cure:
        yield Styled(Text("    cure: "), style="green").append(cure)
    elif problem.needs_operator is not None and problem.severity > Severity.NOTE:
        yield from wrapped_lines(Text("to do: {do}", do=problem.needs_operator.do), width, "    ", "      ")


def _place(finding: Finding) -> str:
    text = finding.queue
    if finding.file and finding.file != finding.queue:
        text = Text("{text}  file {file}", text=text, file=finding.file)
    if finding.length or finding.offset:
        text = Text("{text}  at {offset:,}", text=text, offset=finding.offset)
    if finding.length:
        text = Placed("{text} ({length})", text=text, length=bytes_text(finding.length))
    return text


_TIMES = ("timestamp", "_time", "youngest", "before", "end_of_log")


def facts_of(finding: Finding) -> str:
    """Return the facts of a finding in words."""
    return joined(
        fact(name, _fact(_meaning(finding, name), value))
        for name, value in finding.facts.items()
        if name != "run"  # shown as the cure
    )


def fact(name: str, value: Fact) -> Text:
    """Return a fact with its name in words; `cli/lang/outside.py` lists the templates."""
    return Text(f"{_FACT_WORDS.get(name) or name.replace('_', ' ')} {{value}}", value=value)


def _meaning(finding: Finding, name: str) -> str:
    """Return the name that tells how to format a fact."""
    if name == "value":
        return str(finding.facts.get("field") or name)
    return "tags_code" if name == "expected" and "tags_code" in finding.facts else name


def _fact(name: str, value: Fact) -> str:
    if isinstance(value, bool) or value is None:
        return {True: Text("yes"), False: Text("no"), None: Text("none")}[value]
    if isinstance(value, int):
        if name.endswith(_TIMES) and value > 10**11:
            return time_text(value)
        if name.endswith(("magic", "crc", "stored", "computed", "code")):
            return str(value)
        return f"{value:,}"
    if name in ("cause", "reason"):
        return in_words(value)
    return value if len(value) <= 200 else value[:200] + "…"


def wrapped_lines(text: str, width: int, first: str = "", then: str = "") -> Iterator[Styled]:
    """Yield a text as lines of a width; `first` and `then` begin them."""
    yield from (Styled(line) for line in wrapped(text, width, first, then))


def below(text: str, width: int) -> Iterator[Styled]:
    """Yield a text below the command of a line `Next: rmqstore …`."""
    return wrapped_lines(text, width, _NEXT, _NEXT)


def _start_drops(report: Report) -> bool:
    """Return whether the next start would lose messages of a store without problems."""
    broker = report.broker or {}
    return report.clean and bool(broker.get("messages_lost") or broker.get("units_cut"))


def command_line(words: str) -> Styled:
    """Return the line `Next: rmqstore …` of a command."""
    return Styled(Text("Next: "), style="bold").append(words)


def _curable(report: Report) -> list[str]:
    """Codes that a command cures, or may cure: findings over the limit are only counted."""
    listed = {f.code: False for f in report.findings.listed}
    for finding in report.findings.listed:
        listed[finding.code] |= report.cure(finding) is not None
    return [
        code
        for code in report.findings.counts
        if PROBLEMS[code].severity >= Severity.WARNING
        and PROBLEMS[code].remedy
        and listed.get(code, not report.newer_dledger)
    ]


def repair_commands(report: Report) -> list[str]:
    """Return the commands that repair the problems of a store, as far as a command repairs them."""
    codes = _curable(report)
    return _commands(report, codes) if codes and not report.wrong_sizes else []


def next_commands(report: Report) -> list[str]:
    """Return the commands of the line `Next:`: those that end an interrupted repair come first, alone."""
    if problem_codes.DIR_OPEN_JOURNAL in report.findings.counts:
        open_ones = (f for f in report.findings.listed if f.code == problem_codes.DIR_OPEN_JOURNAL)
        found = (report.cure(f) for f in open_ones)
        return list(dict.fromkeys(command for command in found if command))
    if report.wrong_sizes or report.lines_to_write:  # it says what to write into broker.conf
        return [f"rmqstore verify {store_words(report.store, report.config)}"]
    if report.newer_dledger and report.has_problems:
        return [_export(report)]
    return repair_commands(report)


def _export(report: Report) -> str:
    return f"rmqstore export {store_words(report.store, report.config)} -o messages.ndjson"


def _commands(report: Report, codes: list[str]) -> list[str]:
    """`recover`, or if it cures none of the problems by default, with the option that each needs."""
    where = store_words(report.repairable, report.config)
    if any(PROBLEMS[code].safe for code in codes):
        return [f"rmqstore recover {where}"]
    return list(dict.fromkeys(f"rmqstore recover {where} {option_of(PROBLEMS[code])}" for code in codes))


def _next(report: Report, width: int) -> Iterator[Styled]:
    if problem_codes.DIR_OPEN_JOURNAL in report.findings.counts:
        yield from importlib.import_module(TOLD_BY[problem_codes.DIR_OPEN_JOURNAL]).lines(report, width)
        return
    store = store_words(report.repairable, report.config)
    if sizes := report.wrong_sizes:
        words = Text("Next: set {sizes} in {config}. Then:", sizes=joined(sizes), config=report.config)
        yield from wrapped_lines(words, width)
        yield Styled(f"{_NEXT}rmqstore verify {store_words(report.store, report.config)}")
        return
    if lines := report.lines_to_write:
        words = Text("Next: write {lines} into {config}. Then:")
        words = words.format(lines=joined(lines, " and "), config=report.config or "broker.conf")
        yield from wrapped_lines(words, width)
        yield Styled(f"{_NEXT}rmqstore verify {store_words(report.store, report.config)}")
        return
    codes = _curable(report)
    if not codes:
        own = [f.facts["run"] for f in report.findings.listed if "run" in f.facts]
        if own and len(own) == sum(problem_counts(report).values()):
            for command in own:
                yield command_line(str(command))
        elif report.has_problems and report.newer_dledger:
            yield command_line(_export(report))
            why = Text(
                "saves the readable messages. DLedger 0.4 wrote this store, which no RocketMQ release uses: it is not "
                "repaired. Its node can get a copy of another node's store."
            )
            yield from below(why, width)
        elif report.has_problems:
            yield command_line(f"rmqstore recover {store}")
            why = Text(
                "explains why these problems cannot be repaired from this store, and what to do. It writes nothing."
            )
            yield from below(why, width)
        elif report.clean:
            yield Styled(Text("Next: nothing to do."), style="green")
        elif report.resume_at is not None:
            yield command_line(f"rmqstore verify {store_words(report.store, report.config)} --resume")
            yield from below(Text("continues the check."), width)
        else:
            yield from wrapped_lines(Text("Next: see what was not checked. It may contain problems."), width)
        return
    if report.live:
        yield from wrapped_lines(Text("Next: stop the broker and keep its service stopped. Then:"), width)
    yield from map(command_line, _commands(report, codes))
    yield from below(
        Text(
            "shows what it would repair and what would be lost. It writes nothing without --apply, and "
            "`rmqstore undo` undoes it."
        ),
        width,
    )
    if report.is_snapshot:
        made = Text("STORE is what `rmqstore restore {address} DIR` makes: a snapshot does not change.")
        yield from below(made.format(address=store_words(report.store)), width)
    if report.is_lone_part:
        yield from below(Text("STORE is the whole store that this belongs to: a part alone is not repaired."), width)
    if any(PROBLEMS[code].damages_log for code in codes):
        replica = Text("With --replica DIR (another node's store, or a backup), it restores the original bytes.")
        yield from below(replica, width)
