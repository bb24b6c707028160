"""Chinese for lines of English text: finds the texts of the catalogue in a line, whatever their values are.

A text of the catalogue is a template: a sentence with holes for values. To read a sentence means to find a template
that it fills; the values, which may be sentences again, are read in the same way. If none fits, the sentence is split
at punctuation or brackets, and its parts are read. There may be several readings: the one that leaves the fewest
English words wins, and of those the one with the fewest parts. Names, numbers, paths, commands and quoted text have
no reading, and stay as they are.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from typing import NamedTuple

from rmqstore.cli.lang.as_is import AsIs
from rmqstore.cli.lang.catalogue import TEXTS, CatalogEntry, read
from rmqstore.cli.lang.forms import WORD, bare, closing, parsed, sentences
from rmqstore.formats.text import columns

_WIDE = re.compile(r"[\u2e80-\u9fff\uff00-\uffef]")
_NAME = re.compile(
    r"`[^`]*`|\"[^\"]*\"|(?<!\w)'[^']*'(?!\w)"  # quoted
    r"|(?<![^\s(])(?!\()(?:[-/.~]\S*?|\S*?[/_=@#<>\\]\S*?)(?=[:;,.?!)]*(?:\s|$))"  # options, paths, fields, settings
    r"|\b[A-Z][A-Z0-9_]+\b|\b[\w-]+(?:\.[\w-]+)+\b|\b[\w-]*\d[\w-]*"  # fields, files, numbers
    r"|\b(?:Corruption|IO error|Invalid argument): .*"  # what RocksDB says
    r"|\bDuckDB: .*?(?= — |$)"
)
_COMMAND = re.compile(r"(?:rmqstore|chmod|chown|sudo|pip|uv|systemctl) ")
_SEPARATORS = {
    "; ": "；",
    ": ": "：",
    " — ": " — ",
    ", ": "，",
    " and ": "和",
    " or ": "或",
}
_ENDS = {".": "。", ":": "：", ",": "，"}
_NUMBER = re.compile(r"[+-]?[\d,.]+")
_FIELD = re.compile(r"\{(\w+)(?:![rs])?(?::[^}]*)?\}")
_COLUMN_GAP = re.compile(r"( {2,})")
_WORD_COST = 10.0  # of an English word that stays
_JOINT_COST = 0.5  # of a place where a sentence is split
_SPANNING_COST = 0.75  # of a value that looks like several sentences
_MOST_SEPARATORS = 14  # up to which all ways to split a sentence are tried
_MOST_SPACES = 24  # up to which a text is read as two without punctuation between them
_TOKEN = re.compile(  # what a line keeps together: a word or a wide character, with its brackets and punctuation
    r"\s+|[（“「『《]*(?:`[^`]*`|[\u2e80-\u9fff\uff00-\uffef]|[^\s\u2e80-\u9fff\uff00-\uffef`]+|`)"
    r"[，。；：、）！？”’」』》…,.;:)]*"
)


class _Template(NamedTuple):
    literals: list[str]
    holes: list[int]
    chinese: list[str]  # literal parts
    order: list[int]  # the hole after each
    counted: bool  # whether the one value is a number

    def values(self, text: str, masked: str) -> list[str] | None:
        """Return the values with which this template is the text; None if it is another text.

        `masked`: the text without its names, in which words of the template are looked for.
        """
        first, *between = self.literals
        if not between:
            return [] if text == first else None
        end = between.pop()
        if not text.startswith(first) or not text.endswith(end) or len(text) < len(first) + len(end):
            return None
        at, stop = len(first), len(text) - len(end)
        found: list[str] = []
        for part in between:
            cut = (text if _NAME.search(part) else masked).find(part, at, stop)
            if cut < 0:
                return None
            found.append(text[at:cut])
            at = cut + len(part)
        found.append(text[at:stop])
        if any(value.endswith((",", ";", ":")) for value in found):
            return None
        if self.counted and not _NUMBER.fullmatch(found[0]):
            return None
        return [value for _, value in sorted(zip(self.holes, found, strict=True))]

    def spanning(self, values: list[str]) -> int:
        """Return how many values at an edge look like several sentences: the template rather belongs to one of them."""
        words = sum(len(WORD.findall(part)) for part in self.literals)
        joints = ("; ", " — ", ": ", " (") if words > 2 else ("; ", " — ", ": ", " (", ", ")
        edges = [_masked(values[self.holes[i]]) for i in (0, -1) if self.holes and not self.literals[i]]
        return sum(any(joint in value for joint in joints) for value in edges)

    def filled(self, values: list[str]) -> str:
        """Return the Chinese text with these values."""
        out = self.chinese[0]
        for hole, then in zip(self.order, self.chinese[1:], strict=True):
            out = spaced(spaced(out, values[hole]), then)
        return out


class _Translation(NamedTuple):
    """One way to read a text. `cost` grows with English words that are left, and with the number of its parts."""

    cost: float
    text: str


def spaced(left: str, right: str) -> str:
    """Join two texts, with a space between a Chinese character and a letter or digit."""
    if not left or not right:
        return left + right
    a, b = left[-1], right[0]
    han = "\u4e00" <= a <= "\u9fff", "\u4e00" <= b <= "\u9fff"
    if han[0] != han[1] and not (a + b).isspace() and (b if han[0] else a) not in " （）()，。；：、“”《》！？…":
        return f"{left} {right}"
    return left + right


class Translator:
    """Translates lines by the texts of a catalogue."""

    def __init__(self, texts: Mapping[str, str], counted: Collection[str] = ()) -> None:
        """`texts`: English to Chinese; `counted`: those whose value is a number."""
        self._texts = texts
        self._counted = counted
        words = {english: set(WORD.findall(english)) for english, chinese in texts.items() if chinese}
        often = Counter(word for found in words.values() for word in found)
        self._by_word: dict[str, list[str]] = {}
        self._templates: dict[str, _Template] = {}
        for english, found in words.items():
            if found:
                rarest = min(found, key=lambda word: (often[word], -len(word)))
                self._by_word.setdefault(rarest, []).append(english)
        self._known: dict[str, _Translation] = {}
        self._done: set[str] = set()

    # --- lines -------------------------------------------------------------------------------------------------------

    def line(self, line: str) -> str:
        """Translate a line; parts that two spaces separate, as columns, keep their places if there is room."""
        if line in self._done or line.strip() in self._done or not WORD.search(line):
            return _SEPARATORS.get(line, line)  # one between parts of a line that have styles
        if "\n" in line:
            return "\n".join(map(self.line, line.split("\n")))
        out = ""
        column = 0  # where the English line is
        for part in _COLUMN_GAP.split(line):
            column += columns(part)
            if part.strip():
                out += part if part in self._done else self._text(part)
            elif part:
                out += " " * max(2 if out else 0, column - columns(out))
        return out

    def wrapped(self, text: str, width: int, first: str, then: str) -> list[str]:
        """Translate a paragraph and break it; wide characters take two columns, and may begin a line."""
        as_is = isinstance(text, AsIs) or text in self._done
        lines: list[str] = list(map(AsIs, broken(text if as_is else self._text(text), width, first, then)))
        self._done.update(lines)
        self._done.update(line.strip() for line in lines)
        return lines

    def _text(self, text: str) -> str:
        out = ""
        for sentence in map(self._sentence, sentences(text)):
            out += sentence if not out or out.endswith(("。", "！", "？")) else f" {sentence}"
        behind = "" if out.endswith("：") else text[len(text.rstrip()) :]
        return text[: len(text) - len(text.lstrip())] + out + behind

    def _sentence(self, sentence: str) -> str:
        end = sentence[-1:] if sentence.endswith(tuple(_ENDS)) and not sentence.endswith("..") else ""
        found = self._read(sentence)
        if end:
            found = min(self._read(sentence[:-1]), found, key=lambda reading: reading.cost)
        if found.cost * 3 > _left(sentence) * 2 and sentence not in self._texts:  # English is clearer than a mixture
            return sentence
        text = found.text
        if end and _WIDE.search(text):
            return text.removesuffix(end).removesuffix(_ENDS[end]) + _ENDS[end]
        return text if text.endswith(end) else text + end

    # --- sentences and their parts -----------------------------------------------------------------------------------

    def _read(self, text: str) -> _Translation:
        found = self._known.get(text)
        if found is None:
            self._known[text] = _Translation(_left(text), text)  # ends a template that would read its own value
            found = self._known[text] = self._best(text)
        return found

    def _best(self, text: str) -> _Translation:
        if chinese := self._texts.get(text):
            return _Translation(1, chinese)
        best = _Translation(_left(text), text)
        if not best.cost or _COMMAND.match(text):
            return _Translation(0, text)
        masked = _masked(text)
        for reading in self._by_template(text, masked):
            best = min(best, reading, key=lambda reading: reading.cost)
            if best.cost <= 1:
                return best
        ways = (self._joined, self._recased, self._adjacent, self._bracketed, self._marked)
        found = (reading for way in ways for reading in way(text, masked))
        return min((best, *found), key=lambda reading: reading.cost)

    def _by_template(self, text: str, masked: str) -> Iterator[_Translation]:
        """Read a text as a template, longest first."""
        found = [english for word in set(WORD.findall(text)) for english in self._by_word.get(word, ())]
        for english in sorted(found, key=len, reverse=True):
            template = self._template(english)
            values = template.values(text, masked)
            if values is not None:
                parts = list(map(self._read, values))
                cost = 1 + sum(part.cost for part in parts) + _SPANNING_COST * template.spanning(values)
                yield _Translation(cost, template.filled([part.text for part in parts]))

    def _template(self, english: str) -> _Template:
        found = self._templates.get(english)
        if found is None:
            found = _Template(*parsed(english), *parsed(self._texts[english]), english in self._counted)
            self._templates[english] = found
        return found

    def _joined(self, text: str, masked: str) -> Iterator[_Translation]:
        """Read a text as two that punctuation or a conjunction joins."""
        number = sum(map(masked.count, _SEPARATORS))
        for separator, chinese in _SEPARATORS.items():
            at = masked.find(separator)
            while at >= 0:
                if any(map(str.isalnum, text[:at])):
                    a, b = self._read(text[:at]), self._read(text[at + len(separator) :])
                    cost = a.cost + b.cost + _JOINT_COST
                    if not _WIDE.search(a.text + b.text):
                        yield _Translation(cost, a.text + separator + b.text)
                    else:
                        yield _Translation(cost, spaced(spaced(a.text, chinese), b.text))
                    if number > _MOST_SEPARATORS:
                        return
                at = masked.find(separator, at + 1)

    def _recased(self, text: str, masked: str) -> Iterator[_Translation]:
        """Read a text with its first letter in the other case: code puts sentences into others."""
        if masked[:1].isalpha() and (chinese := self._texts.get(text[0].swapcase() + text[1:])):
            yield _Translation(1, chinese)

    def _adjacent(self, text: str, masked: str) -> Iterator[_Translation]:
        """Read a text as two with nothing between them, if that leaves no English word."""
        if masked.count(" ") > _MOST_SPACES:
            return
        for match in re.finditer(" ", masked):
            left, right = text[: match.start()], text[match.end() :]
            a = self._read(left)
            if a.cost < _WORD_COST and a.text != left:
                b = self._read(right)
                if b.cost < _WORD_COST and b.text != right:
                    yield _Translation(a.cost + b.cost + 1, spaced(a.text, b.text))

    def _bracketed(self, text: str, masked: str) -> Iterator[_Translation]:
        """Read a text as one with another in brackets."""
        at = masked.find("(")
        end = closing(text, at) if at >= 0 else -1
        if end < 0:
            return
        parts = text[:at].rstrip(), text[at + 1 : end], text[end + 1 :].lstrip()
        before, inner, behind = map(self._read, parts)
        cost = before.cost + inner.cost + behind.cost + _JOINT_COST
        if _WIDE.search(before.text + inner.text):
            yield _Translation(cost, f"{before.text}（{inner.text}）{behind.text}")
        else:
            spaces = text[len(parts[0]) : at], text[end + 1 : len(text) - len(parts[2])]
            yield _Translation(cost, f"{before.text}{spaces[0]}({inner.text}){spaces[1]}{behind.text}")

    def _marked(self, text: str, masked: str) -> Iterator[_Translation]:
        """Read a text after an arrow or a dash, or before one of click's notes in square brackets."""
        for mark in ("-> ", "— "):
            if text.startswith(mark):
                found = self._read(text.removeprefix(mark))
                yield _Translation(found.cost + _JOINT_COST, f"{mark}{found.text}")
        at = masked.rfind("[")
        if at >= 0 and text.endswith("]"):
            a, b = self._read(text[:at].rstrip()), self._read(text[at + 1 : -1])
            yield _Translation(a.cost + b.cost + _JOINT_COST, f"{a.text} [{b.text}]".lstrip())


