"""Declarations of every JSON object and row that commands print or write.

`python -m rmqstore.manual` generates `rmqstore/schemas/NAME.json` (JSON Schema, draft 2020-12) and rmqstore-json(7)
from these declarations.

A declaration has one field per line: `NAME TYPE (UNIT): sentence`. A field `NAME?` is optional. A TYPE is int, num,
str, bool, any or null; `[T]` a list, `{T}` an object with arbitrary names, `@PART` a shared part, `S/T` either. A line
`*PART` includes all fields of a part. Fields of messages come from `messages.schema`, those of stored records from
their layouts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from rmqstore.formats import checkpoint, consumequeue, dledger, index, timer
from rmqstore.formats.layout import Record
from rmqstore.messages.schema import BODY, COLUMNS, DUMPED, EXPORTED, POSITIONS, SIDE, Column

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_SIMPLE = {"int": "integer", "num": "number", "str": "string", "bool": "boolean", "null": "null"}
_LINE = re.compile(r"(?P<name>\S+?)(?P<optional>\??) (?P<type>\S+)(?: \((?P<unit>[^)]*)\))?: (?P<about>.+)")
_BETWEEN = re.compile(r"/(?![^\[{]*[\]}])")


class Field(NamedTuple):
    """One field; `unit` is the unit of a number, "" without one."""

    name: str
    optional: bool
    type: str
    unit: str
    about: str


class Document(NamedTuple):
    """An object or row that a command prints or writes, in one of several alternative `forms`.

    `source` is the command. `schema` is the value of the field `schema`, "" without such a field.
    """

    source: str
    schema: str
    about: str
    forms: tuple[str, ...]


# --- parts that are generated ----------------------------------------------------------------------------------------

_COLUMN_TYPES = {"int32": "int", "int64": "int", "time": "int", "string": "str", "binary": "str", "map": "{str}"}
_NULLABLE = ("tags", "keys", "unique_key")


def _column(column: Column, optional: bool = False) -> str:
    kind = _COLUMN_TYPES.get(column.type, column.type) + ("/null" if column.name in _NULLABLE else "")
    unit = "ms" if column.type == "time" else column.unit
    about = f"{column.about} In base64." if column.type == "binary" else column.about
    return _line(column.name, "any" if column.name == "body" else kind, unit, about, optional)


def _line(name: str, kind: str, unit: str, about: str, optional: bool = False) -> str:
    return f"{name}{'?' if optional else ''} {kind}{f' ({unit})' if unit else ''}: {about}"


def _columns(needed: Iterable[str], optional: Iterable[str]) -> str:
    return "\n".join(
        [*(_column(COLUMNS[name]) for name in needed), *(_column(COLUMNS[name], True) for name in optional)]
    )


def _record(record: Record, optional: bool = False) -> str:
    return "\n".join(_line(field.name, "int", field.unit, field.about, optional) for field in record)


# --- shared parts ----------------------------------------------------------------------------------------------------

PARTS: dict[str, str] = {
    "message": _columns(DUMPED, BODY)
    + """
body_hex? str: The body in hex, with --body hex.
body_error? str: Why the body is shown as stored: it could not be decompressed.""",
    "exported": _columns(EXPORTED, (*BODY, *POSITIONS, *SIDE)),
    "bundle_scope": """
kind str: whole, around or topic.
offset int/null (bytes): The offset of --around.""",
    "bundle_part": """
part str: Directory or file of the store.
files int: Its files.
bytes int (bytes): Their total length.""",
    "left_out": """
why str: Why the files are left out.
files int: Number of files.
names [str]: Names of the first 20.""",
    "replaced": """
topics_and_groups int: Names of topics and groups.
other_texts int: Tags, keys, ids and values of properties, up to 262,144.
hosts int: Addresses.""",
    "error": """
code str: Kind of the error; rmqstore(1) lists them.
message str: What is wrong.
advice str: What to do next.""",
    "finding": """
code str: Problem code; rmqstore-problems(7) explains it.
severity str: error, warning or note.
queue str: commitlog, dledger, TOPIC/ID, index, checkpoint, config or another part of the store.
file str: Base name of the file.
offset int (bytes): Global offset in the queue.
length int (bytes): Bytes concerned.
facts {int/str/bool/null}: Details of the problem; the names depend on the code.
remedy str/null: Command that repairs it.
next str/null: Command that repairs it, ready to copy.""",
    "broker": """
