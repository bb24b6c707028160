"""RocketMQ's own Java client as a child process, and stored messages as messages for it.

`Sender.java` is compiled by the JDK that runs it (Java 8 or later), with the client of an installation, which it must
fit: no class file fits all of 4.3 to 5.5. The temporary directory for the class, and for the client's logs, is removed
at the end.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple

from rmqstore.append.exchange import Row, message_of
from rmqstore.errors import BadRow, CouldNotCheck, NotReadable, RmqStoreError, UsageError, about, reason
from rmqstore.files.files import read_given
from rmqstore.formats import properties as names
from rmqstore.formats.bodies import BatchError, BodyError, decompress, inner_messages
from rmqstore.formats.javatext import parse_int, parse_long
from rmqstore.formats.message import INNER_BATCH
from rmqstore.texts import Text, many

DELAYED, TIMED, HALF, DEAD = "delayed", "timed", "half", "dead letter"
RETRY, SYSTEM, FILLER = "retry", "system", "filler"

MAX_TOPIC = 255  # characters; Validators#checkTopic refuses more, 4.x more than 127
ORIGIN_STORE, ORIGIN_QUEUE = "rmqstore_store", "rmqstore_queue"
ORIGIN_OFFSET, ORIGIN_ID, ORIGIN_TIME = "rmqstore_offset", "rmqstore_id", "rmqstore_store_time"

_OF_BROKER = frozenset(
    {
        *(names.WAIT_STORE_OK, names.DELAY, names.RETRY_TOPIC, names.ORIGIN_GROUP, names.REAL_TOPIC),
        *(names.REAL_QUEUE_ID, names.TRANSACTION_PREPARED, names.PRODUCER_GROUP, names.ORIGIN_MESSAGE_ID),
        *(names.RECONSUME_TIME, names.MESSAGE_REGION, names.TRACE_SWITCH, names.TRANS_OFFSET),
        *(names.MAX_RECONSUME_TIMES, names.INNER_NUM, names.INNER_BASE, names.DUP_INFO),
        *(names.CHECK_IMMUNITY_TIME, names.TRANSACTION_PREPARED_QUEUE_OFFSET, names.TRANSACTION_ID),
        *(names.TRANSACTION_CHECK_TIMES, names.INSTANCE_ID, names.CORRELATION_ID, names.CLUSTER, names.POP_CK),
        *(names.FIRST_POP_TIME, names.INNER_MULTI_QUEUE_OFFSET, names.BORN_TIMESTAMP, names.CRC32),
        *(names.DLQ_ORIGIN_TOPIC, names.DLQ_ORIGIN_MESSAGE_ID, names.TIMER_DELAY_SEC, names.TIMER_DELAY_MS),
        *(names.TIMER_DELIVER_MS, names.TIMER_OUT_MS, names.TIMER_ENQUEUE_MS, names.TIMER_DEQUEUE_MS),
        *(names.TIMER_ROLL_TIMES, names.TIMER_DEL_UNIQKEY, names.TIMER_DELAY_LEVEL, "TIMER_ROLL_LABEL", "E_T"),
        *("MIN_OFFSET", "MAX_OFFSET", "TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG", "EXTEND_UNIQ_INFO"),
        *("CONSUME_START_TIME", "REPLY_TO_CLIENT", "TTL", "ARRIVE_TIME", "PUSH_REPLY_TIME", "MSG_TYPE"),
        *("POP_CK_OFFSET", "PROPERTY_FORWARD_QUEUE_ID", "REDIRECT", "TRACE_CONTEXT", "__BORNHOST"),
    }
)
"""Properties that say what clients and brokers did with the stored message; they must not apply to the new one.

Kept are keys, tags, the unique id, the sharding key, priority, lite topic, light queues, and all properties of users.
Source: MessageConst#STRING_HASH_SET (RocketMQ 5.5.1)
"""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What to send beyond ordinary messages, and where.

    `kinds`: DELAYED, TIMED, HALF, DEAD. `topic_map` renames topics; messages in a renamed topic of a broker's service
    are sent, too. `asked`: topics that were named, so that their dead letters are wanted.
    """

    kinds: frozenset[str] = frozenset()
    topic_map: Mapping[str, str] = field(default_factory=dict)
    asked: frozenset[str] = frozenset()
    timers: set[str] = field(default_factory=set)
    """Unique ids of the timed messages so far: the timer writes a message again that is due beyond its wheel."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message for the client. `queue_id` is that of the source: the topic may have fewer queues."""

    topic: str
    queue_id: int
    flag: int
    properties: Mapping[str, str]
    body: bytes


