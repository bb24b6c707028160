"""Values that the shell completes; `cli.shared.completion` has the parameters.

Errors complete nothing: a message would appear in the command line that is being typed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from rmqstore.checks.problems.table import PROBLEMS
from rmqstore.cli.shared.completion import Completer
from rmqstore.documents.journal import list_journals
from rmqstore.files.store import open_store
from rmqstore.files.topics import topics as topics_of
from rmqstore.files.versions import VERSIONS


def _completer(values: Callable[[click.Context], Iterable[str]]) -> Completer:
    @functools.wraps(values)
    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            return [CompletionItem(value) for value in values(ctx) if value.startswith(incomplete)]
        except Exception:  # noqa: BLE001  # see the docstring of this module
            return []

    return complete


def _store(ctx: click.Context) -> Path:
    """STORE as typed; while an option lacks its value, click has not assigned the arguments yet."""
    given = ctx.params.get("store") or next(word for word in ctx.args if not word.startswith("-"))
    return Path(given)


@_completer
def topics(ctx: click.Context) -> Iterable[str]:
    """Topics of STORE."""
    return sorted(topics_of(open_store(_store(ctx))))


@_completer
def queues(ctx: click.Context) -> Iterable[str]:
    """TOPIC/ID of the consume queues of STORE, or of --topic."""
    opened = open_store(_store(ctx))
    wanted = ctx.params.get("topics") or ()
    return [f"{topic}/{number}" for topic, number in sorted(opened.names_in_files()) if not wanted or topic in wanted]


@_completer
def codes(_: click.Context) -> Iterable[str]:
    """Problem codes."""
    return sorted(PROBLEMS)


@_completer
def versions(_: click.Context) -> Iterable[str]:
    """Broker versions whose rules are known."""
    return VERSIONS


@_completer
def store_journals(ctx: click.Context) -> Iterable[str]:
    """Journals of STORE, newest first."""
    return [str(info.path) for info in reversed(list_journals(_store(ctx)))]


def journals_below(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Journals of the store that is being typed, newest first; otherwise directories."""
    try:
        typed = Path(incomplete or ".")
        store = typed if typed.is_dir() else typed.parent
        store = store.parent if store.name == ".rmqstore" else store
        found = [str(store / ".rmqstore" / info.path.name) for info in reversed(list_journals(store))]
    except Exception:  # noqa: BLE001  # see the docstring of this module
        found = []
    fitting = [CompletionItem(name) for name in found if name.startswith(incomplete)]
    return fitting or [CompletionItem(incomplete, type="dir")]