version str: Broker version whose start is forecast.
evidence str: run (rules confirmed with the real classes) or by source (rules read in the source).
starts bool: Whether the broker starts.
reason str/null: Why it does not start.
exit_code int/null: Exit code of a broker that does not start. Null if it starts, or if its start never ends.
log_line str/null: Text to search for in store.log.
clean_exit bool: Whether the broker treats its last stop as a clean one.
start_file str/null: File that recovery begins with.
commitlog_stop int/null (bytes): Offset where recovery cuts the log.
stop_reason str: Why recovery stops there.
min_offset int/null (bytes): Smallest offset of the log after the start.
max_offset int/null (bytes): Largest offset of the log after the start.
messages_lost int (messages): Good messages at or after the cut.
lost_by_topic {int} (messages): The same by topic.
files_deleted [str]: Base names in commitlog/ that the start deletes.
other_files_deleted [str]: Other paths below the store that the start deletes.
queues {@bounds}: Queues after the start, by TOPIC/ID.
redispatched {int} (units): Units that the start adds to consume queues, by topic.
stale_accepted int (messages): Records accepted although they belong to an older generation of the file.
stale_tail int (messages): Good records left as bytes after the new end.
ghost_units {int} (units): Valid units left after the end of a queue, by TOPIC/ID.
shifted_units {int} (units): Units appended at a position other than their queue offset, by TOPIC/ID.
units_cut {int} (units): Units cut although their messages stay, by TOPIC/ID.
unreadable_rows {int} (messages): Messages whose rows in RocksDB cannot be read, by TOPIC/ID.
consume_queues_simulated bool: Whether the forecast covers the consume queues.
not_dispatched @stretch/null: Range of the log whose messages have no rows in RocksDB, and get none.
depends_on_commits int/null (bytes): Offset in a damaged DLedger log after which a start may skip more messages.
commits_from int/null: First DLedger entry that a leader can commit; no DLedger message can be read before that.
notes [str]: What limits the forecast.""",
    "stretch": """
start int (bytes): Global offset of the first byte.
stop int (bytes): Global offset after the last byte.""",
    "bounds": """
min int: First queue offset.
max int: Queue offset after the last unit.""",
    "checked_queue": """
*bounds
expected_max int: Queue offset that the log requires as max.""",
    "checked_log": """
min_offset int (bytes): Where the log begins.
wrote int (bytes): End of the last good record.
next_append int (bytes): Where a broker writes next.
files int (files): Files of the log.
messages int (messages): Good messages.
damaged int: Damaged places.
bytes int (bytes): Bytes of good records.
file_size int (bytes): Size of a file.
first_timestamp? int (ms): Store time of the first message.
last_timestamp? int (ms): Greatest store time.""",
    "checked_dledger": """
group_dir str: Directory of the group.
first_index int: Index of the first entry.
last_index int: Index of the last entry.
term int: Term of the last entry.
first_pos int (bytes): Where the data begins.
wrote int (bytes): End of the last good entry.
committed_index int/null: Committed index in the checkpoint.
entries int (entries): Good entries.
damaged? int: Damaged places.
files? int (files): Data files.
first_timestamp? int (ms): Store time of the first message.
last_timestamp? int (ms): Greatest store time.""",
    "verification": """
store str: The store.
kind str: plain, dledger, mixed, rocksdb or part.
clean bool: No warning, no error, and nothing unchecked.
live bool: Whether a broker is running on the store.
commitlog @checked_log/null: The commitlog.
dledger @checked_dledger/null: The DLedger group.
broker @broker/null: Forecast of the next start; null for a part of a store.
verdict str: The forecast in one sentence.
queues {@checked_queue}: Consume queues, by TOPIC/ID.
counts {int}: Findings by problem code; always complete.
findings [@finding]: Findings, worst first; at most 10,000.
unchecked [str]: What could not be checked.
notes [str]: Further remarks.
fillers [@fillers]: Records that repairs put in place of lost messages.
reused @reused/null: Log files that --since-last did not read again; null when everything was read.
resume_at {int}/null (bytes): Offset by log where --max-duration ended the check.""",
    "reused": """
files [str]: Paths of the files. They are unchanged, and an earlier run found nothing wrong in them.
bytes int (bytes): Bytes of them that were not read.
read_at int (ms): When the oldest of the reused results was made.""",
    "fillers": """
repair str/null: Name of the repair's journal.
count int (messages): Records that it put in place of lost messages.""",
    "loss": """
messages int (messages): Messages that are lost.
bytes int (bytes): Bytes that are lost.
queues {int} (messages): Lost messages by TOPIC/ID.
at_least? bool: Whether there may have been more.
good_messages_given_up? int (messages): Good messages that are lost with damaged ones.
visible_fillers? int (messages): Fillers that consumers see.
groups_that_will_see_them? {int} (messages): How many of them each consumer group sees.""",
    "step": """
do str: What the step does, such as overwrite, create, discard.
path str: File, relative to the store, or absolute outside it.
at? int (bytes): Position in the file.
length? int (bytes): Bytes concerned.
source? str: Name of the file before a rename.
why str: Why the step is needed.""",
    "wrote": """
commitlog? int/null (bytes): End of the commitlog.
dledger? int/null (bytes): End of the DLedger data.
dledger_index? int/null (bytes): End of the DLedger index.
consumequeue? {int} (units): End of each consume queue, by TOPIC/ID.
index? {int} (units): Entries of each index file.
timerlog? int/null (bytes): End of the timer log.""",
    "counts": """
