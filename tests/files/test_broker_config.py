"""broker.conf: what a broker reads is read, what it cannot hold is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqstore.errors import BadBrokerConfig
from rmqstore.files.broker_config import BrokerConfig


def read(folder: Path, text: str) -> BrokerConfig:
    path = folder / "broker.conf"
    path.write_text(text, "utf-8")
    return BrokerConfig.read(path)


def test_delete_when_is_a_list_of_hours(tmp_path: Path) -> None:
    assert read(tmp_path, "deleteWhen=04;16\n").text("deleteWhen") == "04;16"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("mappedFileSizeCommitLog=64M", "=64M is not a number"),
        ("mappedFileSizeCommitLog=99999999999", "=99999999999 is more than a broker's int holds"),
        ("mappedFileSizeCommitLog=0", "=0 is not a file size"),
        ("mappedFileSizeConsumeQueue=-6000000", "=-6000000 is not a file size"),
        ("fileReservedTime=99999999999", "=99999999999 is more than a broker's int holds"),
    ],
)
def test_a_number_that_a_broker_cannot_hold_is_refused(line: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(BadBrokerConfig) as caught:
        read(tmp_path, f"{line}\n")
    assert caught.value.message.endswith(said)
