"""PROBLEMS: everything that can be wrong, each a row of one closed table.

A check may only report codes of this table; every row has a two-pass case in the tests, and the manual page
rmqstore-problems(7) is made from it. The prefix says where: DIR directory, CL commitlog, CQ consume queue, BCQ batch
consume queue, IX index, CK store checkpoint, CFG config, DL DLedger, TM timer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum


class Severity(IntEnum):
    """NOTE: worth knowing, the store is sound. WARNING: may bite later. ERROR: data or a start is at stake."""

    NOTE = 1
    WARNING = 2
    ERROR = 3


@dataclass(frozen=True, slots=True)
class Problem:
    """One row: `remedy` is the command that cures it (None: nothing to do), `safe` whether it is applied by default."""

    code: str
    title: str
    severity: Severity
    remedy: str | None
    safe: bool
    about: str


def _table(*rows: Problem) -> Mapping[str, Problem]:
    table = {row.code: row for row in rows}
    if len(table) != len(rows):
        raise ValueError("a problem code stands twice in the table")
    return table


_N, _W, _E = Severity.NOTE, Severity.WARNING, Severity.ERROR

PROBLEMS: Mapping[str, Problem] = _table(
    # --- directory ---------------------------------------------------------------------------------------------
    Problem(
        "DIR-STRAY-FILE",
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
        "DIR-SUB-DIRECTORY",
        "directory inside a directory of files",
        _W,
        "recover",
        True,
        "RocketMQ before 5.1.0 does not start with a directory inside commitlog/ or a queue directory; newer ones "
        "skip it.",
    ),
    Problem(
        "DIR-EMPTY-FILE",
        "file of 0 bytes",
        _E,
        "recover",
        True,
        "A crash between creating a file and setting its length leaves 0 bytes. Brokers before 5.1.3 do not start "
        "(`length not matched`); newer ones delete it when it is the last name, and lose the queue's end with it.",
    ),
    Problem(
        "DIR-WRONG-LENGTH",
        "file of the wrong length",
        _E,
        "recover",
        True,
        "A file is shorter or longer than the queue's files. Most versions do not start (`length not matched message "
        "store config value`, exit 253), 4.3, 4.4 and 4.9.2 silently ignore it and everything behind it.",
    ),
    Problem(
        "DIR-FILE-SIZE",
        "file size differs from the configuration",
        _E,
        None,
        False,
        "All files of a queue have another length than broker.conf says. The broker does not start (`length not "
        "matched`): set the key named in the finding to the size of the files.",
    ),
    Problem(
        "DIR-DUPLICATE-FILE",
        "the same file name in two commitlog paths",
        _E,
        None,
        False,
        "Two directories of a multi-path commitlog hold a file of the same name; the broker loads both and reads one "
        "of them (apache/rocketmq issue 8859).",
    ),
    Problem(
        "DIR-MISSING-PATH",
        "a configured path is not there",
        _E,
        None,
        False,
        "broker.conf names a commitlog or DLedger path that does not exist: an unmounted disk? Nothing is repaired "
        "while a part of the store may be elsewhere.",
    ),
    Problem(
        "DIR-UNREADABLE",
        "entry that cannot be read",
        _E,
        None,
        False,
        "The operating system refused to read a file or directory (permission, I/O error).",
    ),
    Problem(
        "DIR-QUEUE-KIND",
        "queue directory of the wrong kind",
        _E,
        "recover",
        False,
        "A topic stands in batchconsumequeue/ though topics.json does not say queue.type=BatchCQ (or the other way "
        "round): loading throws and the broker does not start.",
    ),
    Problem(
        "DIR-FOREIGN-ENTRY",
        "entry that no broker makes",
        _N,
        None,
        False,
        "A file or directory beside topic or queue directories, or in index/, that is skipped by the broker.",
    ),
    Problem(
        "DIR-OPEN-JOURNAL",
        "a repair of this store was not finished",
        _W,
        "undo",
        False,
        "A journal of rmqstore stands in the store whose apply stopped half-way. Undo or resume it first.",
    ),
    Problem(
        "DIR-LINK",
        "symbolic link at the top of the store",
        _N,
        None,
        False,
        "A link at the top of the store was followed; links elsewhere are not.",
    ),
    # --- commitlog ---------------------------------------------------------------------------------------------
    Problem(
        "CL-BODY-CRC",
        "body does not fit its CRC",
        _E,
        "recover",
        True,
        "BODYCRC of a record differs from its stored body. A recovery that scans it cuts the log there: `CRC check "
        "failed`, and deletes every later file.",
    ),
    Problem(
        "CL-RECORD-CRC",
        "record does not fit its __CRC32#",
        _E,
        "recover",
        True,
        "The record CRC in the property __CRC32# differs from the record: header, topic or properties are damaged "
        "where the body CRC cannot see it.",
    ),
    Problem(
        "CL-MAGIC",
        "no record where one should start",
        _E,
        "recover",
        True,
        "Neither a message nor a BLANK starts here, and good records follow. Recovery logs `found a illegal magic "
        "code`, stops, and deletes what follows.",
    ),
    Problem(
        "CL-ZERO-HOLE",
        "zero bytes in the middle of the log",
        _E,
        "recover",
        True,
        "A run of zeros (a lost page after power failure) with good records behind it. Recovery takes it for the end "
        "of the log.",
    ),
    Problem(
        "CL-HALF-MESSAGE",
        "record whose parts do not add up",
        _E,
        "recover",
        True,
        "TOTALSIZE differs from the sum of the parts: a half message, or damaged lengths. Log text: `found a half "
        "message at`, `read total count not equals msg total size`.",
    ),
    Problem(
        "CL-SIZE",
        "record longer than its file, or too short to be one",
        _E,
        "recover",
        True,
        "TOTALSIZE cannot be right. Recovery stops here and deletes what follows.",
    ),
    Problem(
        "CL-PHYSICAL-OFFSET",
        "record of another place",
        _E,
        "recover",
        True,
        "PHYSICALOFFSET is not the record's own position: a stale record of an earlier use of the file, or a damaged "
        "header. Brokers accept it and hand out a wrong address.",
    ),
    Problem(
        "CL-TOPIC",
        "topic is no text",
        _E,
        "recover",
        True,
        "The topic is empty or no UTF-8; the broker would dispatch the message to a queue that nobody reads.",
    ),
    Problem(
        "CL-HEADER",
        "record says another queue than its unit",
        _E,
        "recover",
        True,
        "Only one consume queue unit points to this record, and it belongs to another topic or queue: the record's "
        "topic or QUEUEID is damaged. A rebuild would put the message into the wrong queue.",
    ),
    Problem(
        "CL-PROPERTIES",
        "damaged properties",
        _E,
        "recover",
        True,
        "The property text is no UTF-8 or breaks its grammar. Brokers accept it and lose tags, keys or the real "
        "topic of delayed and transactional messages.",
    ),
    Problem(
        "CL-SYSFLAG",
        "body is not compressed as SYSFLAG says",
        _E,
        "recover",
        True,
        "The compression bits of SYSFLAG are not true of the body: clients cannot unpack it, or take packed bytes for "
        "the body. One flipped bit does it, and no checksum covers it. Where the body proves the bits they are put "
        "right; else the message stays as it is.",
    ),
    Problem(
        "CL-HOST",
        "a host's port is none",
        _E,
        "recover",
        True,
        "The port of BORNHOST or STOREHOST is negative or above 65535; one flipped bit does it, and no checksum covers "
        "it. No client can decode the message, and of a pull that holds it the good messages behind it are lost too. "
        "The upper two bytes, which are 0 in every port, are cleared.",
    ),
    Problem(
        "CL-QUEUE-OFFSET-GAP",
        "a queue offset is missing",
        _E,
        "recover",
        True,
        "QUEUEOFFSET jumps within a queue without damage that would explain it: messages were lost, or a header is "
        "damaged. A rebuilt queue would be shifted: `[BUG]logic queue order maybe wrong`.",
    ),
    Problem(
        "CL-QUEUE-OFFSET-REPEAT",
        "a queue offset stands twice",
        _E,
        None,
        False,
        "Two records of a queue have the same QUEUEOFFSET (or it goes back): a wrong consume queue end at an earlier "
        "start, stale records, or a damaged header.",
    ),
    Problem(
        "CL-QUEUE-OFFSET",
        "QUEUEOFFSET of one record does not fit its neighbours",
        _E,
        "recover",
        True,
        "The records before and behind it in its queue leave only one queue offset, and this record says another: its "
        "header is damaged. A rebuild of the queue would shift or drop units.",
    ),
    Problem(
        "CL-QUEUE-RESTARTED",
        "a queue began again at offset 0",
        _N,
        None,
        True,
        "From this record on the queue offsets of a queue begin again: the topic was deleted and created anew. "
        "Messages before it belong to the deleted topic.",
    ),
    Problem(
        "CL-TIME-BACK",
        "store times go back and stay back until the end",
        _N,
        None,
        True,
        "The last records are older than those before them: the broker's clock was set back, or they are records of "
        "an earlier log that came back.",
    ),
    Problem(
        "CL-BLANK-SIZE",
        "BLANK with a wrong size",
        _W,
        "recover",
        True,
        "The size in a BLANK is not what is left of the file. Brokers accept any size that fits.",
    ),
    Problem(
        "CL-NO-BLANK",
        "a file ends without BLANK though another follows",
        _E,
        "recover",
        True,
        "Behind the last record of a file stand zeros, yet later files hold records. Recovery stops here and "
        "deletes the later files.",
    ),
    Problem(
        "CL-DIRTY-TAIL",
        "bytes behind the end of the log that are no record",
        _E,
        "recover",
        True,
        "Behind the last good record stand bytes that are neither zero nor a record: a write that was cut. Recovery "
        "stops before them; they are never erased.",
    ),
    Problem(
        "CL-STALE-TAIL",
        "old records behind the end of the log",
        _E,
        "recover",
        True,
        "Records behind the end repeat queue offsets and times that the log already has: the tail of an earlier, "
        "truncated log. A later start may walk into them and bring them back (apache/rocketmq issue 10666).",
    ),
    Problem(
        "CL-MISSING-FILE",
        "a file is missing in the middle of the log",
        _E,
        "recover",
        False,
        "No file holds this part of the address space. Brokers only log `mappedFile queue's data is damaged`.",
    ),
    Problem(
        "CL-UNKNOWN-MAGIC",
        "records of an unknown magic",
        _E,
        None,
        False,
        "Records tile consistently but their magic is unknown: a newer or encrypted format. Nothing is repaired.",
    ),
    Problem(
        "CL-NO-MESSAGES",
        "no good record in the log",
        _E,
        None,
        False,
        "Consume queues have units, but the log has no record for them: its files are gone, hold none, or are in "
        "another place, which storePathCommitLog in broker.conf names (-c). Most versions then delete the "
        "consume queues.",
    ),
    Problem(
        "CL-MISPLACED-FILE",
        "file of the log under another file's name",
        _E,
        "recover",
        True,
        "The records of this file all say that they belong into the file `right_name`: files were swapped, or "
        "restored under a wrong name. No byte of them is damaged, but a broker hands out other messages than asked "
        "for. `recover` gives the files their names back (`goes_back`); everything else in the report is said of the "
        "store as it is then. Where the place is taken, or two files hold the same records, the file stays, and "
        "`because` says why.",
    ),
    # --- consume queue -----------------------------------------------------------------------------------------
    Problem(
        "CQ-MISSING-UNIT",
        "message without its consume queue unit",
        _E,
        "recover",
        True,
        "A message of the log has no unit at its queue offset: consumers never get it. Not every start rebuilds it.",
    ),
    Problem(
        "CQ-MISSING-QUEUE",
        "queue without directory or files",
        _E,
        "recover",
        True,
        "Messages of this queue are in the log, its consume queue is not. 5.x does not rebuild it after a clean exit.",
    ),
    Problem(
        "CQ-BEHIND",
        "consume queues are behind the log",
        _N,
        None,
        True,
        "The last messages of the log have no units in any queue yet: the broker was killed (or is running) before it "
        "dispatched them, or they are DLedger entries that no leader has committed. The next start, or the running "
        "broker, does that; where it would not do so, CQ-LEFT-BEHIND says it.",
    ),
    Problem(
        "CQ-LEFT-BEHIND",
        "messages that the next start leaves without units",
        _E,
        "recover",
        True,
        "Consume queues are behind the log, and the next start dispatches from a later file on only: consumers never "
        "get these messages. So it is when consume queues were removed by hand after a crash.",
    ),
    Problem(
        "CQ-DELETED-TOPIC",
        "messages of a topic that was deleted",
        _N,
        None,
        True,
        "Messages of this topic are in the log, but topics.json does not know it and it has no consume queue: the "
        "topic was deleted. `rmqstore export` still gets them out.",
    ),
    Problem(
        "CQ-DANGLING-UNIT",
        "unit that points to no record",
        _E,
        "recover",
        True,
        "No good record starts at the unit's commitlog offset. Consumers get errors there, or skip it.",
    ),
    Problem(
        "CQ-WRONG-SIZE",
        "unit with a wrong size",
        _E,
        "recover",
        True,
        "The unit's size is not the record's TOTALSIZE: consumers cannot decode what they get.",
    ),
    Problem(
        "CQ-WRONG-TAG",
        "unit with a wrong tags code",
        _E,
        "recover",
        True,
        "The unit's tags code is not that of the message: consumers that filter by tag miss it. In "
        "SCHEDULE_TOPIC_XXXX it is the deliver time. Where one flipped bit of the message explains the code, the "
        "message's TAGS are what is wrong, and are put right.",
    ),
    Problem(
        "CQ-WRONG-QUEUE",
        "unit that points into another queue",
        _E,
        "recover",
        True,
        "The record at the unit's offset belongs to another topic or queue.",
    ),
    Problem(
        "CQ-SHIFTED",
        "units stand at the wrong queue offset",
        _E,
        "recover",
        True,
        "From here on units stand at another index than their messages' QUEUEOFFSET: `[BUG]logic queue order maybe "
        "wrong`. Consumers' offsets mean other messages.",
    ),
    Problem(
        "CQ-OUT-OF-ORDER",
        "commitlog offsets of units do not rise",
        _E,
        "recover",
        True,
        "Units of a queue are not sorted by commitlog offset; the binary search for its minimum goes wrong.",
    ),
    Problem(
        "CQ-BEYOND-LOG",
        "units point behind the end of the log",
        _E,
        "recover",
        True,
        "The queue is ahead of the commitlog. A broker truncates it at the next start (`truncate dirty logic "
        "files`), but does not erase the units.",
    ),
    Problem(
        "CQ-GHOST-UNITS",
        "units behind the end of the queue",
        _E,
        "recover",
        True,
        "Behind the queue's end stand old units that were never erased. When the gap closes they become valid, and "
        "point to other messages.",
    ),
    Problem(
        "CQ-PRE-BLANK-ONLY",
        "queue of pre-blank units only",
        _E,
        "recover",
        True,
        "A queue that holds nothing but pre-blanks reports a maximum of 2147483647: 4.9 then dispatches nothing for "
        "any queue until the log passes 2 GiB, 5.x not for this one.",
    ),
    Problem(
        "CQ-ZERO-LAST-FILE",
        "last consume queue file is all zeros",
        _E,
        "recover",
        True,
        "A new file without a unit behind a full one. 5.x may fail to load, 4.9 counts a unit too many.",
    ),
    Problem(
        "CQ-MISSING-FILE",
        "a file is missing in the middle of a queue",
        _E,
        "recover",
        True,
        "Offsets of that file return nothing; no start rebuilds it.",
    ),
    Problem(
        "CQ-BAD-PRE-BLANK",
        "pre-blank unit behind real units",
        _E,
        "recover",
        True,
        "Pre-blanks belong only in front of a queue's first unit.",
    ),
    Problem(
        "CQ-PARTLY-REBUILT",
        "pre-blank units in front though the log has the messages",
        _E,
        "recover",
        True,
        "A start rebuilt this queue only from the files that it scanned: older messages of the log are not in it.",
    ),
    Problem(
        "CQ-EXT",
        "consume queue extension is damaged",
        _E,
        "recover",
        True,
        "A unit refers to an extension address that is not there, or an extension unit has a wrong size. Brokers say "
        "`[BUG] can't find consume queue extend file content`, and consumers filter those messages themselves. The "
        "unit gets its tags code again; what bit map it had, nothing can tell.",
    ),
    # --- batch consume queue -----------------------------------------------------------------------------------
    Problem(
        "BCQ-MISSING-UNIT",
        "batch without its unit",
        _E,
        "recover",
        True,
        "A message or inner batch of a BatchCQ topic has no unit.",
    ),
    Problem(
        "BCQ-DANGLING-UNIT",
        "batch unit that points to no record",
        _E,
        "recover",
        True,
        "No good record starts at the unit's commitlog offset.",
    ),
    Problem(
        "BCQ-WRONG-UNIT",
        "batch unit that differs from its record",
        _E,
        "recover",
        True,
        "Size, tags code, store time, base offset or count of the unit is not the record's.",
    ),
    Problem(
        "BCQ-ORDER",
        "batch units out of order",
        _E,
        "recover",
        True,
        "Base offsets overlap or go back.",
    ),
    Problem(
        "BCQ-GHOST-UNITS",
        "batch units behind the end",
        _E,
        "recover",
        True,
        "Old units behind the end of the queue.",
    ),
    # --- index -------------------------------------------------------------------------------------------------
    Problem(
        "IX-HEADER",
        "index header does not fit its content",
        _W,
        "recover",
        True,
        "Count, times or offsets in the header are not those of the entries.",
    ),
    Problem(
        "IX-CHAIN-LOOP",
        "endless chain in an index file",
        _E,
        "recover",
        True,
        "An entry's predecessor leads back to it: a query for such a key never ends in the broker "
        "(IndexFile#selectPhyOffset).",
    ),
    Problem(
        "IX-BAD-ENTRY",
        "index slot or entry out of range",
        _E,
        "recover",
        True,
        "A slot or predecessor is not the newest entry of its slot before it: chains are cut or mixed, queries miss "
        "messages. Or an entry's time is not its message's, and queries by time miss it.",
    ),
    Problem(
        "IX-DANGLING-ENTRY",
        "index entries that point to no record",
        _W,
        "recover",
        True,
        "Entries point behind the log's end or where no record starts. Brokers never remove them.",
    ),
    Problem(
        "IX-NOT-INDEXED",
        "messages missing in the index",
        _W,
        "recover",
        True,
        "Messages with keys, younger than the oldest index file, are in no index file: queries by key or id find "
        "nothing.",
    ),
    Problem(
        "IX-FILE-LENGTH",
        "index file of the wrong length",
        _W,
        "recover",
        True,
        "A short file is silently extended with zeros by the broker; an empty one starts anew.",
    ),
    # --- store checkpoint --------------------------------------------------------------------------------------
    Problem(
        "CK-MISSING",
        "no checkpoint file, or all zero",
        _N,
        None,
        True,
        "The broker creates it; after a crash its recovery then begins at the first file (5.4.0: ten files back). "
        "Brokers that were killed soon after their start leave it zero.",
    ),
    Problem(
        "CK-LENGTH",
        "checkpoint is no file of 4096 bytes",
        _W,
        "recover",
        True,
        "A short file is extended with zeros by the broker, a directory stops the start.",
    ),
    Problem(
        "CK-AHEAD",
        "checkpoint is later than the log",
        _W,
        "recover",
        True,
        "A time in the checkpoint is later than the last message: garbage, or a log that was cut. After a crash "
        "recovery begins too late and does not see older damage.",
    ),
    Problem(
        "CK-GARBAGE",
        "checkpoint holds impossible values",
        _W,
        "recover",
        True,
        "Negative or absurd times or offsets.",
    ),
    # --- config ------------------------------------------------------------------------------------------------
    Problem(
        "CFG-UNREADABLE",
        "config file and its .bak cannot be parsed",
        _E,
        None,
        False,
        "Neither the file nor its .bak is JSON: the broker does not start (exit 253).",
    ),
    Problem(
        "CFG-BROKEN",
        "config file is broken, its .bak is good",
        _W,
        "recover",
        True,
        "The file is missing, empty, NUL-filled or cut, as after a power failure. The broker falls back to the .bak; "
        "5.4.0 deletes the broken file.",
    ),
    Problem(
        "CFG-BROKEN-BAK",
        "backup of a config file is broken",
        _N,
        "recover",
        True,
        "The .bak cannot be parsed; the file itself is good.",
    ),
    Problem(
        "CFG-OFFSET-BEYOND",
        "consumer offset beyond the queue's end",
        _W,
        "recover",
        False,
        "A group's offset is greater than the queue's maximum: the client is reset to the end (OFFSET_OVERFLOW_BADLY) "
        "and skips what is written until then.",
    ),
    Problem(
        "CFG-DELAY-BEYOND",
        "delay offset beyond the queue's end",
        _W,
        "recover",
        False,
        "delayOffset.json is ahead of a queue of SCHEDULE_TOPIC_XXXX: messages of that level would be skipped.",
    ),
    # --- DLedger -----------------------------------------------------------------------------------------------
    Problem(
        "DL-HEADER",
        "DLedger entry header is wrong",
        _E,
        "recover",
        True,
        "Magic, size or pos of an entry header do not fit its place. In an old file the node exits with 255 "
        "(`The processOffset is too small`), in the last two it cuts the log.",
    ),
    Problem(
        "DL-INDEX-ORDER",
        "DLedger index or term out of order",
        _E,
        "recover",
        True,
        "The index of an entry is not its predecessor's + 1, or its term goes back.",
    ),
    Problem(
        "DL-BODY",
        "entry without a sound message",
        _E,
        "recover",
        True,
        "The body of an entry is no message of its place, or fails its CRC. DLedger does not notice, consumers do.",
    ),
    Problem(
        "DL-DIRTY-TAIL",
        "bytes behind the last entry",
        _E,
        "recover",
        True,
        "Behind the last entry stand bytes that are no entry: a write that was cut.",
    ),
    Problem(
        "DL-STALE-TAIL",
        "old entries behind the end",
        _E,
        "recover",
        True,
        "Entries of an earlier, truncated log behind the end; a later start may take them for its own.",
    ),
    Problem(
        "DL-NO-BLANK",
        "DLedger file ends without BLANK though another follows",
        _E,
        "recover",
        True,
        "Behind the last entry of a file stand zeros, yet later files hold entries.",
    ),
    Problem(
        "DL-MISSING-FILE",
        "a DLedger file is missing in the middle",
        _E,
        "recover",
        False,
        "A data or index file is missing between others: loading throws `check data file order failed before recovery` "
        "and the broker does not start. On a single node `recover --accept-fillers` puts a file of fillers in its "
        "place, which keeps every index and queue offset; a group's member is cut there and gets the rest from its "
        "leader. Or, in a mixed store, the first files behind the legacy commitlog are missing: they do not come back.",
    ),
    Problem(
        "DL-MISPLACED-FILE",
        "a DLedger data file stands under another file's name",
        _E,
        "recover",
        True,
        "The entries of this file all say (pos, PHYSICALOFFSET) that they belong into the file `right_name`: files "
        "were swapped, or restored under a wrong name. As CL-MISPLACED-FILE. A member of a group may have its files "
        "put back as well: it differs from no other member by that.",
    ),
    Problem(
        "DL-DATA-INDEX",
        "DLedger index differs from the data",
        _W,
        "recover",
        True,
        "Index units are missing or differ from their entries. Recovery rewrites them from the first mismatch "
        "(`Compare data to index failed`), if the damage is in the files that it scans.",
    ),
    Problem(
        "DL-INDEX-GHOST",
        "index units behind the last entry",
        _N,
        "recover",
        True,
        "Units behind (last index + 1) x 32; recovery overwrites them in time.",
    ),
    Problem(
        "DL-STRAY-FILE",
        "foreign or odd file in a DLedger directory",
        _E,
        "recover",
        True,
        "Any file of another length in data/ or index/ ends the process with 255.",
    ),
    Problem(
        "DL-COMMITTED",
        "committedIndex does not fit the log",
        _W,
        "recover",
        True,
        "The checkpoint's committedIndex is above the last entry, or cannot be read. It is a lower bound: written "
        "every 3 seconds.",
    ),
    Problem(
        "DL-TERM",
        "currTerm is missing or below the last entry's term",
        _W,
        "recover",
        True,
        "The node would restart in an old term and could vote twice.",
    ),
    # --- timer -------------------------------------------------------------------------------------------------
    Problem(
        "TM-LOG",
        "timer log is damaged",
        _W,
        "recover",
        False,
        "A unit of the timer log has a wrong size or magic: recovery stops there.",
    ),
    Problem(
        "TM-DANGLING",
        "timer units point behind the log",
        _W,
        "recover",
        False,
        "Timer units refer to messages that are no longer in the commitlog; the dequeue service may stall "
        "(apache/rocketmq issue 10668).",
    ),
    Problem(
        "TM-WHEEL-LENGTH",
        "timerwheel of the wrong length",
        _E,
        "recover",
        False,
        "The length is not 2 x slots x 32: the broker does not start.",
    ),
    Problem(
        "TM-CHECK",
        "timercheck does not fit",
        _W,
        "recover",
        False,
        "timercheck is short, or its positions are behind the timer log or the timer queue.",
    ),
    Problem(
        "TM-COMPACTION",
        "compaction log and its queue differ",
        _E,
        None,
        False,
        "compactionLog and compactionCq of a queue must hold the same file names, else the broker does not start; or "
        "a record or unit in them is damaged.",
    ),
)
