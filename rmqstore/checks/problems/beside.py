"""Rows of the table of problems: everything beside the log, the queues and the index.

Directories (DIR), checkpoint (CK), configuration (CFG), timer (TM), rows in rocksdbstore/ (RDB), broker (BR).
"""

from __future__ import annotations

from rmqstore.checks.problems import codes
from rmqstore.checks.problems.problem import (
    Repair,
    Rows,
    error,
    note,
    repairable_error,
    repairable_warning,
    warning,
)
from rmqstore.texts import Text

DIRECTORY: Rows = (
    repairable_error(
        code=codes.DIR_STRAY_FILE,
        title=Text("foreign file or directory among files that brokers list"),
        why_not=Text("it is not a regular file, or only a person may move it from where it is"),
        to_do=Text("move it away by hand"),
        spoils_files=True,
        about=Text(
            "commitlog/, timerlog/ or a queue directory holds a file whose name is not an offset, a file whose length "
            "does not fit, or (before 5.1.0) a directory. The broker does not start because of it: `length not matched "
            "message store config value` or NumberFormatException, exit code 253. If a file has the place of "
            "consumequeue/, the broker starts, but no message gets a unit; in the place of index/, the start or all "
            "later dispatch ends at the first message with a key. A queue file whose name does not have 20 digits is "
            "sorted wrongly: the queue may end before it."
        ),
    ),
    repairable_warning(
        code=codes.DIR_SUB_DIRECTORY,
        title=Text("directory inside a directory of files"),
        spoils_files=True,
        about=Text(
            "RocketMQ before 5.1.0 does not start if commitlog/ or a queue directory contains a directory; newer "
            "versions skip it."
        ),
    ),
    repairable_error(
        code=codes.DIR_EMPTY_FILE,
        title=Text("file of 0 bytes"),
        spoils_files=True,
        about=Text(
            "A crash between creating a file and setting its length leaves 0 bytes. Brokers before 5.1.3 do not start "
            "(`length not matched`). Newer ones delete the file if it is the last by name, and lose the end of the "
            "queue with it."
        ),
    ),
    repairable_error(
        code=codes.DIR_WRONG_LENGTH,
        title=Text("file has the wrong length"),
        spoils_files=True,
        about=Text(
            "A file is shorter or longer than the other files of its queue. Most versions do not start (`length not "
            "matched message store config value`, exit 253); 4.3, 4.4 and 4.9.2 silently ignore this file and all "
            "later ones."
        ),
    ),
    error(
        code=codes.DIR_FILE_SIZE,
        title=Text("file size differs from the configuration"),
        explains=2,
        why_not=Text("the configuration does not match the files"),
        to_do=Text("set the key that is named above"),
        stops_all=True,
        about=Text(
            "All files of a queue have a different length than broker.conf says. The broker does not start (`length "
            "not matched`). Set the key named in the finding to the size of the files. Other findings may only be "
            "consequences of this one."
        ),
    ),
    error(
        code=codes.DIR_DUPLICATE_FILE,
        title=Text("two files that start at the same offset"),
        why_not=Text("nothing shows which of the two files is the right one"),
        to_do=Text("move one of them away"),
        stops_all=True,
        about=Text(
            "Two directories of a multi-path commitlog hold a file with the same name, or a directory has two names of "
            "the same number (one with fewer zeros). The broker loads both and reads `other` (apache/rocketmq issue "
            "8859)."
        ),
    ),
    error(
        code=codes.DIR_MISSING_PATH,
        title=Text("configured path does not exist"),
        explains=1,
        why_not=Text("part of the store may be elsewhere"),
        to_do=Text("mount the disk, or correct broker.conf"),
        stops_all=True,
        about=Text(
            "broker.conf names a commitlog or DLedger path that does not exist: perhaps a disk is not mounted. A "
            "broker creates the directory, and puts some of its new log files there. Nothing is repaired while "
            "part of the store may be elsewhere."
        ),
    ),
    error(
        code=codes.DIR_UNREADABLE,
        title=Text("file or directory cannot be read"),
        why_not=Text("the operating system refuses to read it"),
        to_do=Text("give yourself permission to read it, then run this command again"),
        about=Text("The operating system refused to read a file or directory (permission, I/O error)."),
    ),
    warning(
        code=codes.DIR_OWNER,
        title=Text("files that the broker's user cannot write"),
        why_not=Text("only you can decide on owners and modes"),
        to_do=Text("run the command that `rmqstore verify` shows"),
        about=Text(
            "Most files that brokers created in this store belong to one user. Some other files or directories belong "
            "to someone else, and their owner, group and mode do not let that user read and write them: after a "
            "restore, or a start, as another user. The broker does not start with such a log, queue or checkpoint "
            "(`Permission denied`, exit 253), and cannot create files in such a directory. The finding contains the "
            "command that fixes it. If the broker runs as root, this does no harm."
        ),
    ),
    error(
        code=codes.DIR_QUEUE_KIND,
        title=Text("queue directory of the wrong kind"),
        repair=Repair.ON_REQUEST,
        asked=Text("the repair moves the queues of a topic away, which only makes sense if topics.json is right"),
        about=Text(
            "batchconsumequeue/ has a topic that does not have queue.type=BatchCQ in topics.json, or consumequeue/ has "
            "one that does. Loading throws an exception, and the broker does not start."
        ),
    ),
    note(
        code=codes.DIR_FOREIGN_ENTRY,
        title=Text("file or directory that no broker creates"),
        about=Text(
            "A file or directory at the top of the store, in index/, or next to topic or queue directories. The "
            "versions up to 5.5.1 skip it. At the top it may belong to a newer version or a plugin: if it contains a "
            "RocksDB or files named by offset, the store is not fully checked, and no repair moves the end of the log."
        ),
    ),
    warning(
        code=codes.DIR_OPEN_JOURNAL,
        title=Text("unfinished repair of this store"),
        repair=Repair.UNDO,
        why_not=Text("a repair is not finished"),
        to_do=Text("run `rmqstore undo` or `rmqstore resume` with the journal named above"),
        stops_all=True,
        about=Text(
            "The store contains a journal of rmqstore whose apply stopped half-way. Undo or resume it first. If the "
            "state is `missing`, the store refers to a journal elsewhere (--journal) that is not there or is damaged: "
            "mount its disk. If it is gone for good, that repair can no longer be undone, and `rmqstore journals STORE "
            "--prune --missing --apply` removes the reference."
        ),
    ),
    note(
        code=codes.DIR_LINK,
        title=Text("symbolic link in the store"),
        why_not=Text("links are never changed"),
        to_do=Text("check where it points"),
        about=Text(
            "The store contains a symbolic link: at its top, or below it one that leads out of the store or in a "
            "circle. Files behind it are read where a broker reads them. What is outside of the store gets into no "
            "backup, replica or bundle, and is not changed, unless the directory is named: by broker.conf (-c), or "
            "with --root DIR, as in `rmqstore backup STORE REPO --root /data2/commitlog`. The fact `option` has "
            "it ready to copy for the link of a part."
        ),
    ),
)

