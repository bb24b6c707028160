"""open_store: the kinds of paths that it accepts, and the error for a path that is not a store."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqstore.errors import NotAStore
from rmqstore.files.store import open_store
from tests.stores import unpack


def test_a_store_one_level_further_down_is_named(tmp_path: Path) -> None:
    (tmp_path / "rocketmq" / "store" / "commitlog").mkdir(parents=True)
    (tmp_path / "rocketmq" / "logs").mkdir()
    for path in (tmp_path, tmp_path / "rocketmq"):
        with pytest.raises(NotAStore) as error:
            open_store(path)
        assert error.value.advice == f"did you mean {tmp_path / 'rocketmq' / 'store'}?"
    with pytest.raises(NotAStore) as error:
        open_store(tmp_path / "rocketmq" / "logs")
    assert "storePathRootDir" in error.value.advice


@pytest.mark.parametrize(
    ("name", "logs"),
    [
        ("5.4.0-clean", [("commitlog", 0)]),
        ("5.4.0-dledger", [("data", 48)]),
        ("5.4.0-dledger-mixed", [("commitlog", 0), ("data", 48)]),
    ],
)
def test_the_logs_of_a_store_are_in_address_order(name: str, logs: list[tuple[str, int]]) -> None:
    store = open_store(unpack(name))
    assert [(queue.directories[0].name, body_offset) for queue, body_offset in store.logs] == logs
    assert store.log_start == 0


def test_a_store_without_log_files_has_no_logs(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "consumequeue").mkdir()
    store = open_store(tmp_path)
    assert (store.logs, store.log_start, store.log_bytes) == ([], 0, 0)
