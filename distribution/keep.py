"""Keeps a plan and a journal of this release: `python -m distribution.keep` writes fixtures/releases/VERSION.tar.gz.

Later versions must be able to undo the journal and to apply the plan; tests/repair/test_kept_releases.py tries it. The
archive contains `store` (repaired, with its journal), `plan.json`, and `files.json`: the SHA-256 of each file before
and after the repair.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from distribution.__main__ import version
from distribution.archive import pack
from distribution.artifacts import ROOT, epoch

FOLDER = ROOT / "fixtures" / "releases"
_SOUND = "5.4.0-clean"


def digests(store: Path) -> dict[str, str]:
    """Return the SHA-256 of every file of a store, without its journals."""
    files = (path for path in store.rglob("*") if path.is_file() and ".rmqstore" not in path.parts)
    return {str(path.relative_to(store)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(files)}


def damage(store: Path) -> None:
    """Damage a store so that its repair has steps of many kinds: overwrite, create, truncate, discard and move."""
    log = sorted((store / "commitlog").iterdir())
    content = bytearray(log[3].read_bytes())
    content[47521] ^= 1  # one bit of a body: it can be restored
    content[20_000:20_300] = b"\xa5" * 300  # messages that are lost
    log[3].write_bytes(content)
    queue = next(path for path in sorted((store / "consumequeue").rglob("*")) if path.is_file())
    queue.unlink()
    sorted((store / "index").iterdir())[0].unlink()
    (store / "commitlog" / "notes.txt").write_text("a stray file\n")
    (store / "abort").touch()
    (store / "checkpoint").write_bytes(bytes(4096))
    (store / "config" / "consumerOffset.json").write_text("{")
    for path in store.rglob("*"):
        os.utime(path, (epoch(), epoch()))  # the archive has this time too; another one would be a later change


def main() -> None:
    if (FOLDER / f"{version()}.tar.gz").exists():
        return  # what a release wrote stays
    rmqstore = [sys.executable, "-m", "rmqstore"]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, version())
        with tarfile.open(ROOT / "fixtures" / "stores" / f"{_SOUND}.tar.gz") as archive:
            archive.extractall(root, filter="data")
        store = (root / _SOUND).rename(root / "store")
        damage(store)
        files = {"before": digests(store)}
        plan = root / "plan.json"
        subprocess.run([*rmqstore, "recover", store, "--plan-out", plan], check=False, cwd=ROOT)
        applied = subprocess.run([*rmqstore, "recover", store, "--plan", plan, "--apply"], check=False, cwd=ROOT)
        print("exit code of the repair:", applied.returncode)
        files["after"] = digests(store)
        (root / "files.json").write_text(json.dumps(files, indent=1))
        FOLDER.mkdir(exist_ok=True)
        pack(root, FOLDER / f"{version()}.tar.gz")


if __name__ == "__main__":
    main()
