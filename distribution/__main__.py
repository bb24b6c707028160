"""`make dist`: build everything into dist/. `--skip-missing` leaves out what cannot be built here, and says why."""

from __future__ import annotations

import platform
import re
import shutil
import sys
import tempfile
from pathlib import Path

from distribution import archive, packages, sbom, tree, wheels
from distribution.artifacts import ARCHITECTURES, ROOT, CannotBuild

DIST = ROOT / "dist"
NOT_BUILT = "not-built.txt"
"""In DIST, if something could not be built: what, and why."""


def version() -> str:
    """Return the version in rmqstore/__init__.py."""
    found = re.search(r'^__version__ = "(.*)"', (ROOT / "rmqstore" / "__init__.py").read_text(), re.MULTILINE)
    assert found
    return found[1]


def build(output: Path, architectures: tuple[str, ...] = ARCHITECTURES, *, full: bool = True) -> dict[str, str]:
    """Build everything into an empty directory. Returns what could not be built, with the reason."""
    missing: dict[str, str] = {}
    try:
        made = wheels.wheels(wheels.sdist(output), output)
    except CannotBuild as reason:
        return {"wheels, tarballs and packages": str(reason)}
    try:
        with tempfile.TemporaryDirectory() as folder:
            _tarballs(Path(folder), {arch: made[arch] for arch in architectures}, output, missing, full=full)
    except CannotBuild as reason:
        missing["tarballs and packages"] = str(reason)
    archive.write_sums(output)
    return missing


def _tarballs(folder: Path, made: dict[str, Path], output: Path, missing: dict[str, str], *, full: bool) -> None:
    here = platform.machine()
    if here not in made:
        raise CannotBuild(f"no interpreter for {here}, which compiles the Python sources")
    runnable = folder / f"rmqstore-{version()}-linux-{here}"
    for arch in sorted(made, key=lambda arch: arch != here):  # the other one needs this machine's interpreter
        root = folder / f"rmqstore-{version()}-linux-{arch}"
        (root / "lib").mkdir(parents=True)
        tree.add_interpreter(root, arch)
        tree.add_packages(root, arch, "tool.txt")
        tree.add_rmqstore(root, arch, made[arch])
        tree.add_completions(root, runnable)
        _finish(root, arch, runnable, output)
        try:
            packages.packages(root, arch, version(), output)
        except CannotBuild as reason:
            missing["packages"] = str(reason)
        if full:
            larger = folder / f"rmqstore-{version()}-full-linux-{arch}"
            shutil.copytree(root, larger, symlinks=True)
            tree.add_packages(larger, arch, "full.txt")
            shutil.copy(Path(__file__).with_name("certificates.py"), larger / tree.SITE / "ssl.py")
            _finish(larger, arch, runnable, output)


def _finish(root: Path, arch: str, runnable: Path, output: Path) -> None:
    tree.add_papers(root, arch, version())
    tree.compile_sources(root, runnable)
    archive.pack(root, output / f"{root.name}.tar.gz")
    sbom.write_sbom(root, arch, version(), output / f"{root.name}.cdx.json")


def main() -> int:
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    missing = build(DIST)
    for path in sorted(DIST.iterdir()):
        print(f"{path.stat().st_size:>12,} B  dist/{path.name}")
    for what, reason in missing.items():
        print(f"not built: {what}: {reason}", file=sys.stderr)
    if missing:
        (DIST / NOT_BUILT).write_text("".join(f"{what}: {reason}\n" for what, reason in missing.items()))
    return 1 if missing and "--skip-missing" not in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
