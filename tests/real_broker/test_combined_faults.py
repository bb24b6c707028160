"""Combined faults: damaged log, lost queues, garbage configuration and stale copies at once.

    faults → forecast = the real store → recover → verify shows what was announced → second plan is empty
           → the real store starts, and reads every message that was not hit → undo

RMQSTORE_ROUNDS is the number of rounds for each store (1), each with a new seed. A failed round does not end the
others, and prints the seed that repeats it (RMQSTORE_SEED).
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rmqstore.checks.problems import codes
from rmqstore.checks.problems.problem import Severity
from rmqstore.checks.problems.table import PROBLEMS
from rmqstore.files.config import only_in_backup
from rmqstore.files.files import LOCAL
from rmqstore.files.store import QueueKind, open_store
from rmqstore.formats.properties import is_lmq
from tests.command import run, run_json
from tests.real_broker.combined_faults import break_at_once
from tests.real_broker.operator_faults import break_by_hand, break_with_foreign
from tests.real_broker.oracle import OracleResult
from tests.real_broker.reading import Sounds, messages, not_the_same, sound, unreadable
from tests.real_broker.starts import compare_forecast
from tests.seeds import NAME as SEED_NAME
from tests.stores import BROKER_STORES, VERSIONS, clone, copy_store, meta, unpack, write_broker_conf
from tests.untouched import content, content_only, snapshot

STORES = tuple(name for name in BROKER_STORES if meta(name).version in VERSIONS)
"""Plain, DLedger, mixed, RocksDB, batches, slaves and replicas of a controller; most have timers, transactions and
delays."""
SEVERAL_PATHS = ("5.4.0-clean", "5.1.4-killed", "5.4.0-master")
Breaks = Callable[[Path, int], list[str]]
"""Damages a store, the same for a given seed, and returns descriptions."""
DISAGREED: Mapping[Breaks, tuple[tuple[str, int], ...]] = {
    break_at_once: (
        ("4.9.7-dledger-killed", 1959352253),
        ("4.9.7-dledger-mixed", 2408702955),
        ("4.9.7-before-dledger", 1492885489),
        ("4.9.7-dledger-mixed", 1645922524),
        ("4.9.7-ipv6", 3008774174),
        ("4.9.7-ipv6", 3275385837),
        ("4.9.7-ipv6", 3370822306),
        ("5.1.4-formats", 3299429317),
        ("5.1.4-killed", 414396997),
        ("5.4.0-clean", 784569271),
        ("5.4.0-controller-diverged", 2497190984),
        ("5.4.0-controller-diverged", 229452732),
        ("5.4.0-controller-diverged", 884960255),
        ("5.4.0-dledger", 2465271443),
        ("5.4.0-dledger-killed", 425545993),
        ("5.4.0-dledger-mixed", 1930075104),
        ("5.4.0-formats", 1501644385),
        ("5.4.0-index-rocksdb", 1770575446),
        ("5.4.0-ipv6", 1066466813),
        ("5.4.0-killed", 3042862613),
        ("5.4.0-pop", 582376087),
        ("5.4.0-pop", 3116268119),
        ("5.4.0-rocksdb", 1449443051),
        ("5.4.0-rocksdb-double", 2141670882),
        ("5.4.0-rocksdb-double", 2376705751),
        ("5.4.0-slave", 2222396894),
        ("5.4.0-slave", 1012440942),
        ("5.4.0-trans-rocksdb", 3236343395),
        ("5.5.1-before-dledger", 2675211928),
        ("5.5.1-clean", 2862636975),
        ("5.5.1-dledger-killed", 1487467503),
        ("5.5.1-dledger-killed", 2531717372),
        ("5.5.1-dledger-mixed", 1310930373),
        ("5.5.1-dledger-mixed", 2105938341),
        ("5.5.1-flushed-killed", 964112677),
        ("5.5.1-formats", 7742),
        ("5.5.1-formats", 1470604850),
        ("5.5.1-formats", 1922116618),
        ("5.5.1-ipv6", 3972210277),
        ("5.5.1-killed", 327257109),
        ("5.5.1-killed", 1180273476),
        ("5.5.1-master", 294977415),
        ("5.5.1-lite", 4062954627),
        ("5.5.1-pop", 4009173349),
        ("5.5.1-pop-kv", 2863899466),
        ("5.5.1-rocksdb", 97623337),
        ("5.5.1-rocksdb", 1325583833),
        ("5.5.1-rocksdb", 3508447703),
        ("5.5.1-rocksdb-double", 3318304316),
        ("5.5.1-rocksdb-double-separate", 157817597),
        ("5.5.1-slave", 550503426),
        ("5.5.1-slave", 4122774881),
        ("5.5.1-slave", 1296527010),
        ("5.5.1-timer-rocksdb-pending", 189596847),
        ("5.5.1-timer-rocksdb-pending", 3291165317),
        ("5.5.1-trans-rocksdb", 51384303),
        ("5.5.1-trans-rocksdb", 2982588357),
    ),
    break_by_hand: (
        ("4.9.7-dledger-killed", 2832677991),
        ("5.1.4-clean", 3753113900),
        ("5.1.4-formats", 2230433741),
        ("5.4.0-controller-master", 1965874781),
        ("5.4.0-dledger-killed", 4172763284),
        ("5.4.0-dledger3-n0", 1930437085),
        ("5.4.0-dledger3-n0", 4259647634),
        ("5.4.0-killed", 717305338),
        ("5.4.0-killed", 4130395026),
        ("5.4.0-pop", 4224349890),
        ("5.4.0-rocksdb-double", 2614749732),
        ("5.4.0-slave", 2227654929),
        ("5.5.1-clean", 56305609),
        ("5.5.1-index-rocksdb", 376707696),
        ("5.5.1-lite", 1852337726),
        ("5.5.1-lmq", 3034779660),
        ("5.5.1-slave", 2914604817),
        ("5.5.1-timer-rocksdb", 292990927),
        ("5.5.1-timer-rocksdb", 2295651738),
        ("5.5.1-trans-rocksdb", 3674538692),
    ),
    break_with_foreign: (
        ("4.9.7-dledger-killed", 406631441),
        ("5.1.4-before-dledger", 1309215508),
        ("5.4.0-dledger-mixed", 2702128960),
        ("5.4.0-pop", 1804513439),
        ("5.4.0-rocksdb", 1871071637),
        ("5.4.0-timer-rocksdb-pending", 4159420396),
        ("5.5.1-config-v2", 241103509),
        ("5.5.1-dledger-mixed", 2043071398),
        ("5.5.1-rocksdb-separate", 2837648840),
        ("5.5.1-slave", 551194406),
        ("5.5.1-timer-rocksdb-pending", 2264241896),
        ("5.5.1-trans-rocksdb", 3513626536),
    ),
}
"""Seeds with which the tool and the real broker once disagreed."""
OPTIONS = ("--role", "single", "--accept-fillers", "--accept-shift")

_GAPS = re.compile(r"(\S+/\d+): no message in the log has queue offset ([\d, -]+)")
_OF_ANOTHER = re.compile(r"^(commitlog|consumequeue)/\S+ of ")


@dataclass(frozen=True, slots=True)
class Faulty:
    """A store with faults, the arguments for its commands, and the directories that `undo` must restore."""

    name: str
    store: Path
    conf: tuple[str, ...]
    said: Sequence[str]
    abort: bool
    second: Path | None = None

    def entries(self) -> dict[str, Any]:
        out = content(self.store)
        if self.second is not None:
            out |= {f"second/{k}": v for k, v in content_only(snapshot(self.second)).items()}
        return out

    def read(self, sounds: Sounds, folder: Path, *, abort: bool) -> OracleResult:
        """Return what the real store reads; its log is then in one directory."""
        store, version = self.store, meta(self.name).version
        if self.second is not None or only_in_backup(LOCAL, store):
            store = folder / "joined"
            clone(self.store, store)
            for path in sorted(self.second.iterdir()) if self.second is not None else ():
                shutil.copy2(path, store / "commitlog" / path.name)
            if only_in_backup(LOCAL, store):  # the oracle reads no .bak, but brokers do (ConfigManager#load)
                shutil.copy2(store / "config" / "topics.json.bak", store / "config" / "topics.json")
        number = sounds.servers.of(version).ask(store, meta(self.name).oracle_args, abort=abort)
        answer = sounds.servers.of(version).answer(number)
        if store != self.store:
            shutil.rmtree(store)
        return answer


@pytest.mark.slow
@pytest.mark.parametrize("name", STORES)
def test_combined_faults(name: str, tmp_path: Path, sounds: Sounds) -> None:
    _rounds(name, tmp_path, sounds, several_paths=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", STORES)
def test_faults_by_hand(name: str, tmp_path: Path, sounds: Sounds) -> None:
    _rounds(name, tmp_path, sounds, several_paths=False, break_it=break_by_hand)


@pytest.mark.slow
@pytest.mark.parametrize("name", STORES)
def test_foreign_files(name: str, tmp_path: Path, sounds: Sounds) -> None:
    _rounds(name, tmp_path, sounds, several_paths=False, break_it=break_with_foreign)


@pytest.mark.slow
@pytest.mark.parametrize("name", SEVERAL_PATHS)
def test_combined_faults_of_a_log_in_several_directories(name: str, tmp_path: Path, sounds: Sounds) -> None:
    _rounds(name, tmp_path, sounds, several_paths=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("break_it", "name", "seed"),
    [(break_it, *one) for break_it, seeds in DISAGREED.items() for one in seeds],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_faults_that_once_disagreed(break_it: Breaks, name: str, seed: int, tmp_path: Path, sounds: Sounds) -> None:
    assert _round(name, seed, tmp_path, sounds, [], break_it=break_it)


def test_damage_that_changes_nothing_is_drawn_again(tmp_path: Path) -> None:
    store = copy_store("4.9.7-ipv6", tmp_path)
    done = break_at_once(store, 3275385837)  # its second step would write zeros over zeros
    assert [what.partition(": ")[2] for what in done[:3]] == [
        "page 20480 of 00",
        "byte 20 of the header at 26446",
        "sys_flag of the record at 18241: 48 becomes 52",
    ]


def _rounds(name: str, folder: Path, sounds: Sounds, *, several_paths: bool, break_it: Breaks = break_at_once) -> None:
    given = os.environ.get(SEED_NAME)
    first = int(given) if given else random.SystemRandom().randrange(1 << 32)
    rounds = range(first, first + int(os.environ.get("RMQSTORE_ROUNDS", "1")))
    failures, repaired = [], 0
    for seed in rounds:
        here = folder / str(seed)
        said: list[str] = []
        try:
            repaired += _round(name, seed, here, sounds, said, several_paths=several_paths, break_it=break_it)
        except Exception:  # noqa: BLE001  # a failed round does not end the others
            failures.append(f"{name}: {SEED_NAME}={seed}\n{said}\n{traceback.format_exc()}")
        shutil.rmtree(here, ignore_errors=True)
    print(f"{name}: {len(rounds) - len(failures)} of {len(rounds)} rounds agree, {repaired} of them with a repair")
    assert not failures, "\n\n".join([f"{len(failures)} of {len(rounds)} rounds fail", *failures])


def _round(
    name: str,
    seed: int,
    folder: Path,
    sounds: Sounds,
    said: list[str],
    *,
    several_paths: bool = False,
    break_it: Breaks = break_at_once,
) -> bool:
    """Break, forecast, repair, read and undo one store; return False if `recover` refused the repair."""
    store = copy_store(name, folder)
    said += break_it(store, seed)
    one = _prepare(name, store, seed, said, folder, several_paths=several_paths)
    if not several_paths:  # the forecast is for the store as it is
        compare_forecast(name, store, meta(name).version, one.read(sounds, folder, abort=one.abort))
    _as_operator(one)
    hit = sound(name).hit_in(_joined(one, folder))
    before = one.entries()
    words = ("recover", str(store), *one.conf, *OPTIONS)
    plan = run(*words, "--json")
    if plan.exit_code == 5:
        assert one.entries() == before
        return False
    assert plan.exit_code in (0, 1, 4), plan.output
    planned = json.loads(plan.stdout)
    asks_only = bool(planned["brakes"]) and not planned["steps"]  # a setting of broker.conf is needed first
    force = ("--force", planned["digest"]) if planned["brakes"] and not asks_only else ()
    reported = _counts(one)
    done = run(*words, *force, "--apply", "--json")
    if done.exit_code == 5 and planned["brakes"]:
        assert one.entries() == before
        return False
    assert done.exit_code in (0, 1, 4), done.output
    _compare_announced(planned, reported, _counts(one))
    again = run_json(*words, exit_code=int(bool(json.loads(done.stdout)["remaining"]["counts"])))
    asked = planned["brakes"] if asks_only else []
    assert ([(s["do"], s["path"], s["why"]) for s in again["steps"]], again["brakes"]) == ([], asked)  # type: ignore[attr-defined]
    if asks_only:
        assert one.entries() == before
        return False
    _compare_messages(one, planned, hit, sounds, folder)
    journal = json.loads(done.stdout).get("journal")
    if journal is not None:
        run_json("undo", journal, exit_code=0)
    assert one.entries() == before
    return True


def _prepare(name: str, store: Path, seed: int, said: Sequence[str], folder: Path, *, several_paths: bool) -> Faulty:
    abort = bool(seed % 2)
    (store / "abort").unlink(missing_ok=True)
    if abort:
        (store / "abort").touch()
    if not several_paths:
        configured = bool(seed // 2 % 2) or open_store(store).known_queue_file_size(QueueKind.SIMPLE) is None
        conf = ("-c", str(write_broker_conf(name, store))) if configured else ()
        return Faulty(name, store, conf, said, abort)
    second = folder / "second"
    second.mkdir()
    for path in sorted((store / "commitlog").iterdir())[1::2]:
        path.rename(second / path.name)
    paths = f"{store / 'commitlog'},{second}"
    conf_path = write_broker_conf(name, store, storePathCommitLog=paths)
    return Faulty(name, store, ("-c", str(conf_path)), said, abort, second)


def _joined(one: Faulty, folder: Path) -> Path:
    if one.second is None:
        return one.store
    store = folder / "hit"
    clone(one.store, store)
    for path in sorted(one.second.iterdir()):
        shutil.copy2(path, store / "commitlog" / path.name)
    return store


def _as_operator(one: Faulty) -> None:
    """Do what verify tells an operator to do where no repair can decide."""
    report = _verify(one)
    for finding in report["findings"]:
        path = f"config/{finding['file']}"
        restores = finding["code"] in (codes.CFG_UNREADABLE, codes.CFG_NO_TOPICS, codes.CFG_BROKEN)
        if restores and (unpack(one.name) / path).is_file() and not (one.store / f"{path}.bak").exists():
            (one.store / "config").mkdir(exist_ok=True)
            shutil.copy(unpack(one.name) / path, one.store / path)
        if finding["code"] == codes.CL_FOREIGN_FILE:  # without its first file, a log looks as if that had expired
            path = f"{finding['queue']}/{finding['file']}"
            first = int(finding["file"]) == 0
            shutil.copy(unpack(one.name) / path, one.store / path) if first else (one.store / path).unlink()
        if finding["code"] == codes.DIR_DUPLICATE_FILE:
            paths = (finding["facts"]["path"], finding["facts"]["other"])
            (one.store / max(paths, key=lambda p: len(Path(p).name) != 20)).unlink()


def _verify(one: Faulty) -> dict[str, Any]:
    done = run("verify", str(one.store), *one.conf, "--json")
    assert done.exit_code in (0, 1, 4), f"verify fails with {done.exit_code}: {done.output}\n{done.exception!r}"
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def _counts(one: Faulty) -> dict[str, int]:
    """Return the problems above a note that verify finds."""
    report = _verify(one)
    return {code: n for code, n in report["counts"].items() if PROBLEMS[code].severity > Severity.NOTE}


def _compare_announced(plan: Mapping[str, Any], before: Mapping[str, int], after: Mapping[str, int]) -> None:
    """Check that every problem that verify still finds was announced, and that no cured one is left."""
    announced = plan["facts"].get("stays") or {}
    silent = {c: n for c, n in after.items() if c not in announced and (c not in before or c in plan["cures"])}
    assert silent == {}, f"left without a word: {silent}; announced {announced}, cures {plan['cures']}"
    counted = (codes.CL_QUEUE_OFFSET_GAP, codes.CQ_SHIFTED, codes.CL_QUEUE_OFFSET)
    wrong = {c: (announced[c]["count"], after.get(c)) for c in counted if c in announced}
    assert all(told == found for told, found in wrong.values()), wrong


def _compare_messages(one: Faulty, plan: Mapping[str, Any], hit: frozenset[int], sounds: Sounds, folder: Path) -> None:
    name, version = one.name, meta(one.name).version
    own = sounds.read(name, meta(name).oracle_args, [(version, meta(name).abort_present)])
    was = own[version, meta(name).abort_present]
    now = one.read(sounds, folder, abort=(one.store / "abort").exists())
    assert (now.load, now.crash) == (True, None), "the repaired store does not start"
    gaps = _gaps(plan)
    batches = {f"{path.parent.name}/{path.name}" for path in one.store.glob("batchconsumequeue/*/*")}
    bad = {queue: why for queue, why in unreadable(now).items() if queue not in batches and queue not in gaps}
    if version == "4.9.7":
        bad = {q: why for q, why in bad.items() if now.queues[q].bad != now.queues[q].max}
    # other queues come from a wrong QUEUEID; before the first message that is left, a queue has pre-blanks
    bad = {queue: why for queue, why in bad.items() if queue in was.queues and not _before_all(now, queue)}
    assert bad == {}, "unreadable queue offsets"
    lost = {place: at for place, at in not_the_same(was, now).items() if at not in hit and not is_lmq(place[0])}
    if codes.CL_QUEUE_OFFSET_REPEAT in (plan["facts"].get("stays") or {}):  # a record that was hit has its queue offset
        read = messages(now)
        lost = {place: at for place, at in lost.items() if place not in read or read[place].commitlog_offset not in hit}
    assert lost == {}, "messages that were not hit are lost"
    if not hit:
        assert len(messages(now)) >= len(messages(was))
    _compare_loss(one, plan, was, now)


def _compare_loss(one: Faulty, plan: Mapping[str, Any], was: OracleResult, now: OracleResult) -> None:
    """Compare the lost messages of a plan with those that the real store no longer reads.

    A message of which only header or properties changed, and one that went to another queue, are not lost. Files of
    another broker may tell of messages that this store never had. The last messages of a killed broker have no units,
    and nothing tells of them if its abort file is gone too.
    """
    kept = {(m.commitlog_offset, m.body_crc) for m in messages(now).values()}
    sounds = messages(was)
    gone = [place for place in not_the_same(was, now) if not is_lmq(place[0])]
    lost = [place for place in gone if (sounds[place].commitlog_offset, sounds[place].body_crc) not in kept]
    told, at_least = plan["loss"]["messages"], plan["loss"].get("at_least", False)
    by_queue, real = plan["loss"]["queues"], Counter(queue for queue, _ in lost)
    unlike = {q: (by_queue.get(q, 0), real[q]) for q in real.keys() | by_queue if by_queue.get(q, 0) != real[q]}
    of_others = any(_OF_ANOTHER.search(what) for what in one.said)
    assert told <= len(lost) or of_others, (
        f"{told} lost messages are told, {len(lost)} are lost (queue: told, lost): {unlike}"
    )
    unknown = meta(one.name).abort_present and not one.abort
    assert at_least or unknown or told == len(lost), (
        f"only {told} of {len(lost)} lost ones are told (queue: told, lost): {unlike}"
    )


def _before_all(now: OracleResult, queue: str) -> bool:
    """Return whether only queue offsets before the first message of a queue are unreadable."""
    first = min((m.queue_offset for m in now.queues[queue].messages), default=0)
    return all(int(why.partition(":")[0]) < first for why in now.queues[queue].why)


def _gaps(plan: Mapping[str, Any]) -> set[str]:
    """Return the queues with queue offsets without a message: consumers get the message before them again."""
    texts = (*plan["notes"], *plan["brakes"])
    return {match[1] for text in texts for match in _GAPS.finditer(text)}
