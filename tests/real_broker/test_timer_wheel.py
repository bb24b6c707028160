"""Timer slots and chains: a whole broker does what verify predicts, and after recover, it delivers everything once."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqstore.formats import timer
from rmqstore.formats.properties import TIMER_TOPIC, UNIQ_KEY, parse_properties
from tests import damage
from tests.command import run_json
from tests.real_broker.whole_broker import WholeBroker
from tests.repair.salvaging import Row, rows
from tests.stores import copy_store, meta

pytestmark = [pytest.mark.slow]

FILE = 520  # bytes: 9 units and a BLANK
PER_FILE = 9
UNITS = 45
OLD = 18  # number of units that no start links again: it begins one file before the flushed position
END = UNITS // PER_FILE * FILE - 52
DEADLINE_SECONDS = 600


def tick(k: int) -> int:
    """Return the second in which unit k is due: 0 to 5 have only old units, three each; 6 to 8 have the others."""
    return k % 6 if k < OLD else 6 + k % 3


def at(k: int) -> int:
    return k // PER_FILE * FILE + k % PER_FILE * 52


def of(second: int) -> list[int]:
    return [k for k in range(UNITS) if tick(k) == second]


def timers(store: Path) -> list[Row]:
    """Return the newest messages of the timer topic, for which there are units."""
    return [row for row in rows(store) if row.message.topic_text == TIMER_TOPIC][-UNITS:]


def key(row: Row) -> str | None:
    return parse_properties(row.message.properties).get(UNIQ_KEY)


def write_timer(store: Path, base: int) -> None:
    """Write timer log (of small files), wheel and timercheck like a broker, with units due from second `base` on."""
    shutil.rmtree(store / "timerlog")
    (store / "timerlog").mkdir()
    wheel, log, last = bytearray(timer.wheel_size()), bytearray(), dict.fromkeys(range(9), -1)
    for k, row in enumerate(timers(store)):
        if k and k % PER_FILE == 0:
            log += timer.LOG_BLANK.build(size=FILE - PER_FILE * 52).ljust(FILE - PER_FILE * 52, b"\0")
        log += timer.LOG_UNIT.build(
            prev_pos=last[tick(k)],
            magic=timer.MAGIC_DEFAULT,
            write_time=(base - 5) * 1000,
            delayed_time=(tick(k) + 5) * 1000,
            commitlog_offset=row.offset,
            message_size=row.size,
        )
        last[tick(k)] = at(k)
    for n in range(0, len(log), FILE):
        (store / "timerlog" / f"{n:020d}").write_bytes(bytes(log[n : n + FILE].ljust(FILE, b"\0")))
    (store / "timerwheel").write_bytes(wheel)
    for second, position in last.items():
        write_slot(store, base + second, at(of(second)[0]), position, len(of(second)))
    top = timers(store)[-1].message.queue_offset + 1
    check = timer.TIMERCHECK.build(
        last_read_time=(base - 2) * 1000,
        last_timer_log_flush_pos=END,
        last_timer_queue_offset=top,
        master_timer_queue_offset=top,
    )
    (store / "config" / "timercheck").write_bytes(check.ljust(timer.TIMERCHECK_FILE_SIZE, b"\0"))


def write_slot(store: Path, second: int, first: int, last: int, num: int = 3) -> None:
    with (store / "timerwheel").open("r+b") as wheel:
        wheel.seek(timer.slot_at(timer.slot_index(second * 1000)))
        wheel.write(timer.WHEEL_SLOT.build(time=second, first_pos=first, last_pos=last, num=num))


def write_prev(store: Path, k: int, prev: int) -> None:
    path = store / "timerlog" / f"{at(k) // FILE * FILE:020d}"
    with path.open("r+b") as log:
        log.seek(at(k) % FILE + timer.LOG_UNIT.at("prev_pos"))
        log.write(prev.to_bytes(8, "big", signed=True))


def break_timers(store: Path, base: int) -> dict[int, int]:
    """Damage old slots and a chain in different ways; return how often the message of each unit is then delivered."""
    delivered = dict.fromkeys(range(UNITS), 1)
    with (store / "timerwheel").open("r+b") as wheel:
        for second in (0, 6, 7, 8):  # the start links the last three again
            wheel.seek(timer.slot_at(timer.slot_index((base + second) * 1000)))
            wheel.write(bytes(32))
    write_slot(store, base + 1, at(of(1)[0]), at(of(1)[0]))
    write_slot(store, base + 2, END + 5200, END + 5252)
    write_slot(store, base + 3, at(of(3)[0]), at(of(4)[-1]))
    write_prev(store, of(4)[1], -1)
    write_slot(store, base + 9, at(of(5)[0]), at(of(5)[-1]))
    for k in (*of(0), *of(1)[1:], *of(2), *of(3), of(4)[0]):
        delivered[k] = 0
    for k in (*of(4)[1:], *of(5)):
        delivered[k] = 2
    return delivered


def read_until(store: Path) -> int:
    return timer.parse_timercheck((store / "config" / "timercheck").read_bytes())["last_read_time"]


def deliver(
    version: str, store: Path, conf: Path, base: int, start: Callable[..., WholeBroker], *, least: float = 0
) -> dict[int, int]:
    """Run a broker until it has read all slots, and for `least` seconds.

    Returns how often it delivered the message of each unit.
    """
    before, wanted = len(rows(store)), timers(store)
    settings = dict(line.split("=", 1) for line in conf.read_text().splitlines())
    end = time.monotonic() + DEADLINE_SECONDS
    with start(version, store, settings):
        time.sleep(least)
        while True:
            with contextlib.suppress(OSError):
                if read_until(store) > (base + 10) * 1000:
                    break
            assert time.monotonic() < end, f"the broker did not get there in {DEADLINE_SECONDS} s"
            time.sleep(0.5)
    new = Counter(key(row) for row in rows(store)[before:] if row.message.topic_text != TIMER_TOPIC)
    return {k: new[key(row)] for k, row in enumerate(wanted)}


def prepare(version: str, tmp_path: Path) -> tuple[Path, Path, int]:
    """Return a store with sound timers, its broker.conf with small files of the timer log, and the base of `tick`."""
    conf = tmp_path / "broker.conf"
    settings = {**meta(f"{version}-formats").broker_conf, "mappedFileSizeTimerLog": str(FILE)}
    for word in ("storePathRootDir", "storePathCommitLog"):
        settings.pop(word, None)
    conf.write_text("".join(f"{k}={v}\n" for k, v in settings.items()))
    base = int(time.time()) - 60
    store = copy_store(f"{version}-formats", tmp_path)
    write_timer(store, base)
    return store, conf, base


@pytest.mark.parametrize("version", ["5.1.4", "5.4.0", "5.5.1"])
def test_slots_and_chains_as_a_broker_reads_them(
    version: str, tmp_path: Path, whole_broker: Callable[..., WholeBroker]
) -> None:
    store, conf, base = prepare(version, tmp_path)
    assert run_json("verify", str(store), "-c", str(conf), exit_code=0)["counts"] == {}
    expected = break_timers(store, base)
    report = run_json("verify", str(store), "-c", str(conf), exit_code=1)
    assert report["counts"] == {"TM-CHAIN": 1, "TM-WHEEL-SLOT": 2}
    found = report["findings"]
    assert isinstance(found, list)
    facts = {(f["code"], f["facts"].get("reason")): f["facts"] for f in found}
    assert facts["TM-WHEEL-SLOT", "lost"] == {"reason": "lost", "count": 4, "messages": 12}
    assert facts["TM-WHEEL-SLOT", "foreign"]["count"] == 1
    assert facts["TM-CHAIN", None]["count"] == 1
    mended = copy_store(f"{version}-formats", tmp_path, rename="mended")
    for part in ("timerlog", "timerwheel", "config"):
        path = mended / part
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        (shutil.copytree if (store / part).is_dir() else shutil.copy2)(store / part, path)
    run = ("recover", str(mended), "-c", str(conf), "--apply", "--only", "TM-WHEEL-SLOT", "--only", "TM-CHAIN")
    run_json(*run, exit_code=0)
    assert run_json("verify", str(mended), "-c", str(conf), exit_code=0)["counts"] == {}
    assert deliver(version, store, conf, base, whole_broker) == expected
    assert deliver(version, mended, conf, base, whole_broker) == dict.fromkeys(range(UNITS), 1)


@pytest.mark.parametrize("version", ["5.1.4", "5.4.0", "5.5.1"])
def test_read_time_in_the_future_stops_the_timer_until_it_is_repaired(
    version: str, tmp_path: Path, whole_broker: Callable[..., WholeBroker]
) -> None:
    store, conf, base = prepare(version, tmp_path)
    damage.flip(store / "config" / "timercheck", 1, 6)
    assert run_json("verify", str(store), "-c", str(conf), exit_code=1)["counts"] == {"TM-CHECK": 1}
    damaged = tmp_path / "damaged"
    shutil.copytree(store, damaged)
    assert deliver(version, damaged, conf, base, whole_broker, least=20) == dict.fromkeys(range(UNITS), 0)
    run_json("recover", str(store), "-c", str(conf), "--apply", "--only", "TM-CHECK", exit_code=0)
    assert deliver(version, store, conf, base, whole_broker) == dict.fromkeys(range(UNITS), 1)


def test_timed_messages_are_delivered_twice_from_an_old_queue_offset(
    tmp_path: Path, whole_broker: Callable[..., WholeBroker]
) -> None:
    version = "5.1.4"  # its records have no CRC
    store, conf, base = prepare(version, tmp_path)
    for k, row in enumerate(timers(store)):
        record = row.path.read_bytes()[row.at : row.stop]
        place = row.at + record.index(b"TIMER_OUT_MS\x01") + len(b"TIMER_OUT_MS\x01")
        damage.overwrite(row.path, place, str((base + tick(k)) * 1000).encode())
    damage.overwrite(store / "config" / "timercheck", timer.TIMERCHECK.at("master_timer_queue_offset"), bytes(8))
    report = run_json("verify", str(store), "-c", str(conf), exit_code=1)
    found = [(finding["code"], finding["facts"]["delivered_again"]) for finding in report["findings"]]  # type: ignore[attr-defined]
    assert found == [("TM-CHECK", UNITS)]
    damaged = tmp_path / "damaged"
    shutil.copytree(store, damaged)
    twice = deliver(version, damaged, conf, base, whole_broker, least=20)
    assert twice == dict.fromkeys(range(UNITS), 2)
    run_json("recover", str(store), "-c", str(conf), "--apply", "--only", "TM-CHECK", exit_code=0)
    assert deliver(version, store, conf, base, whole_broker, least=20) == dict.fromkeys(range(UNITS), 1)


@pytest.mark.parametrize("version", ["5.1.4", "5.4.0", "5.5.1"])
def test_delayed_messages_are_delivered_again_without_their_offsets(
    version: str, tmp_path: Path, whole_broker: Callable[..., WholeBroker]
) -> None:
    name = f"{version}-formats"
    store = copy_store(name, tmp_path)
    for path in (store / "config").glob("delayOffset.json*"):
        path.unlink()
    report = run_json("verify", str(store), exit_code=1)
    before = rows(store)
    level = [key(row) for row in before if row.message.topic == b"SCHEDULE_TOPIC_XXXX" and row.message.queue_id == 0]
    assert set(report["counts"]) == {"CFG-NO-DELAYS"}  # type: ignore[call-overload]
    facts = [finding["facts"] for finding in report["findings"]]  # type: ignore[attr-defined]
    assert [fact["delivered_again"] for fact in facts if fact["queue_id"] == 0] == [len(level)]
    end = time.monotonic() + DEADLINE_SECONDS
    with whole_broker(version, store, meta(name).broker_conf):
        while not set(level) <= {key(row) for row in rows(store)[len(before) :]}:
            assert time.monotonic() < end, f"the broker did not deliver in {DEADLINE_SECONDS} s"
            time.sleep(0.5)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["5.1.4", "5.4.0", "5.5.1"])
def test_timed_messages_are_delivered_again_without_any_timer_file(
    version: str, tmp_path: Path, whole_broker: Callable[..., WholeBroker]
) -> None:
    name = f"{version}-formats"
    store = copy_store(name, tmp_path)
    shutil.rmtree(store / "timerlog")
    (store / "timerwheel").unlink()
    (store / "config" / "timercheck").unlink()
    report = run_json("verify", str(store), exit_code=1)
    found = [(f["code"], f["facts"]["delivered_again"]) for f in report["findings"]]  # type: ignore[attr-defined]
    ((code, again),) = found
    assert code == "TM-MISSING"
    before = rows(store)  # with the files, the broker delivers 10 messages that are due since then
    real = {b"Order_11", b"Pay_11_Topic", b"log-15445", b"rmq_sys_REVIVE_LOG_DefaultCluster"}
    end = time.monotonic() + DEADLINE_SECONDS
    with whole_broker(version, store, meta(name).broker_conf):
        while sum(row.message.topic in real for row in rows(store)[len(before) :]) < again:
            assert time.monotonic() < end, f"the broker did not deliver in {DEADLINE_SECONDS} s"
            time.sleep(0.5)
