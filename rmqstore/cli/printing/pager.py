"""Sends output to a pager if it is longer than the screen."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterable
from typing import IO, BinaryIO

from rmqstore.cli.printing.quantities import columns

_STYLE = re.compile(rb"\x1b\[[0-9;]*m")
_LESS = "FRX"  # quit if it fits one screen, keep colours, do not clear the screen


def pager_command() -> list[str]:
    """Return the command in RMQSTORE_PAGER, else PAGER, else less; empty if there is none, or if it is cat."""
    named = next((os.environ[name] for name in ("RMQSTORE_PAGER", "PAGER") if name in os.environ), "less")
    try:
        words = shlex.split(named)
    except ValueError:  # an unbalanced quotation mark
        return []
    if not words or words[0] == "cat" or shutil.which(words[0]) is None or os.environ.get("TERM", "dumb") == "dumb":
        return []
    return words


class Paged:
    """A binary file that holds up to one screen back; then a pager starts, otherwise `terminal` gets it at the end.

    `begins` is called before the pager starts. Errors: BrokenPipeError when the user has quit the pager.
    """

    def __init__(self, terminal: BinaryIO, words: list[str], begins: Callable[[], None]) -> None:
        self._terminal, self._words, self._begins = terminal, words, begins
        size = shutil.get_terminal_size()
        self._width, self._room = size.columns, size.lines - 1  # the last line is the shell's
        self._held: list[bytes] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._out: IO[bytes] | None = None
        self.closed = False

    @property
    def is_open(self) -> bool:
        """Whether the pager has started."""
        return self._process is not None

    def write(self, data: bytes) -> int:
        if self._out is not None:
            self._out.write(data)
            return len(data)
        self._held.append(bytes(data))
        self._room -= self._lines(data)
        if self._room < 0:
            self._start()
        return len(data)

    def writelines(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Flush to the pager; what is held back stays until the end."""
        if self._process is not None and self._out is not None:
            self._out.flush()

    def _lines(self, data: bytes) -> int:
        """Return the lines that a text needs on the terminal."""
        texts = _STYLE.sub(b"", bytes(data)).decode("utf-8", "replace").splitlines()
        return sum(max(1, -(-columns(text) // self._width)) for text in texts)

    def _start(self) -> None:
        self._begins()
        self._terminal.flush()
        environment = {"LESS": _LESS, **os.environ}
        try:
            self._process = subprocess.Popen(self._words, stdin=subprocess.PIPE, env=environment)
        except OSError:  # it cannot be executed
            self._out = self._terminal
        else:
            assert self._process.stdin is not None
            self._out = self._process.stdin
        held, self._held = self._held, []
        self.writelines(held)

    def close(self) -> None:
        """Write what is held back, or wait until the user quits the pager."""
        self.closed = True
        if self._process is None:
            for data in self._held:
                self._terminal.write(data)
            self._terminal.flush()
            return
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        while self._process.poll() is None:
            with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C is for the pager: it stops a search
                self._process.wait()
