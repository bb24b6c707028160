"""The jobs give the same answers with the oldest version of PySpark that is declared, and with one between.

The installed version runs all tests. Another one is installed once, into a virtual environment of its own beside the
libraries of this one.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from tests.spark.cluster import DEADLINE
from tests.stores import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("needs_spark")]

CACHE = Path.home() / ".cache" / "rmqstore" / "pyspark"
DECLARED = re.search(r"pyspark>=([\d.]+)", (ROOT / "pyproject.toml").read_text("utf-8"))
assert DECLARED is not None
FLOOR = f"{DECLARED[1]}.0"
_USED = ("tests/spark/test_schemas.py", "tests/spark/test_failures.py", "tests/spark/test_pipeline.py")
_CHOSEN = "schemas or relative or (rebuilt and formats) or sees_all_views or du_is_equal or stream_delivers"


def python_with(version: str) -> Path:
    """Return an interpreter with that PySpark and the other libraries of this one; skips the test without it."""
    home = CACHE / f"{version}-{sys.version_info.major}.{sys.version_info.minor}"
    python = home / "bin" / "python"
    if not (home / ".complete").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True, timeout=DEADLINE)
        words = ["-m", "pip", "install", "--quiet", "--no-compile", f"pyspark=={version}"]
        done = subprocess.run([str(python), *words], capture_output=True, text=True, timeout=6 * DEADLINE, check=False)
        if done.returncode:
            pytest.skip(f"pip cannot install pyspark {version}: {done.stderr.strip()[-200:]}")
        (home / ".complete").touch()
    [libraries] = home.glob("lib/python*/site-packages")
    others = [path for path in map(Path, sys.path) if path.name == "site-packages"]
    (libraries / "others.pth").write_text("".join(f"{path}\n" for path in (*others, ROOT, ROOT / "spark_plugins")))
    return python


@pytest.mark.parametrize("version", [FLOOR, "4.1.0"])
def test_the_jobs_run_with_other_versions_of_pyspark(version: str, tmp_path: Path) -> None:
    python = python_with(version)
    words = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp", tmp_path / "pytest", "-k", _CHOSEN]
    command = [*map(str, words), "-m", "not slow", *_USED]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=6 * DEADLINE, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert re.search(r"\b\d+ passed", done.stdout)
    asked = [str(python), "-c", "import pyspark; print(pyspark.__version__)"]
    assert subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip() == version
