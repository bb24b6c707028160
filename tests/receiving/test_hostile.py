"""`rmqstore receive` into a repository, and from a master, that a stranger has made."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqstore.receiving import receive as loop
from rmqstore.receiving.proof import Prover
from rmqstore.receiving.spool import Spool
from tests.command import run
from tests.receiving.fake_master import SIZE, FakeMaster, log_of, record

NAME = "a"
STATE = ".rmqstore/received.json"
CONTENT = b"of another\n"


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A directory outside of the repository, with files of the names that a spool has."""
    for name in (f"commitlog/{SIZE:020d}", "config/topics.json", STATE, "lock"):
        path = tmp_path / "victim" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(CONTENT)
    return tmp_path / "victim"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A repository with a spool of two files."""
    with FakeMaster(log_of(60)) as master:
        result = run("receive", master.address, str(tmp_path / "repo"), "--name", NAME, "--until-caught-up")
    assert result.exit_code == 0, result.stderr
    assert (tmp_path / "repo" / NAME / "receiving/commitlog" / f"{SIZE:020d}").stat().st_size == SIZE
    return tmp_path / "repo"


def tree(folder: Path) -> dict[str, tuple[int, bytes]]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): (path.stat().st_mode, path.read_bytes()) for path in files}


def receive(repo: Path, log: bytearray) -> tuple[int, str]:
    with FakeMaster(log) as master:
        result = run("receive", master.address, str(repo), "--name", NAME, "--until-caught-up")
    assert "Traceback" not in result.stderr
    return result.exit_code, result.stderr


@pytest.mark.parametrize("place", ["", "receiving", "receiving/commitlog", "receiving/config", "receiving/.rmqstore"])
def test_a_link_in_the_place_of_a_directory_is_refused(place: str, repo: Path, victim: Path) -> None:
    path = repo / NAME / place
    shutil.rmtree(path)
    path.symlink_to(victim / path.name if place.count("/") else victim)
    before = tree(victim)
    code, said = receive(repo, log_of(80))
    assert (code, f"{path} is a link" in said) == (4, True), said
    assert tree(victim) == before


@pytest.mark.parametrize("name", [f"commitlog/{SIZE:020d}", STATE, "lock", "config/topics.json.tmp", f"{STATE}.tmp"])
@pytest.mark.parametrize("how", ["link", "hard link"])
def test_nothing_is_written_through_a_link_to_a_file(name: str, how: str, repo: Path, victim: Path) -> None:
    path = repo / NAME / "receiving" / name
    path.unlink(missing_ok=True)
    target = victim / name.removesuffix(".tmp")
    if how == "link":
        path.symlink_to(target)
    else:
        path.hardlink_to(target)
    before = tree(victim)
    receive(repo, log_of(80))
    assert tree(victim) == before


@pytest.mark.parametrize("name", [f"commitlog/{SIZE:020d}", STATE, "lock", "config/topics.json"])
def test_a_pipe_in_a_spool_is_not_waited_for(name: str, repo: Path) -> None:
    path = repo / NAME / "receiving" / name
    path.unlink()
    os.mkfifo(path)
    code, said = receive(repo, log_of(80))
    assert code in (0, 4), said


@pytest.mark.parametrize("place", ["", "commitlog", "config", ".rmqstore"])
def test_a_directory_that_becomes_a_link_while_it_is_written_is_not_followed(
    place: str, repo: Path, victim: Path
) -> None:
    before = tree(victim)
    with Spool(repo / NAME) as spool:
        path = spool.root / place
        path.rename(path.with_name("away"))
        path.symlink_to(victim / place if place else victim)
        spool.put_config("topics.json", b"{}")
        spool.start_at(spool.begin)
        spool.drop_before(spool.end)
        spool._open(2 * SIZE)
    assert tree(victim) == before


@pytest.mark.parametrize(
    "change",
    [
        {"file_size": float("inf")},
        {"begin": float("inf")},
        {"begin": 10**30},
        {"damaged": [[-1, -5]]},
        {"damaged": [[5, 5]]},
        {"damaged": [[0, float("nan")]]},
    ],
    ids=str,
)
def test_a_forged_state_is_damaged(change: dict[str, Any], repo: Path) -> None:
    path = repo / NAME / "receiving" / STATE
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    code, said = receive(repo, log_of(80))
    assert (code, "received.json is damaged" in said) == (4, True), said


class Lying(FakeMaster):
    """A master that says that its log is from `said[0]` to `said[1]`."""

    def __init__(self, log: bytearray, said: tuple[int, int]) -> None:
        super().__init__(log)
        self.said = said

    def _respond(self, code: int, fields: dict[str, str]) -> tuple[int, bytes, str]:
        if code == 28:
            begin, end = map(str, self.said)
            table = {"brokerVersionDesc": "V5_4_0", "commitLogMinOffset": begin, "commitLogMaxOffset": end}
            return 0, json.dumps({"table": table}).encode(), ""
        return super()._respond(code, fields)


@pytest.mark.parametrize("said", [(10**30, 10**30 + 5), (1 << 63, (1 << 63) + SIZE), (0, 1 << 63)], ids=str)
def test_offsets_that_no_log_has(said: tuple[int, int], tmp_path: Path) -> None:
    with Lying(log_of(60), said) as master:
        result = run("receive", master.address, str(tmp_path / "repo"), "--name", NAME, "--until-caught-up")
    assert (result.exit_code, "a log that no broker has" in result.stderr) == (4, True), result.stderr


def test_a_master_that_does_not_send_what_it_says_it_has_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "_STEP", 0.02)
    monkeypatch.setattr(loop, "_SILENCE", 0.3)
    monkeypatch.setattr(loop, "_ASK", 0.1)
    monkeypatch.setattr(loop.Follower, "_pause", staticmethod(lambda seconds: iter([None])))
    with Lying(log_of(20), (0, 1 << 40)) as master:
        result = run("receive", master.address, str(tmp_path / "repo"), "--name", NAME, "--until-caught-up")
        end = master.end
    assert (result.exit_code, f"sends nothing after {end:,}" in result.stderr) == (4, True), result.stderr


def test_a_long_record_in_many_pieces_is_not_copied_with_each_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    prover = Prover(0, 1 << 30)
    copied: list[int] = []
    read = prover._frames.read

    def counted(data: bytearray, *more: int) -> Any:
        copied.append(len(data))
        return read(data, *more)

    monkeypatch.setattr(prover._frames, "read", counted)
    long = bytearray(record(0, "x" * (1 << 17)))
    for at in range(0, len(long), 100):
        found = prover.feed(bytes(long[at : at + 100]))
    assert found.messages == 1
    assert sum(copied) < 2 * len(long)


@pytest.mark.parametrize("code", [26, 28])
def test_an_answer_that_would_fill_the_memory_is_not_parsed(code: int, tmp_path: Path) -> None:
    class Long(FakeMaster):
        def _respond(self, asked: int, fields: dict[str, str]) -> tuple[int, bytes, str]:
            found = super()._respond(asked, fields)
            return (0, found[1] + b" " * (5 << 20), "") if asked == code else found

    with Long(log_of(20)) as master:
        result = run("receive", master.address, str(tmp_path / "repo"), "--name", NAME, "--until-caught-up")
    assert (result.exit_code, f"its answer to request {code} has 5," in result.stderr) == (4, True), result.stderr
