"""Makes `rmqstore/files/broker_settings.tsv`, the settings of every release with their types and defaults.

    python -m tests.real_broker.broker_settings [DIRECTORY]

It needs Java, Maven and about 10 minutes; the jars are kept in DIRECTORY for the next run.
`tests/oracle/Settings.java` prints the settings of one release, with the jars that Maven Central has of it. A class
whose jar is missing is taken from the release before. What depends on the machine is found by different values: the
home directory, the number of processors, the name and the address of the host.
"""

from __future__ import annotations

import base64
import ipaddress
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from rmqstore.files.versions import VERSIONS
from tests.real_broker.java import BrokerUnavailable, JavaClasses, java_classes

TABLE = Path(__file__).resolve().parents[2] / "rmqstore" / "files" / "broker_settings.tsv"
_MODULES = ("common", "remoting", "store", "auth", "tiered-store")  # with the classes that a broker.conf fills
_LATER = {"auth": "5.3.0", "tiered-store": "5.1.0"}
_GONE = re.compile(r"org\.apache\.rocketmq:rocketmq-([a-z-]+):jar")
_PROCESSORS = (1, 2, 3, 5, 8, 64)
_HOME = "/rmqstore-home"
_HEAD = """\
# The settings that RocketMQ 4.3.0 to 5.5.1 read from broker.conf: where a setting appears or changes, with its type and
# default. A type in capitals: the constants of an enum. "-": the setting is gone. {...}: depends on the machine.
# Made by `python -m tests.real_broker.broker_settings` from the jars on Maven Central; do not edit.
"""


class Setting(NamedTuple):
    """A setting of one release: the types that its setters take, and its default."""

    types: str
    default: str


Settings = Mapping[tuple[str, str], Setting]
"""The settings of a release, by class and key."""


def main(kept: str | None = None) -> None:
    """Write the table; `kept` is a directory for the jars."""
    with tempfile.TemporaryDirectory() as folder:
        releases = list(_releases(Path(kept or folder)))
    TABLE.write_text(_HEAD + "".join(lines(releases)), "utf-8")


def lines(releases: Iterable[tuple[str, list[str], bool, Settings]]) -> Iterator[str]:
    """Yield the lines of the table: version, class, key, types, default."""
    known: dict[tuple[str, str], Setting] = {}
    trimmed = False
    for version, missing, trims, settings in releases:
        if missing:
            yield f"{version}\t-\tno jar of {', '.join(missing)}\t\t\n"
        if trims is not trimmed:
            trimmed = trims
            yield f"{version}\tMixAll\ttrim\tboolean\t{str(trims).lower()}\n"
        for name in sorted(known.keys() | settings.keys()):
            now = settings.get(name)
            if now != known.get(name):
                yield "\t".join((version, *name, *(now or ("-", "")))) + "\n"
        known = dict(settings)


def _releases(folder: Path) -> Iterator[tuple[str, list[str], bool, Settings]]:
    before: dict[str, Path] = {}
    logging = next(path for path in java_classes("4.9.7").libraries if path.name == "rocketmq-logging-4.9.7.jar")
    for version in VERSIONS:
        number = _number(version)
        wanted = [name for name in _MODULES if number >= _number(_LATER.get(name, version))]
        jars = _jars(version, wanted, folder / version)
        missing = [name for name in wanted if name not in jars]
        before = {name: jars.get(name) or before[name] for name in wanted}
        trims, settings = _described(java_classes("4.9.7" if number < (5,) else "5.4.0"), [*before.values(), logging])
        print(version, len(settings), *missing)
        yield version, missing, trims, settings


def _jars(version: str, modules: list[str], folder: Path) -> dict[str, Path]:
    """Let Maven copy the jars of these modules; those that Maven Central lacks are left out."""
    wanted = list(modules)
    found = {name: folder / f"rocketmq-{name}-{version}.jar" for name in wanted}
    if folder.exists():
        return {name: path for name, path in found.items() if path.exists()}
    folder.mkdir(parents=True)
    while wanted:
        parts = "".join(
            f"<dependency><groupId>org.apache.rocketmq</groupId><artifactId>rocketmq-{name}</artifactId><version>"
            f"{version}</version><exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
            "</exclusions></dependency>"
            for name in wanted
        )
        pom = folder / "pom.xml"
        pom.write_text(
            "<project><modelVersion>4.0.0</modelVersion><groupId>x</groupId><artifactId>x</artifactId>"
            f"<version>1</version><dependencies>{parts}</dependencies></project>",
            "utf-8",
        )
        command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        gone = set(_GONE.findall(done.stdout)) & set(wanted)
        if not done.returncode:
            break
        if not gone:
            raise BrokerUnavailable(done.stdout[:500])
        wanted = [name for name in wanted if name not in gone]
    return {name: found[name] for name in wanted}


