"""The broker's configuration: JSON in fastjson's dialect, and rows in a RocksDB.

`parse_config_text` says in which way a file is broken, and which readers accept it. The readers of 4.9.7 (fastjson
1.2.69), 5.1.4 (1.2.83), 5.4.0 (fastjson2 2.0.43) and 5.5.1 (2.0.63) were given about 2,700 texts as topics.json,
delayOffset.json and consumerOffset.json. All of them accept unquoted integer keys ({0:7}), single quotes, a comma
before a closing brace, a comment before the first bracket, a byte order mark, and NUL bytes before and after the
document. What only some of them accept is a `Syntax`. Parsing takes linear time, limits the nesting depth and does not
recurse.

In RocksDB, version 2 (config/rdb/, RocketMQ 5.3.2 and newer), all tables share the column family `default`; each key
begins with the id of its table.

Source: ConfigManager#load, RemotingSerializable#fromJson, MixAll#file2String; ConfigHelper#keyBufOf, #valueBufOf,
ConsumerOffsetManagerV2#keyOfConsumerOffset (RocketMQ 5.5.1)
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, NamedTuple, TypeAlias

import orjson
from construct import Bytes, ConstructError, Int8sb, Int16sb, Int32sb, Int64sb, this

from rmqstore.formats.javatext import java_text
from rmqstore.formats.layout import Field, Layout, Record
from rmqstore.texts import Text

JsonValue: TypeAlias = bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"] | None
JsonWritable: TypeAlias = (
    bool
    | int
    | float
    | str
    | Sequence["JsonWritable"]
    | Mapping[int, "JsonWritable"]
    | Mapping[str, "JsonWritable"]
    | None
)

MAX_DEPTH = 256


class ConfigState(StrEnum):
    """The state of a configuration file's text."""

    SOUND = "sound"
    EMPTY = "empty"  # no bytes, or only whitespace
    NUL_FILLED = "nul-filled"  # only NUL bytes, as after a power loss
    CUT = "cut"  # truncated, perhaps padded with NUL bytes
    BROKEN = "broken"  # any other syntax error


class JsonReader(StrEnum):
    """The JSON library that reads config/ in a range of RocketMQ versions; the value names the range."""

    FASTJSON_1 = Text("up to 5.3")
    FASTJSON_2_43 = "5.4"
    FASTJSON_2_63 = Text("5.5 and newer")


class Syntax(StrEnum):
    """What only some readers accept, in words that follow "does not read"."""

    BLOCK_COMMENT = "a /* comment */"  # after an opening brace, or after the document
    COMMENT = Text("a comment")  # between other tokens: fastjson2 rejects it at most places
    COMMENT_BEFORE_COLON = Text("a comment between a key and its colon")
    EXTRA_COMMA = Text("a comma without a value before it")
    EXTRA_COMMA_BEFORE_NUMBER = Text("a comma without a value before it, and a number as the next key")
    COMMA_IN_ARRAY = Text("a comma before a closing bracket")
    BARE_KEY = Text("a key without quotes")
    BARE_TEXT_KEY = Text("a key without quotes that is not an identifier")


_ACCEPTED_BY: Mapping[Syntax, frozenset[JsonReader]] = {
    Syntax.BLOCK_COMMENT: frozenset({JsonReader.FASTJSON_1, JsonReader.FASTJSON_2_63}),
    Syntax.COMMENT: frozenset({JsonReader.FASTJSON_1}),
    Syntax.COMMENT_BEFORE_COLON: frozenset(),
    Syntax.EXTRA_COMMA: frozenset({JsonReader.FASTJSON_1}),
    Syntax.EXTRA_COMMA_BEFORE_NUMBER: frozenset(),
    Syntax.COMMA_IN_ARRAY: frozenset({JsonReader.FASTJSON_1, JsonReader.FASTJSON_2_43}),
    Syntax.BARE_KEY: frozenset({JsonReader.FASTJSON_1}),
    Syntax.BARE_TEXT_KEY: frozenset(),
}


