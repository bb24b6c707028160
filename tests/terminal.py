"""Run rmqstore in a real terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping
from pathlib import Path


def printed_in_a_terminal(
    *words: str,
    lines: int,
    columns: int,
    environment: Mapping[str, str],
    folder: Path | None = None,
    typed: bytes = b"",
) -> tuple[int, bytes]:
    """Run `rmqstore WORDS…` in a terminal of a given size, and return its exit code and all bytes that it writes.

    `typed`: what the user types.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    command = [sys.executable, "-m", "rmqstore", *words]
    variables = {**environment, "TERM": "xterm-256color"}
    with subprocess.Popen(command, cwd=folder, env=variables, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        os.write(ours, typed)
        printed = bytearray()
        try:
            while more := os.read(ours, 65536):
                printed += more
        except OSError:  # the other end of the terminal is closed
            pass
        code = process.wait(60)
    os.close(ours)
    return code, bytes(printed)
