"""After a truncation, no wheel slot points beyond the timer log, and the other slots are as the broker wrote them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rmqstore.formats import timer
from rmqstore.repair.journal.journal import apply
from rmqstore.repair.plan.recover_options import RecoverOptions
from rmqstore.repair.recover import plan_recovery
from tests import damage
from tests.command import run_json
from tests.planning import look

STORE = "5.4.0-formats"

LOG = "00000000000000000000"


def _wheel(store: Path) -> Any:
    return timer.WHEEL_SLOT.array((store / "timerwheel").read_bytes())


def _units(store: Path) -> Any:
    with (store / "timerlog" / LOG).open("rb") as log:
        raw = log.read(52 * 1000)
    units: Any = timer.LOG_UNIT.array(raw)
    return units[units["size"] == 52]


def test_wheel_follows_a_log_whose_last_file_is_gone(store: Path) -> None:
    before, units = _wheel(store), _units(store)
    (store / "commitlog" / "00000000000000393216").unlink()
    verdict = run_json("verify", str(store), exit_code=1)["verdict"]
    assert "without consume queue units" not in str(verdict)  # those messages are lost and not only without units
    run_json("recover", str(store), "--apply", exit_code=0)
    after, left = _wheel(store), _units(store)
    end = 52 * len(left)
    assert 0 < len(left) < len(units)
    assert left["commitlog_offset"].max() < 393216
    assert (after["first_pos"] < end).all()
    assert (after["last_pos"] < end).all()
    behind = np.maximum(before["first_pos"], before["last_pos"]) >= end
    assert behind.any()
    assert (after[~behind] == before[~behind]).all()
    due = (left["write_time"] + left["delayed_time"].astype(np.int64)) // 1000
    for index in np.flatnonzero(behind).tolist():
        mine = np.flatnonzero(due == after["time"][index])
        assert after["num"][index] == len(mine) > 0
        assert (after["first_pos"][index], after["last_pos"][index]) == (52 * mine[0], 52 * mine[-1])


def test_slot_without_a_unit_left_is_emptied(store: Path) -> None:
    units = _units(store)
    due = units["write_time"] + units["delayed_time"].astype(np.int64)
    last = len(units) - 1
    index = timer.slot_index(int(due[last]))
    with (store / "timerwheel").open("r+b") as wheel:
        wheel.seek(timer.slot_at(index) + timer.WHEEL_SLOT.at("first_pos"))
        wheel.write((52 * last).to_bytes(8, "big") * 2)
    with (store / "timerlog" / LOG).open("r+b") as log:
        for n in np.flatnonzero(due[:last] // 1000 == due[last] // 1000).tolist():  # due alone
            log.seek(52 * n + timer.LOG_UNIT.at("delayed_time"))
            log.write((int(units["delayed_time"][n]) + 5000).to_bytes(4, "big"))
        log.seek(52 * last + timer.LOG_UNIT.at("commitlog_offset"))
        log.write((10**9).to_bytes(8, "big"))
    assert any(_wheel(store)[index].tolist())
    run_json("recover", str(store), "--apply", "--only", "TM-DANGLING", exit_code=0)
    assert not any(_wheel(store)[index].tolist())


def _reasons(store: Path) -> list[str]:
    steps = run_json("recover", str(store), "--only", "TM-CHECK", exit_code=1)["steps"]
    assert isinstance(steps, list)
    return [step["why"] for step in steps]


def test_the_plan_names_what_changes_in_timercheck(store: Path) -> None:
    check = store / "config" / "timercheck"
    sound = check.read_bytes()
    check.write_bytes(sound[:1] + b"\x40" + sound[2:])
    assert _reasons(store) == ["wrong read time", "a read time before the last message of the log"]
    check.write_bytes(sound[:8] + b"\x40" + sound[9:])
    assert _reasons(store) == ["positions after the end", "positions within the timer log and its queue"]
    check.write_bytes(sound[:1] + b"\x40" + sound[2:8] + b"\x40" + sound[9:])
    assert _reasons(store)[0] == "wrong positions and time"
    check.write_bytes(sound[:100])
    assert _reasons(store)[0] == "wrong length"


def test_the_timer_is_repaired_on_request_alone(store: Path) -> None:
    """The first unit is damaged: nothing of the timer log is left, but brokers need its first file."""
    damage.flip(store / "timerlog" / LOG, 3, 0)
    opened, verified = look(store)
    assert "TM-LOG" in verified.report.findings.counts
    assert not plan_recovery(opened, verified).steps
    plan = plan_recovery(opened, verified, RecoverOptions(only=("TM-LOG",)))
    assert {step.do for step in plan.steps if step.path.startswith("timerlog/")} == {"overwrite"}
    apply(plan, force_digest=plan.digest)
    assert not (store / "timerlog" / LOG).read_bytes().strip(b"\0")