def reader_of(version: str) -> JsonReader:
    """Return the reader of a RocketMQ version, such as "5.4.0"."""
    major, minor = (int(part) for part in version.split(".")[:2])
    if (major, minor) < (5, 4):
        return JsonReader.FASTJSON_1
    return JsonReader.FASTJSON_2_43 if (major, minor) == (5, 4) else JsonReader.FASTJSON_2_63


@dataclass(frozen=True, slots=True)
class ConfigText:
    """A parsed configuration text. `used`: the byte offset of the first use of each `Syntax`."""

    value: JsonValue
    used: Mapping[Syntax, int] = field(default_factory=dict)

    def rejected_by(self, reader: JsonReader) -> Syntax | None:
        """Return the first syntax that a reader does not accept everywhere; None if it reads the text."""
        return next((syntax for syntax in self.used if reader not in _ACCEPTED_BY[syntax]), None)


class ConfigJsonError(ValueError):
    """The text is not a valid configuration, as `words` say; `position` is the byte offset of the first error."""

    def __init__(self, condition: ConfigState, message: str, position: int) -> None:
        self.words = Text("{message} (byte {position})", message=message, position=position)
        super().__init__(self.words)
        self.condition = condition
        self.position = position


_BLANK = re.compile(rb"[ \t\r\n]+")
_INTEGER_KEY = re.compile(rb"[+-]?[0-9]+")
_IDENTIFIER = re.compile(rb"[A-Za-z_$][A-Za-z0-9_$]*")
_BARE = re.compile(rb"[^\x00-\x20\"'{}\[\],:/\\]+")
_LITERAL = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null")
_LITERAL_START = re.compile(rb"[-+.eE0-9]+|t(?:ru?)?|f(?:a(?:ls?)?)?|n(?:ul?)?")
_PLAIN = {0x22: re.compile(rb'[^"\\]*'), 0x27: re.compile(rb"[^'\\]*")}
_CONTROL = re.compile(rb"[\x00-\x1f]")
_ESCAPE = re.compile(rb'\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)|"', re.DOTALL)
_STRICT_ESCAPES = frozenset(b'"\\/bfnrt')

# possessive quantifiers, and unterminated strings match too: without backtracking, matching takes linear time
_STRING_OR_INTEGER_KEY = re.compile(rb'"(?:[^"\\]++|\\(?:.|\Z))*+(?:"|\Z)|([{,]\s*+)([0-9]++)(?=\s*+:)', re.DOTALL)

_KEY, _COLON, _VALUE, _AFTER, _DONE = range(5)


def _string_end(data: bytes, start: int) -> int:
    """Return the position of the closing quote, or -1 if there is none."""
    quote = data[start]
    end = data.find(quote, start + 1)
    if end < 0 or data.find(b"\\", start + 1, end) < 0:
        return end
    at = start + 1
    while True:
        at = _PLAIN[quote].match(data, at).end()  # type: ignore[union-attr]  # matches the empty text too
        if at >= len(data):
            return -1
        if data[at] == quote:
            return at
        at += 2


def _strict_string(data: bytes, start: int, end: int) -> bytes | None:
    """Rewrite a string as strict JSON; None if it is strict JSON already."""
    inner = data[start + 1 : end]
    if data[start] == 0x22 and b"\\" not in inner and not _CONTROL.search(inner):
        return None

    def escape(m: re.Match[bytes]) -> bytes:
        escaped = m[1]
        if escaped is None:
            return b'\\"'
        if escaped[0] in _STRICT_ESCAPES or len(escaped) == 5:
            return m[0]
        if len(escaped) == 3:
            return b"\\u00" + escaped[1:]
        if escaped == b"'":
            return escaped
        if escaped == b"v":
            return b"\\u000b"
        if escaped in b"01234567":
            return b"\\u000" + escaped
        raise ConfigJsonError(ConfigState.BROKEN, Text("unknown escape in a string"), start + 1 + m.start())

    def control(m: re.Match[bytes]) -> bytes:
        if m[0] == b"\0":
            raise ConfigJsonError(ConfigState.BROKEN, Text("NUL byte in a string"), start + 1)
        return b"\\u%04x" % m[0][0]

    return b'"' + _CONTROL.sub(control, _ESCAPE.sub(escape, inner)) + b'"'


