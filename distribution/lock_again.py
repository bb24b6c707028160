"""Writes the hashes in lock/ again, after a version there has changed: `python -m distribution.lock_again`."""

from __future__ import annotations

import hashlib
import re
import tempfile
from pathlib import Path

from distribution.artifacts import ARCHITECTURES, LOCK, SOURCES_OF_ZLIB, pip, platform_options

_HOSTS = ("--platform", "manylinux2014_{0}", "--platform", "manylinux_2_17_{0}", "--platform", "manylinux2010_{0}")


def hashes(pin: str, kind: str) -> list[str]:
    """Return the SHA-256 of every file that a build may take for `name==version`."""
    found = set()
    for arch in ARCHITECTURES:
        choice = platform_options(arch)
        if kind == "zlib":
            choice = SOURCES_OF_ZLIB
        elif kind == "build":  # the tools run on the building machine, with its own Python
            choice = (
                "--only-binary",
                ":all:",
                *(word.format(arch) for word in (*_HOSTS, "--platform", "manylinux_2_12_{0}")),
            )
        with tempfile.TemporaryDirectory() as folder:
            pip("download", "--no-deps", *choice, "-d", folder, pin)
            [file] = Path(folder).iterdir()
            found.add(hashlib.sha256(file.read_bytes()).hexdigest())
    return sorted(found)


def main() -> None:
    for lock in sorted(LOCK.glob("*.txt")):
        if lock.name == "maven.txt":
            continue
        lines = [line for line in lock.read_text().splitlines() if line.startswith("#")]
        for pin in re.findall(r"^[\w.-]+==[\w.]+", lock.read_text(), re.MULTILINE):
            lines += [" \\\n    ".join([pin, *(f"--hash=sha256:{value}" for value in hashes(pin, lock.stem))])]
        lock.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
