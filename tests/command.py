"""Runs rmqstore's commands inside the test process."""

from __future__ import annotations

import json
from collections.abc import Mapping

import click
from click.testing import CliRunner, Result


def run(*words: str, stdin: str | None = None) -> Result:
    """Run `rmqstore WORDS…`; the commands are imported only here, because collecting the tests does not need them."""
    from rmqstore.cli.main import cli

    return CliRunner().invoke(cli, list(words), prog_name="rmqstore", input=stdin)


def run_json(*words: str, exit_code: int) -> Mapping[str, object]:
    """Run a command with `--json`, check its exit code, and return the JSON object that it prints."""
    result = run(*words, "--json")
    assert result.exit_code == exit_code, f"exit code {result.exit_code}: {result.output}\n{result.exception!r}"
    answer = json.loads(result.stdout)
    assert isinstance(answer, dict)
    return answer


def command_names() -> frozenset[str]:
    """Return the names of all commands."""
    from rmqstore.cli.main import COMMANDS

    return frozenset(COMMANDS)


def parsed(words: list[str]) -> None:
    """Parse the arguments of a command without running it. Errors: click.UsageError for invalid arguments."""
    from rmqstore.cli.main import cli

    context = click.Context(cli)
    command = cli.get_command(context, words[0])
    assert command is not None, f"there is no command {words[0]}"
    command.make_context(words[0], words[1:], parent=context)
