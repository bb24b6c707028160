"""Pseudonyms: the same text always becomes the same other text of the same length; a secret decides which.

The secret is made for one bundle and is nowhere in it, so that nobody can tell by trying whether a name is in the
store. What brokers treat specially keeps its name: system topics and groups, prefixes of retry and dead-letter topics,
names of properties and settings.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from hashlib import blake2b

from rmqstore.formats import properties
from rmqstore.formats.properties import DLQ_PREFIX, LMQ_PREFIX, RETRY_PREFIX, is_system_topic

_LETTERS = b"abcdefghijklmnopqrstuvwxyz0123456789"
_AS_NAME = bytes(_LETTERS[i % len(_LETTERS)] for i in range(256))
_AS_HEX = bytes(b"0123456789ABCDEF"[i % 16] for i in range(256))
_HEX = re.compile(rb"[0-9A-F]{16,}")
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")
_PLAIN = re.compile(rb"[ -~]*")
_SHORT = 8  # of shorter names two could become the same
_MOST_KNOWN = 1 << 18
_NEAR = 2  # bytes in which a damaged name differs from the one that it was
_CASE = 0x20
_MADE_OF = ("rmq_sys_REVIVE_LOG_", "rmq_sys_SYNC_BROKER_MEMBER_")
_REPLIES = "_REPLY_TOPIC"

PROPERTY_NAMES = frozenset(
    value.encode()
    for name, value in vars(properties).items()
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


class Names:
    """The pseudonyms of one bundle.

    `topics` are the topics that the store knows: a name that differs from one of them by a few bits is a damaged one,
    and its pseudonym differs in the same bits from that topic's. `words` keep their names.
    """

    def __init__(self, topics: Iterable[str] = (), words: Iterable[bytes] = (), secret: bytes = b"") -> None:
        self._secret = secret or secrets.token_bytes(32)
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
        """Tags code of a tag → tags code of its pseudonym."""

    def stream(self, text: bytes, size: int) -> bytes:
        """`size` bytes that follow from a text and the secret."""
        out = blake2b(text, key=self._secret).digest()  # keyed: nobody can try texts without the secret
        while len(out) < size:
            out += blake2b(out[-64:] + text, key=self._secret).digest()
        return out[:size]

    def word(self, text: bytes) -> bytes:
        """The pseudonym of a name, key, id or value, in letters and digits; of upper-case hex digits in such digits."""
        if not text or text in self._kept:
            return text
        found = self._known.get(text)
        if found is None:
            found = self._new(text)
            if len(self._known) < _MOST_KNOWN:
                self._known[text] = found
        return found

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
        """The name of a property: one that clients and brokers set stays, also a damaged one."""
        found = self._property_names.get(text)
        if found is None:
            kept = text in PROPERTY_NAMES or nearest(text, PROPERTY_NAMES) is not None
            found = text if kept else self.word(text)
            if len(self._property_names) < _MOST_KNOWN:
                self._property_names[text] = found
        return found

    def topic(self, text: bytes) -> bytes:
        """The pseudonym of a topic, group or queue directory; prefixes and system topics stay."""
        found = self._topic_names.get(text)
        if found is None:
            found = self._topic(text)
            if len(self._topic_names) < _MOST_KNOWN:
                self._topic_names[text] = found
        return found

    def _topic(self, text: bytes) -> bytes:
        if text not in self._topics:
            near = nearest(text, self._by_length.get(len(text), ()))
            if near is not None:
                changed = self.topic(near)
                return bytes(c ^ a ^ b for a, b, c in zip(text, near, changed, strict=True))
        name = text.decode("utf-8", "surrogateescape")
        for prefix in (RETRY_PREFIX, DLQ_PREFIX, LMQ_PREFIX, *_MADE_OF):
            if name.startswith(prefix):
                return text[: len(prefix)] + self._retried(text[len(prefix) :])
        if is_system_topic(name):
            return text
        if name.endswith(_REPLIES):
            return self.word(text[: -len(_REPLIES)]) + text[-len(_REPLIES) :]
        return self.word(text)

    def _retried(self, text: bytes) -> bytes:
        """What follows a prefix: a group, or with pop consumers GROUP_TOPIC or GROUP+TOPIC."""
        for match in re.finditer(rb"[_+]", text):
            if text[match.end() :] in self._topics:
                return self.word(text[: match.start()]) + match[0] + self.topic(text[match.end() :])
        return self.word(text)

    def tags(self, text: bytes) -> bytes:
        """The pseudonym of a TAGS value; remembers what becomes of its tags code."""
        new = self._tags.get(text)
        if new is None:
            new = self.word(text)
            if len(self.codes) < _MOST_KNOWN:
                self.codes.setdefault(_code(text), _code(new))
                self._tags[text] = new
        return new

    def code(self, code: int) -> int:
        """Tags code of a unit for a tag's pseudonym; addresses, times and 0 stay."""
        if code == 0 or not -(1 << 31) <= code < 1 << 31:
            return code
        found = self.codes.get(code)
        return int.from_bytes(self.stream(b"code %d" % code, 4), "big", signed=True) if found is None else found

    def key_hash(self, value: int) -> int:
        """A hash in place of one that belongs to no key which is still there."""
        return int.from_bytes(self.stream(b"hash %d" % value, 4), "big") & 0x7FFFFFFF

    def host(self, raw: bytes) -> bytes:
        """An address (4 or 16 bytes, and the port, which stays) in 10.0.0.0/8 or fd00::/8."""
        address = raw[:-4]
        found = self._hosts.get(address)
        if found is None:
            head = b"\x0a" if len(address) == 4 else b"\xfd\x00"
            found = head + self.stream(b"host " + address, len(address) - len(head))
            if len(self._hosts) < _MOST_KNOWN:
                self._hosts[address] = found
        return found + raw[-4:]

    def is_known(self, text: bytes) -> bool:
        """Whether it is a topic of the store."""
        return text in self._topics

    @property
    def counts(self) -> dict[str, int]:
        """How many different names of each kind were replaced, as far as they were counted."""
        topics = sum(name != new for name, new in self._topic_names.items())
        return {"topics_and_groups": topics, "other_texts": len(self._known), "hosts": len(self._hosts)}


def nearest(text: bytes, names: Iterable[bytes]) -> bytes | None:
    """The one of some names that a text was before damage: it differs in one bit of at most `_NEAR` bytes.

    The bit that makes a letter small is not taken for damage: Order is not order.
    """
    for name in names:
        if len(name) != len(text) or len(text) <= _NEAR:
            continue
        bits = [a ^ b for a, b in zip(text, name, strict=True) if a != b]
        if 0 < len(bits) <= _NEAR and all(bit.bit_count() == 1 and bit != _CASE for bit in bits):
            return name
    return None


def _with_faults_of(text: bytes, name: bytes) -> bytes:
    """A pseudonym with what no name has where its text has it: control characters, and bytes that are not UTF-8."""
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
    return properties.tags_code(properties.java_text(text))