CHECKPOINT: Rows = (
    note(
        code=codes.CK_MISSING,
        title=Text("checkpoint file is missing or all zeros"),
        about=Text(
            "The broker creates the file. Without its times, recovery after a crash begins at the first file (5.4.0: "
            "ten files back). A broker that was killed soon after its start leaves the file all zeros."
        ),
    ),
    repairable_warning(
        code=codes.CK_LENGTH,
        title=Text("checkpoint is not a file of 4,096 bytes"),
        about=Text("The broker extends a short file with zeros. A directory in its place stops the start."),
    ),
    repairable_warning(
        code=codes.CK_AHEAD,
        title=Text("checkpoint is later than the log"),
        points_after_log=True,
        about=Text(
            "A time in the checkpoint is later than the last message: the value is garbage, or the log was cut. After "
            "a crash, recovery begins too late and misses older damage."
        ),
    ),
    repairable_warning(
        code=codes.CK_GARBAGE,
        title=Text("checkpoint holds impossible values"),
        about=Text("Negative or absurd times or offsets."),
    ),
)

CONFIG: Rows = (
    error(
        code=codes.CFG_UNREADABLE,
        title=Text("neither a config file nor its .bak can be parsed"),
        why_not=Text("neither the file nor its .bak can be parsed"),
        to_do=Text("write a new file, or take the file from a replica or a backup"),
        about=Text(
            "Neither the file nor its .bak is valid JSON with values of the types that the broker reads: the broker "
            "does not start (exit 253). With no .bak it starts, but without what the file says: as if there were no "
            "topics, or no consumer had committed an offset. With a table that is null it may start, and every request "
            "that needs the table then fails."
        ),
    ),
    error(
        code=codes.CFG_NO_TOPICS,
        title=Text("topics.json is missing, but topics have batch queues"),
        why_not=Text("nothing in the store shows the other settings of the topics"),
        to_do=Text(
            "take config/topics.json from a replica or a backup; or write one that gives each of these "
            'topics the attribute "queue.type": "BatchCQ"'
        ),
        about=Text(
            "Topics have batch queues, or messages in the log that need one, but neither topics.json nor its .bak says "
            "queue.type=BatchCQ for them. With a queue in batchconsumequeue/, the broker does not start (exit 253, "
            "`The queue type of topic … should be BatchCQ, but is SimpleCQ`). Without one, it starts, but nobody gets "
            "these messages."
        ),
    ),
    warning(
        code=codes.CFG_LOST_TOPICS,
        title=Text("topics.json is missing, and the log has messages of topics"),
        why_not=Text("the log names the topics, but not their settings"),
        to_do=Text(
            "take config/topics.json from a slave or a backup; or create the topics again with `mqadmin "
            "updateTopic`, with at least as many queues as before"
        ),
        about=Text(
            "A broker has run on this store, and topics.json and its .bak are gone. The next broker starts, but does "
            "not know the topics: consumers get `topic not exist` until somebody creates them again. Messages and "
            "consume queues stay."
        ),
    ),
    warning(
        code=codes.CFG_UNSTORED_TOPICS,
        title=Text("topics with consume queues are not in config/rdb/"),
        why_not=Text("the queues name the topics, but not their settings"),
        to_do=Text(
            "create the topics with `mqadmin updateTopic`, with at least as many queues as before: this stores "
            "them. Best do it before the broker stops, because it still knows them"
        ),
        about=Text(
            "With configManagerVersion=v2, a broker does not store topics that it created automatically when a "
            "producer sent the first message (TopicConfigManagerV2 stores only those of `mqadmin updateTopic`; 5.5.1). "
            "After its next start it does not know them: consumers get `topic not exist` until a producer sends a "
            "message, or somebody creates them. Messages, consume queues and consumer offsets stay."
        ),
    ),
    warning(
        code=codes.CFG_UNKNOWN_TOPICS,
        title=Text("topics with messages are not in topics.json"),
        why_not=Text("the queues name the topics, but not their settings"),
        to_do=Text(
            "stop the broker and add the entries that `rmqstore lost STORE` prints to config/topics.json; or "
            "create the topics with `mqadmin updateTopic`, with at least as many queues as before"
        ),
        about=Text(
            "The log has messages of these topics, and their consume queues exist, but topics.json does not have the "
            "topics: an old topics.json was restored, for instance. Consumers get `topic not exist` until somebody "
            "creates the topics again. Their messages and queues stay until they expire; but before 5.0, the next "
            "`mqadmin deleteTopic` of any topic deletes these queues too (AdminBrokerProcessor#deleteTopic, 4.9.7). A "
            "follower of a group that has run only for seconds has not taken the topics from its leader yet; its next "
            "start does that."
        ),
    ),
    warning(
        code=codes.CFG_NO_READ,
        title=Text("topic without read permission, with messages that are not read"),
        why_not=Text("only you can decide who may read a topic"),
        to_do=Text(
            "give the permission again with `mqadmin updateTopicPerm -p 6` (4: without writing), or correct `perm` in "
            "the configuration while the broker is stopped"
        ),
        about=Text(
            "`perm` of the topic does not contain 4. The broker refuses every pull and POP: `the topic … pulling "
            "message is forbidden` (PullMessageProcessor, 4.9.7 to 5.5.1). The messages stay in their queues, no "
            "consumer gets them, and they expire with the log. The fact `messages` counts those that at least one "
            "group has not read, or all if no group has an offset."
        ),
    ),
    warning(
        code=codes.CFG_READ_QUEUES,
        title=Text("readQueueNums excludes queues with messages that are not read"),
        why_not=Text("only you can decide how many queues consumers read"),
        to_do=Text(
            "raise readQueueNums above the greatest queue id that is named, with `mqadmin updateTopic -r` (give -w, "
            "too: without it, writeQueueNums becomes 8), or in the configuration while the broker is stopped"
        ),
        about=Text(
            "The topic has queues with ids from readQueueNums on. Clients do not see these queues, and the broker "
            "refuses to read them: `queueId[…] is illegal` (PullMessageProcessor, 4.9.7 to 5.5.1). Their messages stay "
            "and expire with the log. The fact `messages` counts those that at least one group has not read, or all if "
            "no group has an offset."
        ),
    ),
    warning(
        code=codes.CFG_GROUP_OFF,
        title=Text("group that may not consume, with messages that it has not read"),
        why_not=Text("only you can decide which groups may consume"),
        to_do=Text(
            "give the group consumeEnable=true with `mqadmin updateSubGroup -s true`, or delete it with `mqadmin "
            "deleteSubGroup` if nobody needs it"
        ),
        about=Text(
            "consumeEnable of the group is false. The broker refuses every pull and POP of the group: `subscription "
            "group no permission` (PullMessageProcessor, 4.9.7 to 5.5.1). What the group has not read stays in the "
            "queues until it expires with the log; other groups get it."
        ),
    ),
    warning(
        code=codes.CFG_NO_OFFSETS,
        title=Text("consumerOffset.json is missing, and groups have consumed"),
        why_not=Text("nothing else in the store shows how far the groups have read"),
        to_do=Text(
            "take config/consumerOffset.json from a slave or a backup; or set the offsets with `mqadmin "
            "resetOffsetByTime` after the start"
        ),
        about=Text(
            "A broker has run on this store, groups have retry topics, and consumerOffset.json and its .bak are gone. "
            "Every group starts over: at queue offset 0 in queues that still have it in memory, so it gets those "
            "messages again; elsewhere where its ConsumeFromWhere says, by default at the end, so it never gets what "
            "it had not read yet (ConsumerManageProcessor#queryConsumerOffset)."
        ),
    ),
    repairable_warning(
        code=codes.CFG_BROKEN,
        title=Text("config file is broken, its .bak is good"),
        about=Text(
            "The file is missing, empty, truncated or full of NUL bytes, as after a power failure, or has a value of a "
            "wrong type. The broker falls back to the .bak; 5.4.0 deletes the broken file. With a null in place of its "
            "table, the broker takes consumerOffset.json, consumerOrderInfo.json or messageRequestMode.json as it is, "
            "and every request that needs the table fails: no group can query or commit an offset."
        ),
    ),
    note(
        code=codes.CFG_BROKEN_BAK,
        title=Text("backup of a config file is broken"),
        repair=Repair.SAFE,
        about=Text("The .bak cannot be parsed, or has a value of a wrong type. The file itself is good."),
    ),
    repairable_warning(
        code=codes.CFG_SYNTAX,
        title=Text("config file that not every version reads"),
        about=Text(
            "The text has something that the JSON reader of some RocketMQ versions rejects: a comment, a comma without "
            "a value, a key without quotes. To those versions the file is broken: they take the .bak, or start without "
            "what the file says, as if there were no topics. `recover` writes the same values in the form that every "
            "version reads; comments are lost."
        ),
    ),
    error(
        code=codes.CFG_SETTING,
        title=Text("a setting of the broker does not fit the store"),
        why_not=Text("the store is not damaged in this: the broker's configuration does not fit it"),
        to_do=Text("write the line that is named after `set` into broker.conf, and verify again"),
        about=Text(
            "With this setting the next start fails, or leaves messages that are in the store: a forecast with the "
            "value that the files of the store show, or with the default, is better. Examples: dLegerSelfId of another "
            "node, dLegerPeers without a host, enableDLegerCommitLog=false on a store with DLedger entries, "
            "forceVerifyPropCRC on records without a CRC of their properties, two blanks in messageDelayLevel, no "
            "mappedFileSizeCommitLog for files that have not the default of 1 GiB. If the "
            "setting is right, this is the wrong store, or the store needs a migration first: `rmqstore "
            "migrate-to-commitlog`, `rmqstore migrate-to-dledger`."
        ),
    ),
    warning(
        code=codes.CFG_LINE,
        title=Text("line of broker.conf that has not the effect that it seems to have"),
        why_not=Text("broker.conf is not a part of the store"),
        to_do=Text("write the line that is named after `set`, or correct the value"),
        about=Text(
            "The broker reads the line, but not as it looks: a blank after the value makes `true ` false and a number "
            "no number; before 5.2.0 it also becomes a part of a path. A number with a unit, a name in lower case or a "
            "number that is too large leaves the default. Or the key is not written as the broker's: another letter "
            "case, the spelling before 4.5.2 (`mapedFileSize…`), a byte order mark before the first key. The broker's "
            "log says nothing of it. `rmqstore info STORE -c broker.conf --settings` shows the value of every setting."
        ),
    ),
    note(
        code=codes.CFG_KEY,
        title=Text("line of broker.conf without effect"),
        about=Text(
            "This version of the broker does not read the key, or a later line has the same key. The key may be one of "
            "another version, or of a plug-in that is not a part of RocketMQ."
        ),
    ),
    warning(
        code=codes.CFG_OFFSET_BEYOND,
        title=Text("consumer offset beyond the end of the queue"),
        repair=Repair.ON_REQUEST,
        points_after_log=True,
        asked=Text("the consumer offsets may be right and the queue too short: `recover` lowers them only on request"),
        about=Text(
            "The offset of a group is greater than the maximum of the queue. The broker resets the client to the end "
            "(OFFSET_OVERFLOW_BADLY), and the client skips everything that is written until then."
        ),
    ),
    warning(
        code=codes.CFG_TIER_ENDS,
        title=Text("tiered storage ends before the queue begins"),
        why_not=Text("the messages between are nowhere in this store"),
        to_do=Text(
            "copy the tier's files of this queue before the start, or start without tiered storage "
            "(messageStorePlugIn); `recover --replica` may bring the messages back"
        ),
        about=Text(
            "tieredStoreMetadata.json says that the tier has the queue up to an offset below the queue's minimum here: "
            "log files were deleted before they were copied, or the queue was moved. At its next round the broker "
            "destroys what the tier has of this queue, and begins anew (MessageStoreDispatcherImpl, `current offset is "
            "too small`)."
        ),
    ),
    warning(
        code=codes.CFG_MAPPING,
        title=Text("the mapping of a static topic does not fit its queues"),
        why_not=Text("only the brokers of the topic know together which mapping is right"),
        to_do=Text(
            "compare topicQueueMapping.json with those of the topic's other brokers; bring the messages back that the "
            "queue has lost, or remap the topic with mqadmin remappingStaticTopic"
        ),
        about=Text(
            "topicQueueMapping.json says which part of a logical queue is in which queue. Its items overlap or are out "
            "of order, or have no valid values. Or a queue of this broker ends before the offset that the mapping "
            "names, as after a repair or a restore: new messages get logical offsets that were given before, and "
            "consumers skip them."
        ),
    ),
    warning(
        code=codes.CFG_DELAY_BEYOND,
        title=Text("delay offset beyond the end of the queue"),
        repair=Repair.ON_REQUEST,
        asked=Text("the delay offsets may be right and the queue too short: `recover` lowers them only on request"),
        withholds=True,
        about=Text(
            "delayOffset.json is ahead of a queue of SCHEDULE_TOPIC_XXXX: the broker would skip messages of that level."
        ),
    ),
    repairable_warning(
        code=codes.CFG_NO_DELAYS,
        title=Text("delayOffset.json has no offset for a level with delayed messages that were due"),
        about=Text(
            "Messages of this delay level were due before the last message of the log: by more than 20 seconds, or by "
            "more than a second if all of config/ is gone. A running broker delivers when they are due, and saves "
            "delayOffset.json every 10 seconds. Without the file, or without an offset of the level in it, the next "
            "start delivers them again. The repair writes the offset of the first message of which the log has no "
            "delivered copy."
        ),
    ),
    warning(
        code=codes.CFG_NO_LEVEL,
        title=Text("delayed messages in a level that messageDelayLevel does not have"),
        why_not=Text("only broker.conf sets the delay levels"),
        to_do=Text("give messageDelayLevel in broker.conf at least as many levels as these messages need"),
        withholds=True,
        about=Text(
            "messageDelayLevel of broker.conf has fewer levels than the messages that wait in SCHEDULE_TOPIC_XXXX. The "
            "broker does not read the queues of other levels: these messages are never delivered, and expire with the "
            "log (ScheduleMessageService#start)."
        ),
    ),
    warning(
        code=codes.CFG_NO_EPOCHS,
        title=Text("no epochs in a store of controller mode"),
        why_not=Text("nothing else in the store shows where the epochs of its masters began"),
        to_do=Text(
            "if it is a slave, make it again with `rmqstore seed` from the master; if it is the master, make its "
            "slaves again from it"
        ),
        about=Text(
            "A broker in controller mode has run on this store, but epochFileCheckpoint and its .bak are gone. A slave "
            "without epochs counts as a new replica: it skips the truncation to the history of its master, and "
            "messages that only this store has stay in its log and its queues (`Slave local epochCache is empty, skip "
            "truncate log`). A master without earlier epochs makes its slaves truncate to where it became the master."
        ),
    ),
    repairable_warning(
        code=codes.CFG_EPOCH_BEYOND,
        title=Text("an epoch starts after the end of the log"),
        proof="kept",
        to_do=Text("make this replica again from the master, with `rmqstore seed`, to get the messages of this epoch"),
        about=Text(
            "epochFileCheckpoint has an epoch whose first message the log does not have: the end of the log is lost, "
            "or the file belongs to another store. As a slave, the broker asks its master for messages after its own "
            "end, and gets none. As a master, it appends no further epoch, and its slaves truncate to a wrong history "
            "(EpochFileCache#findConsistentPoint, #appendEntry). The repair drops these epochs; only another replica "
            "has their messages. If no epoch starts before the end of the log, the file is another store's, and stays."
        ),
    ),
)

