"""The file store of DLedger 0.4, which no RocketMQ release ships, recovers as it is simulated and as it was recorded.

python -m tests.broker.test_dledger_library   records the answers of all cases
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pytest

from rmqstore.brokers.simulate import simulate_start
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import open_store
from tests.conftest import need_classes
from tests.forecast.answers import files_of
from tests.forecast.dledger_cases import LIBRARY_CASES, STORE, LibraryAnswer, load_library_answers, save_library_answers
from tests.forecast.places import LOG_SIZE
from tests.forecast.test_dledger_library import of_library_forecast
from tests.real_broker.java import LIBRARY, BrokerUnavailable, java_classes
from tests.stores import copy_store, meta

VERSION = f"{LIBRARY}0.4.0"
SAMPLE = ("undamaged", "NOOP in the last file", "reset in the third file", "BLANK over entries of the last file")


def ask(store: Path, *more: str) -> LibraryAnswer:
    """What the real classes do with a damaged copy."""
    before = files_of(store)
    with tempfile.TemporaryDirectory(prefix="oracle-") as folder:
        home = Path(folder)
        command = java_classes(VERSION).command("Recovery", log=home / "log", home=home)
        words = [*command, str(store), str(LOG_SIZE), *more]
        done = subprocess.run(words, cwd=home, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode in (0, 4, 255), done.stderr
    gone = tuple(sorted(before - files_of(store)))
    if done.returncode:
        return LibraryAnswer(done.returncode, gone=gone)
    begin, end, term, data_end, index_end = map(int, done.stdout.split())
    return LibraryAnswer(0, begin, end, term, data_end, index_end, gone)


def damaged(name: str, folder: Path) -> Path:
    store = copy_store(STORE, folder)
    damage = LIBRARY_CASES[name]
    if damage is not None:
        damage(store)
    return store


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in SAMPLE else pytest.mark.slow) for name in LIBRARY_CASES]
)
def test_the_library_recovers_as_simulated(name: str, tmp_path: Path) -> None:
    need_classes(VERSION)
    store = damaged(name, tmp_path)
    config = BrokerConfig(meta(STORE).oracle_args)
    expected = of_library_forecast(simulate_start(open_store(store, config), version=VERSION))
    assert ask(store) == expected == load_library_answers()[name]


def test_a_store_that_the_library_wrote_is_read_as_the_library_reads_it(tmp_path: Path) -> None:
    need_classes(VERSION)
    store = tmp_path / "store"
    ask(store, "append", "900")
    ask(store, "reset", "100")
    config = BrokerConfig({"mappedFileSizeCommitLog": str(LOG_SIZE)})
    expected = of_library_forecast(simulate_start(open_store(store, config), version=VERSION))
    assert (expected.begin_index, expected.end_index) == (101, 899)
    assert ask(store) == expected


if __name__ == "__main__":
    try:
        java_classes(VERSION)
    except BrokerUnavailable as missing:
        raise SystemExit(str(missing)) from missing
    answers = {}
    for case in LIBRARY_CASES:
        with tempfile.TemporaryDirectory() as below:
            answers[case] = ask(damaged(case, Path(below)))
    save_library_answers(answers)
