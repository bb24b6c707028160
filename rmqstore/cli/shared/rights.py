"""Options for owner and mode of what a command makes: a store, or a page."""

from __future__ import annotations

import re
from collections.abc import Callable

import click

from rmqstore.append.rights import owner_of
from rmqstore.cli.printing.quantities import Quantity
from rmqstore.cli.shared.options import gathered
from rmqstore.texts import Text


def parse_directory_mode(text: str) -> int:
    """Parse the mode of directories, which the owner can use and not all users can change. Errors: ValueError."""
    return _parse_mode(text, 0o700, 0o775)


def parse_page_mode(text: str) -> int:
    """Parse the mode of a page, which only the owner can change. Errors: ValueError."""
    return _parse_mode(text, 0o600, 0o644)


def _parse_mode(text: str, least: int, most: int) -> int:
    if not re.fullmatch("0?[0-7]{3}", text):
        raise ValueError(text)
    mode = int(text, 8)
    if mode & least != least or mode & ~most:
        raise ValueError(text)
    return mode


OWNER = Quantity("user[:group]", owner_of, Text("an owner: give USER or USER:GROUP"))
MODE = Quantity("mode", parse_directory_mode, Text("a mode from 700 to 775, which the owner can use, such as 750"))
PAGE_MODE = Quantity("mode", parse_page_mode, Text("a mode from 600 to 644, such as 640 or 644"))


def rights_options(function: Callable[..., int]) -> Callable[..., int]:
    """Return --owner and --mode of a command that makes a store, as one value `rights`."""
    function = gathered("rights", "rmqstore.append.rights:GivenRights")(function)
    words = Text("Octal mode of the new directories, such as 750; files get it without x (default: as the source).")
    function = click.option("--mode", type=MODE, help=words)(function)
    words = Text("User and group of the new store, names or numbers (default: as the source). Needs root.")
    return click.option("--owner", type=OWNER, help=words)(function)
