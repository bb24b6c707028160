"""`rmqstore bundle`: a bundle has the same findings at the same offsets, and none of the original texts."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tarfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rmqstore.files.files import LOCAL
from rmqstore.files.store import open_store
from rmqstore.formats.bodies import Compression, decompress
from rmqstore.formats.properties import is_system_topic
from rmqstore.views.bundle import logs
from rmqstore.views.bundle import units as bundle_index
from rmqstore.views.bundle.bundle import Scope, _IteratorFile, make_bundle
from rmqstore.views.bundle.names import JSON_WORDS, PROPERTY_NAMES, SYSTEM_WORDS, Pseudonyms, json_text
from tests.cases.case import case_names, make, options, read_case
from tests.command import run
from tests.command import run_json as run_any
from tests.damage import flip
from tests.files.memory_files import MemoryFiles
from tests.stores import STORES, copy_store, unpack
from tests.views.decoder import Record, find_records

STORE = "5.4.0-clean"
# a bundle contains no journals, paths of broker.conf, or links
OTHER_FINDINGS = {"DIR-OPEN-JOURNAL", "DIR-UNREADABLE", "DIR-LINK", "DIR-DUPLICATE-FILE", "DIR-MISSING-PATH"}
# nor broken lines of broker.conf, the spelling of JSON files, or bodies (as of POP check points)
OTHER_FINDINGS |= {"BR-NO-START", "CFG-KEY", "CFG-LINE", "CFG-MAPPING", "CFG-SETTING", "CFG-SYNTAX", "CFG-TIER-ENDS"}
OTHER_FINDINGS.add("POP-BEYOND")
# with its new hash, a unit may become the newest of its chain and so point to itself, which is IX-BAD-ENTRY
OTHER_FINDINGS.add("IX-CHAIN-LOOP")
OTHER_FINDINGS.add("IX-BAD-ENTRY")  # a slot that no new hash belongs to may point anywhere
# a bundle contains no RocksDB, and these stores and cases have queues, topics or rows in one
IN_ROCKSDB = re.compile("rocksdb|lmq|lite|config-v2|CQ-ROCKSDB|CQ-TWO-ROCKSDB|CFG-UNSTORED-TOPICS|RDB-")
SOME_CASES = sorted(
    {
        name
        for name in case_names()[::4]
        if name.partition("--")[0] not in OTHER_FINDINGS
        and not IN_ROCKSDB.search(f"{name} {read_case(name).store}")
        and "copy" not in name  # equal files get different noise, so that copies are no longer equal
    }
    | {"CL-BODY-CRC", "CL-SYSFLAG", "CL-UNKNOWN-MAGIC", "CL-MISPLACED-FILE", "CL-RECORD-CRC", "CL-TOPIC"}
    | {"CQ-SHIFTED", "CQ-WRONG-TAG", "CQ-EXT", "CFG-BROKEN", "DL-BODY--zero-page"}
)
TEXT = re.compile(rb"[^\x00-\x20\x7f]{6,}")
WORD = re.compile(rb"[A-Za-z0-9_-]{6,}")  # shorter words occur by chance in random bytes


def run_json(*words: str, exit_code: int) -> Any:
    return run_any(*words, exit_code=exit_code)


def unpacked(store: Path, folder: Path, *words: str) -> Path:
    """Create and unpack the bundle of a store, and return its directory."""
    out = folder / "bundle.tar.gz"
    manifest = run_json("bundle", str(store), "-o", str(out), *words, exit_code=0)
    subprocess.run(["tar", "xzf", str(out), "-C", str(folder)], check=True)
    assert json.loads((folder / "manifest.json").read_text()) == manifest
    return folder / "store"


def findings(store: Path, *words: str) -> Mapping[tuple[str, int, int], int]:
    answer = json.loads(run("verify", str(store), "--json", *words).stdout)
    return Counter((f["code"], f["offset"], f["length"]) for f in answer["findings"])


def own_words(store: Path) -> set[bytes]:
    """Return the topics, groups, tags, keys, ids and words of bodies of a store, except RocketMQ's own names."""
    texts: set[str] = set()
    bodies: set[bytes] = set()
    for record in find_records(store):
        texts.update(re.split("%[A-Z]+%", record.topic) if not is_system_topic(record.topic) else ())
        for name in ("KEYS", "UNIQ_KEY", "TAGS", "PGROUP", "REAL_TOPIC", "ORIGIN_MESSAGE_ID"):
            texts.update(t for t in record.properties.get(name, "").split(" ") if not is_system_topic(t))
        bodies.update(WORD.findall(record.body), WORD.findall(decompressed(record)))
    for path in (store / "config").glob("*.json"):
        for literal in re.findall('"([^"]+)"', path.read_text("utf-8", "replace")):
            texts.update(re.sub("^%[A-Z]+%", "", name) for name in literal.split("@") if not is_system_topic(name))
    found = bodies | {t.encode("utf-8", "surrogateescape") for t in texts}
    known = b" ".join((*SYSTEM_WORDS, *PROPERTY_NAMES, *JSON_WORDS, b"commitlog compaction transactionMetrics"))
    known += b" DefaultCluster_REPLY_TOPIC"
    return {word for word in found if len(word) >= 6 and word not in known and not word.isdigit()}


