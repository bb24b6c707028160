"""Options for owner and mode of a store that a command makes."""

from __future__ import annotations

from collections.abc import Callable

import click

from rmqstore.append.rights import owner_of
from rmqstore.cli.printing.quantities import MODE, Quantity
from rmqstore.cli.shared.options import gathered
from rmqstore.texts import Text

OWNER = Quantity("user[:group]", owner_of, Text("an owner: give USER or USER:GROUP"))


def rights_options(function: Callable[..., int]) -> Callable[..., int]:
    """Return --owner and --mode of a command that makes a store, as one value `rights`."""
    function = gathered("rights", "rmqstore.append.rights:GivenRights")(function)
    words = Text("Octal mode of the new directories, such as 750; files get it without x (default: as the source).")
    function = click.option("--mode", type=MODE, help=words)(function)
    words = Text("User and group of the new store, names or numbers (default: as the source). Needs root.")
    return click.option("--owner", type=OWNER, help=words)(function)
