"""`recover --replica`, on the command line, with a replica that has diverged from the store at some offset.

There is a store and a replica for each kind of group. For classic HA and DLedger, the tests write the branch: it has
the messages of the fixture up to the fork, and then others, like those of a second master or leader. For the
controller group, it was written by real brokers.
"""

from __future__ import annotations

import functools
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from rmqstore.append.dledger import DLedgerLog
from rmqstore.append.encoder import NewMessage
from rmqstore.append.message_store import MessageStore
from rmqstore.files.store import open_store
from rmqstore.formats.dledger import BODY_OFFSET
from tests import damage
from tests.append.rewriting import again, options_like
from tests.command import run, run_json
from tests.repair.replica.pairs import log_files
from tests.repair.salvaging import Row, rows
from tests.stores import clone, meta, unpack
from tests.untouched import snapshot

FORK = 250
_SKIPPED = 2


@dataclass(frozen=True, slots=True)
class Diverged:
    """Two nodes with equal records before record number `fork`, which is at `offset` in both logs."""

    store: Path
    replica: Path
    found: list[Row]
    fork: int
    offset: int
    role: str

    def break_log(self, *numbers: int) -> None:
        """Damage records of the store, given by their distance from the fork."""
        for number in numbers:
            row = self.found[self.fork + number]
            damage.garble(row.path, row.at - row.body_offset, row.body_offset + 60)

    def start(self, number: int) -> int:
        row = self.found[self.fork + number]
        return row.offset - row.body_offset

    def words(self) -> tuple[str, ...]:
        return "recover", str(self.store), "--replica", str(self.replica)

    @property
    def named(self) -> str:
        return f"{self.replica} diverges from this store at offset {self.offset:,}"


