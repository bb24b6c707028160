"""Messages about filters without a match, offsets, times and outputs, and refused outputs."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from tests.command import run
from tests.damage import cut
from tests.stores import unpack, write_broker_conf

STORE = "5.4.0-clean"
LOG = "commitlog offsets 0 to 524,288"


# --- filters --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format_", ["ndjson", "csv", "table"])
def test_dump_without_a_match_says_where_and_for_what_it_searched(format_: str) -> None:
    words = ("--topic", "Order_11", "--queue", "2", "--tag", "none", "--until", "1000000000", "--utc")
    result = run("dump", str(unpack(STORE)), *words, "--format", format_)
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == 0
    assert result.stderr == (
        f"note: no message found; searched {LOG} for topic Order_11, queue 2, tag none,"
        " stored before 2001-09-09 01:46:40 UTC\n"
    )


def test_units_and_entries_without_a_match_are_said_too() -> None:
    store = unpack(STORE)
    result = run("dump", str(store), "--what", "consumequeue", "--queue", "Order_11/2", "--from", "1,000,000")
    text = f"note: no consumequeue entry found; searched {store} for queue Order_11/2, offset at or after 1,000,000\n"
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", text)
    group = unpack("5.4.0-dledger")
    result = run("dump", str(group), "--what", "dledger", "--key", "none")
    assert result.stderr.startswith("note: no DLedger entry found; searched dledger offsets 0 to ")


@pytest.mark.parametrize("command", ["du", "export"])
def test_du_and_export_say_that_nothing_matches(command: str) -> None:
    result = run(command, str(unpack(STORE)), "--since", "2100-01-01T00:00Z", "--utc")
    assert result.exit_code == 0
    assert result.stderr == f"note: no message found; searched {LOG} for stored at or after 2100-01-01 00:00:00 UTC\n"


def test_match_is_not_followed_by_a_note() -> None:
    assert run("dump", str(unpack(STORE)), "--limit", "1").stderr == ""


@pytest.mark.parametrize("words", [("--from", "17"), ("--to", "17")])
def test_log_offset_with_a_queue_is_warned_about(words: tuple[str, str]) -> None:
    result = run("dump", str(unpack(STORE)), "--topic", "Order_11", "--queue", "2", *words)
    assert result.stderr.splitlines()[0] == (
        "warning: --from and --to are log offsets here; to use queue offsets, add --what consumequeue, which shows"
        " the log offset of each message as commitlog_offset"
    )
    units = run("dump", str(unpack(STORE)), "--what", "consumequeue", "--queue", "Order_11/2", "--from", "17")
    assert units.stderr == ""
    assert json.loads(units.stdout.splitlines()[0])["queue_offset"] == 17


# --- times ----------------------------------------------------------------------------------------------------------


def test_epoch_seconds_and_milliseconds_select_the_same_messages() -> None:
    store = str(unpack(STORE))
    seconds = run("dump", store, "--since", "1795245027").stdout
    assert 0 < seconds.count("\n") < run("dump", store).stdout.count("\n")
    assert seconds == run("dump", store, "--since", "1795245027000").stdout
    assert seconds == run("dump", store, "--since", "2026-11-21T07:10:27", "--utc").stdout


def test_ambiguous_time_is_wrong_usage() -> None:
    result = run("dump", str(unpack(STORE)), "--since", "17952450")
    assert result.exit_code == 2
    assert result.stderr == (
        "error: Invalid value for '--since': 17952450 has 8 digits: epoch milliseconds have 13, epoch seconds have 10"
        " — see `rmqstore dump --help`\n"
    )


@pytest.mark.parametrize("words", [("verify",), ("info",), ("dump", "--format", "table"), ("recover", "-v")])
def test_every_time_that_is_shown_has_a_zone(words: tuple[str, ...]) -> None:
    text = run(words[0], str(unpack("5.4.0-killed")), *words[1:], "--utc").stdout
    assert "2026-11-21 0" in text
    assert text.count("2026-11-21 0") == text.replace("\n", " ").count(" UTC")


# --- tables ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("style", ["text", "json", "hex", "base64"])
def test_table_shows_the_bodies_that_were_asked_for(style: str) -> None:
    words = ("dump", str(unpack(STORE)), "--topic", "Order_11", "--limit", "1", "--body", style)
    header, line = run(*words, "--format", "table").stdout.splitlines()
    row = json.loads(run(*words, "--format", "ndjson").stdout)
    body = next(row[name] for name in ("body", "body_hex", "body_base64") if name in row)
    assert header.split()[-1] == "body"
    assert line.endswith(str(body)[:40])
    assert "body" not in run(*words[:-2], "--format", "table").stdout.split()


def test_numbers_in_tables_have_separators_that_options_accept() -> None:
    store = str(unpack(STORE))
    line = run("dump", store, "--from", "50,735", "--limit", "1", "--format", "table").stdout.splitlines()[1]
    assert line.split()[0] == "50,735"


# --- export ---------------------------------------------------------------------------------------------------------


def test_export_does_not_replace_a_file_without_being_told(tmp_path: Path) -> None:
    target = tmp_path / "x.ndjson"
    target.write_text("mine")
    words = ("export", str(unpack(STORE)), "--limit", "1", "-o", str(target))
    result = run(*words)
    text = f"error: {target} already exists — choose another name, or add --overwrite\n"
    assert (result.exit_code, result.stderr, target.read_text()) == (5, text, "mine")
    assert run(*words, "--overwrite").exit_code == 0
    assert json.loads(target.read_text("utf-8"))["topic"]


@pytest.mark.parametrize("name", ["x.xlsx", "x"])
def test_export_to_an_unknown_suffix_needs_a_format(name: str, tmp_path: Path) -> None:
    words = ("export", str(unpack(STORE)), "--limit", "1", "-o", str(tmp_path / name))
    result = run(*words)
    assert result.exit_code == 2
    known = ".ndjson, .jsonl, .csv, .parquet, .arrow, .arrows"
    assert f"does not say which format to write — use {known}, or add --format" in result.stderr
    assert list(tmp_path.iterdir()) == []
    assert run(*words, "--format", "csv").exit_code == 0
    assert (tmp_path / name).read_text("utf-8").startswith("topic,")


# --- broker.conf ----------------------------------------------------------------------------------------------------


def test_unknown_key_of_broker_conf_is_warned_about(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeCommitlog=65536\nbrokerName=a\nnoSuchThing=1\n")
    result = run("info", str(unpack(STORE)), "-c", str(conf))
    assert result.exit_code == 0
    assert result.stderr.splitlines() == [
        f"warning: {conf}, line 1: mappedFileSizeCommitlog is unknown; write mappedFileSizeCommitLog=65536",
        f"warning: {conf}, line 3: noSuchThing is unknown",
    ]
    assert run("info", str(unpack(STORE)), "-c", str(conf), "-q").stderr == ""


@pytest.mark.parametrize("name", ["4.9.7-clean", "5.1.4-dledger-mixed", "5.4.0-formats"])
def test_settings_of_real_brokers_are_known(name: str, tmp_path: Path) -> None:
    conf = write_broker_conf(name, tmp_path / "store")
    assert "unknown key" not in run("info", str(unpack(name)), "-c", str(conf)).stderr


def test_old_spelling_is_honoured_for_the_versions_that_read_it(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("mapedFileSizeCommitLog=65536\n")
    words = ("verify", str(unpack("4.9.7-clean")), "-c", str(conf))
    ignored = "mappedFileSizeCommitLog=65536"
    assert ignored in " ".join(run(*words, "--broker", "4.9.7").stdout.split())
    assert ignored not in run(*words, "--broker", "4.5.1").stdout


# --- undo -----------------------------------------------------------------------------------------------------------


def test_second_undo_says_that_the_store_was_already_restored(store: Path) -> None:
    cut(store / "config" / "topics.json", 0)
    applied = run("recover", str(store), "--apply", "--json")
    journal = json.loads(applied.stdout)["journal"]
    assert run("undo", journal).stdout == f"{store} restored: 2 steps undone\n"
    assert run("undo", journal).stdout == f"{store} was already restored\n"


# --- commands -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "advice"),
    [
        ("verfy", "did you mean `rmqstore verify`?"),
        ("Dump", "did you mean `rmqstore dump`?"),
        ("search", "did you mean `rmqstore find`?"),
        ("grep", "did you mean `rmqstore find`? (--grep REGEX searches bodies and properties)"),
        ("repair", "did you mean `rmqstore recover`?"),
        ("repiar", "did you mean `rmqstore recover`?"),
        ("fix", "did you mean `rmqstore recover`?"),
        ("diff", "did you mean `rmqstore compare`?"),
        ("show", "did you mean `rmqstore dump`?"),
        ("check", "did you mean `rmqstore verify`?"),
        ("xyzzy", "see `rmqstore --help` for all commands"),
    ],
)
def test_unknown_command_names_the_one_that_was_meant(word: str, advice: str) -> None:
    result = run(word, "x")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"error: no such command: '{word}' — {advice}\n"


def test_meant_words_are_no_commands_and_lead_to_commands() -> None:
    from rmqstore.cli.main import COMMANDS, MEANT

    assert not MEANT.keys() & COMMANDS.keys()
    assert {command for command, _ in MEANT.values()} <= COMMANDS.keys()


def test_every_command_that_writes_at_once_is_in_a_section_that_says_so() -> None:
    from rmqstore.cli.main import CHANGING, COMMANDS, MAKING, REPAIRS, SENDING, cli

    for name, (_, section, _) in COMMANDS.items():
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        options = {option for parameter in command.params for option in parameter.opts}
        assert ("--apply" in options) == (section == CHANGING), name
        builds = section in (MAKING, SENDING) or name in ("restore", "carve")
        assert ("--dry-run" in options) == builds, name
        assert (section == REPAIRS) == (name in ("undo", "resume")), name
