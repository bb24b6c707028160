"""The sdist and the wheels, one for each architecture."""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from pathlib import Path

from distribution.artifacts import ARCHITECTURES, ROOT, run, tools
from distribution.native import build_environment, compiler


def sdist(output: Path) -> Path:
    """Build the source distribution of the working tree."""
    run(tools(), "-m", "hatchling", "build", "-t", "sdist", "-d", output, cwd=ROOT, env=build_environment())
    [made] = output.glob("rmqstore-*.tar.gz")
    return made


def wheels(source: Path, output: Path) -> dict[str, Path]:
    """Build the wheels from a source distribution. Returns them by architecture."""
    made = {}
    for arch in ARCHITECTURES:
        with tempfile.TemporaryDirectory() as folder:
            with tarfile.open(source) as archive:
                archive.extractall(folder, filter="data")
            [tree] = Path(folder).iterdir()
            platform = f"manylinux2014_{arch}"
            settings = {"CC": compiler(arch), "CFLAGS": "-g0 -s", "RMQSTORE_WHEEL_PLATFORM": platform}
            new = Path(folder, "new")
            environment = build_environment(**settings)
            run(tools(), "-m", "hatchling", "build", "-t", "wheel", "-d", new, cwd=tree, env=environment)
            [wheel] = new.iterdir()
            made[arch] = Path(shutil.move(wheel, output / wheel.name))
    return made
