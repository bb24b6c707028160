"""Rows of the table of problems: what stands beside logs and queues, directories (DIR), checkpoint (CK), configuration
(CFG), timer (TM).
"""

from __future__ import annotations

from rmqstore.checks.problems import codes
from rmqstore.checks.problems.problem import Problem, Rows, Severity

_N, _W, _E = Severity.NOTE, Severity.WARNING, Severity.ERROR

DIRECTORY: Rows = (
    Problem(
        codes.DIR_STRAY_FILE,
        "foreign entry where a broker lists",
        _E,
        "recover",
        True,
        "A file whose name is no offset, or whose length does not fit, or (before 5.1.0) a directory, stands in "
        "commitlog/, timerlog/ or a queue directory. The broker stops at it: `length not matched message store "
        "config value` or NumberFormatException, exit code 253. In the place of consumequeue/ it lets the broker "
        "start, but no message gets a unit.",
    ),
    Problem(
        codes.DIR_SUB_DIRECTORY,
        "directory inside a directory of files",
        _W,
        "recover",
        True,
        "RocketMQ before 5.1.0 does not start with a directory inside commitlog/ or a queue directory; newer ones "
        "skip it.",
    ),
    Problem(
        codes.DIR_EMPTY_FILE,
        "file of 0 bytes",
        _E,
        "recover",
        True,
        "A crash between creating a file and setting its length leaves 0 bytes. Brokers before 5.1.3 do not start "
        "(`length not matched`); newer ones delete it when it is the last name, and lose the queue's end with it.",
    ),
    Problem(
        codes.DIR_WRONG_LENGTH,
        "file of the wrong length",
        _E,
        "recover",
        True,
        "A file is shorter or longer than the queue's files. Most versions do not start (`length not matched message "
        "store config value`, exit 253), 4.3, 4.4 and 4.9.2 silently ignore it and everything behind it.",
    ),
    Problem(
        codes.DIR_FILE_SIZE,
        "file size differs from the configuration",
        _E,
        None,
        False,
        "All files of a queue have another length than broker.conf says. The broker does not start (`length not "
        "matched`): set the key named in the finding to the size of the files. What else is found may only follow from "
        "it.",
    ),
    Problem(
        codes.DIR_DUPLICATE_FILE,
        "the same file name in two commitlog paths",
        _E,
        None,
        False,
        "Two directories of a multi-path commitlog hold a file of the same name; the broker loads both and reads one "
        "of them (apache/rocketmq issue 8859).",
    ),
    Problem(
        codes.DIR_MISSING_PATH,
        "a configured path is not there",
        _E,
        None,
        False,
        "broker.conf names a commitlog or DLedger path that does not exist: an unmounted disk? Nothing is repaired "
        "while a part of the store may be elsewhere.",
    ),
    Problem(
        codes.DIR_UNREADABLE,
        "entry that cannot be read",
        _E,
        None,
        False,
        "The operating system refused to read a file or directory (permission, I/O error).",
    ),
    Problem(
        codes.DIR_OWNER,
        "files that the broker's user may not write",
        _W,
        None,
        False,
        "Some files or directories of the store belong to another user than most of what brokers make, and by owner, "
        "group and mode that user may not read and write them: after a restore, or a start, as another user. The "
        "broker stops at such a log, queue or checkpoint (`Permission denied`, exit 253), and cannot make new files "
        "in such a directory. The finding has the command that cures it; if the broker runs as root it does no harm.",
    ),
    Problem(
        codes.DIR_QUEUE_KIND,
        "queue directory of the wrong kind",
        _E,
        "recover",
        False,
        "A topic stands in batchconsumequeue/ though topics.json does not say queue.type=BatchCQ (or the other way "
        "round): loading throws and the broker does not start.",
    ),
    Problem(
        codes.DIR_FOREIGN_ENTRY,
        "entry that no broker makes",
        _N,
        None,
        False,
        "A file or directory beside topic or queue directories, or in index/, that is skipped by the broker.",
    ),
    Problem(
        codes.DIR_OPEN_JOURNAL,
        "a repair of this store was not finished",
        _W,
        "undo",
        False,
        "A journal of rmqstore stands in the store whose apply stopped half-way. Undo or resume it first.",
    ),
    Problem(
        codes.DIR_LINK,
        "symbolic link at the top of the store",
        _N,
        None,
        False,
        "A link at the top of the store was followed. Files that are links are read as a broker reads them, but "
        "nothing is ever written through one.",
    ),
)