def _comment_end(data: bytes, at: int) -> int:
    """Return the end of the comment at `at`; `at` itself if no comment starts there."""
    if data.startswith(b"//", at):
        end = data.find(b"\n", at)
        return len(data) if end < 0 else end
    if data.startswith(b"/*", at):
        end = data.find(b"*/", at + 2)
        if end < 0:
            raise ConfigJsonError(ConfigState.CUT, Text("comment is not closed"), at)
        return end + 2
    return at


def _quote_integer_keys(text: bytes) -> bytes:
    # the fast path: integer keys ({0:7}) are all that sets the broker's own files apart from strict JSON. Other
    # deviations remain, and the strict parser then rejects the result
    return _STRING_OR_INTEGER_KEY.sub(lambda m: m[0] if m[2] is None else m[1] + b'"' + m[2] + b'"', text)


class _Strict:
    """Rewrites fastjson's dialect as strict JSON in one pass over the tokens; `out` collects the result."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.out = bytearray()
        self.copied = 0  # `data` before this position has been copied to `out` or dropped
        self.at = 0
        self.comma = False  # write a comma before the next item, if there is one
        self.extra_comma = -1  # where a comma without a value before it stands, before the next item
        self.opened = False  # the last token opened an object or an array
        self.stack: list[int] = []
        self.state = _VALUE
        self.used: dict[Syntax, int] = {}

    def run(self) -> bytes:
        """Return the whole text as strict JSON.

        Errors: ConfigJsonError.
        """
        data = self.data
        while self.at < len(data):
            byte = data[self.at]
            if byte <= 0x20 or byte == 0x2F:
                self._blank(byte)
            elif self.state == _DONE:
                raise self._fail("unexpected text after the end of the document")
            elif byte == 0x2C:
                self._comma()
            elif byte == 0x3A:
                if self.state != _COLON:
                    raise self._fail("unexpected colon")
                self.state = _VALUE
                self.at += 1
            elif byte in b"}]":
                self._close(0x7B if byte == 0x7D else 0x5B)
            else:
                self._key_or_value(byte)
        if self.state != _DONE:
            condition = ConfigState.CUT if self.stack else ConfigState.EMPTY
            raise ConfigJsonError(condition, Text("text ends too early"), len(data))
        return bytes(self.out + data[self.copied :])

    def _fail(self, message: str) -> ConfigJsonError:
        return ConfigJsonError(ConfigState.BROKEN, message, self.at)

    def _replace(self, end: int, text: bytes = b"") -> None:
        """Write `text` to `out` instead of the data from `at` to `end`."""
        self.out += self.data[self.copied : self.at]
        self.out += text
        self.copied = end

    def _blank(self, byte: int) -> None:
        blank = _BLANK.match(self.data, self.at)
        if blank:
            self.at = blank.end()
            return
        end = _comment_end(self.data, self.at)
        if end == self.at and byte not in b"\f\b":
            raise self._fail("NUL byte" if byte == 0 else "unexpected character")
        if end > self.at:
            self._comment(line=self.data[self.at + 1] == 0x2F)
        end = max(end, self.at + 1)
        self._replace(end)
        self.at = end

    def _comment(self, *, line: bool) -> None:
        around = not self.stack or self.opened
        if self.state == _COLON:
            self._use(Syntax.COMMENT_BEFORE_COLON)
        elif not around:
            self._use(Syntax.COMMENT)
        elif not line and (self.stack[-1] == 0x7B if self.stack else self.state == _DONE):
            self._use(Syntax.BLOCK_COMMENT)

    def _use(self, syntax: Syntax, at: int = -1) -> None:
        self.used.setdefault(syntax, self.at if at < 0 else at)

    def _comma(self) -> None:
        stack, state = self.stack, self.state
        if not stack or state == _COLON or (state == _VALUE and stack[-1] == 0x7B):
            raise self._fail("unexpected comma")
        self._replace(self.at + 1)
        if state != _AFTER:
            self.extra_comma = self.at
        self.comma = self.comma or state == _AFTER
        self.opened = False
        self.state = _KEY if stack[-1] == 0x7B else _VALUE
        self.at += 1

    def _close(self, opened: int) -> None:
        stack, state = self.stack, self.state
        if not stack or stack[-1] != opened or state == _COLON or (state == _VALUE and opened == 0x7B):
            raise self._fail("unexpected closing bracket")
        if self.comma and 0x5B in stack:
            self._use(Syntax.COMMA_IN_ARRAY)
        self._end_commas(number=False)
        stack.pop()
        self.comma = self.opened = False
        self.state = _AFTER if stack else _DONE
        self.at += 1

    def _end_commas(self, *, number: bool) -> None:
        if self.extra_comma >= 0:
            self._use(Syntax.EXTRA_COMMA_BEFORE_NUMBER if number else Syntax.EXTRA_COMMA, self.extra_comma)
            self.extra_comma = -1

    def _key_or_value(self, byte: int) -> None:
        if self.state not in (_KEY, _VALUE):
            raise self._fail("comma or closing bracket expected" if self.state == _AFTER else "colon expected")
        if self.comma:
            self._replace(self.at, b",")
            self.comma = False
        key = self.state == _KEY
        self._end_commas(number=key and byte not in b"\"'")
        self.opened = byte in b"{["
        if byte in b"{[":
            if key:
                raise self._fail("key expected")
            if len(self.stack) == MAX_DEPTH:
                raise self._fail(f"nested deeper than {MAX_DEPTH}")
            self.stack.append(byte)
            self.state = _KEY if byte == 0x7B else _VALUE
            self.at += 1
            return
        end, text = _scalar(self.data, self.at, key)
        if text is not None:
            self._replace(end, text)
        bare = self.data[self.at : end]
        if key and byte not in b"\"'" and not _INTEGER_KEY.fullmatch(bare):
            identifier = _IDENTIFIER.fullmatch(bare) and bare != b"null"
            self._use(Syntax.BARE_KEY if identifier else Syntax.BARE_TEXT_KEY)
        self.at = end
        self.state = _COLON if key else (_AFTER if self.stack else _DONE)


def _scalar(data: bytes, at: int, key: bool) -> tuple[int, bytes | None]:
    """Return the end of the key, string, number or literal at `at`, and its strict form if that differs."""
    if data[at] in b"\"'":
        close = _string_end(data, at)
        if close < 0:
            raise ConfigJsonError(ConfigState.CUT, Text("string is not closed"), at)
        return close + 1, _strict_string(data, at, close)
    bare = _BARE.match(data, at)
    if bare is None:
        raise ConfigJsonError(ConfigState.BROKEN, Text("unexpected character"), at)
    if key:
        return bare.end(), b'"' + bare[0] + b'"'
    if not _LITERAL.fullmatch(bare[0]):
        cut = bare.end() == len(data) and _LITERAL_START.fullmatch(bare[0]) is not None
        raise ConfigJsonError(ConfigState.CUT if cut else ConfigState.BROKEN, Text("neither number nor literal"), at)
    return bare.end(), None


def parse_config_text(data: bytes) -> ConfigText:
    """Parse a configuration text that at least one version reads; all keys become str, including bare integers.

    Integers beyond 64 bits become floats. Invalid UTF-8 is replaced by U+FFFD, as by the broker.
    Errors: ConfigJsonError with condition and position.
    """
    data = bytes(data)
    text = data.rstrip(b"\0")
    if not text.strip(b" \t\r\n\0\xef\xbb\xbf"):
        nul = b"\0" in data
        raise ConfigJsonError(
            ConfigState.NUL_FILLED if nul else ConfigState.EMPTY, Text("only NUL bytes") if nul else Text("empty"), 0
        )
    with suppress(orjson.JSONDecodeError):
        return ConfigText(orjson.loads(text))
    leading = len(text) - len(text.lstrip(b"\0"))
    text = b" " * leading + text[leading:]
    try:
        text.decode()
    except UnicodeDecodeError:
        text = java_text(text).encode()
    if text.startswith(b"\xef\xbb\xbf"):
        text = b"   " + text[3:]
    with suppress(orjson.JSONDecodeError):
        return ConfigText(orjson.loads(_quote_integer_keys(text)))
    try:
        strict = _Strict(text)
        return ConfigText(orjson.loads(strict.run()), strict.used)
    except orjson.JSONDecodeError as e:
        raise ConfigJsonError(ConfigState.BROKEN, str(e), min(e.pos, len(text))) from e


def parse_config_json(data: bytes) -> JsonValue:
    """Parse a configuration text, and return its value. Errors: as `parse_config_text`."""
    return parse_config_text(data).value


def parse_config_object(data: bytes) -> dict[str, JsonValue]:
    """Parse a configuration text that must be a JSON object, as in all of the broker's files.

    Errors: as `parse_config_json`, also for a value that is not an object.
    """
    return object_of(parse_config_json(data))


def object_of(value: JsonValue) -> dict[str, JsonValue]:
    """Return a parsed text as an object. Errors: ConfigJsonError for another value."""
    if not isinstance(value, dict):
        raise ConfigJsonError(ConfigState.BROKEN, Text("not an object"), 0)
    return value


def integer_keys(table: Mapping[str, JsonValue]) -> dict[int, JsonValue] | dict[str, JsonValue]:
    """Convert keys to int if all of them are integers, as in maps by queue id or delay level; else copy the table."""
    if table and all(re.fullmatch(r"-?[0-9]{1,10}", key) for key in table):
        return {int(key): value for key, value in table.items()}
    return dict(table)


def build_config_json(value: JsonWritable, style: Literal["fastjson1", "fastjson2"] = "fastjson2") -> bytes:
    """Serialize a value as the broker does: indented with tabs, int keys unquoted. Every broker reads both styles.

    fastjson1 (up to 5.3) writes maps with int keys and lists of scalars on one line; fastjson2 (5.4.0) writes each map
    entry, and each string of a list, on a line of its own.
    Errors: ValueError for values nested deeper than `MAX_DEPTH`; TypeError for values that JSON cannot represent.
    """
    out: list[str] = []
    _write(out, value, 0, style == "fastjson2")
    return "".join(out).encode("utf-8", "replace")


def _write(out: list[str], value: JsonWritable, depth: int, lines: bool) -> None:
    if depth > MAX_DEPTH:
        raise ValueError(Text("nested deeper than {max_depth}", max_depth=MAX_DEPTH))
    inner, outer = "\n" + "\t" * (depth + 1), "\n" + "\t" * depth
    if isinstance(value, Mapping):
        if not value:
            out.append("{" + inner + outer + "}" if lines else "{}")
            return
        out.append("{")
        for number, (key, item) in enumerate(value.items()):
            out.append("," if number else "")
            out.append(inner if lines or not isinstance(key, int) else "")
            out.append(f"{key}:" if isinstance(key, int) else _scalar_text(key) + ":")
            _write(out, item, depth + 1, lines)
        out.append(outer + "}")
    elif isinstance(value, Sequence) and not isinstance(value, str):
        nested = any(isinstance(item, (Mapping, str) if lines else Mapping) for item in value)
        out.append("[")
        for number, item in enumerate(value):
            out.append("," if number else "")
            out.append(inner if nested else "")
            _write(out, item, depth + 1, lines)
        out.append(outer + "]" if nested else "]")
    else:
        out.append(_scalar_text(value))


def _scalar_text(value: object) -> str:
    if isinstance(value, str):
        value = value.encode("utf-8", "replace").decode()  # a lone surrogate cannot be written
    return orjson.dumps(value).decode()


CONSUMER_OFFSET, PULL_OFFSET, TOPIC, SUBSCRIPTION_GROUP = 1, 2, 3, 4
"""Ids of the tables (TableId)."""
_ROW, _DATA, _SEPARATOR, _JSON = 1, 2, 1, 1

KEY_HEAD = Layout(
    "RocksDB configuration v2 key head",
    "ConfigHelper#keyBufOf, RocketMQ 5.5.1",
    Field("prefix", Int8sb, "Always 1: a row of a table.", const=_ROW),
    Field("table", Int16sb, "1 consumer offsets, 2 pull offsets, 3 topics, 4 subscription groups."),
    Field("record", Int8sb, "1 the data version of the table, 2 a row.", const=_DATA),
)
NAME = Record(
    "RocksDB configuration v2 key of a topic or group",
    "ConfigHelper#keyBufOf, RocketMQ 5.5.1",
    Field("name_length", Int16sb, "Length of the name.", "bytes"),
    Field("name", Bytes(this.name_length), "Topic or group, UTF-8."),
    about="Follows the key head in tables 3 and 4. The value is the serialization (1: JSON) in one byte, and the text.",
)
OFFSET_KEY = Record(
    "RocksDB configuration v2 key of an offset",
    "ConsumerOffsetManagerV2#keyOfConsumerOffset, RocketMQ 5.5.1",
    Field("group_length", Int16sb, "Length of the group.", "bytes"),
    Field("group", Bytes(this.group_length), "Consumer group, UTF-8."),
    Field("control", Int8sb, "Always 1.", const=_SEPARATOR),
    Field("topic_length", Int16sb, "Length of the topic.", "bytes"),
    Field("topic", Bytes(this.topic_length), "Topic, UTF-8."),
    Field("control2", Int8sb, "Always 1.", const=_SEPARATOR),
    Field("queue_id", Int32sb, "Queue of the topic."),
    about="Follows the key head in tables 1 and 2.",
)
OFFSET_VALUE = Layout(
    "RocksDB configuration v2 offset",
    "ConsumerOffsetManagerV2#commitOffset, RocketMQ 5.5.1",
    Field("offset", Int64sb, "Queue offset that the group reads next.", "units"),
)


class OffsetPlace(NamedTuple):
    """The key of an offset: whose progress, and in which queue."""

    group: bytes
    topic: bytes
    queue_id: int


def key_range(table: int) -> tuple[bytes, bytes]:
    """Return the first key of a table's rows, and the first key after them."""
    start = KEY_HEAD.build(table=table)
    return start, start[:-1] + bytes([_DATA + 1])


