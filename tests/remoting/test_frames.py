"""Frames of the remoting protocol: those of real brokers, and bytes that no broker sends."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import struct

import pytest

from rmqstore.formats.configuration import parse_config_object
from rmqstore.remoting.frames import LONGEST, BadFrame, Response, ResponseReader, Signer, request
from tests.remoting.recorded import VERSIONS, answer


def read(data: bytes, step: int = 1 << 20) -> list[Response]:
    reader, found = ResponseReader(), []
    for at in range(0, len(data), step):
        reader.feed(data[at : at + step])
        while (one := reader.next()) is not None:
            found.append(one)
    return found


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("step", [1, 7, 1 << 20])
def test_answers_of_real_brokers(version: str, step: int) -> None:
    names = ("26", "28", "21", "43", "45", "201")
    found = read(b"".join(answer(version, name) for name in names), step)
    assert [(one.code, one.opaque) for one in found] == [(0, int(name)) for name in names]
    assert b"brokerRole=ASYNC_MASTER\n" in found[0].body
    assert parse_config_object(found[1].body)["table"]["brokerVersionDesc"] == f"V{version.replace('.', '_')}"  # type: ignore[index,call-overload]
    tables = ("topicConfigTable", "offsetTable", "offsetTable", "subscriptionGroupTable")
    assert all(table in parse_config_object(one.body) for table, one in zip(tables, found[2:], strict=True))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_record_and_an_error_of_real_brokers(version: str) -> None:
    (record,), (error,) = read(answer(version, "33")), read(answer(version, "33 elsewhere"))
    assert record.body[4:8] == b"\xda\xa3\x20\xa7"
    assert (error.code, error.body) == (1, b"")
    assert error.remark.startswith("can not find message by the offset")


def frame(header: bytes, body: bytes = b"", *, length: int | None = None, head: int | None = None) -> bytes:
    total = 4 + len(header) + len(body) if length is None else length
    return struct.pack(">ii", total, len(header) if head is None else head) + header + body


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 400 Bad Request\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        struct.pack(">i", -1),
        struct.pack(">i", 3) + b"abc",
        struct.pack(">i", LONGEST + 1),
        frame(b'{"code":0}', head=1 << 20),
        frame(b'{"code":0}', head=(1 << 24) + 10),
        frame(b"[]"),
        frame(b"{}"),
        frame(b"\xff\xfe"),
        frame(b"[" * 100_000),
        frame(b'{"code":0,"opaque":1,"flag":0}'),
        frame(b'{"code":0,"opaque":1,"flag":1,"extFields":[1]}'),
        frame(b'{"code":"x","opaque":1,"flag":1}'),
        frame(b'{"code":0,"opaque":1,"flag":1e999}'),
        pytest.param(frame(b'{"code":0,"opaque":1,"flag":1}' + b" " * (2 << 20)), id="long"),
    ],
)
def test_bytes_of_another_program(data: bytes) -> None:
    with pytest.raises(BadFrame):
        read(data)


def test_a_request_is_signed_over_the_values_in_order_of_their_names_and_the_body() -> None:
    data = request(33, 5, {"offset": "12"}, b"body", Signer("user", "secret"))
    (length, size) = struct.unpack_from(">ii", data)
    header = json.loads(data[8 : 8 + size])
    assert (length, data[8 + size :]) == (len(data) - 4, b"body")
    assert (header["code"], header["opaque"], header["flag"]) == (33, 5, 0)
    signature = base64.b64encode(hmac.new(b"secret", b"user12body", hashlib.sha1).digest()).decode()
    assert header["extFields"] == {"offset": "12", "AccessKey": "user", "Signature": signature}


def test_the_secret_key_is_not_shown() -> None:
    assert "secret" not in repr(Signer("user", "secret"))
