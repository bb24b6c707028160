"""The sdist and the wheel: built, unpacked, and run on a real store, also on a machine without a C compiler."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from rmqstore.json_reference import DOCUMENTS
from tests.stores import ROOT, unpack

pytest.importorskip("hatchling")


def python(*words: str, cwd: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([sys.executable, *words], cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked source distribution."""
    folder = tmp_path_factory.mktemp("sdist")
    python("-m", "hatchling", "build", "-t", "sdist", "-d", str(folder), cwd=ROOT, env=os.environ)
    [archive] = folder.iterdir()
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


def test_sdist_contains_only_the_sources_and_documents_of_the_wheel(sdist: Path) -> None:
    files = {path.relative_to(sdist).as_posix() for path in sdist.rglob("*") if path.is_file()}
    papers = {
        "README.md",
        "README.zh-CN.md",
        "CHANGELOG.md",
        "LICENSE",
        "PKG-INFO",
        ".gitignore",
        "pyproject.toml",
        "hatch_build.py",
    }
    rest = {name for name in files - papers if not name.startswith(("rmqstore/", "man/", "docs/", "spark_plugins/"))}
    assert papers <= files
    assert rest == set()
    assert [name for name in files if name.endswith((".so", ".pyc"))] == []


def test_sdist_has_no_library_even_below_a_directory_named_build(sdist: Path, tmp_path: Path) -> None:
    tree = tmp_path / "build" / "tree"
    shutil.copytree(sdist, tree)
    (tree / "rmqstore" / "scan" / "_native.so").touch()
    python("-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path / "new"), cwd=tree, env=os.environ)
    [archive] = (tmp_path / "new").iterdir()
    with tarfile.open(archive) as tar:
        assert [name for name in tar.getnames() if name.endswith(".so")] == []


def _without_compiler(folder: Path) -> dict[str, str]:
    """Return an environment whose PATH has no C compiler."""
    folder.mkdir()
    for name in ("sh", "env", "uname", "ldd"):
        (folder / name).symlink_to(shutil.which(name) or name)
    return {k: v for k, v in os.environ.items() if k not in ("CC", "CFLAGS", "PYTHONPATH")} | {"PATH": str(folder)}


def _check(wheel: Path, home: Path) -> None:
    """Unpack a wheel and run it on a store."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(home)
    pages = {path.relative_to(path.parent.parent).as_posix() for path in home.glob("*.data/data/share/man/man?/*")}
    assert pages == {f"man{path.suffix[1:]}/{path.name}" for path in (ROOT / "man").iterdir()}
    schemas = {path.name for path in (home / "rmqstore" / "schemas").iterdir()}
    assert schemas == {f"{name}.json" for name in DOCUMENTS}
    words = ("-m", "rmqstore", "verify", str(unpack("5.4.0-clean")), "--json")
    ran = python(*words, cwd=home, env={**os.environ, "PYTHONPATH": str(home)})
    assert json.loads(ran.stdout)["commitlog"]["messages"] > 0


@pytest.mark.skipif(not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="there is no C compiler")
def test_wheel_built_from_the_sdist_verifies_a_store(sdist: Path, tmp_path: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if k not in ("CC", "CFLAGS", "PYTHONPATH")}
    python("-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist"), cwd=sdist, env=environment)
    [wheel] = (tmp_path / "dist").iterdir()
    _check(wheel, tmp_path / "home")


@pytest.mark.slow
def test_without_a_compiler_the_build_fetches_one(sdist: Path, tmp_path: Path) -> None:
    environment = _without_compiler(tmp_path / "bin")
    words = ("-m", "pip", "wheel", "--no-deps", "-w", str(tmp_path / "dist"), str(sdist))
    python(*words, cwd=tmp_path, env=environment)
    [wheel] = (tmp_path / "dist").iterdir()
    _check(wheel, tmp_path / "home")


def test_a_build_requires_a_compiler_only_if_there_is_none(sdist: Path, tmp_path: Path) -> None:
    ask = "from hatchling.build import get_requires_for_build_wheel as ask; print(ask())"
    without = _without_compiler(tmp_path / "bin")
    assert "ziglang" in python("-c", ask, cwd=sdist, env=without).stdout
    assert "ziglang" not in python("-c", ask, cwd=sdist, env=without | {"CC": "my-compiler"}).stdout


def test_a_failed_build_names_the_compiler(sdist: Path, tmp_path: Path) -> None:
    words = ("-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist"))
    command = [sys.executable, *words]
    environment = _without_compiler(tmp_path / "bin") | {"CC": "no-such-compiler -O3"}
    built = subprocess.run(command, cwd=sdist, env=environment, capture_output=True, text=True, check=False)
    assert built.returncode != 0
    assert "cannot be compiled with no-such-compiler -O3" in built.stdout + built.stderr