class LeftOut(Exception):
    """The message is of a kind that is not sent unless asked for; `kind` is one of the names above."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


class CannotSend(Exception):
    """The message cannot be sent; the text says why."""


def digest(row: Row, inner: int = 0) -> str:
    """Return a short hash of what tells a message from others, to recognize it in the journal.

    `inner`: the place of the message in a batch record, from 0.
    """
    names_of = ("topic", "queue_id", "queue_offset", "store_timestamp", "born_timestamp")
    parts = (*(row.get(name) for name in names_of), row.get("unique_key"), *([inner] if inner else ()))
    return hashlib.blake2b(repr(parts).encode(), digest_size=6).hexdigest()


def messages_in(row: Row) -> int:
    """Return the number of messages in a row of an export: more than 1 for a batch record (BatchCQ)."""
    flags = row.get("sys_flag")
    if not isinstance(flags, int) or not flags & INNER_BATCH:
        return 1
    try:
        found = names.parse_properties(message_of(row, "").properties)
    except BadRow:
        return 1
    return max(1, parse_int(found.get(names.INNER_NUM, "")) or 1)


def outgoing(row: Row, where: str, source: str, wishes: Wishes) -> list[Outgoing]:
    """Return the messages to send for a row of an export: one, or those of a batch record.

    Errors: LeftOut, CannotSend; BadRow if it is not a message.
    """
    if row.get("filler"):
        raise LeftOut(FILLER)
    message = message_of(row, where)
    topic = message.topic
    found = names.parse_properties(message.properties)
    target = wishes.topic_map.get(topic) or _target(topic, found, wishes)
    if not names.is_topic_name(target) or len(target) > MAX_TOPIC:
        raise CannotSend(Text("no client can send to a topic of this name"))
    queue_id, stored, delay = message.queue_id or 0, message.store_timestamp, _delay(topic, found)
    try:
        body = decompress(message.sys_flag, message.body)
        if not message.sys_flag & INNER_BATCH:
            kept = _kept(found) | delay | _origin(row, stored, source)
            return [Outgoing(target, queue_id, message.flag, kept, body)]
        parts = inner_messages(body)
    except (BodyError, BatchError, RmqStoreError) as error:
        raise CannotSend(reason(error)) from error
    if (said := messages_in(row)) != len(parts):
        wrong = Text("the batch has {count}, and its property INNER_NUM says {said}")
        raise CannotSend(wrong.format(count=many(len(parts), "message"), said=said))
    out = []
    for inner, part in enumerate(parts):
        kept = _kept(names.parse_properties(part.properties)) | delay | _origin(row, stored, source, inner)
        out.append(Outgoing(target, queue_id, part.flag, kept, part.body))
    return out


def _kept(found: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in found.items() if name not in _OF_BROKER}


def _target(topic: str, found: Mapping[str, str], wishes: Wishes) -> str:
    """Return the topic to send to. Errors: LeftOut, CannotSend."""
    kind = _service(topic, found)
    if kind is None:
        return topic
    if kind not in wishes.kinds and not (kind == DEAD and topic in wishes.asked):
        raise LeftOut(kind)
    if kind == TIMED:
        unique = found.get(names.UNIQ_KEY, "")
        if names.TIMER_ROLL_TIMES in found and unique in wishes.timers:
            raise LeftOut(SYSTEM)
        wishes.timers.add(unique)
    real = found.get(names.REAL_TOPIC)
    if kind == DEAD:
        real = found.get(names.RETRY_TOPIC) or found.get(names.DLQ_ORIGIN_TOPIC)
    if real is None:
        raise CannotSend(Text("the message does not name its original topic; give it with --topic-map"))
    if names.is_retry_topic(real):
        raise LeftOut(RETRY)
    return wishes.topic_map.get(real, real)


def _service(topic: str, found: Mapping[str, str]) -> str | None:
    """Return the kind of a message in a topic of a broker's service; None for one in an ordinary topic."""
    if names.is_dlq_topic(topic):
        return DEAD
    if names.is_retry_topic(topic):
        return RETRY
    if topic == names.SCHEDULE_TOPIC:
        return DELAYED
    if topic == names.TIMER_TOPIC:
        return SYSTEM if names.TIMER_DEL_UNIQKEY in found else TIMED  # a deletion of another message
    if topic in (names.HALF_TOPIC, names.ROCKSDB_HALF_TOPIC):
        return HALF
    if names.is_system_topic(topic) or names.is_lmq(topic) or topic == names.OP_HALF_TOPIC:
        return SYSTEM
    return None