CHECKPOINT: Rows = (
    Problem(
        codes.CK_MISSING,
        "no checkpoint file, or all zero",
        _N,
        None,
        True,
        "The broker creates it; after a crash its recovery then begins at the first file (5.4.0: ten files back). "
        "Brokers that were killed soon after their start leave it zero.",
    ),
    Problem(
        codes.CK_LENGTH,
        "checkpoint is no file of 4096 bytes",
        _W,
        "recover",
        True,
        "A short file is extended with zeros by the broker, a directory stops the start.",
    ),
    Problem(
        codes.CK_AHEAD,
        "checkpoint is later than the log",
        _W,
        "recover",
        True,
        "A time in the checkpoint is later than the last message: garbage, or a log that was cut. After a crash "
        "recovery begins too late and does not see older damage.",
    ),
    Problem(
        codes.CK_GARBAGE,
        "checkpoint holds impossible values",
        _W,
        "recover",
        True,
        "Negative or absurd times or offsets.",
    ),
)

CONFIG: Rows = (
    Problem(
        codes.CFG_UNREADABLE,
        "config file and its .bak cannot be parsed",
        _E,
        None,
        False,
        "Neither the file nor its .bak is JSON: the broker does not start (exit 253).",
    ),
    Problem(
        codes.CFG_NO_TOPICS,
        "topics.json is missing, and topics have batch queues",
        _E,
        None,
        False,
        "batchconsumequeue/ has queues, and neither topics.json nor its .bak says queue.type=BatchCQ of their topics: "
        "the broker does not start (exit 253, `The queue type of topic … should be BatchCQ, but is SimpleCQ`). Take "
        "config/topics.json from a replica or a backup.",
    ),
    Problem(
        codes.CFG_BROKEN,
        "config file is broken, its .bak is good",
        _W,
        "recover",
        True,
        "The file is missing, empty, NUL-filled or cut, as after a power failure. The broker falls back to the .bak; "
        "5.4.0 deletes the broken file.",
    ),
    Problem(
        codes.CFG_BROKEN_BAK,
        "backup of a config file is broken",
        _N,
        "recover",
        True,
        "The .bak cannot be parsed; the file itself is good.",
    ),
    Problem(
        codes.CFG_OFFSET_BEYOND,
        "consumer offset beyond the queue's end",
        _W,
        "recover",
        False,
        "A group's offset is greater than the queue's maximum: the client is reset to the end (OFFSET_OVERFLOW_BADLY) "
        "and skips what is written until then.",
    ),
    Problem(
        codes.CFG_DELAY_BEYOND,
        "delay offset beyond the queue's end",
        _W,
        "recover",
        False,
        "delayOffset.json is ahead of a queue of SCHEDULE_TOPIC_XXXX: messages of that level would be skipped.",
    ),
)

TIMER: Rows = (
    Problem(
        codes.TM_LOG,
        "timer log is damaged",
        _W,
        "recover",
        False,
        "A unit of the timer log has a wrong size or magic: recovery stops there.",
    ),
    Problem(
        codes.TM_DANGLING,
        "timer units point behind the log",
        _W,
        "recover",
        False,
        "Timer units refer to messages that are no longer in the commitlog; the dequeue service may stall "
        "(apache/rocketmq issue 10668).",
    ),
    Problem(
        codes.TM_WHEEL_LENGTH,
        "timerwheel of the wrong length",
        _E,
        "recover",
        True,
        "The length is not 2 x slots x 32: brokers from 5.0.0 on do not start. It is made anew from the timer log.",
    ),
    Problem(
        codes.TM_WHEEL_SLOT,
        "slots of the timerwheel do not lead to their units",
        _E,
        "recover",
        False,
        "A start links only the newest part of the timer log anew. Behind it, slots that are still to be read do not "
        "lead to the last unit that is due then: those timed messages are never delivered. Or they lead to other "
        "units: these messages are delivered too early; or behind the timer log's end: what is written there later is.",
    ),
    Problem(
        codes.TM_CHAIN,
        "timer units do not lead to the one before",
        _E,
        "recover",
        False,
        "A unit that is still to be delivered has another previous position than that of the unit before it in its "
        "slot. Those before it are never delivered; where it leads back to itself, the dequeue service reads on until "
        "the memory is used up, and no timed message is delivered any more.",
    ),
    Problem(
        codes.TM_CHECK,
        "timercheck does not fit",
        _W,
        "recover",
        False,
        "timercheck is short, or its positions are behind the timer log or the timer queue.",
    ),
    Problem(
        codes.TM_COMPACTION,
        "compaction log and its queue differ",
        _E,
        None,
        False,
        "compactionLog and compactionCq of a queue must hold the same file names, else the broker does not start; or "
        "a record or unit in them is damaged.",
    ),
)
