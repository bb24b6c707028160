"""While a broker runs, reading commands have no false findings, and never take or release the lock."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqstore.checks.examine import verify
from rmqstore.checks.options import VerifyOptions
from rmqstore.checks.problems.table import PROBLEMS, Severity
from rmqstore.files.store import open_store
from tests.command import run
from tests.real_broker.whole_broker import WholeBroker
from tests.stores import copy_store, meta

NewBroker = Callable[..., WholeBroker]


def dump(store: Path, folder: Path) -> None:
    """Dump all messages into a file in `folder`, which may contain the previous dump."""
    done = run("dump", str(store), "--format", "ndjson", "-o", str(folder / "out.ndjson"), "--overwrite")
    assert done.exit_code == 0, done.stderr


@pytest.mark.slow
@pytest.mark.other_processes
@pytest.mark.parametrize("name", ["5.4.0-clean", "4.9.7-clean", "5.4.0-dledger", "5.5.1-clean", "5.5.1-dledger"])
def test_verify_of_a_store_with_a_busy_broker_finds_nothing(name: str, tmp_path: Path, whole_broker: NewBroker) -> None:
    made = meta(name)
    store = copy_store(name, tmp_path)
    with whole_broker(made.version, store, made.broker_conf) as broker:
        sent: list[int] = []
        trouble: list[Exception] = []

        def traffic() -> None:
            try:
                sent.extend(len(broker.produce("Order_11", 400)) for _ in range(3))
            except Exception as e:  # noqa: BLE001 - reported by the test's own thread
                trouble.append(e)

        thread = threading.Thread(target=traffic)
        thread.start()
        looks, grown = 0, set()
        while thread.is_alive() or looks < 3:
            for command in ("info", "du"):
                done = run(command, str(store))
                assert done.exit_code == 0, (command, done.stderr)
            dump(store, tmp_path)
            report = verify(open_store(store), VerifyOptions(jobs=1))
            assert report.live
            bad = {c: n for c, n in report.findings.counts.items() if PROBLEMS[c].severity > Severity.NOTE}
            assert bad == {}, [f for f in report.ordered() if f.severity > Severity.NOTE][:5]
            part = report.dledger or report.commitlog
            assert part is not None
            grown.add(part["wrote"])
            looks += 1
        thread.join()
        assert not trouble
        assert sum(sent) == 1200
        assert len(grown) > 1  # the log did grow
    report = verify(open_store(store), VerifyOptions(jobs=1))
    assert not report.live
    assert report.clean, report.ordered()[:5]


@pytest.mark.slow
@pytest.mark.other_processes
def test_reading_beside_a_broker_that_expires_files(tmp_path: Path, whole_broker: NewBroker) -> None:
    made = meta("5.4.0-clean")
    store = copy_store("5.4.0-clean", tmp_path)
    hours = ";".join(f"{h:02d}" for h in range(24))
    own = {"fileReservedTime": "0", "deleteWhen": hours, "cleanResourceInterval": "1000"}
    files = len(list((store / "commitlog").iterdir()))
    with whole_broker(made.version, store, made.broker_conf, **own) as broker:
        fewest, deadline = files, time.monotonic() + 600
        while time.monotonic() < deadline and fewest > files // 2:  # the clean-up starts a minute after the broker
            broker.produce("Order_11", 20)
            report = verify(open_store(store), VerifyOptions(jobs=1))
            bad = {c: n for c, n in report.findings.counts.items() if PROBLEMS[c].severity > Severity.NOTE}
            assert bad == {}, [f for f in report.ordered() if f.severity > Severity.NOTE][:5]
            dump(store, tmp_path)
            fewest = min(fewest, len(list((store / "commitlog").iterdir())))
    assert fewest <= files // 2, "the broker expired nothing: the test saw nothing"
