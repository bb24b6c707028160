"""An option has one meaning: the same name takes the same kind of value in every command, or the table says why not."""

from __future__ import annotations

import click
import pytest

from rmqstore.cli.main import cli
from rmqstore.manual import options_by_name
from tests.command import run
from tests.stores import unpack

OTHERWISE = {
    "--body": "which forms a body can have depends on where it is shown",
    "--broker": "info compares the settings of several versions",
    "--from": "dump: where to begin, beside --to; offsets: where the new offsets come from",
    "--journal": "send notes what was acknowledged in one file, a repair has a directory",
    "--limit": "find shows few messages unless more are wanted",
    "--output": "the answer of a command, or the store or rows that it makes",
    "--replica": "recover also takes the broker.conf of the other node",
    "--role": "a new replica cannot be what only a repair distinguishes",
    "--self-id": "carve makes a store without any other sign of its id",
    "--format": "a table is for people, and not for an export",
    "--to": "dump: where to end; offsets: where a group goes",
    "--topic": "bundle is about one topic",
}
"""Options whose values differ between commands, with the reason."""


def kinds(option: click.Option) -> tuple[object, ...]:
    choices = tuple(option.type.choices) if isinstance(option.type, click.Choice) else ()
    return type(option.type).__name__, option.metavar, option.multiple, option.nargs, choices, str(option.default)


def test_an_option_takes_the_same_values_everywhere() -> None:
    found = options_by_name(cli, click.Context(cli))
    differ = {name for name, uses in found.items() if len(set(map(kinds, uses.values()))) > 1}
    assert differ == set(OTHERWISE)


@pytest.mark.parametrize(
    ("command", "old", "new"),
    [
        ("restore", "--id", "--self-id"),
        ("seed", "--id", "--self-id"),
        ("carve", "--id", "--self-id"),
        ("journals", "--keep", "--keep-last"),
        ("migrate-to-dledger", "--group", "--dledger-group"),
        ("export", "--positions", "--offsets"),
        ("pipeline", "--set", "--conf"),
    ],
)
def test_an_old_spelling_is_said_and_does_not_come_back(command: str, old: str, new: str) -> None:
    found = options_by_name(cli, click.Context(cli))
    assert command in found[new] and command not in found.get(old, {})
    result = run(command, old)
    assert f"note: {old} is now {new}" in result.stderr


def test_an_old_spelling_works_as_before() -> None:
    store = str(unpack("5.4.0-clean"))
    assert (
        run("export", store, "--positions", "--limit", "3").stdout
        == run("export", store, "--offsets", "--limit", "3").stdout
    )
    planned = run("migrate-to-dledger", store, "--self-id", "n0", "--group=g1", "--json")
    assert (
        planned.stdout == run("migrate-to-dledger", store, "--self-id", "n0", "--dledger-group", "g1", "--json").stdout
    )
    roles = [run("recover", store, "--role", role, "--json").stdout for role in ("dledger", "dledger-group")]
    assert roles[0] == roles[1] and '"role":"dledger-group"' in roles[0]


def test_an_argument_is_no_option() -> None:
    result = run("export", "--", "--positions")
    assert result.exit_code == 3 and "is now" not in result.stderr