counts {int}: Warnings and errors by problem code.""",
    "change": """
store str: The store.
applied bool: Whether the plan was applied.
strategy str/null: salvage or truncate; null for other commands than recover.
role str/null: Role of the broker, or unknown.
journal str/null: Journal of the repair, for undo.
digest str: Digest of the plan, for --force.
wrote @wrote: Where the parts of the store end.
broker @broker/null: Forecast of the next start; after an apply, for the repaired store.
loss @loss: What the plan loses.
cures [str]: Problem codes that the plan repairs.
notes [str]: Remarks.
brakes [str]: Why the plan needs --force.
steps [@step]: What the plan writes.
remaining @counts: Problems that remain, after an apply or when there is nothing to do.
facts {any}: Details of the command; names depend on the command and are not part of the contract.""",
    "log_info": """
files int (files): Files of the log.
file_size int (bytes): Size of a file.
file_size_from str: Where the file size is known from.
bytes int (bytes): Bytes on disk.
min_offset int (bytes): Where the log begins.
wrote int (bytes): Where whole records end.
found_by str: How the end was found.
first_timestamp int/null (ms): Store time of the first message.
last_timestamp int/null (ms): Store time of the last message.
odd [str]: Files that do not belong to the log, and why.
holes [[int]] (bytes): Missing files: start and stop.
torn int (bytes): Bytes after the end that belong to incomplete records.""",
    "dledger_info": """
group_dir str: Directory of the group.
self_id str: Id of the node.
data @log_info: The data files.
first_index int: Index of the first entry; -1 without entries.
last_index int: Index of the last entry; -1 without entries.
last_index_term int: Term of the last entry; -1 without entries.
term int: Current term of the node.
voted_for str/null: Node that it voted for.
committed_index int/null: Committed index in the checkpoint.
divided_commitlog_offset int/null (bytes): Where DLedger begins in a mixed store.""",
    "lock": """
exists bool: Whether the lock file exists.
held bool: Whether a process holds it.
pid int/null: Process that holds it.""",
    "span_of_time": """
first_timestamp int (ms): Store time of the first message.
last_timestamp int (ms): Store time of the last message.""",
    "queue_info": """
*bounds
kind str: simple, batch or rocksdb.
files int (files): Files of the queue.
bytes int (bytes): Bytes on disk.""",
    "topic_info": """
queues int (queues): Queues of the topic.
messages int (messages): Messages in its queues.""",
    "index_info": """
files int (files): Index files.
bytes int (bytes): Bytes on disk.
entries int (entries): Entries in all files.
begin_timestamp int (ms): Smallest store time.
end_timestamp int (ms): Greatest store time.
end_phy_offset int (bytes): Greatest commitlog offset.""",
    "checkpoint": _record(checkpoint.STORE_CHECKPOINT),
    "config_info": """
bytes? int (bytes): Size of the file.
condition str: sound, or what is wrong with it.
entries? int: Entries of its table.
what? str: What the entries are.""",
    "journal_info": """
journal str: Path of the journal.
state str: preparing, applying, done, undoing, undone or pruning.
steps int: Steps of the plan.
batches int: Batches of the plan.
batches_done int: Batches that have been executed.""",
    "journal": """
*journal_info
made int (ms): When the journal was created.
command str/null: Command that created it.
bytes int (bytes): Bytes on disk.
files_kept int (files): Files in quarantine and lost+found.
loss @loss/null: What the repair lost.
cures [str]: Problem codes that it repaired.
prune bool: Whether --prune removes it.""",
    "got": """
*message
flags [str]: Meaning of the bits of sys_flag.
position_in_file int (bytes): Where the record begins in its file.
fault str/null: What is wrong with the record.""",
    "found": """
*message
record str: sound, or what is wrong with the record.
queue_entry @queue_entry: Its unit in the consume queue.
index @index_state: Its entries in the index files.
consumers [@consumer]/null: Consumer groups of the topic; null if their progress cannot be read.
outcome str/null: What became of a delayed or transactional message.
due int/null (ms): When a delayed message is due.
related [@related]: Messages that it was made from, or that were made from it.""",
    "queue_entry": """
state str: present, missing, wrong, not-wanted, unreadable or not-here.
offset int/null (bytes): Log offset that the unit holds.
tag_matches bool/null: Whether the tags code of the unit matches.""",
    "index_state": """
state str: present, partly, missing, not-wanted, no-index or not-here.
present [str]: Keys that the index has.
missing [str]: Keys that the index lacks.""",
    "consumer": """
group str: Consumer group.
offset int: Queue offset that it has reached.
consumed bool: Whether it has consumed the message.""",
    "related": """