def _delay(topic: str, found: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that delay a message again. Errors: CannotSend."""
    if topic == names.SCHEDULE_TOPIC:
        level = parse_int(found.get(names.DELAY, ""))
        if level is None or level < 1:
            raise CannotSend(Text("the property DELAY is not a delay level"))
        return {names.DELAY: str(level)}
    if topic == names.TIMER_TOPIC:
        due = parse_long(found.get(names.TIMER_OUT_MS, ""))
        if due is None:
            raise CannotSend(Text("the property TIMER_OUT_MS is not a time"))
        return {names.TIMER_DELIVER_MS: str(due)}
    return {}


def _origin(row: Mapping[str, Any], stored: int, source: str, inner: int = 0) -> dict[str, str]:
    """Return the properties that say where the message was; `inner`: its place in a batch record."""
    first = row.get("queue_offset")
    queue = f"{row.get('topic')}/{row.get('queue_id')}/{first + inner if isinstance(first, int) else first}"
    found = {ORIGIN_STORE: source, ORIGIN_QUEUE: queue, ORIGIN_TIME: str(stored)}
    for name, column in ((ORIGIN_OFFSET, "offset"), (ORIGIN_ID, "msg_id")):
        if row.get(column) not in (None, ""):
            found[name] = str(row[column])
    return found


SOURCE = Path(__file__).with_name("Sender.java")
_START_SECONDS = 120
_END_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where to send to, and with what.

    `name_servers` HOST:PORT, several with `;`. `home`: the RocketMQ installation whose lib/ has the client. `java`: the
    java of a JDK. `access_key` and `secret_key`: empty without ACL. `patience`: how long to wait for a cluster that is
    not available, in s.
    """

    name_servers: str
    home: Path
    java: Path | None = None
    access_key: str = ""
    secret_key: str = ""
    patience: int = 30


class ClientAnswer(NamedTuple):
    """An answer of the client about a message: its number, `state` (see `Sender.java`), and the fields after it."""

    number: int
    state: str
    fields: tuple[str, ...]


class ClientEnded(CouldNotCheck):
    """The Java client ended before it was told to."""

    code = "client-ended"
    advice = Text("run the same command again: what was acknowledged is in the journal")


class Client:
    """A running client: `send` passes a message on, `answer` tells what became of one."""

    def __init__(self, cluster: Cluster) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="rmqstore-send-"))
        self._process: subprocess.Popen[bytes] | None = None
        try:
            classes = _compiled(cluster, self._folder)
            self._errors = (self._folder / "client.out").open("wb")
            command = [
                str(_java(cluster)),
                "-Xmx512m",
                "-Dfile.encoding=UTF-8",
                f"-Duser.home={self._folder}",  # the client writes its logs there
                "-cp",
                os.pathsep.join((str(classes), _libraries(cluster))),
                "Sender",
            ]
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, start_new_session=True
            )
            head = (cluster.name_servers, cluster.access_key, cluster.secret_key)
            self._write(b"".join(map(_text, head)) + struct.pack(">i", cluster.patience * 1000))
            self.flush()
            word, *rest = self._line()
            if word != "READY":
                raise CouldNotCheck(Text("RocketMQ's client did not start: {rest}", rest=" ".join(rest)), _ADVICE)
        except BaseException:
            self.close()
            raise

    def topic(self, name: str) -> tuple[int, str]:
        """Return how many queues a topic has that can be written, and why there are none; -1: the cluster is not there.

        It must be asked before messages are sent, or after all of them are answered.
        """
        self._write(b"T" + _text(name))
        self.flush()
        _, _, queues, why = self._line()
        return int(queues), why

    def send(self, number: int, message: Outgoing) -> None:
        """Pass a message on; `flush` makes sure that the client gets it."""
        pairs = message.properties
        parts = [b"M", struct.pack(">q", number), _text(message.topic)]
        parts.append(struct.pack(">iii", message.queue_id, message.flag, len(pairs)))
        for name, value in pairs.items():
            parts += [_text(name), _text(value)]
        parts += [struct.pack(">i", len(message.body)), message.body]
        self._write(b"".join(parts))

    def flush(self) -> None:
        """Hand over everything that was passed on. Errors: ClientEnded."""
        try:
            self._pipe("stdin").flush()
        except (BrokenPipeError, ValueError) as error:
            raise ClientEnded(self._why()) from error

    def answer(self) -> ClientAnswer:
        """Wait for the next answer. Errors: ClientEnded."""
        state, number, *fields = self._line()
        return ClientAnswer(int(number), state, tuple(fields))

    def quit(self) -> None:
        """Tell the client, which has answered everything, to end."""
        with contextlib.suppress(ClientEnded):
            self._write(b"Q")
            self.flush()
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_SECONDS)

    def close(self) -> None:
        """End the client, at once if it still runs, and remove its files."""
        if self._process is not None:
            if self._process.poll() is None:
                self._process.kill()
            self._process.wait()
            for name in ("stdin", "stdout"):
                with contextlib.suppress(OSError):
                    self._pipe(name).close()
            self._process = None
            self._errors.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _pipe(self, name: str) -> IO[bytes]:
        pipe = getattr(self._process, name)
        assert pipe is not None
        found: IO[bytes] = pipe
        return found

    def _write(self, data: bytes) -> None:
        try:
            self._pipe("stdin").write(data)
        except (BrokenPipeError, ValueError) as error:
            raise ClientEnded(self._why()) from error

    def _line(self) -> list[str]:
        line = self._pipe("stdout").readline()
        if not line.endswith(b"\n"):
            raise ClientEnded(self._why())
        return line.decode("utf-8", "replace")[:-1].split("\t")

    def _why(self) -> str:
        assert self._process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        code = self._process.poll()
        lines = (self._folder / "client.out").read_text("utf-8", "replace").strip().splitlines()
        if not lines:
            return Text("RocketMQ's client ended (exit code {code})", code=code)
        return Text("RocketMQ's client ended (exit code {code}): {line}", code=code, line=lines[-1][:300])


