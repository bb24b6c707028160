"""Rows for a spreadsheet: times in ISO 8601 with --iso, and what is left of lost bodies with `lost --body`."""

from __future__ import annotations

import base64
import csv
import io
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_report_page import broken
from tests.command import run, run_json
from tests.stores import unpack

TIMES = ("store_timestamp", "born_timestamp", "indexed_time", "next_timestamp")


def rows(*words: str, exit_code: int = 0) -> list[dict[str, Any]]:
    result = run(*words)
    assert result.exit_code == exit_code, result.output
    if "csv" in words:
        return list(csv.DictReader(io.StringIO(result.stdout)))
    return [json.loads(line) for line in result.stdout.splitlines()]


def ms(text: str) -> int:
    assert text.endswith("Z") and len(text) == 24
    return round(datetime.fromisoformat(text).astimezone(UTC).timestamp() * 1000)


@pytest.mark.parametrize("form", ["csv", "ndjson"])
@pytest.mark.parametrize(
    "words",
    [
        ("dump",),
        ("dump", "--limit", "3"),
        ("dump", "--limit", "40", "--reverse", "--body", "text"),
        ("dump", "--what", "dledger"),
        ("export", "--no-body"),
        ("export", "--offsets", "--decode", "--text"),
        ("offsets",),
    ],
)
def test_iso_times_are_the_same_times(words: tuple[str, ...], form: str) -> None:
    store = unpack("5.4.0-dledger" if "dledger" in words else "5.4.0-clean")
    command = (words[0], str(store), *words[1:], "--format", form)
    plain, iso = rows(*command), rows(*command, "--iso")
    assert len(plain) == len(iso) and plain
    compared = 0
    for one, other in zip(plain, iso, strict=True):
        one, other = one.get("message", one), other.get("message", other)
        assert list(one) == list(other)
        for name, value in one.items():
            if name.removeprefix("message.") in TIMES and value not in (None, ""):
                assert ms(other[name]) == int(value)
                compared += 1
            else:
                assert other[name] == value
    assert compared


def test_times_in_a_table_and_in_json_stay(tmp_path: Path) -> None:
    store = str(unpack("5.4.0-clean"))
    assert run("dump", store, "--format", "table", "--iso").stdout == run("dump", store, "--format", "table").stdout
    assert run("offsets", store, "--json", "--iso").stdout == run("offsets", store, "--json").stdout


def test_export_with_iso_times_is_not_imported_with_other_times(tmp_path: Path) -> None:
    for name in ("a.csv", "a.ndjson"):
        assert run("export", str(unpack("5.4.0-clean")), "--iso", "-o", str(tmp_path / name)).exit_code == 0
        result = run("import", str(tmp_path / name), "-o", str(tmp_path / "new"))
        assert result.exit_code in (2, 3) and "timestamp must be an integer" in result.stderr
        assert not (tmp_path / "new").exists()


def test_lost_lists_the_bytes_of_a_damaged_body_if_asked(tmp_path: Path) -> None:
    store = broken(tmp_path)
    saved = tmp_path / "bodies"
    listed = ("lost", str(store), "--format", "csv", "--iso")
    plain = rows(*listed, exit_code=1)
    assert not any(name.startswith("body_") for name in plain[0])
    found = rows(*listed, "--body", "text", "--bodies", str(saved), exit_code=1)
    assert [{k: v for k, v in row.items() if not k.startswith("body_")} for row in found] == plain
    texts = 0
    for row in found:
        name = f"{row['topic']}-{row['queue_id']}-{row['queue_offset']}-{row['offset']}"
        (path,) = [*saved.glob(f"{name}.*"), None][:1]
        left = row["body_text"].removeprefix("'").encode() or base64.b64decode(row["body_base64"])
        assert left == (b"" if path is None else path.read_bytes())
        texts += bool(row["body_text"])
    assert texts > 100
    for form, field in (("hex", "body_hex"), ("base64", "body_base64")):
        messages: Any = run_json("lost", str(store), "--body", form, exit_code=1)["messages"]
        assert {name for row in messages for name in row if name.startswith("body_")} == {field}
