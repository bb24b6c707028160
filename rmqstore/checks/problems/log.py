"""Rows of the table of problems: the plain commitlog (CL) and DLedger (DL)."""

from __future__ import annotations

from rmqstore.checks.problems import codes
from rmqstore.checks.problems.problem import (
    Extent,
    Repair,
    Rows,
    damaged_bytes,
    damaged_record,
    error,
    note,
    repairable_error,
    repairable_warning,
    warning,
)
from rmqstore.texts import Text

COMMITLOG: Rows = (
    damaged_record(
        code=codes.CL_BODY_CRC,
        title=Text("body does not match its CRC"),
        about=Text(
            "BODYCRC of a record does not match the stored body. A recovery that scans the record cuts the log there "
            "(`CRC check failed`) and deletes all later files."
        ),
    ),
    damaged_record(
        code=codes.CL_RECORD_CRC,
        title=Text("record does not match its __CRC32#"),
        about=Text(
            "The record CRC in the property __CRC32# does not match the record: its header, topic or properties are "
            "damaged, which the body CRC does not cover."
        ),
    ),
    damaged_bytes(
        code=codes.CL_MAGIC,
        title=Text("no record where one should start"),
        about=Text(
            "Neither a message nor a BLANK starts here, but good records follow. Recovery logs `found a illegal magic "
            "code`, stops, and deletes what follows."
        ),
    ),
    damaged_bytes(
        code=codes.CL_ZERO_HOLE,
        title=Text("zero bytes in the middle of the log"),
        about=Text(
            "A run of zeros (a page lost in a power failure) is followed by good records. Recovery takes it for the "
            "end of the log."
        ),
    ),
    damaged_bytes(
        code=codes.CL_HALF_MESSAGE,
        title=Text("lengths of a record do not add up"),
        about=Text(
            "TOTALSIZE differs from the sum of the parts: the message is incomplete, or its lengths are damaged. Log "
            "text: `found a half message at`, `read total count not equals msg total size`."
        ),
    ),
    damaged_bytes(
        code=codes.CL_SIZE,
        title=Text("record longer than its file, or too short for a record"),
        about=Text("TOTALSIZE is impossible. Recovery stops here and deletes what follows."),
    ),
    damaged_record(
        code=codes.CL_PHYSICAL_OFFSET,
        title=Text("record from another position"),
        about=Text(
            "PHYSICALOFFSET is not the position of the record: the record is stale, from an earlier use of the file, "
            "or its header is damaged. Brokers accept the record and return a wrong address."
        ),
    ),
    damaged_record(
        code=codes.CL_TOPIC,
        title=Text("topic is not valid text"),
        disturbs_queues=True,
        alters_keys=True,
        about=Text(
            "The topic is empty, not valid UTF-8, or has control characters. The broker would dispatch the message to "
            "a queue that nobody reads. If it cannot create files of that name, as with a NUL, no later message gets a "
            "unit."
        ),
    ),
    damaged_record(
        code=codes.CL_HEADER,
        title=Text("record names another queue than its unit does"),
        alters_keys=True,
        about=Text(
            "Only one consume queue unit points to this record, and the unit belongs to another topic or queue: TOPIC "
            "or QUEUEID of the record is damaged. A rebuild would put the message into the wrong queue."
        ),
    ),
    error(
        code=codes.CL_FOREIGN_FILE,
        title=Text("file of another log"),
        damages_log=True,
        explains=3,
        why_not=Text("nothing in the store shows whose messages belong here"),
        to_do=Text(
            "restore the right file from a replica or a backup; or move this one away, and run this command again"
        ),
        stops_all=True,
        about=Text(
            "The messages of this file have no units, and the units that point into the file meet no message: a file "
            "from another broker, or from another time, has taken the place of the right one. Brokers do not notice; "
            "consumers get other messages, errors or nothing. Restore the right file from a replica or a backup. If "
            "you have neither, move this file out of the store: it then counts as a missing file. Queue offsets after "
            "this file are not checked."
        ),
    ),
    damaged_record(
        code=codes.CL_PROPERTIES,
        title=Text("damaged properties"),
        alters_keys=True,
        about=Text(
            "The properties are not valid UTF-8, break their grammar, or contain control characters where no writer "
            "puts them: in names, in values that clients and brokers set, or eight in a row. Brokers accept the record "
            "and lose tags, keys or the real topic of delayed and transactional messages. Without the properties that "
            "delivery needs, such a message is never delivered, and may block those after it."
        ),
    ),
    note(
        code=codes.CL_CONTROL_CHARACTERS,
        title=Text("control characters in property values"),
        about=Text(
            "Values that producers choose contain control characters other than line breaks and tabs. That is allowed, "
            "and nothing else contradicts these values. But bytes that a failing disk or a program wrote over a value "
            "look the same, and no checksum covers them. `rmqstore dump` shows the values. There is one finding for "
            "each log, for its first such message."
        ),
    ),
    error(
        code=codes.CL_CONTRADICTED,
        title=Text("index entries contradict a message"),
        repair=Repair.ON_REQUEST,
        extent=Extent.RECORD,
        why_not=Text(
            "the original properties are not in the store, and the index entries are the only trace of the damage"
        ),
        to_do=Text(
            "take the file from a replica or a backup; or add --only CL-CONTRADICTED, which indexes the message "
            "under its present keys, so that the trace is gone"
        ),
        about=Text(
            "The index entries written for this message belong to other keys than it has now: its properties or its "
            "topic are damaged where no checksum covers them. An index holds only hashes, so the original keys are "
            "unknown. Brokers do not notice; queries by the keys return other content, and consumers get the damaged "
            "properties. The entries stay as they are, because they are the only trace of the damage. With --only "
            "CL-CONTRADICTED, `recover` indexes the message under its present keys."
        ),
    ),
    repairable_error(
        code=codes.CL_SYSFLAG,
        title=Text("SYSFLAG contradicts its message"),
        proof="expected",
        extent=Extent.RECORD,
        about=Text(
            "The compression bits of SYSFLAG do not match the body: clients cannot decompress it, or take compressed "
            "bytes for the body. Or its transaction bits say that the message was prepared or rolled back, but it has "
            "a place in its queue: brokers rebuild the queue without it. One flipped bit is enough, and no checksum "
            "covers it. If the message proves the right bits, they are corrected; otherwise it stays as it is."
        ),
    ),
    repairable_error(
        code=codes.CL_HOST,
        title=Text("invalid port of a host"),
        extent=Extent.RECORD,
        about=Text(
            "The port of BORNHOST or STOREHOST is negative or above 65535. One flipped bit is enough, and no checksum "
            "covers it. No client can decode the message; the good messages after it in the same pull are lost too. "
            "The repair clears the upper two bytes, which are 0 in every port."
        ),
    ),
    repairable_error(
        code=codes.CL_QUEUE_OFFSET_GAP,
        title=Text("missing queue offset"),
        about=Text(
            "QUEUEOFFSET jumps within a queue, and no damage explains it: messages were lost, or a header is damaged. "
            "A rebuilt queue would be shifted: `[BUG]logic queue order maybe wrong`."
        ),
    ),
    error(
        code=codes.CL_QUEUE_OFFSET_REPEAT,
        title=Text("duplicate queue offset"),
        why_not=Text("nothing proves which of the records has the right QUEUEOFFSET"),
        to_do=Text("their consumers get one of them; `rmqstore dump` shows both"),
        about=Text(
            "Two records of a queue have the same QUEUEOFFSET, or it goes back. Causes: a wrong consume queue end at "
            "an earlier start, stale records, or a damaged header."
        ),
    ),
    repairable_error(
        code=codes.CL_QUEUE_OFFSET,
        title=Text("QUEUEOFFSET of one record does not fit its neighbours"),
        extent=Extent.RECORD,
        about=Text(
            "The records before and after it in its queue leave only one possible queue offset, but this record has "
            "another: its header is damaged. A rebuild of the queue would shift or drop units. For a batch in a "
            "BatchCQ topic, INNER_BASE and the unit contradict QUEUEOFFSET, from which clients number the messages of "
            "the batch. Brokers do not stop there, so a replica is not cut there either."
        ),
    ),
    note(
        code=codes.CL_QUEUE_RESTARTED,
        title=Text("queue restarted at offset 0"),
        about=Text(
            "From this record on, the queue offsets of a queue start from 0 again: the topic was deleted and created "
            "again. Messages before it belong to the deleted topic. If nearly all messages of a queue have offset 0 "
            "(`times`), a 5.x broker with duplicationEnable=true wrote them: it assigns no queue offsets, and "
            "consumers get only one message of such a queue. `rmqstore export` exports all of them."
        ),
    ),
    warning(
        code=codes.CL_STORE_TIME,
        title=Text("store time contradicts the neighbours"),
        why_not=Text("nothing in the store proves the original time to the millisecond"),
        to_do=Text("take the file from a replica or a backup; brokers deliver the message as it is"),
        about=Text(
            "STORETIMESTAMP differs by more than a minute from the records before and after, and BORNTIMESTAMP agrees "
            "with those: a damaged field, which no checksum covers, or a clock that was wrong for one message. The "
            "message is delivered, but a search by time may miss others, and the start of a broker may begin at "
            "another file."
        ),
    ),
    note(
        code=codes.CL_TIME_BACK,
        title=Text("store times go back and stay back until the end"),
        about=Text(
            "The last records are older than those before them: the clock of the broker was set back, or these are "
            "records of an earlier log that came back."
        ),
    ),
    repairable_warning(
        code=codes.CL_BLANK_SIZE,
        title=Text("BLANK with a wrong size"),
        migration_repairs=True,
        ignored_by_brokers=True,
        about=Text("The size in a BLANK is not the rest of the file. Brokers accept any size that fits."),
    ),
    repairable_error(
        code=codes.CL_NO_BLANK,
        title=Text("file ends without BLANK, but another file follows"),
        damages_log=True,
        about=Text(
            "Zeros follow the last record of a file, but later files hold records. Recovery stops here and deletes the "
            "later files."
        ),
    ),
    repairable_warning(
        code=codes.CL_DIRTY_TAIL,
        title=Text("bytes after the end of the log that are not a record"),
        about=Text(
            "Bytes after the last good record are neither zero nor a record: an interrupted write. Recovery stops "
            "before them, and cuts nothing. The first line says whether messages were there."
        ),
    ),
    repairable_error(
        code=codes.CL_STALE_TAIL,
        title=Text("old records after the end of the log"),
        about=Text(
            "Records after the end repeat queue offsets and times that the log already has: they are the tail of an "
            "earlier log that was truncated. A later start may read on into them and bring them back (apache/rocketmq "
            "issue 10666)."
        ),
    ),
    error(
        code=codes.CL_MISSING_FILE,
        title=Text("file missing in the middle of the log"),
        not_here=Text("gone with a missing log file"),
        repair=Repair.ON_REQUEST,
        option="--accept-fillers",
        damages_log=True,
        explains=6,
        about=Text(
            "No file holds this part of the address space. Brokers only log `mappedFile queue's data is damaged`."
        ),
    ),
    repairable_error(
        code=codes.CL_FALSE_BLANK,
        title=Text("BLANK where messages were"),
        not_here=Text("gone where a BLANK is now"),
        damages_log=True,
        about=Text(
            "A BLANK ends this file before its last message: consume queue units point to messages in the bytes that "
            "it covers. Brokers continue with the next file. Consumers do not get these messages."
        ),
    ),
    error(
        code=codes.CL_UNKNOWN_MAGIC,
        title=Text("records with an unknown magic"),
        damages_log=True,
        why_not=Text("a newer or encrypted format is never changed"),
        to_do=Text("use the version that wrote it"),
        about=Text(
            "The lengths of the records are consistent, but their magic is unknown: a newer or an encrypted format. "
            "Nothing is repaired."
        ),
    ),
    error(
        code=codes.CL_NO_MESSAGES,
        title=Text("no good record in the log"),
        of_missing_log=True,
        explains=4,
        why_not=Text("its messages are not in this store, so nothing can restore them"),
        to_do=Text(
            "if storePathCommitLog is set, pass broker.conf with -c; otherwise take the files of the commitlog "
            "from a replica or a backup"
        ),
        about=Text(
            "Consume queues have units, but the log has no record for them: its files are gone, contain no records, or "
            "are in another place, which storePathCommitLog or storePathDLedgerCommitLog in broker.conf names (-c). "
            "Most versions then delete the consume queues."
        ),
    ),
    repairable_error(
        code=codes.CL_MISPLACED_FILE,
        title=Text("log file has the name of another file"),
        renames_only=True,
        about=Text(
            "All records of this file say that they belong in the file `right_name`: files were swapped, or restored "
            "under a wrong name. No byte of them is damaged, but a broker returns other messages than those asked for. "
            "Or the name does not have 20 digits (65536): a broker sorts names as texts, so the log ends before this "
            "file or before the next one, and DLedger does not start. `recover` renames the files (`goes_back`); the "
            "rest of the report describes the store after that. If the place is taken, or two files hold the same "
            "records, the file keeps its name, and `because` gives the reason. In a mixed store, a copy of a file in "
            "the address space of the other log goes into quarantine."
        ),
    ),
)

