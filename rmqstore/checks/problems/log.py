"""Rows of the table of problems: what can be wrong with a log, the plain commitlog (CL) or a DLedger group (DL)."""

from __future__ import annotations

from rmqstore.checks.problems import codes
from rmqstore.checks.problems.problem import Problem, Rows, Severity

_N, _W, _E = Severity.NOTE, Severity.WARNING, Severity.ERROR

COMMITLOG: Rows = (
    Problem(
        codes.CL_BODY_CRC,
        "body does not fit its CRC",
        _E,
        "recover",
        True,
        "BODYCRC of a record differs from its stored body. A recovery that scans it cuts the log there: `CRC check "
        "failed`, and deletes every later file.",
    ),
    Problem(
        codes.CL_RECORD_CRC,
        "record does not fit its __CRC32#",
        _E,
        "recover",
        True,
        "The record CRC in the property __CRC32# differs from the record: header, topic or properties are damaged "
        "where the body CRC cannot see it.",
    ),
    Problem(
        codes.CL_MAGIC,
        "no record where one should start",
        _E,
        "recover",
        True,
        "Neither a message nor a BLANK starts here, and good records follow. Recovery logs `found a illegal magic "
        "code`, stops, and deletes what follows.",
    ),
    Problem(
        codes.CL_ZERO_HOLE,
        "zero bytes in the middle of the log",
        _E,
        "recover",
        True,
        "A run of zeros (a lost page after power failure) with good records behind it. Recovery takes it for the end "
        "of the log.",
    ),
    Problem(
        codes.CL_HALF_MESSAGE,
        "record whose parts do not add up",
        _E,
        "recover",
        True,
        "TOTALSIZE differs from the sum of the parts: a half message, or damaged lengths. Log text: `found a half "
        "message at`, `read total count not equals msg total size`.",
    ),
    Problem(
        codes.CL_SIZE,
        "record longer than its file, or too short to be one",
        _E,
        "recover",
        True,
        "TOTALSIZE cannot be right. Recovery stops here and deletes what follows.",
    ),
    Problem(
        codes.CL_PHYSICAL_OFFSET,
        "record of another place",
        _E,
        "recover",
        True,
        "PHYSICALOFFSET is not the record's own position: a stale record of an earlier use of the file, or a damaged "
        "header. Brokers accept it and hand out a wrong address.",
    ),
    Problem(
        codes.CL_TOPIC,
        "topic is no text",
        _E,
        "recover",
        True,
        "The topic is empty or no UTF-8; the broker would dispatch the message to a queue that nobody reads.",
    ),
    Problem(
        codes.CL_HEADER,
        "record says another queue than its unit",
        _E,
        "recover",
        True,
        "Only one consume queue unit points to this record, and it belongs to another topic or queue: the record's "
        "topic or QUEUEID is damaged. A rebuild would put the message into the wrong queue.",
    ),
    Problem(
        codes.CL_FOREIGN_FILE,
        "file of another log",
        _E,
        None,
        False,
        "The messages of this file have no units, and the units that lead into it meet no message: a file of another "
        "broker, or of another time, stands in place of the right one. Brokers notice nothing, and consumers get other "
        "messages, errors or nothing. Put the right file there, from a replica or a backup; without one, move this one "
        "out of the store: then it is a missing file. Queue offsets behind it are not judged.",
    ),
    Problem(
        codes.CL_PROPERTIES,
        "damaged properties",
        _E,
        "recover",
        True,
        "The property text is no UTF-8, breaks its grammar, or holds control characters where no writer puts them: in "
        "names, in values that clients and brokers make, in rows of eight. Brokers accept it and lose tags, keys or "
        "the real topic of delayed and transactional messages.",
    ),
    Problem(
        codes.CL_CONTROL_CHARACTERS,
        "control characters in property values",
        _N,
        None,
        False,
        "Values that producers choose hold control characters other than lines and tabs. That is allowed, and nothing "
        "else contradicts these values; but bytes that a failing disk or program wrote over a value look the same, and "
        "no checksum covers it. `rmqstore dump` shows the values. One finding for each log, about its first message.",
    ),
    Problem(
        codes.CL_CONTRADICTED,
        "message that its index entries contradict",
        _E,
        "recover",
        False,
        "Index entries that were written for this message are of other keys than it has now: its properties or its "
        "topic are damaged where no checksum covers them. An index holds hashes only, so what the keys were is not "
        "known. Brokers notice nothing; queries by the keys find another text, consumers get the damaged properties. "
        "The entries stay as they are, since they are the only trace of the damage. Asked for by name, `recover` "
        "indexes the message under the keys that it has now.",
    ),
    Problem(
        codes.CL_SYSFLAG,
        "body is not compressed as SYSFLAG says",
        _E,
        "recover",
        True,
        "The compression bits of SYSFLAG are not true of the body: clients cannot unpack it, or take packed bytes for "
        "the body. One flipped bit does it, and no checksum covers it. Where the body proves the bits they are put "
        "right; else the message stays as it is.",
    ),
    Problem(
        codes.CL_HOST,
        "a host's port is none",
        _E,
        "recover",
        True,
        "The port of BORNHOST or STOREHOST is negative or above 65535; one flipped bit does it, and no checksum covers "
        "it. No client can decode the message, and of a pull that holds it the good messages behind it are lost too. "
        "The upper two bytes, which are 0 in every port, are cleared.",
    ),
    Problem(
        codes.CL_QUEUE_OFFSET_GAP,
        "a queue offset is missing",
        _E,
        "recover",
        True,
        "QUEUEOFFSET jumps within a queue without damage that would explain it: messages were lost, or a header is "
        "damaged. A rebuilt queue would be shifted: `[BUG]logic queue order maybe wrong`.",
    ),
    Problem(
        codes.CL_QUEUE_OFFSET_REPEAT,
        "a queue offset stands twice",
        _E,
        None,
        False,
        "Two records of a queue have the same QUEUEOFFSET (or it goes back): a wrong consume queue end at an earlier "
        "start, stale records, or a damaged header.",
    ),
    Problem(
        codes.CL_QUEUE_OFFSET,
        "QUEUEOFFSET of one record does not fit its neighbours",
        _E,
        "recover",
        True,
        "The records before and behind it in its queue leave only one queue offset, and this record says another: its "
        "header is damaged. A rebuild of the queue would shift or drop units. Of a batch in a BatchCQ topic INNER_BASE "
        "and the unit say another one: clients number its messages from QUEUEOFFSET on. No broker stops there, so a "
        "replica is not cut there either.",
    ),
    Problem(
        codes.CL_QUEUE_RESTARTED,
        "a queue began again at offset 0",
        _N,
        None,
        True,
        "From this record on the queue offsets of a queue begin again: the topic was deleted and created anew. "
        "Messages before it belong to the deleted topic. Where nearly all messages of a queue say 0 (`times`), a 5.x "
        "broker with duplicationEnable=true wrote them: it gives no queue offsets, and consumers get one message of "
        "such a queue. `rmqstore export` gives all of them.",
    ),
    Problem(
        codes.CL_TIME_BACK,
        "store times go back and stay back until the end",
        _N,
        None,
        True,
        "The last records are older than those before them: the broker's clock was set back, or they are records of "
        "an earlier log that came back.",
    ),
    Problem(
        codes.CL_BLANK_SIZE,
        "BLANK with a wrong size",
        _W,
        "recover",
        True,
        "The size in a BLANK is not what is left of the file. Brokers accept any size that fits.",
    ),
    Problem(
        codes.CL_NO_BLANK,
        "a file ends without BLANK though another follows",
        _E,
        "recover",
        True,
        "Behind the last record of a file stand zeros, yet later files hold records. Recovery stops here and "
        "deletes the later files.",
    ),
    Problem(
        codes.CL_DIRTY_TAIL,
        "bytes behind the end of the log that are no record",
        _E,
        "recover",
        True,
        "Behind the last good record stand bytes that are neither zero nor a record: a write that was cut. Recovery "
        "stops before them; they are never erased.",
    ),
    Problem(
        codes.CL_STALE_TAIL,
        "old records behind the end of the log",
        _E,
        "recover",
        True,
        "Records behind the end repeat queue offsets and times that the log already has: the tail of an earlier, "
        "truncated log. A later start may walk into them and bring them back (apache/rocketmq issue 10666).",
    ),
    Problem(
        codes.CL_MISSING_FILE,
        "a file is missing in the middle of the log",
        _E,
        "recover",
        False,
        "No file holds this part of the address space. Brokers only log `mappedFile queue's data is damaged`.",
    ),
    Problem(
        codes.CL_FALSE_BLANK,
        "BLANK where messages were",
        _E,
        "recover",
        True,
        "A BLANK ends this file before its last message: consume queues name messages in the bytes that it covers. "
        "Brokers go on with the next file. Consumers do not get these messages.",
    ),
    Problem(
        codes.CL_UNKNOWN_MAGIC,
        "records of an unknown magic",
        _E,
        None,
        False,
        "Records tile consistently but their magic is unknown: a newer or encrypted format. Nothing is repaired.",
    ),
    Problem(
        codes.CL_NO_MESSAGES,
        "no good record in the log",
        _E,
        None,
        False,
        "Consume queues have units, but the log has no record for them: its files are gone, hold none, or are in "
        "another place, which storePathCommitLog or storePathDLedgerCommitLog in broker.conf names (-c). Most "
        "versions then delete the consume queues.",
    ),
    Problem(
        codes.CL_MISPLACED_FILE,
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
)

DLEDGER: Rows = (
    Problem(
        codes.DL_HEADER,
        "DLedger entry header is wrong",
        _E,
        "recover",
        True,
        "Magic, size or pos of an entry header do not fit its place. In an old file the node exits with 255 "
        "(`The processOffset is too small`), in the last two it cuts the log.",
    ),
    Problem(
        codes.DL_FALSE_BLANK,
        "DLedger BLANK where entries were",
        _E,
        "recover",
        True,
        "A BLANK ends this data file before its last entry: consume queues name messages in the bytes that it covers. "
        "Consumers do not get these messages, and a follower that asks for the entries gets none.",
    ),
    Problem(
        codes.DL_INDEX_ORDER,
        "DLedger index or term out of order",
        _E,
        "recover",
        True,
        "The index of an entry is not its predecessor's + 1, or its term goes back.",
    ),
    Problem(
        codes.DL_BODY,
        "entry without a sound message",
        _E,
        "recover",
        True,
        "The body of an entry is no message of its place, or fails its CRC. DLedger does not notice, consumers do.",
    ),
    Problem(
        codes.DL_DIRTY_TAIL,
        "bytes behind the last entry",
        _E,
        "recover",
        True,
        "Behind the last entry stand bytes that are no entry: a write that was cut.",
    ),
    Problem(
        codes.DL_STALE_TAIL,
        "old entries behind the end",
        _E,
        "recover",
        True,
        "Entries of an earlier, truncated log behind the end; a later start may take them for its own.",
    ),
    Problem(
        codes.DL_NO_BLANK,
        "DLedger file ends without BLANK though another follows",
        _E,
        "recover",
        True,
        "Behind the last entry of a file stand zeros, yet later files hold entries.",
    ),
    Problem(
        codes.DL_MISSING_FILE,
        "a DLedger file is missing in the middle",
        _E,
        "recover",
        False,
        "A data or index file is missing between others: loading throws `check data file order failed before recovery` "
        "and the broker does not start. On a single node `recover --accept-fillers` puts a file of fillers in its "
        "place, which keeps every index and queue offset; a group's member is cut there and gets the rest from its "
        "leader. Or, in a mixed store, the first files behind the legacy commitlog are missing: brokers start, and "
        "consumers skip what stood there; fillers take their place in the same way.",
    ),
    Problem(
        codes.DL_MISPLACED_FILE,
        "a DLedger data file stands under another file's name",
        _E,
        "recover",
        True,
        "The entries of this file all say (pos, PHYSICALOFFSET) that they belong into the file `right_name`: files "
        "were swapped, or restored under a wrong name. As CL-MISPLACED-FILE. A member of a group may have its files "
        "put back as well: it differs from no other member by that.",
    ),
    Problem(
        codes.DL_DATA_INDEX,
        "DLedger index differs from the data",
        _W,
        "recover",
        True,
        "Index units are missing or differ from their entries. Recovery rewrites them from the first mismatch "
        "(`Compare data to index failed`), if the damage is in the files that it scans.",
    ),
    Problem(
        codes.DL_INDEX_GHOST,
        "index units behind the last entry",
        _N,
        "recover",
        True,
        "Units behind (last index + 1) x 32; recovery overwrites them in time.",
    ),
    Problem(
        codes.DL_STRAY_FILE,
        "foreign or odd file in a DLedger directory",
        _E,
        "recover",
        True,
        "Any file of another length in data/ or index/ ends the process with 255.",
    ),
    Problem(
        codes.DL_COMMITTED,
        "committedIndex does not fit the log",
        _W,
        "recover",
        True,
        "The checkpoint's committedIndex is above the last entry, or cannot be read. It is a lower bound: written "
        "every 3 seconds.",
    ),
    Problem(
        codes.DL_TERM,
        "currTerm is missing or below the last entry's term",
        _W,
        "recover",
        True,
        "The node would restart in an old term and could vote twice.",
    ),
)
