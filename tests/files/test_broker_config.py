"""broker.conf is read as the broker of a version reads it, and what has another effect than it seems is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqstore.errors import BadBrokerConfig
from rmqstore.files.broker_config import BrokerConfig, Unread
from rmqstore.files.broker_settings import parse_double, release


def read(folder: Path, text: str | bytes, version: str = "") -> BrokerConfig:
    path = folder / "broker.conf"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return BrokerConfig.read(path, version)


def lines(config: BrokerConfig) -> list[tuple[int, str, str, str]]:
    return [(one.number, one.why.value, one.words(config.version), one.write) for one in config.unread]


def test_delete_when_is_a_list_of_hours(tmp_path: Path) -> None:
    assert read(tmp_path, "deleteWhen=04;16\n").text("deleteWhen") == "04;16"


@pytest.mark.parametrize("value", ["64M", "99999999999", "131072 ", "131072\\u00a0", "1_000", "", "0x20000"])
def test_a_value_that_the_setter_refuses_leaves_the_default(value: str, tmp_path: Path) -> None:
    config = read(tmp_path, f"mappedFileSizeCommitLog={value}\n")
    assert "mappedFileSizeCommitLog" not in config.given
    assert config.filled().int("mappedFileSizeCommitLog") == 1 << 30
    (line,) = config.unread
    assert (line.why, line.effective) == (Unread.REFUSED, "1073741824")
    assert line.write == ("mappedFileSizeCommitLog=131072" if value.startswith("131072") else "")


@pytest.mark.parametrize(("value", "size"), [("0", 0), ("-5", -5), ("+131072", 131072), ("0131072", 131072)])
def test_a_size_of_0_or_less_fits_no_file(value: str, size: int, tmp_path: Path) -> None:
    config = read(tmp_path, f"mappedFileSizeCommitLog={value}\n")
    assert config.given_int("mappedFileSizeCommitLog") == (size if size > 0 else None)
    assert config.filled().int("mappedFileSizeCommitLog") == size


@pytest.mark.parametrize(
    ("version", "read_value", "path"),
    [("4.9.7", "false", "/x "), ("5.1.4", "false", "/x "), ("5.4.0", "false", "/x"), ("5.5.1", "false", "/x")],
)
def test_a_blank_after_a_value_counts_as_in_java(version: str, read_value: str, path: str, tmp_path: Path) -> None:
    config = read(tmp_path, "enableDLegerCommitLog=true \nstorePathRootDir=/x \n", version)
    assert config.given["enableDLegerCommitLog"] == read_value
    assert config.given["storePathRootDir"] == path
    blank = (2, "otherwise", 'storePathRootDir="/x " counts as "/x "', "storePathRootDir=/x")
    assert lines(config) == [
        (1, "otherwise", 'enableDLegerCommitLog="true " counts as false', "enableDLegerCommitLog=true"),
        *([blank] if path == "/x " else []),
    ]


@pytest.mark.parametrize(
    ("version", "size"),
    [("", 2000), ("4.3.0", 1000), ("4.5.1", 1000), ("4.5.2", 2000), ("4.9.7", 2000), ("5.1.4", 2000), ("5.4.0", 2000)],
)
def test_spelling_of_the_file_size_is_read_by_the_versions_that_know_it(
    version: str, size: int, tmp_path: Path
) -> None:
    config = read(tmp_path, "mapedFileSizeCommitLog=1000\nmappedFileSizeCommitLog=2000\n", version)
    assert config.given == {"mappedFileSizeCommitLog": str(size)}
    assert config.given_int("mappedFileSizeCommitLog") == size


def test_old_spelling_alone_is_ignored_by_the_newest_version(tmp_path: Path) -> None:
    config = read(tmp_path, "mapedFileSizeCommitLog=1000\n")
    assert config.given_int("mappedFileSizeCommitLog") is None
    words = "mapedFileSizeCommitLog is read only before 4.5.2"
    assert lines(config) == [(1, "other-release", words, "mappedFileSizeCommitLog=1000")]


def test_a_byte_order_mark_hides_the_first_key(tmp_path: Path) -> None:
    config = read(tmp_path, b"\xef\xbb\xbfmappedFileSizeCommitLog=1000\nlistenPort=1\n")
    assert config.given == {"listenPort": "1"}
    (line,) = config.unread
    assert (line.number, line.why, line.write) == (1, Unread.UNKNOWN, "mappedFileSizeCommitLog=1000")
    assert line.words(config.version) == "a byte order mark (EF BB BF) is a part of the key, which is unknown"


def test_a_byte_order_mark_before_a_comment_does_no_harm(tmp_path: Path) -> None:
    assert read(tmp_path, b"\xef\xbb\xbf# broker\nlistenPort=1\n").given == {"listenPort": "1"}


def test_unknown_keys_come_with_the_nearest_known_one(tmp_path: Path) -> None:
    text = "mappedFileSizeCommitlog=1\nbrokerRole=SLAVE\nfilereservedTime=7\nx=1\ndLegerGroup=g\nbrokerRole=SLAVE\n"
    assert lines(read(tmp_path, text)) == [
        (1, "unknown", "mappedFileSizeCommitlog is unknown", "mappedFileSizeCommitLog=1"),
        (3, "unknown", "filereservedTime is unknown", "fileReservedTime=7"),
        (4, "unknown", "x is unknown", ""),
    ]


def test_the_nearest_known_key_must_accept_the_value(tmp_path: Path) -> None:
    assert [line.write for line in read(tmp_path, "filereservedTime=x\n").unread] == [""]


def test_a_key_of_a_newer_version_is_named_with_it(tmp_path: Path) -> None:
    config = read(tmp_path, "timerWheelEnable=false\n", "4.9.7")
    assert lines(config) == [(1, "other-release", "timerWheelEnable is read only from 5.0.0 on", "")]
    assert config.read_by("5.4.0").given == {"timerWheelEnable": "false"}
    assert config.read_by("5.4.0").unread == []


def test_the_last_line_of_a_key_counts(tmp_path: Path) -> None:
    config = read(tmp_path, "listenPort=1\nlistenPort : 2\n")
    assert config.given == {"listenPort": "2"}
    assert lines(config) == [(1, "repeated", "a later line sets listenPort again, and the last one counts", "")]


def test_settings_of_the_tiered_store_are_known_and_their_values_checked(tmp_path: Path) -> None:
    config = read(
        tmp_path, "tieredStoreFilePath=/t\ntieredStorageLevel=FORCE\ntieredStoreGroupCommitSize=4M\n", "5.4.0"
    )
    assert config.given == {"tieredStoreFilePath": "/t", "tieredStorageLevel": "FORCE"}
    assert [(one.key, one.why) for one in config.unread] == [("tieredStoreGroupCommitSize", Unread.REFUSED)]


def test_names_of_an_enum_are_case_sensitive(tmp_path: Path) -> None:
    config = read(tmp_path, "brokerRole=slave\nflushDiskType=SYNC_FLUSH\nmetricsExporterType=2\n")
    assert config.given == {"flushDiskType": "SYNC_FLUSH", "metricsExporterType": "PROM"}
    assert [(one.key, one.effective) for one in config.unread] == [("brokerRole", "ASYNC_MASTER")]


def test_a_file_is_in_iso_8859_1(tmp_path: Path) -> None:
    assert read(tmp_path, "brokerName=caf\u00e9\nbrokerClusterName=caf\\u00e9").given == {
        "brokerName": "caf\u00c3\u00a9",
        "brokerClusterName": "caf\u00e9",
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (" 1.50 ", "1.5"),
        ("1f", "1.0"),
        (".5D", "0.5"),
        ("5.", "5.0"),
        ("1e400", "inf"),
        ("-Infinity", "-inf"),
        ("NaN", "nan"),
        ("0x1.8p1", "3.0"),
        ("0x1p9999", "inf"),
        ("1_0", None),
        ("inf", None),
        ("nan", None),
        ("0x1", None),
        ("1e", None),
        ("", None),
    ],
)
def test_doubles_parse_as_in_java(text: str, value: str | None) -> None:
    assert parse_double(text) == value


def test_every_version_has_its_own_defaults() -> None:
    assert [release(v).setting_of("storePathCommitLog").default for v in ("4.3.0", "4.9.7")] == [  # type: ignore[union-attr]
        "{user.home}/store/commitlog",
        None,
    ]
    assert release("5.1.4").setting_of("maxMessageSize").default == "4194304"  # type: ignore[union-attr]
    assert release("4.9.6").without_jar == ("store",)
    assert release("4.9.7").without_jar == ()
    assert BrokerConfig().text("storePathRootDir") == ""


def test_a_file_with_very_many_unknown_keys_is_read_at_once_and_only_the_first_get_a_hint(tmp_path: Path) -> None:
    lines = [f"deletWhen{number}=04\n" for number in range(40_000)]
    unread = read(tmp_path, "".join(lines)).unread
    assert len(unread) == len(lines)
    assert unread[0].write == "deleteWhen=04"
    assert unread[-1].write == ""


def test_a_very_long_key_has_no_hint(tmp_path: Path) -> None:
    (line,) = read(tmp_path, "deleteWhen" * 50_000 + "=04\n").unread
    assert (line.why, line.write) == (Unread.UNKNOWN, "")


def test_two_escapes_that_are_a_surrogate_pair_are_one_character(tmp_path: Path) -> None:
    config = read(tmp_path, "storePathRootDir=/\\ud83d\\ude00\nbrokerName=\\uD83D\\\n  \\uDE00\n")
    assert config.given == {"storePathRootDir": "/\U0001f600", "brokerName": "\U0001f600"}


def test_a_single_surrogate_of_a_path_is_the_question_mark_that_java_opens(tmp_path: Path) -> None:
    config = read(tmp_path, "storePathCommitLog=/\\ude00\\ud83d\nbrokerName=\\ud83d\n")
    assert config.given == {"storePathCommitLog": "/??", "brokerName": "\ud83d"}
    assert config.paths("storePathCommitLog") == [Path("/??")]


def test_a_path_with_a_null_character_is_refused_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(BadBrokerConfig, match=r"line 2: storePathCommitLog has the character \\u0000") as caught:
        read(tmp_path, "# here\nstorePathCommitLog=/a\\u0000b\n")
    assert "correct that line" in caught.value.advice


@pytest.mark.parametrize("raw", [b"listenPort=1\n\0\0", b"#" * ((1 << 20) + 1)])
def test_a_file_that_is_no_text_of_settings_is_refused_without_a_line(raw: bytes, tmp_path: Path) -> None:
    with pytest.raises(BadBrokerConfig, match=r"is not a broker\.conf: ") as caught:
        read(tmp_path, raw)
    assert "line" not in caught.value.advice
