"""Random damage to a node of a real group, healed from other nodes: the original bytes are restored.

    one to eight damages, some in the replica too → recover --replica --apply → verify → real store reads → undo

RMQSTORE_ROUNDS is the number of rounds for each node (2). A failure does not end the others, and prints the command
that repeats it.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from rmqstore.formats import properties
from rmqstore.formats.message import Message, is_filler, parse_message
from tests import damage
from tests.command import run, run_json
from tests.real_broker.oracle_server import Cell
from tests.real_broker.random_damage import damage_by_failures
from tests.real_broker.reading import Sounds, messages, not_the_same, sound
from tests.repair.replica.pairs import damage_place, log_files
from tests.repair.salvaging import Row, rows
from tests.seeds import NAME as SEED_NAME
from tests.seeds import seeds
from tests.stores import VERSIONS, copy_store, meta, unpack, write_broker_conf
from tests.untouched import content, snapshot

_NOTHING = ("nothing can be taken from the replicas", "has no damage that a replica can repair")
DLEDGER = ("5.4.0-dledger3-n0", "5.4.0-dledger3-n1", "5.4.0-dledger3-n2")
CLASSIC = ("5.4.0-master", "5.4.0-slave")
"""Without epochs and terms: after the last equal record, the index of the damaged store is the only proof."""
GROUPS = (CLASSIC, ("5.5.1-master", "5.5.1-slave"), ("5.4.0-controller-master", "5.4.0-controller-slave"), DLEDGER)
NODES = {node: tuple(other for other in group if other != node) for group in GROUPS for node in group}


@dataclass(slots=True)
class Node:
    """A damaged copy of a fixture; `said` describes the damage."""

    name: str
    path: Path
    said: list[str]


@pytest.mark.slow
@pytest.mark.parametrize("name", NODES)
def test_a_healed_node_has_the_bytes_of_its_group(name: str, tmp_path: Path, sounds: Sounds) -> None:
    given = seeds(int(os.environ.get("RMQSTORE_ROUNDS", "2")))
    failures, healed = [], 0
    for seed in given:
        folder = tmp_path / str(seed)
        try:
            healed += one_round(name, seed, folder, sounds)
        except Exception:  # noqa: BLE001  # a failed round does not end the others
            failures.append(f"{name} with random.Random({seed})\n{traceback.format_exc()}")
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{name}: {len(given) - len(failures)} of {len(given)} rounds agree, {healed} messages came back")
    again = f"{SEED_NAME}={os.environ.get(SEED_NAME, '')}"
    assert not failures, "\n\n".join([f"{len(failures)} of {len(given)} rounds fail ({again})", *failures])


def one_round(name: str, seed: int, folder: Path, sounds: Sounds) -> int:
    """Damage, heal, compare and undo; return the number of messages taken from the replicas."""
    rng = random.Random(f"{name} {seed}")
    store = Node(name, copy_store(name, folder, rename="store"), [])
    break_log(store, rng, rng.choice((1, 2, 4, 8)))
    others = rng.sample(NODES[name], rng.randint(1, len(NODES[name])))
    replicas = [Node(other, copy_store(other, folder, rename=f"{n}-{other}"), []) for n, other in enumerate(others)]
    if rng.random() < 0.4:
        break_log(replicas[0], rng, rng.choice((1, 2)))
    if rng.random() < 0.4:
        store.said += damage_by_failures(store.path, seed) if rng.random() < 0.5 else lose_the_end(store.path)
    said = [store.said, *((replica.name, replica.said) for replica in replicas)]
    hit = sound(name).hit_in(store.path)
    unseen = hit & {row.offset for row in rows(store.path)}  # such as a bit of BORNHOST, which no CRC covers
    back = available(hit - unseen, replicas)
    back = frozenset(at for at in back if at < proved_until(store, hit, replicas))
    if any(sound(r.name).hit_in(r.path) & {row.offset for row in rows(r.path)} for r in replicas):
        back = frozenset()  # no CRC covers the difference, and nothing is taken if replicas disagree
    blanks = lost_blanks(store, replicas)
    if hit == unseen:
        return 0
    before = content(store.path)
    theirs = [snapshot(replica.path) for replica in replicas]
    role = () if rng.random() < 0.5 else ("--role", "single")
    conf = ("-c", str(write_broker_conf(name, store.path)))
    words = [*conf, *role, *(word for replica in replicas for word in ("--replica", str(replica.path)))]
    done = healed(store.path, words)
    if done is None:
        assert not back, said
        return 0
    assert [snapshot(replica.path) for replica in replicas] == theirs, said
    end = rows(store.path)[-1].offset
    left = sound(name).hit_in(store.path) | {at for at in sound(name).records if at > end}
    gone = hit - unseen - back | blanks
    if done["strategy"] == "truncate" and gone:  # a node of a group receives the rest from its master again
        back = frozenset(at for at in back if at < min(gone))
    assert not left & back, (said, sorted(left & back))
    behind = sum(row.offset not in sound(name).records for replica in replicas for row in rows(replica.path))
    # restored messages that are truncated again count as lost
    lost = len(left) + (behind if done["strategy"] == "truncate" else 0)
    assert done["loss"]["messages"] <= lost, (said, done["loss"], left)  # type: ignore[index]
    if not left:
        assert same_up_to_its_end(store.path, name), said
    listed = {row["offset"] for row in done["facts"].get("damaged", [])}  # type: ignore[attr-defined]
    report = run("verify", str(store.path), *conf, "--json")
    assert report.exit_code == 0 or left or listed, (said, report.output)
    assert {row.offset for row in rows(store.path) if has_other_keys(row, (name, *others))} - unseen <= listed, said
    starts = json.loads(report.output)["broker"]["starts"]
    assert starts or left, said  # only a file missing in all copies prevents the start
    compare_real(name, seed, store.path, replicas, left | listed, sounds, starts=starts)
    run_json("undo", str(done["journal"]), exit_code=0)
    assert content(store.path) == before, said
    return int(done["facts"]["restored"]["messages"])  # type: ignore[index]


def break_log(node: Node, rng: random.Random, count: int) -> None:
    node.said += [said for _ in range(count) if (said := damage_place(rng, rows(node.path)))]


def lose_the_end(store: Path) -> list[str]:
    """Destroy the last records; queues and index still point to them."""
    found = rows(store)
    path = found[-1].path
    first = next(row for row in found if row.path == path)
    if path == found[0].path:
        return []
    damage.zero(path, first.at - first.body_offset, path.stat().st_size - first.at + first.body_offset)
    return [f"{path.name} is empty"]


def same_up_to_its_end(store: Path, name: str) -> bool:
    """Return whether the log equals the undamaged one up to its end; a replica may have more records after it."""
    now, found = log_files(store), rows(unpack(name))
    end = found[-1]
    for file, raw in log_files(unpack(name)).items():
        stop = end.stop if file == end.path.name else len(raw) if file < end.path.name else 0
        here = [row for row in found if row.path.name == file]
        if without_unread(now.get(file, b""), here)[:stop] != without_unread(raw, here)[:stop]:
            return False
    return True


def without_unread(raw: bytes, found: Sequence[Row]) -> bytes:
    """Return a file without the fields of DLedger entries that no broker uses: channel, chainCrc, bodyCrc."""
    out = bytearray(raw)
    for row in found:
        if row.body_offset:
            out[row.at - 16 : row.at - 4] = bytes(12)
    return bytes(out)


def available(wanted: frozenset[int], replicas: Sequence[Node]) -> frozenset[int]:
    """Return the offsets of records that are undamaged in some replica."""
    out: set[int] = set()
    for replica in replicas:
        whole = sound(replica.name)
        out |= (whole.records.keys() & wanted) - whole.hit_in(replica.path)
    return frozenset(out)


def lost_blanks(store: Node, replicas: Sequence[Node]) -> frozenset[int]:
    """Return the offsets of BLANKs that are damaged in all copies."""
    whole, copies = log_files(unpack(store.name)), [log_files(node.path) for node in (store, *replicas)]
    ends = {row.path.name: row.stop for row in rows(unpack(store.name))}
    return frozenset(
        int(file) + at
        for file, at in ends.items()
        if file != max(ends)
        and not any(copy.get(file, b"")[at : at + 8] == whole[file][at : at + 8] for copy in copies)
    )


def has_other_keys(row: Row, group: Sequence[str]) -> bool:
    """Return whether keys and tags of a record differ from those in all undamaged stores of its group."""
    found = [sound(name).records[row.offset] for name in group if row.offset in sound(name).records]
    known = [message for message, _ in map(parse_message, found) if message is not None]
    return bool(known) and not is_filler(row.message) and all(keys_of(m) != keys_of(row.message) for m in known)


def keys_of(message: Message) -> list[str | None]:
    found = properties.parse_properties(message.properties)
    return [found.get(name) for name in (properties.UNIQ_KEY, properties.KEYS, properties.TAGS)]


def proved_until(store: Node, hit: frozenset[int], replicas: Sequence[Node]) -> int:
    """Return the offset up to which the remaining data proves that the replicas' records are of the same log."""
    whole = {path.name: path.read_bytes() for path in (unpack(store.name) / "index").iterdir()}
    now = {path.name: path.read_bytes() for path in (store.path / "index").iterdir()}
    if store.name not in CLASSIC or now == whole:
        return 1 << 62
    theirs = {row.offset for replica in replicas for row in rows(replica.path)}
    common = theirs & {row.offset for row in rows(store.path)} - hit
    return max(common, default=0)


