"""A store that is not a replica is refused on the command line: exit code 5, the reason, both stores unchanged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rmqstore.append.encoder import NewMessage
from rmqstore.append.message_store import MessageStore
from rmqstore.files.store import open_store
from tests import damage
from tests.append.rewriting import again, options_like
from tests.command import run
from tests.repair.salvaging import rows
from tests.stores import copy_store, meta, unpack
from tests.untouched import snapshot

NODES = ("5.4.0-master", "5.4.0-controller-master", "5.4.0-dledger3-n0")
"""A node of each kind of group."""
OTHER_NODES = {
    "5.4.0-master": "5.4.0-slave",
    "5.4.0-controller-master": "5.4.0-controller-slave",
    "5.4.0-dledger3-n0": "5.4.0-dledger3-n1",
}


def broken(name: str, target: Path) -> Path:
    store = copy_store(name, target, rename="damaged")
    found = rows(store)
    for number in (20, 100):
        damage.garble(found[number].path, found[number].at - found[number].body_offset, 90)
    return store


def refused(store: Path, replica: Path, *options: str) -> str:
    """Run a refused recover, check that both stores are unchanged, and return the reason."""
    before = snapshot(store), snapshot(replica)
    answer = run("recover", str(store), "--replica", str(replica), "--apply", *options)
    assert answer.exit_code == 5, answer.output
    assert (snapshot(store), snapshot(replica)) == before
    return answer.stderr


def rewritten(name: str, target: Path, *, topic: bytes = b"", file_size: int = 0) -> Path:
    """Create a store of the same messages, but with another beginning of the topics, or another file size."""
    group = open_store(unpack(name)).dledger
    options = options_like(unpack(name), dict(meta(name).settings), meta(name).version)
    if group is not None:
        options = replace(options, dledger=group.self_id, term=1)
    options = replace(options, commitlog_file_size=file_size or options.commitlog_file_size)
    with MessageStore.create(target, options) as writer:
        for row in rows(unpack(name)):
            writer.put(renamed(again(row.message), topic))
    return target


def renamed(message: NewMessage, topic: bytes) -> NewMessage:
    name = topic.decode() + message.topic[len(topic) :]
    return replace(message, topic=name)


@pytest.mark.parametrize("name", NODES)
def test_swapped_arguments(name: str, tmp_path: Path) -> None:
    store = broken(name, tmp_path)
    for good in (name, OTHER_NODES[name]):
        reason = refused(copy_store(good, tmp_path), store)
        assert f"{store} is damaged: are the two in the wrong order?" in reason


@pytest.mark.quick_rows
@pytest.mark.parametrize(
    ("name", "other", "reason"),
    [
        ("5.4.0-master", "5.4.0-controller-master", "another record at offset"),
        ("5.4.0-master", "5.4.0-clean", "another record at offset"),
        ("5.4.0-master", "5.4.0-dledger3-n0", "this is a plain store, and the replica has no such log"),
        ("5.4.0-controller-master", "5.4.0-master", "another record at offset"),
        ("5.4.0-controller-master", "5.1.4-killed", "another record at offset"),
        ("5.4.0-dledger3-n0", "5.4.0-dledger", "another record at offset"),
        ("5.4.0-dledger3-n0", "5.1.4-dledger-killed", "another record at offset"),
        ("5.4.0-dledger3-n0", "5.4.0-master", "this is a dledger store, and the replica has no such log"),
    ],
)
def test_foreign_store(name: str, other: str, reason: str, tmp_path: Path) -> None:
    assert reason in refused(broken(name, tmp_path), unpack(other))


@pytest.mark.quick_rows
@pytest.mark.parametrize("options", [(), ("--extend",), ("--heal-fillers",)], ids=["", "extend", "heal-fillers"])
@pytest.mark.parametrize("name", NODES)
def test_other_topics(name: str, options: tuple[str, ...], tmp_path: Path) -> None:
    """The records have the same sizes and offsets."""
    other = rewritten(name, tmp_path / "other", topic=b"Zz")
    assert [row.offset for row in rows(other)] == [row.offset for row in rows(unpack(name))]
    assert f"{other} is not a replica" in refused(broken(name, tmp_path), other, *options)


@pytest.mark.quick_rows
@pytest.mark.parametrize(("file_size", "border"), [(131_072, 65_536), (32_768, 32_768)])
@pytest.mark.parametrize("name", NODES)
def test_other_file_sizes(name: str, file_size: int, border: int, tmp_path: Path) -> None:
    """The messages are the same, so the first records are equal, but later ones have other offsets."""
    other = rewritten(name, tmp_path / "other", file_size=file_size)
    reason = refused(broken(name, tmp_path), other)
    assert f"has files of {file_size:,} bytes, those of this store have 65,536" in reason
    assert f"a record crosses offset {border:,}" in reason
