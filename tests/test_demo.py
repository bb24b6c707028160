"""`make demo` works without a terminal, and prints what its text announces."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.stores import ROOT


def test_demo_runs_to_its_end_and_prints_plain_text_and_the_plan_once() -> None:
    environment = {**os.environ, "BIN": os.path.relpath(Path(sys.executable).parent, ROOT)}
    done = subprocess.run(
        [ROOT / "fixtures" / "demo.sh"], env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    assert done.stdout.count("lose 252 messages") == 2, "verify says it, and the plan"
    assert done.stdout.count("One damaged bit would cost 252 messages") == 1
    assert done.stdout.count("Mended: 1 message (one flipped bit in its body: ") == 1, "the plan is printed once"
    assert done.stdout.count("No data will be lost.") == 1
    assert done.stdout.count("would start and lose nothing") == 3, "before the damage, in the plan, after the repair"
    [page] = [line for line in done.stdout.splitlines() if line.startswith("The same as a page")]
    assert Path(page.rpartition(": ")[2]).read_bytes().startswith(b"<!doctype html>")
    assert "Every byte is as it was before the repair." in done.stdout.splitlines()[-1]
