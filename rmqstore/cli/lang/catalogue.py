"""Reads and formats the catalogue zh.po, in the part of the PO format that it needs: editors for PO files can edit it.

An entry has `msgid` and `msgstr`; texts with a number also have `msgid_plural`, and then `msgstr[0]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

CATALOGUE = Path(__file__).with_name("zh.po")
"""Finished sentences, which the output still has to recognize."""
TEXTS = Path(__file__).parent / "zh" / "LC_MESSAGES" / "rmqstore.po"
"""Templates of `rmqstore.texts`, extracted by Babel."""
_LINE = re.compile(r'(?:(msgid|msgid_plural|msgstr)(?:\[0\])? )?"(.*)"')
_ESCAPE = re.compile(r"\\(.)")
_HEADER = r"""msgid ""
msgstr ""
"Language: zh_CN\n"
"Content-Type: text/plain; charset=UTF-8\n"
"Content-Transfer-Encoding: 8bit\n"
"Plural-Forms: nplurals=1; plural=0;\n"
"""


class CatalogEntry(NamedTuple):
    """One text; `comments` are whole lines."""

    english: str
    plural: str
    chinese: str
    comments: tuple[str, ...] = ()


def read(path: Path = CATALOGUE) -> Iterator[CatalogEntry]:
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


def written(entries: Iterable[CatalogEntry]) -> str:
    """Return the text of a catalogue."""
    blocks = [_HEADER]
    for entry in entries:
        lines = [*entry.comments, f"msgid {_quoted(entry.english)}"]
        if entry.plural:
            lines.append(f"msgid_plural {_quoted(entry.plural)}")
        lines.append(f"msgstr{'[0]' if entry.plural else ''} {_quoted(entry.chinese)}")
        blocks.append("\n".join(lines) + "\n")
    return "\n".join(blocks)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
