"""The stages of a recovery change nothing that they are given: repeated, they have equal results."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest

from rmqstore.checks.verified import Verified
from rmqstore.formats.consumequeue import UNIT_SIZE, QueueName
from rmqstore.repair.plan.recover_options import RecoverOptions
from rmqstore.repair.recover import plan_recovery
from rmqstore.repair.recovery import LogEnds, Recovery
from rmqstore.repair.salvage.evidence import Evidence
from rmqstore.repair.salvage.framed import FramedRecords
from tests.cases.case import make, read_case
from tests.damage import overwrite
from tests.planning import look
from tests.stores import copy_store

OPTIONS = RecoverOptions(accept_fillers=True, now_ms=1)
RESTART = "a queue that seems to restart"
CASES = (
    *(RESTART, "CL-BODY-CRC--queue-gone", "CL-MAGIC--progress-of-a-consumer", "CL-QUEUE-OFFSET--sister-queue"),
    *("CL-MISSING-FILE", "CL-DIRTY-TAIL--second-last-record", "DL-MISSING-FILE", "DL-DIRTY-TAIL--torn-entry"),
)
FILE, QUEUE_OFFSET_AT = 65_536, 20
PLAN = """
import sys
from pathlib import Path
from tests.repair.salvage.test_pure_stages import OPTIONS
from tests.planning import look
from rmqstore.repair.recover import plan_recovery
print(plan_recovery(*look(Path(sys.argv[1])), OPTIONS).digest)
"""


@pytest.fixture(params=CASES)
def damaged(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A damaged store."""
    if request.param != RESTART:
        return make(read_case(request.param), tmp_path)
    store = copy_store("5.4.0-clean", tmp_path)
    units = (store / "consumequeue" / "log-15445" / "0" / f"{0:020}").read_bytes()
    for number, unit in enumerate((units[5 * UNIT_SIZE :], units[6 * UNIT_SIZE :])):
        at = int.from_bytes(unit[:8], "big")
        overwrite(store / "commitlog" / f"{at & -FILE:020}", at % FILE + QUEUE_OFFSET_AT, number.to_bytes(8, "big"))
    return store


def parts(verified: Verified) -> Mapping[QueueName, str]:
    return {name: repr(part) for name, part in verified.logs.queues.items()}


def test_a_plan_can_be_made_again_and_in_another_process(damaged: Path) -> None:
    opened, verified = look(damaged)
    before = parts(verified)
    first, second = (plan_recovery(opened, verified, OPTIONS) for _ in range(2))
    assert first.steps and first.digest == second.digest
    assert first.notes == second.notes and first.decisions == second.decisions
    assert parts(verified) == before
    done = subprocess.run(
        [sys.executable, "-c", PLAN, damaged], capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stdout.strip() == first.digest


def test_each_stage_of_the_log_can_be_repeated(damaged: Path) -> None:
    opened, verified = look(damaged)
    case = Recovery.of(opened, verified, OPTIONS)
    assert LogEnds.of(case) == LogEnds.of(case)
    evidence = case.evidence
    one, again = FramedRecords(evidence).solve(), FramedRecords(evidence).solve()
    fresh = FramedRecords(Evidence(opened, verified, evidence.mends_end)).solve()
    changes = [{at: fix.new for at, fix in framed.fixes.items()} for framed in (one, again, fresh)]
    assert changes[0] == changes[1] == changes[2]
    spans = [(run.start, run.stop) for log in verified.results for run in log.tiling.tail()]
    assert evidence.about(spans).at == Evidence(opened, verified, evidence.mends_end).about(spans).at


def test_the_evidence_is_frozen(tmp_path: Path) -> None:
    evidence = Evidence(*look(copy_store("5.4.0-clean", tmp_path)))
    with pytest.raises(FrozenInstanceError):
        evidence.mends_end = False  # type: ignore[misc]
