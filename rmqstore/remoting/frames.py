"""Frames of the remoting protocol: bytes of requests and of responses. No sockets.

A frame is its length (4 bytes), the length of the header (3 bytes after a byte for its form, 0: JSON), the header, and
a body. The lengths do not count themselves.
Source: RemotingCommand#encode, #decode (RocketMQ 4.9.7, 5.5.1); AclUtils#combineRequestContent, AclSigner#calSignature
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rmqstore.texts import Text

LONGEST = 64 << 20
"""Bytes of the longest frame that is accepted; a broker's own limit is 16 MiB (FileRegionEncoder, NettyDecoder)."""
_LONGEST_HEADER = 1 << 20  # bytes
_VERSION = 401  # V4_9_0: what a broker of any version answers
_HEAD = struct.Struct(">i")
_IS_RESPONSE = 1


class BadFrame(Exception):
    """Bytes that are no frame of the remoting protocol; the text says why."""


@dataclass(frozen=True, slots=True)
class Response:
    """An answer of a broker. `code`: 0 for success; `remark`: what it says about an error."""

    code: int
    opaque: int
    remark: str
    fields: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Signer:
    """Signs requests for a broker with ACL. `secret_key` is not shown."""

    access_key: str
    secret_key: str = field(repr=False)

    def sign(self, fields: Mapping[str, str], body: bytes) -> dict[str, str]:
        """Return the fields with the key and the signature of all values, in the order of their names, and the body."""
        signed = {**fields, "AccessKey": self.access_key}
        content = "".join(signed[name] for name in sorted(signed)).encode() + body
        digest = hmac.new(self.secret_key.encode(), content, hashlib.sha1).digest()
        return {**signed, "Signature": base64.b64encode(digest).decode()}


def request(
    code: int, opaque: int, fields: Mapping[str, str], body: bytes = b"", signer: Signer | None = None
) -> bytes:
    """Return the bytes of a request."""
    header = {
        "code": code,
        "language": "JAVA",
        "version": _VERSION,
        "opaque": opaque,
        "flag": 0,
        "extFields": dict(fields) if signer is None else signer.sign(fields, body),
    }
    data = json.dumps(header).encode()
    return _HEAD.pack(4 + len(data) + len(body)) + _HEAD.pack(len(data)) + data + body


class ResponseReader:
    """Joins bytes to responses."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        self._data += data

    def next(self) -> Response | None:
        """Return the next response; None until it is complete. Errors: BadFrame."""
        if len(self._data) < 4:
            return None
        length = _HEAD.unpack_from(self._data)[0]
        if not 4 <= length <= LONGEST:
            raise BadFrame(Text("a frame of {length:,} bytes", length=length))
        if len(self._data) < 4 + length:
            return None
        frame = bytes(self._data[4 : 4 + length])
        del self._data[: 4 + length]
        return _parse(frame)


def _parse(frame: bytes) -> Response:
    """Errors: BadFrame."""
    size = _HEAD.unpack_from(frame)[0]
    if size >> 24:
        raise BadFrame(Text("a header that is not JSON"))
    if size > min(len(frame) - 4, _LONGEST_HEADER):
        raise BadFrame(Text("a header of {size:,} bytes in a frame of {length:,}", size=size, length=len(frame)))
    try:
        header: Any = json.loads(frame[4 : 4 + size])
        flag, fields = int(header["flag"]), header.get("extFields") or {}
        response = Response(
            int(header["code"]),
            int(header["opaque"]),
            str(header.get("remark") or ""),
            {str(name): str(value) for name, value in fields.items()},
            frame[4 + size :],
        )
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise BadFrame(Text("a header that is not one of RocketMQ")) from error
    if not flag & _IS_RESPONSE:
        raise BadFrame(Text("a request instead of an answer"))
    return response
