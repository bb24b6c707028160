"""What a start does to the messages, as far as consumers notice: starts are compared by it, and named by its words."""

from __future__ import annotations

from typing import NamedTuple

from rmqstore.formats.text import many
from rmqstore.texts import Text


class StartOutcome(NamedTuple):
    """The outcome of a start, in messages.

    `taken`: those that it takes from the log or from queues. `gone`: those that stay in the log without being
    delivered. `moved`: those at wrong queue offsets. `but`: what else goes wrong, in words; "" for nothing.
    """

    starts: bool
    taken: int = 0
    gone: int = 0
    moved: int = 0
    but: str = ""

    @property
    def rank(self) -> tuple[int, int, int, int]:
        """What compares starts of one store: the greater, the better."""
        return int(self.starts), -(self.taken + self.gone), -self.moved, int(not self.but)

    @property
    def words(self) -> str:
        """What the broker would do, in words that follow its name; "" if every message stays as it is."""
        if not self.starts:
            return Text("would not start")
        if self.taken:
            return Text("would lose {messages}", messages=many(self.taken, "message"))
        if self.gone:
            return Text("would never deliver {messages}", messages=many(self.gone, "message"))
        if self.moved:
            return Text("would put {messages} at wrong queue offsets", messages=many(self.moved, "message"))
        return Text("would start, but {words}", words=self.but) if self.but else ""
