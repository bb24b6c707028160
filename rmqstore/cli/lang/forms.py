"""The forms of a text that the catalogue has: sentences without their outer punctuation, with holes for values."""

from __future__ import annotations

import re

HOLE = "\0"
"""Stands for a value in a text."""
WORD = re.compile(r"[A-Za-z][A-Za-z'’]+")
_SENTENCE = re.compile(r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)\s+| {2,}")
_OUTER = " \t\n,;:—–"
_PREFIX = re.compile(r"(?:note|warning|error|Note|Next): ")


def sentences(text: str) -> list[str]:
    """Split a text at line ends, after sentences, and between columns."""
    return [part for line in text.split("\n") for part in _SENTENCE.split(line.strip()) if part]


def pieces(text: str) -> list[str]:
    """Return the texts that the catalogue has for a text of the code, whose values are holes.

    A text that continues another one gets a hole for it, so that a translation may change the order.
    """
    before = HOLE if re.match(r" [\w`(-]", text) and not text.startswith(" (") else ""
    behind = HOLE if re.search(r"[\w`)] $", text) else ""
    return [form for sentence in sentences(before + text + behind) if (form := bare(sentence)) and _says(form)]


def bare(text: str) -> str:
    """Return a sentence without outer punctuation, brackets, and values that a colon separates from it."""
    while True:
        before = text
        text = re.sub(f"(?:{HOLE} ?)+", lambda m: HOLE + (" " if m[0].endswith(" ") else ""), text)
        text = text.strip(_OUTER)
        text = _PREFIX.sub("", text) if _PREFIX.match(text) else text
        text = text.removeprefix(f"{HOLE}: ").removesuffix(f": {HOLE}")
        if text.endswith(".") and not text.endswith(".."):
            text = text[:-1]
        if text.startswith("(") and closing(text, 0) == len(text) - 1:
            text = text[1:-1]
        if text == before:
            return re.sub(r"\s+", " ", text)


def closing(text: str, at: int) -> int:
    """Return the position of the bracket that closes the one at `at`; -1 if there is none."""
    depth = 0
    for i in range(at, len(text)):
        depth += (text[i] == "(") - (text[i] == ")")
        if not depth:
            return i
    return -1


def _says(form: str) -> bool:
    return bool(WORD.search(re.sub(r"`[^`]*`", "", form)))


def numbered(form: str) -> str:
    """Return a text with its holes as {0}, {1} …, as the catalogue writes it."""
    parts = form.replace("{", "{{").replace("}", "}}").split(HOLE)
    return "".join(part + (f"{{{i}}}" if i < len(parts) - 1 else "") for i, part in enumerate(parts))


_FIELD = re.compile(r"\{\{|\}\}|\{(\d+)\}")


def parsed(template: str) -> tuple[list[str], list[int]]:
    """(the literal parts, the number of the hole after each but the last) of a text of the catalogue."""
    literals, holes, at = [""], [], 0
    for field in _FIELD.finditer(template):
        literals[-1] += template[at : field.start()]
        if field[1] is None:
            literals[-1] += field[0][0]
        else:
            holes.append(int(field[1]))
            literals.append("")
        at = field.end()
    literals[-1] += template[at:]
    return literals, holes
