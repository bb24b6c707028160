"""The wheel as users install it: built, unpacked, and run on a real store, with the loops in C and without."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.stores import unpack

pytest.importorskip("hatchling")
_ROOT = Path(__file__).parent.parent
_ASK = "from rmqstore.scan import native; print(native.load() is not None)"


@pytest.mark.parametrize("compiler", ["", "none"])
def test_wheel(compiler: str, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    shutil.copytree(_ROOT / "rmqstore", tree / "rmqstore", ignore=shutil.ignore_patterns("__pycache__", "_native.so*"))
    for file in [*_ROOT.glob("pyspark_*.py"), *(_ROOT / name for name in ("pyproject.toml", "hatch_build.py"))]:
        shutil.copy(file, tree)
    for name in ("README.md", "LICENSE"):
        shutil.copy(_ROOT / name, tree)
    has_compiler = not compiler and any(shutil.which(name) for name in ("cc", "gcc", "clang"))
    environment = {k: v for k, v in os.environ.items() if k not in ("CC", "CFLAGS", "PYTHONPATH")}
    if compiler:
        environment["CC"] = str(tmp_path / "no-such-compiler")

    words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist")]
    built = subprocess.run(words, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    [wheel] = (tmp_path / "dist").iterdir()
    assert wheel.name.endswith("-py3-none-any.whl") is not has_compiler
    assert ("without its C loops" in built.stdout + built.stderr) is not has_compiler
    home = tmp_path / "home"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(home)
    assert (home / "rmqstore" / "scan" / "_native.so").exists() is has_compiler

    environment["PYTHONPATH"] = str(home)
    here = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True, "check": False}
    assert subprocess.run([sys.executable, "-c", _ASK], **here).stdout.strip() == str(has_compiler)
    store = unpack("5.4.0-clean")
    ran = subprocess.run([sys.executable, "-m", "rmqstore", "verify", str(store), "--json"], **here)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["commitlog"]["messages"] > 0
