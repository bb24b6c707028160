"""Characters that change what a reader sees are never shown as they are: in texts, errors, JSON, CSV and pages."""

from __future__ import annotations

import csv
import io
import json
import shutil
import unicodedata
from pathlib import Path

import numpy as np
import pytest

from rmqstore.append.encoder import NewMessage
from rmqstore.append.message_store import MessageStore
from rmqstore.cli.html.elements import shown
from rmqstore.cli.printing.json_text import json_bytes
from rmqstore.formats.text import CONTROLS, INVISIBLE, LAYOUT, as_written, escape_csv, harmless, harmless_bytes, not_run
from rmqstore.messages.cells import Spans, assemble
from rmqstore.scan import native
from tests.append.writing import OPTIONS
from tests.cli.cluster import Cluster
from tests.command import run

HIDDEN = "".join(map(chr, INVISIBLE))
NAMED = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c\u200b\u200c\u200d\u2060\ufeff"


def test_the_table_has_every_mark_of_direction_and_those_without_a_width() -> None:
    assert set(HIDDEN) == set(NAMED)
    assert {chr(c) for c in range(0x110000) if unicodedata.bidirectional(chr(c)) in EMBEDDINGS} <= set(HIDDEN)


EMBEDDINGS = {"LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI"}


def test_every_code_point_is_a_dot_or_itself() -> None:
    for code in (*range(0xD800), *range(0xE000, 0x11000)):
        text = f"a{chr(code)}b"
        expected = "a·b" if code in CONTROLS and chr(code) not in "\t\n" else text
        assert harmless(text) == expected, hex(code)
        assert harmless_bytes(text.encode()).decode() == expected, hex(code)
        in_csv = f"a\\u{code:04x}b" if code in CONTROLS and chr(code) not in LAYOUT else text
        assert escape_csv(text) == in_csv, hex(code)


def test_every_code_point_in_json() -> None:
    """Both ways of writing agree, at each place in a block of 64 bytes."""
    codes = [c for c in (*range(0x3000), 0xFEFE, 0xFEFF, 0xFF00, 0x1F600) if not 0xD800 <= c < 0xE000]
    texts = [("x" * (code % 67) + chr(code) + "é").encode() for code in codes]
    source = np.frombuffer(b"".join(texts), dtype=np.uint8)
    stops = np.cumsum([len(text) for text in texts])
    lines, ends = assemble(len(texts), [Spans(source, stops - [len(text) for text in texts], stops, native.ESCAPED)])
    at = 0
    for code, text, end in zip(codes, texts, ends.tolist(), strict=True):
        assert lines.tobytes()[at:end] == json_bytes(text.decode())[1:-1], hex(code)
        at = end


