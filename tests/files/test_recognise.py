"""Directories that look like a broker's logs and queues and are none: of controllers, other programs, compaction."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from rmqstore.errors import NotAStore
from rmqstore.files.store import open_store
from rmqstore.formats.dledger import ENTRY, INDEX_UNIT, NORMAL
from tests.command import run
from tests.stores import BROKER_STORES, unpack
from tests.untouched import assert_untouched

EVENT = b'\0\x02{"brokerName":"broker-a","clusterName":"C","newBrokerId":1,"registerCheckCode":"127.0.0.1;1"}'
# the first entry of a controller of 5.4.0, written when it became the leader
FIRST = bytes.fromhex("0000000100000030") + bytes(40)


def controller(root: Path, bodies: Iterable[bytes]) -> Path:
    """Write the directory of a DLedger log with these bodies, with the names of a controller's."""
    data = units = b""
    for index, body in enumerate(bodies):
        size = ENTRY.size + len(body)
        values = {"index": index, "term": 0, "channel": 0, "chain_crc": 0, "body_crc": 0, "body_length": len(body)}
        units += INDEX_UNIT.build(magic=NORMAL, pos=len(data), size=size, index=index, term=0)
        data += ENTRY.build(magic=NORMAL, size=size, pos=len(data), **values) + body
    for name, content in (("data", data), ("index", units)):
        (root / "dledger-n0" / name).mkdir(parents=True)
        (root / "dledger-n0" / name / f"{0:020}").write_bytes(content.ljust(1 << 16, b"\0"))
    (root / "dledger-n0" / "snapshot").mkdir()
    (root / "dledger-n0" / "checkpoint").write_text("committedIndex=1\nendIndex=1\n")
    (root / "dledger-n0" / "currterm").write_text("voteLeader=n0\ncurrTerm=0\n")
    return root


@pytest.mark.parametrize(
    "below", [".", "dledger-n0", "dledger-n0/data", f"dledger-n0/data/{0:020}", "dledger-n0/index"]
)
@pytest.mark.parametrize("events", [[b""], [b"", EVENT, EVENT, b""]])
def test_the_directory_of_a_controller_is_no_store(below: str, events: list[bytes], tmp_path: Path) -> None:
    root = controller(tmp_path / "DLedgerController", events)
    assert (root / "dledger-n0" / "data" / f"{0:020}").read_bytes()[:48] == FIRST
    with pytest.raises(NotAStore, match="events of a controller"):
        open_store(root / below)


@pytest.mark.parametrize(
    "words",
    [
        ["verify"],
        ["info"],
        ["recover", "--apply"],
        ["recover", "--strategy", "truncate", "--apply"],
        ["rebuild", "cq"],
        ["expire", "--apply"],
        ["migrate-to-dledger", "--self-id", "n0", "--apply"],
        ["dump"],
        ["journals"],
    ],
    ids=" ".join,
)
def test_every_command_says_what_a_controller_is(words: list[str], tmp_path: Path) -> None:
    """`recover` planned to zero the log of a controller, and said that nothing was lost."""
    root = controller(tmp_path / "DLedgerController", [b"", EVENT])
    with assert_untouched(root):
        result = run(words[0], str(root), *words[1:])
    assert result.exit_code == 3, result.output
    assert "contains events of a controller, not messages" in result.stderr


def test_entries_of_another_program_are_no_messages(tmp_path: Path) -> None:
    root = controller(tmp_path / "other", [b"SET a=1", b"SET b=2", b"DEL a"])
    with pytest.raises(NotAStore, match="entries of another program"):
        open_store(root)


@pytest.mark.parametrize("name", [name for name in BROKER_STORES if "dledger" in name or "controller" in name])
def test_brokers_are_still_recognised(name: str) -> None:
    assert open_store(unpack(name)).part is None


INSIDE = [
    "",
    "/compactionLog",
    "/compactionCq",
    *(
        f"/{part}/Compact_11{below}"
        for part in ("compactionLog", "compactionCq")
        for below in ("", "/0", f"/0/{0:020}")
    ),
    "/position-checkpoint",
]


@pytest.mark.parametrize("below", INSIDE)
@pytest.mark.parametrize("command", ["verify", "dump", "info", "recover"])
def test_parts_of_compaction_are_only_read_with_their_store(command: str, below: str) -> None:
    """Its records have the CRCs of other positions, and its units 46 bytes: alone they looked damaged."""
    store = unpack("5.4.0-formats")
    with assert_untouched(store):
        result = run(command, f"{store}/compaction{below}")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "is a part of compaction/, whose logs and queues are only read with their store" in result.stderr
    assert "`rmqstore verify STORE` checks them" in result.stderr


@pytest.mark.parametrize(
    ("below", "part"), [("", "topic"), ("0", "batchconsumequeue"), (f"0/{0:020}", "batchconsumequeue")]
)
def test_a_queue_of_46_byte_units_is_one_wherever_it_lies(below: str, part: str, tmp_path: Path) -> None:
    shutil.copytree(unpack("5.4.0-formats") / "compaction/compactionCq/Compact_11", tmp_path / "Compact_11")
    opened = open_store(tmp_path / "Compact_11" / below)
    assert opened.part == part
    rows = [
        json.loads(line) for line in run("dump", str(opened.path), "--what", "batchconsumequeue").stdout.splitlines()
    ]
    assert [row["base_offset"] for row in rows] == [*range(20)]
    assert {row["size"] for row in rows} == {284, 285}
    report = run("verify", str(opened.path), "--json")
    assert json.loads(report.stdout)["counts"] == {}


@pytest.mark.parametrize("name", ["offsets.json", "offsets.json.bak"])
@pytest.mark.parametrize("command", ["verify", "dump", "info"])
def test_the_progress_of_a_broadcasting_client_is_no_file_of_a_broker(command: str, name: str, tmp_path: Path) -> None:
    """LocalFileOffsetStore of 5.4.0 writes queues as keys, which is no JSON for others."""
    path = tmp_path / "127.0.0.1@DEFAULT" / "CG_broadcast" / name
    path.parent.mkdir(parents=True)
    path.write_text(
        '{\n\t"offsetTable":{{\n\t\t\t"brokerName":"b",\n\t\t\t"queueId":0,\n\t\t\t"topic":"T"\n\t\t}:42\n\t}\n}'
    )
    result = run(command, str(path))
    assert (result.exit_code, result.stdout) == (3, "")
    assert "is the progress of a broadcasting client (LocalFileOffsetStore): no broker reads it" in result.stderr