def healed(store: Path, words: Sequence[str]) -> dict[str, object] | None:
    """Run recover, and return its output; None if the replicas contain nothing for this store."""
    planned = run("recover", str(store), *words, "--json")
    if planned.exit_code == 5 and any(reason in planned.stderr for reason in _NOTHING):
        return None
    assert planned.exit_code == 1, planned.output
    plan = json.loads(planned.stdout)
    force = ("--force", plan["digest"]) if plan["brakes"] else ()
    done = run("recover", str(store), *words, "--apply", "--json", *force)
    assert done.exit_code in (0, 1), done.output
    answer = json.loads(done.stdout)
    assert isinstance(answer, dict)
    return answer


def compare_real(
    name: str, seed: int, store: Path, replicas: Sequence[Node], left: frozenset[int], sounds: Sounds, *, starts: bool
) -> None:
    """Check that the real store reads the same from the healed store as from the undamaged one, except `left`.

    `left`: the records that are still damaged, and those that the plan lists as damaged in the replica, too. `starts`:
    whether a broker starts, according to `verify`.
    """
    cell: Cell = VERSIONS[seed % len(VERSIONS)], bool(seed // len(VERSIONS) % 2)
    settings = meta(name).oracle_args
    now = sounds.servers.read(store, settings, [cell])[cell]
    was = sounds.read(name, settings, [cell])[cell]
    assert (now.load, now.crash) == (was.load and starts, was.crash)
    assert messages(was)
    if not starts:
        return
    others = not_the_same(was, now)
    if name in DLEDGER and cell[1]:
        # with `abort`, such a start truncates the queues before the log's end
        # (DLedgerCommitLog#dledgerRecoverAbnormally)
        others = {place: at for place, at in others.items() if place in messages(now)}
    assert set(others.values()) <= left
    new = {place: m for place, m in messages(now).items() if place not in messages(was)}
    more = {place: m.digest for place, m in new.items() if m.commitlog_offset not in left}
    if more:  # the end of the log was restored, with the replicas' records after it
        theirs = [
            messages(sounds.read(replica.name, meta(replica.name).oracle_args, [cell])[cell]) for replica in replicas
        ]
        assert all(digest in {read[place].digest for read in theirs if place in read} for place, digest in more.items())
