"""Parse and build the property text of a message, and derive tags code, index keys and delivery time from it.

Source: MessageDecoder#string2messageProperties, #messageProperties2String; MessageConst; TopicValidator;
DefaultMessageStore#parseDelayLevel, #computeDeliverTimestamp; IndexService#buildIndex (RocketMQ 4.3 to 5.4.0).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from rmqstore.formats.javatext import java_split, java_string_hash, java_text, parse_int, parse_long, parse_short
from rmqstore.texts import Text

__all__ = [
    "DEFAULT_DELAY_LEVELS",
    "DelayLevels",
    "build_properties",
    "dispatch_tags_code",
    "dlq_topic",
    "index_keys",
    "inner_batch",
    "is_dlq_topic",
    "is_lite",
    "is_lmq",
    "is_retry_topic",
    "is_system_topic",
    "is_topic_name",
    "java_string_hash",
    "java_text",
    "lmq_queues",
    "parse_delay_levels",
    "parse_properties",
    "property_faults",
    "retry_topic",
    "tags_code",
]

NAME_VALUE_SEPARATOR = "\x01"
PROPERTY_SEPARATOR = "\x02"

TAGS = "TAGS"
KEYS = "KEYS"
UNIQ_KEY = "UNIQ_KEY"
DELAY = "DELAY"
REAL_TOPIC = "REAL_TOPIC"
REAL_QUEUE_ID = "REAL_QID"
TRANSACTION_PREPARED = "TRAN_MSG"
PRODUCER_GROUP = "PGROUP"
TRANSACTION_ID = "__transactionId__"
TRANS_OFFSET = "TRANS_OFFSET"
TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
TRANSACTION_PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
CHECK_IMMUNITY_TIME = "CHECK_IMMUNITY_TIME_IN_SECONDS"
RETRY_TOPIC = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
RECONSUME_TIME = "RECONSUME_TIME"
MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID"
INNER_NUM = "INNER_NUM"
INNER_BASE = "INNER_BASE"
INNER_MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
TIMER_DELAY_MS = "TIMER_DELAY_MS"
TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
TIMER_OUT_MS = "TIMER_OUT_MS"
TIMER_ENQUEUE_MS = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUE_MS = "TIMER_DEQUEUE_MS"
TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES"
TIMER_DEL_UNIQKEY = "TIMER_DEL_UNIQKEY"
TIMER_ROLL_LABEL = "TIMER_ROLL_LABEL"
CRC32 = "__CRC32#"
DUP_INFO = "DUP_INFO"
CLUSTER = "CLUSTER"
WAIT_STORE_OK = "WAIT"
MESSAGE_REGION = "MSG_REGION"
TRACE_SWITCH = "TRACE_ON"
INSTANCE_ID = "INSTANCE_ID"
POP_CK = "POP_CK"
FIRST_POP_TIME = "1ST_POP_TIME"
ORIGIN_GROUP = "ORIGIN_GROUP"
CORRELATION_ID = "CORRELATION_ID"
BORN_TIMESTAMP = "BORN_TIMESTAMP"
TIMER_DELAY_LEVEL = "TIMER_DELAY_LEVEL"

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
ROCKSDB_HALF_TOPIC = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
ROCKSDB_OP_HALF_TOPIC = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
CHECK_MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
TIMER_TOPIC = "rmq_sys_wheel_timer"
REVIVE_TOPIC_PREFIX = "rmq_sys_REVIVE_LOG_"
SYSTEM_TOPIC_PREFIX = "rmq_sys_"
RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
LMQ_PREFIX = "%LMQ%"
SYSTEM_TOPICS = frozenset(
    {
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        ROCKSDB_HALF_TOPIC,
        ROCKSDB_OP_HALF_TOPIC,
        CHECK_MAX_TIME_TOPIC,
        TRACE_TOPIC,
        "SELF_TEST_TOPIC",
        "BenchmarkTest",
        "OFFSET_MOVED_EVENT",
        "TBW102",
        "CHECKPOINT_TOPIC",
    }
)

MAX_FAULTS = 16
_TOPIC = re.compile(r"[%|a-zA-Z0-9_-]+")
DEFAULT_DELAY_TEXT = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_DELAY_UNITS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def is_topic_name(topic: str) -> bool:
    """Return whether a topic has only characters that TopicValidator#validateTopic allows; ignores its length."""
    return _TOPIC.fullmatch(topic) is not None


