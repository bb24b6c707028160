"""A master in this process, over real sockets: its log is bytes that a test may change at any time.

It answers as the recorded brokers do (tests/remoting). `hostile` replaces what its HA port does.
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType

from rmqstore.formats.message import build_blank, build_message

SIZE = 4096
BATCH = 700  # bytes of a frame: it ends within records
BEAT = 0.1
TIME = 1_700_000_000_000

Hostile = Callable[[socket.socket], None]


def record(offset: int, text: str, queue_offset: int = 0) -> bytes:
    """Return a record of the log."""
    return build_message(
        topic="T",
        body=text.encode() * 9,
        physical_offset=offset,
        queue_offset=queue_offset,
        store_timestamp=TIME,
        born_timestamp=TIME,
        store_host=b"\x7f\0\0\1\0\0\x2a\x9f",
    )


def log_of(count: int, *, begin: int = 0, mark: str = "m", first: int = 0) -> bytearray:
    """Return so many records from an offset on, with a BLANK at the end of each file.

    `first`: the queue offset of the first one.
    """
    log = bytearray()
    for number in range(count):
        data = record(begin + len(log), f"{mark}{number}", first + number)
        left = SIZE - (begin + len(log)) % SIZE
        if len(data) + 8 > left:
            log += build_blank(left) + bytes(left - 8)
            data = record(begin + len(log), f"{mark}{number}", first + number)
        log += data
    return log


class FakeMaster:
    """Serves `log`, whose first byte is at `begin`; `reports`: what clients have reported, by connection."""

    def __init__(
        self, log: bytearray, *, begin: int = 0, version: str = "V5_4_0", settings: Mapping[str, str] = {}
    ) -> None:
        self.log, self.begin = log, begin
        self.version = version
        self.reports: list[list[int]] = []
        self.hostile: Hostile | None = None
        self.answer: Hostile | None = None
        self.signatures: list[str] = []
        self.rate = 0.0  # s between frames
        self.tls: ssl.SSLContext | None = None
        self._open: list[socket.socket] = []
        self._listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        self.port, self.ha_port = (one.getsockname()[1] for one in self._listeners)
        self.settings = {
            "brokerName": "fake",
            "brokerClusterName": "Cluster",
            "brokerId": "0",
            "brokerRole": "ASYNC_MASTER",
            "haListenPort": str(self.ha_port),
            "mappedFileSizeCommitLog": str(SIZE),
            "storePathRootDir": "/data/rocketmq/store",
        } | dict(settings)
        for listener, serve in zip(self._listeners, (self._remoting, self._ha), strict=True):
            threading.Thread(target=self._accept, args=(listener, serve), daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def end(self) -> int:
        return self.begin + len(self.log)

    def add(self, count: int, mark: str = "n") -> None:
        """Append records."""
        self.log += log_of(count, begin=self.end, mark=mark, first=self.log.count(b"\xda\xa3\x20\xa7"))

    def cut(self) -> None:
        """Close all connections."""
        for one in self._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def close(self) -> None:
        for listener in self._listeners:
            listener.close()
        self.cut()

    def __enter__(self) -> FakeMaster:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _accept(self, listener: socket.socket, serve: Hostile) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            self._open.append(client)
            threading.Thread(target=self._serve, args=(client, serve), daemon=True).start()

    @staticmethod
    def _serve(client: socket.socket, serve: Hostile) -> None:
        with client, contextlib.suppress(OSError, struct.error, AssertionError):
            serve(client)

    # --- the remoting port -----------------------------------------------------------------------------------------

    def _remoting(self, client: socket.socket) -> None:
        if self.tls is not None:
            client = self.tls.wrap_socket(client, server_side=True)
        if self.answer is not None:
            self.answer(client)
            return
        while True:
            (length,) = struct.unpack(">i", _exactly(client, 4))
            frame = _exactly(client, length)
            (size,) = struct.unpack_from(">i", frame)
            asked = json.loads(frame[4 : 4 + size])
            fields = asked.get("extFields") or {}
            self.signatures.append(fields.get("Signature", ""))
            code, body, remark = self._respond(asked["code"], fields)
            head = {"code": code, "flag": 1, "opaque": asked["opaque"], "language": "JAVA", "version": 493}
            data = json.dumps(head | ({"remark": remark} if remark else {})).encode()
            client.sendall(struct.pack(">ii", 4 + len(data) + len(body), len(data)) + data + body)

    def _respond(self, code: int, fields: dict[str, str]) -> tuple[int, bytes, str]:
        if code == 26:
            return 0, "".join(f"{name}={value}\n" for name, value in self.settings.items()).encode(), ""
        if code == 28:
            table = {
                "brokerVersionDesc": self.version,
                "commitLogMinOffset": str(self.begin if self.log else -1),
                "commitLogMaxOffset": str(self.end if self.log else 0),
            }
            return 0, json.dumps({"table": table}).encode(), ""
        if code == 33:
            at = int(fields["offset"]) - self.begin
            size = int.from_bytes(self.log[at : at + 4], "big")
            if self.log[at + 4 : at + 7] == b"\xda\xa3\x20":
                return 0, bytes(self.log[at : at + size]), ""
            return 1, b"", f"can not find message by the offset, {at}"
        tables = {21: "topicConfigTable", 43: "offsetTable", 45: "offsetTable", 201: "subscriptionGroupTable"}
        return 0, json.dumps({tables[code]: {}}).encode(), ""

    # --- the HA port -----------------------------------------------------------------------------------------------

    def _ha(self, client: socket.socket) -> None:
        if self.hostile is not None:
            self.hostile(client)
            return
        said: list[int] = []
        self.reports.append(said)
        (at,) = struct.unpack(">q", _exactly(client, 8))
        said.append(at)
        threading.Thread(target=self._listen, args=(client, said), daemon=True).start()
        if at == 0:
            at = self.end // SIZE * SIZE
        beat = time.monotonic()
        while True:
            if self.begin <= at < self.end:
                size = min(BATCH, self.end - at, SIZE - at % SIZE)
                low = at - self.begin
                client.sendall(struct.pack(">qi", at, size) + self.log[low : low + size])
                at += size
                time.sleep(self.rate)
            elif time.monotonic() - beat > BEAT:
                client.sendall(struct.pack(">qi", at, 0))
                beat = time.monotonic()
            else:
                time.sleep(0.005)

    @staticmethod
    def _listen(client: socket.socket, said: list[int]) -> None:
        with contextlib.suppress(OSError, struct.error, AssertionError):
            while True:
                said.append(*struct.unpack(">q", _exactly(client, 8)))


def _exactly(client: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = client.recv(size - len(data))
        assert part
        data += part
    return data
