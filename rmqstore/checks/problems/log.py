"""Rows of the table of problems: what can be wrong with a log, the plain commitlog (CL) or a DLedger group (DL)."""

from __future__ import annotations

from rmqstore.checks.problems import codes
from rmqstore.checks.problems.problem import Extent, OperatorTask, Problem, Rows, Severity

_N, _W, _E = Severity.NOTE, Severity.WARNING, Severity.ERROR

COMMITLOG: Rows = (
    Problem(
        code=codes.CL_BODY_CRC,
        title="body does not fit its CRC",
        severity=_E,
        remedy="recover",
        safe=True,
        damages_log=True,
        extent=Extent.RECORD,
        about=(
            "BODYCRC of a record differs from its stored body. A recovery that scans it cuts the log there: `CRC check "
            "failed`, and deletes every later file."
        ),
    ),
    Problem(
        code=codes.CL_RECORD_CRC,
        title="record does not fit its __CRC32#",
        severity=_E,
        remedy="recover",
        safe=True,
        damages_log=True,
        extent=Extent.RECORD,
        about=(
            "The record CRC in the property __CRC32# differs from the record: header, topic or properties are damaged "
            "where the body CRC cannot see it."
        ),
    ),
    Problem(
        code=codes.CL_MAGIC,
        title="no record where one should start",
        severity=_E,
        remedy="recover",
        safe=True,
        damages_log=True,
        extent=Extent.RECORD_OR_BYTES,
        about=(
            "Neither a message nor a BLANK starts here, and good records follow. Recovery logs `found a illegal magic "
            "code`, stops, and deletes what follows."
        ),
    ),
    Problem(
        code=codes.CL_ZERO_HOLE,
        title="zero bytes in the middle of the log",
        severity=_E,
        remedy="recover",
        safe=True,
        damages_log=True,
        extent=Extent.RECORD_OR_BYTES,
        about=(
            "A run of zeros (a lost page after power failure) with good records behind it. Recovery takes it for the "
            "end of the log."
        ),
    ),
    Problem(
        code=codes.CL_HALF_MESSAGE,
        title="record whose parts do not add up",
        severity=_E,
        remedy="recover",
        safe=True,
        damages_log=True,
        extent=Extent.RECORD_OR_BYTES,
        about=(
            "TOTALSIZE differs from the sum of the parts: a half message, or damaged lengths. Log text: `found a half "
            "message at`, `read total count not equals msg total size`."
        ),
    ),
    Problem(
        code=codes.CL_SIZE,
        title="record longer than its file, or too short to be one",
        severity=_E,
        remedy="recover",
        safe=True,
        damages_log=True,
        extent=Extent.RECORD_OR_BYTES,
        about="TOTALSIZE cannot be right. Recovery stops here and deletes what follows.",
    ),
    Problem(
        code=codes.CL_PHYSICAL_OFFSET,
        title="record of another place",
        severity=_E,
        remedy="recover",
        safe=True,
        damages_log=True,
        extent=Extent.RECORD,
        about=(
            "PHYSICALOFFSET is not the record's own position: a stale record of an earlier use of the file, or a "
            "damaged header. Brokers accept it and hand out a wrong address."
        ),
    ),
    Problem(
        code=codes.CL_TOPIC,
        title="topic is no text",
        severity=_E,
        remedy="recover",
        safe=True,
        damages_log=True,
        extent=Extent.RECORD,
        disturbs_queues=True,
        about="The topic is empty or no UTF-8; the broker would dispatch the message to a queue that nobody reads.",
    ),
    Problem(
        code=codes.CL_HEADER,
        title="record says another queue than its unit",
        severity=_E,
        remedy="recover",
        safe=True,
        damages_log=True,
        extent=Extent.RECORD,
        about=(
            "Only one consume queue unit points to this record, and it belongs to another topic or queue: the record's "
            "topic or QUEUEID is damaged. A rebuild would put the message into the wrong queue."
        ),
    ),
    Problem(
        code=codes.CL_FOREIGN_FILE,
        title="file of another log",
        severity=_E,
        damages_log=True,
        explains=3,
        needs_operator=OperatorTask(
            why="whose messages are the right ones here, nothing in the store tells",
            do="put the right file there, from a replica or a backup; or move this one away, and run this again",
            stops_all=True,
        ),
        about=(
            "The messages of this file have no units, and the units that lead into it meet no message: a file of "
            "another broker, or of another time, stands in place of the right one. Brokers notice nothing, and "
            "consumers get other messages, errors or nothing. Put the right file there, from a replica or a backup; "
            "without one, move this one out of the store: then it is a missing file. Queue offsets behind it are not "
            "judged."
        ),
    ),
    Problem(
        code=codes.CL_PROPERTIES,
        title="damaged properties",
        severity=_E,
        remedy="recover",
        safe=True,
        damages_log=True,
        extent=Extent.RECORD,
        about=(
            "The property text is no UTF-8, breaks its grammar, or holds control characters where no writer puts them: "
            "in names, in values that clients and brokers make, in rows of eight. Brokers accept it and lose tags, "
            "keys or the real topic of delayed and transactional messages."
        ),
    ),
    Problem(
        code=codes.CL_CONTROL_CHARACTERS,
        title="control characters in property values",
        severity=_N,
        damages_log=True,
        about=(
            "Values that producers choose hold control characters other than lines and tabs. That is allowed, and "
            "nothing else contradicts these values; but bytes that a failing disk or program wrote over a value look "
            "the same, and no checksum covers it. `rmqstore dump` shows the values. One finding for each log, about "
            "its first message."
        ),
    ),
    Problem(
        code=codes.CL_CONTRADICTED,
        title="message that its index entries contradict",
        severity=_E,
        remedy="recover",
        extent=Extent.RECORD,
        needs_operator=OperatorTask(
            why="what its properties were is not in the store, and its index entries are the only trace of the damage",
            do=(
                "take the file from a replica or a backup; or add --only CL-CONTRADICTED, which indexes the message "
                "under the keys that it has now, so that the trace is gone"
            ),
        ),
        about=(
            "Index entries that were written for this message are of other keys than it has now: its properties or its "
            "topic are damaged where no checksum covers them. An index holds hashes only, so what the keys were is not "
            "known. Brokers notice nothing; queries by the keys find another text, consumers get the damaged "
            "properties. The entries stay as they are, since they are the only trace of the damage. Asked for by name, "
            "`recover` indexes the message under the keys that it has now."
        ),
    ),
    Problem(
        code=codes.CL_SYSFLAG,
        title="body is not compressed as SYSFLAG says",
        severity=_E,
        remedy="recover",
        safe=True,
        proof="expected",
        extent=Extent.RECORD,
        mendable=True,
        about=(
            "The compression bits of SYSFLAG are not true of the body: clients cannot unpack it, or take packed bytes "
            "for the body. One flipped bit does it, and no checksum covers it. Where the body proves the bits they are "
            "put right; else the message stays as it is."
        ),
    ),
    Problem(
        code=codes.CL_HOST,
        title="a host's port is none",
        severity=_E,
        remedy="recover",
        safe=True,
        extent=Extent.RECORD,
        mendable=True,
        about=(
            "The port of BORNHOST or STOREHOST is negative or above 65535; one flipped bit does it, and no checksum "
            "covers it. No client can decode the message, and of a pull that holds it the good messages behind it are "
            "lost too. The upper two bytes, which are 0 in every port, are cleared."
        ),
    ),
    Problem(
        code=codes.CL_QUEUE_OFFSET_GAP,
        title="a queue offset is missing",
        severity=_E,
        remedy="recover",
        safe=True,
        mendable=True,
        about=(
            "QUEUEOFFSET jumps within a queue without damage that would explain it: messages were lost, or a header is "
            "damaged. A rebuilt queue would be shifted: `[BUG]logic queue order maybe wrong`."
        ),
    ),
    Problem(
        code=codes.CL_QUEUE_OFFSET_REPEAT,
        title="a queue offset stands twice",
        severity=_E,
        mendable=True,
        needs_operator=OperatorTask(
            why="which of the records has the right QUEUEOFFSET, nothing proves",
            do="their consumers get one of them; `rmqstore dump` shows both",
        ),
        about=(
            "Two records of a queue have the same QUEUEOFFSET (or it goes back): a wrong consume queue end at an "
            "earlier start, stale records, or a damaged header."
        ),
    ),
    Problem(
        code=codes.CL_QUEUE_OFFSET,
        title="QUEUEOFFSET of one record does not fit its neighbours",
        severity=_E,
        remedy="recover",
        safe=True,
        extent=Extent.RECORD,
        mendable=True,
        about=(
            "The records before and behind it in its queue leave only one queue offset, and this record says another: "
            "its header is damaged. A rebuild of the queue would shift or drop units. Of a batch in a BatchCQ topic "
            "INNER_BASE and the unit say another one: clients number its messages from QUEUEOFFSET on. No broker stops "
            "there, so a replica is not cut there either."
        ),
    ),
    Problem(
        code=codes.CL_QUEUE_RESTARTED,
        title="a queue began again at offset 0",
        severity=_N,
        safe=True,
        mendable=True,
        about=(
            "From this record on the queue offsets of a queue begin again: the topic was deleted and created anew. "
            "Messages before it belong to the deleted topic. Where nearly all messages of a queue say 0 (`times`), a "
            "5.x broker with duplicationEnable=true wrote them: it gives no queue offsets, and consumers get one "
            "message of such a queue. `rmqstore export` gives all of them."
        ),
    ),
    Problem(
        code=codes.CL_TIME_BACK,
        title="store times go back and stay back until the end",
        severity=_N,
        safe=True,
        about=(
            "The last records are older than those before them: the broker's clock was set back, or they are records "
            "of an earlier log that came back."
        ),
    ),
    Problem(
        code=codes.CL_BLANK_SIZE,
        title="BLANK with a wrong size",
        severity=_W,
        remedy="recover",
        safe=True,
        mendable=True,
        migration_repairs=True,
        about="The size in a BLANK is not what is left of the file. Brokers accept any size that fits.",
    ),
    Problem(
        code=codes.CL_NO_BLANK,
        title="a file ends without BLANK though another follows",
        severity=_E,
        remedy="recover",
        safe=True,
        damages_log=True,
        about=(
            "Behind the last record of a file stand zeros, yet later files hold records. Recovery stops here and "
            "deletes the later files."
        ),
    ),
    Problem(
        code=codes.CL_DIRTY_TAIL,
        title="bytes behind the end of the log that are no record",
        severity=_E,
        remedy="recover",
        safe=True,
        about=(
            "Behind the last good record stand bytes that are neither zero nor a record: a write that was cut. "
            "Recovery stops before them; they are never erased."
        ),
    ),
    Problem(
        code=codes.CL_STALE_TAIL,
        title="old records behind the end of the log",
        severity=_E,
        remedy="recover",
        safe=True,
        about=(
            "Records behind the end repeat queue offsets and times that the log already has: the tail of an earlier, "
            "truncated log. A later start may walk into them and bring them back (apache/rocketmq issue 10666)."
        ),
    ),
    Problem(
        code=codes.CL_MISSING_FILE,
        title="a file is missing in the middle of the log",
        severity=_E,
        remedy="recover",
        option="--accept-fillers",
        damages_log=True,
        explains=6,
        about="No file holds this part of the address space. Brokers only log `mappedFile queue's data is damaged`.",
    ),
    Problem(
        code=codes.CL_FALSE_BLANK,
        title="BLANK where messages were",
        severity=_E,
        remedy="recover",
        safe=True,
        damages_log=True,
        about=(
            "A BLANK ends this file before its last message: consume queues name messages in the bytes that it covers. "
            "Brokers go on with the next file. Consumers do not get these messages."
        ),
    ),
    Problem(
        code=codes.CL_UNKNOWN_MAGIC,
        title="records of an unknown magic",
        severity=_E,
        damages_log=True,
        needs_operator=OperatorTask(
            why="a newer or encrypted format is not touched",
            do="use the version that wrote it",
        ),
        about="Records tile consistently but their magic is unknown: a newer or encrypted format. Nothing is repaired.",
    ),
    Problem(
        code=codes.CL_NO_MESSAGES,
        title="no good record in the log",
        severity=_E,
        of_missing_log=True,
        explains=4,
        needs_operator=OperatorTask(
            why="its messages are not in this store: there is nothing to recover them from",
            do=(
                "if storePathCommitLog is set, give broker.conf with -c; else take the commitlog's files from a "
                "replica or a backup"
            ),
        ),
        about=(
            "Consume queues have units, but the log has no record for them: its files are gone, hold none, or are in "
            "another place, which storePathCommitLog or storePathDLedgerCommitLog in broker.conf names (-c). Most "
            "versions then delete the consume queues."
        ),
    ),
    Problem(
        code=codes.CL_MISPLACED_FILE,
        title="file of the log under another file's name",
        severity=_E,
        remedy="recover",
        safe=True,
        renames_only=True,
        about=(
            "The records of this file all say that they belong into the file `right_name`: files were swapped, or "
            "restored under a wrong name. No byte of them is damaged, but a broker hands out other messages than asked "
            "for. `recover` gives the files their names back (`goes_back`); everything else in the report is said of "
            "the store as it is then. Where the place is taken, or two files hold the same records, the file stays, "
            "and `because` says why."
        ),
    ),
)