relation str: What it is to the message found, such as half, real, delayed, original, dlq.
topic str: Its topic.
queue_id int: Its queue.
queue_offset int: Its queue offset.
offset int (bytes): Its log offset.
store_timestamp int (ms): Its store time.""",
    "trace": """
offset int (bytes): Log offset that an index entry names.
topic str: Topic of the key.
key str: Key that was searched for.
state str: What is at that offset now.""",
    "range": """
start int (bytes): First offset.
stop int (bytes): Offset after the last one.""",
    "lost_message": """
topic str: Its topic.
queue_id int: Its queue.
queue_offset int: Its queue offset.
offset int/null (bytes): Its log offset.
size int/null (bytes): Length of the record.
keys str/null: The property KEYS.
key_hashes [int]: Hashes of its index entries, if nothing else is left.
unique_key str/null: The producer's message id.
tags str/null: The property TAGS.
store_timestamp int/null (ms): Its store time.
indexed_time int/null (ms): Its store time by the index, up to a second too early.
cause str: damage; or cut, for a good message that the next start deletes.
body str: intact, damaged or gone.
mended bool: Whether a repair restores it, or has restored it.
filler bool: Whether a filler is in its place.
consumed_by [str]/null: Groups that have consumed it; null if their progress cannot be read.
matched_keys? [str]: Keys of --keys that may belong to it.""",
    "share": """
topic? str: Topic.
queue? str: Queue, TOPIC/ID.
tag? str/null: Tag; null without one.
host? str/null: Producer host.
day? str: Day of the store time (UTC).
hour? str: Hour of the store time (UTC).
messages int (messages): Messages.
bytes int (bytes): Bytes of their records.""",
    "usage": """
messages int (messages): All messages.
bytes int (bytes): Bytes of their records.
by {[@share]}: A table for each --by; several dimensions are joined by a comma.
distinct {int}: Rows of each table before --top.""",
    "file_usage": """
parts [@part_usage]: The parts of the store.
topics [@topic_usage]: The consume queues of each topic.""",
    "part_usage": """
part str: Part of the store.
files int (files): Its files.
bytes int (bytes): Length of the files.
allocated int (bytes): Bytes allocated on disk.""",
    "topic_usage": """
topic str: Topic.
queues int (queues): Its queues.
files int (files): Files of the queues.
bytes int (bytes): Length of the files.
allocated int (bytes): Bytes allocated on disk.
used int (bytes): Bytes that units occupy.
empty_share num: Share of the files that is empty, 0 to 1.""",
    "side": """
path str: The store.
kind str: plain, dledger, mixed or rocksdb.
min_offset int (bytes): Where its log begins.
wrote int (bytes): End of the last good record.
next_append int (bytes): Where a broker writes next.
divided_offset int (bytes): Where DLedger begins, or would begin in a plain store.
messages int (messages): Good messages.
damaged int: Damaged places.
dledger @side_dledger/null: Its DLedger group.
unreadable bool: Whether the disk reported an error.""",
    "side_dledger": """
first_index int: Index of the first entry.
last_index int: Index of the last entry.
term int: Term of the last entry.
committed_index int: Committed index; -1 if unknown.""",
    "place": """
offset int (bytes): Log offset.
size int (bytes): Length of the record.
index int/null: DLedger index.
term int/null: DLedger term.
topic str: Topic.
queue_id int: Queue.
queue_offset int: Queue offset.
store_timestamp int (ms): Store time.""",
    "divergence": """
log str: commitlog or dledger.
offset int (bytes): First offset where the stores differ.
store @place/null: The record of STORE there.
other @place/null: The record of OTHER there.
store_state str: message, damaged, missing-file, zeros, blank, other-record or ended.
other_state str: The same for OTHER.""",
    "some_messages": """
messages int (messages): How many.
queues {@some_of_queue}: The same by TOPIC/ID.
listed [@place]: The first of them.""",
    "some_of_queue": """
first int: First queue offset.
messages int (messages): How many.
ranges [[int]]: Ranges of queue offsets, both ends included.""",
    "first_in_queue": """
first_divergence int: First queue offset that differs.""",
    "common": """
start int (bytes): First offset at which both stores have files.
stop int (bytes): Offset up to which they are equal.
messages int (messages): Equal messages up to there.""",
    "both_damaged": """
offset int (bytes): First damaged offset.
until int (bytes): Offset after the damage.
same_bytes bool: Whether both stores have the same bytes there.""",
    "comparison": """
other @side: OTHER.
equal bool: Whether no record differs.
relation str: equal, store-is-prefix, other-is-prefix, moved or diverged.
common @common: The equal part.
equal_messages int (messages): Messages that are equal at the same offset.
first_divergence @divergence/null: First difference.
queues {@first_in_queue}: First difference of each queue, by TOPIC/ID.
changed @some_messages: Same queue offset, other content.
damaged_in_store @some_messages: Damaged in STORE only.
damaged_in_other @some_messages: Damaged in OTHER only.
damaged_in_both [@both_damaged]: Damaged in both.
only_in_store @some_messages: In STORE only.
only_in_other @some_messages: In OTHER only.
moved int (messages): In both, at different offsets.
heal [str]: Commands that restore damaged or missing messages from the other store.""",
    "range_difference": """
