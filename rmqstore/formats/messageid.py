"""Encode and decode message ids: the broker's offset message id and the client's UNIQ_KEY.

Source: MessageDecoder#createMessageId, #decodeMessageId; MessageClientIDSetter#createUniqID (RocketMQ 4.3 to 5.4.0).
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo

from construct import Bytes, Int16sb, Int32sb, Int32ub, Int64sb

from rmqstore.formats.layout import Field, Layout
from rmqstore.texts import Text

_ID_V4 = Layout(
    "offset message id (IPv4)",
    "MessageDecoder#createMessageId, RocketMQ 5.4.0",
    Field("address", Bytes(4), "Address of the broker that stored the message."),
    Field("port", Int32sb, "Port of that broker."),
    Field("physical_offset", Int64sb, "PHYSICALOFFSET of the record; in DLedger mode entry position + 48.", "bytes"),
)
_ID_V6 = Layout(
    "offset message id (IPv6)",
    "MessageDecoder#createMessageId, RocketMQ 5.4.0",
    Field("address", Bytes(16), "Address of the broker that stored the message."),
    Field("port", Int32sb, "Port of that broker."),
    Field("physical_offset", Int64sb, "PHYSICALOFFSET of the record; in DLedger mode entry position + 48.", "bytes"),
)
OFFSET_IDS = {layout.size: layout for layout in (_ID_V4, _ID_V6)}


def _uniq(name: str, address: int) -> Layout:
    return Layout(
        name,
        "MessageClientIDSetter#createUniqID, RocketMQ 5.4.0",
        Field("address", Bytes(address), "Address of the client's host."),
        Field("pid", Int16sb, "Low 16 bits of the client's process id."),
        Field("class_loader", Int32sb, "Hash of the class loader of the client."),
        Field("span", Int32ub, "Time since the client's local month began.", "ms"),
        Field("counter", Int16sb, "Low 16 bits of the client's message counter.", "messages"),
    )


UNIQ_KEYS = {layout.size: layout for layout in (_uniq(Text("UNIQ_KEY (IPv4)"), 4), _uniq(Text("UNIQ_KEY (IPv6)"), 16))}


@dataclass(frozen=True, slots=True)
class OffsetMessageId:
    """A decoded offset message id; `physical_offset` in bytes."""

    host: str
    port: int
    physical_offset: int


@dataclass(frozen=True, slots=True)
class UniqKey:
    """A decoded UNIQ_KEY; `span` in ms since the client's local month began, `pid` and `counter` modulo 65536."""

    ip: str
    pid: int
    class_loader: int
    span: int
    counter: int

    def time(self, near: int, zone: tzinfo | None = None) -> int:
        """Return when the id was created, in ms.

        The id holds only the time since the month began; the month is the last one that puts it before `near`, a time
        (ms) such as the store time. `zone` is the client's time zone (default: local).
        Source: MessageClientIDSetter#getNearlyTimeFromID
        """
        try:
            moment = datetime.fromtimestamp(near / 1000, zone)
            month = moment.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
            made = round(month.timestamp() * 1000) + self.span
            if made >= near:
                month = (month - timedelta(days=1)).replace(day=1)
                made = round(month.timestamp() * 1000) + self.span
        except (OverflowError, OSError, ValueError):
            return self.span
        return made


def _bytes_of(text: str) -> bytes | None:
    # the length check rejects whitespace, which bytes.fromhex skips
    try:
        data = bytes.fromhex(text)
    except ValueError:
        return None
    return data if len(data) * 2 == len(text) else None


def offset_message_id(host: bytes, physical_offset: int) -> str:
    """Encode a stored host (address and port, 8 or 20 bytes) and a physical offset (bytes) as upper-case hex."""
    return (host + physical_offset.to_bytes(8, "big", signed=True)).hex().upper()


def decode_offset_message_id(text: str) -> OffsetMessageId | None:
    """Decode an id of 32 or 56 hex digits; None for any other text."""
    data = _bytes_of(text)
    layout = OFFSET_IDS.get(len(data)) if data is not None else None
    if data is None or layout is None:
        return None
    values = layout.parse(data)
    return OffsetMessageId(str(ipaddress.ip_address(values["address"])), values["port"], values["physical_offset"])


def decode_uniq_key(text: str) -> UniqKey | None:
    """Decode a UNIQ_KEY of 32 or 56 hex digits; None for any other text.

    Applications can set UNIQ_KEY themselves: any text of this length and alphabet decodes, perhaps to nonsense.
    """
    data = _bytes_of(text)
    layout = UNIQ_KEYS.get(len(data)) if data is not None else None
    if data is None or layout is None:
        return None
    values = layout.parse(data)
    return UniqKey(
        str(ipaddress.ip_address(values["address"])),
        values["pid"] & 0xFFFF,
        values["class_loader"],
        values["span"],
        values["counter"] & 0xFFFF,
    )
