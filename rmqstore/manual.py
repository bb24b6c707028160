"""Writes man/ and rmqstore/schemas/ from the click tree, the layouts, PROBLEMS, the errors and the JSON reference.

`python -m rmqstore.manual [DIRECTORY]`: DIRECTORY is for the pages. Neither is written by hand; tests compare both with
what this module gives.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

SCHEMAS = Path(__file__).parent / "schemas"
EXIT_CODES = (
    (0, "Nothing is wrong, or it is done."),
    (1, "Problems (warnings or errors) were found and are still there; dump: damage was skipped. 1 goes before 4."),
    (2, "Wrong usage."),
    (3, "Not a store, not readable, or nothing there."),
    (4, "Not everything could be checked; never to be taken for clean."),
    (5, "Refused: the store is live, the plan is stale, the output exists, or space is short."),
    (6, "An apply stopped half-way; the journal is intact, and the message names the undo and the resume command."),
    (70, "A bug in rmqstore, with its traceback."),
    (130, "Interrupted."),
)


def pages() -> dict[str, str]:
    """All pages: file name → troff text."""
    from rmqstore.cli.main import cli

    ctx = click.Context(cli, info_name="rmqstore")
    out = {"rmqstore.1": _main_page(cli, ctx)}
    for name in cli.list_commands(ctx):
        command = cli.get_command(ctx, name)
        if command is not None:
            out[f"rmqstore-{name}.1"] = _command_page(name, command, ctx)
    out["rmqstore-formats.5"] = _formats_page()
    out["rmqstore-json.7"] = _json_page()
    out["rmqstore-problems.7"] = _problems_page()
    return out


def _escape(text: str) -> str:
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    return "\n".join("\\&" + line if line.startswith((".", "\\(aq")) else line for line in text.split("\n"))


def _head(name: str, section: int, about: str) -> Iterator[str]:
    yield '.\\" made by `make man`: do not edit'
    yield f'.TH "{name.upper()}" "{section}" "" "rmqstore" "rmqstore manual"'
    yield ".SH NAME"
    yield f"{_escape(name)} \\- {_escape(about)}"


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in text.split("\n\n"):
        yield ".PP"
        yield _escape(" ".join(paragraph.split()))


def _options(command: click.Command, ctx: click.Context) -> Iterator[str]:
    yield ".SH OPTIONS"
    for parameter in command.get_params(ctx):
        record = parameter.get_help_record(ctx)
        if record is not None:
            yield ".TP"
            yield f".B {_escape(record[0])}"
            yield _escape(record[1])


def _exit_codes() -> Iterator[str]:
    yield ".SH EXIT STATUS"
    for code, words in EXIT_CODES:
        yield ".TP"
        yield f".B {code}"
        yield _escape(words)


def _main_page(cli: click.Group, ctx: click.Context) -> str:
    from rmqstore import errors
    from rmqstore.cli.main import COMMANDS
    from rmqstore.cli.settings import FILE_VARIABLE, OPTIONS

    lines = list(_head("rmqstore", 1, "inspect, verify, repair and convert RocketMQ stores without the broker"))
    lines += [".SH SYNOPSIS", ".B rmqstore", ".I COMMAND", ".I STORE", "[options]", ".SH DESCRIPTION"]
    lines += _paragraphs(cli.help or "")
    lines.append(".SH COMMANDS")
    for name in cli.list_commands(ctx):
        lines += [".TP", f".BR rmqstore\\-{_escape(name)} (1)", _escape(COMMANDS[name][2])]
    lines += _options(cli, ctx)
    lines += _exit_codes()
    lines += [
        ".SH ERRORS",
        _escape(
            "An error is one line on stderr with what to do next. With --json it is also an object on stdout: "
            '{"error": {"code": ..., "message": ..., "advice": ...}}. The codes:'
        ),
    ]
    classes = sorted(
        (c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, errors.RmqStoreError)),
        key=lambda c: (c.exit_code, c.code),
    )
    for one in classes:
        if one is not errors.RmqStoreError:
            about = " ".join((one.__doc__ or "").split())
            lines += [".TP", f".B {_escape(one.code)}", _escape(f"(exit {one.exit_code}) {about}")]
    lines += [
        ".SH SHELL COMPLETION",
        _escape("Put the line for your shell into its start-up file:"),
        ".PP",
        ".nf",
        _escape('bash: eval "$(_RMQSTORE_COMPLETE=bash_source rmqstore)"'),
        _escape('zsh:  eval "$(_RMQSTORE_COMPLETE=zsh_source rmqstore)"'),
        _escape("fish: _RMQSTORE_COMPLETE=fish_source rmqstore | source"),
        ".fi",
        ".SH ENVIRONMENT",
        ".TP",
        ".B NO_COLOR",
        _escape("No colours, when it is set to anything."),
        ".TP",
        ".B CLICOLOR_FORCE",
        _escape("Colours even if stdout is not a terminal, when set and not 0."),
        ".TP",
        ".B RMQSTORE_PAGER, PAGER",
        _escape(
            "Command that shows text longer than the screen, when stdin and stdout are a terminal; default: less, with "
            "-FRX unless LESS says otherwise. Empty or cat: none. --json, NDJSON, CSV and commands that are changing a "
            "store never use it."
        ),
        ".TP",
        ".B RMQSTORE_JOBS",
        _escape(
            f"Default of --jobs. The options {', '.join(OPTIONS)} each have such a variable. "
            "What is typed goes first, then the environment, then the settings file."
        ),
        ".TP",
        f".B {FILE_VARIABLE}",
        _escape("Path of the settings file; set but empty: none is read."),
        ".SH FILES",
        ".TP",
        ".B ~/.config/rmqstore.toml",
        _escape(
            f"Settings: defaults of the options {', '.join(OPTIONS)}, and the broker.conf of a store. "
            "No setting can make a command write. Example:"
        ),
        ".PP",
        ".nf",
        "jobs = 4",
        _escape('max-rate = "100M"'),
        "utc = true",
        "",
        _escape('[stores."/data/rocketmq/store"]'),
        _escape('config = "/etc/rocketmq/broker.conf"'),
        ".fi",
        ".SH SEE ALSO",
        ".BR rmqstore\\-formats (5),",
        ".BR rmqstore\\-json (7),",
        ".BR rmqstore\\-problems (7)",
    ]
    return "\n".join(lines) + "\n"


def _command_page(name: str, command: click.Command, parent: click.Context) -> str:
    from rmqstore.cli.main import COMMANDS

    ctx = click.Context(command, info_name=name, parent=parent)
    about = COMMANDS[name][2].rstrip(".")
    lines = list(_head(f"rmqstore-{name}", 1, about[0].lower() + about[1:]))
    usage = " ".join(command.collect_usage_pieces(ctx))
    lines += [".SH SYNOPSIS", f".B rmqstore {_escape(name)}", _escape(usage), ".SH DESCRIPTION"]
    lines += _paragraphs(_clean(command.help or ""))
    lines += _options(command, ctx)
    examples = getattr(command, "examples", ())
    if examples:
        lines += [".SH EXAMPLES", ".nf", *(_escape(e) for e in examples), ".fi"]
    lines += _exit_codes()
    lines += [".SH SEE ALSO", ".BR rmqstore (1),", ".BR rmqstore\\-formats (5),", ".BR rmqstore\\-problems (7)"]
    return "\n".join(lines) + "\n"


def _clean(text: str) -> str:
    return text.replace("\b", "").strip()


def _formats_page() -> str:
    from rmqstore.formats import checkpoint, consumequeue, dledger, index, message, messageid, rocksdbkeys, timer
    from rmqstore.formats.layout import Record, fixed_part

    lines = list(_head("rmqstore-formats", 5, "the files of a RocketMQ store"))
    lines += [".SH DESCRIPTION"]
    lines += _paragraphs(
        "All numbers are big-endian. Each table gives the position in the record (where it is fixed), the field, its "
        "type, its unit and its meaning. The tables come from the declarations that rmqstore reads and writes with."
    )
    seen: set[str] = set()
    for module in (message, consumequeue, index, checkpoint, dledger, timer, messageid, rocksdbkeys):
        for record in vars(module).values():
            if not isinstance(record, Record) or record.name in seen:
                continue
            seen.add(record.name)
            fixed = fixed_part(record, record.name, "", sys_flag=0)
            size = f"{fixed.size} bytes" if len(fixed.fields) == len(record.fields) else "Variable size"
            lines += [f".SH {_escape(record.name.upper())}", _escape(f"{size}. Source: {record.source}.")]
            if record.about:
                lines += _paragraphs(record.about)
            for field in record:
                at = f"{fixed.at(field.name)}  " if field.name in {f.name for f in fixed} else ""
                unit = f", {field.unit}" if field.unit else ""
                lines += [".TP", f".B {at}{_escape(field.name)}", _escape(f"({field.words}{unit}) {field.about}")]
    lines += _rows_of_messages()
    lines += [".SH SEE ALSO", ".BR rmqstore (1),", ".BR rmqstore\\-problems (7)"]
    return "\n".join(lines) + "\n"


def _rows_of_messages() -> Iterator[str]:
    """The fields of a message in dump and export."""
    from rmqstore.messages.schema import BODY, COLUMNS, DUMPED, EXPORTED, POSITIONS, SIDE

    yield ".SH ROWS OF MESSAGES"
    yield from _paragraphs(
        "A field has the same name, type and meaning in dump and in every format of export. Times are numbers (ms) in "
        "JSON and CSV, timestamp[ms, UTC] in Parquet and Arrow; bytes are base64 in JSON and CSV. dump has: "
        f"{', '.join(DUMPED)}. export has: {', '.join(EXPORTED)}, body; with --positions also {', '.join(POSITIONS)}; "
        f"and where a row needs them {', '.join(SIDE)}. In Parquet and Arrow body is one column of bytes."
    )
    for name in dict.fromkeys((*DUMPED, *EXPORTED, *BODY, *SIDE)):
        column = COLUMNS[name]
        unit = f", {column.unit}" if column.unit else ""
        yield from (".TP", f".B {_escape(name)}", _escape(f"({column.type}{unit}) {column.about}"))


def _json_page() -> str:
    from rmqstore.json_reference import DOCUMENTS, PARTS, parts_of

    lines = list(_head("rmqstore-json", 7, "the JSON that rmqstore prints and writes"))
    lines += [".SH DESCRIPTION"]
    lines += _paragraphs(
        "Each section is one object, or one row of a stream (NDJSON), with its fields, their types and units. "
        "rmqstore/schemas/NAME.json in the installed package is the JSON Schema (draft 2020-12) of each. "
        "int, num, str and bool are the types of JSON; [T] is a list of T, {T} an object whose names are data and "
        "whose values are T, S/T is S or T, and @PART is an object described under SHARED PARTS. A field marked "
        "optional may be missing; every other field is always there. Names, types and meanings do not change, but a "
        "release may add fields; the schemas allow those of their own release only. With --string-ints, wide integers "
        "are strings."
    )
    for name, document in DOCUMENTS.items():
        lines += [f".SH {_escape(name.upper())}", _escape(f"rmqstore {document.source}: {document.about}")]
        if document.schema:
            lines += [".TP", ".B schema", _escape(f'(str) Always "{document.schema}".')]
        for number, form in enumerate(document.forms):
            lines += [".PP", "Or:"] if number else []
            lines += _json_fields(form)
    lines.append(".SH SHARED PARTS")
    used = {part for document in DOCUMENTS.values() for form in document.forms for part in parts_of(form)}
    for part in sorted(used):
        lines += [f".SS @{_escape(part)}", *_json_fields(PARTS[part])]
    lines += [".SH SEE ALSO", ".BR rmqstore (1),", ".BR rmqstore\\-formats (5),", ".BR rmqstore\\-problems (7)"]
    return "\n".join(lines) + "\n"


def _json_fields(text: str) -> Iterator[str]:
    from rmqstore.json_reference import fields

    for field in fields(text):
        words = ", ".join(word for word in (field.type, field.unit, "optional" if field.optional else "") if word)
        yield from (".TP", f".B {_escape(field.name)}", _escape(f"({words}) {field.about}"))


def _problems_page() -> str:
    from rmqstore.checks.problems.report import option_of
    from rmqstore.checks.problems.table import PROBLEMS

    lines = list(_head("rmqstore-problems", 7, "everything that rmqstore verify can find"))
    lines += [".SH DESCRIPTION"]
    lines += _paragraphs(
        "Every finding of rmqstore verify has one of these codes. ERROR: data or a start is at stake. WARNING: it may "
        "cause trouble later. NOTE: worth knowing, but the store is sound. rmqstore recover --apply makes safe repairs "
        "without being asked; others need --only CODE, or the option shown."
    )
    for problem in PROBLEMS.values():
        cure = f"Repair: rmqstore {problem.remedy}" if problem.remedy else "No command repairs it."
        if problem.remedy == "recover":
            cure += f" {option_of(problem)}" if option_of(problem) else " (safe)"
        lines += [f".SH {_escape(problem.code)}", _escape(f"{problem.severity.name}: {problem.title}.")]
        lines += _paragraphs(problem.about)
        lines += [".PP", _escape(cure)]
    lines += [".SH SEE ALSO", ".BR rmqstore (1),", ".BR rmqstore\\-verify (1)"]
    return "\n".join(lines) + "\n"


def write(directory: Path) -> list[Path]:
    """Write all pages and remove obsolete ones; return the paths written."""
    return _write(directory, "rmqstore*.[0-9]", pages())


def write_schemas() -> list[Path]:
    """The same for the JSON Schema files of the package."""
    from rmqstore.json_reference import schema_files

    return _write(SCHEMAS, "*.json", schema_files())


def _write(directory: Path, pattern: str, made: dict[str, str]) -> list[Path]:
    directory.mkdir(parents=True, exist_ok=True)
    for old in directory.glob(pattern):
        if old.name not in made:
            old.unlink()
    out = []
    for name, text in made.items():
        path = directory / name
        path.write_text(text, "utf-8")
        out.append(path)
    return out


if __name__ == "__main__":
    write(Path(sys.argv[1] if len(sys.argv) > 1 else "man"))
    write_schemas()
