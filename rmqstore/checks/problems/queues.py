"""Rows of the table of problems: consume queues (CQ), batch consume queues (BCQ) and index (IX)."""

from __future__ import annotations

from rmqstore.checks.problems import codes
from rmqstore.checks.problems.problem import (
    Rows,
    error,
    note,
    repairable_error,
    repairable_warning,
    warning,
)
from rmqstore.texts import Text

CONSUME_QUEUE: Rows = (
    repairable_error(
        code=codes.CQ_MISSING_UNIT,
        title=Text("message without a consume queue unit"),
        lacks_units=True,
        migration_repairs=True,
        about=Text(
            "A message of the log has no unit at its queue offset: consumers never get it. Not every start rebuilds "
            "the unit."
        ),
    ),
    repairable_error(
        code=codes.CQ_MISSING_QUEUE,
        title=Text("queue without directory or files"),
        lacks_units=True,
        migration_repairs=True,
        about=Text(
            "Messages of this queue are in the log, but its consume queue does not exist. After a clean exit, 5.x does "
            "not rebuild it, unless no other queue is left either."
        ),
    ),
    note(
        code=codes.CQ_BEHIND,
        title=Text("consume queues are behind the log"),
        migration_repairs=True,
        about=Text(
            "The last messages of the log have no units in any queue yet: the broker was killed (or is running) before "
            "it dispatched them, or they are DLedger entries that no leader has committed. The next start, or the "
            "running broker, dispatches them. If no start would dispatch them, CQ-LEFT-BEHIND is also reported."
        ),
    ),
    repairable_error(
        code=codes.CQ_LEFT_BEHIND,
        title=Text("messages that the next start leaves without units"),
        lacks_units=True,
        about=Text(
            "Consume queues are behind the log, and the next start dispatches only from a later file on: consumers "
            "never get these messages. This happens if consume queues were removed by hand after a crash, or if a kill "
            "lost rows of a RocksDB that were only in memory."
        ),
    ),
    note(
        code=codes.CQ_DELETED_TOPIC,
        title=Text("messages of a deleted topic"),
        about=Text(
            "Messages of this topic are in the log, but the topic is not in topics.json and has no consume queue: it "
            "was deleted. Nobody gets the messages, and they go with their log files. `rmqstore export --topic` "
            "exports them until then. To serve the topic again, put it back into config/topics.json while the broker "
            "is stopped; `rmqstore recover` then makes its queues."
        ),
    ),
    repairable_error(
        code=codes.CQ_DANGLING_UNIT,
        title=Text("unit does not point to a record"),
        not_here=Text("to no message"),
        about=Text(
            "No good record starts at the commitlog offset of this unit, or of several units in a row. Consumers get "
            "errors there, or skip them."
        ),
    ),
    repairable_error(
        code=codes.CQ_WRONG_SIZE,
        title=Text("unit with a wrong size"),
        about=Text("The size in the unit is not TOTALSIZE of the record: consumers cannot decode what they get."),
    ),
    repairable_error(
        code=codes.CQ_WRONG_TAG,
        title=Text("unit with a wrong tags code"),
        about=Text(
            "The tags code of the unit is not that of the message: consumers that filter by tag miss the message. In "
            "SCHEDULE_TOPIC_XXXX the tags code is the delivery time. If one flipped bit in the message explains the "
            "code, the TAGS of the message are wrong, and are corrected. A code that is the hash of other tags is left "
            "alone, because it may be the only trace of damaged TAGS: only with --only CQ-WRONG-TAG is the unit "
            "rewritten to match the message."
        ),
    ),
    repairable_error(
        code=codes.CQ_WRONG_QUEUE,
        title=Text("unit that points into another queue"),
        about=Text("The record at the commitlog offset of the unit belongs to another topic or queue."),
    ),
    repairable_error(
        code=codes.CQ_OTHER_QUEUE,
        title=Text("units of another queue"),
        about=Text(
            "Several units in a row point to messages of one other queue (`right_queue`): a directory of consumequeue/ "
            "was renamed or copied, or files were restored to the wrong directory. The messages are right and do not "
            "change: `recover` writes the units of both queues from the log. If the directory was only renamed, it is "
            "enough to rename it back."
        ),
    ),
    repairable_error(
        code=codes.CQ_FOREIGN,
        title=Text("consume queues and log belong to different stores"),
        explains=5,
        about=Text(
            "Hardly any unit of any queue points to the start of a message: consumequeue/ or commitlog/ belongs to "
            "another broker, or was restored from another store. If the log is the right one, `recover --force` writes "
            "all units from it. The consumer offsets in config/ still refer to the units of the old queues."
        ),
    ),
    repairable_error(
        code=codes.CQ_SHIFTED,
        title=Text("units at the wrong queue offset"),
        about=Text(
            "From here on, the index of each unit differs from QUEUEOFFSET of its message: `[BUG]logic queue order "
            "maybe wrong`. Consumer offsets refer to other messages."
        ),
    ),
    repairable_error(
        code=codes.CQ_OUT_OF_ORDER,
        title=Text("commitlog offsets of units do not increase"),
        about=Text(
            "The units of a queue are not sorted by commitlog offset; the broker's binary search for the minimum "
            "offset goes wrong."
        ),
    ),
    repairable_error(
        code=codes.CQ_BEYOND_LOG,
        title=Text("units point after the end of the log"),
        not_here=Text("after the end of the log"),
        points_after_log=True,
        about=Text(
            "The queue is ahead of the commitlog. A broker truncates it at the next start (`truncate dirty logic "
            "files`), but does not erase the units."
        ),
    ),
    repairable_error(
        code=codes.CQ_GHOST_UNITS,
        title=Text("units after the end of the queue"),
        about=Text(
            "Old units after the end of the queue were never erased. When the queue grows up to them, they become "
            "valid and point to other messages."
        ),
    ),
    repairable_error(
        code=codes.CQ_PRE_BLANK_ONLY,
        title=Text("queue contains only pre-blank units"),
        about=Text(
            "A queue that contains only pre-blank units reports a maximum offset of 2147483647: 4.9 then dispatches "
            "nothing to any queue until the log passes 2 GiB; 5.x dispatches nothing to this queue."
        ),
    ),
    repairable_error(
        code=codes.CQ_ZERO_LAST_FILE,
        title=Text("last consume queue file is all zeros"),
        about=Text(
            "The queue has a new file without any unit after a full one. 5.x may fail to load, 4.9 counts one unit too "
            "many."
        ),
    ),
    repairable_error(
        code=codes.CQ_MISSING_FILE,
        title=Text("file missing in the middle of a queue"),
        about=Text("Reads at the offsets of that file return nothing. No broker start rebuilds it."),
    ),
    repairable_error(
        code=codes.CQ_BAD_PRE_BLANK,
        title=Text("pre-blank unit after real units"),
        about=Text("Pre-blank units belong only before the first unit of a queue."),
    ),
    repairable_error(
        code=codes.CQ_PARTLY_REBUILT,
        title=Text("pre-blank units in place of messages of the log"),
        lacks_units=True,
        about=Text(
            "A start rebuilt this queue only from the log files that it scanned: units of older messages in the log "
            "are missing."
        ),
    ),
    repairable_error(
        code=codes.CQ_EXT,
        title=Text("consume queue extension is damaged"),
        about=Text(
            "A unit refers to an extension address that does not exist, or an extension unit has a wrong size. Brokers "
            "log `[BUG] can't find consume queue extend file content`, and consumers filter those messages themselves. "
            "`recover` writes the tags code into the unit; the original bit map cannot be restored."
        ),
    ),
    repairable_error(
        code=codes.CQ_ROCKSDB,
        title=Text("RocksDB of the consume queues is damaged"),
        about=Text(
            "Files of the database in consumequeue/ or consumequeue_rocksdb/ are missing, or their bytes are wrong. A "
            "broker does not start, or does not deliver messages whose row it cannot read. `recover` and `rebuild "
            "STORE cq` make a new database from the log, and keep the old one in the journal."
        ),
    ),
    error(
        code=codes.CQ_ROCKSDB_FORMAT,
        title=Text("RocksDB of the consume queues has an unknown format"),
        why_not=Text("a newer RocksDB may have written it, and nothing shows that its files are damaged"),
        to_do=Text(
            "start the broker version that wrote it, or install a newer rocksdict; if the files are damaged, move "
            "them (not the directories) out of consumequeue/ and run this command again: it makes a new database"
        ),
        about=Text(
            "A table or the manifest in consumequeue/ has a format version that the RocksDB library does not know. The "
            "RocksDB of RocketMQ 5.4.0 is older and does not know it either: the broker does not start. A broker with "
            "a newer RocksDB leaves such files, and damage to the version number looks the same. The rows cannot be "
            "checked, and `recover` and `rebuild STORE cq` refuse to replace the database."
        ),
    ),
    repairable_error(
        code=codes.CQ_TWO_ROCKSDB,
        title=Text("two RocksDB of the consume queues"),
        about=Text(
            "Both consumequeue/ and consumequeue_rocksdb/ have a RocksDB of the queues. A broker from 5.5.0 on that "
            "uses one of them (storeType=defaultRocksDB, rocksdbCQDoubleWriteEnable) does not start before the other "
            "is gone. This happens if useSeparateStorePathForRocksdbCQ changes, or if 5.4.0 runs on a store of 5.5. "
            "With the broker's broker.conf (-c), `recover` rebuilds the one that the broker uses from the log, and "
            "moves the other one to the journal."
        ),
    ),
)

