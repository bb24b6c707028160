"""The oracle for many stores: one JVM per version opens the stores one after the other.

    with OracleServer("5.4.0") as server:
        questions = [server.ask(store, settings, abort=False) for store in stores]
        results = [server.answer(question) for question in questions]

Each store is copied, and the copy is loaded, started, read to the last offset and shut down. If this fails (RocketMQ
calls System.exit, the JVM hangs, load() returns false, or the shutdown leaves threads behind), the plain `Oracle` with
its own JVM reads another copy, its result is returned, and the server is restarted.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from tests.real_broker.java import java_classes
from tests.real_broker.oracle import (
    SWITCHES,
    KeyQuery,
    Oracle,
    OracleResult,
    Setting,
    archive_option,
    parse_answer,
    words_of,
)
from tests.stores import clone

ANSWER_SECONDS = 180
Cell = tuple[str, bool]
"""A version, and whether the store looks like one that was not shut down."""

STORES_PER_JVM = 200
"""The garbage collector unmaps the files of closed stores when it likes, and a few services never end."""


@dataclass(frozen=True, slots=True)
class _Question:
    store: Path
    settings: Mapping[str, Setting]
    abort: bool
    folder: Path


class OracleServer:
    """At most one running JVM of a version; the first call starts it."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.alone: list[str] = []
        """Why stores went to a JVM of their own."""
        self._process: subprocess.Popen[bytes] | None = None
        self._room = Path(tempfile.mkdtemp(prefix="oracle-server-"))
        self._number = 0
        self._left = 0
        self._rest = b""
        self._open: dict[int, _Question] = {}
        self._results: dict[int, OracleResult] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        shutil.rmtree(self._room, ignore_errors=True)

    def ask(self, store: Path, settings: Mapping[str, Setting], *, abort: bool) -> int:
        """Start reading a copy of a store, and return a number for `answer`; `abort`: whether the copy has `abort`.

        The store itself must not change before the answer.
        """
        if self._left <= 0 and not self._open:
            self._end()
        process = self._process or self._begin()
        self._number += 1
        self._left -= 1
        question = _Question(store, settings, abort, self._room / str(self._number))
        self._open[self._number] = question
        line = "\t".join([str(self._number), str(_copy(question)), *words_of({**settings, **SWITCHES, "brisk": True})])
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the JVM has ended: answer() detects this, and asks again
            process.stdin.write(line.encode() + b"\n")
            process.stdin.flush()
        return self._number

    def answer(self, number: int) -> OracleResult:
        """Wait for the result of a call of `ask`."""
        end = time.monotonic() + ANSWER_SECONDS
        while number not in self._results:
            lines = self._lines(end - time.monotonic())
            if lines is None or not all(map(self._take, lines)):
                self._end()
                for each in list(self._open):
                    self._ask_alone(each, "no answer")
                break
        return self._results.pop(number)

    def _take(self, line: bytes) -> bool:
        """Keep a result; return False for a line of a JVM that crashed: RocksDB sometimes does when a store closes."""
        try:
            number, answer = line.decode("utf-8", "replace").split("\t", 1)
            result = parse_answer(json.loads(answer), 0, "")
        except ValueError:
            return False
        if not result.load or result.crash is not None or result.shutdown not in ("clean", "abort kept"):
            self._left = 0  # threads that it left running must not affect the next stores
            self._ask_alone(int(number), f"load {result.load}, crash {result.crash}, shutdown {result.shutdown}")
        else:
            self._close(int(number), result)
        return True

    def _ask_alone(self, number: int, why: str) -> None:
        question = self._open[number]
        self.alone.append(why)
        # another directory: threads left in the JVM may still write into the first one
        question = replace(question, folder=self._room / f"{number}-alone")
        copy, oracle = _copy(question), Oracle(self.version)
        self._close(number, oracle.load(copy, question.settings, start=True, shutdown=True, list=True))

    def _close(self, number: int, result: OracleResult) -> None:
        shutil.rmtree(self._open.pop(number).folder, ignore_errors=True)
        shutil.rmtree(self._room / f"{number}-alone", ignore_errors=True)
        self._results[number] = result

    def _lines(self, seconds: float) -> list[bytes] | None:
        """Return the next complete lines; None if the JVM has ended or prints nothing for too long."""
        assert self._process is not None
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(max(0.0, seconds)):
                return None
        block = os.read(self._process.stdout.fileno(), 1 << 20)
        if not block:
            return None
        *lines, self._rest = (self._rest + block).split(b"\n")
        return lines

    def _begin(self) -> subprocess.Popen[bytes]:
        classes = java_classes(self.version)
        home = self._room / "home"
        home.mkdir(exist_ok=True)
        command = classes.command("OracleServer", log=Path(os.devnull), home=home, options=archive_option(classes))
        with (self._room / "stderr").open("wb") as errors:
            self._process = subprocess.Popen(
                command, cwd=home, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
            )
        self._left, self._rest = STORES_PER_JVM, b""
        return self._process

    def _end(self) -> None:
        if self._process is None:
            return
        self._process.kill()
        self._process.communicate()
        self._process = None


def _copy(question: _Question) -> Path:
    """Copy the store into the folder of the question, with the same name."""
    question.folder.mkdir()
    copy = question.folder / "store"
    clone(question.store, copy)
    if question.abort:
        (copy / "abort").touch()
    else:
        (copy / "abort").unlink(missing_ok=True)
    return copy


class OracleServers:
    """One server per version; they run in parallel."""

    def __init__(self) -> None:
        self._servers: dict[str, OracleServer] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers.values():
            server.__exit__()

    def of(self, version: str) -> OracleServer:
        if version not in self._servers:
            self._servers[version] = OracleServer(version)
        return self._servers[version]

    def read(self, store: Path, settings: Mapping[str, Setting], cells: Iterable[Cell]) -> dict[Cell, OracleResult]:
        """Return the results of the real store for copies, by (version, abort)."""
        asked = [((version, abort), self.of(version).ask(store, settings, abort=abort)) for version, abort in cells]
        return {cell: self.of(cell[0]).answer(number) for cell, number in asked}

    def load(
        self,
        version: str,
        store: Path,
        settings: Mapping[str, Setting],
        *,
        keys: Sequence[KeyQuery] = (),
        **more: Setting,
    ) -> OracleResult:
        """Return the result of the real store for a copy, which is started and shut down; see `Oracle.load`.

        Use this for a store that is expected to start: it takes a second of CPU time less than an own JVM.
        """
        cell = version, (store / "abort").exists()
        with tempfile.NamedTemporaryFile("w", prefix="oracle-keys-", encoding="utf-8") as lines:
            if keys:
                lines.write("".join(f"{query.line()}\n" for query in keys))
                lines.flush()
                more["keys"] = lines.name
            return self.read(store, {**settings, **more}, [cell])[cell]