TIMER: Rows = (
    warning(
        code=codes.TM_LOG,
        title=Text("timer log is damaged"),
        repair=Repair.ON_REQUEST,
        asked=Text("the repair cuts timer units, whose timed messages are then not delivered"),
        withholds=True,
        withholds_at_most=True,
        about=Text(
            "A unit of the timer log has a wrong size or magic. Recovery stops there, and cuts the rest. The broker "
            "then reads the timer queue again, from the message of the last unit on. If no unit of that file is left, "
            "it does not: the timed messages of the units that were cut are never delivered."
        ),
    ),
    warning(
        code=codes.TM_DANGLING,
        title=Text("timer units point beyond the log"),
        repair=Repair.ON_REQUEST,
        asked=Text("the repair cuts timer units, whose timed messages are then not delivered"),
        about=Text(
            "Timer units refer to messages that are no longer in the commitlog. The dequeue service may stall "
            "(apache/rocketmq issue 10668)."
        ),
    ),
    repairable_error(
        code=codes.TM_WHEEL_LENGTH,
        title=Text("timerwheel has the wrong length"),
        about=Text(
            "The length is not 2 x slots x 32: brokers from 5.0.0 on do not start. `recover` rebuilds the file from "
            "the timer log."
        ),
    ),
    error(
        code=codes.TM_WHEEL_SLOT,
        title=Text("timerwheel slots do not lead to their units"),
        repair=Repair.ON_REQUEST,
        asked=Text(
            "with slots that match the timer log, the broker delivers timed messages that it would not deliver now"
        ),
        withholds=True,
        withholds_at_most=True,
        about=Text(
            "A start relinks only the newest part of the timer log. Beyond that part, slots that have yet to be read "
            "do not lead to the last unit that is due in them: those timed messages are never delivered. Or they lead "
            "to other units, or after the end of the timer log, where units will be written later: those messages are "
            "delivered too early."
        ),
    ),
    error(
        code=codes.TM_CHAIN,
        title=Text("timer units do not link to the previous unit"),
        repair=Repair.ON_REQUEST,
        asked=Text("with its units linked again, the broker delivers timed messages that it would not deliver now"),
        withholds=True,
        withholds_at_most=True,
        about=Text(
            "The previous position in a unit that is still to be delivered is not that of the unit before it in its "
            "slot. The units before it are never delivered. If it links back to itself, the dequeue service reads on "
            "until memory is exhausted, and delivers no timed message any more."
        ),
    ),
    warning(
        code=codes.TM_CHECK,
        title=Text("timercheck does not match the timer log"),
        repair=Repair.ON_REQUEST,
        asked=Text("`recover` changes timercheck only on request"),
        withholds=True,
        about=Text(
            "timercheck is too short, or its positions are after the end of the timer log or of the timer queue. Or "
            "its read time is in the future: brokers never deliver timed messages that are due before it. Or a value "
            "is 0, although messages were due 15 seconds before the last message of the log: the next start delivers "
            "timed messages again."
        ),
    ),
    warning(
        code=codes.TM_MISSING,
        title=Text("timer log and timercheck are missing, but timed messages were due"),
        why_not=Text("nothing else in the store shows which of them were delivered"),
        to_do=Text("take timerlog/, timerwheel and config/timercheck from a backup that is not older than the log"),
        about=Text(
            "The timer queue has messages that were due before the last message of the log. A running broker delivers "
            "them when they are due, and writes the timer log and timercheck every second. Without both, the next "
            "start reads the timer queue from its beginning, and delivers these messages again "
            "(TimerMessageStore#recover)."
        ),
    ),
    error(
        code=codes.TM_COMPACTION,
        title=Text("compaction log and its queue differ"),
        why_not=Text("compacted messages are nowhere else in the store"),
        to_do=Text(
            "move the directories of the queue out of compaction/ (the broker compacts it again from what the log "
            "has), or take the file from a replica or a backup"
        ),
        about=Text(
            "compactionLog and compactionCq of a queue must hold the same file names, otherwise the broker does not "
            "start. Or a record or unit in them is damaged."
        ),
    ),
)

