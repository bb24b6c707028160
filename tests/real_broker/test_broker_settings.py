"""broker.conf: every setting has the value that the real classes give it, and the table of defaults is theirs."""

from __future__ import annotations

import base64
import os
import random
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from rmqstore.files.broker_config import BrokerConfFile, BrokerConfig
from rmqstore.files.broker_settings import Release, Setting, known_keys, release
from rmqstore.files.effective_settings import effective_settings
from rmqstore.files.versions import RUN_VERSIONS
from rmqstore.formats.javatext import java_path
from tests.real_broker.broker_settings import OWNERS
from tests.real_broker.java import LOGGING, BrokerUnavailable, JavaClasses, java_classes
from tests.seeds import fresh

FILES = int(os.environ.get("RMQSTORE_CONFIGS", "100"))
KEYS = sorted(known_keys())
BLANKS = ("", "", "", "", " ", "\t", "\f", "\u00a0", "\x0b", "\x00", "  ")
NUMBERS = ("0", "1", "-1", "+7", "007", "50", "131072", "2147483647", "2147483648", "-2147483648", "9" * 18)
ODD_NUMBERS = ("64M", "1_000", "1.5", "1e3", "0x10", ".5", "1f", "NaN", "Infinity", "-0.0", "9" * 30, "", "1 2")
ESCAPES = ("\\u0041", "\\u00e9", "\\ud83d\\ude00", "\\ud83d", "\\ude00", "\\t", "\\\n  ", "\\q", "\\u12", "\\\\")
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
    if rng.random() < 0.05:  # as an editor of Windows writes it: NULs between the characters
        return text.encode(rng.choice(("utf-16", "utf-16-le", "utf-16-be")))
    return text.encode("latin-1")


def _line(rng: random.Random) -> str:
    key = rng.choice(KEYS)
    if rng.random() < 0.1:
        at = rng.randrange(len(key))
        key = rng.choice((key[:at] + key[at + 1 :], key.upper(), key.lower(), key[:at] + "\\" + key[at:], " " + key))
    value = rng.choice(rng.choice((NUMBERS, NUMBERS, ODD_NUMBERS, WORDS)))
    if rng.random() < 0.01:
        value *= 10_000
    if rng.random() < 0.1:
        at = rng.randint(0, len(value))
        value = value[:at] + rng.choice(ESCAPES) + value[at:]
    between = rng.choice(("=", "=", "=", " = ", ":", " ", "\t", " :", "= ", "==", ""))
    return rng.choice(BLANKS) + key + between + rng.choice(BLANKS) + value + rng.choice(BLANKS)


def ours(raw: bytes, of: Release) -> dict[tuple[str, str], str] | None:
    """Return the settings that differ from their default; None if the file cannot be read."""
    file = BrokerConfFile.parse(raw)
    if file.broken:
        return None
    found: dict[tuple[str, str], str] = {}
    for key, line in file.last.items():
        for setting in of.of_key(key):
            value = of.read(setting, line.value)
            if value is not None and _comparable(setting, value) != _comparable(setting, setting.default):
                found[setting.owner, key] = _comparable(setting, value)
    return found


def _comparable(setting: Setting, value: str | None) -> str:
    return repr(float(value)) if "double" in setting.kinds and value is not None else java_path(str(value))


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


STARTS: dict[str, dict[str, str]] = {
    "nothing": {},
    "a slave": {"brokerRole": "SLAVE", "brokerId": "3", "accessMessageInMemoryMaxRatio": "30"},
    "a slave with the default ratio": {"brokerRole": "SLAVE", "brokerId": "1"},
    "a master with an id": {"brokerRole": "SYNC_MASTER", "brokerId": "7", "listenPort": "20911"},
    "a port for replicas": {"haListenPort": "12345", "listenPort": "20911"},
    "no port for replicas": {"haListenPort": "-1"},
    "port zero for replicas": {"haListenPort": "0"},
    "a controller": {"enableControllerMode": "true", "brokerId": "5", "brokerRole": "SLAVE"},
    "a controller and a master": {"enableControllerMode": "true", "brokerId": "5"},
    "DLedger": {"enableDLegerCommitLog": "true", "dLegerSelfId": "n0", "brokerId": "4", "listenPort": "20911"},
    "sizes and ratios": {"mappedFileSizeConsumeQueue": "4001", "diskMaxUsedSpaceRatio": "7", "deleteWhen": "04;16"},
    "sizes and ratios, large": {"mappedFileSizeConsumeQueue": "2000", "diskMaxUsedSpaceRatio": "99"},
    "access": {"brokerName": "b", "brokerClusterName": "c", "authConfigPath": "/x", "clusterName": "y"},
    "filters": {"maxErrorRateOfBloomFilter": "1", "expectConsumerNumUseFilter": "100"},
    "filters with another length": {"bitMapLengthConsumeQueueExt": "64", "maxErrorRateOfBloomFilter": "99"},
    "in a container": {"inBrokerContainer": "true", "isInBrokerContainer": "true"},
    "a home of its own": {"rocketmqHome": "/nowhere", "namesrvAddr": "127.0.0.1:1;127.0.0.1:2"},
}
"""Files whose settings BrokerStartup and the getters change."""


