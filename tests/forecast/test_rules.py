"""The table of start rules: the rules of a version, and how users can name a version."""

from __future__ import annotations

import pytest

from rmqstore.brokers.rules import AbnormalStart, LengthMismatch, NormalStart, PropertyCrc, Reput, rules_for
from rmqstore.errors import UsageError
from rmqstore.files.versions import NEWEST, RUN_VERSIONS, VERSIONS


def test_newest_rules_are_the_default() -> None:
    assert rules_for().version == NEWEST == "5.5.1"


def test_only_the_versions_that_were_run_are_called_run() -> None:
    assert [v for v in VERSIONS if rules_for(v).evidence == "run"] == list(RUN_VERSIONS)


@pytest.mark.parametrize(
    ("asked", "version"), [("5.1", "5.1.4"), ("v4.9.7", "4.9.7"), ("5", "5.5.1"), (" 5.3.1 ", "5.3.1")]
)
def test_version_may_be_shortened(asked: str, version: str) -> None:
    assert rules_for(asked).version == version


_NEAREST = {
    "6.0": "; nearest: 5.5.1",
    "6.0.0": "; nearest: 5.5.1",
    "5.3.9": "; nearest: 5.3.4, 5.4.0",
    "4.5.0": "; nearest: 4.4.0, 4.5.1",
    "3.2.6": "; nearest: 4.3.0",
    "nonsense": "",
    "5.1.": "",
    ".": "",
}


@pytest.mark.parametrize("asked", _NEAREST)
def test_unknown_version_names_the_nearest_ones(asked: str) -> None:
    with pytest.raises(UsageError) as refused:
        rules_for(asked)
    assert refused.value.advice == "versions from 4.3.0 to 5.5.1 are supported"
    assert refused.value.message == f"no rules for RocketMQ {asked}{_NEAREST[asked]}"


def test_wrong_length_is_ignored_only_by_old_versions_and_4_9_2() -> None:
    ignoring = [v for v in VERSIONS if rules_for(v).length_mismatch is LengthMismatch.IGNORE_REST]
    assert ignoring == ["4.3.0", "4.3.1", "4.3.2", "4.4.0", "4.9.2"]


def test_reput_starts_at_the_queues_from_4_5_1_to_4_9_8() -> None:
    by_queues = [v for v in VERSIONS if rules_for(v).reput is Reput.CQ_MAX]
    assert (by_queues[0], by_queues[-1], len(by_queues)) == ("4.5.1", "4.9.8", 16)


def test_start_file_rules_change_at_5_3_2_and_5_3_4() -> None:
    assert [rules_for(v).normal_start for v in ("5.3.1", "5.3.2", "5.3.3", "5.3.4")] == [
        NormalStart.LAST_THREE,
        NormalStart.BY_FILE_START,
        NormalStart.BY_FILE_START,
        NormalStart.BY_FIRST_RECORD,
    ]
    assert rules_for("5.3.3").abnormal_start is AbnormalStart.HEAD
    assert rules_for("5.3.4").abnormal_start is AbnormalStart.RECORD
    assert [v for v in VERSIONS if rules_for(v).recover_cap] == ["5.4.0", "5.5.0", "5.5.1"]


def test_record_crc_of_zero_counts_from_5_3_2_on() -> None:
    assert [rules_for(v).property_crc for v in ("5.1.4", "5.2.0", "5.3.1", "5.3.2")] == [
        PropertyCrc.NONE,
        PropertyCrc.POSITIVE,
        PropertyCrc.POSITIVE,
        PropertyCrc.ANY,
    ]


def test_dledger_library_of_every_release() -> None:
    shipped = {v: rules_for(v).dledger for v in VERSIONS}
    assert shipped["4.4.0"] is None
    assert {shipped[v] for v in ("4.5.1", "4.7.1")} == {"0.1"}
    assert {shipped[v] for v in ("4.8.0", "4.9.2")} == {"0.2.2"}
    assert (shipped["4.9.3"], shipped["4.9.4"], shipped["4.9.5"]) == ("0.2.3", "0.2.6", "0.3.1.2")
    assert (shipped["5.0.0"], shipped["5.1.0"], shipped["5.1.1"], shipped["5.4.0"]) == (
        "0.3.1",
        "0.3.1",
        "0.3.1.2",
        "0.3.2",
    )
