"""broker.conf: values that a broker reads are read, and values that it cannot hold are errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqstore.errors import BadBrokerConfig
from rmqstore.files.broker_config import DEFAULTS, KNOWN, BrokerConfig, unknown_keys


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
        ("mappedFileSizeCommitLog=99999999999", "=99999999999 is out of range for a 32-bit int"),
        ("mappedFileSizeCommitLog=0", "=0 is not a file size"),
        ("mappedFileSizeConsumeQueue=-6000000", "=-6000000 is not a file size"),
        ("fileReservedTime=99999999999", "=99999999999 is out of range for a 32-bit int"),
    ],
)
def test_a_number_that_a_broker_cannot_hold_is_refused(line: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(BadBrokerConfig) as caught:
        read(tmp_path, f"{line}\n")
    assert caught.value.message.endswith(said)


@pytest.mark.parametrize(
    ("version", "size"),
    [("", 2000), ("4.3.0", 1000), ("4.5.1", 1000), ("4.5.2", 2000), ("4.9.7", 2000), ("5.1.4", 2000), ("5.4.0", 2000)],
)
def test_spelling_of_the_file_size_is_read_by_the_versions_that_know_it(
    version: str, size: int, tmp_path: Path
) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("mapedFileSizeCommitLog=1000\nmappedFileSizeCommitLog=2000\n", "utf-8")
    assert BrokerConfig.read(path, version).given_int("mappedFileSizeCommitLog") == size


def test_old_spelling_alone_is_ignored_by_the_newest_version(tmp_path: Path) -> None:
    assert read(tmp_path, "mapedFileSizeCommitLog=1000\n").given_int("mappedFileSizeCommitLog") is None


def test_unknown_keys_come_with_the_nearest_known_one() -> None:
    given = [
        "mappedFileSizeCommitlog",
        "mapedFileSizeConsumeQueue",
        "brokerRole",
        "filereservedTime",
        "x",
        "dLegerGroup",
    ]
    assert list(unknown_keys(given)) == [
        ("mappedFileSizeCommitlog", "mappedFileSizeCommitLog"),
        ("mapedFileSizeConsumeQueue", "mappedFileSizeConsumeQueue"),
        ("filereservedTime", "fileReservedTime"),
        ("x", ""),
    ]


def test_every_setting_with_a_default_is_a_known_key() -> None:
    assert DEFAULTS.keys() <= KNOWN
