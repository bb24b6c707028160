"""Replace names by pseudonyms in texts: properties of messages, JSON files of config/, small text files.

A text keeps its length and punctuation, so that a damaged text is damaged in the same place.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from rmqstore.formats import properties as p
from rmqstore.formats.message import FILLER_KEY
from rmqstore.views.bundle.names import PROPERTY_NAMES, Pseudonyms, nearest

_NUMBERS = re.compile(rb"[0-9,. :-]*|true|false", re.IGNORECASE)
_OF_BROKER = frozenset(
    name.encode()
    for name in (
        *(p.DELAY, p.REAL_QUEUE_ID, p.WAIT_STORE_OK, p.TRANSACTION_PREPARED, p.INNER_NUM, p.INNER_BASE, p.CRC32),
        *(p.TIMER_DELAY_SEC, p.TIMER_DELAY_MS, p.TIMER_DELIVER_MS, p.TIMER_OUT_MS, p.TIMER_ENQUEUE_MS),
        *(p.TIMER_DEQUEUE_MS, p.TIMER_ROLL_TIMES, p.TIMER_DELAY_LEVEL, p.RECONSUME_TIME, p.MAX_RECONSUME_TIMES),
        *(p.TRACE_SWITCH, p.TRANSACTION_CHECK_TIMES, p.TRANSACTION_PREPARED_QUEUE_OFFSET, p.CHECK_IMMUNITY_TIME),
        *(p.INNER_MULTI_QUEUE_OFFSET, p.FIRST_POP_TIME, p.BORN_TIMESTAMP, FILLER_KEY),
    )
)
_TOPICS = frozenset(
    name.encode() for name in (p.REAL_TOPIC, p.RETRY_TOPIC, p.DLQ_ORIGIN_TOPIC, p.PRODUCER_GROUP, p.ORIGIN_GROUP)
)
_IDS = frozenset(name.encode() for name in (p.ORIGIN_MESSAGE_ID, p.DLQ_ORIGIN_MESSAGE_ID))
_TOKEN = re.compile(rb'"((?:[^"\\\x00-\x1f]|\\.)*)"|[^\s"{}\[\],:=#;]+')
_BARE = re.compile(rb"[-+.0-9eE]+|true|false|null|n[0-9]+")

_JSON_WORDS = """
dataVersion counter stateVersion timestamp timeStamp offsetTable lmqOffsetTable groupTopicMap pullOffsetTable
resetOffsetTable topicConfigTable topicName order perm readQueueNums writeQueueNums topicFilterType topicSysFlag
attributes SINGLE_TAG MULTI_TAG queue.type BatchCQ SimpleCQ cleanup.policy COMPACTION DELETE message.type NORMAL
FIFO DELAY TRANSACTION MIXED UNSPECIFIED +queue.type +cleanup.policy +message.type subscriptionGroupTable groupName
consumeEnable consumeFromMinEnable consumeBroadcastEnable consumeMessageOrderly consumeTimeoutMinute retryQueueNums
retryMaxTimes brokerId whichBrokerWhenConsumeSlowly notifyConsumerIdsChangedEnable groupSysFlag groupRetryPolicy
type CUSTOMIZED EXPONENTIAL forbiddenTable subscriptionDataSet filterDataByTopic filterDataMap consumerGroup topic
expression expressionType compiledExpression bloomFilterData bornTime deadTime clientVersion TAG SQL92 table
orderedConsumptionLevel QUEUE invisibleTime popTime orderInfo messageRequestModeMap mode POP PULL popShareQueueNum
timingCount count transactionCount queueOffsetMap empty topicQueueMappingInfoMap bname epoch scope totalQueues dirty
currIdMap hostedQueues committedIndex endIndex voteLeader currTerm class
"""
JSON_WORDS = frozenset(word.encode() for word in _JSON_WORDS.split())
"""Names of fields and settings in the files of config/, and values with a meaning for brokers."""


def property_text(data: bytes, names: Pseudonyms) -> bytes:
    """Return a property text with pseudonyms in place of values, and of the names of user properties."""
    parts = []
    for part in data.split(b"\x02"):
        name, separator, value = part.partition(b"\x01")
        if separator:
            parts.append(names.property_name(name) + separator + _value(name, value, names))
        elif part:
            parts.append(b"".join(names.word(t) if t.strip() else t for t in re.split(rb"(\s+)", part)))
        else:  # after the last separator
            parts.append(part)
    return b"\x02".join(parts)


def _value(name: bytes, value: bytes, names: Pseudonyms) -> bytes:
    if name in _OF_BROKER and _NUMBERS.fullmatch(value):
        return value
    if b"\x01" in value:  # the separator before the next property is damaged
        return b"\x01".join(v if v in PROPERTY_NAMES else names.word(v) for v in value.split(b"\x01"))
    rename = _KINDS.get(name)
    return names.word(value) if rename is None else rename(value, names)


def _each(value: bytes, separator: bytes, rename: Callable[[bytes], bytes]) -> bytes:
    return separator.join(rename(word) for word in value.split(separator))


def _offset_id_or_word(value: bytes, names: Pseudonyms) -> bytes:
    """Replace the host of an offset message id, but not the log offset; replace any other value as a word."""
    if len(value) not in (32, 56):
        return names.word(value)
    try:
        raw = bytes.fromhex(value.decode())
    except ValueError:
        return names.word(value)
    return (names.host(raw[:-8]) + raw[-8:]).hex().upper().encode()


def _pop_check(value: bytes, names: Pseudonyms) -> bytes:
    return _each(value, b" ", lambda word: word if _NUMBERS.fullmatch(word) else names.topic(word))


_KINDS: dict[bytes, Callable[[bytes, Pseudonyms], bytes]] = {
    p.TAGS.encode(): lambda value, names: names.tags(value),
    p.KEYS.encode(): lambda value, names: _each(value, b" ", names.word),
    p.INNER_MULTI_DISPATCH.encode(): lambda value, names: _each(value, b",", names.topic),
    p.POP_CK.encode(): _pop_check,
    **dict.fromkeys(_TOPICS, lambda value, names: names.topic(value)),
    **dict.fromkeys(_IDS, _offset_id_or_word),
}
"""How the values of properties are replaced; those of other properties are replaced as words."""


def json_text(data: bytes, names: Pseudonyms) -> bytes:
    """Replace names in JSON or another text of names and numbers, which may be damaged; numbers stay."""

    def replaced(match: re.Match[bytes]) -> bytes:
        literal = match[1]
        if literal is not None:
            return b'"' + _joined_names(literal, names) + b'"'
        return match[0] if _BARE.fullmatch(match[0]) else _joined_names(match[0], names)

    return _TOKEN.sub(replaced, data)


def _joined_names(text: bytes, names: Pseudonyms) -> bytes:
    """Replace a name, or names joined by @ (TOPIC@GROUP)."""
    return b"@".join(_name(part, names) for part in text.split(b"@"))


def _name(text: bytes, names: Pseudonyms) -> bytes:
    if text in JSON_WORDS or text.isdigit():
        return text
    if not names.is_known(text) and nearest(text, JSON_WORDS) is not None:  # the damaged name of a field
        return text
    return names.topic(text)
