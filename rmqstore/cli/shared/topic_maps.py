"""The option --topic-map OLD=NEW."""

from __future__ import annotations

from rmqstore.errors import UsageError
from rmqstore.texts import Text


def topic_map(texts: tuple[str, ...]) -> dict[str, str]:
    """Return new names of topics by their old ones. Errors: UsageError."""
    found: dict[str, str] = {}
    for text in texts:
        old, equals, new = text.partition("=")
        if not equals or not old or not new:
            raise UsageError(Text("--topic-map {text!r} is not OLD=NEW", text=text), "--topic-map Order=Order_copy")
        found[old] = new
    return found
