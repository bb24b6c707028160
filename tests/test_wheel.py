"""The sdist and the wheel: built, unpacked, and run on a real store, with and without the C loops."""

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
ASK = "from rmqstore.scan import native; print(native.load() is not None)"


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


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("compiler", ["", "none"])
def test_wheel_built_from_the_sdist_verifies_a_store(compiler: str, sdist: Path, tmp_path: Path) -> None:
    tree, home = tmp_path / "tree", tmp_path / "home"
    shutil.copytree(sdist, tree)
    has_compiler = not compiler and any(shutil.which(name) for name in ("cc", "gcc", "clang"))
    environment = {k: v for k, v in os.environ.items() if k not in ("CC", "CFLAGS", "PYTHONPATH")}
    if compiler:
        environment["CC"] = str(tmp_path / "no-such-compiler")

    words = ("-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist"))
    built = python(*words, cwd=tree, env=environment)
    [wheel] = (tmp_path / "dist").iterdir()
    assert wheel.name.endswith("-py3-none-any.whl") is not has_compiler
    assert ("without its C loops" in built.stdout + built.stderr) is not has_compiler
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(home)
    assert (home / "rmqstore" / "scan" / "_native.so").exists() is has_compiler
    pages = {path.relative_to(path.parent.parent).as_posix() for path in home.glob("*.data/data/share/man/man?/*")}
    assert pages == {f"man{path.suffix[1:]}/{path.name}" for path in (ROOT / "man").iterdir()}
    schemas = {path.name for path in (home / "rmqstore" / "schemas").iterdir()}
    assert schemas == {f"{name}.json" for name in DOCUMENTS}

    environment["PYTHONPATH"] = str(home)
    assert python("-c", ASK, cwd=tmp_path, env=environment).stdout.strip() == str(has_compiler)
    ran = python("-m", "rmqstore", "verify", str(unpack("5.4.0-clean")), "--json", cwd=tmp_path, env=environment)
    assert json.loads(ran.stdout)["commitlog"]["messages"] > 0
