"""Random damage: only messages whose own bytes were damaged are lost.

    one to three kinds of damage → recover --apply → verify has no error (see `_unexpected`) → real store reads → undo

`test_fresh_damage` damages any file of every store that a broker wrote, with new seeds in every run, and also compares
the forecast with the real store. RMQSTORE_ROUNDS is the number of rounds for each store (1). A failure does not end the
others, and prints the command that repeats it.

The undamaged store shows which records were hit. Messages that the real store reads differently must be among them, and
recover must count exactly the lost messages as lost. A hit message that is read back byte for byte was repaired.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from rmqstore.brokers.forecast import StartOptions
from rmqstore.brokers.simulate import simulate_start
from rmqstore.checks.problems import codes
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.config import only_in_backup
from rmqstore.files.files import LOCAL
from rmqstore.files.store import open_store
from rmqstore.formats import dledger
from rmqstore.formats.consumequeue import QueueName
from rmqstore.formats.properties import is_lmq
from tests import damage
from tests.command import run, run_json
from tests.forecast.answers import HEAP
from tests.real_broker.oracle import OracleResult
from tests.real_broker.oracle_server import Cell
from tests.real_broker.random_damage import damage_any_file, damage_by_failures, damage_bytes
from tests.real_broker.reading import (
    Place,
    Sounds,
    countable,
    messages,
    not_the_same,
    sound,
    unreadable,
    versions_reading,
)
from tests.real_broker.starts import compare_forecast
from tests.repair.salvaging import rows
from tests.seeds import NAME as SEED_NAME
from tests.seeds import seeds
from tests.stores import BROKER_STORES, VERSIONS, clone, copy_store, meta, unpack, write_broker_conf
from tests.untouched import Entry, content

SEEDS = seeds(12)
MORE_SEEDS = seeds(4)
STORES = (
    *(f"{version}-{kind}" for version in VERSIONS for kind in ("clean", "killed", "dledger", "dledger-killed")),
    *("5.1.4-formats", "5.4.0-formats", "4.9.7-ipv6", "5.4.0-dledger-mixed"),
)
QUICK = {
    "4.9.7-killed": (1,),
    "5.1.4-killed": (1, 16),
    "4.9.7-dledger": (33,),
    "5.1.4-dledger": (47,),
    "5.4.0-formats": (24, 30),
    "5.4.0-clean": (34, 48),
    "5.4.0-dledger": (35,),
    "5.4.0-dledger-mixed": (16, 32, 35),
}
"""Swapped files (also the last one), flips (one in a host's port), zeroed pages, cut and removed files."""

# decisions that recover leaves to the operator: more than a tenth of the log is damaged, no good record, or
# no queue file of a right length
_DECISIONS = re.compile(
    r"\d+ % of (commitlog|dledger) is damaged .*|.* has no good record"
    r"|the consume queue files do not (show|agree about) their size[;:] .*"
)
_NO_REPAIR = ("--accept-shift accepts that", "nothing says which of them the broker reads")

DISAGREED = (
    ("5.4.0-timer-rocksdb-pending", 3020313134),
    ("5.5.1-dledger-mixed", 1725360895),
    ("5.5.1-formats", 202450180),
    ("5.5.1-pop-kv", 3614485113),
    ("5.5.1-slave", 1083864993),
    ("5.5.1-timer-rocksdb-pending", 642011880),
)
"""Seeds of fresh damage with which the tool and the real broker once disagreed."""

_DIGITS = 20  # length of the name of a queue or log file
_STAYING = (codes.CL_CONTRADICTED, codes.CQ_WRONG_TAG)


@dataclass(frozen=True, slots=True)
class Round:
    """One damaged and repaired store.

    `said` describes the damage, `hit` are the records that lost a byte, `other` those of them that recover did not
    restore byte for byte, `countable` the messages that still have their unit; `decided`: the plan needed --force.
    """

    store: Path
    said: Sequence[str]
    hit: frozenset[int]
    other: frozenset[int]
    countable: frozenset[Place]
    before: Mapping[str, Entry]
    decided: bool
    journal: str | None
    loss: int
    cell: Cell
    question: int


class NotRepaired(Exception):
    """`recover` refused the repair, because nothing shows the place of a lost message."""


@pytest.mark.slow
@pytest.mark.parametrize("name", STORES)
def test_lost_is_what_was_hit(name: str, tmp_path: Path, sounds: Sounds) -> None:
    rounds = [_begin(name, seed, tmp_path, sounds) for seed in SEEDS]
    for one in rounds:
        _end(name, one, sounds)
    assert sum(one.decided for one in rounds) * 2 <= len(rounds), "most plans needed a decision"


@pytest.mark.slow
@pytest.mark.parametrize("name", STORES)
def test_lost_is_what_was_hit_by_power_cuts_disks_and_backups(name: str, tmp_path: Path, sounds: Sounds) -> None:
    def damaged_by(seed: int) -> Callable[[Path], Sequence[str]]:
        return lambda store: damage_by_failures(store, seed)

    for one in [_begin(name, seed, tmp_path, sounds, damaged_by(seed)) for seed in MORE_SEEDS]:
        _end(name, one, sounds)


@pytest.mark.slow
@pytest.mark.parametrize("name", BROKER_STORES)
def test_fresh_damage(name: str, tmp_path: Path, sounds: Sounds) -> None:
    given = os.environ.get(SEED_NAME)
    first = int(given) if given else random.SystemRandom().randrange(1 << 32)
    rounds = range(first, first + int(os.environ.get("RMQSTORE_ROUNDS", "1")))
    failures, repaired = [], 0
    for seed in rounds:
        folder = tmp_path / str(seed)
        try:
            repaired += fresh_round(name, seed, folder, sounds)
        except Exception:  # noqa: BLE001  # a failed round does not end the others
            version, abort = _cell(name, seed)
            again = f"RMQSTORE_SEED={seed} RMQSTORE_ROUNDS=1 pytest '{__file__}::test_fresh_damage[{name}]'"
            lines = damage_any_file(copy_store(name, folder / "again"), seed)
            failures.append(f"{again}\n{version}, abort={abort}, {lines}\n{traceback.format_exc()}")
        shutil.rmtree(folder, ignore_errors=True)
    agree = f"{len(rounds) - len(failures)} of {len(rounds)} rounds agree, {repaired} of them with a repair"
    print(f"{name}: {agree}, seeds {rounds[0]} to {rounds[-1]}")
    assert not failures, "\n\n".join([f"{len(failures)} of {len(rounds)} rounds fail", *failures])


@pytest.mark.slow
@pytest.mark.parametrize(("name", "seed"), DISAGREED)
def test_damage_that_once_disagreed(name: str, seed: int, tmp_path: Path, sounds: Sounds) -> None:
    assert fresh_round(name, seed, tmp_path, sounds)


def fresh_round(name: str, seed: int, folder: Path, sounds: Sounds) -> bool:
    """Damage any file, and check the forecast, the repair, its loss and the undo.

    Return False if the damage has no repair, so that only the forecast was compared.
    """
    version, abort = cell = _cell(name, seed)
    changes: list[str] = []

    def break_it(store: Path) -> Sequence[str]:
        changes[:] = damage_any_file(store, seed)
        (store / "abort").unlink(missing_ok=True)
        if abort:
            (store / "abort").touch()
        settings = meta(name).oracle_args
        asked = store
        if only_in_backup(LOCAL, store):  # the oracle reads no .bak, but brokers do (ConfigManager#load)
            asked = store.with_name("joined")
            clone(store, asked)
            shutil.copy2(asked / "config" / "topics.json.bak", asked / "config" / "topics.json")
        question = sounds.servers.of(version).ask(asked, settings, abort=abort)
        real = sounds.servers.of(version).answer(question)
        forecast = compare_forecast(name, store, version, real)
        if not forecast.consume_queues_simulated:  # in RocksDB
            gone = messages(sounds.read(name, settings, [cell])[cell]).keys() - messages(real).keys()
            assert not gone or _says_more_than_clean(store), f"{version} abort={abort} of {changes} loses {gone}"
        changes.extend(_as_operator(name, store))
        return changes

    try:
        one = _begin(name, seed, folder, sounds, break_it, configured=random.Random(seed).random() < 0.5)
    except NotRepaired:
        return False
    assert one.cell == cell
    _end(name, one, sounds)
    return True


@pytest.mark.quick_rows(2)
@pytest.mark.parametrize("name", QUICK)
def test_lost_is_what_was_hit_in_a_few_rounds(name: str, tmp_path: Path, sounds: Sounds) -> None:
    for one in [_begin(name, seed, tmp_path, sounds) for seed in QUICK[name]]:
        _end(name, one, sounds)


@pytest.mark.parametrize("version", [*(pytest.param(v, marks=pytest.mark.slow) for v in VERSIONS[:-1]), VERSIONS[-1]])
def test_what_is_lost_between_the_two_logs_is_filled(version: str, tmp_path: Path, sounds: Sounds) -> None:
    """Damage at the border between a plain commitlog and DLedger, whose entries continue after it.

    The commitlog's last file is lost or zeroed; DLedger's first file is lost, also with DLedger's index; or both files.
    """
    name = f"{version}-dledger-mixed"

    def remove(store: Path) -> list[str]:
        path = max((store / "commitlog").iterdir())
        path.unlink()
        return [f"remove {path.name}"]

    def zero(store: Path) -> list[str]:
        path = max((store / "commitlog").iterdir())
        damage.zero(path, 0, path.stat().st_size)
        return [f"zero {path.name}"]

    def first(store: Path) -> list[str]:
        path = min((store / "dledger-n0" / "data").iterdir())
        path.unlink()
        return [f"remove DLedger's {path.name}"]

    def first_and_index(store: Path) -> list[str]:
        shutil.rmtree(store / "dledger-n0" / "index")
        return [*first(store), "and its index"]

    def both(store: Path) -> list[str]:
        return [*first(store), *remove(store)]

    for number, break_it in enumerate((remove, zero, first, first_and_index, both)):
        seed = VERSIONS.index(version) + 3 * number  # the version's own classes, without and with `abort`
        one = _begin(name, seed, tmp_path / break_it.__name__, sounds, break_it)
        assert one.loss > 5
        assert not one.decided
        _end(name, one, sounds)


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("version", VERSIONS[1:])
def test_light_queues_are_read_where_several_queues_miss_their_messages(
    version: str, tmp_path: Path, sounds: Sounds
) -> None:
    """A file of the log is lost, and so are all queue files of its messages that are also in light queues."""

    def break_it(store: Path) -> list[str]:
        shutil.rmtree(store / "consumequeue" / "Order_11")
        fanned = [row for row in rows(store) if b"INNER_MULTI_DISPATCH" in row.message.properties]
        fanned[0].path.unlink()
        return [f"remove Order_11 and {fanned[0].path.name}"]

    name = f"{version}-formats"
    one = _begin(name, VERSIONS.index(version) - 1, tmp_path, sounds, break_it)
    assert not one.decided
    _end(name, one, sounds)


def _begin(
    name: str,
    seed: int,
    folder: Path,
    sounds: Sounds,
    break_it: Callable[[Path], Sequence[str]] | None = None,
    *,
    configured: bool = True,
) -> Round:
    """Start a round; `configured`: the commands get a broker.conf, otherwise they infer the file sizes."""
    store = copy_store(name, folder / str(seed))
    conf = ("-c", str(write_broker_conf(name, store))) if configured else ()
    damage = break_it(store) if break_it is not None else damage_bytes(store, seed)
    hit, known = sound(name).hit_in(store), countable(name, store)
    before = content(store)
    done, decided = _recover(store, *conf, "--role", "single", "--accept-fillers")
    report = run("verify", str(store), *conf, "--json")
    assert report.exit_code in (0, 1, 4), (damage, report.output)
    unexpected = _unexpected(json.loads(report.stdout), done["facts"])
    assert unexpected == [], (damage, report.stdout)
    assert "CK-AHEAD" not in report.stdout, (damage, report.stdout)
    loss = done["loss"]
    assert isinstance(loss, dict)
    other = sound(name).hit_in(store)
    cell = _cell(name, seed)
    question = sounds.servers.of(cell[0]).ask(store, meta(name).oracle_args, abort=cell[1])
    journal = str(done["journal"]) if done.get("journal") else None
    return Round(store, damage, hit, other, known, before, decided, journal, loss["messages"], cell, question)


def _as_operator(name: str, store: Path) -> list[str]:
    """Do what verify tells an operator to do if no repair can decide, and return a description of it."""
    report = json.loads(run("verify", str(store), "--json").stdout)
    done = []
    for finding in report["findings"]:
        facts = finding["facts"]
        match finding["code"]:
            case codes.DIR_DUPLICATE_FILE:
                path = max(facts["path"], facts["other"], key=lambda path: len(Path(path).name) != _DIGITS)
                (store / path).unlink()
                done.append(f"the operator removes {path}")
            case codes.CFG_UNREADABLE | codes.CFG_NO_TOPICS:
                path = f"config/{finding['file']}"
                shutil.copy(unpack(name) / path, store / path)
                done.append(f"the operator restores {path}")
    for reason in report["unchecked"]:
        if reason.endswith("it may hold positions in the log"):
            path = reason.partition(":")[0]
            (store / path).unlink()
            done.append(f"the operator removes {path}")
        if reason.endswith("bytes, not read"):
            path = f"config/{reason.partition(':')[0]}"
            shutil.copy(unpack(name) / path, store / path)
            done.append(f"the operator restores {path}, too long to be read")
    return done


def _says_more_than_clean(store: Path) -> bool:
    report = run_json("verify", str(store), exit_code=1)
    return not report["clean"]


def _unexpected(report: Mapping[str, Any], facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the errors after a repair, except those of messages that recover lists as damaged.

    Index units and tags codes that contradict a message stay, because nothing proves which of them is right.
    """
    stay = {row["offset"] for row in facts.get("damaged", ())}
    return [
        finding
        for finding in report["findings"]
        if finding["severity"] == "error"
        and not (finding["code"] in _STAYING and _message_of(finding) in stay)
        and not (finding["code"] == codes.CL_NO_MESSAGES and finding["code"] in facts["stays"])
    ]


def _message_of(finding: Mapping[str, Any]) -> int:
    body_offset = dledger.ENTRY.size if finding["queue"] == "dledger" else 0
    return int(finding["facts"].get("commitlog_offset", (finding["offset"] or 0) + body_offset))


def _cell(name: str, seed: int) -> Cell:
    known = versions_reading(name)
    return known[seed % len(known)], bool(seed // len(known) % 2)


def _recover(store: Path, *words: str) -> tuple[Mapping[str, Any], bool]:
    """Run recover, and return its output and whether it asked for a decision first."""
    done = run("recover", str(store), *words, "--apply", "--json")
    if done.exit_code in (0, 1, 4):  # 4: an entry that nothing explains, as a copy of a file
        return json.loads(done.stdout), False
    assert done.exit_code == 5, done.output
    if any(reason in done.stderr for reason in _NO_REPAIR):
        raise NotRepaired
    plan = run_json("recover", str(store), *words, exit_code=1)
    decisions = plan["brakes"]
    assert isinstance(decisions, list)
    assert decisions
    assert [decision for decision in decisions if not _DECISIONS.fullmatch(decision)] == []
    forced = run("recover", str(store), *words, "--apply", "--force", str(plan["digest"]), "--json")
    assert forced.exit_code in (0, 1, 4), forced.output
    return json.loads(forced.stdout), True


def _end(name: str, one: Round, sounds: Sounds) -> None:
    own: Cell = (meta(name).version, meta(name).abort_present)
    settings = meta(name).oracle_args
    sounds_as = sounds.read(name, settings, [one.cell, own])
    now = sounds.servers.of(one.cell[0]).answer(one.question)
    assert (now.load, now.crash, now.shutdown) == (True, None, "clean"), one
    batches = {f"{path.parent.name}/{path.name}" for path in one.store.glob("batchconsumequeue/*/*")}
    bad = {queue: why for queue, why in unreadable(now).items() if queue not in batches or not _first_of_batch(why)}
    if one.cell[0] == "4.9.7":
        bad = {queue: why for queue, why in bad.items() if not _all_expired(now, queue)}
    assert bad == {}, one.said
    was = messages(sounds_as[one.cell])
    other = {place: at for place, at in not_the_same(sounds_as[own], now).items() if place in was or at in one.other}
    unhit = {place for place, at in other.items() if at not in one.hit}
    assert unhit <= (_dropped(name, one) if unhit else set()), one.said
    other = {place: at for place, at in other.items() if place not in unhit}
    lost = {place: at for place, at in other.items() if not _stays(sounds_as[own], now, place) and not is_lmq(place[0])}
    # a message without record and unit is only known by its gap
    surely = [place for place in lost if place in one.countable]
    assert len(surely) <= one.loss <= len(lost), (one.said, one.loss, lost)
    if one.journal is not None:
        run_json("undo", one.journal, exit_code=0)
    assert content(one.store) == one.before, one.said


def _dropped(name: str, one: Round) -> set[Place]:
    """Return the messages of the repaired store whose units this start removes, by the forecast.

    A DLedger start with `abort` truncates the queues where its own walk over the log ends, which is before the log's
    end (DLedgerCommitLog#dledgerRecoverAbnormally, 5.4.0), even in an undamaged store. The messages depend on the end
    of the log. `recover` removes `abort`, and this test creates it again.
    """
    with _abort(one.store, present=one.cell[1]):
        opened = open_store(one.store, BrokerConfig(dict(meta(name).oracle_args)))
        forecast = simulate_start(opened, version=one.cell[0], options=StartOptions(heap=HEAP))
    cut: Counter[QueueName] = Counter()
    out = set()
    for queue, offset in countable(name, one.store):
        topic, _, queue_id = queue.rpartition("/")
        if offset >= forecast.queue_ends.get((topic, int(queue_id)), (0, 0))[1]:
            out.add((queue, offset))
            cut[topic, int(queue_id)] += 1
    assert cut == forecast.units_cut, (one.said, cut, forecast.units_cut)
    return out


@contextlib.contextmanager
def _abort(store: Path, *, present: bool) -> Iterator[None]:
    """Create or remove `abort`, and restore its state at the end of the block."""
    path = store / "abort"
    was = path.exists()
    if present:
        path.touch()
    else:
        path.unlink(missing_ok=True)
    try:
        yield
    finally:
        if was:
            path.touch()
        else:
            path.unlink(missing_ok=True)


def _all_expired(now: OracleResult, queue: str) -> bool:
    """Return whether all messages of a queue have expired; before 5.0, its minimum then stays 0.

    Source: ConsumeQueue#correctMinOffset, 4.9.7
    """
    read = now.queues[queue]
    reasons = {reason.partition(":")[2] for reason in read.why}
    return read.min == 0 and read.bad == read.max and reasons == {"MESSAGE_WAS_REMOVING"}


def _first_of_batch(why: tuple[str, ...]) -> bool:
    """Return whether the filler of a batch was read: it has no inner messages, so each offset reads as the first."""
    return all(re.fullmatch(r"\d+:queueOffset \d+", reason) for reason in why)


def _stays(before: OracleResult, after: OracleResult, place: Place) -> bool:
    """Return whether a message kept its body, so that only header or properties, which no CRC covers, differ."""
    old, new = messages(before)[place], messages(after).get(place)
    return new is not None and replace(new, digest=old.digest) == old