@pytest.fixture(scope="module")
def branches(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A function: `branches(name)` returns the branch of a fixture, which is written once."""
    return functools.cache(lambda name: branch(name, tmp_path_factory.mktemp("branch") / "branch"))


def branch(name: str, target: Path) -> Path:
    """Write the messages of a fixture up to the fork, then others (in DLedger, of the next term)."""
    store = open_store(unpack(name))
    group = store.dledger
    options = options_like(unpack(name), dict(meta(name).settings), meta(name).version)
    if group is not None:
        options = replace(options, dledger=group.self_id, term=1)
    found = [row.message for row in rows(unpack(name))]
    with MessageStore.create(target, options) as writer:
        for number, message in enumerate(found):
            if number == FORK and isinstance(writer.log, DLedgerLog):
                writer.log.store.member.term += 1
            if not FORK <= number < FORK + _SKIPPED:
                writer.put(again(message) if number < FORK else another(again(message)))
    (target / "config").mkdir(exist_ok=True)
    shutil.copy(unpack(name) / "config" / "topics.json", target / "config")
    return target


def another(message: NewMessage) -> NewMessage:
    """Return a message of the same size, sent by another client one millisecond later."""
    given = re.sub(rb"(UNIQ_KEY\x01)..", rb"\1ZZ", message.properties)
    return replace(message, store_timestamp=message.store_timestamp + 1, properties=given)


def pair(tmp_path: Path, store: Path, replica: Path, role: str) -> Diverged:
    own, theirs = rows(store), rows(replica)
    fork = next(n for n, row in enumerate(own) if row.message != theirs[n].message)
    body_offset = own[fork].body_offset
    assert own[fork].offset == theirs[fork].offset
    assert body_offset in (0, BODY_OFFSET)
    assert not {row.offset for row in own[fork + 1 :]} <= {row.offset for row in theirs[fork + 1 :]}
    copy = tmp_path / "damaged"
    clone(store, copy)
    return Diverged(copy, replica, rows(copy), fork, own[fork].offset - body_offset, role)


Branches = Callable[[str], Path]
Nodes = Callable[[Branches], tuple[Path, Path, str]]


def classic(branches: Branches) -> tuple[Path, Path, str]:
    return unpack("5.4.0-master"), branches("5.4.0-master"), "master"


def dledger(branches: Branches) -> tuple[Path, Path, str]:
    return unpack("5.4.0-dledger3-n0"), branches("5.4.0-dledger3-n0"), "dledger-group"


def controller(_: Branches) -> tuple[Path, Path, str]:
    return unpack("5.4.0-controller-master"), unpack("5.4.0-controller-diverged"), "controller"


@pytest.fixture(params=[classic, controller, dledger], ids=lambda make: make.__name__)
def nodes(request: pytest.FixtureRequest, branches: Branches, tmp_path: Path) -> tuple[Path, Path, str]:
    make: Nodes = request.param
    one, other, role = make(branches)
    copy = tmp_path / "branch"
    clone(other, copy)
    return one, copy, role


@pytest.fixture(params=["former", "new"])
def diverged(request: pytest.FixtureRequest, nodes: tuple[Path, Path, str], tmp_path: Path) -> Diverged:
    """Both directions: one or the other node is damaged."""
    one, other, role = nodes
    return pair(tmp_path, other, one, role) if request.param == "former" else pair(tmp_path, one, other, role)


def refused(diverged: Diverged, *words: str, told: str = "") -> str:
    """Check that a repair is refused, names the fork (or tells `told`) and changes nothing; return what it says."""
    before = snapshot(diverged.store)
    answer = run(*diverged.words(), *words, "--apply")
    assert (answer.exit_code, (told or diverged.named) in answer.stderr) == (5, True), answer.output
    assert snapshot(diverged.store) == before
    return answer.stderr


@pytest.mark.quick_rows(2)
def test_bytes_come_from_before_the_fork_only(diverged: Diverged) -> None:
    whole = log_files(diverged.store)
    diverged.break_log(-20, 12)
    words = (*diverged.words(), "--role", "single")
    planned = run_json(*words, exit_code=1)
    restored = planned["facts"]["restored"]  # type: ignore[index]
    assert [place["offset"] for place in restored["places"]] == [diverged.start(-20)]
    assert restored["replicas"][0]["diverges_at"] == diverged.offset
    assert any(diverged.named in note for note in planned["notes"])  # type: ignore[attr-defined]
    assert planned["loss"]["messages"] == 1  # type: ignore[index]
    force = ("--force", str(planned["digest"])) if planned["brakes"] else ()
    run_json(*words, "--apply", *force, exit_code=0)
    lost = diverged.found[diverged.fork + 12]
    healed = log_files(diverged.store)
    for name, content in whole.items():
        low, high = (lost.at - lost.body_offset, lost.stop) if name == lost.path.name else (0, 0)
        assert healed[name][:low] + healed[name][high:] == content[:low] + content[high:]


@pytest.mark.quick_rows(2)
def test_the_divergence_is_named_where_all_damage_is_far_before_it(diverged: Diverged) -> None:
    whole = log_files(diverged.store)
    diverged.break_log(-90)
    answer = run(*diverged.words(), "--role", "single", "--apply")
    assert answer.exit_code == 0, answer.output
    assert diverged.named in answer.stdout
    assert log_files(diverged.store) == whole


@pytest.mark.quick_rows(6)
@pytest.mark.parametrize("extend", [(), ("--extend",)], ids=["damage", "extend"])
@pytest.mark.parametrize("number", [1, 12])
def test_damage_after_the_fork_alone_is_refused(number: int, extend: tuple[str, ...], diverged: Diverged) -> None:
    diverged.break_log(number)
    refused(diverged, "--role", diverged.role, *extend)


def test_damage_at_the_fork_is_refused(diverged: Diverged) -> None:
    """The refusal names the fork if there are epochs, and otherwise the first different record after it."""
    diverged.break_log(0)
    text = refused(diverged, "--role", diverged.role, told="diverges from this store at offset")
    assert (f"offset {diverged.offset:,} of" in text) == (diverged.role == "controller")


@pytest.mark.quick_rows(4)
def test_a_sound_store_is_not_extended_from_another_branch(diverged: Diverged) -> None:
    refused(diverged, "--extend", "--role", diverged.role)


def lose_the_end(diverged: Diverged, number: int) -> None:
    for row in diverged.found[diverged.fork + number :]:
        damage.garble(row.path, row.at - row.body_offset, row.body_offset + row.size)


@pytest.mark.quick_rows(4)
def test_a_lost_end_is_not_restored_from_another_branch(diverged: Diverged) -> None:
    """No records remain after the fork, but queues, index, epochs and DLedger's index refer to them."""
    lose_the_end(diverged, 0)
    refused(diverged, "--role", "single")


def forget_the_end(diverged: Diverged) -> None:
    """Remove everything except the log that distinguishes the branches after the fork."""
    lose_the_end(diverged, 0)
    for name in ("index", "consumequeue"):
        shutil.rmtree(diverged.store / name)
    for name in ("epochFileCheckpoint", "epochFileCheckpoint.bak"):
        (diverged.store / name).unlink(missing_ok=True)


@pytest.mark.parametrize("nodes", [classic, controller], indirect=True)
def test_a_lost_end_without_any_witness_is_not_restored(diverged: Diverged) -> None:
    forget_the_end(diverged)
    words = f"the messages of {diverged.replica} after offset {diverged.offset:,} are those of this store"
    assert "--extend" in refused(diverged, "--role", "single", told=f"nothing proves that {words}")


@pytest.mark.quick_rows(2)
@pytest.mark.parametrize("nodes", [classic, controller], indirect=True)
def test_with_extend_the_plan_says_that_nothing_was_left_to_compare(diverged: Diverged) -> None:
    forget_the_end(diverged)
    planned = run_json(*diverged.words(), "--role", "single", "--extend", exit_code=1)
    assert any(
        "only the equal records before it show" in note and f"{diverged.offset:,}" in note
        for note in planned["notes"]  # type: ignore[attr-defined]
    )


def test_the_rest_of_a_message_proves_a_lost_end(tmp_path: Path) -> None:
    """Its body is damaged, but its unique key is at the same place as in the replica."""
    store = tmp_path / "store"
    clone(unpack("5.4.0-master"), store)
    for name in ("index", "consumequeue"):
        shutil.rmtree(store / name)
    whole, last = log_files(store), rows(store)[-1]
    damage.garble(last.path, last.at + 60, 40)
    planned = run_json("recover", str(store), "--replica", str(unpack("5.4.0-master")), "--role", "single", exit_code=1)
    (place,) = planned["facts"]["restored"]["places"]  # type: ignore[index]
    assert (place["offset"], place["messages"]) == (last.offset, 1)
    run_json(
        *("recover", str(store), "--replica", str(unpack("5.4.0-master")), "--role", "single", "--apply"),
        *(("--force", str(planned["digest"])) if planned["brakes"] else ()),
        exit_code=0,
    )
    assert log_files(store) == whole


@pytest.mark.quick_rows(2)
def test_the_common_part_of_a_lost_end_is_restored(diverged: Diverged) -> None:
    lose_the_end(diverged, -5)
    planned = run_json(*diverged.words(), "--role", "single", exit_code=1)
    restored = planned["facts"]["restored"]  # type: ignore[index]
    assert restored["replicas"][0]["diverges_at"] == diverged.offset
    assert restored["messages"] == 5
    (place,) = restored["places"]
    assert (place["offset"], place["offset"] + place["length"]) == (diverged.start(-5), diverged.offset)
