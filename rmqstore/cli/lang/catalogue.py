"""Reads the catalogue of Chinese, in the part of the PO format that Babel writes.

An entry has `msgid` and `msgstr`; texts with a number also have `msgid_plural`, and then `msgstr[0]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

TEXTS = Path(__file__).parent / "zh" / "LC_MESSAGES" / "rmqstore.po"
"""Templates of `rmqstore.texts`, extracted by Babel."""
_LINE = re.compile(r'(?:(msgid|msgid_plural|msgstr)(?:\[0\])? )?"(.*)"')
_ESCAPE = re.compile(r"\\(.)")


class CatalogEntry(NamedTuple):
    """One text."""

    english: str
    plural: str
    chinese: str


def read(path: Path = TEXTS) -> Iterator[CatalogEntry]:
    """Yield the entries of a catalogue, also those without Chinese."""
    for block in path.read_text("utf-8").split("\n\n"):
        fields = {"msgid": "", "msgid_plural": "", "msgstr": ""}
        key = ""
        for line in block.splitlines():
            if match := _LINE.fullmatch(line):
                key = match[1] or key
                fields[key] += _ESCAPE.sub(lambda escape: "\n" if escape[1] == "n" else escape[1], match[2])
        if fields["msgid"]:
            yield CatalogEntry(fields["msgid"], fields["msgid_plural"], fields["msgstr"])
