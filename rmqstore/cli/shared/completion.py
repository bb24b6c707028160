"""Shell completion: which function completes a parameter. What click completes itself, as file names, has no row.

A row names a function of `rmqstore.cli.completions`, which is imported only when the shell asks: no command depends on
what completes its options.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable

import click
from click.shell_completion import CompletionItem

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

_BY_NAME = {"topics": "topics", "topic": "topics", "queues": "queues", "only": "codes", "broker": "versions"}
"""Function by the name of a parameter, in any command."""
_JOURNAL = {"lost": "store_journals", "undo": "journals_below", "resume": "journals_below"}
"""Function that completes `journal`, by command."""


def add_completion(command: str, parameter: click.Parameter) -> None:
    """Let a parameter of a command complete its values, if the tables have a function for it."""
    name = parameter.name or ""
    function = _JOURNAL.get(command) if name == "journal" else _BY_NAME.get(name)
    if function is not None:
        parameter.shell_complete = functools.partial(_complete, parameter, function)  # type: ignore[method-assign]


def _complete(parameter: click.Parameter, function: str, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    complete: Completer = getattr(importlib.import_module("rmqstore.cli.completions"), function)
    return complete(ctx, parameter, incomplete)
