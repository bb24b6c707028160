"""Append the messages of a real store again, and compare the files with the broker's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rmqstore.append.dispatch import DispatchOptions
from rmqstore.append.encoder import Limits, NewMessage
from rmqstore.append.message_store import StoreOptions
from rmqstore.files.mapped_file_queue import MappedFileQueue
from rmqstore.files.store import open_store
from rmqstore.formats import index
from rmqstore.formats.configuration import parse_config_object
from rmqstore.formats.message import CRC32_PROPERTY, CRC32_RESERVED_LEN, Message
from rmqstore.scan.records import scan_file
from rmqstore.scan.tiling import Kind


def messages_of(queue: MappedFileQueue, body_offset: int = 0) -> Iterator[Message]:
    """Yield all good records of a log in order."""
    for file in queue.files:
        for run in scan_file(file, body_offset=body_offset):
            if run.kind is Kind.RECORDS and run.columns is not None:
                for i in range(len(run.columns)):
                    yield run.columns.message(i)


def again(message: Message, *, append_crc: bool = False) -> NewMessage:
    """Convert a stored message to a new one; remove the record CRC from its properties, because the store adds it."""
    text = message.properties
    if append_crc and text[-CRC32_RESERVED_LEN:].startswith(CRC32_PROPERTY):
        text = text[:-CRC32_RESERVED_LEN]
    return NewMessage(
        topic=message.topic_text,
        body=message.body,
        properties=text,
        queue_id=message.queue_id,
        flag=message.flag,
        sys_flag=message.sys_flag,
        born_timestamp=message.born_timestamp,
        born_host=message.born_host,
        store_timestamp=message.store_timestamp,
        store_host=message.store_host,
        reconsume_times=message.reconsume_times,
        prepared_transaction_offset=message.prepared_transaction_offset,
        queue_offset=None,
    )


def options_like(
    store: Path, settings: dict[str, str], version: str, *, start: int = 0, **more: object
) -> StoreOptions:
    """Return the options of the broker that wrote a fixture."""

    def number(key: str, default: int) -> int:
        return int(settings.get(key, default))

    def truth(key: str) -> bool:
        return settings.get(key, "false").lower() == "true"

    topics = store / "config" / "topics.json"
    batch: set[str] = set()
    if topics.exists():
        table: Any = parse_config_object(topics.read_bytes()).get("topicConfigTable", {})
        batch = {
            name
            for name, row in table.items()
            if isinstance(row, dict) and (row.get("attributes") or {}).get("queue.type") == "BatchCQ"
        }
    return StoreOptions(
        commitlog_file_size=number("mappedFileSizeCommitLog", 1 << 30),
        index_slots=number("maxHashSlotNum", 5_000_000),
        index_units=number("maxIndexNum", 20_000_000),
        limits=Limits(append_crc=truth("enabledAppendPropCRC") and version >= "5.2"),
        dispatch=DispatchOptions(
            consume_queue_file_size=number("mappedFileSizeConsumeQueue", 6_000_000),
            batch_file_size=number("mapperFileSizeBatchConsumeQueue", 13_800_000),
            tag_key=version == "5.4.0",
            lmq=truth("enableLmq") and truth("enableMultiDispatch"),
            batch_topics=frozenset(batch),
        ),
        start=start,
    )


def log_bytes(queue: MappedFileQueue, body_offset: int = 0) -> dict[str, bytes]:
    """Return the files of a log by name, each up to the 8 bytes of its BLANK."""
    out = {}
    for file in queue.files:
        data = file.path.read_bytes()
        for run in scan_file(file, body_offset=body_offset):
            if run.kind is Kind.BLANK and not body_offset:
                at = run.start - file.start + 8
                data = data[:at] + bytes(len(data) - at)
        out[file.name] = data
    return {name: data for name, data in out.items() if any(data)}


def queue_bytes(store: Path) -> dict[str, bytes]:
    """Return the files of all consume queues by path, without pre-allocated files of zeros."""
    out = {}
    for parent in ("consumequeue", "batchconsumequeue"):
        for path in sorted((store / parent).rglob("*")):
            if path.is_file() and path.name.isdigit():
                data = path.read_bytes()
                if any(data):
                    out[path.relative_to(store).as_posix()] = data
    return out


def index_bytes(store: Path) -> list[bytes]:
    """Return the index files in the order of their names, without files that have no units."""
    entries = [e.path.read_bytes() for e in open_store(store).index_files]
    return [data for data in entries if index.HEADER.parse(data)["index_count"]]
