"""Rows of the table of problems: what stands beside logs and queues, directories (DIR), checkpoint (CK), configuration
(CFG), timer (TM).
"""

from __future__ import annotations

from rmqstore.checks.problems import codes
from rmqstore.checks.problems.problem import OperatorTask, Problem, Rows, Severity

_N, _W, _E = Severity.NOTE, Severity.WARNING, Severity.ERROR

DIRECTORY: Rows = (
    Problem(
        code=codes.DIR_STRAY_FILE,
        title="foreign entry where a broker lists",
        severity=_E,
        remedy="recover",
        safe=True,
        needs_operator=OperatorTask(
            why="it is no plain file, or stands where only a person may move it",
            do="move it away by hand",
        ),
        about=(
            "A file whose name is no offset, or whose length does not fit, or (before 5.1.0) a directory, stands in "
            "commitlog/, timerlog/ or a queue directory. The broker stops at it: `length not matched message store "
            "config value` or NumberFormatException, exit code 253. In the place of consumequeue/ it lets the broker "
            "start, but no message gets a unit."
        ),
    ),
    Problem(
        code=codes.DIR_SUB_DIRECTORY,
        title="directory inside a directory of files",
        severity=_W,
        remedy="recover",
        safe=True,
        about=(
            "RocketMQ before 5.1.0 does not start with a directory inside commitlog/ or a queue directory; newer ones "
            "skip it."
        ),
    ),
    Problem(
        code=codes.DIR_EMPTY_FILE,
        title="file of 0 bytes",
        severity=_E,
        remedy="recover",
        safe=True,
        about=(
            "A crash between creating a file and setting its length leaves 0 bytes. Brokers before 5.1.3 do not start "
            "(`length not matched`); newer ones delete it when it is the last name, and lose the queue's end with it."
        ),
    ),
    Problem(
        code=codes.DIR_WRONG_LENGTH,
        title="file of the wrong length",
        severity=_E,
        remedy="recover",
        safe=True,
        about=(
            "A file is shorter or longer than the queue's files. Most versions do not start (`length not matched "
            "message store config value`, exit 253), 4.3, 4.4 and 4.9.2 silently ignore it and everything behind it."
        ),
    ),
    Problem(
        code=codes.DIR_FILE_SIZE,
        title="file size differs from the configuration",
        severity=_E,
        explains=2,
        needs_operator=OperatorTask(
            why="the configuration differs from the files",
            do="set the key that is named above",
            stops_all=True,
        ),
        about=(
            "All files of a queue have another length than broker.conf says. The broker does not start (`length not "
            "matched`): set the key named in the finding to the size of the files. What else is found may only follow "
            "from it."
        ),
    ),
    Problem(
        code=codes.DIR_DUPLICATE_FILE,
        title="the same file name in two commitlog paths",
        severity=_E,
        needs_operator=OperatorTask(
            why="which of the two files is the right one, nothing tells",
            do="move one of them away",
            stops_all=True,
        ),
        about=(
            "Two directories of a multi-path commitlog hold a file of the same name; the broker loads both and reads "
            "one of them (apache/rocketmq issue 8859)."
        ),
    ),
    Problem(
        code=codes.DIR_MISSING_PATH,
        title="a configured path is not there",
        severity=_E,
        explains=1,
        needs_operator=OperatorTask(
            why="a part of the store may be elsewhere",
            do="mount the disk, or correct broker.conf",
            stops_all=True,
        ),
        about=(
            "broker.conf names a commitlog or DLedger path that does not exist: an unmounted disk? Nothing is repaired "
            "while a part of the store may be elsewhere."
        ),
    ),
    Problem(
        code=codes.DIR_UNREADABLE,
        title="entry that cannot be read",
        severity=_E,
        needs_operator=OperatorTask(
            why="the operating system refuses to read it",
            do="give yourself the right to read it, then run this again",
        ),
        about="The operating system refused to read a file or directory (permission, I/O error).",
    ),
    Problem(
        code=codes.DIR_OWNER,
        title="files that the broker's user may not write",
        severity=_W,
        needs_operator=OperatorTask(
            why="owners and modes are for you to set",
            do="run the command that `rmqstore verify` gives",
        ),
        about=(
            "Some files or directories of the store belong to another user than most of what brokers make, and by "
            "owner, group and mode that user may not read and write them: after a restore, or a start, as another "
            "user. The broker stops at such a log, queue or checkpoint (`Permission denied`, exit 253), and cannot "
            "make new files in such a directory. The finding has the command that cures it; if the broker runs as root "
            "it does no harm."
        ),
    ),
    Problem(
        code=codes.DIR_QUEUE_KIND,
        title="queue directory of the wrong kind",
        severity=_E,
        remedy="recover",
        asked="it moves a topic's queues away, which only makes sense if topics.json is right",
        about=(
            "A topic stands in batchconsumequeue/ though topics.json does not say queue.type=BatchCQ (or the other way "
            "round): loading throws and the broker does not start."
        ),
    ),
    Problem(
        code=codes.DIR_FOREIGN_ENTRY,
        title="entry that no broker makes",
        severity=_N,
        about="A file or directory beside topic or queue directories, or in index/, that is skipped by the broker.",
    ),
    Problem(
        code=codes.DIR_OPEN_JOURNAL,
        title="a repair of this store was not finished",
        severity=_W,
        remedy="undo",
        needs_operator=OperatorTask(
            why="a repair was not finished",
            do="rmqstore undo, or rmqstore resume, with the journal named above",
            stops_all=True,
        ),
        about="A journal of rmqstore stands in the store whose apply stopped half-way. Undo or resume it first.",
    ),
    Problem(
        code=codes.DIR_LINK,
        title="symbolic link at the top of the store",
        severity=_N,
        needs_operator=OperatorTask(
            why="links are not changed",
            do="look where it leads",
        ),
        about=(
            "A link at the top of the store was followed. Files that are links are read as a broker reads them, but "
            "nothing is ever written through one."
        ),
    ),
)