offset int (bytes): Where the first range that differs begins.
until int (bytes): Where it ends.
store null: Always null: a fingerprint has no records.
other null: Always null: a fingerprint has no records.""",
    "refusal": """
reason str: Why the store cannot be migrated.
advice str: What to do next.""",
    "pad": """
file str: File that is closed.
at int (bytes): Position of the BLANK.
size int (bytes): Bytes that it covers.""",
    "unread": """
store str: The store.
clean bool: Always false.
error str: Why the store could not be read.""",
    "pipeline_verified": """
*verification
messages int (messages): Good messages in all logs.""",
    "pipeline_checked": """
store str: The store.
messages int (messages): Good messages in all logs.
unchecked [str]: What could not be checked.
clean bool: No warning or error about consume queues, and nothing unchecked.
counts {int}: Findings about consume queues, by problem code.
findings [@finding]: Findings about consume queues.""",
    "pipeline_used": """
store str: The store.
*usage
clean bool: Whether no damage was found.
damaged_spans int: Damaged places.
damaged_bytes int (bytes): Bytes of the damaged places.""",
    "pipeline_exported": """
store str: The store.
clean bool: Whether no damage was found.
messages int (messages): Messages exported.
segments int: Segments of the store.
segments_written int: Segments that this run wrote.
damaged_messages int (messages): Damaged messages among those exported.
damaged_spans int: Damaged places that were skipped.
damaged_bytes int (bytes): Bytes of these places.
spans [[any]]: The first of them: log, start, stop, cause.
unchecked [str]: What could not be read.""",
    "pipeline_rebuilt": """
store str: The store.
output str: Directory of its consume queues.
queues int (queues): Queues written.
files int (files): Files written.
units int (units): Units written.
notes [str]: What was assumed.""",
    "pipeline_compared": """
store str: Label of this store.
with str: Label of the first store.
first @side: The first store.
clean bool: Whether the stores are equal.
*comparison""",
    "healing": """
store str: Label of the damaged store.
places int: Damaged places of its log.
replicas [@offer]: Stores that have original bytes, the one with most of them first.
refused {str}: Why each of the other stores cannot help, by path.
note? str: Why the store could not be read.""",
    "offer": """
replica str: Path of the store that has the bytes.
places int: Damaged places of which it has bytes.
bytes int (bytes): Bytes that it has for them.
command str: Command that shows the plan.""",
    "plan_step": """
do str: What the step does.
path str: File, relative to the store, or absolute outside it.
at? int (bytes): Position in the file.
length? int (bytes): Bytes concerned.
from? int (bytes): Size of the file before.
to? int (bytes): Size of the file after.
size? int (bytes): Size of the new file.
source? str: Name of the file before a rename.
like? str/null: File whose owner and mode the new one gets.
expect? str: Hash of the old bytes.
content? {any}: The new bytes: base64, zeros, or parts of these; for a RocksDB file also hashes of its rows and bytes.
why str: Why the step is needed.""",
    "plan_span": """
path str: File.
at int (bytes): Position in the file.
length int (bytes): Bytes that are saved.
name str: Name in lost+found of the journal.
why str: Why they are saved.""",
}

_MIGRATION = """
store str: The store.
ready bool: Whether the store can be migrated.
refusals [@refusal]: Why it cannot be.
notes? [str]: Remarks.
error? @error: The first refusal as an error."""
_CHANGES = "*change"
_PIPELINE = """
stores [@{0}/@unread]: One object for each store.
seconds num (s): Duration."""


def _pipeline(job: str, part: str, about: str, more: str = "") -> Document:
    return Document(f"pipeline {job}", f"rmqstore.pipeline.{job}/1", about, (_PIPELINE.format(part) + more,))


def _units(what: str, about: str, *forms: str) -> Document:
    return Document(f"dump --what {what}", "", about, forms)


_FILE = "file str: Name of the file."
_IN_QUEUE = "topic str: Topic.\nqueue_id int: Queue."

DOCUMENTS: dict[str, Document] = {
    "info": Document("info", "rmqstore.info/1", "The contents of a store.", ("""
store str: The store.
kind str: plain, dledger, mixed, rocksdb or part.
part str/null: Part of a store that was named; null for a whole store.
live bool: Whether a broker is running on the store.
lock @lock: The lock file.
abort bool: Whether the abort file exists.
clean_exit bool/null: Whether the broker was stopped cleanly; null for a part or a live store.
commitlog @log_info/null: The commitlog.
dledger @dledger_info/null: The DLedger group.
retained @span_of_time/null: Store time of the messages.
queues {@queue_info}: Consume queues, by TOPIC/ID.
topics {@topic_info}: Topics.
index @index_info/null: Index files.
timerlog @log_info/null: The timer log.
checkpoint @checkpoint/null: The checkpoint file.
config {@config_info}: Configuration files, by name.
journals [@journal_info]: Unfinished repairs.
unchecked [str]: What could not be read.
notes [str]: Further remarks.""",)),
    "verify": Document("verify", "rmqstore.verify/1", "The problems of a store.", ("""
