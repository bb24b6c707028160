"""Names and texts with terminal control sequences, and paths that are not files."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rmqstore.append.encoder import NewMessage
from rmqstore.append.message_store import MessageStore, StoreOptions
from rmqstore.cli.printing.json_text import json_bytes
from tests.command import run

ESC, CSI = "\x1b", "\x9b"


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A store whose tags contain terminal control sequences."""
    options = StoreOptions(commitlog_file_size=65_536, index_slots=100, index_units=400)
    with MessageStore.create(tmp_path / "store", options) as made:
        made.put(NewMessage("Order", b"body", f"TAGS\x01red{ESC}[31m".encode()))
        made.put(NewMessage("Order", b"body", f"TAGS\x01csi{CSI}31m".encode()))
    return tmp_path / "store"


def test_file_name_with_an_escape_is_harmless_on_stderr(store: Path) -> None:
    (store / "config" / f"a{ESC}]0;x\x07{CSI}").write_text("{}")
    (store / f"b{ESC}[2J").mkdir()
    for words in (
        ("dump", str(store / f"b{ESC}[2J"), "--positions", "--format", "table"),
        ("dump", str(store), "--positions", "--format", "table", "--limit", "1"),
        ("verify", str(store)),
        ("info", str(store)),
        ("recover", str(store)),
    ):
        done = run(*words)
        assert not {ESC, CSI, "\x07"} & set(done.stderr), words
        assert not {CSI, "\x07"} & set(done.stdout), words


def test_control_characters_are_escaped_in_json() -> None:
    value = {"name": f"a\x7f{CSI}\x80é\xa0{ESC}"}
    assert json_bytes(value) == '{"name":"a\\u007f\\u009b\\u0080é\xa0\\u001b"}'.encode()
    assert json.loads(json_bytes(value)) == value


def test_tags_in_csv_have_no_escape(hostile: Path) -> None:
    for words in (("dump",), ("dump", "--limit", "5"), ("dump", "--reverse"), ("export",)):
        done = run(words[0], str(hostile), "--format", "csv", *words[1:])
        assert done.exit_code == 0 and not {ESC, CSI} & set(done.stdout)
        assert "red\\u001b[31m" in done.stdout and "csi\\u009b31m" in done.stdout


def test_a_lone_cr_does_not_end_a_row_of_csv(tmp_path: Path) -> None:
    with MessageStore.create(tmp_path / "store") as made:
        made.put(NewMessage("Order", b"body", b"TAGS\1a\rb\2KEYS\1k\2"))
    for words in (("dump",), ("dump", "--reverse"), ("dump", "--body", "text"), ("export",)):
        done = run(words[0], str(tmp_path / "store"), *words[1:], "--format", "csv")
        (row,) = csv.DictReader(io.StringIO(done.stdout, newline=""))
        assert done.exit_code == 0 and (row["tags"], row["keys"]) == ("a\rb", "k"), words


def test_tags_in_ndjson_have_no_raw_control_character(hostile: Path) -> None:
    for words in (("dump",), ("dump", "--limit", "5"), ("dump", "--reverse"), ("export",)):
        done = run(words[0], str(hostile), "--format", "ndjson", *words[1:])
        assert done.exit_code == 0 and not {ESC, CSI} & set(done.stdout)
        assert "csi\\u009b31m" in done.stdout


@pytest.mark.parametrize(
    "words", ["dump STORE --format csv", "dump STORE --format ndjson", "export STORE --format csv"]
)
def test_no_control_character_reaches_a_terminal(hostile: Path, words: str) -> None:
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "rmqstore", *words.replace("STORE", str(hostile)).split()]
    with subprocess.Popen(command, stdout=slave, stderr=subprocess.DEVNULL) as process:
        os.close(slave)
        seen = b""
        while True:
            try:
                part = os.read(master, 65_536)
            except OSError:
                break
            if not part:
                break
            seen += part
    os.close(master)
    assert process.returncode == 0 and b"Order" in seen and b"csi" in seen
    assert ESC.encode() not in seen and CSI.encode() not in seen


@pytest.mark.quick_rows
@pytest.mark.parametrize("name", ["commitlog", "index", "checkpoint"])
@pytest.mark.parametrize("words", ["verify", "info", "recover", "expire", "recover --apply"])
def test_link_that_leads_to_itself_is_no_bug(name: str, words: str, store: Path) -> None:
    path = store / name
    path.rename(store.parent / "aside")
    path.symlink_to(name)
    command, *more = words.split()
    done = run(command, str(store), *more)
    if name == "checkpoint":
        # at the hour of deleteWhen, expire has something to do
        assert done.exit_code in ({"verify": (1,), "recover": (0, 1), "expire": (0, 1)}.get(command, (0,)))
    elif (name, command) == ("commitlog", "info"):
        assert done.exit_code == 0
    else:
        assert done.exit_code == 3 and f"{path} is a symbolic link: it points to itself" in done.stderr


@pytest.mark.parametrize("what", ["-c", "--plan", "--against"])
@pytest.mark.parametrize("path", ["/dev/zero", "FIFO"])
def test_a_device_or_a_pipe_in_place_of_a_file_is_refused_at_once(
    what: str, path: str, store: Path, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "fifo")
    path = path.replace("FIFO", str(tmp_path / "fifo"))
    command = {"-c": "verify", "--plan": "recover", "--against": "compare"}[what]
    begin = time.monotonic()
    done = run(command, str(store), what, path)
    assert done.exit_code == 3 and f"{path}: not a regular file" in done.stderr
    assert time.monotonic() - begin < 60


@pytest.mark.parametrize(("what", "code"), [("-c", 2), ("--plan", 3), ("--against", 3)])
def test_file_that_is_far_too_large_is_not_read(what: str, code: int, store: Path, tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.touch()
    os.truncate(large, 1 << 40)
    command = {"-c": "verify", "--plan": "recover", "--against": "compare"}[what]
    done = run(command, str(store), what, str(large))
    assert done.exit_code == code and "1,099,511,627,776 bytes exceed the limit" in done.stderr
