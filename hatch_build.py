"""Build hook: compile `rmqstore/scan/loops/`, and add the man pages to the wheel.

The machine's C compiler is used if there is one; otherwise the build requires `ziglang`, a C compiler from the package
index. The library is not linked against Python, so one wheel works with every Python version.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCES = Path("rmqstore", "scan", "loops")
LIBRARY = Path("rmqstore", "scan", "_native.so")
FLAGS = ("-O2", "-std=c11", "-Wall", "-Wextra", "-fPIC", "-shared")
ZIG = "ziglang==0.17.1"


class NativeLoops(BuildHookInterface):
    """The build hook; an editable installation gets the library in the source tree, without the man pages."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Return what the build of a wheel needs beside Hatchling."""
        return [] if self.target_name != "wheel" or own_compiler() else [ZIG]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        root = Path(self.root)
        if version != "editable":
            pages = sorted((root / "man").glob("*.[1-9]"))
            build_data["shared_data"].update({str(p): f"share/man/man{p.suffix[1:]}/{p.name}" for p in pages})
        compile_library(root / SOURCES, root / LIBRARY)
        build_data["pure_python"] = False
        wanted = os.environ.get("RMQSTORE_WHEEL_PLATFORM") or sysconfig.get_platform()  # make dist sets it
        build_data["tag"] = "py3-none-" + wanted.replace("-", "_").replace(".", "_")
        build_data["artifacts"].append(LIBRARY.as_posix())


def own_compiler() -> list[str]:
    """Return the command of the C compiler in CC, or of the machine's; empty if there is none."""
    if given := os.environ.get("CC"):
        return shlex.split(given)
    return [name for name in ("cc", "gcc", "clang") if shutil.which(name)][:1]


def zig() -> list[str]:
    """Return the command of Zig's C compiler. The target keeps it from compiling for the CPU of this machine alone."""
    command = [sys.executable, "-m", "ziglang", "cc"]
    if sys.platform != "linux":
        return command
    libc = "gnu.2.17" if platform.libc_ver()[0] == "glibc" else "musl"
    return [*command, "-target", f"{platform.machine()}-linux-{libc}"]


def compile_library(sources: Path, library: Path) -> None:
    """Compile the C loops into `library`. Errors: SystemExit, with what the compiler says.

    The previous library is deleted first, so that a failed build cannot leave an outdated one behind.
    """
    library.unlink(missing_ok=True)
    compiler = own_compiler() or zig()
    made = library.with_name(f"{library.name}.{os.getpid()}")
    words = [*compiler, *FLAGS, *shlex.split(os.environ.get("CFLAGS", "")), "-o", made, *sorted(sources.glob("*.c"))]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"rmqstore's C loops cannot be compiled with {shlex.join(compiler)}:\n{done.stderr}")
        made.replace(library)
    except OSError as e:
        raise SystemExit(f"rmqstore's C loops cannot be compiled with {shlex.join(compiler)}: {e}") from e
    finally:
        made.unlink(missing_ok=True)
