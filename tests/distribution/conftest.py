"""Fixtures: the files in dist/, and the unpacked tarballs as commands."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from distribution.__main__ import DIST, NOT_BUILT, version

collect_ignore_glob = [] if os.environ.get("RMQSTORE_TEST_DIST") else ["test_*.py"]
CROSS_LIBRARIES = "/usr/aarch64-linux-gnu"


@dataclass(frozen=True, slots=True)
class Tarball:
    """An unpacked tarball; `run` calls a program in it, with an emulator if it is for another architecture."""

    root: Path
    emulator: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)

    def run(
        self,
        *words: str | Path,
        program: str = "rmqstore",
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a program with an empty environment."""
        command = [*self.emulator, str(self.root / program), *map(str, words)]
        environment = {**self.variables, **(env or {})}
        return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def built(pattern: str) -> Path:
    """Return the file in dist/ that matches, or skip the test with the reason why it is not there."""
    found = sorted(DIST.glob(pattern))
    if not found:
        reasons = DIST / NOT_BUILT
        pytest.skip(reasons.read_text().strip() if reasons.exists() else "run make test-dist: dist/ is empty")
    assert len(found) == 1, found
    return found[0]


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function: `unpacked("linux-x86_64")` unpacks that tarball once."""
    folder = tmp_path_factory.mktemp("tarballs")

    def of_kind(kind: str) -> Path:
        archive = built(f"rmqstore-{version()}-{kind}.tar.gz")
        root = folder / archive.name.removesuffix(".tar.gz")
        if not root.exists():
            with tarfile.open(archive) as tar:
                tar.extractall(folder, filter="tar")
        return root

    return of_kind


@pytest.fixture(scope="session", params=["x86_64", "aarch64"])
def tarball(request: pytest.FixtureRequest, unpacked: Callable[[str], Path]) -> Tarball:
    """The small tarball of each architecture, if it can run here."""
    arch: str = request.param
    root = unpacked(f"linux-{arch}")
    if arch == platform.machine():
        return Tarball(root)
    emulator = shutil.which(f"qemu-{arch}-static")
    if emulator is None:
        pytest.skip(f"no qemu-{arch}-static (Debian: qemu-user-static)")
    if not Path(CROSS_LIBRARIES, "lib", "libstdc++.so.6").exists():
        pytest.skip(f"no {CROSS_LIBRARIES} (Debian: libc6-arm64-cross, libstdc++6-arm64-cross)")
    return Tarball(root, (emulator,), {"QEMU_LD_PREFIX": CROSS_LIBRARIES})


@pytest.fixture(scope="session")
def own(unpacked: Callable[[str], Path]) -> Tarball:
    """The small tarball for this machine."""
    return Tarball(unpacked(f"linux-{platform.machine()}"))
