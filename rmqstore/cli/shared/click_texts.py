"""Messages of click as texts, which keep their template."""

from __future__ import annotations

from typing import Any

import click

from rmqstore.texts import Text, joined

TEXTS = (
    Text("Got unexpected extra argument ({args})"),
    Text("Got unexpected extra arguments ({args})"),
    Text("Invalid value for {param_hint}: {message}"),
    Text("Invalid value: {message}"),
    Text("No such option {name!r}"),
    Text("No such option: {name}"),
    Text("Option {name!r} does not take a value"),
    Text("Option {name!r} requires an argument"),
    Text("{name} {filename!r} does not exist"),
    Text("{name} {filename!r} is a directory"),
    Text("{name} {filename!r} is a file"),
    Text("{name} {filename!r} is not readable"),
    Text("{name} {filename!r} is not writable"),
    Text("{value!r} is not a valid {number_type}"),
    Text("{value!r} is not one of {choices}"),
    Text("{value} is not in the range {range}"),
    Text("Commands"),
    Text("Options"),
    Text("Show the version and exit."),
    Text("Show this message and exit."),
    Text("Usage"),
)
"""Templates of click 8.1 to 8.4 that this command line can show. Nothing uses the list: Babel extracts it."""
_KINDS = {
    "Directory": Text("Directory"),
    "File": Text("File"),
    "Path": Text("Path"),
    "float range": Text("number"),
    "integer": Text("integer"),
    "integer range": Text("integer"),
}
_CHOICES = "Choose from:"


class _ClickText(Text):
    """A template of click, whose kinds of values are texts too."""

    __slots__ = ()

    def format(self, *args: object, **values: object) -> Text:
        return Text(self.template, **{name: _kind(value) for name, value in values.items()})


def keep_templates() -> None:
    """Let click use texts instead of strings for its messages: it asks gettext for each of them."""
    for module in (click.core, click.exceptions, click.parser, click.types):
        names: dict[str, Any] = vars(module)
        names["_"] = _text
        names["ngettext"] = lambda one, more, count: _text(one if count == 1 else more)


def message_of(error: click.ClickException) -> str:
    """Return the message of an error on one line, without a full stop."""
    message = error.format_message()
    if isinstance(error, click.MissingParameter) and error.param is not None:
        return _missing(error.param.param_type_name, error.param.get_error_hint(error.ctx), message)
    if isinstance(error, click.NoSuchOption) and error.possibilities:
        names = joined(map(repr, error.possibilities))
        return Text("{message}. Did you mean {names}?", message=_without_stop(error.message), names=names)
    return _without_stop(message)


def _missing(kind: str, name: str, message: str) -> str:
    """`message` also has the choices, on lines of their own; older versions of click write them without commas."""
    missing = (
        Text("Missing argument {name}", name=name) if kind == "argument" else Text("Missing option {name}", name=name)
    )
    _, found, choices = message.partition(_CHOICES)
    if not found:
        return missing
    names = joined(choice.strip(" ,.\t") for choice in choices.split("\n") if choice.strip())
    return Text("{missing}. Choose from: {names}", missing=missing, names=names)


def _without_stop(message: str) -> str:
    return message[:-1] if message.endswith(".") else message  # removesuffix() would make a plain str of a Text


def _text(template: str) -> Text:
    return _ClickText(_without_stop(template))


def _kind(value: object) -> object:
    return _KINDS.get(value, value) if type(value) is str else value