DLEDGER: Rows = (
    damaged_bytes(
        code=codes.DL_HEADER,
        title=Text("DLedger entry header is wrong"),
        about=Text(
            "Magic, size or pos of an entry header does not match its place. If the entry is in an old file, the node "
            "exits with 255 (`The processOffset is too small`); if it is in the last two files, the node cuts the log."
        ),
    ),
    repairable_error(
        code=codes.DL_FALSE_BLANK,
        title=Text("DLedger BLANK where entries were"),
        not_here=Text("gone where a BLANK is now"),
        damages_log=True,
        about=Text(
            "A BLANK ends this data file before its last entry: consume queue units point to messages in the bytes "
            "that it covers. Consumers do not get these messages, and a follower that asks for the entries gets none."
        ),
    ),
    repairable_error(
        code=codes.DL_INDEX_ORDER,
        title=Text("DLedger index or term out of order"),
        damages_log=True,
        about=Text("The index of an entry is not that of its predecessor + 1, or its term goes back."),
    ),
    damaged_bytes(
        code=codes.DL_BODY,
        title=Text("entry without a valid message"),
        disturbs_queues=True,
        alters_keys=True,
        about=Text(
            "The body of an entry is not a message of its position, or fails its CRC. DLedger does not notice; "
            "consumers do."
        ),
    ),
    repairable_warning(
        code=codes.DL_DIRTY_TAIL,
        title=Text("bytes after the last entry"),
        about=Text(
            "Bytes after the last entry are not an entry: an interrupted write. The first line says whether messages "
            "were there."
        ),
    ),
    repairable_error(
        code=codes.DL_STALE_TAIL,
        title=Text("old entries after the end"),
        about=Text(
            "Entries of an earlier log that was truncated follow the end. A later start may take them for its own."
        ),
    ),
    repairable_error(
        code=codes.DL_NO_BLANK,
        title=Text("DLedger file ends without BLANK, but another file follows"),
        damages_log=True,
        about=Text("Zeros follow the last entry of a file, but later files hold entries."),
    ),
    error(
        code=codes.DL_MISSING_FILE,
        title=Text("DLedger file missing in the middle"),
        repair=Repair.ON_REQUEST,
        option="--accept-fillers",
        damages_log=True,
        about=Text(
            "A data or index file between others is missing: loading throws `check data file order failed before "
            "recovery`, and the broker does not start. On a single node, `recover --accept-fillers` puts a file of "
            "fillers in its place, which keeps all indexes and queue offsets. A member of a group is cut there and "
            "gets the rest from its leader. Also reported in a mixed store when the first files after the legacy "
            "commitlog are missing: brokers start, and consumers skip the messages of these files. Fillers take their "
            "place in the same way."
        ),
    ),
    repairable_error(
        code=codes.DL_MISPLACED_FILE,
        title=Text("DLedger data file has the name of another file"),
        renames_only=True,
        about=Text(
            "All entries of this file say (pos, PHYSICALOFFSET) that they belong in the file `right_name`: files were "
            "swapped, or restored under a wrong name. The repair is the same as for CL-MISPLACED-FILE. It also works "
            "on a member of a group, because it does not make that member differ from the others."
        ),
    ),
    repairable_warning(
        code=codes.DL_DATA_INDEX,
        title=Text("DLedger index differs from the data"),
        rebuilt_with="dledger-index",
        about=Text(
            "Index units are missing or differ from their entries. Recovery rewrites them from the first mismatch "
            "(`Compare data to index failed`) if the damage is in the files that it scans."
        ),
    ),
    note(
        code=codes.DL_INDEX_GHOST,
        title=Text("index units after the last entry"),
        repair=Repair.SAFE,
        points_after_log=True,
        rebuilt_with="dledger-index",
        about=Text("Index units lie beyond offset (last index + 1) x 32. Later entries overwrite them."),
    ),
    repairable_error(
        code=codes.DL_STRAY_FILE,
        title=Text("foreign file in a DLedger directory"),
        about=Text(
            "Any file of a different length in data/ or index/ ends the process with exit code 255, and so do unused "
            "files more than a file after the last entry."
        ),
    ),
    error(
        code=codes.DL_OVERLAP,
        title=Text("commitlog and DLedger have messages at the same addresses"),
        explains=7,
        why_not=Text("two logs have the same addresses, and only the operator knows which of them the broker reads"),
        to_do=Text(
            "run rmqstore with -c broker.conf that has enableDLegerCommitLog=false if the broker now runs without "
            "DLedger; otherwise move the commitlog files from this address on away, after `rmqstore export`"
        ),
        stops_all=True,
        about=Text(
            "DLedger was switched off, and the broker appended to its old commitlog again. Consumers get either the "
            "messages of DLedger or those of the commitlog from this address on, never both. With "
            "enableDLegerCommitLog=true the broker reads DLedger."
        ),
    ),
    repairable_warning(
        code=codes.DL_COMMITTED,
        title=Text("committedIndex does not match the log"),
        about=Text(
            "committedIndex in the checkpoint is above the last entry, or cannot be read. It is a lower bound, written "
            "every 3 seconds."
        ),
    ),
    repairable_warning(
        code=codes.DL_TERM,
        title=Text("currTerm is missing or below the last entry's term"),
        about=Text("The node would restart in an old term, and could vote twice."),
    ),
)
