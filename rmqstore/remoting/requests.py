"""Requests that only read: what a follower asks a broker.

Source: RequestCode, AdminBrokerProcessor (RocketMQ 4.9.7, 5.1.4, 5.4.0, 5.5.1)
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from rmqstore.errors import CouldNotCheck, Refused
from rmqstore.formats.configuration import ConfigJsonError, parse_config_object
from rmqstore.remoting.connection import BrokerAddress, Connection, ConnectionLost, Tls
from rmqstore.remoting.frames import BadFrame, Response, ResponseReader, Signer, request
from rmqstore.texts import Text

TOPICS, CONFIGURATION, RUNTIME, MESSAGE, CONSUMER_OFFSETS, DELAY_OFFSETS = 21, 26, 28, 33, 43, 45
GROUPS, CLUSTER_INFO = 201, 106
_SECONDS = 15.0
_TRIES = 20
"""How often a broker that starts is asked again, once in half a second: its answers have no body then."""
_LONGEST_PARSED = 4 << 20
"""Bytes of the longest answer that is parsed here: a broker's settings are about 30 KiB."""
_NO_PERMISSION = 16


class RemoteBroker:
    """The remoting port of a broker. Errors of all methods: ConnectionLost; Refused without permission."""

    def __init__(self, address: BrokerAddress, signer: Signer | None = None, tls: Tls | None = None) -> None:
        self.address = address
        self._signer = signer
        self._connection = Connection(address, tls)
        self._reader = ResponseReader()
        self._opaque = 0

    def ask(self, code: int, fields: Mapping[str, str] | None = None) -> Response:
        """Send a request, and return its answer, which may be an error."""
        self._opaque += 1
        end = time.monotonic() + _SECONDS
        self._connection.send(request(code, self._opaque, fields or {}, signer=self._signer), _SECONDS)
        while True:
            try:
                answer = self._reader.next()
            except BadFrame as error:
                words = Text("{address} does not answer as a broker does: {why}")
                raise ConnectionLost(
                    words.format(address=str(self.address), why=error.args[0]),
                    Text("give the broker's listenPort (10911), not its HA port or that of a proxy"),
                ) from error
            if answer is not None and answer.opaque == self._opaque:
                if answer.code == _NO_PERMISSION:
                    raise Refused(
                        Text(
                            "{address} refuses the request: {why}", address=str(self.address), why=answer.remark[:200]
                        ),
                        Text("give --acl FILE with the accessKey and the secretKey of a user"),
                    )
                return answer
            if answer is not None:
                continue
            left = end - time.monotonic()
            if left <= 0:
                raise ConnectionLost(
                    Text("{address} does not answer a request", address=str(self.address)),
                    Text("give the broker's listenPort (10911), not its HA port or that of a proxy"),
                )
            self._reader.feed(self._connection.receive(left))

    def document(self, code: int) -> bytes:
        """Return the body of an answer, which a broker may have only some time after its start."""
        answer = self.ask(code)
        for _ in range(_TRIES):
            if answer.code or answer.body:
                break
            time.sleep(0.5)
            answer = self.ask(code)
        if answer.code or not answer.body:
            words = Text("{address} does not answer request {code}: {why}")
            why = answer.remark[:200] or Text("no content")
            raise CouldNotCheck(words.format(address=str(self.address), code=code, why=why), ConnectionLost.advice)
        return answer.body

    def _parsed(self, code: int) -> bytes:
        """Return the body of an answer that is to be parsed, and so takes many times its size of memory."""
        body = self.document(code)
        if len(body) > _LONGEST_PARSED:
            words = Text("{address}: its answer to request {code} has {size:,} bytes")
            raise ConnectionLost(words.format(address=str(self.address), code=code, size=len(body)))
        return body

    def configuration(self) -> dict[str, str]:
        """Return the settings of the broker, as GET_BROKER_CONFIG has them."""
        lines = (line.partition("=") for line in self._parsed(CONFIGURATION).decode("utf-8", "replace").splitlines())
        return {name.strip(): value.strip() for name, mark, value in lines if mark}

    def runtime(self) -> dict[str, str]:
        """Return what GET_BROKER_RUNTIME_INFO says, with the bounds of the log."""
        table = self._object(RUNTIME).get("table")
        return {str(name): str(value) for name, value in table.items()} if isinstance(table, dict) else {}

    def record_at(self, offset: int) -> bytes | None:
        """Return the record that starts at a global offset, as it is in the log; None without one."""
        answer = self.ask(MESSAGE, {"offset": str(offset)})
        return None if answer.code else answer.body

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _object(self, code: int) -> dict[str, Any]:
        try:
            return parse_config_object(self._parsed(code))
        except ConfigJsonError as error:
            words = Text("{address}: its answer to request {code} is not JSON", address=str(self.address), code=code)
            raise ConnectionLost(words) from error
