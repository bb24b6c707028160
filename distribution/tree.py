"""The files of a tarball: the interpreter, the packages, the launcher, manual pages, completions, licences."""

from __future__ import annotations

import shutil
from pathlib import Path

from distribution import native
from distribution.artifacts import (
    LOCK,
    PYTHON,
    ROOT,
    clean_environment,
    interpreter,
    pip,
    platform_options,
    run,
    wheels,
    zlib_sources,
)

LIBRARY = Path("lib", f"python{PYTHON}")
SITE = LIBRARY / "site-packages"

# The rest of the interpreter: what is not needed to run rmqstore, or would need libraries that a system may lack.
_LEFT_OUT = (
    *(
        "**/test",
        "idlelib",
        "tkinter",
        "turtledemo",
        "lib2to3",
        "ensurepip",
        "pydoc_data",
        "distutils",
        "venv",
        "curses",
    ),
    *(
        "config-*",
        "site-packages/*",
        "sqlite3",
        "dbm",
        "xml",
        "xmlrpc",
        "__phello__",
        "turtle.py",
        "ssl.py",
    ),
)
_MODULES_LEFT_OUT = (
    *("_ssl", "_hashlib", "_bz2", "_crypt", "_dbm", "_gdbm", "_uuid", "nis", "ossaudiodev", "spwd", "_ctypes_test"),
    *("_test*", "_xx*", "xxlimited*", "pyexpat", "_elementtree", "audioop"),
)
_NOT_NEEDED_OF_PACKAGES = (
    "tests",
    "include",
    "*.h",
    "*.hpp",
    "*.pxd",
    "*.pyx",
    "*.pyi",
    "*.a",
    "RECORD",
    "INSTALLER",
    "REQUESTED",
)
COMPLETIONS = {
    "bash": "share/bash-completion/completions/rmqstore",
    "zsh": "share/zsh/site-functions/_rmqstore",
    "fish": "share/fish/vendor_completions.d/rmqstore.fish",
}
_README = """rmqstore {version} for Linux on {arch}, with everything that it needs except glibc (2.17+) and libstdc++.

    ./rmqstore verify /data/rocketmq/store

It runs from any directory, also through a symbolic link: ln -s "$PWD/rmqstore" /usr/local/bin/rmqstore
Manual pages: man -M share/man rmqstore. Completion: share/. Licences: LICENSE and licenses/.
"""


def add_interpreter(root: Path, arch: str) -> None:
    """Copy the interpreter without what rmqstore does not use, and compile the launcher and zlib."""
    source = interpreter(arch)
    shutil.copytree(source / LIBRARY, root / LIBRARY)
    for pattern in _LEFT_OUT:
        _remove(root / LIBRARY, pattern)
    modules = root / LIBRARY / "lib-dynload"
    for name in _MODULES_LEFT_OUT:
        _remove(modules, f"{name}.cpython-*.so")
    shutil.copy(source / "libffi.so.6", modules)
    shutil.copy(source / "libpython3.11.so.1.0", root / "lib")
    native.zlib(arch, root / "lib" / "libz.so.1")
    newer = [native.require_only_old_glibc(path) for path in sorted(root.rglob("*.so*"))]
    native.launcher(arch, root / "rmqstore", with_newer_symbols=any(newer))
    (root / "bin").mkdir()
    shutil.copy(root / "rmqstore", root / "bin" / f"python{PYTHON}")


def add_packages(root: Path, arch: str, lock: str) -> None:
    """Install the packages of a lock file."""
    words = ("install", "--no-index", "--no-deps", "--require-hashes", "--no-compile", *platform_options(arch))
    pip(*words, "--find-links", wheels(arch), "--target", root / SITE, "-r", LOCK / lock)
    shutil.rmtree(root / SITE / "bin", ignore_errors=True)
    shutil.rmtree(root / SITE / "share", ignore_errors=True)
    for pattern in _NOT_NEEDED_OF_PACKAGES:
        _remove(root / SITE, f"**/{pattern}")


def add_rmqstore(root: Path, arch: str, wheel: Path) -> None:
    """Install rmqstore itself, with its manual pages."""
    options = ("--no-index", "--no-deps", "--no-compile", *platform_options(arch))
    pip("install", *options, "--target", root / SITE, wheel)
    shutil.rmtree(root / SITE / "bin", ignore_errors=True)
    shutil.move(root / SITE / "share", root / "share")
    for name in ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json"):
        _remove(root / SITE, f"rmqstore-*/{name}")


def add_papers(root: Path, arch: str, version: str) -> None:
    """Add README, and the licence of everything."""
    (root / "README").write_text(_README.format(version=version, arch=arch))
    shutil.copy(ROOT / "LICENSE", root)
    folder = root / "licenses"
    folder.mkdir(exist_ok=True)
    shutil.copy(root / LIBRARY / "LICENSE.txt", folder / "CPython.txt")
    shutil.copy(native.HERE / "licenses" / "libffi.txt", folder)
    shutil.copy(zlib_sources() / "zlib.h", folder / "zlib.txt")
    for info in sorted((root / SITE).glob("*.dist-info")):
        name = info.name.split("-")[0]
        if (native.HERE / "licenses" / f"{name}.txt").exists():  # its wheel has no text
            shutil.copy(native.HERE / "licenses" / f"{name}.txt", folder)
        for paper in sorted(info.rglob("*")):
            if paper.is_file() and paper.name.upper().startswith(("LICEN", "COPYING", "NOTICE", "AUTHORS")):
                shutil.copy(paper, folder / f"{name}-{paper.name}")


def add_completions(root: Path, runnable: Path) -> None:
    """Add the files with which shells complete commands; `runnable` is a tree for this machine."""
    for shell, place in COMPLETIONS.items():
        text = run(runnable / "rmqstore", env=clean_environment(_RMQSTORE_COMPLETE=f"{shell}_source"))
        (root / place).parent.mkdir(parents=True)
        (root / place).write_text(text)


def compile_sources(root: Path, runnable: Path) -> None:
    """Compile the Python sources: a start compiles and writes nothing. One process, so that bytes are the same."""
    words = ("-s", "-B", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", "-s", root)
    run(runnable / "bin" / f"python{PYTHON}", *words, root / "lib", env=clean_environment())


def _remove(folder: Path, pattern: str) -> None:
    for path in list(folder.glob(pattern)):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
