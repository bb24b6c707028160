"""A plan and a journal of each release still work: this version undoes the journal, applies the plan, and undoes that.

`python -m distribution.keep` made the archives in fixtures/releases/, each with the version in its name.
"""

from __future__ import annotations

import hashlib
import json
import re
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.command import run
from tests.stores import FIXTURES

ARCHIVES = sorted((FIXTURES / "releases").glob("*.tar.gz"))


@pytest.fixture(params=ARCHIVES, ids=[path.name.removesuffix(".tar.gz") for path in ARCHIVES])
def release(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The unpacked archive of a release."""
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path, filter="data")
    [root] = tmp_path.iterdir()
    return root


def digests(store: Path) -> Mapping[str, str]:
    files = (path for path in store.rglob("*") if path.is_file() and ".rmqstore" not in path.parts)
    return {str(path.relative_to(store)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_there_is_an_archive() -> None:
    assert ARCHIVES


def test_a_journal_of_a_release_is_undone_and_its_plan_applied(release: Path) -> None:
    store, files = release / "store", json.loads((release / "files.json").read_text())
    assert digests(store) == files["after"]

    undone = run("undo", str(store), "--last")
    assert undone.exit_code == 0, undone.output
    assert digests(store) == files["before"]

    plan = release / "plan.json"
    written_for = re.search(r'"store": "(.*?)"', plan.read_text())
    assert written_for
    plan.write_text(plan.read_text().replace(written_for[1], str(store)))  # a plan is only for its own store
    applied = run("recover", str(store), "--plan", str(plan), "--apply")
    assert applied.exit_code == 0, applied.output
    assert digests(store) == files["after"]

    undone = run("undo", str(store), "--last")
    assert undone.exit_code == 0, undone.output
    assert digests(store) == files["before"]
