"""A TCP connection with a deadline for everything: no peer can make a command wait for ever."""

from __future__ import annotations

import select
import socket
import ssl
import time
from dataclasses import dataclass
from typing import NamedTuple

from rmqstore.errors import CouldNotCheck, UsageError, about, reason
from rmqstore.texts import Placed, Text

CONNECT_SECONDS = 10
_MOST = 1 << 20


class ConnectionLost(CouldNotCheck):
    """There is no connection to the broker any more, or what answers does not speak its protocol."""

    advice = Text("check address and port, and that the broker runs")


class BrokerAddress(NamedTuple):
    """HOST:PORT."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> BrokerAddress:
        """Parse `HOST:PORT` or `[IPV6]:PORT`. Errors: UsageError."""
        host, colon, port = text.rpartition(":")
        host = host[1:-1] if host[:1] == "[" and host[-1:] == "]" else host if ":" not in host else ""
        if not colon or not host or not (port.isascii() and port.isdigit() and 0 < int(port[:6]) < 1 << 16):
            raise UsageError(
                Text("{text!r} is not HOST:PORT", text=text),
                Text("give the address of the broker, as in 10.0.0.7:10911"),
            )
        return cls(host, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Tls:
    """How to encrypt. `authority`: file with certificates of authorities; None not to check the broker's."""

    authority: str | None = None

    def context(self) -> ssl.SSLContext:
        """Return the context of connections. Errors: UsageError for a file without certificates."""
        if self.authority is None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            return context
        try:
            context = ssl.create_default_context(cafile=self.authority)
        except OSError as error:  # ssl.SSLError is one
            raise UsageError(about(self.authority, error), Text("give a file of certificates (PEM)")) from error
        context.check_hostname = False  # brokers are named by addresses, and their certificates by anything
        return context


class Connection:
    """An open connection. Errors of all methods: ConnectionLost."""

    def __init__(self, address: BrokerAddress, tls: Tls | None = None) -> None:
        self.address = address
        context = tls.context() if tls is not None else None
        try:
            raw = socket.create_connection(address, CONNECT_SECONDS)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = raw
            if context is not None:
                try:
                    self._socket = context.wrap_socket(raw, server_hostname=address.host)
                except BaseException:
                    raw.close()
                    raise
            self._socket.setblocking(False)
        except OSError as error:
            raise self._lost(reason(error)) from error

    def send(self, data: bytes, seconds: float) -> None:
        """Send all bytes."""
        end, view = time.monotonic() + seconds, memoryview(data)
        while len(view):
            try:
                view = view[self._socket.send(view) :]
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                self._wait(end, writing=True)
            except OSError as error:
                raise self._lost(reason(error)) from error

    def receive(self, seconds: float) -> bytes:
        """Return the next bytes, at most 1 MiB; none if none have come within this time."""
        end = time.monotonic() + seconds
        while True:
            try:
                data = self._socket.recv(_MOST)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                if time.monotonic() >= end:
                    return b""
                select.select([self._socket], [], [], max(0.0, end - time.monotonic()))
            except OSError as error:
                raise self._lost(reason(error)) from error
            else:
                if not data:
                    raise self._lost(Text("it closed the connection"))
                return data

    def close(self) -> None:
        """Close the connection; a second call does nothing."""
        self._socket.close()

    def _wait(self, end: float, *, writing: bool) -> None:
        left = end - time.monotonic()
        if left <= 0:
            raise self._lost(Text("it does not read"))
        select.select([self._socket], [self._socket] if writing else [], [], left)

    def _lost(self, why: str) -> ConnectionLost:
        return ConnectionLost(Placed("{address}: {why}", address=str(self.address), why=why))
