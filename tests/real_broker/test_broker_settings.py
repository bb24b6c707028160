"""broker.conf: every setting has the value that the real classes give it, and the table of defaults is theirs."""

from __future__ import annotations

import base64
import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqstore.brokers.versions import RUN_VERSIONS
from rmqstore.files.broker_config import BrokerConfFile
from rmqstore.files.broker_settings import Release, Setting, known_keys, release
from tests.real_broker.broker_settings import OWNERS
from tests.real_broker.java import BrokerUnavailable, java_classes
from tests.seeds import fresh

FILES = int(os.environ.get("RMQSTORE_CONFIGS", "100"))
KEYS = sorted(known_keys())
BLANKS = ("", "", "", "", " ", "\t", "\f", "\u00a0", "\x0b", "\x00", "  ")
NUMBERS = ("0", "1", "-1", "+7", "007", "50", "131072", "2147483647", "2147483648", "-2147483648", "9" * 18)
ODD_NUMBERS = ("64M", "1_000", "1.5", "1e3", "0x10", ".5", "1f", "NaN", "Infinity", "-0.0", "9" * 30, "", "1 2")
WORDS = (
    *("true", "TRUE", "false", "yes", "SLAVE", "slave", "SYNC_FLUSH", "PROM", "POP", "FORCE"),
    *("/a/b", "caf\u00e9", "a,b", "#x", "=", ":a", "x\\"),
)


def config(rng: random.Random) -> bytes:
    """Return one broker.conf, as odd as an editor, a script or a bad copy may make it."""
    others = ("# a comment", "! another", "", "  ", "#\\")
    count = rng.randint(0, 25)
    lines = [rng.choice(others) if rng.random() < 0.15 else _line(rng) for _ in range(count)]
    text = "".join(line + rng.choice(("\n", "\n", "\n", "\r\n", "\r", "\\\n", "\\\r\n    ")) for line in lines)
    if rng.random() < 0.05:
        text = "\u00ef\u00bb\u00bf" + text
    if rng.random() < 0.1:
        text = text.rstrip("\r\n") + rng.choice(("", "\\"))
    return text.encode("latin-1")


def _line(rng: random.Random) -> str:
    key = rng.choice(KEYS)
    if rng.random() < 0.1:
        at = rng.randrange(len(key))
        key = rng.choice((key[:at] + key[at + 1 :], key.upper(), key.lower(), key[:at] + "\\" + key[at:], " " + key))
    value = rng.choice(rng.choice((NUMBERS, NUMBERS, ODD_NUMBERS, WORDS)))
    if rng.random() < 0.1:
        at = rng.randint(0, len(value))
        value = value[:at] + rng.choice(("\\u0041", "\\u00e9", "\\t", "\\\n  ", "\\q", "\\u12", "\\\\")) + value[at:]
    between = rng.choice(("=", "=", "=", " = ", ":", " ", "\t", " :", "= ", "==", ""))
    return rng.choice(BLANKS) + key + between + rng.choice(BLANKS) + value + rng.choice(BLANKS)


def ours(raw: bytes, of: Release) -> dict[tuple[str, str], str] | None:
    """Return the settings that differ from their default; None if the file cannot be read."""
    file = BrokerConfFile.parse(raw)
    if file.broken:
        return None
    found: dict[tuple[str, str], str] = {}
    for key, line in file.last().items():
        for setting in of.of_key(key):
            value = of.read(setting, line.value)
            if value is not None and _comparable(setting, value) != _comparable(setting, setting.default):
                found[setting.owner, key] = _comparable(setting, value)
    return found


def _comparable(setting: Setting, value: str | None) -> str:
    return repr(float(value)) if "double" in setting.kinds and value is not None else str(value)


@pytest.mark.broker
@pytest.mark.parametrize("version", RUN_VERSIONS)
def test_every_setting_of_a_random_file_has_the_value_that_it_has_in_the_real_classes(
    version: str, tmp_path: Path
) -> None:
    rng, of = random.Random(fresh(1)), release(version)
    files = [config(rng) for _ in range(FILES)]
    told = list(_real(version, files, of, tmp_path))
    assert len(told) == len(files)
    wrong = [(raw, own, real) for raw, real in zip(files, told, strict=True) if (own := ours(raw, of)) != real]
    assert wrong[:1] == []
    assert sum(1 for real in told if real) > FILES / 5


def _real(version: str, files: list[bytes], of: Release, folder: Path) -> Iterator[dict[tuple[str, str], str] | None]:
    try:
        classes = java_classes(version)
    except BrokerUnavailable as missing:
        if os.environ.get("RMQSTORE_REQUIRE_BROKER") == "1":
            raise
        pytest.skip(str(missing))
    command = classes.command("Settings", log=folder / "log", home=folder)
    lines = "".join(base64.b64encode(raw).decode() + "\n" for raw in files)
    done = subprocess.run([*command, "read"], input=lines, capture_output=True, text=True, check=True)
    found: dict[tuple[str, str], str] = {}
    for line in done.stdout.splitlines():
        if line.startswith("= set "):
            name, _, value = base64.b64decode(line[6:]).decode().partition("=")
            owner, _, key = name.rpartition(" ")
            setting = of.settings[OWNERS.get(owner, owner.rpartition(".")[2]), key]
            found[setting.owner, key] = _comparable(setting, value)
        elif line.startswith("= end"):
            yield None if line != "= end" else found
            found = {}
