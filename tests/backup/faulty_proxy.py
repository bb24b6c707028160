"""A proxy between the tool and an S3 server that fails requests, slows them down, and cuts connections."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from enum import Enum
from io import BufferedIOBase

_BLOCK = 1 << 16


class Fault(Enum):
    """What happens to a request.

    BUSY: 503, not passed on. LOST: passed on, but the answer is 500. CUT: the connection ends before the request is
    passed on. CUT_ANSWER: it ends in the middle of the answer. SLOW: the answer comes in small pieces. FULL and
    OVER_QUOTA: the answers of MinIO without space and of Ceph, not passed on.
    """

    BUSY, LOST, CUT, CUT_ANSWER, SLOW, FULL, OVER_QUOTA = range(7)


_REFUSALS = {
    Fault.BUSY: (503, b"SlowDown"),
    Fault.FULL: (507, b"XMinioStorageFull"),
    Fault.OVER_QUOTA: (403, b"QuotaExceeded"),
}


Rule = Callable[[int, str], Fault | None]
"""(number of the request, its first line) → its fault."""


class FaultyProxy:
    """Passes HTTP requests on to a server; `rule` chooses the faults, `done` lists the lines of all requests."""

    def __init__(self, upstream: int) -> None:
        self.upstream = upstream
        self.rule: Rule = lambda number, line: None
        self.done: list[tuple[str, Fault | None]] = []
        self._lock = threading.Lock()

    def decide(self, line: str) -> Fault | None:
        """Return the fault of the next request."""
        with self._lock:
            fault = self.rule(len(self.done), line)
            self.done.append((line, fault))
            return fault

    @contextlib.contextmanager
    def listening(self) -> Iterator[int]:
        """Listen on a free port; yield it."""
        proxy = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                with contextlib.suppress(OSError):
                    while _pass_on(self.rfile, self.connection, proxy):
                        pass

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address = daemon_threads = True

        with Server(("127.0.0.1", 0), Handler) as server:
            thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
            thread.start()
            try:
                yield int(server.server_address[1])
            finally:
                server.shutdown()
                thread.join()


def _pass_on(reader: BufferedIOBase, client: socket.socket, proxy: FaultyProxy) -> bool:
    """Handle one request; return whether the connection stays open."""
    head = _head(reader)
    if not head:
        return False
    line = head.split(b"\r\n", 1)[0].decode("latin-1")
    fault = proxy.decide(line)
    if fault is Fault.CUT:
        client.shutdown(socket.SHUT_RDWR)
        return False
    if b"100-continue" in head.lower():
        client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        head = _without(head, b"expect")
    chunked = _field(head, b"transfer-encoding").lower() == b"chunked"
    body = _chunked(reader) if chunked else reader.read(int(_field(head, b"content-length") or 0))
    if fault in _REFUSALS:
        client.sendall(_error(*_REFUSALS[fault]))
        return True
    with socket.create_connection(("127.0.0.1", proxy.upstream)) as server, server.makefile("rb") as answers:
        server.sendall(head + body)
        answer = _head(answers)
        while answer.startswith(b"HTTP/1.1 1"):
            answer = _head(answers)
        length = int(_field(answer, b"content-length") or 0)
        empty = line.startswith("HEAD") or b" 204 " in answer[:16] or b" 304 " in answer[:16]
        data = b"" if empty else answers.read(length) if _field(answer, b"content-length") else _chunked(answers)
        if fault is Fault.LOST:
            client.sendall(_error(500, b"InternalError"))
        elif fault is Fault.CUT_ANSWER:
            whole = answer + data
            client.sendall(whole[: len(answer) + len(data) // 2] if data else whole[: len(whole) // 2])
            client.shutdown(socket.SHUT_RDWR)
            return False
        elif fault is Fault.SLOW:
            client.sendall(answer)
            for start in range(0, len(data), _BLOCK):
                time.sleep(0.02)
                client.sendall(data[start : start + _BLOCK])
        else:
            client.sendall(answer + data)
    return True


def _head(reader: BufferedIOBase) -> bytes:
    """Read a request or an answer up to its empty line; empty if the connection ends first."""
    lines = []
    while line := reader.readline():
        lines.append(line)
        if line == b"\r\n":
            return b"".join(lines)
    return b""


def _field(head: bytes, name: bytes) -> bytes:
    for line in head.split(b"\r\n")[1:]:
        key, _, value = line.partition(b":")
        if key.strip().lower() == name:
            return value.strip()
    return b""


def _without(head: bytes, name: bytes) -> bytes:
    first, *lines = head.split(b"\r\n")
    return b"\r\n".join([first, *(line for line in lines if line.partition(b":")[0].strip().lower() != name)])


def _chunked(reader: BufferedIOBase) -> bytes:
    """Read a chunked body as it is."""
    parts = []
    while True:
        line = reader.readline()
        parts.append(line)
        size = int(line.split(b";")[0] or b"0", 16)
        parts.append(reader.read(size + 2))
        if not size:
            return b"".join(parts)


def _error(status: int, code: bytes) -> bytes:
    body = b"<?xml version='1.0'?><Error><Code>" + code + b"</Code><Message>of the test</Message></Error>"
    head = b"HTTP/1.1 %d Fault\r\nContent-Type: application/xml\r\nContent-Length: %d\r\n\r\n" % (status, len(body))
    return head + body