def is_system_topic(topic: str) -> bool:
    """Return whether a topic is reserved (TopicValidator#isSystemTopic); retry and DLQ topics are not."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


def is_retry_topic(topic: str) -> bool:
    """Return whether a topic is the retry topic of a consumer group."""
    return topic.startswith(RETRY_PREFIX)


def is_dlq_topic(topic: str) -> bool:
    """Return whether a topic is the dead-letter topic of a consumer group."""
    return topic.startswith(DLQ_PREFIX)


def is_lite(queue: str) -> bool:
    """Return whether a light queue is one of a lite topic (`%LMQ%$PARENT$CHILD`, 5.5.0).

    A broker deletes it if it is not written for some time; its next message has queue offset 0 again.
    Source: LiteUtil#isLiteTopicQueue, AbstractLiteLifecycleManager#deleteLmq (RocketMQ 5.5.1)
    """
    return queue.startswith(f"{LMQ_PREFIX}$")


def is_lmq(queue: str) -> bool:
    """Return whether a queue directory is a light message queue (LMQ), filled by multi-dispatch, without a topic."""
    return queue.startswith(LMQ_PREFIX)


def retry_topic(group: str) -> str:
    """Return the name of a group's retry topic (MixAll#getRetryTopic)."""
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    """Return the name of a group's dead-letter topic (MixAll#getDLQTopic)."""
    return DLQ_PREFIX + group


def parse_properties(data: bytes) -> dict[str, str]:
    """Parse a property text as the broker does: malformed properties are skipped, the last duplicate wins.

    A property needs a name and a value on either side of its first 0x01; those with an empty value are dropped.
    Source: MessageDecoder#string2messageProperties, 4.9.1 to 5.4.0 (4.9.0 and older reject a second 0x01)
    """
    found: dict[str, str] = {}
    for part in java_text(bytes(data)).split(PROPERTY_SEPARATOR):
        name, separator, value = part.partition(NAME_VALUE_SEPARATOR)
        if separator and name and value:
            found[name] = value
    return found


def property_faults(data: bytes) -> list[str]:
    """List the syntax faults of a property text with their byte positions, at most `MAX_FAULTS`.

    A sound text is UTF-8 and consists of name 0x01 value 0x02; the last 0x02 may be missing (4.9.1 to 5.1.4 strip it).
    An empty value is sound: the reader drops it. A value may contain 0x01, but not after the name of a property that
    brokers set: there, the 0x02 before that name is lost. Nor may it contain what `wrong_controls` finds.
    """
    data = bytes(data)
    faults: list[str] = []
    try:
        data.decode()
    except UnicodeDecodeError as e:
        faults.append(Text("invalid UTF-8 at {start}", start=e.start))
    at = 0
    while at < len(data) and len(faults) < MAX_FAULTS:
        stop = data.find(b"\x02", at)
        stop = len(data) if stop < 0 else stop
        separator = data.find(b"\x01", at, stop)
        if stop == at:
            faults.append(Text("too short at {at}", at=at))
        elif separator < 0:
            faults.append(Text("segment without separator at {at}", at=at))
        elif separator == at:
            faults.append(Text("empty name at {at}", at=at))
        elif stop - at < 3:
            faults.append(Text("too short at {at}", at=at))
        else:
            second = data.find(b"\x01", separator + 1, stop)
            if second >= 0 and data[separator + 1 : second].endswith(_OWN_NAMES):
                faults.append(Text("no separator before the property at {second}", second=second))
        at = stop + 1
    if len(faults) < MAX_FAULTS and (wrong := wrong_controls(data)):
        faults.append(
            Text("control characters at {wrong}", wrong=wrong[0])
            if any(data[i] for i in wrong)
            else Text("zero bytes at {wrong}", wrong=wrong[0])
        )
    return faults


def wrong_controls(data: bytes) -> list[int]:
    """List positions of control characters that can only be damage.

    These are control characters in names, in values generated by clients or brokers, and in runs of eight or more.
    """
    if not holds_controls(data):
        return []
    found = {i for run in _CONTROL_RUN.finditer(data) for i in range(*run.span())}
    at = 0
    for part in data.split(b"\x02"):
        name, separator, _ = part.partition(b"\x01")
        if separator:
            stop = at + (len(part) if name in _MADE_NAMES else len(name))
            found.update(match.start() for match in _CONTROL.finditer(data, at, stop))
        at += len(part) + 1
    return sorted(found)