CHECKPOINT: Rows = (
    Problem(
        code=codes.CK_MISSING,
        title="no checkpoint file, or all zero",
        severity=_N,
        safe=True,
        about=(
            "The broker creates it; after a crash its recovery then begins at the first file (5.4.0: ten files back). "
            "Brokers that were killed soon after their start leave it zero."
        ),
    ),
    Problem(
        code=codes.CK_LENGTH,
        title="checkpoint is no file of 4096 bytes",
        severity=_W,
        remedy="recover",
        safe=True,
        about="A short file is extended with zeros by the broker, a directory stops the start.",
    ),
    Problem(
        code=codes.CK_AHEAD,
        title="checkpoint is later than the log",
        severity=_W,
        remedy="recover",
        safe=True,
        points_behind_log=True,
        about=(
            "A time in the checkpoint is later than the last message: garbage, or a log that was cut. After a crash "
            "recovery begins too late and does not see older damage."
        ),
    ),
    Problem(
        code=codes.CK_GARBAGE,
        title="checkpoint holds impossible values",
        severity=_W,
        remedy="recover",
        safe=True,
        about="Negative or absurd times or offsets.",
    ),
)

CONFIG: Rows = (
    Problem(
        code=codes.CFG_UNREADABLE,
        title="config file and its .bak cannot be parsed",
        severity=_E,
        needs_operator=OperatorTask(
            why="neither the file nor its .bak can be parsed",
            do="write it anew, or take the file from a replica or a backup",
        ),
        about="Neither the file nor its .bak is JSON: the broker does not start (exit 253).",
    ),
    Problem(
        code=codes.CFG_NO_TOPICS,
        title="topics.json is missing, and topics have batch queues",
        severity=_E,
        needs_operator=OperatorTask(
            why="which other settings the topics had, nothing in the store tells",
            do=(
                "take config/topics.json from a replica or a backup; or write one that gives each of these topics the "
                'attribute "queue.type": "BatchCQ"'
            ),
        ),
        about=(
            "batchconsumequeue/ has queues, and neither topics.json nor its .bak says queue.type=BatchCQ of their "
            "topics: the broker does not start (exit 253, `The queue type of topic … should be BatchCQ, but is "
            "SimpleCQ`). Take config/topics.json from a replica or a backup."
        ),
    ),
    Problem(
        code=codes.CFG_BROKEN,
        title="config file is broken, its .bak is good",
        severity=_W,
        remedy="recover",
        safe=True,
        about=(
            "The file is missing, empty, NUL-filled or cut, as after a power failure. The broker falls back to the "
            ".bak; 5.4.0 deletes the broken file."
        ),
    ),
    Problem(
        code=codes.CFG_BROKEN_BAK,
        title="backup of a config file is broken",
        severity=_N,
        remedy="recover",
        safe=True,
        about="The .bak cannot be parsed; the file itself is good.",
    ),
    Problem(
        code=codes.CFG_OFFSET_BEYOND,
        title="consumer offset beyond the queue's end",
        severity=_W,
        remedy="recover",
        points_behind_log=True,
        asked="consumer offsets are only cut on request: they may be right, and the queue too short",
        about=(
            "A group's offset is greater than the queue's maximum: the client is reset to the end "
            "(OFFSET_OVERFLOW_BADLY) and skips what is written until then."
        ),
    ),
    Problem(
        code=codes.CFG_DELAY_BEYOND,
        title="delay offset beyond the queue's end",
        severity=_W,
        remedy="recover",
        asked="delay offsets are only cut on request: they may be right, and the queue too short",
        about="delayOffset.json is ahead of a queue of SCHEDULE_TOPIC_XXXX: messages of that level would be skipped.",
    ),
)

