"""Wheels, checksums and packages in dist/; and a second build has the same bytes."""

from __future__ import annotations

import hashlib
import platform
import shutil
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from distribution.__main__ import DIST, build, version
from distribution.artifacts import PYTHON, wheels
from tests.distribution.conftest import built
from tests.stores import unpack

WHEELS = ("py3-none-manylinux2014_x86_64", "py3-none-manylinux2014_aarch64")


@pytest.mark.parametrize("tag", WHEELS)
def test_a_wheel_has_the_loops_of_its_architecture(tag: str) -> None:
    with zipfile.ZipFile(built(f"rmqstore-{version()}-{tag}.whl")) as wheel:
        loops = [name for name in wheel.namelist() if name.endswith(".so")]
        assert loops == ["rmqstore/scan/_native.so"]
        machine = ELFFile(BytesIO(wheel.read(loops[0])))["e_machine"]
    assert machine == ("EM_X86_64" if tag.endswith("x86_64") else "EM_AARCH64")


def test_an_index_accepts_the_wheels_and_the_sdist() -> None:
    files = [built(f"rmqstore-{version()}-{tag}.whl") for tag in WHEELS] + [built(f"rmqstore-{version()}.tar.gz")]
    done = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", *files], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_wheel_installs_into_an_empty_environment_without_a_network(tmp_path: Path) -> None:
    wheel = built(f"rmqstore-{version()}-py3-none-manylinux2014_{platform.machine()}.whl")
    if f"{sys.version_info[0]}.{sys.version_info[1]}" != PYTHON:
        pytest.skip(f"the wheels at hand are for Python {PYTHON}")
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "new"], check=True)
    python = tmp_path / "new" / "bin" / "python"
    words = ("-m", "pip", "install", "--quiet", "--no-index", "--find-links", wheels(platform.machine()), wheel)
    command: list[str | Path] = [python, *words]
    installed = subprocess.run(command, env={}, capture_output=True, text=True, check=False)
    assert installed.returncode == 0, installed.stderr
    command = [tmp_path / "new" / "bin" / "rmqstore", "verify", unpack("5.4.0-clean")]
    done = subprocess.run(command, env={}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Nothing is wrong with this store." in done.stdout


def test_sums_name_every_file() -> None:
    sums = (line.split("  ") for line in built("SHA256SUMS").read_text().splitlines())
    lines = {name: digest for digest, name in sums}
    files = {path.name: path for path in DIST.iterdir() if path.name not in ("SHA256SUMS", "not-built.txt")}
    assert set(lines) == set(files)
    for name, path in files.items():
        assert hashlib.sha256(path.read_bytes()).hexdigest() == lines[name], name


def test_a_second_build_has_the_same_bytes(tmp_path: Path) -> None:
    built(f"rmqstore-{version()}-linux-{platform.machine()}.tar.gz")
    build(tmp_path, (platform.machine(),), full=False)
    made = sorted(path for path in tmp_path.iterdir() if path.name != "SHA256SUMS")
    assert len(made) >= 6
    different = [path.name for path in made if path.read_bytes() != (DIST / path.name).read_bytes()]
    assert different == []


@pytest.mark.parametrize(("kind", "lister"), [("deb", ("dpkg-deb", "--contents")), ("rpm", ("rpm", "-qlp"))])
def test_a_package_has_the_tool_and_its_manual_pages(kind: str, lister: tuple[str, ...]) -> None:
    [name, *_] = sorted(path.name for path in DIST.glob(f"*.{kind}")) or [f"*.{kind}"]
    package = built(name)
    if shutil.which(lister[0]) is None:
        pytest.skip(f"no {lister[0]}")
    listed = subprocess.run([*lister, package], capture_output=True, text=True, check=True).stdout
    for path in ("/opt/rmqstore/rmqstore", "/usr/bin/rmqstore", "/usr/share/man/man1/rmqstore.1"):
        assert path in listed
