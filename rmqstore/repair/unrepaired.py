"""What stays wrong behind a plan, why nothing is planned for it, and what the operator can do. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rmqstore.checks.problems import codes
from rmqstore.checks.problems.report import TAG_CODE, Report
from rmqstore.checks.problems.table import PROBLEMS, Severity
from rmqstore.files.store import Store, StoreKind
from rmqstore.repair.log.contradicted import FACT
from rmqstore.repair.log.misplaced_files import MISPLACED
from rmqstore.repair.plan.content import Json
from rmqstore.repair.plan.plan_builder import PlanBuilder
from rmqstore.repair.plan.recover_options import TRUNCATE, Choice, RecoverOptions
from rmqstore.repair.salvage.proved_records import open_codes

Reason = tuple[str, str]  # why nothing is planned, what to do

_PROVED = "the units and entries are right, their message is damaged (see the note)"
_REPLICA = "make the replica again from its master; or --strategy salvage, if no other replica has it sound"
_RAW = "take the file from a replica or a backup"
_DECIDE: Mapping[str, Reason] = {
    codes.DIR_FILE_SIZE: ("the configuration differs from the files", "set the key that is named above"),
    codes.DIR_DUPLICATE_FILE: ("which of the two files is the right one, nothing tells", "move one of them away"),
    codes.DIR_MISSING_PATH: ("a part of the store may be elsewhere", "mount the disk, or correct broker.conf"),
    codes.CL_FOREIGN_FILE: (
        "whose messages are the right ones here, nothing in the store tells",
        "put the right file there, from a replica or a backup; or move this one away, and run this again",
    ),
    codes.DIR_OPEN_JOURNAL: (
        "a repair was not finished",
        "rmqstore undo, or rmqstore resume, with the journal named above",
    ),
}
"""Before these are decided, nothing at all is planned."""
_BY_HAND: Mapping[str, Reason] = {
    codes.DIR_UNREADABLE: (
        "the operating system refuses to read it",
        "give yourself the right to read it, then run this again",
    ),
    codes.DIR_OWNER: ("owners and modes are for you to set", "run the command that `rmqstore verify` gives"),
    codes.DIR_STRAY_FILE: ("it is no plain file, or stands where only a person may move it", "move it away by hand"),
    codes.DIR_LINK: ("links are not changed", "look where it leads"),
    codes.CL_NO_MESSAGES: (
        "its messages are not in this store: there is nothing to recover them from",
        "if storePathCommitLog is set, give broker.conf with -c; else take the commitlog's files from a replica or a "
        "backup",
    ),
    codes.CL_UNKNOWN_MAGIC: ("a newer or encrypted format is not touched", "use the version that wrote it"),
    codes.CL_CONTRADICTED: (
        "what its properties were is not in the store, and its index entries are the only trace of the damage",
        "take the file from a replica or a backup; or add --only CL-CONTRADICTED, which indexes the message under the "
        "keys that it has now, so that the trace is gone",
    ),
    codes.CL_QUEUE_OFFSET_REPEAT: (
        "which of the records has the right QUEUEOFFSET, nothing proves",
        "their consumers get one of them; `rmqstore dump` shows both",
    ),
    codes.CFG_NO_TOPICS: (
        "which other settings the topics had, nothing in the store tells",
        "take config/topics.json from a replica or a backup; or write one that gives each of these topics the "
        'attribute "queue.type": "BatchCQ"',
    ),
    codes.CFG_UNREADABLE: ("neither the file nor its .bak can be parsed", f"write it anew, or {_RAW}"),
    codes.TM_COMPACTION: (
        "compacted messages are nowhere else in the store",
        "move the queue's directories out of compaction/ (it is compacted anew from what the log has), or " + _RAW,
    ),
}
_ASKED: Mapping[str, str] = {
    codes.CFG_OFFSET_BEYOND: "consumer offsets are only cut on request: they may be right, and the queue too short",
    codes.CFG_DELAY_BEYOND: "delay offsets are only cut on request: they may be right, and the queue too short",
    codes.DIR_QUEUE_KIND: "it moves a topic's queues away, which only makes sense if topics.json is right",
    codes.TM_LOG: "timer units that are cut are timed messages that are not delivered",
    codes.TM_DANGLING: "timer units that are cut are timed messages that are not delivered",
    codes.TM_WHEEL_SLOT: "with slots as the timer log has them, timed messages are delivered that now would not be",
    codes.TM_CHAIN: "with its units linked again, timed messages are delivered that now would not be",
}


_DOUBT: Reason = (
    "the unit or the TAGS of its message are damaged, and nothing tells which: the unit may be the only trace",
    f"compare the message with a replica or a backup; or add --only {TAG_CODE}, which makes the unit fit the message",
)
_PARTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "cq": ("consume queues are", ("CQ-", "BCQ-")),
    "index": ("index is", ("IX-",)),
    "checkpoint": ("checkpoint is", ("CK-",)),
    "dledger-index": ("DLedger index is", (codes.DL_DATA_INDEX, codes.DL_INDEX_GHOST)),
}


def what_stays(report: Report, draft: PlanBuilder, options: RecoverOptions, choice: Choice) -> dict[str, Json]:
    """`{code: {"count", "why", "do"}}` for problems above a note that the draft does not cure.

    Beside steps only those with a reason of their own: others may go with what the steps cure.
    """
    stopped = [code for code in _DECIDE if code in report.findings.counts]
    out: dict[str, Json] = {}
    for code, count in _open(report, draft):
        reason = _reason(code, draft, options, choice, stopped)
        if reason is not None:
            out[code] = {"count": count, "why": reason[0], "do": reason[1]}
    return out


def outside_of(part: str, report: Report, draft: PlanBuilder) -> dict[str, Json]:
    """The same where only one part was made anew."""
    why = f"only the {_PARTS[part][0]} made again by this"
    out: dict[str, Json] = {}
    for code, count in _open(report, draft):
        proved, doubt = code in open_codes(draft), code == TAG_CODE and FACT in draft.facts
        if proved or not (draft.steps and code.startswith(_PARTS[part][1])):
            out[code] = {
                "count": count,
                "why": _PROVED if proved else _DOUBT[0] if doubt else why,
                "do": "rmqstore recover plans for all of it",
            }
    return out


def _open(report: Report, draft: PlanBuilder) -> Iterator[tuple[str, int]]:
    for code, count in sorted(report.findings.counts.items()):
        if count and PROBLEMS[code].severity > Severity.NOTE and code not in draft.cures:
            yield code, count


def _reason(
    code: str, draft: PlanBuilder, options: RecoverOptions, choice: Choice, stopped: list[str]
) -> Reason | None:
    if code in _DECIDE:
        return _DECIDE[code]
    if stopped:
        return f"nothing is planned while there is {', '.join(stopped)}", "cure that first, then run this again"
    if code in open_codes(draft):
        if choice.strategy == TRUNCATE:
            return _PROVED, _REPLICA
        return _PROVED, "run this without --only: it mends the message"
    if options.only and code not in options.only:
        return "--only asks for other problems", f"run this without --only, or with --only {code}"
    if code in _BY_HAND:
        return _BY_HAND[code]
    if code == TAG_CODE and FACT in draft.facts and TAG_CODE not in options.only:
        return _DOUBT
    if code in (codes.CL_MISSING_FILE, codes.DL_MISSING_FILE):
        return _missing_file(options)
    row = PROBLEMS[code]
    if row.remedy == "recover" and not row.safe and code not in options.only:
        return _ASKED.get(code, "it is only changed when asked for"), f"add --only {code}"
    if choice.strategy == TRUNCATE and code not in MISPLACED and code.startswith(("CL-", "DL-", codes.CQ_WRONG_TAG)):
        return (
            "a replica must equal its master, so truncate changes nothing but the log's end",
            _REPLICA,
        )
    if code == codes.CQ_LEFT_BEHIND and draft.store.kind is StoreKind.ROCKSDB:
        return _left_in_rocksdb(draft.store)
    if code.startswith("CQ-") and draft.store.kind is StoreKind.ROCKSDB:
        return _wrong_in_rocksdb(draft.store)
    if draft.steps:
        return None
    if draft.brakes:
        return "see what needs a decision", _RAW
    return (
        "nothing in the store proves what was there",
        _RAW,
    )


def _left_in_rocksdb(store: Store) -> Reason:
    """Only the broker writes rows, and it does when its start begins early enough, as after a crash."""
    return (
        "the rows that are missing are only the broker's to write",
        f"{_whole_log(store)}, start the broker once: "
        "that start dispatches all messages of the log (a start without it gives only the last files their rows, and "
        "then no later start goes back)",
    )


def _wrong_in_rocksdb(store: Store) -> Reason:
    """No start looks at what lies before the last row; without any rows it begins with the log's first file."""
    return (
        "rows are only the broker's to write, and no start goes back to those before the last",
        f"with the broker stopped, move all files (not the directories) of consumequeue/ out of the store, "
        f"{_whole_log(store)}, start the broker once: that start writes the rows of all messages of the log",
    )


def _whole_log(store: Store) -> str:
    files = len(store.commitlog) if store.commitlog is not None else 0
    abort = "" if store.abort else ", make an empty file abort in the store"
    return f"set commitLogRecoverMaxNum={files} in broker.conf (the log has {files} files){abort}"


def _missing_file(options: RecoverOptions) -> Reason:
    if options.accept_fillers:
        return "nothing in the store tells what the missing file held", "take the file from a replica or a backup"
    return (
        "the messages of the missing file are not in this store",
        "give the file back from a replica or a backup; or --accept-fillers, which puts fillers in its place and "
        "shows the loss",
    )