TIMER: Rows = (
    Problem(
        code=codes.TM_LOG,
        title="timer log is damaged",
        severity=_W,
        remedy="recover",
        asked="timer units that are cut are timed messages that are not delivered",
        about="A unit of the timer log has a wrong size or magic: recovery stops there.",
    ),
    Problem(
        code=codes.TM_DANGLING,
        title="timer units point behind the log",
        severity=_W,
        remedy="recover",
        asked="timer units that are cut are timed messages that are not delivered",
        about=(
            "Timer units refer to messages that are no longer in the commitlog; the dequeue service may stall "
            "(apache/rocketmq issue 10668)."
        ),
    ),
    Problem(
        code=codes.TM_WHEEL_LENGTH,
        title="timerwheel of the wrong length",
        severity=_E,
        remedy="recover",
        safe=True,
        about=(
            "The length is not 2 x slots x 32: brokers from 5.0.0 on do not start. It is made anew from the timer log."
        ),
    ),
    Problem(
        code=codes.TM_WHEEL_SLOT,
        title="slots of the timerwheel do not lead to their units",
        severity=_E,
        remedy="recover",
        asked="with slots as the timer log has them, timed messages are delivered that now would not be",
        about=(
            "A start links only the newest part of the timer log anew. Behind it, slots that are still to be read do "
            "not lead to the last unit that is due then: those timed messages are never delivered. Or they lead to "
            "other units: these messages are delivered too early; or behind the timer log's end: what is written there "
            "later is."
        ),
    ),
    Problem(
        code=codes.TM_CHAIN,
        title="timer units do not lead to the one before",
        severity=_E,
        remedy="recover",
        asked="with its units linked again, timed messages are delivered that now would not be",
        about=(
            "A unit that is still to be delivered has another previous position than that of the unit before it in its "
            "slot. Those before it are never delivered; where it leads back to itself, the dequeue service reads on "
            "until the memory is used up, and no timed message is delivered any more."
        ),
    ),
    Problem(
        code=codes.TM_CHECK,
        title="timercheck does not fit",
        severity=_W,
        remedy="recover",
        asked="it is only changed when asked for",
        about="timercheck is short, or its positions are behind the timer log or the timer queue.",
    ),
    Problem(
        code=codes.TM_COMPACTION,
        title="compaction log and its queue differ",
        severity=_E,
        needs_operator=OperatorTask(
            why="compacted messages are nowhere else in the store",
            do=(
                "move the queue's directories out of compaction/ (it is compacted anew from what the log has), or take "
                "the file from a replica or a backup"
            ),
        ),
        about=(
            "compactionLog and compactionCq of a queue must hold the same file names, else the broker does not start; "
            "or a record or unit in them is damaged."
        ),
    ),
)
