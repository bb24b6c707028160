"""Build hook: compile `rmqstore/scan/loops/` if a C compiler is available, and add the man pages to the wheel.

The C library is optional: without it, NumPy runs the same loops with the same results. It is not linked against Python,
so one wheel works with every Python version.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCES = Path("rmqstore", "scan", "loops")
LIBRARY = Path("rmqstore", "scan", "_native.so")
FLAGS = ("-O2", "-std=c11", "-Wall", "-Wextra", "-fPIC", "-shared")


class NativeLoops(BuildHookInterface):
    """The build hook; an editable installation gets the library in the source tree, without the man pages."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel" or os.name != "posix":
            return
        root = Path(self.root)
        if version != "editable":
            pages = sorted((root / "man").glob("*.[1-9]"))
            build_data["shared_data"].update({str(p): f"share/man/man{p.suffix[1:]}/{p.name}" for p in pages})
        failed = compile_library(root / SOURCES, root / LIBRARY)
        if failed:
            self.app.display_warning(f"rmqstore is built without its C loops, and uses NumPy instead: {failed}")
            return
        build_data["pure_python"] = False
        platform = os.environ.get("RMQSTORE_WHEEL_PLATFORM") or sysconfig.get_platform()  # make dist sets it
        build_data["tag"] = "py3-none-" + platform.replace("-", "_").replace(".", "_")
        build_data["artifacts"].append(LIBRARY.as_posix())


def compile_library(sources: Path, library: Path) -> str | None:
    """Compile the C loops into `library`, and return an error message, or None on success.

    The previous library is deleted first, so that a failed build cannot leave an outdated one behind.
    """
    library.unlink(missing_ok=True)
    if os.environ.get("RMQSTORE_NO_NATIVE"):
        return "RMQSTORE_NO_NATIVE is set"
    compiler = shlex.split(os.environ.get("CC", "")) or [next(filter(shutil.which, ("cc", "gcc", "clang")), "")]
    if not shutil.which(compiler[0]):
        return f"no C compiler {compiler[0]}".rstrip()
    made = library.with_name(f"{library.name}.{os.getpid()}")
    try:
        done = subprocess.run(
            [*compiler, *FLAGS, *shlex.split(os.environ.get("CFLAGS", "")), "-o", made, *sorted(sources.glob("*.c"))],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if done.returncode:
            return done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"{compiler[0]} failed"
        made.replace(library)
    except (OSError, subprocess.SubprocessError) as e:
        return str(e)
    finally:
        made.unlink(missing_ok=True)
    return None
