"""Several concurrent applies: one is executed, the others are refused, and nothing is done twice."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from rmqstore.documents.journal import State
from rmqstore.repair.journal.journal import list_journals
from tests.command import run
from tests.damage import overwrite

APPLY = """
import sys
from pathlib import Path
from rmqstore.errors import RmqStoreError
from rmqstore.repair.journal.journal import apply
from rmqstore.documents.plan import plan_from_json
plan = plan_from_json(Path(sys.argv[1]).read_bytes(), store=Path(sys.argv[2]), roots=[])
print("ready", flush=True)
sys.stdin.readline()
try:
    apply(plan)
except RmqStoreError as error:
    print(error.code, error.exit_code, str(error).replace(" ", "_"))
else:
    print("applied", 0)
"""


def test_of_three_applies_at_once_one_is_carried_out_and_two_are_refused(store: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    overwrite(store / "checkpoint", 0, (1 << 45).to_bytes(8, "big"))
    assert run("recover", str(store), "--plan-out", str(plan)).exit_code == 1
    command = [sys.executable, "-c", APPLY, str(plan), str(store)]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    for process in processes:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    ends = [process.communicate()[0].split() for process in processes]
    assert sorted(end[1] for end in ends) == ["0", "5", "5"], "\n".join(" ".join(e) for e in ends)
    assert {end[0] for end in ends if end[1] == "5"} <= {"store-live", "plan-stale", "refused"}
    assert [info.state for info in list_journals(store)] == [State.DONE]
