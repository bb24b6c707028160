"""RocketMQ's own Java client as a child process: `Sender.java`, compiled with the client of an installation.

The program is compiled by the JDK that runs it (Java 8 or later), because it must fit the client: no class file fits
all of 4.3 to 5.5. The temporary directory for the class, and for the client's logs, is removed at the end.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

from rmqstore.append.sending.outgoing import Outgoing
from rmqstore.errors import CouldNotCheck, NotReadable, UsageError
from rmqstore.files.files import LOCAL
from rmqstore.texts import Text

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
        return (
            Text(
                "RocketMQ's client ended (exit code {code}): {lines}", code=code, lines=lines[-1][:300] if lines else ""
            )
            if lines
            else Text(
                "RocketMQ's client ended (exit code {code}){lines}", code=code, lines=lines[-1][:300] if lines else ""
            )
        )


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
        raise NotReadable(f"{compiler}: {error.strerror or error}") from error
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
    try:
        text = LOCAL.read_small(path, 1 << 20).decode("utf-8", "replace")
    except OSError as error:
        raise NotReadable(f"{path}: {error.strerror or error}") from error
    for line in text.splitlines():
        words = line.split("#")[0]
        separator = ":" if ":" in words else "="
        name, _, value = words.partition(separator)
        if value.strip():
            yield name.strip(), value.strip().strip("\"'")
