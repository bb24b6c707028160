"""Chinese for lines of English text: finds the texts of the catalogue in a line, whichever values they have.

A text of the catalogue is a template with holes. A sentence is a template filled with values, which may be such texts
themselves, or several of them, joined by punctuation. Of all ways to read a sentence, the one that leaves the fewest
English words wins, and of those the one with the fewest templates. Names, numbers, paths, quoted text and commands
match no template and stay as they are.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from typing import NamedTuple

from rmqstore.cli.lang import AsIs, catalogue
from rmqstore.cli.lang.forms import WORD, bare, closing, parsed, sentences

_WIDE = re.compile(r"[\u2e80-\u9fff\uff00-\uffef]")
_VERBATIM = re.compile(
    r"`[^`]*`|\"[^\"]*\"|(?<!\w)'[^']*'(?!\w)|(?<![^\s(])(?:[-/.~]\S*?|\S*?[/_=@#<>\\]\S*?)(?=[:;,.?!)]*(?:\s|$))"
    r"|\b[A-Z][A-Z0-9_]+\b|\b[\w-]+(?:\.[\w-]+)+\b|\b[\w-]*\d[\w-]*|\b(?:Corruption|IO error|Invalid argument): .*"
)
_COMMAND = re.compile(r"(?:rmqstore|chmod|sudo|pip|uv|systemctl) ")
_SEPARATORS = (
    ("; ", "；"),
    (": ", "："),
    (" — ", " — "),
    (", and ", "，以及"),
    (", or ", "，或"),
    (", ", "，"),
    (" and ", "和"),
    (" or ", "或"),
    (" × ", " × "),
    ("  ×", "  ×"),
)
_COUNT = re.compile(r"[+-]?[\d,.]+")
_GAP = re.compile(r"( {2,})")
_WORD_COST = 10.0
_LOOSE = 0.75
_WORDS = 24  # spaces of a text up to which it is read as two without punctuation between them
_MOST = 14  # separators of a sentence up to which all ways to split it are tried
_NOT_LAST = "（“「『《"
_NOT_FIRST = "，。；：、）！？”’」』》…,.;:)"
_TOKEN = re.compile(r"`[^`]*`|[\u2e80-\u9fff\uff00-\uffef][，。；：、）！？”]*|[^\s\u2e80-\u9fff\uff00-\uffef`]+|`|\s+")


class _Template(NamedTuple):
    literals: list[str]
    holes: list[int]
    chinese: list[str]  # literal parts
    order: list[int]  # the hole behind each
    counted: bool  # whether the one value is a number

    def values(self, text: str, masked: str, last: bool) -> list[str] | None:
        """The values for which this template is the text, None for none.

        `masked`: the text without its names, in which words of the template are looked for. `last`: literal parts match
        at their last place in the text instead of their first.
        """
        first, *between = self.literals
        if not between:
            return [] if text == first else None
        end = between.pop()
        if not text.startswith(first) or not text.endswith(end) or len(text) < len(first) + len(end):
            return None
        low, high = len(first), len(text) - len(end)
        cuts: list[tuple[int, int]] = []
        for part in reversed(between) if last else between:
            place = text if _VERBATIM.search(part) else masked
            at = place.rfind(part, low, high) if last else place.find(part, low, high)
            if at < 0:
                return None
            cuts.append((at, at + len(part)))
            low, high = (low, at) if last else (at + len(part), high)
        edges = [len(first), *(edge for cut in sorted(cuts) for edge in cut), len(text) - len(end)]
        found = [text[edges[i] : edges[i + 1]] for i in range(0, len(edges), 2)]
        if any(value == "…" or value.endswith((",", ";", ":")) for value in found):
            return None
        return [value for _, value in sorted(zip(self.holes, found, strict=True))]

    def loose(self, values: list[str]) -> int:
        """How many values at an edge of this template hold several texts: it rather belongs to one of them."""
        words = sum(len(WORD.findall(part)) for part in self.literals)
        joints = ("; ", " — ", ": ", " (") if words > 2 else ("; ", " — ", ": ", " (", ", ")
        edges = [_masked(values[self.holes[i]]) for i in (0, -1) if self.holes and not self.literals[i]]
        return sum(any(joint in value for joint in joints) for value in edges)

    def filled(self, values: list[str]) -> str:
        """The Chinese text with these values."""
        out = self.chinese[0]
        for hole, then in zip(self.order, self.chinese[1:], strict=True):
            out = spaced(spaced(out, values[hole]), then)
        return out


class _Read(NamedTuple):
    """One way to read a text; `cost` counts English words that are left (times 10), and templates."""

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
        self._known: dict[str, _Read] = {}
        self._done: set[str] = set()

    def line(self, line: str) -> str:
        """Translate a line; parts that two spaces separate, as columns, keep their places if there is room."""
        if line in self._done or line.strip() in self._done or not WORD.search(line):
            return line
        if "\n" in line:
            return "\n".join(map(self.line, line.split("\n")))
        out = ""
        column = 0  # where the English line is
        for part in _GAP.split(line):
            column += columns(part)
            if part.strip():
                out += part if part in self._done else self.text(part)
            elif part:
                out += " " * max(2 if out else 0, column - columns(out))
        return out

    def text(self, text: str) -> str:
        """Translate sentences."""
        found = [self._sentence(sentence) for sentence in sentences(text)]
        out = ""
        for sentence in found:
            out += sentence if not out or out.endswith(("。", "！", "？")) else f" {sentence}"
        behind = "" if out.endswith("：") else text[len(text.rstrip()) :]
        return text[: len(text) - len(text.lstrip())] + out + behind

    def wrapped(self, text: str, width: int, first: str, then: str) -> list[str]:
        """Translate a paragraph and break it; wide characters take two columns, and may begin a line."""
        as_is = isinstance(text, AsIs) or text in self._done
        lines = list(_broken(text if as_is else self.text(text), width, first, then))
        self._done.update(lines)
        self._done.update(line.strip() for line in lines)
        return lines

    def _sentence(self, sentence: str) -> str:
        known = self._read(sentence)
        end = sentence[-1:] if sentence.endswith((".", ":")) and not sentence.endswith("..") else ""
        if end:
            known = min(self._read(sentence[:-1]), known, key=lambda read: read.cost)
        if known.cost * 3 > _left(sentence) * 2 and sentence not in self._texts:  # English is clearer than a mixture
            return sentence
        text = known.text
        if end and _WIDE.search(text):
            wide = "。" if end == "." else "："
            return text.removesuffix(end).removesuffix(wide) + wide
        return text if text.endswith(end) else text + end

    def _read(self, text: str) -> _Read:
        found = self._known.get(text)
        if found is None:
            self._known[text] = _Read(_left(text), text)  # ends a template that would read its own value
            found = self._known[text] = self._best(text)
        return found

    def _best(self, text: str) -> _Read:
        if chinese := self._texts.get(text):
            return _Read(1, chinese)
        best = _Read(_left(text), text)
        if not best.cost or _COMMAND.match(text):
            return _Read(0, text)
        masked = _masked(text)
        for template in self._candidates(text):
            for last in (False, True) if len(template.literals) > 2 else (False,):
                values = template.values(text, masked, last)
                if values is None or (template.counted and not _COUNT.fullmatch(values[0])):
                    continue
                reads = [self._read(value) for value in values]
                cost = 1 + sum(read.cost for read in reads) + (_LOOSE * template.loose(values))
                if cost < best.cost:
                    best = _Read(cost, template.filled([read.text for read in reads]))
            if best.cost <= 1:
                return best
        return min((best, *self._splits(text)), key=lambda read: read.cost)

    def _candidates(self, text: str) -> list[_Template]:
        found = [english for word in set(WORD.findall(text)) for english in self._by_word.get(word, ())]
        return [self._template(english) for english in sorted(found, key=len, reverse=True)]

    def _template(self, english: str) -> _Template:
        found = self._templates.get(english)
        if found is None:
            found = _Template(*parsed(english), *parsed(self._texts[english]), english in self._counted)
            self._templates[english] = found
        return found

    def _splits(self, text: str) -> Iterator[_Read]:
        """Yield ways to read a text as two texts, or as one with another in brackets."""
        plain = _masked(text)
        number = sum(plain.count(separator) for separator, _ in _SEPARATORS)
        for separator, chinese in _SEPARATORS:
            at = plain.find(separator)
            while at >= 0:
                if any(map(str.isalnum, text[:at])):
                    yield self._joined(text[:at], separator, chinese, text[at + len(separator) :])
                if number > _MOST:
                    return
                at = plain.find(separator, at + 1)
        if plain[:1].isalpha():  # code changes the case of a sentence that it puts into another one
            read = self._read_as(text[0].swapcase() + text[1:])
            yield read or _Read(_left(text), text)
        yield from self._adjacent(text, plain)
        if "(" in plain:
            at = plain.index("(")
            end = closing(text, at)
            if end > 0:
                yield self._bracketed(text, at, end)
        if text.startswith("[") and text.endswith("]"):
            read = self._read(text[1:-1])
            yield _Read(read.cost + 0.5, f"[{read.text}]")
        if "  [" in text or " [" in plain:
            at = text.rfind(" [")
            a, b = self._read(text[:at].rstrip()), self._read(text[at + 1 :])
            yield _Read(a.cost + b.cost + 0.5, f"{a.text} {b.text}")
        for mark in ("… ", "- ", "-> ", "∙ ", "• "):
            if text.startswith(mark):
                read = self._read(text.removeprefix(mark))
                yield _Read(read.cost + 0.5, mark + read.text)
        core = bare(text)
        if core != text and core in text and len(core) > 1:
            before, behind = text.split(core, 1)
            read = self._read(core)
            yield _Read(read.cost + 0.5 + _left(f"{before} {behind}"), before + read.text + behind)

    def _read_as(self, text: str) -> _Read | None:
        """A reading of a text as one template; None if there is none."""
        chinese = self._texts.get(text)
        return _Read(1, chinese) if chinese else None

    def _adjacent(self, text: str, plain: str) -> Iterator[_Read]:
        """Yield ways to read a text as two, with nothing between them, that leave no English word."""
        if plain.count(" ") > _WORDS:
            return
        at = plain.find(" ")
        while at >= 0:
            a = self._read(text[:at])
            if a.cost < _WORD_COST and a.text != text[:at]:
                b = self._read(text[at + 1 :])
                if b.cost < _WORD_COST and b.text != text[at + 1 :]:
                    yield _Read(a.cost + b.cost + 1, spaced(a.text, b.text))
            at = plain.find(" ", at + 1)

    def _joined(self, left: str, separator: str, chinese: str, right: str) -> _Read:
        a, b = self._read(left), self._read(right)
        cost = a.cost + b.cost + 0.5
        if not _WIDE.search(a.text + b.text):
            return _Read(cost, a.text + separator + b.text)
        if separator in (" and ", " or ", ", and ", ", or "):
            return _Read(cost, spaced(spaced(a.text, chinese), b.text))
        return _Read(cost, a.text + chinese + b.text)

    def _bracketed(self, text: str, at: int, end: int) -> _Read:
        reads = [self._read(part) for part in (text[:at].rstrip(), text[at + 1 : end], text[end + 1 :].lstrip())]
        cost = sum(read.cost for read in reads) + 0.5
        before, inner, behind = (read.text for read in reads)
        if _WIDE.search(before + inner):
            return _Read(cost, f"{before}（{inner}）{behind}")
        space = " " if text[:at].endswith(" ") else "", " " if text[end + 1 :].startswith(" ") else ""
        return _Read(cost, f"{before}{space[0]}({inner}){space[1]}{behind}")


@cache
def translator() -> Translator:
    """The translator by the catalogue of this package, which is read once."""
    texts: dict[str, str] = {}
    counted: set[str] = set()
    for entry in catalogue.read():
        texts[entry.english] = entry.chinese
        if entry.plural:
            texts[entry.plural] = entry.chinese
            counted |= {entry.english, entry.plural}
    return Translator(texts, counted)


def columns(text: str) -> int:
    """The columns that a text needs on a terminal."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _masked(text: str) -> str:
    """A text of the same length, without names, paths and quoted text."""
    return _VERBATIM.sub(lambda name: "\1" * len(name[0]), text)


def _left(text: str) -> float:
    """The cost of a text that stays as it is: its English words, without names, paths and quoted text."""
    words = WORD.findall(_VERBATIM.sub(" ", text))
    return _WORD_COST * len(words)


def _broken(text: str, width: int, first: str, then: str) -> Iterator[str]:
    line = first
    empty = True
    for token in _TOKEN.findall(text):
        if token.isspace():
            line += "" if empty else " "
            continue
        if not empty and columns(line + token) > width and token[0] not in _NOT_FIRST and line[-1] not in _NOT_LAST:
            yield line.rstrip()
            line = then
        line += token
        empty = False
    if not empty:
        yield line.rstrip()