DLEDGER: Rows = (
    Problem(
        code=codes.DL_HEADER,
        title="DLedger entry header is wrong",
        severity=_E,
        remedy="recover",
        safe=True,
        damages_log=True,
        extent=Extent.RECORD_OR_BYTES,
        about=(
            "Magic, size or pos of an entry header do not fit its place. In an old file the node exits with 255 (`The "
            "processOffset is too small`), in the last two it cuts the log."
        ),
    ),
    Problem(
        code=codes.DL_FALSE_BLANK,
        title="DLedger BLANK where entries were",
        severity=_E,
        remedy="recover",
        safe=True,
        damages_log=True,
        about=(
            "A BLANK ends this data file before its last entry: consume queues name messages in the bytes that it "
            "covers. Consumers do not get these messages, and a follower that asks for the entries gets none."
        ),
    ),
    Problem(
        code=codes.DL_INDEX_ORDER,
        title="DLedger index or term out of order",
        severity=_E,
        remedy="recover",
        safe=True,
        damages_log=True,
        about="The index of an entry is not its predecessor's + 1, or its term goes back.",
    ),
    Problem(
        code=codes.DL_BODY,
        title="entry without a sound message",
        severity=_E,
        remedy="recover",
        safe=True,
        damages_log=True,
        extent=Extent.RECORD,
        disturbs_queues=True,
        about=(
            "The body of an entry is no message of its place, or fails its CRC. DLedger does not notice, consumers do."
        ),
    ),
    Problem(
        code=codes.DL_DIRTY_TAIL,
        title="bytes behind the last entry",
        severity=_E,
        remedy="recover",
        safe=True,
        about="Behind the last entry stand bytes that are no entry: a write that was cut.",
    ),
    Problem(
        code=codes.DL_STALE_TAIL,
        title="old entries behind the end",
        severity=_E,
        remedy="recover",
        safe=True,
        about="Entries of an earlier, truncated log behind the end; a later start may take them for its own.",
    ),
    Problem(
        code=codes.DL_NO_BLANK,
        title="DLedger file ends without BLANK though another follows",
        severity=_E,
        remedy="recover",
        safe=True,
        damages_log=True,
        about="Behind the last entry of a file stand zeros, yet later files hold entries.",
    ),
    Problem(
        code=codes.DL_MISSING_FILE,
        title="a DLedger file is missing in the middle",
        severity=_E,
        remedy="recover",
        option="--accept-fillers",
        damages_log=True,
        about=(
            "A data or index file is missing between others: loading throws `check data file order failed before "
            "recovery` and the broker does not start. On a single node `recover --accept-fillers` puts a file of "
            "fillers in its place, which keeps every index and queue offset; a group's member is cut there and gets "
            "the rest from its leader. Or, in a mixed store, the first files behind the legacy commitlog are missing: "
            "brokers start, and consumers skip what stood there; fillers take their place in the same way."
        ),
    ),
    Problem(
        code=codes.DL_MISPLACED_FILE,
        title="a DLedger data file stands under another file's name",
        severity=_E,
        remedy="recover",
        safe=True,
        renames_only=True,
        about=(
            "The entries of this file all say (pos, PHYSICALOFFSET) that they belong into the file `right_name`: files "
            "were swapped, or restored under a wrong name. As CL-MISPLACED-FILE. A member of a group may have its "
            "files put back as well: it differs from no other member by that."
        ),
    ),
    Problem(
        code=codes.DL_DATA_INDEX,
        title="DLedger index differs from the data",
        severity=_W,
        remedy="recover",
        safe=True,
        rebuilt_with="dledger-index",
        about=(
            "Index units are missing or differ from their entries. Recovery rewrites them from the first mismatch "
            "(`Compare data to index failed`), if the damage is in the files that it scans."
        ),
    ),
    Problem(
        code=codes.DL_INDEX_GHOST,
        title="index units behind the last entry",
        severity=_N,
        remedy="recover",
        safe=True,
        points_behind_log=True,
        rebuilt_with="dledger-index",
        about="Units behind (last index + 1) x 32; recovery overwrites them in time.",
    ),
    Problem(
        code=codes.DL_STRAY_FILE,
        title="foreign or odd file in a DLedger directory",
        severity=_E,
        remedy="recover",
        safe=True,
        about="Any file of another length in data/ or index/ ends the process with 255.",
    ),
    Problem(
        code=codes.DL_COMMITTED,
        title="committedIndex does not fit the log",
        severity=_W,
        remedy="recover",
        safe=True,
        about=(
            "The checkpoint's committedIndex is above the last entry, or cannot be read. It is a lower bound: written "
            "every 3 seconds."
        ),
    ),
    Problem(
        code=codes.DL_TERM,
        title="currTerm is missing or below the last entry's term",
        severity=_W,
        remedy="recover",
        safe=True,
        about="The node would restart in an old term and could vote twice.",
    ),
)