*verification
seconds num (s): Duration.""",)),
    "verify-findings": Document("verify --findings-out", "", "One row for each finding.", ("*finding",)),
    "dump-messages": _units("messages, commitlog", "One row for each record.", "*message"),
    "dump-positions": Document(
        "dump --positions", "", "One row for each run of equal content, then one for each log.", ("""
queue str: commitlog or dledger.
file str/null: Name of the file.
kind str: RECORDS, BLANK, ZERO, DIRTY, HOLE or INTERNAL (a DLedger entry without a message).
start int (bytes): Global offset where the run begins.
stop int (bytes): Offset after it.
bytes int (bytes): Its length.
records int: Records in it.
cause str/null: Why bytes are not records.""", """
queue str: commitlog or dledger.
wrote int (bytes): End of the last good record.
next_append int (bytes): Where a broker writes next.
records int: Good records.
dirty_bytes int (bytes): Bytes that are not records.
broker? str: Version of --broker.
broker_stop? int/null (bytes): Offset where its recovery stops.""")),
    "dump-consumequeue": _units("consumequeue", "One row for each unit.", f"""{_IN_QUEUE}
queue_offset int: Queue offset.
{_record(consumequeue.UNIT)}
store_timestamp? int (ms): Store time; only for queues in RocksDB."""),
    "dump-batchconsumequeue": _units(
        "batchconsumequeue", "One row for each unit of a batch queue.",
        f"{_IN_QUEUE}\n{_record(consumequeue.BATCH_UNIT)}"),
    "dump-dledger": _units("dledger", "One row for each entry.", f"""
offset int (bytes): Where the entry begins.
{_record(dledger.ENTRY)}
message @message: The message in it."""),
    "dump-dledger-index": _units(
        "dledger-index", "One row for each unit of the DLedger index.", f"{_FILE}\n{_record(dledger.INDEX_UNIT)}"),
    "dump-index": _units("index", "For each file its header, then one row for each entry.", f"""{_FILE}
slots int (slots): Hash slots of the file.
{_record(index.HEADER)}""", f"""{_FILE}
unit int: Number of the entry.
slot int: Slot of its chain.
{_record(index.UNIT)}
timestamp int (ms): Store time, exact to the second."""),
    "dump-timerlog": _units("timerlog", "One row for each unit of the timer log.", f"""{_FILE}
offset int (bytes): Position in the timer log.
{_record(timer.LOG_UNIT)}"""),
    "dump-timerwheel": _units("timerwheel", "One row for each slot of the timer wheel that was used.", f"""
slot int: Number of the slot.
{_record(timer.WHEEL_SLOT)}"""),
    "dump-checkpoint": _units(
        "checkpoint", "One row for each file that records progress, terms or epochs.", f"""{_FILE}
what str: Kind of the file; it decides which fields follow.
bytes int (bytes): Size of the file.
{_record(checkpoint.STORE_CHECKPOINT, True)}
{_record(timer.TIMERCHECK, True)}
committed_index? int/null: Committed index of DLedger.
end_index? int/null: Last index of DLedger.
term? int: Current term of DLedger.
vote_leader? str/null: Node that was voted for.
epochs? [any]: Epochs of controller mode, with start offset.
text? str: Content of brokerIdentity.
faults? [str]: What is wrong with the file."""),
    "dump-config": _units("config", "One row for each file in config/.", f"""{_FILE}
bytes? int (bytes): Size of the file.
condition str: sound, or what is wrong with it.
value any: The parsed file; null if it cannot be parsed.
error? str: Why it cannot be parsed."""),
    "get": Document("get", "rmqstore.get/1", "One message.", ("""
store str: The store.
message @got/null: The message; null if it does not exist.""",)),
    "find": Document("find", "rmqstore.find/1", "Messages, and whether consumers get them.", ("""
store str: The store.
messages [@found]: The messages found.
traces [@trace]: Index entries that point to no such message.
searched str: The slowest search that was used: offset, index, time or log.
log_read [@range]: Ranges of the log that were read.
more bool: Whether --limit left messages out.
not_searched [str]: Texts for which the log was not read.
damaged_spans int: Damaged places in the log that were skipped.
seconds num (s): Duration.""",)),
    "lost": Document("lost", "rmqstore.lost/1", "Lost and damaged messages.", ("""