def decompressed(record: Record) -> bytes:
    try:
        return decompress(record.sys_flag, record.body)
    except ValueError:
        return b""


def everything(folder: Path) -> bytes:
    """Return the names and bytes of all files."""
    found: set[bytes] = set()
    for path in folder.rglob("*"):
        found.update(TEXT.findall(os.fsencode(path.name)))
        if path.is_file():  # long runs of zeros are shortened, because searching a whole timer wheel takes a second
            found.update(TEXT.findall(path.read_bytes().replace(bytes(4096), b"\0")))
    return b"\n".join(found)


@pytest.mark.quick_rows(2)
@pytest.mark.parametrize("name", [name for name in STORES if not IN_ROCKSDB.search(name)])
def test_a_bundle_has_the_findings_of_its_store_and_none_of_its_words(name: str, tmp_path: Path) -> None:
    store = unpack(name)
    copy = unpacked(store, tmp_path)
    assert findings(copy) == findings(store)
    words = own_words(store)
    assert len(words) > 10
    content = everything(copy)
    assert [word for word in words if word in content] == []
    assert sorted(p.stat().st_size for p in (copy / "commitlog").glob("*")) == sorted(
        p.stat().st_size for p in (store / "commitlog").glob("*")
    )


@pytest.mark.quick_rows(2)
@pytest.mark.parametrize("name", SOME_CASES)
def test_a_bundle_of_a_damaged_store_is_damaged_in_the_same_places(name: str, tmp_path: Path) -> None:
    case = read_case(name)
    store = make(case, tmp_path / "original")
    words = options(case, store)
    copy = unpacked(store, tmp_path, *words)
    given = ("-c", str(tmp_path / "broker.conf")) if (tmp_path / "broker.conf").exists() else ()
    assert findings(copy, *given) == findings(store, *words)


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("position", [166_170 + 88, 180_047 + 840, 244_039 + 90])
def test_what_a_repair_concludes_from_a_checksum_stays(position: int, tmp_path: Path) -> None:
    store = copy_store(STORE, tmp_path / "original")
    flip(store / "commitlog" / f"{position // 65536 * 65536:020d}", position % 65536)
    copy = unpacked(store, tmp_path)
    before, after = (run_json("recover", str(s), exit_code=1) for s in (store, copy))
    assert [step["do"] for step in after["steps"]] == [step["do"] for step in before["steps"]] != []
    assert after["loss"]["messages"] == before["loss"]["messages"] == 0  # a single flipped bit can be repaired