def holds_controls(data: bytes) -> bool:
    """Return whether a property text has control characters other than separators, tab, LF and CR."""
    return _CONTROL.search(data) is not None


# properties whose values users cannot choose: clients, brokers and proxies generate them without control characters
_MADE_NAMES = frozenset(
    name.encode()
    for name in (
        *(UNIQ_KEY, DELAY, REAL_TOPIC, REAL_QUEUE_ID, PRODUCER_GROUP, WAIT_STORE_OK, CLUSTER, MESSAGE_REGION),
        *(TRACE_SWITCH, RETRY_TOPIC, ORIGIN_MESSAGE_ID, RECONSUME_TIME, MAX_RECONSUME_TIMES, INNER_NUM, INNER_BASE),
        *(TRANSACTION_PREPARED, TRANSACTION_ID, TRANSACTION_CHECK_TIMES, TIMER_OUT_MS, TIMER_DELIVER_MS, CRC32),
        *(TIMER_ENQUEUE_MS, TIMER_DEQUEUE_MS, TIMER_DELAY_SEC, TIMER_DELAY_MS, FIRST_POP_TIME, ORIGIN_GROUP),
        *(INNER_MULTI_QUEUE_OFFSET, POP_CK),
    )
)
# names that RocketMQ defines: before 0x01 inside a value, they start the next property after a lost separator
_OWN_NAMES = (TAGS.encode(), KEYS.encode(), INNER_MULTI_DISPATCH.encode(), *sorted(_MADE_NAMES))
_CONTROL = re.compile(rb"[\x00\x03-\x08\x0b\x0c\x0e-\x1f]")
_CONTROL_RUN = re.compile(rb"[\x00\x03-\x08\x0b\x0c\x0e-\x1f]{8,}")


def build_properties(
    properties: Mapping[str, str] | Iterable[tuple[str, str]], *, last_separator: bool = True
) -> bytes:
    """Build a property text in the given order; 4.9.1 to 5.1.4 write it without the last separator.

    Errors: ValueError for an empty name, and for a separator in a name or value.
    Source: MessageDecoder#messageProperties2String
    """
    pairs = list(properties.items() if isinstance(properties, Mapping) else properties)
    for name, value in pairs:
        if not name or NAME_VALUE_SEPARATOR in name or PROPERTY_SEPARATOR in name + value:
            raise ValueError(Text("property {name!r} cannot be written", name=name))
    text = PROPERTY_SEPARATOR.join(name + NAME_VALUE_SEPARATOR + value for name, value in pairs)
    return (text + PROPERTY_SEPARATOR if pairs and last_separator else text).encode("utf-8", "replace")


def tags_code(tags: str | None) -> int:
    """Return the tags code of a TAGS value: String.hashCode, sign-extended; 0 without tags.

    Source: MessageExtBrokerInner#tagsString2tagsCode
    """
    return java_string_hash(tags) if tags else 0


@dataclass(frozen=True, slots=True)
class DelayLevels:
    """The delays of the delay levels, starting with level 1, in ms (`messageDelayLevel`).

    `earlier` lists previous settings, oldest first: (level, store time (ms) of the change, delay before it).
    """

    delays: tuple[int, ...]
    earlier: tuple[tuple[int, int, int], ...] = ()

    @property
    def maximum(self) -> int:
        """The highest level."""
        return len(self.delays)

    def deliver_time(self, level: int, store_timestamp: int) -> int:
        """Return when a message of this level is due, in ms; a level above the maximum counts as the maximum.

        Source: CommitLog#checkMessageAndReturnSize, DefaultMessageStore#computeDeliverTimestamp
        """
        for changed_level, changed_at, delay in self.earlier:
            if changed_level == level and store_timestamp < changed_at:
                return store_timestamp + delay
        level = min(level, self.maximum)
        return store_timestamp + (self.delays[level - 1] if level >= 1 else 1000)

    def longest(self, level: int) -> int:
        """Return the longest delay that a level has or ever had, in ms."""
        earlier = (delay for changed_level, _, delay in self.earlier if changed_level == level)
        return max([self.deliver_time(level, 0), *earlier])

    def stored_at(self, level: int, deliver_time: int) -> int:
        """Return the earliest store time (ms) of a message of this level that is due at `deliver_time`."""
        for changed_level, changed_at, delay in self.earlier:
            if changed_level == level and deliver_time - delay < changed_at:
                return deliver_time - delay
        return 2 * deliver_time - replace(self, earlier=()).deliver_time(level, deliver_time)


