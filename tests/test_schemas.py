"""Real JSON output of every command conforms to the schemas, and no field is undocumented."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmqstore.json_reference import DOCUMENTS, PARTS, fields, parts_of, schema_files, schema_of
from rmqstore.manual import SCHEMAS, pages
from tests.command import run
from tests.json_outputs import changing, damaged, documents, making, reading, schema_problems
from tests.rocksdb_rows import need_rocksdict
from tests.stores import copy_store, unpack

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed (the extra test)")

# store -> the store to compare it with
STORES = {
    "5.4.0-killed": "5.4.0-clean",
    "4.9.7-dledger-mixed": "5.4.0-dledger",
    "5.4.0-dledger3-n0": "5.4.0-dledger3-n1",
    "5.4.0-formats": "5.4.0-clean",
    "5.4.0-rocksdb": "5.4.0-killed",
}


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("name", STORES)
def test_output_of_reading_commands_conforms_to_the_schemas(name: str, tmp_path: Path) -> None:
    if "rocksdb" in name:
        need_rocksdict()
    names, wrong = schema_problems(reading(unpack(name), unpack(STORES[name]), tmp_path))
    assert wrong == []
    assert {"info", "verify", "get", "find", "lost", "du", "compare", "dump-messages", "export", "journals"} <= names


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("name", STORES)
def test_output_on_damaged_stores_conforms_to_the_schemas(name: str, tmp_path: Path) -> None:
    if "rocksdb" in name:
        need_rocksdict()
    store = damaged(copy_store(name, tmp_path / "damaged"))
    names, wrong = schema_problems(reading(store, unpack(name), tmp_path))
    assert wrong == []
    assert "verify-findings" in names
    assert "lost-rows" in names or "rocksdb" in name  # the damage does not hit the few messages of the RocksDB store


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("name", ["5.4.0-killed", "4.9.7-dledger-mixed", "5.4.0-dledger3-n0"])
def test_output_of_writing_commands_conforms_to_the_schemas(name: str, tmp_path: Path) -> None:
    names, wrong = schema_problems(making(unpack(name), tmp_path))
    assert wrong == []
    assert {"import", "migrate-to-commitlog"} <= names
    store = copy_store(name, tmp_path / "sound")
    names, wrong = schema_problems([*changing(store, tmp_path), *changing(damaged(store), tmp_path)])
    assert wrong == []
    assert {"recover", "rebuild", "expire", "migrate-to-dledger", "plan", "undo", "resume"} <= names


def test_errors_and_progress_conform_to_the_schemas(tmp_path: Path) -> None:
    names, wrong = schema_problems(documents("info", "info", tmp_path, "--json"))
    assert (names, wrong) == ({"error"}, [])
    lines = run("verify", str(unpack("5.4.0-killed")), "--progress", "json").stderr.splitlines()
    rows = [json.loads(line) for line in lines if line.startswith('{"progress"')]
    assert rows
    assert schema_problems(("progress", row) for row in rows)[1] == []


def test_a_field_without_documentation_is_found() -> None:
    store = unpack("5.4.0-killed")
    (answer,) = documents("info", "info", store, "--json")
    more = answer[1] | {"new": 1, "commitlog": answer[1]["commitlog"] | {"other": 2}}
    _, wrong = schema_problems([(answer[0], more)])
    assert [line for line in wrong if "'new' was unexpected" in line]
    assert [line for line in wrong if "'other' was unexpected" in line]


def test_schema_files_are_current() -> None:
    there = {path.name: path.read_text("utf-8") for path in SCHEMAS.iterdir()}
    assert there == schema_files(), "run `make man` and commit what it writes"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_schema_is_valid(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(schema_of(name))


def test_every_command_with_json_has_a_schema() -> None:
    import click

    from rmqstore.cli.main import cli

    context = click.Context(cli)
    sources = {document.source.split()[0] for document in DOCUMENTS.values()}
    for name in set(cli.list_commands(context)) - {"sql"}:  # rows of sql have the columns of the query
        command = cli.get_command(context, name)
        assert command is not None
        options = {option for parameter in command.params for option in parameter.opts}
        if options & {"--json", "--format"}:
            assert name in sources, name


def test_every_choice_of_what_and_job_has_a_schema() -> None:
    from rmqstore.cli import dump
    from rmqstore.cli.pipeline import _STORE_TEXT

    rows = {*dump.MESSAGES, *dump.UNITS, *dump.SMALL} - {"commitlog"}  # its rows are messages
    assert {f"dump-{what}" for what in rows} <= set(DOCUMENTS)
    assert {f"pipeline-{job}" for job in (*_STORE_TEXT, "sql")} <= set(DOCUMENTS)


def test_schema_names_are_the_commands() -> None:
    named = {name: document.schema for name, document in DOCUMENTS.items() if document.schema}
    assert named == {name: f"rmqstore.{name.replace('pipeline-', 'pipeline.')}/1" for name in named}


def test_every_part_is_used_and_every_field_is_in_the_manual() -> None:
    forms = [form for document in DOCUMENTS.values() for form in document.forms]
    taken = {line[1:] for text in (*forms, *PARTS.values()) for line in text.splitlines() if line.startswith("*")}
    assert set(PARTS) - taken - {part for form in forms for part in parts_of(form)} == set()
    page = pages()["rmqstore-json.7"].replace("\\-", "-")
    assert [f.name for form in forms for f in fields(form) if f".B {f.name}\n" not in page] == []