def test_a_text_has_the_same_pseudonym_everywhere(tmp_path: Path) -> None:
    store = unpack(STORE)
    copy = unpacked(store, tmp_path)
    pairs = list(zip(find_records(store), find_records(copy), strict=True))
    names = {old.topic: new.topic for old, new in pairs}
    assert len(set(names.values())) == len(names) == 9
    assert names["SCHEDULE_TOPIC_XXXX"] == "SCHEDULE_TOPIC_XXXX"
    assert all(new[: old.rfind("%") + 1] == old[: old.rfind("%") + 1] for old, new in names.items())
    assert all(new.topic == names[old.topic] and new.crc_fits for old, new in pairs)
    assert all(len(old.body) == len(new.body) for old, new in pairs)
    topics = {one.topic for one in open_store(copy).consume_queues()}
    assert topics == {names[one.topic] for one in open_store(store).consume_queues()}
    config = json.loads((copy / "config" / "topics.json").read_text())["topicConfigTable"]
    assert topics <= config.keys()
    old, new = next(pair for pair in pairs if pair[0].properties.get("KEYS") and not is_system_topic(pair[0].topic))
    found = run_json("find", str(copy), new.properties["KEYS"].split(" ")[0], exit_code=0)
    assert old.position in [message["offset"] for message in found["messages"]]
    assert found["searched"] == "index"


def test_compressed_bodies_unpack(tmp_path: Path) -> None:
    copy = unpacked(unpack(STORE), tmp_path)
    compressed = [record for record in find_records(copy) if record.sys_flag & 1]
    assert len(compressed) == 125
    assert all(decompress(record.sys_flag, record.body) for record in compressed)


@pytest.mark.parametrize("size", [20, 100, 65_535, 65_546, 65_547, 131_083, 400_000])
def test_noise_in_frames_has_the_length_that_is_asked_for(size: int) -> None:
    makers = {Compression.LZ4: logs._lz4, Compression.ZSTD: logs._zstd, Compression.ZLIB: logs._zlib}
    for kind, make_noise in makers.items():
        packed = make_noise(size)
        assert packed is not None
        assert len(packed) == size
        assert size - 60 < len(decompress(1 | kind.value << 8, packed)) < size


def test_holes_stay_holes(tmp_path: Path) -> None:
    copy = unpacked(unpack(STORE), tmp_path)
    wheel = (copy / "timerwheel").stat()
    assert wheel.st_size == (unpack(STORE) / "timerwheel").stat().st_size > 30_000_000
    assert wheel.st_blocks * 512 < 200_000
    with tarfile.open(tmp_path / "bundle.tar.gz") as archive:  # tarfile also reads the format
        [member] = [m for m in archive.getmembers() if m.name == "store/timerwheel"]
        assert member.size == wheel.st_size


def test_two_bundles_have_other_pseudonyms(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    first, second = (unpacked(unpack(STORE), folder) for folder in folders)
    assert {r.topic for r in find_records(first)} & {r.topic for r in find_records(second)} <= {
        r.topic for r in find_records(unpack(STORE)) if is_system_topic(r.topic)
    }


def test_around_an_offset_are_three_files(tmp_path: Path) -> None:
    store = copy_store(STORE, tmp_path / "original")
    flip(store / "commitlog" / f"{131072:020d}", 180_887 - 131_072 + 100)
    copy = unpacked(store, tmp_path, "--around", "180887")
    assert [p.name for p in sorted((copy / "commitlog").iterdir())] == [f"{n * 65536:020d}" for n in (1, 2, 3)]
    assert [p.name for p in sorted(copy.iterdir()) if p.is_file()] == []
    assert findings(copy / "commitlog") == {("CL-BODY-CRC", 180_047, 1279): 1}


def test_a_topic_has_its_queues(tmp_path: Path) -> None:
    copy = unpacked(unpack(STORE), tmp_path, "--topic", "Order_11")
    [queues] = (copy / "consumequeue").iterdir()
    assert queues.name != "Order_11"
    assert len(queues.name) == len("Order_11")
    assert sorted(p.name for p in queues.iterdir()) == ["0", "1", "2", "3"]
    assert not (copy / "config").exists() or not list((copy / "config").iterdir())


def test_journals_and_databases_are_left_out_and_named(tmp_path: Path) -> None:
    store = copy_store(STORE, tmp_path / "original")
    flip(store / "commitlog" / f"{131072:020d}", 180_887 - 131_072 + 100)
    run("recover", str(store), "--apply")
    answer = run_json("bundle", str(store), "-o", str(tmp_path / "x.tar.gz"), exit_code=0)
    assert [(one["files"], one["names"]) for one in answer["left_out"]] == [
        (1, ["store/.rmqstore"]),
        (1, ["store/rocksdbstore"]),
    ]


def test_wrong_usage(tmp_path: Path) -> None:
    store = str(unpack(STORE))
    out = ("-o", str(tmp_path / "x.tar.gz"))
    assert run("bundle", store, *out, "--whole", "--topic", "Order_11").exit_code == 2
    assert run("bundle", store, *out, "--topic", "Ordr_11").exit_code == 2
    assert run("bundle", store, *out, "--around", "99999999").exit_code == 2
    assert run("bundle", store, "-o", f"{store}/x.tar.gz").exit_code == 2
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "x.tar.gz").touch()
    assert run("bundle", store, *out).exit_code == 5


