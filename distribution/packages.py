"""The .deb and .rpm: the tree of the tarball in /opt/rmqstore, built by nfpm (a Go module)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

from distribution.artifacts import CACHE, CannotBuild, clean_environment, run
from distribution.tree import COMPLETIONS

NFPM = "v2.44.0"
_HOME = "/opt/rmqstore"
_GO_NAMES = {"x86_64": "amd64", "aarch64": "arm64"}


def packages(root: Path, arch: str, version: str, output: Path) -> None:
    """Build both packages from the tree of a tarball. Errors: CannotBuild without Go or without the module."""
    shared = [
        *sorted(COMPLETIONS.values()),
        *(str(page.relative_to(root)) for page in sorted(root.glob("share/man/*/*"))),
    ]
    links = {f"/usr/{path}": f"{_HOME}/{path}" for path in shared} | {"/usr/bin/rmqstore": f"{_HOME}/rmqstore"}
    config = {
        "name": "rmqstore",
        "arch": _GO_NAMES[arch],
        "version": version.replace("rc", "~rc"),  # sorts before the release
        "version_schema": "none",
        "section": "admin",
        "maintainer": "rmqstore",
        "description": "Inspect, verify, repair and convert Apache RocketMQ broker stores without the broker",
        "license": "Apache-2.0",
        "contents": [
            {"src": str(root), "dst": _HOME, "type": "tree"},
            *({"src": to, "dst": place, "type": "symlink"} for place, to in links.items()),
        ],
        "overrides": {
            "deb": {"depends": ["libc6 (>= 2.17)", "libstdc++6"]},
            "rpm": {"depends": ["glibc", "libstdc++"]},
        },
    }
    path = CACHE / f"nfpm-{arch}.json"
    path.write_text(json.dumps(config))
    for kind in ("deb", "rpm"):
        run(_nfpm(), "package", "--config", path, "--packager", kind, "--target", output, env=clean_environment())


def _nfpm() -> Path:
    program = CACHE / "nfpm" / NFPM / "nfpm"
    if not program.exists():
        if not shutil.which("go"):
            raise CannotBuild("no go on PATH, which builds nfpm")
        module = f"github.com/goreleaser/nfpm/v2/cmd/nfpm@{NFPM}"
        environment = {**os.environ, "GOBIN": str(program.parent)}
        done = subprocess.run(("go", "install", module), env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CannotBuild(f"go cannot build nfpm: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    return program
