"""The prompt of `rmqstore sql`: a query ends with ; or an empty line."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from rmqstore.cli.printing.output import tell_error, warn
from rmqstore.cli.shared.interrupts import Ended
from rmqstore.cli.shared.settings import cache_folder
from rmqstore.errors import NotReadable, RmqStoreError
from rmqstore.files.private import create_private, make_private_directories
from rmqstore.texts import Text

_WORDS = (
    *("select", "from", "where", "group", "order", "by", "limit", "count", "sum", "min", "max"),
    *("join", "using", "and", "or", "not", "like", "describe", "explain"),
)
_END = re.compile(r"\\q|(?:quit|exit)\s*;?", re.IGNORECASE)
_KEPT = 1000
"""Lines of the history that stay from one prompt to the next."""


def ask(answer: Callable[[str], int], views: Mapping[str, Sequence[str]]) -> int:
    """Read queries and answer them until Ctrl-D; return the exit code of the last one. `views`: columns by view."""
    code = 0
    warn(Text("Views: {views}. A query ends with ; or an empty line, the prompt with Ctrl-D.", views=", ".join(views)))
    with _line_editing({*_WORDS, *views, *(name for names in views.values() for name in names)}):
        while True:
            try:
                query = _query()
                if query is None:
                    return code
                code = answer(query)
            except Ended as end:
                if end.number != signal.SIGINT:
                    raise
                warn(Text("interrupted"))
            except RmqStoreError as error:
                tell_error(error.code, error.message, error.advice, as_json=False)
                code = error.exit_code


def _query() -> str | None:
    """Read a query of one or more lines; None at the end."""
    lines: list[str] = []
    while True:
        try:
            line = input("    -> " if lines else "sql> ")
        except EOFError:
            warn("")
            return None
        if not lines and _END.fullmatch(line.strip()):
            return None
        if line.strip():
            lines.append(line)
        if lines and (not line.strip() or line.rstrip().endswith(";")):
            return "\n".join(lines)


@contextlib.contextmanager
def _line_editing(words: Iterable[str]) -> Iterator[None]:
    """Let the user edit lines, complete `words` with Tab and recall lines, also those of earlier prompts.

    Not every Python has readline, and not every user has a place for the history.
    """
    try:
        import readline
    except ImportError:
        yield
        return

    def complete(text: str, number: int) -> str | None:
        fitting = sorted(word for word in words if word.startswith(text.lower()))
        return fitting[number] if number < len(fitting) else None

    file = cache_folder("sql") / "history"
    readline.set_completer(complete)
    readline.parse_and_bind("tab: complete")
    with contextlib.suppress(OSError):
        readline.read_history_file(file)
    try:
        yield
    finally:
        readline.set_history_length(_KEPT)
        with contextlib.suppress(OSError, NotReadable):
            make_private_directories(file.parent, durable=False)
            os.close(create_private(file))
            readline.write_history_file(file)
