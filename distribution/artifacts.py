"""Artifacts from outside: fetched once through the ordinary clients as they are configured, and checked by SHA-256."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = Path(__file__).resolve().parent / "lock"
CACHE = Path(os.environ.get("RMQSTORE_DIST_CACHE") or ROOT / ".cache" / "dist").resolve()
ARCHITECTURES = ("x86_64", "aarch64")
PYTHON = "3.11"
"""Version of the interpreter in the tarballs."""
SOURCES_OF_ZLIB = ("--no-binary", "grpcio")
"""pip reads the metadata of a source distribution by building it. `:all:` would compile what that needs, for half an
hour."""
_MAVEN_NAMES = {"x86_64": "linux-x86_64", "aarch64": "linux-arm64"}


class CannotBuild(Exception):
    """A tool or the network is missing here; the message says which."""


def run(*words: str | Path, cwd: Path = ROOT, env: Mapping[str, str] | None = None) -> str:
    """Run a command, and return its output. Errors: CalledProcessError, after its output was printed."""
    done = subprocess.run([str(word) for word in words], cwd=cwd, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.stderr.write(done.stdout + done.stderr)
        done.check_returncode()
    return done.stdout


def pip(*words: str | Path) -> None:
    """Run pip of the interpreter that runs this. Errors: CannotBuild if it cannot download."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", *map(str, words)]
    done = subprocess.run([*command, "--quiet"], capture_output=True, text=True, check=False)
    if not done.returncode:
        return
    if "DO NOT MATCH THE HASHES" in done.stderr or "--no-index" in words:
        raise ValueError(f"pip {words[0]} failed:\n{done.stderr}")
    raise CannotBuild(f"pip cannot download: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")


def platform_options(arch: str) -> tuple[str, ...]:
    """Return the options that make pip choose wheels for the interpreter in the tarballs."""
    platforms = ("--platform", f"manylinux2014_{arch}", "--platform", f"manylinux_2_17_{arch}")
    return ("--only-binary", ":all:", "--python-version", PYTHON, "--implementation", "cp", *platforms)


@functools.cache
def wheels(arch: str) -> Path:
    """Return a directory with the wheels of lock/tool.txt and lock/full.txt."""
    return _downloaded(CACHE / "wheels" / arch, ("tool.txt", "full.txt"), *platform_options(arch))


@functools.cache
def zlib_sources() -> Path:
    """Return the directory of zlib's C files: a source distribution on the package index contains them."""
    folder = _downloaded(CACHE / "zlib", ("zlib.txt",), *SOURCES_OF_ZLIB)
    [archive] = folder.glob("*.tar.gz")
    unpacked = folder / archive.name.removesuffix(".tar.gz")
    if not unpacked.exists():
        shutil.unpack_archive(archive, folder, filter="data")
    return unpacked / "third_party" / "zlib"


def _downloaded(folder: Path, locks: tuple[str, ...], *options: str) -> Path:
    """Download what the lock files name, unless this directory has exactly it."""
    words: list[str | Path] = ["download", "--no-deps", "--require-hashes", *options, "-d", folder]
    words += [word for name in locks for word in ("-r", LOCK / name)]
    state = hashlib.sha256(b"".join((LOCK / name).read_bytes() for name in locks)).hexdigest()
    stamp = folder / ".complete"
    if not stamp.exists() or stamp.read_text() != state:
        shutil.rmtree(folder, ignore_errors=True)
        pip(*words)
        stamp.write_text(state)
    return folder


@functools.cache
def interpreter(arch: str) -> Path:
    """Return the unpacked interpreter of an architecture, from Maven."""
    [line] = [
        line
        for line in (LOCK / "maven.txt").read_text().splitlines()
        if line.partition(" ")[0].endswith(_MAVEN_NAMES[arch])
    ]
    coordinates, expected = line.split()
    _, name, version, _, classifier = coordinates.split(":")
    jar = CACHE / "maven" / f"{name}-{version}-{classifier}.jar"
    if not jar.exists():
        if not shutil.which("mvn"):
            raise CannotBuild("no mvn on PATH, which downloads the interpreter")
        words = ("mvn", "-q", "-B", "dependency:copy", f"-Dartifact={coordinates}", f"-DoutputDirectory={jar.parent}")
        done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=CACHE.parent)
        if done.returncode or not jar.exists():
            raise CannotBuild(f"mvn cannot download {coordinates}")
    if hashlib.sha256(jar.read_bytes()).hexdigest() != expected:
        raise ValueError(f"{jar} is not what {LOCK / 'maven.txt'} says: remove it")
    unpacked = CACHE / "maven" / f"{expected[:16]}-{arch}"
    if not unpacked.exists():
        partial = unpacked.with_suffix(f".{os.getpid()}")
        with zipfile.ZipFile(jar) as archive:
            archive.extractall(partial)
        partial.replace(unpacked)
    return unpacked / "org" / "bytedeco" / "cpython" / classifier


@functools.cache
def tools() -> Path:
    """Return the interpreter of a virtual environment with what lock/build.txt names: the compiler and Hatchling."""
    lock = LOCK / "build.txt"
    home = CACHE / "tools" / hashlib.sha256(lock.read_bytes()).hexdigest()[:16]
    python = home / "bin" / "python"
    if not (home / ".complete").exists():
        shutil.rmtree(home, ignore_errors=True)
        run(sys.executable, "-m", "venv", "--without-pip", home)
        pip("--python", python, "install", "--no-deps", "--require-hashes", "--only-binary", ":all:", "-r", lock)
        (home / ".complete").touch()
    return python


@functools.cache
def epoch() -> int:
    """Return the time of all files that are built: of the last commit, so that each build has the same. Unit: s."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    return int(given or run("git", "log", "-1", "--format=%ct"))


def clean_environment(**more: str) -> dict[str, str]:
    """Return an environment in which a build does not depend on the caller's settings."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR", "LANG") if name in os.environ}
    return kept | {"SOURCE_DATE_EPOCH": str(epoch()), "PYTHONHASHSEED": "0", **more}
