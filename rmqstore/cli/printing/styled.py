"""A line of text whose parts have styles, for terminals with colours."""

from __future__ import annotations


class Styled:
    """One line. Styles are those of rich ("bold red"); "" is plain text. Each part is translated for itself."""

    def __init__(self, text: str = "", *, style: str = "") -> None:
        self.parts = [(text, style)]

    @property
    def plain(self) -> str:
        """The text without its styles."""
        return "".join(text for text, _ in self.parts)

    def append(self, text: str, *, style: str = "") -> Styled:
        """Append a part, and return the line."""
        self.parts.append((text, style))
        return self
