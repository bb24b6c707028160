"""A POP consumer of a whole broker: sends the requests of RocketMQ's client over a socket.

    with PopClient(broker.address, "Group", "Topic") as client:
        received = client.pop(8, invisible=10_000)
        client.acknowledge(received[0])

Source: PopMessageRequestHeader, AckMessageRequestHeader, MQClientAPIImpl#processPopResponse, ExtraInfoUtil (RocketMQ
5.5.1)
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Self

from rmqstore.formats.message import parse_message
from rmqstore.formats.pop import retry_topics
from rmqstore.formats.properties import parse_properties

_POP_MESSAGE, _ACK_MESSAGE, _FOUND = 200050, 200051, 0
_ANY_QUEUE = -1
_FROM_MINIMUM = 0


@dataclass(frozen=True, slots=True)
class PoppedMessage:
    """A message as a consumer receives it. `handle`: what an acknowledgement has to repeat."""

    keys: str
    queue_id: int
    queue_offset: int
    handle: str


class PopClient:
    """One consumer of a group. A context manager."""

    def __init__(self, address: str, group: str, topic: str) -> None:
        host, port = address.split(":")
        self.group, self.topic = group, topic
        self._socket = socket.create_connection((host, int(port)), timeout=30)
        self._number = 0
        self._retry = dict(zip("12", retry_topics(group, topic), strict=True))
        """Kind of a topic in a handle → its name; 0 is the topic itself."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def pop(self, most: int, *, invisible: int) -> list[PoppedMessage]:
        """Receive up to `most` messages; `invisible`: ms."""
        now = int(time.time() * 1000)
        fields = {"consumerGroup": self.group, "topic": self.topic, "queueId": _ANY_QUEUE, "maxMsgNums": most}
        fields |= {"invisibleTime": invisible, "pollTime": 500, "bornTime": now, "initMode": _FROM_MINIMUM}
        code, answer, body = self._ask(_POP_MESSAGE, {**fields, "order": "false"})
        return list(self._messages(answer, body)) if code == _FOUND else []

    def acknowledge(self, message: PoppedMessage) -> None:
        """Acknowledge a message. Errors: RuntimeError if the broker refuses."""
        fields = {
            "consumerGroup": self.group,
            "topic": self._retry.get(message.handle.split(" ")[4], self.topic),
            "queueId": message.queue_id,
            "extraInfo": message.handle,
            "offset": message.queue_offset,
        }
        code, answer, _ = self._ask(_ACK_MESSAGE, fields)
        if code != _FOUND:
            raise RuntimeError(f"{code}: {answer}")

    def _messages(self, answer: Mapping[str, str], body: bytes) -> Iterator[PoppedMessage]:
        starts = dict((one.rsplit(" ", 1)) for one in answer["startOffsetInfo"].split(";") if one)
        at = 0
        while at < len(body):
            size = int.from_bytes(body[at : at + 4], "big")
            message, _ = parse_message(body[at : at + size])
            assert message is not None
            at += size
            known = parse_properties(message.properties)
            kind = next((kind for kind, name in self._retry.items() if name == message.topic_text), "0")
            handle = known.get("POP_CK") or " ".join(
                (
                    starts[f"{kind} {message.queue_id}"],
                    *(answer[name] for name in ("popTime", "invisibleTime", "reviveQid")),
                    *(kind, "broker", str(message.queue_id), str(message.queue_offset)),
                )
            )
            yield PoppedMessage(known["KEYS"], message.queue_id, int(handle.split(" ")[7]), handle)

    def _ask(self, code: int, fields: Mapping[str, object]) -> tuple[int, dict[str, str], bytes]:
        """Send a request and return code, fields and body of the response. Source: RemotingCommand#encode"""
        self._number += 1
        command = {"code": code, "language": "JAVA", "version": 477, "opaque": self._number, "flag": 0}
        command |= {
            "serializeTypeCurrentRPC": "JSON",
            "extFields": {name: str(value) for name, value in fields.items()},
        }
        head = json.dumps(command).encode()
        self._socket.sendall((4 + len(head)).to_bytes(4, "big") + len(head).to_bytes(4, "big") + head)
        size = int.from_bytes(self._receive(4), "big")
        data = self._receive(size)
        length = int.from_bytes(data[1:4], "big")  # the first byte is the kind of the encoding
        found = json.loads(data[4 : 4 + length])
        return found["code"], found.get("extFields") or {}, data[4 + length :]

    def _receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise ConnectionError("the broker closed the connection")
            data += part
        return data
