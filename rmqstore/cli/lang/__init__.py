"""The language of text for people. The code speaks English; what a terminal shows is translated here.

Output for programs (JSON, NDJSON, CSV, metrics, plans, journals) never passes through this module. With English, the
default, no catalogue is imported.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence

LANGUAGES = ("en", "zh")
_current = "en"


class AsIs(str):
    """Text of a store, as a body or a property, which is shown as it is."""

    __slots__ = ()


def use(language: str) -> None:
    """Set the language of this process; unknown ones mean English."""
    global _current
    _current = language if language in LANGUAGES else "en"


def is_english() -> bool:
    """Return whether texts are shown as the code has them."""
    return _current == "en"


def asked(words: Sequence[str]) -> str:
    """Return the language given with --lang, "" for none; it is needed before other options are parsed."""
    for word, following in itertools.zip_longest(words, words[1:], fillvalue=""):
        if word == "--":
            return ""
        if word == "--lang":
            return following
        if word.startswith("--lang="):
            return word.partition("=")[2]
    return ""


def of_locale(environment: Mapping[str, str] = os.environ) -> str:
    """Return the language of LC_ALL, LC_MESSAGES or LANG, the first that is set; English unless it is Chinese in UTF-8.

    All output is UTF-8, which a terminal with GBK or Big5 cannot show.
    """
    names = ("LC_ALL", "LC_MESSAGES", "LANG")
    locale = next((environment[name] for name in names if environment.get(name)), "")
    return "zh" if locale.startswith("zh") and "utf" in locale.lower() else "en"


def translated(line: str) -> str:
    """Return a text in the current language; strings that are no texts stay as they are."""
    if _current == "en":
        return line
    from rmqstore.cli.lang.lookup import in_chinese

    return in_chinese(line)