def test_json_says_the_same() -> None:
    value = {"name": f"a{HIDDEN}b"}
    assert json_bytes(value).isascii()
    assert json.loads(json_bytes(value)) == value


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with such characters in tags, keys, a body and the name of a topic."""
    with MessageStore.create(tmp_path / "store", OPTIONS) as made:
        made.put(NewMessage("Order", f"body{HIDDEN}".encode(), f"TAGS\1a{HIDDEN}b\2KEYS\1k\u202ek\2".encode()))
        made.put(NewMessage("Or\u202eder", b"body", b"KEYS\1other\2"))
    return tmp_path / "store"


COMMANDS = (
    *("info STORE", "verify STORE", "du STORE", "get STORE 0", "offsets STORE"),
    *("find STORE k\u202ek", "find STORE no-such\u202ekey"),
    *(f"dump STORE --format {form}" for form in ("table", "csv", "ndjson")),
    *(f"dump STORE --body text --format {form}" for form in ("table", "csv", "ndjson")),
    *(f"export STORE {more} --format {form}" for form in ("csv", "ndjson") for more in ("", "--text", "--limit 1")),
    *("find STORE --grep body --format ndjson", "dump STORE\u202e", "get STORE Or\u202eder/0/7", "info STORE --json"),
)


@pytest.mark.parametrize("words", COMMANDS)
def test_no_command_shows_them(words: str, store: Path) -> None:
    done = run(*(word.replace("STORE", str(store)) for word in words.split()))
    assert done.exit_code in (0, 1, 2, 3, 4), done.output
    assert done.stdout + done.stderr
    assert [c for c in done.stdout + done.stderr if c in HIDDEN] == []


def test_no_page_shows_them(store: Path, tmp_path: Path) -> None:
    assert run("report", str(store), "-o", str(tmp_path / "page.html")).exit_code in (0, 1)
    page = (tmp_path / "page.html").read_text()
    assert "Or·der" in page
    assert [c for c in page if c in HIDDEN] == []
    assert shown(f"a{HIDDEN}<b") == f"a{'·' * len(HIDDEN)}&lt;b"


@pytest.mark.parametrize("form", ["csv", "ndjson"])
@pytest.mark.parametrize("text", [[], ["--text"]], ids=["bytes", "text"])
def test_an_export_keeps_every_byte(form: str, text: list[str], store: Path, tmp_path: Path) -> None:
    file, again = tmp_path / f"all.{form}", tmp_path / f"again.{form}"
    assert run("export", str(store), "-o", str(file), *text).exit_code == 0
    assert run("import", str(file), "-o", str(tmp_path / "new")).exit_code == 0
    assert run("export", str(tmp_path / "new"), "-o", str(again), *text).exit_code == 0
    assert file.read_bytes() == again.read_bytes()
    first = run("dump", str(tmp_path / "new"), "--body", "text", "--format", "ndjson").stdout.splitlines()[0]
    assert json.loads(first)["body"] == f"body{HIDDEN}"
    assert json.loads(first)["tags"] == f"a{HIDDEN}b"


RUN = ("=1+1", "+1+1", "-1+1", "@SUM(1)", "\t=1", "\r=1", "\n=1", "＝1", "＋1", "－1", "＠1", "-", "--5", "'=1", "''@x")
NOT_RUN = ("", "a=1", "-5", "+5", "-5.25", "1e5", "-1E-5", " =1", "'", "''", "'a", "%RETRY%g", "5.4.0")


def test_a_cell_that_a_spreadsheet_would_run_is_marked_and_read_again() -> None:
    assert [not_run(text) for text in RUN] == [f"'{text}" for text in RUN]
    assert [not_run(text) for text in NOT_RUN] == list(NOT_RUN)
    assert [as_written(not_run(text)) for text in (*RUN, *NOT_RUN)] == [*RUN, *NOT_RUN]


@pytest.fixture
def formulas(tmp_path: Path) -> Path:
    """A store with a topic and keys that are formulas; of its second message only the queue entry is right."""
    with MessageStore.create(tmp_path / "store", OPTIONS) as made:
        for key in ("=cmd|' /C calc'!A0", "-5", "plain", "@SUM(A1)"):
            made.put(NewMessage("-Order", b"body", f"KEYS\1{key}\2TAGS\1+t\2".encode()))
    return tmp_path / "store"


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_tables_for_people_are_marked(formulas: Path, tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    done = run(
        "sql",
        str(formulas),
        'select topic, keys, queue_offset - 9 as n from messages order by "offset"',
        "--format",
        "csv",
    )
    assert [tuple(row.values()) for row in rows(done.stdout)] == [
        ("'-Order", "'=cmd|' /C calc'!A0", "-9"),
        ("'-Order", "-5", "-8"),
        ("'-Order", "plain", "-7"),
        ("'-Order", "'@SUM(A1)", "-6"),
    ]


def test_lists_of_lost_messages_are_marked_and_read_again(formulas: Path, tmp_path: Path) -> None:
    good = tmp_path / "good"
    shutil.copytree(formulas, good)
    log = min((formulas / "commitlog").iterdir())
    data = bytearray(log.read_bytes())
    at = data.index(b"body")
    data[at] ^= 1
    log.write_bytes(data)
    lost = run("lost", str(formulas), "--format", "csv", "-o", str(tmp_path / "lost.csv"))
    assert lost.exit_code == 1, lost.stderr
    row = rows((tmp_path / "lost.csv").read_text())[0]
    assert (row["topic"], row["keys"]) == ("'-Order", "'=cmd|' /C calc'!A0")
    expected = run("lost", str(good), "--expected", str(tmp_path / "lost.csv"), "--json")
    assert json.loads(expected.stdout)["counts"]["present"] == 4, expected.stdout
    cluster = Cluster(tmp_path / "rocketmq")
    assert (
        run(
            "send", str(good), "--list", str(tmp_path / "lost.csv"), "--journal", str(tmp_path / "j"), *cluster.words
        ).exit_code
        == 0
    )
    assert [one["topic"] for one in cluster.got] == ["-Order"] * 4


@pytest.mark.parametrize("words", [("dump",), ("dump", "--limit", "9"), ("dump", "--reverse"), ("export",)])
def test_streams_for_programs_are_exact(words: tuple[str, ...], formulas: Path) -> None:
    found = rows(run(words[0], str(formulas), *words[1:], "--format", "csv").stdout)
    assert {row["topic"] for row in found} == {"-Order"}
    assert {row["tags"] for row in found if "tags" in row} <= {"+t"}


def test_an_export_with_formulas_is_imported_as_it_was(formulas: Path, tmp_path: Path) -> None:
    file, again = tmp_path / "all.csv", tmp_path / "again.csv"
    assert run("export", str(formulas), "-o", str(file)).exit_code == 0
    assert run("import", str(file), "-o", str(tmp_path / "new")).exit_code == 0
    assert run("export", str(tmp_path / "new"), "-o", str(again)).exit_code == 0
    assert file.read_bytes() == again.read_bytes()