store str: The store.
when str: next start (before a repair) or repair (after one).
journal str/null: Journal of the repair.
verdict str/null: Forecast of the next start in one sentence.
cut_from int/null (bytes): Offset from which the next start cuts the log.
at_least bool: Whether there may be more.
messages [@lost_message]: The messages.
unlisted {int} (messages): Messages of which only the number is known, by TOPIC/ID.""",)),
    "lost-rows": Document("lost --format ndjson", "", "One row for each lost or damaged message.", ("*lost_message",)),
    "du": Document("du", "rmqstore.du/1", "Messages and bytes; with --files the bytes on disk.", ("""
store str: The store.
*usage""", """
store str: The store.
files @file_usage: Bytes on disk.""")),
    "bundle": Document("bundle", "rmqstore.bundle/1", "The contents of a bundle; also its manifest.json.", ("""
store_kind str: plain, dledger, mixed, rocksdb or part.
scope @bundle_scope: The part of the store that was selected.
parts [@bundle_part]: Its contents.
left_out [@left_out]: Parts of the store that it lacks.
replaced @replaced: Numbers of different texts that were replaced.
kept [str]: What remains of the original.""",)),
    "export": Document("export", "", "One row for each message.", ("*exported",)),
    "compare": Document("compare", "rmqstore.compare/1", "Where two replicas differ.", ("""
store @side: STORE.
*comparison""", """
store @side: STORE.
other @side: The store of the fingerprint.
equal bool: Whether nothing differs.
relation str: equal, store-is-prefix, other-is-prefix, diverged or undecided.
equal_until int (bytes): Offset up to which they are equal.
first_divergence @range_difference/null: First range that differs.
queues [str]: Queues that differ, TOPIC/ID.""")),
    "fingerprint": Document(
        "compare --fingerprint-out", "rmqstore.fingerprint/1", "The printed object, and the fingerprint file.", ("""
file str: The file.
ranges int: Ranges in it.""", """
side @side: The store.
step int (bytes): Length of a range.
ranges [[any]]: Start, number of messages and digest of each range.
tail [[int]]: Start, size and CRC of the last records.
queues {[any]}: First queue offset, number of messages and digest, by TOPIC/ID.""")),
    "recover": Document("recover", "rmqstore.recover/1", "The repair of a store.", (_CHANGES,)),
    "rebuild": Document("rebuild", "rmqstore.rebuild/1", "The rebuild of a part of a store.", (_CHANGES,)),
    "expire": Document("expire", "rmqstore.expire/1", "The files that are due for deletion.", (_CHANGES,)),
    "migrate-to-dledger": Document(
        "migrate-to-dledger", "rmqstore.migrate-to-dledger/1", "The conversion of a plain store to DLedger.",
        (f"""{_MIGRATION}
applied bool: Whether the plan was applied.
divided_commitlog_offset int/null (bytes): Where DLedger begins; -1 without legacy files.
pad? @pad/null: The BLANK that closes the commitlog; null if it is already closed.
first_dledger_file? str/null: First data file; null if the first append creates it.
broker_conf? [str]: Lines for broker.conf.
loss? @loss/null: What the plan loses.
brakes? [str]: Why the plan needs --force.
digest? str/null: Digest of the plan, for --force.
steps [@step]: What the plan writes.
journal str/null: Journal, for undo.
remaining? @counts: Problems that remain after an apply.""",)),
    "migrate-to-commitlog": Document(
        "migrate-to-commitlog", "rmqstore.migrate-to-commitlog/1", "The conversion of a DLedger store to a plain one.",
        (f"""{_MIGRATION}
committed_index int: Committed index in the checkpoint; -1 without one.
last_index int: Last index that is migrated.
last_index_on_disk int: Last index on disk.
decided_by str: What decided which entries are migrated.
entries int (entries): Entries that are migrated.
entries_left_out int (entries): Entries that are not.
legacy_messages int (messages): Messages of the legacy commitlog.
first_offset int (bytes): Where the migrated entries begin.
output str: The new store.
written bool: Whether it was written.
id_map? str: File that maps old message ids to new ones.
messages? int (messages): Messages in the new store.
wrote? int (bytes): End of its log.
files? int (files): Files of its log.
unmapped? int: References to missing messages that were not changed.""",)),
    "import": Document("import", "rmqstore.import/1", "The import of messages.", ("""
output str: The store.
applied bool: Whether it was written.
messages int (messages): Messages imported, or that an apply would import.
resumed int (messages): Messages that an earlier run had imported.
queues {int}: Queue offset after the last message, by TOPIC/ID.""",)),
    "undo": Document("undo", "rmqstore.undo/1", "A repair that was undone.", ("""
restored int: Steps undone.
store str: The store.""",)),
    "resume": Document("resume", "rmqstore.resume/1", "A repair that was continued.", ("""
steps int: Steps of the plan.
journal str: The journal.""",)),
    "journals": Document("journals", "rmqstore.journals/1", "Repairs of a store.", ("""
