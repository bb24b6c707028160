"""Forged journals that are only read: what they lead to is neither shown nor counted, and no number or text is odd."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqstore.documents.journal import open_journal
from rmqstore.views.lost import quarantined_index
from tests import damage
from tests.command import run, run_json
from tests.stores import copy_store

_SECRET = b"SECRET"


@pytest.fixture(scope="module")
def repaired(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one message in the lost+found of its repair."""
    store = copy_store("5.4.0-clean", tmp_path_factory.mktemp("repaired"))
    damage.garble(store / "commitlog" / "00000000000000065536", 20_000, 1_500)
    digest = str(run_json("recover", str(store), exit_code=1)["digest"])
    run("recover", str(store), "--apply", "--broker-is-stopped", "--force", digest)
    return store


@pytest.fixture
def journal(repaired: Path, tmp_path: Path) -> Path:
    """The journal of a copy of that store."""
    store = Path(shutil.copytree(repaired, tmp_path / "store", symlinks=True))
    return next((store / ".rmqstore").iterdir())


def _secret(place: Path) -> Path:
    """Give the saved record another unique id, as a record of somebody else."""
    data = place.read_bytes()
    at = data.index(b"UNIQ_KEY") + 9
    place.write_bytes(data[:at] + _SECRET + data[at + len(_SECRET) :])
    return place


def _link_to_a_file(journal: Path, victim: Path) -> None:
    saved = journal / "lost+found" / "82588.bin"
    saved.rename(victim / "82588.bin")
    saved.symlink_to(_secret(victim / "82588.bin"))


def _link_to_a_directory(journal: Path, victim: Path) -> None:
    shutil.copytree(journal / "lost+found", victim / "saved")
    shutil.rmtree(journal / "lost+found")
    _secret(victim / "saved" / "82588.bin")
    (journal / "lost+found").symlink_to(victim / "saved")


def _home(journal: Path, victim: Path) -> None:
    home = victim / ".rmqstore" / journal.name
    shutil.copytree(journal / "lost+found", home / "lost+found")
    _secret(home / "lost+found" / "82588.bin")
    _change(journal / "state", lambda row: row.update(homes=["", str(home)]))


def _change(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    row = json.loads(path.read_text())
    change(row)
    path.write_text(json.dumps(row))


@pytest.mark.parametrize("forge", [_link_to_a_file, _link_to_a_directory, _home])
def test_what_a_forged_journal_leads_to_is_not_shown(
    journal: Path, forge: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    store = journal.parent.parent
    victim = tmp_path / "victim"
    victim.mkdir()
    forge(journal, victim)
    page, rows = tmp_path / "page.html", tmp_path / "rows.csv"
    for words in (
        ["lost", str(store), "--json"],
        ["find", str(store), "log-15445/0/6", "--json"],
        ["get", str(store), "82588", "--json"],
        ["report", str(store), "--incident", str(journal), "-o", str(page), "--csv", str(rows)],
    ):
        result = run(*words)
        assert result.exit_code in (0, 1), result.output
        assert "SECRET" not in result.output
    assert _SECRET not in page.read_bytes() + rows.read_bytes()


@pytest.mark.parametrize("what", ["file", "directory"])
def test_an_index_in_quarantine_that_becomes_a_link_is_not_read(journal: Path, what: str, tmp_path: Path) -> None:
    path = journal / "quarantine" / "000001-20261121071022000"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(_SECRET)
    files, paths = quarantined_index(open_journal(journal))
    assert paths == [path]
    assert files.read_at(path, 6, 0) == _SECRET
    swapped = path if what == "file" else path.parent
    swapped.rename(tmp_path / "elsewhere")
    swapped.symlink_to(tmp_path / "elsewhere")
    assert files.read_at(path, 6, 0) == b""


def test_a_home_outside_of_the_store_is_not_counted(journal: Path, tmp_path: Path) -> None:
    home = tmp_path / "other" / ".rmqstore" / journal.name
    big = tmp_path / "big"
    big.mkdir()
    (big / "file").write_bytes(os.urandom(1 << 20))
    home.parent.mkdir(parents=True)
    home.symlink_to(big)
    before = _listed(journal)
    _change(journal / "state", lambda row: row.update(homes=["", str(home)]))
    after = _listed(journal)
    assert (after["bytes"], after["files_kept"]) == (before["bytes"], before["files_kept"])
    assert after["refused"] is not None


def _listed(journal: Path) -> dict[str, Any]:
    [row] = json.loads(run("journals", str(journal.parent.parent), "--json").stdout)["journals"]
    return dict(row)


def test_the_journal_of_another_store_is_missing_for_verify_too(journal: Path, tmp_path: Path) -> None:
    store = Path(shutil.copytree(journal.parent.parent, tmp_path / "other", symlinks=True))
    mine = store / ".rmqstore" / journal.name
    shutil.rmtree(mine)
    mine.mkdir()
    (mine / "journal").write_text(str(journal))
    report = json.loads(run("verify", str(store), "--json").stdout)
    assert [one["facts"]["state"] for one in report["findings"] if one["code"] == "DIR-OPEN-JOURNAL"] == ["missing"]
    assert [one["repair"] for one in report["fillers"]] == [None]


@pytest.mark.parametrize("place", ["loss", "facts"])
def test_a_deeply_nested_plan_is_damaged(journal: Path, place: str) -> None:
    path = journal / "plan.json"
    _change(path, lambda row: row[place].update(more=0))
    path.write_text(path.read_text().replace('"more": 0', f'"more": {"[" * 900}{"]" * 900}'))
    row = _listed(journal)
    assert (row["loss"], row["command"]) == (None, None)
    assert "nested deeper than 64" in row["refused"]
