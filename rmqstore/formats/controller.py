"""The text files of controller mode: epochFileCheckpoint and brokerIdentity.

Source: CheckpointFile, EpochFileCache, BrokerMetadata, TempBrokerMetadata (RocketMQ 5.0 to 5.4.0).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rmqstore.formats.javatext import java_split, java_text, parse_int, parse_long
from rmqstore.formats.message import body_crc
from rmqstore.texts import Text, many

CRC_UNCHECKED = 0


@dataclass(frozen=True, slots=True)
class EpochEntry:
    """A master epoch: its number and the physical offset (bytes) where it starts."""

    epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True)
class EpochFile:
    """`epochFileCheckpoint`: the readable entries, and the faults that make the broker fall back to `.bak`."""

    entries: tuple[EpochEntry, ...]
    faults: tuple[str, ...] = ()

    def build(self) -> bytes:
        """Return the bytes of the file as the broker writes it.

        Errors: ValueError without entries: the broker never writes an empty list.
        """
        if not self.entries:
            raise ValueError(Text("an epoch file has at least one entry"))
        lines = "".join(f"{e.epoch}-{e.start_offset}\n" for e in self.entries).encode()
        return f"{len(self.entries)}\n{body_crc(lines)}\n".encode() + lines


def parse_epoch_file(data: bytes) -> EpochFile:
    """Parse an epoch file; damage is reported in `faults`, never raised.

    Source: CheckpointFile#read, EpochFileCache#initCacheFromFile
    """
    lines = re.split(r"\r\n|\n|\r", java_text(bytes(data)))
    if lines[-1] == "":
        lines.pop()
    if not lines:
        return EpochFile((), ("empty",))
    faults: list[str] = []
    count = parse_int(lines[0])
    stored = parse_int(lines[1]) if len(lines) > 1 else None
    if count is None:
        faults.append(Text("line 1 is not an entry count"))
    if stored is None:
        faults.append(Text("line 2 is not a CRC"))
    entries: list[EpochEntry] = []
    for number, line in enumerate(lines[2:], 3):
        parts = java_split(line, "-")
        if len(parts) != 2:  # the broker skips such a line
            faults.append(Text("line {number} is not an epoch-offset pair", number=number))
            continue
        epoch, start = parse_int(parts[0]), parse_long(parts[1])
        if epoch is None or start is None:  # the broker gives up here
            faults.append(Text("line {number} has no numbers", number=number))
            break
        if entries and (epoch <= entries[-1].epoch or start < entries[-1].start_offset):
            faults.append(Text("line {number} is not in order", number=number))
        entries.append(EpochEntry(epoch, start))
    if count is not None and count != len(entries):
        faults.append(
            Text("{entries} instead of {stated}", entries=many(len(entries), "entry", "entries"), stated=count)
        )
    if stored not in (None, CRC_UNCHECKED):
        # like the broker, compute the CRC over the lines rejoined with LF, whatever the line endings were
        computed = body_crc("".join(line + "\n" for line in lines[2:]).encode())
        if stored != computed:
            faults.append(Text("CRC is {computed} instead of {stored}", computed=computed, stored=stored))
    return EpochFile(tuple(entries), tuple(faults))


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """`brokerIdentity`, or `brokerIdentity-temp` with its check code; None for parts that could not be read."""

    cluster: str | None
    broker_name: str | None
    broker_id: int | None
    register_check_code: str | None = None
    faults: tuple[str, ...] = ()

    def build(self) -> bytes:
        """Return the bytes of the file as the broker writes it.

        Errors: ValueError if a part is missing.
        """
        if self.cluster is None or self.broker_name is None or self.broker_id is None:
            raise ValueError(Text("an identity needs cluster, broker name and broker id"))
        text = f"{self.cluster}#{self.broker_name}#{self.broker_id}"
        return (text if self.register_check_code is None else f"{text}#{self.register_check_code}").encode()


def parse_broker_identity(data: bytes) -> BrokerIdentity:
    """Parse `cluster#brokerName#brokerId`, plus `#registerCheckCode` in the temporary file; never raises.

    Source: MetadataFile#readFromFile, BrokerMetadata#decodeFromStr, TempBrokerMetadata#decodeFromStr (RocketMQ 5.4.0)
    """
    text = java_text(bytes(data))
    if not text.strip():
        return BrokerIdentity(None, None, None, None, ("empty",))
    parts = java_split(text, "#")
    if len(parts) not in (3, 4):
        return BrokerIdentity(None, None, None, None, (Text("{count} parts instead of 3", count=len(parts)),))
    faults: list[str] = []
    broker_id = parse_long(parts[2].rstrip("\r\n"))
    if broker_id is None:
        faults.append(Text("broker id is not a number"))
    if not parts[0] or not parts[1]:
        faults.append(Text("cluster or broker name is empty"))
    return BrokerIdentity(
        parts[0] or None, parts[1] or None, broker_id, parts[3] if len(parts) == 4 else None, tuple(faults)
    )
