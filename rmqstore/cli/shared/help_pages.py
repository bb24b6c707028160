"""The help of commands in the language of the user, and the option --lang."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import click

from rmqstore.cli import lang
from rmqstore.cli.printing.quantities import wrapped
from rmqstore.texts import Placed, Text, joined

LANG: dict[str, Any] = {
    "type": click.Choice(lang.LANGUAGES),
    "expose_value": False,  # `lang.asked` has read it: errors in what comes before it need the language too
    "help": Text(
        "Language of text and help (default: by LC_ALL, LC_MESSAGES or LANG). JSON, NDJSON and CSV are English."
    ),
}
_WITH_VALUES: dict[str, Text] = {}
"""Help of options that has values, by its English: click keeps only a string."""
lang_option = click.option("--lang", **LANG)


def kept(words: Text) -> Text:
    """Return help of an option, and keep its template for the help in Chinese."""
    _WITH_VALUES[words] = words
    return words


class Context(click.Context):
    """A context whose help is in the language of the user."""

    def make_formatter(self) -> click.HelpFormatter:
        if lang.is_english():
            return super().make_formatter()
        return _Formatter(width=self.terminal_width, max_width=self.max_content_width)


def paged(option: click.Option | None) -> click.Option | None:
    """Return the option --help of a command, whose text goes to a pager if it is longer than the screen."""
    if option is not None:
        option.callback = _show
    return option


def _show(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from rmqstore.cli.printing.output import Output

        with Output(pager=True).paged() as file:
            file.write(f"{ctx.get_help()}\n".encode("utf-8", "replace"))
        ctx.exit()


class _Formatter(click.HelpFormatter):
    """Translates help, and breaks lines by the width of their characters."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        super().write_usage(prog, args, lang.translated(Text("Usage")) + "：")

    def write_heading(self, heading: str) -> None:
        self.write(f"{'':>{self.current_indent}}{lang.translated(Text(heading))}：\n")

    def write_text(self, text: str) -> None:
        indent = " " * self.current_indent
        blocks = []
        for block in re.split(r"\n\s*\n", text.strip("\n")):
            if block.lstrip().startswith("\b"):
                lines = [_line(line, indent) for line in block.split("\n")[1:]]
            else:
                lines = wrapped(Text(" ".join(block.split())), self.width, indent, indent)
            blocks.append("\n".join(lines))
        self.write("\n\n".join(blocks) + "\n")

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        rows = list(rows)
        left = min(max(len(name) for name, _ in rows), col_max) + col_spacing
        indent = " " * self.current_indent
        then = indent + " " * left
        for name, text in rows:
            shown = _with_notes(" ".join(text.split()))
            lines = wrapped(shown, max(self.width, 60) - 2, then, then) or [""]
            if len(name) > left - col_spacing:
                self.write(f"{indent}{name}\n")
            else:
                lines[0] = f"{indent}{name:<{left}}{lines[0].lstrip()}"
            self.write("\n".join(lines) + "\n")


def _line(line: str, indent: str) -> str:
    """Return a line of a block, which click would not break."""
    words = line.strip()
    shown = words if words.startswith(("rmqstore", "eval")) else lang.translated(Text(words))
    return Placed("{indent}{line}{shown}", indent=indent, line=line[: len(line) - len(line.lstrip())], shown=shown)


def _with_notes(text: str) -> Text:
    """Return the help of an option; click has appended its default, and whether it is required, in brackets."""
    words, bracket, notes = text.rpartition(" [")
    if not bracket or not notes.endswith("]"):
        return _WITH_VALUES.get(text) or Text(text)
    parts = (note.partition(": ") for note in notes[:-1].split("; "))
    shown = [Text("default: {default}", default=value) if value else Text(name) for name, _, value in parts]
    return Placed("{words} [{notes}]", words=_WITH_VALUES.get(words) or Text(words), notes=joined(shown, "; "))
