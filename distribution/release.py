"""`make release VERSION=1.2.3`: all steps that need no other host, in order; it stops at the first that fails."""

from __future__ import annotations

import datetime
import re
import subprocess
import sys

from distribution.artifacts import ROOT

_PLACES = {
    "rmqstore/__init__.py": r'(?<=^__version__ = ").*(?=")',
    "README.md": r"(?<=rmqstore-)\d[\w.]*(?=-linux)",
    "README.zh-CN.md": r"(?<=rmqstore-)\d[\w.]*(?=-linux)",
}
"""Where the version occurs."""


def run(*words: str) -> str:
    """Run a command and show its output. Errors: CalledProcessError."""
    print("$", " ".join(words), flush=True)
    return subprocess.run(
        words, cwd=ROOT, check=True, stdout=subprocess.PIPE if words[0] == "git" else None, text=True
    ).stdout


def set_version(version: str) -> None:
    """Write the version wherever it occurs, and date the section of the changelog."""
    for name, pattern in _PLACES.items():
        path = ROOT / name
        text, count = re.subn(pattern, version, path.read_text("utf-8"), flags=re.MULTILINE)
        if not count:
            raise SystemExit(f"{name} names no version")
        path.write_text(text, "utf-8")
    changes = ROOT / "CHANGELOG.md"
    text = changes.read_text("utf-8")
    if f"## [{version}]" not in text:
        day = datetime.datetime.now(datetime.UTC).date()
        changes.write_text(
            text.replace("## [Unreleased]\n", f"## [Unreleased]\n\n## [{version}] - {day}\n", 1), "utf-8"
        )


def main(version: str) -> None:
    if not re.fullmatch(r"\d+\.\d+\.\d+(rc\d+)?", version):
        raise SystemExit("usage: make release VERSION=1.2.3 (or 1.2.3rc1)")
    if run("git", "status", "--porcelain").strip():
        raise SystemExit("commit your changes first")
    set_version(version)
    run("make", "man", "pictures", "lint")
    run(sys.executable, "-m", "distribution.keep")
    run("make", "test", "dist", "test-dist")
    run("git", "add", "--all")
    if run("git", "status", "--porcelain").strip():
        run("git", "commit", "--quiet", "-m", f"release {version}")
        run("make", "dist")  # its files have the time of the commit
    run("git", "tag", "-a", f"v{version}", "-m", f"rmqstore {version}")
    print(
        f"""
dist/ has the release {version}. What is left needs a network:

    git push && git push origin v{version}
    {sys.executable} -m twine upload dist/*.whl dist/rmqstore-{version}.tar.gz
    attach all files of dist/ to the release v{version}, with its section of CHANGELOG.md
    podman build -t rmqstore:{version} . && podman push rmqstore:{version}
    make site, and publish site/"""
    )


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) == 2 else "")
