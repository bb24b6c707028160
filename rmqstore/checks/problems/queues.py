"""Rows of the table of problems: what is made from the log, consume queues (CQ, BCQ the batch ones) and index (IX)."""

from __future__ import annotations

from rmqstore.checks.problems import codes
from rmqstore.checks.problems.problem import Problem, Rows, Severity

_N, _W, _E = Severity.NOTE, Severity.WARNING, Severity.ERROR

CONSUME_QUEUE: Rows = (
    Problem(
        code=codes.CQ_MISSING_UNIT,
        title="message without its consume queue unit",
        severity=_E,
        remedy="recover",
        safe=True,
        lacks_units=True,
        migration_repairs=True,
        about=(
            "A message of the log has no unit at its queue offset: consumers never get it. Not every start rebuilds it."
        ),
    ),
    Problem(
        code=codes.CQ_MISSING_QUEUE,
        title="queue without directory or files",
        severity=_E,
        remedy="recover",
        safe=True,
        lacks_units=True,
        migration_repairs=True,
        about=(
            "Messages of this queue are in the log, its consume queue is not. 5.x does not rebuild it after a clean "
            "exit."
        ),
    ),
    Problem(
        code=codes.CQ_BEHIND,
        title="consume queues are behind the log",
        severity=_N,
        safe=True,
        migration_repairs=True,
        about=(
            "The last messages of the log have no units in any queue yet: the broker was killed (or is running) before "
            "it dispatched them, or they are DLedger entries that no leader has committed. The next start, or the "
            "running broker, does that; where it would not do so, CQ-LEFT-BEHIND says it."
        ),
    ),
    Problem(
        code=codes.CQ_LEFT_BEHIND,
        title="messages that the next start leaves without units",
        severity=_E,
        remedy="recover",
        safe=True,
        lacks_units=True,
        about=(
            "Consume queues are behind the log, and the next start dispatches from a later file on only: consumers "
            "never get these messages. So it is when consume queues were removed by hand after a crash, or when a kill "
            "took rows of a RocksDB that were in memory only: then one start with commitLogRecoverMaxNum as large as "
            "the number of log files dispatches them all."
        ),
    ),
    Problem(
        code=codes.CQ_DELETED_TOPIC,
        title="messages of a topic that was deleted",
        severity=_N,
        safe=True,
        about=(
            "Messages of this topic are in the log, but topics.json does not know it and it has no consume queue: the "
            "topic was deleted. `rmqstore export` still gets them out."
        ),
    ),
    Problem(
        code=codes.CQ_DANGLING_UNIT,
        title="unit that points to no record",
        severity=_E,
        remedy="recover",
        safe=True,
        about=(
            "No good record starts at the unit's commitlog offset, or at those of several units in a row. Consumers "
            "get errors there, or skip them."
        ),
    ),
    Problem(
        code=codes.CQ_WRONG_SIZE,
        title="unit with a wrong size",
        severity=_E,
        remedy="recover",
        safe=True,
        about="The unit's size is not the record's TOTALSIZE: consumers cannot decode what they get.",
    ),
    Problem(
        code=codes.CQ_WRONG_TAG,
        title="unit with a wrong tags code",
        severity=_E,
        remedy="recover",
        safe=True,
        mendable=True,
        about=(
            "The unit's tags code is not that of the message: consumers that filter by tag miss it. In "
            "SCHEDULE_TOPIC_XXXX it is the deliver time. Where one flipped bit of the message explains the code, the "
            "message's TAGS are what is wrong, and are put right. A code that is the hash of other tags is left alone, "
            "as it may be the only trace of damaged TAGS: only when asked for by name the unit is written as the "
            "message is."
        ),
    ),
    Problem(
        code=codes.CQ_WRONG_QUEUE,
        title="unit that points into another queue",
        severity=_E,
        remedy="recover",
        safe=True,
        about="The record at the unit's offset belongs to another topic or queue.",
    ),
    Problem(
        code=codes.CQ_OTHER_QUEUE,
        title="units of another queue",
        severity=_E,
        remedy="recover",
        safe=True,
        about=(
            "Units in a row lead to messages of one other queue (`right_queue`): a directory of consumequeue/ was "
            "renamed or copied, or files were put back into the wrong one. The messages are right, and are not "
            "changed: `recover` writes the units of both queues from the log. Where the directory was only renamed, "
            "naming it back is enough."
        ),
    ),
    Problem(
        code=codes.CQ_FOREIGN,
        title="consume queues and log are not of one store",
        severity=_E,
        remedy="recover",
        safe=True,
        explains=5,
        about=(
            "Hardly any unit of any queue leads to where a message starts: consumequeue/, or commitlog/, is another "
            "broker's, or was restored from another store. Where the log is the right one, `recover --force` writes "
            "all units from it; consumers' offsets in config/ count units of the queues that were there."
        ),
    ),
    Problem(
        code=codes.CQ_SHIFTED,
        title="units stand at the wrong queue offset",
        severity=_E,
        remedy="recover",
        safe=True,
        about=(
            "From here on units stand at another index than their messages' QUEUEOFFSET: `[BUG]logic queue order maybe "
            "wrong`. Consumers' offsets mean other messages."
        ),
    ),
    Problem(
        code=codes.CQ_OUT_OF_ORDER,
        title="commitlog offsets of units do not rise",
        severity=_E,
        remedy="recover",
        safe=True,
        about="Units of a queue are not sorted by commitlog offset; the binary search for its minimum goes wrong.",
    ),
    Problem(
        code=codes.CQ_BEYOND_LOG,
        title="units point behind the end of the log",
        severity=_E,
        remedy="recover",
        safe=True,
        points_behind_log=True,
        about=(
            "The queue is ahead of the commitlog. A broker truncates it at the next start (`truncate dirty logic "
            "files`), but does not erase the units."
        ),
    ),
    Problem(
        code=codes.CQ_GHOST_UNITS,
        title="units behind the end of the queue",
        severity=_E,
        remedy="recover",
        safe=True,
        about=(
            "Behind the queue's end stand old units that were never erased. When the gap closes they become valid, and "
            "point to other messages."
        ),
    ),
    Problem(
        code=codes.CQ_PRE_BLANK_ONLY,
        title="queue of pre-blank units only",
        severity=_E,
        remedy="recover",
        safe=True,
        about=(
            "A queue that holds nothing but pre-blanks reports a maximum of 2147483647: 4.9 then dispatches nothing "
            "for any queue until the log passes 2 GiB, 5.x not for this one."
        ),
    ),
    Problem(
        code=codes.CQ_ZERO_LAST_FILE,
        title="last consume queue file is all zeros",
        severity=_E,
        remedy="recover",
        safe=True,
        about="A new file without a unit behind a full one. 5.x may fail to load, 4.9 counts a unit too many.",
    ),
    Problem(
        code=codes.CQ_MISSING_FILE,
        title="a file is missing in the middle of a queue",
        severity=_E,
        remedy="recover",
        safe=True,
        about="Offsets of that file return nothing; no start rebuilds it.",
    ),
    Problem(
        code=codes.CQ_BAD_PRE_BLANK,
        title="pre-blank unit behind real units",
        severity=_E,
        remedy="recover",
        safe=True,
        about="Pre-blanks belong only in front of a queue's first unit.",
    ),
    Problem(
        code=codes.CQ_PARTLY_REBUILT,
        title="pre-blank units in front though the log has the messages",
        severity=_E,
        remedy="recover",
        safe=True,
        lacks_units=True,
        about=(
            "A start rebuilt this queue only from the files that it scanned: older messages of the log are not in it."
        ),
    ),
    Problem(
        code=codes.CQ_EXT,
        title="consume queue extension is damaged",
        severity=_E,
        remedy="recover",
        safe=True,
        about=(
            "A unit refers to an extension address that is not there, or an extension unit has a wrong size. Brokers "
            "say `[BUG] can't find consume queue extend file content`, and consumers filter those messages themselves. "
            "The unit gets its tags code again; what bit map it had, nothing can tell."
        ),
    ),
)