def parse_name(key: bytes) -> bytes | None:
    """Return the topic or group of a key in tables 3 and 4; None if the key has another form."""
    found = _fields(NAME, key)
    return None if found is None else found["name"]


def parse_offset_place(key: bytes) -> OffsetPlace | None:
    """Parse a key of tables 1 and 2; None if the key has another form."""
    found = _fields(OFFSET_KEY, key)
    if found is None or (found["control"], found["control2"]) != (_SEPARATOR, _SEPARATOR):
        return None
    return OffsetPlace(found["group"], found["topic"], found["queue_id"])


def parse_json_value(value: bytes) -> bytes | None:
    """Return the JSON text of a value in tables 3 and 4; None if it is serialized in another way."""
    return value[1:] if value[:1] == bytes([_JSON]) else None


def parse_offset(value: bytes) -> int | None:
    """Return the offset in a value of tables 1 and 2; None if its length is wrong."""
    return int(OFFSET_VALUE.unpack(value)["offset"]) if len(value) == OFFSET_VALUE.size else None


def _fields(record: Record, key: bytes) -> dict[str, Any] | None:
    """Parse what follows the key head; None if it does not end where the record does."""
    rest = key[KEY_HEAD.size :]
    try:
        found = record.parse(rest)
    except ConstructError:
        return None
    return found if len(record.build(found)) == len(rest) else None


def topic_config(topic: str, queues: int, *, batch: bool = False) -> dict[str, JsonValue]:
    """Return the entry of a topic in topicConfigTable of topics.json; `batch`: it has a BatchCQ."""
    return {
        "attributes": {"queue.type": "BatchCQ"} if batch else {},
        "order": False,
        "perm": 6,
        "readQueueNums": queues,
        "topicFilterType": "SINGLE_TAG",
        "topicName": topic,
        "topicSysFlag": 0,
        "writeQueueNums": queues,
    }
