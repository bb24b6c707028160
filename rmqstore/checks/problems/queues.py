"""Rows of the table of problems: what is made from the log, consume queues (CQ, BCQ the batch ones) and index (IX)."""

from __future__ import annotations

from rmqstore.checks.problems import codes
from rmqstore.checks.problems.problem import Problem, Rows, Severity

_N, _W, _E = Severity.NOTE, Severity.WARNING, Severity.ERROR

CONSUME_QUEUE: Rows = (
    Problem(
        codes.CQ_MISSING_UNIT,
        "message without its consume queue unit",
        _E,
        "recover",
        True,
        "A message of the log has no unit at its queue offset: consumers never get it. Not every start rebuilds it.",
    ),
    Problem(
        codes.CQ_MISSING_QUEUE,
        "queue without directory or files",
        _E,
        "recover",
        True,
        "Messages of this queue are in the log, its consume queue is not. 5.x does not rebuild it after a clean exit.",
    ),
    Problem(
        codes.CQ_BEHIND,
        "consume queues are behind the log",
        _N,
        None,
        True,
        "The last messages of the log have no units in any queue yet: the broker was killed (or is running) before it "
        "dispatched them, or they are DLedger entries that no leader has committed. The next start, or the running "
        "broker, does that; where it would not do so, CQ-LEFT-BEHIND says it.",
    ),
    Problem(
        codes.CQ_LEFT_BEHIND,
        "messages that the next start leaves without units",
        _E,
        "recover",
        True,
        "Consume queues are behind the log, and the next start dispatches from a later file on only: consumers never "
        "get these messages. So it is when consume queues were removed by hand after a crash, or when a kill took rows "
        "of a RocksDB that were in memory only: then one start with commitLogRecoverMaxNum as large as the number of "
        "log files dispatches them all.",
    ),
    Problem(
        codes.CQ_DELETED_TOPIC,
        "messages of a topic that was deleted",
        _N,
        None,
        True,
        "Messages of this topic are in the log, but topics.json does not know it and it has no consume queue: the "
        "topic was deleted. `rmqstore export` still gets them out.",
    ),
    Problem(
        codes.CQ_DANGLING_UNIT,
        "unit that points to no record",
        _E,
        "recover",
        True,
        "No good record starts at the unit's commitlog offset, or at those of several units in a row. Consumers get "
        "errors there, or skip them.",
    ),
    Problem(
        codes.CQ_WRONG_SIZE,
        "unit with a wrong size",
        _E,
        "recover",
        True,
        "The unit's size is not the record's TOTALSIZE: consumers cannot decode what they get.",
    ),
    Problem(
        codes.CQ_WRONG_TAG,
        "unit with a wrong tags code",
        _E,
        "recover",
        True,
        "The unit's tags code is not that of the message: consumers that filter by tag miss it. In "
        "SCHEDULE_TOPIC_XXXX it is the deliver time. Where one flipped bit of the message explains the code, the "
        "message's TAGS are what is wrong, and are put right. A code that is the hash of other tags is left alone, as "
        "it may be the only trace of damaged TAGS: only when asked for by name the unit is written as the message is.",
    ),
    Problem(
        codes.CQ_WRONG_QUEUE,
        "unit that points into another queue",
        _E,
        "recover",
        True,
        "The record at the unit's offset belongs to another topic or queue.",
    ),
    Problem(
        codes.CQ_OTHER_QUEUE,
        "units of another queue",
        _E,
        "recover",
        True,
        "Units in a row lead to messages of one other queue (`right_queue`): a directory of consumequeue/ was renamed "
        "or copied, or files were put back into the wrong one. The messages are right, and are not changed: `recover` "
        "writes the units of both queues from the log. Where the directory was only renamed, naming it back is enough.",
    ),
    Problem(
        codes.CQ_FOREIGN,
        "consume queues and log are not of one store",
        _E,
        "recover",
        True,
        "Hardly any unit of any queue leads to where a message starts: consumequeue/, or commitlog/, is another "
        "broker's, or was restored from another store. Where the log is the right one, `recover --force` writes all "
        "units from it; consumers' offsets in config/ count units of the queues that were there.",
    ),
    Problem(
        codes.CQ_SHIFTED,
        "units stand at the wrong queue offset",
        _E,
        "recover",
        True,
        "From here on units stand at another index than their messages' QUEUEOFFSET: `[BUG]logic queue order maybe "
        "wrong`. Consumers' offsets mean other messages.",
    ),
    Problem(
        codes.CQ_OUT_OF_ORDER,
        "commitlog offsets of units do not rise",
        _E,
        "recover",
        True,
        "Units of a queue are not sorted by commitlog offset; the binary search for its minimum goes wrong.",
    ),
    Problem(
        codes.CQ_BEYOND_LOG,
        "units point behind the end of the log",
        _E,
        "recover",
        True,
        "The queue is ahead of the commitlog. A broker truncates it at the next start (`truncate dirty logic "
        "files`), but does not erase the units.",
    ),
    Problem(
        codes.CQ_GHOST_UNITS,
        "units behind the end of the queue",
        _E,
        "recover",
        True,
        "Behind the queue's end stand old units that were never erased. When the gap closes they become valid, and "
        "point to other messages.",
    ),
    Problem(
        codes.CQ_PRE_BLANK_ONLY,
        "queue of pre-blank units only",
        _E,
        "recover",
        True,
        "A queue that holds nothing but pre-blanks reports a maximum of 2147483647: 4.9 then dispatches nothing for "
        "any queue until the log passes 2 GiB, 5.x not for this one.",
    ),
    Problem(
        codes.CQ_ZERO_LAST_FILE,
        "last consume queue file is all zeros",
        _E,
        "recover",
        True,
        "A new file without a unit behind a full one. 5.x may fail to load, 4.9 counts a unit too many.",
    ),
    Problem(
        codes.CQ_MISSING_FILE,
        "a file is missing in the middle of a queue",
        _E,
        "recover",
        True,
        "Offsets of that file return nothing; no start rebuilds it.",
    ),
    Problem(
        codes.CQ_BAD_PRE_BLANK,
        "pre-blank unit behind real units",
        _E,
        "recover",
        True,
        "Pre-blanks belong only in front of a queue's first unit.",
    ),
    Problem(
        codes.CQ_PARTLY_REBUILT,
        "pre-blank units in front though the log has the messages",
        _E,
        "recover",
        True,
        "A start rebuilt this queue only from the files that it scanned: older messages of the log are not in it.",
    ),
    Problem(
        codes.CQ_EXT,
        "consume queue extension is damaged",
        _E,
        "recover",
        True,
        "A unit refers to an extension address that is not there, or an extension unit has a wrong size. Brokers say "
        "`[BUG] can't find consume queue extend file content`, and consumers filter those messages themselves. The "
        "unit gets its tags code again; what bit map it had, nothing can tell.",
    ),
)