def _described(beside: JavaClasses, jars: list[Path]) -> tuple[bool, Settings]:
    """Return whether a release trims texts, and its settings, with what depends on the machine replaced."""
    own = {f"rocketmq-{name}" for name in _MODULES}
    others = [
        path for path in beside.libraries if re.sub(r"-[0-9.]+\.jar", "", path.name) not in own | {"rocketmq-logging"}
    ]
    classes = JavaClasses(beside.version, beside.jar, (*jars, *others), beside.archive)
    runs = [_run(classes, processors) for processors in _PROCESSORS]
    trims, first = runs[0]
    return trims, {
        name: Setting(one.types, _machine(name[1], [run[1][name].default for run in runs]))
        for name, one in first.items()
    }


def _run(classes: JavaClasses, processors: int) -> tuple[bool, dict[tuple[str, str], Setting]]:
    with tempfile.TemporaryDirectory() as folder:
        options = (f"-XX:ActiveProcessorCount={processors}", f"-Duser.home={_HOME}")
        command = classes.command("Settings", log=Path(folder) / "log", home=Path(folder), options=options)
        home = {key: value for key, value in os.environ.items() if key not in ("ROCKETMQ_HOME", "NAMESRV_ADDR")}
        done = subprocess.run([*command, "describe"], capture_output=True, text=True, check=False, env=home)
    assert not done.returncode, done.stderr
    rows = [line[2:].split("\t") for line in done.stdout.splitlines() if line.startswith("= ")]
    trims = rows.pop()
    assert trims[0] == "trim"
    found: dict[tuple[str, str], Setting] = {}
    for owner, key, kind, default, names in rows:
        if kind not in _READ:
            continue
        name = (OWNERS.get(owner, owner.rpartition(".")[2]), key)
        known = found[name].types.split("|") if name in found else []
        types = "|".join(sorted({*known, names or kind}))
        found[name] = Setting(types, base64.b64decode(default).decode())
    return trims[1] == "true", found


_READ = ("int", "long", "double", "boolean", "String")  # the types of setters that MixAll#properties2Object calls
OWNERS = {
    "org.apache.rocketmq.tieredstore.MessageStoreConfig": "TieredStoreConfig",
    "org.apache.rocketmq.tieredstore.common.TieredMessageStoreConfig": "TieredStoreConfig",
}


def _machine(key: str, values: list[str]) -> str:
    """Return a default; what depends on the machine in braces. `values` are those of `_PROCESSORS`."""
    if len(set(values)) > 1:
        return "{" + _formula([int(value) for value in values]) + "}"
    value = values[0]
    if value == socket.gethostname():
        return "{host name}"
    if _is_address(value):
        return "{address of the host}"
    if key in ("rocketmqHome", "namesrvAddr"):
        return "{ROCKETMQ_HOME}" if key == "rocketmqHome" else "{NAMESRV_ADDR}"
    return value.replace(_HOME, "{user.home}")


def _formula(values: list[int]) -> str:
    """Return how a number depends on the processors: a product and a sum, with a largest value."""
    (low, first), (next_one, second) = zip(_PROCESSORS[:2], values[:2], strict=True)
    factor = (second - first) // (next_one - low)
    added = first - factor * low
    line: Callable[[int], int] = lambda processors: added + factor * processors  # noqa: E731
    text = "processors" if factor == 1 else f"{factor} * processors"
    text = f"{added} + {text}" if added else text
    most = max(values)
    for processors, value in zip(_PROCESSORS, values, strict=True):
        assert value == min(line(processors), most), values
    return text if most == line(_PROCESSORS[-1]) else f"min({text}, {most})"


def _is_address(value: str) -> bool:
    try:
        address = ipaddress.ip_address(value)
    except ValueError:
        return False
    return not address.is_unspecified


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


if __name__ == "__main__":
    if shutil.which("mvn") is None:
        raise BrokerUnavailable("no mvn on PATH")
    main(*sys.argv[1:])