def parse_delay_levels(text: str) -> DelayLevels:
    """Parse a `messageDelayLevel` setting.

    Errors: ValueError if the broker would reject the setting.
    Source: ScheduleMessageService#parseDelayLevel
    """
    delays: list[int] = []
    for part in java_split(text, " "):
        number = parse_long(part[:-1])
        if not part or part[-1] not in _DELAY_UNITS or number is None:
            raise ValueError(Text("messageDelayLevel: {part!r} is not a delay", part=part))
        delays.append(number * _DELAY_UNITS[part[-1]])
    return DelayLevels(tuple(delays))


def can_be_parsed(levels: str) -> bool:
    """Return whether a broker accepts this `messageDelayLevel`."""
    try:
        parse_delay_levels(levels)
    except ValueError:
        return False
    return True


DEFAULT_DELAY_LEVELS = parse_delay_levels(DEFAULT_DELAY_TEXT)


def dispatch_tags_code(
    topic: str, properties: Mapping[str, str], store_timestamp: int, levels: DelayLevels = DEFAULT_DELAY_LEVELS
) -> int | None:
    """Return the tags code of the message's consume queue unit; in the schedule topic, this is the due time (ms).

    None if DELAY is not a number, for which the broker treats the whole record as damaged.
    Source: CommitLog#checkMessageAndReturnSize
    """
    delay = properties.get(DELAY)
    if topic == SCHEDULE_TOPIC and delay is not None:
        level = parse_int(delay)
        if level is None:
            return None
        if level > 0:
            return levels.deliver_time(level, store_timestamp)
    return tags_code(properties.get(TAGS))


def index_keys(topic: str, properties: Mapping[str, str], *, tag_key: bool = False) -> list[str]:
    """List the key texts under which a message is indexed, in the order of the index entries.

    With `tag_key` the list ends with an entry for the TAGS value (5.4.0 and newer). Rollback messages are not indexed;
    the caller must check that.
    Source: IndexService#buildIndex
    """
    found = [properties[UNIQ_KEY]] if properties.get(UNIQ_KEY) else []
    found += [part for part in properties.get(KEYS, "").split(" ") if part]
    texts = [f"{topic}#{key}" for key in found]
    if tag_key and properties.get(TAGS):
        texts.append(f"{topic}#T#{properties[TAGS]}")
    return texts


def inner_batch(properties: Mapping[str, str]) -> tuple[int, int] | None:
    """Return (base queue offset, number of messages) of an inner batch; None if a property is missing or malformed.

    Source: CommitLog#checkMessageAndReturnSize (INNER_BASE, INNER_NUM)
    """
    base = parse_long(properties.get(INNER_BASE, ""))
    number = parse_short(properties.get(INNER_NUM, ""))
    return None if base is None or number is None else (base, number)


def _light_pairs(properties: Mapping[str, str]) -> list[tuple[str, str]]:
    """List (queue name, text of the queue offset) of the light queues; none if the two properties differ in length."""
    names = java_split(properties.get(INNER_MULTI_DISPATCH, ""), ",")
    offsets = java_split(properties.get(INNER_MULTI_QUEUE_OFFSET, ""), ",")
    if len(names) != len(offsets) or not "".join(names).strip():
        return []
    return list(zip(names, offsets, strict=True))


def malformed_offset(properties: Mapping[str, str]) -> str | None:
    """Return the first queue offset of a light queue that is not a number, at which a broker throws; None without one.

    Source: ConsumeQueue#multiDispatchLmqQueue
    """
    return next((text for _, text in _light_pairs(properties) if parse_long(text) is None), None)


def lmq_queues(properties: Mapping[str, str]) -> list[tuple[str, int]]:
    """List the (queue name, queue offset) pairs for dispatch to light message queues, up to the first malformed offset.

    Empty if a property is missing, or if the two have different lengths.
    Source: ConsumeQueue#multiDispatchLmqQueue (INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET)
    """
    found: list[tuple[str, int]] = []
    for name, text in _light_pairs(properties):
        offset = parse_long(text)
        if offset is None:
            break
        found.append((name, offset))
    return found
