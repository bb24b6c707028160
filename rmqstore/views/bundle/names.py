"""Pseudonyms, and texts with them in place of names: properties of messages, JSON files of config/, small text files.

Within a bundle, a text always gets the same pseudonym, of the same length, derived from a secret, which is created for
one bundle and not stored: nobody can test whether a name is in the store. Names with a special meaning for brokers
stay: system topics and groups, prefixes of retry and dead-letter topics, names of properties and settings. A text keeps
its length and punctuation, so that a damaged text is damaged in the same place.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable
from hashlib import blake2b

from rmqstore.formats import properties as p
from rmqstore.formats.message import FILLER_KEY, UNKNOWN_KEY

_LETTERS = b"abcdefghijklmnopqrstuvwxyz0123456789"
_AS_NAME = bytes(_LETTERS[i % len(_LETTERS)] for i in range(256))
_AS_HEX = bytes(b"0123456789ABCDEF"[i % 16] for i in range(256))
_HEX = re.compile(rb"[0-9A-F]{16,}")
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")
_PLAIN = re.compile(rb"[ -~]*")
_SHORT = 8  # pseudonyms of shorter names may collide
_MAX_CACHED = 1 << 18
_NEAR = 2  # maximum number of damaged bytes in a damaged name
_CASE = 0x20
_SYSTEM_PREFIXES = ("rmq_sys_REVIVE_LOG_", "rmq_sys_SYNC_BROKER_MEMBER_")
_REPLIES = "_REPLY_TOPIC"

PROPERTY_NAMES = frozenset(
    value.encode()
    for name, value in vars(p).items()
    if name.isupper() and isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9_#]{3,}", value)
)
"""Names of properties that clients and brokers set."""
SYSTEM_WORDS = frozenset(
    word.encode()
    for word in (
        *("DefaultCluster", "DefaultRegion", "CID_RMQ_SYS_TRANS", "CID_RMQ_SYS_REVIVE_GROUP", "TOOLS_CONSUMER"),
        *("FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY", "CID_ONSAPI_OWNER", "CID_ONSAPI_PULL"),
        *("CID_ONSAPI_PERMISSION", "CLIENT_INNER_PRODUCER", "DEFAULT_PRODUCER", "CID_SYS_RMQ_TRANS"),
        *("RMQSTORE_FILLER", "_", "true", "false", "null", "lock"),
    )
)


class Pseudonyms:
    """The pseudonyms of one bundle.

    `topics`: the topics of the store. A name that differs from one of them in a few bits is considered damaged; its
    pseudonym differs in the same bits from that topic's. `words` are not replaced.
    """

    def __init__(self, topics: Iterable[str] = (), words: Iterable[bytes] = ()) -> None:
        self._secret = secrets.token_bytes(32)
        self._kept = SYSTEM_WORDS | frozenset(words)
        self._topics = frozenset(t.encode("utf-8", "surrogateescape") for t in topics)
        self._by_length: dict[int, list[bytes]] = {}
        for topic in sorted(self._topics):
            self._by_length.setdefault(len(topic), []).append(topic)
        self._known: dict[bytes, bytes] = {}
        self._taken: set[bytes] = set()
        self._topic_names: dict[bytes, bytes] = {}
        self._property_names: dict[bytes, bytes] = {}
        self._hosts: dict[bytes, bytes] = {}
        self._tags: dict[bytes, bytes] = {}
        self.codes: dict[int, int] = {}
        """Tags code of each tag → tags code of its pseudonym."""

    def stream(self, text: bytes, size: int) -> bytes:
        """Return `size` bytes derived from a text and the secret."""
        out = blake2b(text, key=self._secret).digest()
        while len(out) < size:
            out += blake2b(out[-64:] + text, key=self._secret).digest()
        return out[:size]

    def word(self, text: bytes) -> bytes:
        """Return the pseudonym of a name, key, id or value: letters and digits; only hex digits if `text` is hex."""
        return text if not text or text in self._kept else _cached(self._known, text, self._new)

    def _new(self, text: bytes) -> bytes:
        size = len(text)
        if _HEX.fullmatch(text):
            return self.stream(text, size).translate(_AS_HEX)
        name = self.stream(text, size).translate(_AS_NAME)
        if size < _SHORT:
            for i in range(64):
                if name not in self._taken and name not in self._kept:
                    break
                name = self.stream(bytes([i]) + text, size).translate(_AS_NAME)
            self._taken.add(name)
        return _with_faults_of(text, name)

    def property_name(self, text: bytes) -> bytes:
        """Return the name of a property; those of clients and brokers stay, even if damaged."""
        return _cached(self._property_names, text, self._property_name)

    def _property_name(self, text: bytes) -> bytes:
        is_kept = text in PROPERTY_NAMES or nearest(text, PROPERTY_NAMES) is not None
        return text if is_kept else self.word(text)

    def topic(self, text: bytes) -> bytes:
        """Return the pseudonym of a topic or group; prefixes and system topics stay."""
        return _cached(self._topic_names, text, self._topic)

    def _topic(self, text: bytes) -> bytes:
        if text not in self._topics:
            near = nearest(text, self._by_length.get(len(text), ()))
            if near is not None:
                changed = self.topic(near)
                return bytes(c ^ a ^ b for a, b, c in zip(text, near, changed, strict=True))
        name = text.decode("utf-8", "surrogateescape")
        for prefix in (p.RETRY_PREFIX, p.DLQ_PREFIX, p.LMQ_PREFIX, *_SYSTEM_PREFIXES):
            if name.startswith(prefix):
                return text[: len(prefix)] + self._retried(text[len(prefix) :])
        if p.is_system_topic(name):
            return text
        if name.endswith(_REPLIES):
            return self.word(text[: -len(_REPLIES)]) + text[-len(_REPLIES) :]
        return self.word(text)

    def _retried(self, text: bytes) -> bytes:
        """Replace what follows a prefix: a group, or with pop consumers, GROUP_TOPIC or GROUP+TOPIC."""
        for match in re.finditer(rb"[_+]", text):
            if text[match.end() :] in self._topics:
                return self.word(text[: match.start()]) + match[0] + self.topic(text[match.end() :])
        return self.word(text)

    def tags(self, text: bytes) -> bytes:
        """Return the pseudonym of a TAGS value, and remember the new tags code."""
        new = self._tags.get(text)
        if new is None:
            new = self.word(text)
            if len(self.codes) < _MAX_CACHED:
                self.codes.setdefault(_code(text), _code(new))
                self._tags[text] = new
        return new

    def code(self, code: int) -> int:
        """Return the tags code of a unit for the pseudonym of its tag; addresses, times and 0 stay."""
        if code == 0 or not -(1 << 31) <= code < 1 << 31:
            return code
        found = self.codes.get(code)
        return int.from_bytes(self.stream(b"code %d" % code, 4), "big", signed=True) if found is None else found

    def key_hash(self, value: int) -> int:
        """Return a replacement for a hash whose key is unknown."""
        return int.from_bytes(self.stream(b"hash %d" % value, 4), "big") & 0x7FFFFFFF

    def host(self, raw: bytes) -> bytes:
        """Return a stored host with an address in 10.0.0.0/8 or fd00::/8 and the same port."""
        return _cached(self._hosts, raw[:-4], self._address) + raw[-4:]

    def _address(self, address: bytes) -> bytes:
        head = b"\x0a" if len(address) == 4 else b"\xfd\x00"
        return head + self.stream(b"host " + address, len(address) - len(head))

    def is_known(self, text: bytes) -> bool:
        """Return whether a text is a topic of the store."""
        return text in self._topics

    @property
    def counts(self) -> dict[str, int]:
        """The number of distinct names of each kind that were replaced (at most 2^18)."""
        topics = sum(name != new for name, new in self._topic_names.items())
        return {"topics_and_groups": topics, "other_texts": len(self._known), "hosts": len(self._hosts)}


def _cached(table: dict[bytes, bytes], text: bytes, make: Callable[[bytes], bytes]) -> bytes:
    found = table.get(text)
    if found is None:
        found = make(text)
        if len(table) < _MAX_CACHED:
            table[text] = found
    return found


def nearest(text: bytes, names: Iterable[bytes]) -> bytes | None:
    """Return the name of which a text is a damaged copy: one bit differs in at most `_NEAR` bytes.

    The bit that distinguishes upper and lower case is not considered damage: order is not a damaged Order.
    """
    for name in names:
        if len(name) != len(text) or len(text) <= _NEAR:
            continue
        bits = [a ^ b for a, b in zip(text, name, strict=True) if a != b]
        if 0 < len(bits) <= _NEAR and all(bit.bit_count() == 1 and bit != _CASE for bit in bits):
            return name
    return None


def _with_faults_of(text: bytes, name: bytes) -> bytes:
    """Return a pseudonym with the control characters and invalid UTF-8 of the original text."""
    if _PLAIN.fullmatch(text):
        return name
    out = bytearray(name)
    for match in _CONTROL.finditer(text):
        out[match.start()] = text[match.start()]
    at = 0
    while at < len(text):
        try:
            text[at:].decode()
            break
        except UnicodeDecodeError as error:
            out[at + error.start] = text[at + error.start]
            at += error.start + 1
    return bytes(out)


def _code(text: bytes) -> int:
    return p.tags_code(p.java_text(text))


_NUMBERS = re.compile(rb"[0-9,. :-]*|true|false", re.IGNORECASE)
_OF_BROKER = frozenset(
    name.encode()
    for name in (
        *(p.DELAY, p.REAL_QUEUE_ID, p.WAIT_STORE_OK, p.TRANSACTION_PREPARED, p.INNER_NUM, p.INNER_BASE, p.CRC32),
        *(p.TIMER_DELAY_SEC, p.TIMER_DELAY_MS, p.TIMER_DELIVER_MS, p.TIMER_OUT_MS, p.TIMER_ENQUEUE_MS),
        *(p.TIMER_DEQUEUE_MS, p.TIMER_ROLL_TIMES, p.TIMER_DELAY_LEVEL, p.RECONSUME_TIME, p.MAX_RECONSUME_TIMES),
        *(p.TRACE_SWITCH, p.TRANSACTION_CHECK_TIMES, p.TRANSACTION_PREPARED_QUEUE_OFFSET, p.CHECK_IMMUNITY_TIME),
        *(p.INNER_MULTI_QUEUE_OFFSET, p.FIRST_POP_TIME, p.BORN_TIMESTAMP, FILLER_KEY, UNKNOWN_KEY),
    )
)
_TOPICS = frozenset(
    name.encode() for name in (p.REAL_TOPIC, p.RETRY_TOPIC, p.DLQ_ORIGIN_TOPIC, p.PRODUCER_GROUP, p.ORIGIN_GROUP)
)
_IDS = frozenset(name.encode() for name in (p.ORIGIN_MESSAGE_ID, p.DLQ_ORIGIN_MESSAGE_ID))
_TOKEN = re.compile(rb'"((?:[^"\\\x00-\x1f]|\\.)*)"|[^\s"{}\[\],:=#;]+')
_BARE = re.compile(rb"[-+.0-9eE]+|true|false|null|n[0-9]+")

_JSON_TEXT = """
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
JSON_WORDS = frozenset(word.encode() for word in _JSON_TEXT.split())
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
