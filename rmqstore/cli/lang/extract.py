"""What Babel extracts from the source: `pybabel extract` calls `extract` for each file (babel.cfg).

These are templates of `Text("…")` and `Template("…")` (named on the command line), counted words of `many(n, "word")`,
the help of commands and options, and the names of facts (`outside.FACTS`).
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from typing import Any, BinaryIO

Message = tuple[int, str | None, str | tuple[str, ...], list[str]]
"""Line, function, templates, comments."""


def extract(
    file: BinaryIO, keywords: Collection[str], comment_tags: Collection[str], options: Mapping[str, Any]
) -> Iterator[Message]:
    """Yield the messages of a source file; `keywords` are the functions whose first argument is a template."""
    for node in ast.walk(ast.parse(file.read())):
        if isinstance(node, ast.Call):
            called = _name(node)
            if called == "many":
                yield from _counted(node)
            elif called in keywords and node.args and isinstance(node.args[0], ast.Constant):
                yield node.lineno, called, str(node.args[0].value), []
            for keyword in node.keywords:
                if keyword.arg in ("help", "epilog") and isinstance(keyword.value, ast.Constant):
                    yield from _paragraphs(node.lineno, str(keyword.value.value))
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "EPILOG":
            yield from _paragraphs(node.lineno, str(ast.literal_eval(node.value)))
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "FACTS":
            for name in str(ast.literal_eval(node.value)).split():
                yield node.lineno, None, f"{name.replace('_', ' ')} {{value}}", []
        elif isinstance(node, ast.FunctionDef) and {"command", "group"} & {_name(d) for d in node.decorator_list}:
            yield from _paragraphs(node.lineno, ast.get_docstring(node))


def paragraphs(help_text: str) -> Iterator[str]:
    r"""Yield the texts of a help: paragraphs as one line, and each line of a block that starts with `\b`."""
    for block in help_text.split("\n\n"):
        if block.lstrip().startswith("\b"):
            yield from (line.strip() for line in block.split("\n")[1:] if line.strip())
        elif block.strip():
            yield " ".join(block.split())


def _paragraphs(line: int, help_text: str | None) -> Iterator[Message]:
    for paragraph in paragraphs(help_text or ""):
        if not paragraph.startswith(("rmqstore ", "eval ")):
            yield line, None, paragraph, []


def _counted(node: ast.Call) -> Iterator[Message]:
    words = [one.value for one in node.args[1:] if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    if words:
        plural = words[1] if len(words) > 1 else words[0] + "s"
        yield node.lineno, "ngettext", (f"{{count:,}} {words[0]}", f"{{count:,}} {plural}"), []


def _name(node: ast.expr) -> str:
    called = node.func if isinstance(node, ast.Call) else node
    return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
