"""open_store: what a path is, and the error for one that is not a store."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqstore.errors import NotAStore
from rmqstore.files.store import open_store


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
