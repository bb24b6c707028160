"""Tar files that have the same bytes each time, and checksums."""

from __future__ import annotations

import gzip
import hashlib
import tarfile
from pathlib import Path

from distribution.artifacts import epoch


def pack(root: Path, output: Path) -> None:
    """Pack a directory: sorted, owned by root, with one time and with modes that do not depend on the umask."""
    with (
        output.open("wb") as file,
        gzip.GzipFile("", "wb", 6, file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive,
    ):
        for path in [root, *sorted(root.rglob("*"))]:
            archive.add(path, str(path.relative_to(root.parent)), recursive=False, filter=_plain)


def _plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = "root"
    info.mtime = epoch()
    info.mode = 0o755 if info.isdir() or info.mode & 0o100 else 0o644
    return info


def write_sums(folder: Path) -> None:
    """Write SHA256SUMS of all other files of a directory, as `sha256sum -c` reads it."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name != "SHA256SUMS")
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (folder / "SHA256SUMS").write_text("".join(lines))