def test_damaged_names_keep_their_damage() -> None:
    names = Pseudonyms(["Order"])
    order, damaged = names.topic(b"Order"), names.topic(b"Orfer")
    assert [i for i in range(5) if order[i] != damaged[i]] == [2]
    assert order[2] ^ damaged[2] == ord("d") ^ ord("f")
    broken = names.word(b"key\x07\xff")
    assert broken[3:] == b"\x07\xff"
    assert broken[:3] != b"key"


def test_broken_json_stays_broken_in_the_same_place() -> None:
    text = b'{"topicConfigTable":{"Order":{"perm":6,"topicName":"Ord'
    replaced = json_text(text, Pseudonyms(["Order"]))
    assert len(replaced) == len(text)
    assert replaced.startswith(b'{"topicConfigTable":{"')
    assert b"Ord" not in replaced


@pytest.mark.parametrize("block", [64, 1 << 10])
def test_index_entries_follow_messages_that_are_longer_than_a_block(
    block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = copy_store(STORE, tmp_path, rename="original")
    monkeypatch.setattr(bundle_index, "_BLOCK", block)
    copy = unpacked(store, tmp_path, "--whole")
    assert findings(copy) == findings(store)


def test_a_large_piece_is_read_in_blocks_without_copying_its_rest() -> None:
    piece, left = os.urandom(1 << 20) * 64, time.process_time()
    reader = _IteratorFile([piece[:1000], b"", piece[1000:]])
    blocks = iter(lambda: reader.read(1 << 14), b"")
    assert b"".join(blocks) == piece
    assert time.process_time() - left < 10  # with copies, it would take 1,000 times as long


def test_a_key_has_the_hash_of_its_pseudonym(tmp_path: Path) -> None:
    store = copy_store(STORE, tmp_path, rename="original")
    copy = unpacked(store, tmp_path, "--whole")
    renamed = {r.position: r for r in find_records(copy)}
    old = next(r for r in find_records(store) if len(r.properties.get("KEYS", "").split()) == 1)
    new = renamed[old.position]
    assert new.properties["KEYS"] != old.properties["KEYS"]
    found = run_json("find", str(copy), new.properties["KEYS"], exit_code=0)
    assert old.position in [message["offset"] for message in found["messages"]]
    assert found["searched"] == "index"


@pytest.mark.parametrize("name", ["5.4.0-clean", "5.1.4-dledger-mixed"])
def test_a_store_that_is_not_on_this_machine_is_bundled(name: str, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    (store / "commitlog" / "notes.txt").write_bytes(b"a stray text")
    made, sizes = [], []
    memory = MemoryFiles(store)
    for files in (LOCAL, memory):
        if files is memory:
            shutil.rmtree(store)
        with (tmp_path / "bundle.tar.gz").open("w+b") as target:
            made.append(make_bundle(open_store(store, None, files), Scope(), target).to_json())
            target.seek(0)
            with tarfile.open(fileobj=target) as tar:
                sizes.append(sorted((member.type, member.size) for member in tar if member.name != "manifest.json"))
    assert made[0] == made[1]
    assert sizes[0] == sizes[1]