BATCH_CONSUME_QUEUE: Rows = (
    Problem(
        codes.BCQ_MISSING_UNIT,
        "batch without its unit",
        _E,
        "recover",
        True,
        "A message or inner batch of a BatchCQ topic has no unit.",
    ),
    Problem(
        codes.BCQ_DANGLING_UNIT,
        "batch unit that points to no record",
        _E,
        "recover",
        True,
        "No good record starts at the unit's commitlog offset.",
    ),
    Problem(
        codes.BCQ_WRONG_UNIT,
        "batch unit that differs from its record",
        _E,
        "recover",
        True,
        "Size, tags code, store time, base offset or count of the unit is not the record's.",
    ),
    Problem(
        codes.BCQ_ORDER,
        "batch units out of order",
        _E,
        "recover",
        True,
        "Base offsets overlap or go back.",
    ),
    Problem(
        codes.BCQ_GHOST_UNITS,
        "batch units behind the end",
        _E,
        "recover",
        True,
        "Old units behind the end of the queue.",
    ),
)

INDEX: Rows = (
    Problem(
        codes.IX_HEADER,
        "index header does not fit its content",
        _W,
        "recover",
        True,
        "Count, times or offsets in the header are not those of the entries.",
    ),
    Problem(
        codes.IX_CHAIN_LOOP,
        "endless chain in an index file",
        _E,
        "recover",
        True,
        "An entry's predecessor leads back to it: a query for such a key never ends in the broker "
        "(IndexFile#selectPhyOffset).",
    ),
    Problem(
        codes.IX_BAD_ENTRY,
        "index slot or entry out of range",
        _E,
        "recover",
        True,
        "A slot or predecessor is not the newest entry of its slot before it: chains are cut or mixed, queries miss "
        "messages. Or an entry's time is not its message's, and queries by time miss it.",
    ),
    Problem(
        codes.IX_DANGLING_ENTRY,
        "index entries that point to no record",
        _W,
        "recover",
        True,
        "Entries point behind the log's end or where no record starts. Brokers never remove them.",
    ),
    Problem(
        codes.IX_NOT_INDEXED,
        "messages missing in the index",
        _W,
        "recover",
        True,
        "Messages with keys, younger than the oldest index file, are in no index file: queries by key or id find "
        "nothing.",
    ),
    Problem(
        codes.IX_FILE_LENGTH,
        "index file of the wrong length",
        _W,
        "recover",
        True,
        "A short file is silently extended with zeros by the broker; an empty one starts anew.",
    ),
)