BATCH_CONSUME_QUEUE: Rows = (
    Problem(
        code=codes.BCQ_MISSING_UNIT,
        title="batch without its unit",
        severity=_E,
        remedy="recover",
        safe=True,
        lacks_units=True,
        about="A message or inner batch of a BatchCQ topic has no unit.",
    ),
    Problem(
        code=codes.BCQ_DANGLING_UNIT,
        title="batch unit that points to no record",
        severity=_E,
        remedy="recover",
        safe=True,
        mendable=True,
        points_behind_log=True,
        about="No good record starts at the unit's commitlog offset.",
    ),
    Problem(
        code=codes.BCQ_WRONG_UNIT,
        title="batch unit that differs from its record",
        severity=_E,
        remedy="recover",
        safe=True,
        mendable=True,
        about="Size, tags code, store time, base offset or count of the unit is not the record's.",
    ),
    Problem(
        code=codes.BCQ_ORDER,
        title="batch units out of order",
        severity=_E,
        remedy="recover",
        safe=True,
        about="Base offsets overlap or go back.",
    ),
    Problem(
        code=codes.BCQ_GHOST_UNITS,
        title="batch units behind the end",
        severity=_E,
        remedy="recover",
        safe=True,
        about="Old units behind the end of the queue.",
    ),
)

INDEX: Rows = (
    Problem(
        code=codes.IX_HEADER,
        title="index header does not fit its content",
        severity=_W,
        remedy="recover",
        safe=True,
        about="Count, times or offsets in the header are not those of the entries.",
    ),
    Problem(
        code=codes.IX_CHAIN_LOOP,
        title="endless chain in an index file",
        severity=_E,
        remedy="recover",
        safe=True,
        about=(
            "An entry's predecessor leads back to it: a query for such a key never ends in the broker "
            "(IndexFile#selectPhyOffset)."
        ),
    ),
    Problem(
        code=codes.IX_BAD_ENTRY,
        title="index slot or entry out of range",
        severity=_E,
        remedy="recover",
        safe=True,
        about=(
            "A slot or predecessor is not the newest entry of its slot before it: chains are cut or mixed, queries "
            "miss messages. Or an entry's time is not its message's, and queries by time miss it."
        ),
    ),
    Problem(
        code=codes.IX_DANGLING_ENTRY,
        title="index entries that point to no record",
        severity=_W,
        remedy="recover",
        safe=True,
        points_behind_log=True,
        about="Entries point behind the log's end or where no record starts. Brokers never remove them.",
    ),
    Problem(
        code=codes.IX_NOT_INDEXED,
        title="messages missing in the index",
        severity=_W,
        remedy="recover",
        safe=True,
        about=(
            "Messages with keys, younger than the oldest index file, are in no index file: queries by key or id find "
            "nothing."
        ),
    ),
    Problem(
        code=codes.IX_FILE_LENGTH,
        title="index file of the wrong length",
        severity=_W,
        remedy="recover",
        safe=True,
        about="A short file is silently extended with zeros by the broker; an empty one starts anew.",
    ),
)
