"""Defaults of options, from environment variables and from a settings file.

    # ~/.config/rmqstore.toml
    jobs = 4
    max-rate = "100M"
    utc = true

    [stores."/data/rocketmq/store"]
    config = "/etc/rocketmq/broker.conf"

The command line takes precedence over the environment (`RMQSTORE_JOBS=4`), the environment over the file. No setting
can make a command write: only the options in OPTIONS can have defaults.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from rmqstore.errors import NotReadable, UsageError, about
from rmqstore.texts import Text, joined

OPTIONS = ("jobs", "max-rate", "broker", "utc", "color", "progress", "lang")
"""The options that can have a default, by their long names."""
FILE_VARIABLE = "RMQSTORE_SETTINGS"
_LARGEST = 1 << 20  # bytes of a settings file
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


def settings_file() -> Path | None:
    """RMQSTORE_SETTINGS ("" for no file), else rmqstore.toml in XDG_CONFIG_HOME or ~/.config; None without a file.

    Errors: UsageError if RMQSTORE_SETTINGS names no file.
    """
    named = os.environ.get(FILE_VARIABLE)
    if named == "":
        return None
    if named is not None:
        if not Path(named).is_file():
            raise UsageError(
                Text("{file_variable} names {named}, which is not a file", file_variable=FILE_VARIABLE, named=named),
                Text("correct or unset {file_variable}", file_variable=FILE_VARIABLE),
            )
        return Path(named)
    try:
        folder = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    except RuntimeError:  # a user without HOME and without an entry in passwd
        return None
    path = folder / "rmqstore.toml"
    return path if path.is_file() else None


def read_settings() -> Mapping[str, Any]:
    """Read the settings file; empty without one.

    Errors: UsageError for a file that is not TOML, and for a key that is not a setting.
    """
    path = settings_file()
    if path is None:
        return {}
    import tomllib

    from rmqstore.files.files import read_given

    try:
        found = tomllib.loads(read_given(path, _LARGEST).decode("utf-8"))
    except NotReadable as error:
        raise UsageError(error.message, Text("correct the file, or remove it")) from None
    except (ValueError, RecursionError) as error:
        raise UsageError(about(path, error), Text("correct the file, or remove it")) from None
    _refuse_unknown(path, "", found, (*OPTIONS, "stores"))
    stores = found.get("stores", {})
    if not isinstance(stores, dict) or not all(isinstance(own, dict) for own in stores.values()):
        problem = Text("{path}: `stores` must be a table with one table per store", path=path)
        raise UsageError(problem, '[stores."/data/rocketmq/store"]')
    for store, own in stores.items():
        _refuse_unknown(path, f"stores.{store}.", own, ("config",))
    return found


def defaults(known: Collection[str]) -> dict[str, Any]:
    """Defaults for those of the parameters `known` that have one. Errors: UsageError."""
    file = read_settings()
    out: dict[str, Any] = {}
    for option in OPTIONS:
        name, variable = option.replace("-", "_"), f"RMQSTORE_{option.replace('-', '_').upper()}"
        value = os.environ.get(variable) or file.get(option)
        if value is not None and name in known:
            out[name] = _switch(variable, value) if option == "utc" else value
    return out


def language_of_settings() -> str:
    """Return the language of RMQSTORE_LANG or of the settings file; "" for none, also if the file cannot be read."""
    try:
        return os.environ.get("RMQSTORE_LANG") or str(read_settings().get("lang", ""))
    except UsageError:  # the command itself refuses the file
        return ""


def config_of(store: Path) -> Path | None:
    """Return the broker.conf that the settings file names for a store, relative to the settings file."""
    path = settings_file()
    for name, own in read_settings().get("stores", {}).items():
        if path is not None and "config" in own and Path(name).expanduser().resolve() == store.resolve():
            return path.parent / Path(str(own["config"])).expanduser()
    return None


def closest(word: str, known: Iterable[str], least: float = 0.6) -> str:
    """Return the word that a user may have meant, by its similarity (0 to 1); "" for none."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, list(known), 1, least)), "")


def _switch(variable: str, value: Any) -> bool:
    text = str(value).lower()
    if text not in (*_TRUE, *_FALSE):
        raise UsageError(
            Text("{variable}: {value!r} is neither on nor off", variable=variable, value=value),
            Text("give true or false"),
        )
    return text in _TRUE


def _refuse_unknown(path: Path, where: str, found: Mapping[str, Any], known: Collection[str]) -> None:
    for key in found:
        if key not in known:
            hint = Text("settings are {known}", known=joined(known))
            if close := closest(key, known):
                hint = Text("did you mean {close}?", close=close)
            raise UsageError(Text("{path}: {where}{key} is not a setting", path=path, where=where, key=key), hint)


def cache_folder(command: str) -> Path:
    """Return the directory for what a command keeps between its runs: in the user's cache, never in a store."""
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # a container's user without HOME and without a line in passwd
        cache = Path(os.environ.get("TMPDIR") or "/tmp") / f"rmqstore-{os.getuid()}"
    return cache / "rmqstore" / command
