"""The record CRC (property __CRC32#), checked for all records of a chunk at once and for each record alone."""

from __future__ import annotations

import random
from pathlib import Path

from rmqstore.files.mapped_file_queue import MappedFile
from rmqstore.formats.message import CRC32_RESERVED_LEN, Fault, build_message, parse_message, record_crc
from rmqstore.scan.records import scan_file


def test_record_crcs_of_a_chunk_are_those_of_each_record(tmp_path: Path) -> None:
    noise = random.Random(7)
    log = bytearray()
    for i in range(600):
        body = noise.randbytes(noise.randrange(80))
        record = build_message(topic="T", body=body, physical_offset=len(log), append_crc=bool(i % 5))
        log += record
        if i % 3 == 0:  # damage the CRC's digits, the flag (which no other checksum covers), or both
            digit, flag = len(log) - 1 - noise.randrange(CRC32_RESERVED_LEN - 9), len(log) - len(record) + 19
            for place in [digit] * (i % 2 and i % 5 > 0) + [flag] * (i % 4 == 0):
                log[place] = noise.choice((log[place] ^ 1, 0x2F, 0x3A, 0x41))
    path = tmp_path / f"{0:020d}"
    path.write_bytes(log)
    wrong, seen = 0, 0
    for run in scan_file(MappedFile(path, 0, len(log), len(log))):
        assert run.columns is not None
        for at in run.columns.offset.tolist():
            message, _ = parse_message(log, at)
            assert message is not None
            stored, computed = record_crc(log, at, message.size)
            fits = stored is None or stored == computed
            assert (run.cause is not Fault.RECORD_CRC) is fits
            wrong += not fits
            seen += 1
    assert seen == 600
    assert wrong > 50