@pytest.mark.slow
@pytest.mark.broker
@pytest.mark.parametrize("version", RUN_VERSIONS)
def test_every_setting_of_a_broker_is_effective(version: str, tmp_path: Path) -> None:
    home = _home(tmp_path / "home")
    paths = []
    for number, (what, settings) in enumerate(STARTS.items()):
        paths.append(tmp_path / f"{number}.conf")
        own = {"storePathRootDir": f"{tmp_path}/{number}", "storePathCommitLog": f"{tmp_path}/{number}/log"}
        lines = {**own, "rocketmqHome": str(home), "dLegerPeers": "n0-127.0.0.1:0"} | settings
        if what == "a home of its own" and version == "4.9.7":
            lines["rocketmqHome"] = str(home)  # 4.9.7 reads its logging configuration there
        paths[-1].write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    done = list(_started(version, [["-c", str(path)] for path in paths], tmp_path))
    assert len(done) == len(paths)
    wrong = []
    for path, what, real in zip(paths, STARTS, done, strict=True):
        told = effective_settings(BrokerConfig.read(path, version))
        for one in told:
            name = one.setting.owner, one.setting.key
            if name in real and not str(one.value).startswith("{"):
                value = _comparable(one.setting, one.value), _comparable(one.setting, real[name])
                if one.value is None and real[name] == "null":
                    continue
                if value[0] != value[1]:
                    wrong.append((what, *name, *value))
        assert len(real) > 150
    assert sorted(set(wrong)) == []


@pytest.mark.slow
@pytest.mark.broker
@pytest.mark.parametrize("version", RUN_VERSIONS)
def test_the_command_line_comes_before_the_file_and_the_file_before_the_environment(
    version: str, tmp_path: Path
) -> None:
    home = _home(tmp_path / "home")
    other = _home(tmp_path / "other")
    files = {"nothing": "", "address": "namesrvAddr=file:1\n", "home": f"rocketmqHome={other}\n"}
    for name, text in files.items():
        own = f"storePathRootDir={tmp_path}/{name}\nstorePathCommitLog={tmp_path}/{name}/log\n"
        (tmp_path / f"{name}.conf").write_text(own + text)
    conf = {name: str(tmp_path / f"{name}.conf") for name in files}
    lines = (
        ["-c", conf["address"]],
        ["-c", conf["address"], "-n", "words:1"],
        ["-n", "words:1", "-c", conf["address"]],
        ["-c", conf["nothing"]],
        ["-c", conf["nothing"], "-n", "words:1"],
        ["-c", conf["home"]],
        ["-c", conf["nothing"], "-c", conf["address"]],
    )
    environment = {"NAMESRV_ADDR": "environment:1", "ROCKETMQ_HOME": str(home)}
    done = list(_started(version, lines, tmp_path, environment))
    addresses = [real["BrokerConfig", "namesrvAddr"] for real in done]
    assert addresses == ["file:1", "words:1", "words:1", "environment:1", "words:1", "environment:1", "environment:1"]
    assert [real["BrokerConfig", "rocketmqHome"] for real in done] == [*[str(home)] * 5, str(other), str(home)]


@pytest.mark.slow
@pytest.mark.broker
@pytest.mark.parametrize("version", RUN_VERSIONS)
@pytest.mark.parametrize("option", ["-p", "-m"])
def test_the_options_that_print_the_settings_start_no_broker(version: str, option: str, tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(f"storePathRootDir={tmp_path}/store\nfileReservedTime=7 \nmaxMessageSize=17\n")
    command = _classes(version).command("org.apache.rocketmq.broker.BrokerStartup", log=tmp_path / "log", home=tmp_path)
    done = subprocess.run(
        [*command, "-c", str(path), option],
        env={**os.environ, "ROCKETMQ_HOME": str(_home(tmp_path / "home"))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert not (tmp_path / "store").exists()


def _home(path: Path) -> Path:
    (path / "conf").mkdir(parents=True)
    for name in ("logback_broker.xml", "rmq.broker.logback.xml"):
        shutil.copy(LOGGING / ("logback.xml" if name.startswith("log") else "rmq.logback.xml"), path / "conf" / name)
    return path


def _started(
    version: str, lines: Iterable[Sequence[str]], folder: Path, environment: Mapping[str, str] | None = None
) -> Iterator[dict[tuple[str, str], str]]:
    command = _classes(version).command("Settings", log=folder / "log", home=folder)
    done = subprocess.run(
        [*command, "start"],
        input="".join("\t".join(words) + "\n" for words in lines),
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    found: dict[tuple[str, str], str] = {}
    for line in done.stdout.splitlines():
        if line.startswith("= get "):
            name, _, value = base64.b64decode(line[6:]).decode().partition("=")
            owner, _, key = name.rpartition(" ")
            found[owner.rpartition(".")[2], key] = value
        elif line == "= end":
            yield found
            found = {}


def _classes(version: str) -> JavaClasses:
    try:
        return java_classes(version)
    except BrokerUnavailable as missing:
        if os.environ.get("RMQSTORE_REQUIRE_BROKER") == "1":
            raise
        pytest.skip(str(missing))


def _real(version: str, files: list[bytes], of: Release, folder: Path) -> Iterator[dict[tuple[str, str], str] | None]:
    command = _classes(version).command("Settings", log=folder / "log", home=folder)
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
