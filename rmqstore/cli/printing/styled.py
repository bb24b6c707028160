"""A line of text whose parts have styles, for terminals with colours."""

from __future__ import annotations

# parameters of the control sequence SGR (ECMA-48)
BOLD, DIM, GREEN, CYAN = "1", "2", "32", "36"
BOLD_RED, BOLD_GREEN, BOLD_YELLOW = "1;31", "1;32", "1;33"


class Styled:
    """One line. Each part is translated for itself."""

    def __init__(self, text: str = "", style: str = "") -> None:
        self.parts = [(text, style)]

    def append(self, text: str, style: str = "") -> Styled:
        """Append a part, and return the line."""
        self.parts.append((text, style))
        return self