ROWS: Rows = (
    repairable_warning(
        code=codes.RDB_DANGLING_ROW,
        title=Text("rows in rocksdbstore/ point beyond the log"),
        points_after_log=True,
        about=Text(
            "Rows of timed messages, half messages or the index (column families timer, trans, default) name records "
            "that the log does not have. A broker drops them when they are due, or takes what is written there later "
            "for the message."
        ),
    ),
    warning(
        code=codes.RDB_WRONG_ROW,
        title=Text("rows in rocksdbstore/ do not fit their records"),
        repair=Repair.ON_REQUEST,
        asked=Text("the repair removes the rows, which may be the only trace of a timed message or of a transaction"),
        about=Text(
            "The record at the offset of a row has another size, topic, due time, store time or unique id, or none "
            "starts there; or the row has no valid key or value. A broker takes that record for the message of the "
            "row, or ignores the row: the timed message is not delivered, the transaction is not checked."
        ),
    ),
    repairable_warning(
        code=codes.RDB_STALE_HALF,
        title=Text("rows of half messages that were committed or rolled back"),
        about=Text(
            "rocksdbstore/ has a row for a half message, although a later record ends its transaction. The broker asks "
            "the producer once more, and delivers the message again if the producer says commit."
        ),
    ),
    repairable_warning(
        code=codes.RDB_MISSING_HALF,
        title=Text("half messages without a row in rocksdbstore/"),
        about=Text(
            "With transWriteOriginTransHalfEnable=false, only rows show which transactions are open. Half messages "
            "have no row, and no later record ends them: those after lastOffsetPy because rocksdbstore/ was lost, or "
            "is older than the log; earlier ones are not given up, because an older half message still has its row. "
            "The broker never asks for them. `recover` rebuilds their rows from the log; the broker may then ask for "
            "some once more that it had given up."
        ),
    ),
    repairable_warning(
        code=codes.RDB_MISSING_TIMER,
        title=Text("timed messages without a row in rocksdbstore/"),
        withholds=True,
        about=Text(
            "The broker has read these messages from the timer topic (sys_topic_scan_offset_checkpoint is after them), "
            "and they were neither delivered nor recalled. But they have no row in rocksdbstore/, and the timer log "
            "does not have them: they are never delivered. `recover` rebuilds their rows from the log; the next start "
            "delivers those that are due."
        ),
    ),
    repairable_warning(
        code=codes.RDB_NOT_INDEXED,
        title=Text("messages without rows in the index in rocksdbstore/"),
        about=Text(
            "Messages before lastOffsetPy have no rows in the index, although messages of the same hour have: queries "
            "by key or ID do not find them. `recover` rebuilds their rows from the log."
        ),
    ),
    repairable_error(
        code=codes.RDB_POSITION,
        title=Text("wrong positions in rocksdbstore/"),
        about=Text(
            "lastOffsetPy is beyond the end of the log: until the log has grown past it, new half messages (family "
            "trans) are never checked, and new messages (family default) are not in the index. Or "
            "sys_topic_scan_offset_checkpoint is beyond the timer queue: timed messages may be skipped after a crash. "
            "Or a position is negative, or shorter than 8 bytes, on which brokers fail."
        ),
    ),
    repairable_warning(
        code=codes.RDB_NO_TIMELINE,
        title=Text("timed messages in rocksdbstore/, but no time from which to deliver"),
        withholds=True,
        about=Text(
            "The broker writes timeline_checkpoint when it delivers its first timed message. Without it, a start "
            "delivers only messages that are due from 10 seconds before the start on: those that are due while the "
            "broker is down are lost, without a word in its log. The fact `messages` counts those that a start now "
            "would lose. `recover` writes the time of the first row."
        ),
    ),
    error(
        code=codes.RDB_DAMAGED,
        title=Text("the RocksDB in rocksdbstore/ is damaged"),
        why_not=Text("nothing else in the store has its rows"),
        to_do=Text(
            "take rocksdbstore/ from a backup, or move it out of the store and run `rmqstore recover`, which makes "
            "the rows of open half messages again; the broker reads the timer topic from its beginning, and "
            "delivers messages whose time has passed once more"
        ),
        about=Text(
            "A file of the database is missing or has wrong bytes. The broker starts, and only its log has an error "
            "(`MessageRocksDBStorage init error`): with timerRocksDBEnable it delivers no timed message any more, with "
            "transRocksDBEnable it checks no half message, with indexRocksDBEnable it finds nothing."
        ),
    ),
    warning(
        code=codes.RDB_ACCESS,
        title=Text("the RocksDB of users or permissions is damaged"),
        why_not=Text("nothing else in the store has users and permissions"),
        to_do=Text(
            "take the directory from a backup; or move it out of the store, start the broker with "
            "initAuthenticationUser, and create users and permissions again with mqadmin"
        ),
        about=Text(
            "config/users/ or config/acls/ is missing a file or has wrong bytes. With its metadata provider configured "
            "(authenticationMetadataProvider, authorizationMetadataProvider), RocketMQ 5.3.0 and newer open it at each "
            "start, and end with 255 if they cannot (`Failed to load rocksdb for auth_user`). Otherwise they do not "
            "read it."
        ),
    ),
    warning(
        code=codes.RDB_ACCESS_ROW,
        title=Text("users or permissions that no broker can use"),
        why_not=Text("nothing else in the store has users and permissions"),
        to_do=Text(
            "list what is left with `rmqstore dump STORE --what config`, and create the user or the policies again "
            "with mqadmin (createUser, createAcl) on the running broker"
        ),
        about=Text(
            "A row of config/users/ or config/acls/ has no valid JSON: requests of its user fail, and listUser or "
            "listAcl for all users. Or it has the value of another key, or an unknown type, and the broker takes it "
            "as it is. Or config/acls/ has policies of a user that config/users/ does not have: they apply again when "
            "somebody creates a user of this name."
        ),
    ),
    repairable_warning(
        code=codes.RDB_POP_BEYOND,
        title=Text("rows in kvStore/ name messages that their queue does not have"),
        about=Text(
            "A row of kvStore/ is a message that a POP consumer has received and not acknowledged, but the queue ends "
            "before its offset: the log has lost the message. When the row is due, the broker finds nothing and drops "
            "it. If the queue has reached this offset again by then, the broker delivers another message twice."
        ),
    ),
    error(
        code=codes.RDB_POP_ROW,
        title=Text("rows in kvStore/ without a valid key or value"),
        repair=Repair.ON_REQUEST,
        asked=Text("the repair removes the rows, which may be of messages that are not acknowledged"),
        about=Text(
            "The value of a row is not the JSON object of a message that a POP consumer has received, or the key of "
            "the row says something else. When a value that is no such object is due, the broker returns no message to "
            "any group any more, and its log repeats `PopConsumerService revive error`. A row with another key stays: "
            "the broker returns its message again after each start."
        ),
    ),
)