@cache
def translator() -> Translator:
    """Return the translator by the catalogue of this package, which is read once."""
    texts: dict[str, str] = {}
    counted: set[str] = set()
    for entry in read(TEXTS):  # templates, which code put into a string
        texts.update(sentences_of(entry))
    for entry in read():
        texts[entry.english] = entry.chinese
        if entry.plural:
            texts[entry.plural] = entry.chinese
            counted |= {entry.english, entry.plural}
    return Translator(texts, counted)


def sentences_of(entry: CatalogEntry) -> Iterator[tuple[str, str]]:
    """Yield each sentence of a template of `rmqstore.texts` with its translation, with numbered holes."""
    names = list(dict.fromkeys(_FIELD.findall(entry.english)))
    chinese = [part for part in re.split(r"(?<=[。！？])| {2,}", entry.chinese) if part]
    for template in filter(None, (entry.english, entry.plural)):
        english = sentences(template)
        if len(english) != len(chinese):
            english, chinese = [template], [entry.chinese]
        for one, other in zip(english, chinese, strict=True):
            holes = [name for name in names if f"{{{name}}}" in one or f"{{{name}:" in one or f"{{{name}!" in one]
            if holes and set(_FIELD.findall(one)) == set(_FIELD.findall(other)):
                numbers = [_FIELD.sub(lambda m: f"{{{holes.index(m[1])}}}", text) for text in (one, other)]  # noqa: B023
                yield bare(numbers[0]), numbers[1].rstrip("。").lstrip("，；： ")
            elif not holes:
                yield bare(one), other.rstrip("。").lstrip("，；： ")


def has_words(text: str) -> bool:
    """Return whether a text has words beside names, paths and quoted text."""
    return _left(text) > 0


def _masked(text: str) -> str:
    """Return a text of the same length, without names, paths and quoted text."""
    return _NAME.sub(lambda name: "\1" * len(name[0]), text)


def _left(text: str) -> float:
    """Return the cost of a text that stays as it is: its English words, without names, paths and quoted text."""
    return _WORD_COST * len(WORD.findall(_NAME.sub(" ", text)))


def broken(text: str, width: int, first: str, then: str) -> Iterator[str]:
    """Yield the lines of a text in Chinese."""
    line = first
    empty = True
    for token in _TOKEN.findall(text):
        if token.isspace():
            line += "" if empty else " "
            continue
        if not empty and columns(line + token) > width:
            yield line.rstrip()
            line = then
        line += token
        empty = False
    if not empty:
        yield line.rstrip()