store str: The store.
pruned bool: Whether journals were removed.
journals [@journal]: The journals, newest last.""",)),
    "plan": Document("--plan-out", "rmqstore.plan/1", "A plan file, for --plan.", ("""
store str: The store.
roots [str]: Data paths outside the store.
loss @loss: What the plan loses.
cures [str]: Problem codes that it repairs.
notes [str]: Remarks.
brakes [str]: Why it needs --force.
facts {any}: Details of the command.
spans [@plan_span]: Bytes that are saved in lost+found.
digest str: Digest of the plan.
steps [@plan_step]: The steps, with all that they write.""",)),
    "pipeline-verify": _pipeline("verify", "pipeline_verified", "As verify, for many stores."),
    "pipeline-crosscheck": _pipeline("crosscheck", "pipeline_checked", "The log compared with the consume queues."),
    "pipeline-du": _pipeline("du", "pipeline_used", "As du, for many stores.", "\ntotal @usage: All stores together."),
    "pipeline-export": _pipeline("export", "pipeline_exported", "Messages written as Parquet.", """
output str: Output directory.
segments int: Segments of all stores.
written int: Segments that this run wrote.
damaged_messages int (messages): Damaged messages among those exported.
damaged_spans int: Damaged places that were skipped."""),
    "pipeline-rebuild": _pipeline("rebuild", "pipeline_rebuilt", "Consume queues built from the log.", """
output str: Output directory."""),
    "pipeline-compare": _pipeline("compare", "pipeline_compared", "The first store against each of the others.", """
first str: Label of the first store.
heal [@healing]: Damaged stores, and which of the others can heal them."""),
    "pipeline-sql": Document("pipeline sql", "rmqstore.pipeline.sql/1", "Rows of a query.", ("""
columns [str]: Names of the columns.
rows [{any}]: The rows, by column; bytes in hex.
more bool: Whether rows were left out.
stores [@unread]: Stores that could not be read.""",)),
    "error": Document("--json", "", "An error of any command.", ("error @error: What went wrong.",)),
    "progress": Document("--progress json", "", "One line on stderr for each step of progress.", ("""
progress str: Name of the current operation.
done int: Amount done so far, in bytes or whatever the operation counts.
total int/null: Total amount.""",)),
}  # fmt: skip
"""Every object and row by the name of its schema file."""


# --- schemas ---------------------------------------------------------------------------------------------------------


def fields(text: str) -> Iterator[Field]:
    """Yield the fields of a declaration, including those of `*PART` lines. Errors: ValueError, KeyError."""
    for line in text.strip().splitlines():
        if line.startswith("*"):
            yield from fields(PARTS[line[1:]])
        elif match := _LINE.fullmatch(line):
            yield Field(match["name"], bool(match["optional"]), match["type"], match["unit"] or "", match["about"])
        else:
            raise ValueError(f"not a field: {line!r}")


def parts_of(text: str) -> list[str]:
    """Return the names of all parts that a declaration refers to, directly or through parts, in order."""
    found: dict[str, None] = {}
    for field in fields(text):
        for name in re.findall(r"@(\w+)", field.type):
            found |= dict.fromkeys((name, *parts_of(PARTS[name])))
    return list(found)


def _type(text: str) -> dict[str, Any]:
    either = _BETWEEN.split(text)
    if len(either) > 1:
        return {"anyOf": [_type(one) for one in either]}
    if text.startswith("["):
        return {"type": "array", "items": _type(text[1:-1])}
    if text.startswith("{"):
        return {"type": "object", "additionalProperties": _type(text[1:-1])}
    if text.startswith("@"):
        return {"$ref": f"#/$defs/{text[1:]}"}
    return {} if text == "any" else {"type": _SIMPLE[text]}


def _object(text: str, schema: str = "") -> dict[str, Any]:
    every = list(fields(text))
    head = {"schema": {"const": schema, "description": "Name and version of this object."}} if schema else {}
    return {
        "type": "object",
        "properties": head
        | {f.name: _type(f.type) | {"description": f.about} | ({"x-unit": f.unit} if f.unit else {}) for f in every},
        "required": [*head, *(f.name for f in every if not f.optional)],
        "additionalProperties": False,
    }


def schema_of(name: str) -> dict[str, Any]:
    """Build the JSON Schema of an object or row."""
    document = DOCUMENTS[name]
    forms = [_object(form, document.schema) for form in document.forms]
    needed = sorted({part for form in document.forms for part in parts_of(form)})
    return {
        "$schema": DIALECT,
        "title": f"rmqstore {document.source}",
        "description": document.about,
        **(forms[0] if len(forms) == 1 else {"oneOf": forms}),
        **({"$defs": {part: _object(PARTS[part]) for part in needed}} if needed else {}),
    }


def schema_files() -> dict[str, str]:
    """Return all files of `rmqstore/schemas/`: name → text."""
    return {f"{name}.json": json.dumps(schema_of(name), indent=1) + "\n" for name in DOCUMENTS}