BATCH_CONSUME_QUEUE: Rows = (
    repairable_error(
        code=codes.BCQ_MISSING_UNIT,
        title=Text("batch without a unit"),
        lacks_units=True,
        about=Text("A message or inner batch of a BatchCQ topic has no unit."),
    ),
    repairable_error(
        code=codes.BCQ_DANGLING_UNIT,
        title=Text("batch unit does not point to a record"),
        not_here=Text("to no message"),
        points_after_log=True,
        about=Text("No good record starts at the commitlog offset of the unit."),
    ),
    repairable_error(
        code=codes.BCQ_WRONG_UNIT,
        title=Text("batch unit differs from its record"),
        about=Text("Size, tags code, store time, base offset or count in the unit differs from the record."),
    ),
    repairable_error(
        code=codes.BCQ_ORDER,
        title=Text("batch units out of order"),
        about=Text("Base offsets overlap or go back."),
    ),
    repairable_error(
        code=codes.BCQ_GHOST_UNITS,
        title=Text("batch units after the end of the queue"),
        about=Text("Old units follow the end of the queue."),
    ),
)

INDEX: Rows = (
    repairable_warning(
        code=codes.IX_HEADER,
        title=Text("index header does not match the entries"),
        about=Text("Count, times or offsets in the header do not match the entries."),
    ),
    repairable_error(
        code=codes.IX_CHAIN_LOOP,
        title=Text("endless chain in an index file"),
        about=Text(
            "The chain of an entry leads back to the entry itself: a query for such a key never ends in the broker "
            "(IndexFile#selectPhyOffset)."
        ),
    ),
    repairable_error(
        code=codes.IX_BAD_ENTRY,
        title=Text("index slot or entry out of range"),
        about=Text(
            "A slot, or the predecessor of an entry, does not lead to the newest earlier entry of the slot: chains are "
            "cut or mixed, and queries miss messages. Or the time of an entry differs from that of its message, and "
            "queries by time miss it."
        ),
    ),
    repairable_warning(
        code=codes.IX_DANGLING_ENTRY,
        title=Text("index entries do not point to a record"),
        points_after_log=True,
        about=Text(
            "Entries point after the end of the log, or to a place where no record starts. Brokers never remove them."
        ),
    ),
    repairable_warning(
        code=codes.IX_NOT_INDEXED,
        title=Text("messages missing in the index"),
        about=Text(
            "Messages with keys that are younger than the oldest index file are not in any index file: queries by key "
            "or ID do not find them."
        ),
    ),
    warning(
        code=codes.IX_CONFIG_SIZE,
        title=Text("index file size differs from the configuration"),
        why_not=Text("the configuration does not match the files"),
        to_do=Text("set the keys that are named above in broker.conf"),
        about=Text(
            "All index files have a different size than maxHashSlotNum and maxIndexNum in broker.conf give. The broker "
            "starts, and silently extends shorter files with zeros. With another number of slots, it looks for keys in "
            "the wrong places, finds none, and writes new entries over old ones (IndexFile#<init>, #putKey; 5.4.0)."
        ),
    ),
    repairable_warning(
        code=codes.IX_FILE_LENGTH,
        title=Text("index file has the wrong length"),
        about=Text("The broker silently extends a short file with zeros, and writes an empty file from the beginning."),
    ),
)