POP: Rows = (
    warning(
        code=codes.POP_BEYOND,
        title=Text("POP check points name messages that their queue does not have"),
        why_not=Text("the check points are messages of the log, and the messages that they name are gone"),
        to_do=Text(
            "nothing is lost by them: start the broker, and let no producer send to these topics before the latest "
            "time that is named above, if no message may be delivered twice"
        ),
        about=Text(
            "A check point in `rmq_sys_REVIVE_LOG_*`, or in the timer on its way there, is a POP consumer's receipt of "
            "messages; the broker has not processed it yet. But the queue ends before the queue offsets in it, or in "
            "an acknowledgement of it: the log has lost the messages. When the check point is due, the broker finds "
            "nothing and goes on (PopReviveService#reviveMsgFromCk, 5.4.0). If the queue has reached these offsets "
            "again by then, the broker delivers other messages twice."
        ),
    ),
)

BROKER: Rows = (
    repairable_error(
        code=codes.BR_START_LOSES,
        title=Text("the next start takes messages from a sound store"),
        why_not=Text("the rules of this broker version lose them, not damage of the store"),
        to_do=Text(
            "start a version that loses nothing: `rmqstore verify STORE --broker VERSION` forecasts it; start a "
            "store that has DLedger entries with enableDLegerCommitLog=true"
        ),
        about=Text(
            "Nothing is damaged, but a start of this broker version takes messages away, or does not deliver them: a "
            "broker with enableDLegerCommitLog=false does not read the DLedger entries of a store. After a crash, 5.4 "
            "cuts the consume queues of a DLedger store 48 bytes per entry too early and does not always dispatch the "
            "messages again (DLedgerCommitLog#dledgerRecoverAbnormally). `rmqstore recover` makes the next start a "
            "normal one."
        ),
    ),
    error(
        code=codes.BR_TOO_OLD,
        title=Text("the broker version is too old for the store"),
        why_not=Text("the store is not damaged: this version does not know what newer versions write"),
        to_do=Text(
            "start the version named above or a newer one; or run the command that `rmqstore verify` shows; or export "
            "the messages with `rmqstore export`, and import them into a new store"
        ),
        about=Text(
            "The log has records, or the store has queues or configuration, that this version cannot read: its start "
            "stops at the first such record and cuts off the rest of the log, leaves messages without consume queue "
            "units, or forgets topics, groups and consumer offsets. Or messages wait for a service that this version "
            "does not have: timed messages, those that POP consumers did not acknowledge, half messages in "
            "rocksdbstore/. No repair changes that."
        ),
    ),
    error(
        code=codes.BR_NO_START,
        title=Text("the broker does not start with a sound store"),
        why_not=Text("the configuration or the rules of this broker version stop it, not damage of the store"),
        to_do=Text("correct the setting that is named above, or start another version"),
        about=Text(
            "No other error explains why the broker does not start: for example, a messageDelayLevel that it cannot "
            "parse (`1x`; exit 253)."
        ),
    ),
)