_ADVICE = Text("check --rocketmq-home (the directory with lib/ of a RocketMQ installation) and --namesrv")


def _text(text: str) -> bytes:
    data = text.encode("utf-8", "replace")
    return struct.pack(">i", len(data)) + data


def _libraries(cluster: Cluster) -> str:
    """Return the class path of the installation. Errors: NotReadable without a client in it."""
    lib = cluster.home / "lib"
    if not any(lib.glob("rocketmq-client-*.jar")):
        raise NotReadable(
            Text("{lib} has no rocketmq-client-*.jar", lib=lib), Text("give the directory of a RocketMQ installation")
        )
    return f"{lib}/*"


def _java(cluster: Cluster) -> Path:
    """Return the java of a JDK: as given, of JAVA_HOME, or the first in PATH. Errors: UsageError."""
    if cluster.java is not None:
        return cluster.java
    home = os.environ.get("JAVA_HOME")
    found = Path(home, "bin", "java") if home else None
    if found is not None and found.is_file():
        return found
    program = shutil.which("java")
    if program is None:
        raise UsageError(Text("no java found"), Text("give --java /path/to/jdk/bin/java, or set JAVA_HOME"))
    return Path(program)


def _compiled(cluster: Cluster, folder: Path) -> Path:
    """Compile `Sender.java` with the client of the installation. Errors: UsageError without a compiler."""
    libraries, java = _libraries(cluster), _java(cluster)
    real = Path(os.path.realpath(java))
    # the last one: java of a JDK 8 may be in jre/bin
    compilers = (java.with_name("javac"), real.with_name("javac"), real.parent.parent.parent / "bin" / "javac")
    compiler = next((path for path in compilers if path.is_file()), None)
    if compiler is None:
        raise UsageError(
            Text("{java} has no javac beside it", java=java), Text("give --java of a JDK (8 or later), not of a JRE")
        )
    classes = folder / "classes"
    classes.mkdir()
    words = [str(compiler), "-nowarn", "-encoding", "UTF-8", "-d", str(classes), "-cp", libraries, str(SOURCE)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_START_SECONDS, check=False)
    except OSError as error:
        raise NotReadable(about(compiler, error)) from error
    except subprocess.TimeoutExpired as error:
        raise CouldNotCheck(Text("{compiler} did not end", compiler=compiler), _ADVICE) from error
    if done.returncode:
        why = next(iter(done.stderr.strip().splitlines()), "")
        raise CouldNotCheck(
            Text("the sender cannot be compiled with the client in {home}: {why}", home=cluster.home, why=why), _ADVICE
        )
    return classes


def credentials(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the keys and values of `NAME: VALUE` or `NAME = VALUE` lines, as in conf/tools.yml. Errors: NotReadable."""
    for line in read_given(path, 1 << 20).decode("utf-8", "replace").splitlines():
        words = line.split("#")[0]
        separator = ":" if ":" in words else "="
        name, _, value = words.partition(separator)
        if value.strip():
            yield name.strip(), value.strip().strip("\"'")
