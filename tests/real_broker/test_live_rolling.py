"""While a real broker rolls and expires small files every second, no finding is false, and nothing is written.

RMQSTORE_LIVE_SECONDS sets how long each version is tested after it has expired its first file (default: 20).
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqstore.checks.problems.table import PROBLEMS, Severity
from tests.command import run, run_json
from tests.real_broker.whole_broker import WholeBroker

NewBroker = Callable[..., WholeBroker]
SECONDS = int(os.environ.get("RMQSTORE_LIVE_SECONDS", "20"))
TOPIC = "Rolling"

CONF = {
    "mappedFileSizeCommitLog": str(64 << 10),
    "mappedFileSizeConsumeQueue": str(20 * 50),
    "maxHashSlotNum": "100",
    "maxIndexNum": "400",
    "fileReservedTime": "0",
    "deleteWhen": ";".join(f"{hour:02d}" for hour in range(24)),
    "cleanResourceInterval": "1000",
    "deleteCommitLogFilesInterval": "10",
    "deleteConsumeQueueFilesInterval": "10",
    "flushConsumerOffsetInterval": "200",
    "flushConsumerOffsetHistoryInterval": "1000",
}

# command, and its documented exit codes for a sound store in use
READING: tuple[tuple[tuple[str, ...], tuple[int, ...]], ...] = (
    (("info", "STORE"), (0,)),
    (("verify", "STORE"), (0,)),
    (("verify", "STORE", "--jobs", "2"), (0,)),
    (("verify", "STORE", "--max-rate", "100K"), (0,)),
    (("recover", "STORE"), (0,)),
    (("recover", "LINK"), (0,)),
    (("rebuild", "STORE", "cq"), (0,)),
    (("rebuild", "STORE", "index"), (0,)),
    (("rebuild", "STORE", "checkpoint"), (0,)),
    (("expire", "STORE"), (0, 1)),  # 1: there are files to expire
    (("du", "STORE"), (0,)),
    (("dump", "STORE", "--format", "ndjson", "-o", "OUT/dump.ndjson", "--overwrite"), (0,)),
    (("dump", "STORE", "--topic", TOPIC, "--queue", "1", "--format", "csv", "-o", "OUT/dump.csv", "--overwrite"), (0,)),
    (("dump", "STORE/consumequeue", "--format", "ndjson", "-o", "OUT/units.ndjson", "--overwrite"), (0,)),
    (("dump", "STORE/commitlog", "--format", "ndjson", "-o", "OUT/log.ndjson", "--overwrite"), (0,)),
    (("dump", "STORE/index", "--format", "ndjson", "-o", "OUT/index.ndjson", "--overwrite"), (0,)),
    (("export", "STORE", "-o", "OUT/export.ndjson", "--overwrite"), (0,)),
    (("compare", "STORE", "STORE"), (0, 1)),  # 1: files expired between the two reads
)
CHANGING: tuple[tuple[str, ...], ...] = (
    ("recover", "STORE", "--apply"),
    ("recover", "LINK", "--apply"),
    ("rebuild", "STORE", "cq", "--apply"),
    ("rebuild", "STORE", "index", "--apply", "--broker-is-stopped"),
    ("expire", "STORE", "--apply"),
    ("migrate-to-dledger", "STORE", "--self-id", "n0", "--apply"),
)


@pytest.mark.slow
@pytest.mark.other_processes
@pytest.mark.parametrize("version", ["5.4.0", "4.9.7", "5.1.4", "5.5.1"])
def test_commands_beside_a_broker_that_rolls_and_expires(version: str, tmp_path: Path, whole_broker: NewBroker) -> None:
    store, link, out = tmp_path / "store", tmp_path / "link", tmp_path / "out"
    for directory in (store, out):
        directory.mkdir()
    link.symlink_to(store)
    with whole_broker(version, store, CONF) as broker:
        ends: list[BaseException] = []
        enough = threading.Event()
        traffic = threading.Thread(target=_traffic, args=(broker, enough, ends))
        traffic.start()
        first = store / "commitlog" / f"{0:020d}"
        deadline = time.monotonic() + 300
        while (not first.parent.exists() or first.exists() or not any(first.parent.iterdir())) and not ends:
            assert time.monotonic() < deadline, "the broker expired nothing"
            time.sleep(0.2)
        heads, codes = set(), Counter[tuple[str, int]]()
        end = time.monotonic() + SECONDS
        while time.monotonic() < end and not ends:
            for words, right in READING:
                heads.add(min((store / "commitlog").iterdir()).name)
                told = tuple(_place(word, store, link, out) for word in words)
                done = run(*told)
                codes[words[0], done.exit_code] += 1
                if done.exit_code not in right:
                    pytest.fail(f"{told} ended with {done.exit_code}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
            _look_for_false_findings(store)
            for words in CHANGING:
                _refused(tuple(_place(word, store, link, out) for word in words))
        _refused_without_the_lock_file(store)
        assert len(heads) > SECONDS // 30, f"too few files expired: {sorted(heads)}"
        print(version, f"{len(heads)} heads of the log", dict(codes))
        assert not any((store / ".rmqstore").glob("*"))
        enough.set()
        traffic.join()
        assert ends == []


def _traffic(broker: WholeBroker, enough: threading.Event, ends: list[BaseException]) -> None:
    try:
        while not enough.is_set():
            broker.traffic(TOPIC, 20)
    except BaseException as error:  # noqa: BLE001  # reported by the test's own thread
        ends.append(error)


def _place(word: str, store: Path, link: Path, out: Path) -> str:
    return word.replace("STORE", str(store)).replace("LINK", str(link)).replace("OUT", str(out))


def _look_for_false_findings(store: Path) -> None:
    report = run_json("verify", str(store), exit_code=0)
    counts = report["counts"]
    assert isinstance(counts, dict)
    assert {code: n for code, n in counts.items() if PROBLEMS[code].severity > Severity.NOTE} == {}


def _refused(words: tuple[str, ...]) -> None:
    done = run(*words)
    assert done.exit_code == 5, (words, done.exit_code, done.stdout[-2000:], done.stderr[-2000:])
    assert "stop the broker" in done.stderr and "process" in done.stderr, done.stderr
    assert done.stdout == ""


def _refused_without_the_lock_file(store: Path) -> None:
    """A missing lock file does not prove that no broker runs: here, it was moved away."""
    lock, aside = store / "lock", store.parent / "lock-aside"
    shutil.move(lock, aside)
    try:
        _refused(("recover", str(store), "--apply"))
    finally:
        shutil.move(aside, lock)
