"""Files in place of directories, and directories with names that no topic or queue can have."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.command import run, run_json
from tests.untouched import assert_untouched


@pytest.mark.parametrize("place", ["consumequeue", "consumequeue/Order_11", "consumequeue/Order_11/0"])
def test_a_pipe_in_the_place_of_a_directory_is_refused_before_anything_is_written(place: str, store: Path) -> None:
    shutil.rmtree(store / place)
    os.mkfifo(store / place)
    with assert_untouched(store):
        result = run("recover", str(store))
    assert result.exit_code == 5
    assert f"{place} is a pipe, a socket or a device" in result.stderr
    assert "move it away by hand" in result.stderr


def test_a_pipe_in_place_of_a_log_file_that_needs_fillers_is_refused(store: Path) -> None:
    file = store / "commitlog" / "00000000000000065536"
    file.unlink()
    os.mkfifo(file)
    with assert_untouched(store):
        result = run("recover", str(store), "--accept-fillers")
    assert result.exit_code == 5
    assert f"commitlog/{file.name} is a pipe, a socket or a device" in result.stderr


def test_a_link_to_a_disk_that_is_not_mounted_is_refused(store: Path, tmp_path: Path) -> None:
    shutil.rmtree(store / "consumequeue")
    (store / "consumequeue").symlink_to(tmp_path / "not mounted")
    result = run("recover", str(store))
    assert result.exit_code == 5
    assert "mount its disk" in result.stderr


def test_queue_without_a_unit_in_a_directory_that_is_no_utf_8(store: Path) -> None:
    folder = store / "consumequeue" / os.fsdecode(b"Top\xff\xfeic") / "0"
    folder.mkdir(parents=True)
    (folder / "00000000000000000000").write_bytes(bytes(2000))
    assert run_json("verify", str(store), exit_code=1)["counts"] == {"CQ-ZERO-LAST-FILE": 1}
    journal = run_json("recover", str(store), "--apply", exit_code=0)["journal"]
    assert run_json("verify", str(store), exit_code=0)["counts"] == {}
    run_json("undo", str(journal), exit_code=0)
    assert [path.name for path in folder.iterdir()] == ["00000000000000000000"]
