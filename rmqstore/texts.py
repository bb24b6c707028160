"""Texts for people, which keep their template: English wherever they are used as a string, translated by the output.

`Text("would cut {count:,} messages of {queue}", count=…, queue=…)` is the English sentence. JSON, plans, journals and
logs need nothing else. `cli/printing/` looks the template up in a catalogue and puts the same values into it. Values
may be texts again. Write a sentence as one template: a text that is made of pieces cannot be translated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Self


class Text(str):
    """A template with its values; it equals, sorts, hashes and prints as the English text.

    Without values the template is used as it is, also with braces. Methods of `str` return plain strings; `+` keeps
    the template.
    """

    __slots__ = ("template", "values")
    template: str
    values: dict[str, Any]

    def __new__(cls, template: str, /, **values: Any) -> Self:
        return cls._made(template.format_map(values) if values else template, template, values)

    @classmethod
    def _made(cls, english: str, template: str, values: dict[str, Any]) -> Self:
        self = super().__new__(cls, english)
        self.template = template
        self.values = values
        return self

    def replaced(self, **values: Any) -> Text:
        """Return the text with other values for these names, also in texts that are its values."""
        kept = {name: old.replaced(**values) if isinstance(old, Text) else old for name, old in self.values.items()}
        return type(self)(self.template, **{name: values.get(name, old) for name, old in kept.items()})

    def format(self, *args: object, **values: object) -> Text:
        """Fill the template, as `gettext(template).format(…)` does."""
        return Text(str.format(self.template, *args)) if args else Text(self.template, **values)

    def __add__(self, other: str) -> str:
        return joined((self, other), "")

    def __radd__(self, other: str) -> str:
        return joined((other, self), "")

    def __reduce__(self) -> Any:
        return _restored, (type(self), self.template, self.values)


class Placed(Text):
    """A text whose template has no words, such as `"  {name:<12} {sentence}"`: only its values are translated."""

    __slots__ = ()


class Count(Text):
    """A number with what it counts; `plural` is the template for all numbers but 1."""

    __slots__ = ("plural",)
    plural: str

    def replaced(self, **values: Any) -> Text:
        """Return the text itself: its value is a number."""
        return self

    def __reduce__(self) -> Any:
        return _counted, (self.template, self.plural, self.values["count"])


class Joined(Text):
    """Texts one after the other, with `separator` (the template) between them, before the last one `last`."""

    __slots__ = ("last", "parts")
    parts: tuple[str, ...]
    last: str

    def replaced(self, **values: Any) -> Text:
        """Return the list of its parts with other values."""
        parts = [part.replaced(**values) if isinstance(part, Text) else part for part in self.parts]
        return _listed(tuple(parts), self.template, self.last)

    def __reduce__(self) -> Any:
        return joined, (self.parts, self.template, self.last)


def many(count: int, word: str, plural: str = "") -> str:
    """Return for example `1 message`, `1,225 messages` or `7 entries`; `plural` is `word` + "s" by default."""
    return _counted(f"{{count:,}} {word}", f"{{count:,}} {plural or word + 's'}", count)


def joined(parts: Iterable[str], separator: str = ", ", last: str | None = None) -> str:
    """Return texts or names as a list: `a, b, c`, with `last` = " and ": `a, b and c`."""
    return _listed(tuple(parts), separator, separator if last is None else last)


def first_few(names: Sequence[str], most: int = 8, count: int | None = None) -> str:
    """Join the first names with commas, and append how many more there are; `count`: of all, if `names` lacks some."""
    named, more = joined(names[:most]), (len(names) if count is None else count) - most
    return Text("{names} and {more:,} more", names=named, more=more) if more > 0 else named


def _listed(parts: tuple[str, ...], separator: str, last: str) -> Joined:
    english = f"{separator.join(parts[:-1])}{last}{parts[-1]}" if len(parts) > 1 else "".join(parts)
    self = Joined._made(english, separator, {})
    self.parts = parts
    self.last = last
    return self


def _counted(template: str, plural: str, count: int) -> Count:
    self = Count._made((template if count == 1 else plural).format(count=count), template, {"count": count})
    self.plural = plural
    return self


def _restored(cls: type[Text], template: str, values: dict[str, Any]) -> Text:
    return cls(template, **values)
