"""Rules for all commands: exit codes, one-line errors, JSON errors, closed pipes, Ctrl-C, atomic output."""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import click
import pytest

from rmqstore.cli.main import _who_may
from tests.command import command_names, run
from tests.damage import cut
from tests.stores import copy_store, unpack

READING = ("info", "verify", "dump", "du")


def process(*words: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "rmqstore", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | dict(env or {}),
    )


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom rmqstore.cli.main import cli\n"
        "try:\n cli.main(['--help'], prog_name='rmqstore')\nexcept SystemExit:\n pass\n"
        "print([m for m in ('numpy', 'rich', 'construct', 'pyarrow', 'pyspark', 'tqdm', 'orjson')"
        " if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.splitlines()[-1] == "[]"


def test_info_loads_no_numpy() -> None:
    code = (
        "import sys\nfrom rmqstore.cli.main import cli\n"
        f"try:\n cli.main(['info', {str(unpack('5.4.0-clean'))!r}], prog_name='rmqstore')\nexcept SystemExit:\n pass\n"
        "print([m for m in ('numpy', 'rich', 'pyarrow') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.splitlines()[-1] == "[]"


# modules for stores with batch queues or damage, and for output to a file
_OTHER_STORES = (
    "rmqstore.checks.beside.dledger",
    "rmqstore.checks.filler_notes",
    "rmqstore.checks.queues.rocksdb",
    "rmqstore.cli.html.store_page",
    "rmqstore.cli.report",
    "rmqstore.formats.messageid",
    "rmqstore.repair.replica.heal",
    "rmqstore.repair.replica.sources",
    "rmqstore.repair.replica.replica",
)
_ROWS = (
    "rmqstore.files.rocksdb",
    "rmqstore.files.rocksdb.database",
    "rmqstore.files.rocksdb.links",
    "rmqstore.files.rocksdb.queues",
    "rmqstore.formats.rocksdbkeys",
)


@pytest.mark.parametrize(
    ("command", "unwanted"),
    [
        ("verify", (*_OTHER_STORES, *_ROWS, "rich")),
        ("recover", _OTHER_STORES),
        ("dump", (*_OTHER_STORES, *_ROWS, "rmqstore.files.users")),
        ("info", (*_OTHER_STORES, "rmqstore.files.users", "rmqstore.files.rocksdb.queues")),
    ],
)
def test_a_sound_plain_store_loads_no_module_of_other_stores(command: str, unwanted: tuple[str, ...]) -> None:
    for name in unwanted:
        assert name == "rich" or importlib.util.find_spec(name) is not None  # it was not renamed
    code = (
        "import sys\nfrom rmqstore.cli.main import cli\n"
        f"try:\n cli.main([{command!r}, {str(unpack('5.4.0-clean'))!r}], prog_name='rmqstore')\n"
        "except SystemExit as end:\n assert end.code == 0\n"
        f"print([m for m in {unwanted!r} if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.splitlines()[-1] == "[]"


@pytest.mark.parametrize("command", ["verify", "recover", "lost"])
def test_no_garbage_is_collected_during_the_start(command: str) -> None:
    code = (
        "import atexit, gc, sys\nfrom rmqstore.__main__ import main\n"
        f"sys.argv[1:] = [{command!r}, {str(unpack('5.4.0-clean'))!r}]\n"
        "found = []\ngc.collect()\ngc.callbacks.append(lambda phase, info: found.append(phase))\n"
        "atexit.register(lambda: print(found))\nmain()"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.splitlines()[-1] == "[]"


def test_export_and_import_load_no_pandas(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    file = str(tmp_path / "all.parquet")
    for words in (
        ["export", str(unpack("5.4.0-clean")), "-o", file],
        ["import", file, "-o", str(tmp_path / "new"), "--dry-run"],
    ):
        code = (
            f"import sys\nfrom rmqstore.cli.main import cli\ntry:\n cli.main({words!r}, prog_name='rmqstore')\n"
            "except SystemExit as end:\n"
            " print(end.code, [m for m in ('pandas', 'pyarrow.compute', 'numpy.ma') if m in sys.modules])"
        )
        out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert out.stdout.splitlines()[-1] == "0 []", out


def test_a_query_loads_no_pandas_and_ends_without_a_word() -> None:
    pytest.importorskip("duckdb")
    code = (
        "import atexit, sys\nfrom rmqstore.__main__ import main\n"
        "atexit.register(lambda: print('pandas' in sys.modules, 'pyarrow.dataset' in sys.modules))\n"
        f"sys.argv[1:] = ['sql', {str(unpack('5.4.0-clean'))!r}, 'select count(*) as n from messages', '-q']\nmain()"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.splitlines()[-1] == "False True"
    assert out.stderr == ""


def test_the_help_of_all_commands_keeps_its_lines() -> None:
    text = run("--help").output
    assert "\b" not in text  # click's marker for a paragraph that it must not wrap
    assert "  Exit codes: 0 no problems, 1 problems found, 2 wrong usage, 3 not a store,\n" in text


def test_advice_follows_an_error_without_a_full_stop() -> None:
    assert run("find").stderr == "error: Missing argument 'STORE' — see `rmqstore find --help`\n"
    asked = run("recover", "store", "--force").stderr
    assert asked == "error: Option '--force' requires an argument — see `rmqstore recover --help`\n"


def test_advice_names_the_help_of_the_command() -> None:
    text = run("compare", str(unpack("5.4.0-clean"))).stderr
    assert text == (
        "error: give exactly one of OTHER, --fingerprint-out FILE and --against FILE — see `rmqstore compare --help`\n"
    )


@pytest.mark.parametrize("command", sorted(command_names()))
def test_every_help_ends_with_three_examples(command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    text = result.stdout.partition("Examples:")[2].replace("\\\n", "")
    examples = [line.strip() for line in text.strip().splitlines()]
    assert len(examples) == 3
    assert examples[0].startswith(f"rmqstore {command} ")


def test_every_listed_command_has_a_short_help_and_a_module() -> None:
    from rmqstore.cli.main import COMMANDS, cli

    for name in command_names():
        assert COMMANDS[name][2].endswith(".")
        assert cli.get_command(click.Context(cli), name) is not None


@pytest.mark.parametrize("command", READING)
def test_no_such_path_is_exit_3(command: str, tmp_path: Path) -> None:
    result = run(command, str(tmp_path / "none"))
    assert result.exit_code == 3
    assert result.stderr.startswith(f"error: {tmp_path / 'none'}: no such file or directory — ")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("command", READING)
def test_not_a_store_is_exit_3(command: str, tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear sir")
    for path in (tmp_path, tmp_path / "letter.txt"):
        result = run(command, str(path))
        assert (result.exit_code, result.stdout) == (3, "")
        assert result.stderr.startswith("error: ")


@pytest.mark.parametrize("command", ["info", "verify", "du"])
def test_json_gives_the_error_as_an_object(command: str, tmp_path: Path) -> None:
    result = run(command, str(tmp_path), "--json")
    assert result.exit_code == 3
    error = json.loads(result.stdout)["error"]
    assert set(error) == {"code", "message", "advice"}
    assert error["code"] == "not-a-store"
    assert result.stderr == f"error: {error['message']} — {error['advice']}\n"


def test_wrong_usage_is_an_object_too() -> None:
    result = run("info", "--no-such-option", "x", "--json")
    assert result.exit_code == 2
    assert json.loads(result.stdout)["error"]["code"] == "usage"


def test_a_bad_broker_conf_is_exit_2(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_bytes(b"mappedFileSizeCommitLog=65536\n\0")
    result = run("info", str(unpack("5.4.0-clean")), "-c", str(conf))
    assert result.exit_code == 2
    assert f"{conf} is not a broker.conf" in result.stderr


@pytest.mark.parametrize("command", [("verify",), ("info", "--settings")], ids="-".join)
def test_a_single_surrogate_of_a_broker_conf_is_shown_as_its_escape(command: tuple[str, ...], tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerName=\\ud800\nkey\\ud800=1\n")
    result = run(command[0], str(unpack("5.4.0-clean")), "-c", str(conf), *command[1:])
    assert result.exit_code in (0, 1)
    assert "key\\ud800 is unknown" in result.stdout


def test_a_broker_conf_in_utf_16_is_named(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerRole=SLAVE\n", "utf-16")
    result = run("verify", str(unpack("5.4.0-clean")), "-c", str(conf))
    assert result.exit_code == 2
    assert f"error: {conf} is in UTF-16, and a broker reads no setting of it" in result.stderr


def test_a_value_that_no_broker_reads_is_a_warning(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("\nmappedFileSizeCommitLog=big\n")
    result = run("info", str(unpack("5.4.0-clean")), "-c", str(conf))
    assert result.exit_code == 0
    words = "line 2: mappedFileSizeCommitLog does not accept big: it stays 1073741824"
    assert result.stderr == f"warning: {conf}, {words}\n"


def test_output_is_written_whole_and_replaces_only_when_asked_to(tmp_path: Path) -> None:
    store = str(unpack("5.4.0-clean"))
    target = tmp_path / "out.ndjson"
    target.write_text("old")
    refused = run("dump", store, "-o", str(target))
    assert (refused.exit_code, target.read_text()) == (5, "old")
    assert f"{target} already exists" in refused.stderr and "--overwrite" in refused.stderr
    assert run("dump", store, "-o", str(target), "--overwrite").exit_code == 0
    assert target.read_text("utf-8") == run("dump", store, "--format", "ndjson").stdout
    assert [p.name for p in tmp_path.iterdir()] == ["out.ndjson"]


@pytest.mark.parametrize("command", ["dump", "export"])
def test_the_format_follows_from_the_name_of_the_output(command: str, tmp_path: Path) -> None:
    store = str(unpack("5.4.0-clean"))
    assert run(command, store, "-o", str(tmp_path / "out.csv")).exit_code == 0
    assert (tmp_path / "out.csv").read_text("utf-8") == run(command, store, "--format", "csv").stdout
    refused = run(command, store, "-o", str(tmp_path / "out.xlsx"))
    assert refused.exit_code == 2
    assert "the suffix '.xlsx' does not say which format to write" in refused.stderr
    assert run(command, store, "-o", str(tmp_path / "out.xlsx"), "--format", "ndjson").exit_code == 0


def test_output_stays_away_when_something_goes_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rmqstore.messages.lines import MessageLines

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(MessageLines, "text", fail)
    result = run("dump", str(unpack("5.4.0-clean")), "-o", str(tmp_path / "out"))
    assert result.exit_code == 5
    assert result.stderr == "error: No space left on device — free space, or write the output elsewhere\n"
    assert list(tmp_path.iterdir()) == []


def test_output_through_a_link_leaves_the_link_and_the_mode(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("old")
    real.chmod(0o600)
    link.symlink_to("real")
    assert run("info", str(unpack("5.4.0-clean")), "--json", "-o", str(link)).exit_code == 0
    assert link.is_symlink()
    assert json.loads(real.read_bytes())["schema"] == "rmqstore.info/1"
    assert real.stat().st_mode & 0o777 == 0o600


def test_output_into_a_pipe_goes_into_the_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE) as reader:
        result = run("info", str(unpack("5.4.0-clean")), "--json", "-o", str(pipe))
        assert (result.exit_code, result.output) == (0, "")
        assert reader.stdout is not None
        assert json.loads(reader.stdout.read())["schema"] == "rmqstore.info/1"
    assert pipe.is_fifo()


@pytest.mark.parametrize(("place", "why"), [("no/out", "no such directory"), ("file/out", "Not a directory")])
def test_output_that_has_no_place_is_named(place: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    result = run("info", str(unpack("5.4.0-clean")), "-o", str(tmp_path / place))
    assert result.exit_code == 3
    assert result.stderr == f"error: {tmp_path / place} cannot be written: {why} — write the output elsewhere\n"


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="this system has no /dev/full")
def test_an_error_that_cannot_be_written_either_is_still_exit_5() -> None:
    words = (sys.executable, "-m", "rmqstore", "info", str(unpack("5.4.0-clean")), "--json")
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 5
    assert done.stderr.decode() == "error: No space left on device — free space, or write the output elsewhere\n"


@pytest.mark.parametrize("command", [*READING, "recover", "expire"])
def test_names_do_not_steer_the_terminal(command: str, tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path, rename="st\x1b[31more")
    (store / "consumequeue" / "\x1b[2J" / "0").mkdir(parents=True)
    format_ = ("--format", "table") if command == "dump" else ()
    result = run(command, str(store), *format_)
    assert result.exit_code in (0, 1)
    assert result.stdout
    assert "\x1b" not in result.output
    assert "\x1b" not in run(command, str(store / "no such")).output


def test_output_inside_the_store_is_refused(store: Path) -> None:
    result = run("info", str(store), "-o", str(store / "commitlog" / "info.txt"))
    assert result.exit_code == 2
    assert "lies inside the store" in result.stderr


def test_a_bug_is_exit_70_with_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    from rmqstore.views import info

    def fail(*_: object) -> None:
        raise ZeroDivisionError("surprise")

    monkeypatch.setattr(info, "info", fail)
    result = run("info", str(unpack("5.4.0-clean")), "--json")
    assert result.exit_code == 70
    assert "Traceback (most recent call last)" in result.stderr
    assert json.loads(result.stdout)["error"]["code"] == "bug"


@pytest.mark.parametrize("words", [("dump",), ("dump", "--format", "csv"), ("dump", "--body", "hex")])
def test_a_closed_pipe_ends_quietly(words: tuple[str, ...]) -> None:
    with process(words[0], str(unpack("5.4.0-killed")), *words[1:]) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.read(100)
        child.stdout.close()
        assert child.stderr.read() == b""
    assert child.returncode == 0


def test_ctrl_c_is_exit_130_and_leaves_no_output(tmp_path: Path) -> None:
    # the read limit makes the command slow: its first chunk alone would take a minute
    words = ("dump", str(unpack("5.4.0-killed")), "--max-rate", "10k", "-o", str(tmp_path / "out"))
    with process(*words) as child:
        assert child.stderr is not None
        deadline = time.monotonic() + 120
        while not list(tmp_path.iterdir()):
            assert time.monotonic() < deadline, "dump has not begun"
            time.sleep(0.02)
        child.send_signal(signal.SIGINT)
        text = child.stderr.read().decode()
    assert child.returncode == 130
    assert text.strip() == "error: interrupted — no output was left half-written"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_store_is_exit_3(store: Path) -> None:
    store.chmod(0)
    try:
        assert run("info", str(store)).exit_code == 3
    finally:
        store.chmod(0o700)


def test_who_may_read_what_was_refused_is_said(tmp_path: Path) -> None:
    own = tmp_path / "the file"
    own.touch()
    own.chmod(0o200)
    assert _who_may(own) == (" (yours, mode 0200)", f"chmod u+rwX '{own}'")
    if os.geteuid() == 0:
        os.chown(own, 12345, 12345)
        assert _who_may(own) == (" (it is user 12345's, mode 0200)", f"as user 12345: chmod u+rwX '{own}'")
        own.chmod(0o640)
        assert _who_may(own) == (" (it is user 12345's, mode 0640)", "run as user 12345 or as root")
    assert _who_may(tmp_path / "gone")[0] == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_completion_script(shell: str) -> None:
    with process(env={"_RMQSTORE_COMPLETE": f"{shell}_source"}) as child:
        assert child.stdout is not None
        assert b"_RMQSTORE_COMPLETE" in child.stdout.read()
    assert child.returncode == 0


def test_completion_knows_the_commands() -> None:
    env = {"_RMQSTORE_COMPLETE": "bash_complete", "COMP_WORDS": "rmqstore ver", "COMP_CWORD": "1"}
    with process(env=env) as child:
        assert child.stdout is not None
        assert child.stdout.read().decode().splitlines() == ["plain,verify"]


@pytest.mark.parametrize(
    ("env", "option", "colored"),
    [
        ({}, "auto", False),
        ({"CLICOLOR_FORCE": "1"}, "auto", True),
        ({"CLICOLOR_FORCE": "1", "NO_COLOR": "1"}, "auto", False),
        ({"NO_COLOR": "1"}, "always", True),
        ({"CLICOLOR_FORCE": "1"}, "never", False),
    ],
)
def test_the_option_then_the_environment_say_whether_to_colour(
    env: dict[str, str], option: str, colored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_COLOR", "CLICOLOR_FORCE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    result = run("verify", str(unpack("5.4.0-clean")), "--color", option)
    assert ("\x1b[" in result.stdout) is colored


def test_progress_as_json_goes_to_stderr() -> None:
    result = run("verify", str(unpack("5.4.0-killed")), "--progress", "json", "--json")
    json.loads(result.stdout)
    lines = [json.loads(line) for line in result.stderr.splitlines()]
    assert lines
    assert all(line["progress"] == "verify" for line in lines)


@pytest.mark.parametrize("words", [("--topic", "Order_1"), ("--queue", "Order_1/0")])
@pytest.mark.parametrize("command", ["verify", "dump", "du", "export"])
def test_a_missing_topic_is_reported(command: str, words: tuple[str, str]) -> None:
    result = run(command, str(unpack("5.4.0-clean")), *words)
    assert result.exit_code == (4 if command == "verify" else 0)  # a narrowed verify has not checked everything
    text = "note: topic 'Order_1' has no consume queue and no configuration in this store; did you mean Order_11?"
    assert text in result.stderr.splitlines()
    known = run(command, str(unpack("5.4.0-clean")), words[0], words[1].replace("Order_1", "Order_11"))
    assert "note:" not in known.stderr


@pytest.mark.parametrize("option", ["--topic T", "--from 5", "--since -2h", "--limit 3", "--reverse", "--format hex"])
def test_what_says_nothing_about_positions_is_refused(option: str) -> None:
    result = run("dump", str(unpack("5.4.0-clean")), "--positions", *option.split())
    assert result.exit_code == 2
    text = option if option.startswith("--format") else option.split()[0]
    assert result.stderr == f"error: {text} does not apply to --positions — leave it out\n"


def test_a_plan_without_steps_says_what_it_does_not_cure(store: Path) -> None:
    os.mkfifo(store / "commitlog" / "pipe")
    for path in (store / "config").glob("topics.json*"):
        path.write_bytes(bytes(10))
    result = run("recover", str(store))
    assert result.exit_code == 1
    assert result.stdout.endswith(
        "Note: commitlog/pipe is a pipe, a socket or a device: move it away by hand\n"
        "Nothing is planned: no file would be changed.\n"
        "Not repaired by any step (`rmqstore verify` shows the places):\n"
        "  CFG-UNREADABLE x 1: neither the file nor its .bak can be parsed\n"
        "    -> write a new file, or take the file from a replica or a backup\n"
        "  DIR-STRAY-FILE x 1: it is not a regular file, or only a person may move it from where it is\n"
        "    -> move it away by hand\n"
    ), result.stdout


@pytest.mark.parametrize(
    "words",
    [
        ("dump", "--queue", "²"),
        ("dump", "--queue", "9" * 5000),
        ("dump", "--queue", "Order_11/" + "9" * 5000),
        ("dump", "--what", "config", "--limit", "9" * 30),
        ("get", "9" * 5000),
        ("get", "Order_11/0/" + "9" * 30),
        ("offsets", "--set", "CG_part_11", "Order_11", "--to", "9" * 5000),
        ("migrate-to-commitlog", "--output", "new", "--peers", "9" * 5000),
        ("offsets", "--set", "CG_part_11", "Order_11", "--to", "²"),
        ("migrate-to-commitlog", "--output", "new", "--peers", "²"),
    ],
)
def test_numbers_that_are_none_or_too_large_are_answered(words: tuple[str, ...], tmp_path: Path) -> None:
    assert "²".isdigit()  # but int("²") is an error
    store = unpack("5.4.0-dledger" if words[0] == "migrate-to-commitlog" else "5.4.0-clean")
    result = run(words[0], str(store), *(str(tmp_path / word) if word == "new" else word for word in words[1:]))
    assert result.exit_code not in (3, 70), result.stderr


@pytest.mark.parametrize(
    "words", [("dump", "--from", "100", "--to", "50"), ("du", "--since", "2026-01-02", "--until", "2026-01-01")]
)
def test_a_range_with_nothing_in_it_is_a_mistake(words: tuple[str, ...]) -> None:
    result = run(words[0], str(unpack("5.4.0-clean")), *words[1:])
    assert result.exit_code == 2
    assert "must be less than" in result.output


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_a_closed_pipe_does_not_change_the_exit_code_of_a_report(words: tuple[str, ...], store: Path) -> None:
    cut(store / "config" / "topics.json", 0)
    with process("verify", str(store), *words) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        assert child.stderr.read() == b""
    assert child.returncode == 1


def test_a_closed_pipe_does_not_end_a_repair(store: Path) -> None:
    config = store / "config" / "topics.json"
    before = config.read_bytes()
    cut(config, 0)
    with process("recover", str(store), "--apply") as child:
        assert child.stdout is not None
        child.stdout.close()
    assert (child.returncode, config.read_bytes()) == (0, before)


@pytest.mark.parametrize("words", ["info", "verify", "du", "verify --json"])
def test_a_closed_stdout_is_an_error_of_one_line(words: str) -> None:
    command = f"{sys.executable} -m rmqstore {words} {unpack('5.4.0-clean')} >&-"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (3, 1), done.stderr
    assert done.stderr.startswith("error: stdout is closed")
