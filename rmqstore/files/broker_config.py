"""The settings of a broker, read from its broker.conf as one release reads them.

`BrokerConfig.read` does what BrokerStartup does with `-c`: the file is a Java properties file in ISO-8859-1, each key
has a setter in this release or is ignored, and a value that the setter refuses leaves the default. What the command
line (`-n`) and the environment add is not known here. Settings that nobody gave have the defaults of the release.

Source: BrokerStartup#createBrokerController, MixAll#properties2Object (RocketMQ 4.3.0 to 5.5.1)
"""

from __future__ import annotations

import codecs
import copy
import difflib
import errno
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from rmqstore.errors import BadBrokerConfig, NotReadable, about, reason
from rmqstore.files.broker_settings import Release, Setting, known_keys, release, releases_with
from rmqstore.files.files import LOCAL
from rmqstore.files.versions import NEWEST, version_number
from rmqstore.formats.javatext import PropertyLine, java_path, java_property_lines, java_split, java_trim
from rmqstore.texts import Text

Number = int  # BrokerConfig has methods named int and bool
Truth = bool

COMMITLOG_FILE_SIZE = 1 << 30
CONSUME_QUEUE_FILE_SIZE = 6_000_000
EXT_FILE_SIZE = 50_331_648
BATCH_FILE_SIZE = 13_800_000
TIMER_LOG_FILE_SIZE = 104_857_600
DLEDGER_INDEX_FILE_SIZE = 167_772_160

RENAMED = {
    "mapedFileSizeCommitLog": "mappedFileSizeCommitLog",
    "mapedFileSizeConsumeQueue": "mappedFileSizeConsumeQueue",
}
"""Names of settings before 4.5.2, and since then."""
ROOT_PATH, LOG_PATH = "storePathRootDir", "storePathCommitLog"
PLUGIN = "messageStorePlugIn"
READ_ONLY_PATHS = "readOnlyCommitLogStorePaths"
FILE_SIZES = frozenset(
    {
        "mappedFileSizeCommitLog",
        "mappedFileSizeConsumeQueue",
        "mappedFileSizeConsumeQueueExt",
        "mapperFileSizeBatchConsumeQueue",
        "mappedFileSizeTimerLog",
    }
)
"""The settings that are sizes of store files."""
_TRUE_OR_FALSE = ("true", "false", "off", "no", "0")
_BOM = "\xef\xbb\xbf"  # a UTF-8 byte order mark in ISO-8859-1: it is a part of the first key
_PATH = "Path"  # a part of the keys of paths
_MAX_FILE = 1 << 20
_NO_TEXT = Text("give the text file that the broker gets, or leave -c out: sizes are then inferred from the files")
_MOST_HINTS = 50  # unknown keys that are compared with the known ones: a file with more is no broker.conf
_LONGEST_KEY = 100


class Unread(StrEnum):
    """Why a line of a broker.conf does not have the effect that it seems to have."""

    UNKNOWN = "unknown"  # no release reads the key
    OTHER_RELEASE = "other-release"  # another release reads the key
    REFUSED = "refused"  # the setter does not accept the value
    OTHERWISE = "otherwise"  # the value is not what it looks like: "true " is false, "/store " ends with a blank
    REPEATED = "repeated"  # a later line has the same key
    BROKEN = "broken"  # Properties#load throws, and no broker starts


@dataclass(frozen=True, slots=True)
class UnreadLine:
    """A line of a broker.conf that does not have the effect that it seems to have.

    `effective`: the value that the setting has instead, if there is one. `write`: the line that would have the effect;
    "" if nothing shows what is meant.
    """

    number: int
    key: str
    value: str
    why: Unread
    effective: str | None = None
    write: str = ""
    since: str = ""
    until: str = ""

    @property
    def misleads(self) -> bool:
        """Whether somebody probably meant another effect: the value is not read as it is written, or the key is not."""
        return bool(self.write) or self.why in (Unread.REFUSED, Unread.OTHERWISE, Unread.BROKEN)

    def words(self, version: str) -> str:
        """Return in words what a broker of this version does with the line."""
        if self.why is Unread.BROKEN:
            return Text("a broken \\u escape: no broker starts")
        if self.why is Unread.REPEATED:
            return Text("a later line sets {key} again, and the last one counts", key=self.key)
        if self.why is Unread.REFUSED:
            shown, kept = shown_value(self.value), self.effective or ""
            return Text("{key} does not accept {value}: it stays {kept}", key=self.key, value=shown, kept=kept)
        if self.why is Unread.OTHERWISE:
            shown, effective = shown_value(self.value), shown_value(self.effective or "")
            return Text("{key}={value} counts as {effective}", key=self.key, value=shown, effective=effective)
        if self.why is Unread.OTHER_RELEASE and self.until and version_number(self.until) <= version_number(version):
            return Text("{key} is read only before {until}", key=self.key, until=self.until)
        if self.why is Unread.OTHER_RELEASE:
            return Text("{key} is read only from {since} on", key=self.key, since=self.since)
        if self.key.startswith(_BOM):
            return Text("a byte order mark (EF BB BF) is a part of the key, which is unknown")
        return Text("{key} is unknown", key=self.key)


def shown_value(value: str) -> str:
    """Return a value for people: in quotes if it is empty or has blanks at an end."""
    return value if value and value == value.strip() else f'"{value}"'


@dataclass(frozen=True)
class BrokerConfFile:
    """The lines of a broker.conf. `broken`: the number of the first line on which Properties#load throws, or 0."""

    lines: tuple[PropertyLine, ...]
    broken: int = 0

    @classmethod
    def parse(cls, raw: bytes) -> BrokerConfFile:
        """Parse the bytes of a file."""
        lines = java_property_lines(raw.decode("latin-1"))
        broken = next((line.number for line in lines if line.key is None), 0)
        return cls(tuple(line for line in lines if line.key is not None), broken)

    @cached_property
    def last(self) -> dict[str, PropertyLine]:
        """The line that counts for each key: the last one."""
        return {line.key: line for line in self.lines if line.key is not None}

    @cached_property
    def settings(self) -> dict[str, PropertyLine]:
        """Those of `last` that some release reads: a file may have very many others."""
        return {key: line for key, line in self.last.items() if key in known_keys()}

    def read_by(self, of: Release) -> dict[str, str]:
        """Return the settings that a release takes from the file, by the names that they have since 4.5.2."""
        given: dict[str, str] = {}
        for key, line in self.settings.items():
            setting = of.setting_of(key)
            value = of.read(setting, line.value) if setting is not None else None
            if value is not None:
                given[RENAMED.get(key, key)] = java_path(value) if _PATH in key else value
        return given

    def unread_by(self, of: Release) -> Iterator[UnreadLine]:
        """Yield the lines that do not have the effect for a release that they seem to have, in order."""
        if self.broken:
            yield UnreadLine(self.broken, "", "", Unread.BROKEN)
        last = self.last
        unknown = 0
        for line in self.lines:
            key = line.key or ""
            setting = of.setting_of(key)
            if last[key] is not line:
                if last[key].value != line.value:
                    yield UnreadLine(line.number, key, line.value, Unread.REPEATED)
            elif setting is not None:
                yield from _misread(line, setting, of)
            else:
                unknown += 1
                yield _unknown(line, of, last, hint=unknown <= _MOST_HINTS)


def _misread(line: PropertyLine, setting: Setting, of: Release) -> Iterator[UnreadLine]:
    key, text = setting.key, line.value
    value, plain = of.read(setting, text), of.read(setting, text.strip())
    write = f"{key}={text.strip()}" if plain is not None and text != text.strip() else ""
    if value is None:
        yield UnreadLine(line.number, key, text, Unread.REFUSED, setting.default or "", write)
    elif value != plain or ("boolean" in setting.kinds and text.strip().lower() not in _TRUE_OR_FALSE):
        yield UnreadLine(line.number, key, text, Unread.OTHERWISE, value, write)


def _unknown(line: PropertyLine, of: Release, others: Mapping[str, PropertyLine], *, hint: bool) -> UnreadLine:
    key, version = line.key or "", of.version
    bare = key.removeprefix(_BOM)
    if bare != key and not bare.startswith(("#", "!")):
        write = f"{bare}={line.value}" if of.setting_of(bare) is not None else ""
        return UnreadLine(line.number, key, line.value, Unread.UNKNOWN, None, write)
    found = releases_with(key)
    near, value = nearest_key(key, of, without=others) if hint else "", line.value.strip()
    accepts = of.setting_of(near)
    write = f"{near}={value}" if accepts is not None and of.read(accepts, value) is not None else ""
    if found is None:
        return UnreadLine(line.number, key, line.value, Unread.UNKNOWN, None, write)
    since, until = found
    write = write if until is not None and version_number(until) <= version_number(version) else ""
    return UnreadLine(line.number, key, line.value, Unread.OTHER_RELEASE, None, write, since, until or "")


def nearest_key(key: str, of: Release, without: Iterable[str] = ()) -> str:
    """Return the key that a release reads and that was probably meant; "" if none is similar."""
    if key in RENAMED:
        near = RENAMED[key]
        return near if of.setting_of(near) is not None else ""
    if len(key) > _LONGEST_KEY:
        return ""
    lower = {name.lower(): name for name in _keys_of(of.version) if name not in without}
    close = difflib.get_close_matches(key.lower(), lower, 1, 0.75)
    return lower[close[0]] if close else ""


@cache
def _keys_of(version: str) -> tuple[str, ...]:
    return tuple(name for name in known_keys() if release(version).setting_of(name) is not None)


def _may_be_home(path: Path) -> bool:
    return path == Path("/root") or path.parent == Path("/home")


class _Recording(dict[str, str]):
    """Settings that note the keys that they are asked for."""

    def __init__(self, given: Mapping[str, str]) -> None:
        super().__init__(given)
        self.asked: set[str] = set()

    def __getitem__(self, key: str) -> str:
        self.asked.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.add(key)
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        self.asked.add(str(key))
        return super().__contains__(key)


class BrokerConfig:
    """The settings of a broker: those in `given`, from a file or the caller, and defaults for all others.

    `named_role`: the broker's role if the caller knows it; "" takes it from the settings. `file`: the lines of the
    broker.conf that `given` was read from, as `version` reads them, with `own` settings of the caller. `roots`: further
    directories outside of the store that belong to this broker, as the user says.
    """

    def __init__(
        self,
        given: Mapping[str, str] | None = None,
        source: str = "",
        named_role: str = "",
        *,
        file: BrokerConfFile | None = None,
        version: str = NEWEST,
        complete: bool = False,
        roots: Sequence[Path] = (),
    ) -> None:
        self.roots = tuple(roots)
        self.own = dict(given or {})
        self.complete = complete
        self.file = file
        self.version = version
        self.given = {**(file.read_by(release(version)) if file is not None else {}), **self.own}
        self.source = source
        self.named_role = named_role

    @classmethod
    def read(cls, path: Path, version: str = "") -> BrokerConfig:
        """Read a broker.conf as a broker of `version` does (default: the newest).

        Errors: NotReadable; BadBrokerConfig for a binary or oversized file.
        """
        try:
            raw = LOCAL.read_small(path, _MAX_FILE)
        except OSError as e:
            if e.errno == errno.EFBIG:
                words = Text("{path} is not a broker.conf: {strerror}", path=path, strerror=reason(e))
                raise BadBrokerConfig(words, _NO_TEXT) from None
            raise NotReadable(about(path, e)) from None
        if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            words = Text("{path} is in UTF-16, and a broker reads no setting of it", path=path)
            raise BadBrokerConfig(words, Text("write it again in ASCII or UTF-8, without a byte order mark"))
        if b"\0" in raw:
            raise BadBrokerConfig(Text("{path} is not a broker.conf: it has bytes that are 0", path=path), _NO_TEXT)
        file = BrokerConfFile.parse(raw)
        for line in file.settings.values():
            if _PATH in (line.key or "") and "\0" in line.value:
                words = Text("{path}: line {number}: {key} has the character \\u0000, and no broker opens such a path")
                raise BadBrokerConfig(words.format(path=path, number=line.number, key=line.key))
        return cls(source=str(path), file=file, version=version or NEWEST)

    def read_by(self, version: str) -> BrokerConfig:
        """Return the same configuration as a broker of another version reads it."""
        if version == self.version:
            return self
        return self._like(version=version)

    def filled(self) -> BrokerConfig:
        """Return the settings of the broker that gets this very file: what it does not set has its default.

        Without a file, nothing is known about the broker, and the same configuration is returned. A store that is read
        with them is read as this broker reads it (`given_int`).
        """
        if self.file is None or self.complete:
            return self
        given = {**release(self.version).defaults, **self.given}
        for old, new in RENAMED.items():
            if old in given:
                given.setdefault(new, given.pop(old))
        given |= self._log_of_the_user()
        same = self._like(complete=True)
        same.given = given
        return same

    def _log_of_the_user(self) -> dict[str, str]:
        """Return storePathCommitLog if it is the home directory's, and not that of storePathRootDir: before 4.9.4.

        The path is a text that is no place of this machine: the home of the broker's user is not known.
        """
        setting = release(self.version).setting_of(LOG_PATH)
        root = self.given.get(ROOT_PATH)
        if setting is None or not setting.machine or root is None or LOG_PATH in self.given:
            return {}
        at_home = Path(root).name == "store" and _may_be_home(Path(root).parent)
        return {} if at_home else {LOG_PATH: setting.default or ""}

    def directory_beside(self, root: Path) -> str:
        """Return the directory that a broker opens instead of this store because of blanks around storePathRootDir.

        With an empty one, that is the root directory of the machine. "": it opens the store, as far as is known: the
        path in broker.conf may be that of another machine.
        """
        if not self.complete or ROOT_PATH not in self.given:
            return ""
        given = self.given[ROOT_PATH]
        if not given:
            return "/"
        return given if given != given.strip() and Path(given).name != root.name else ""

    def recording(self) -> BrokerConfig:
        """Return the same configuration, which notes the settings that it is asked for (`answers_as`)."""
        same = self._like(given=None, complete=self.complete)
        same.given = _Recording(self.given)
        return same

    def answers_as(self, other: BrokerConfig) -> bool:
        """Return whether another configuration has the same values for all settings that this one was asked for."""
        asked = self.given.asked if isinstance(self.given, _Recording) else self.given.keys() | other.given.keys()
        if not all(dict.get(self.given, key) == other.given.get(key) for key in asked):
            return False
        return self.has_several_paths(LOG_PATH) == other.has_several_paths(LOG_PATH)

    @property
    def unread(self) -> list[UnreadLine]:
        """The lines of the file that do not have the effect that they seem to have; [] without a file."""
        return list(self.file.unread_by(release(self.version))) if self.file is not None else []

    def line_of(self, key: str) -> str:
        """Return the line that sets a key, with its value as it is written; "" if nothing sets it."""
        if self.file is not None and key not in self.own:
            line = self.file.last.get(key)
            return "" if line is None else f"{key}={shown_value(line.value)}"
        return f"{key}={self.given[key]}" if key in self.given else ""

    def text(self, key: str) -> str:
        """Return a setting as text; empty if it is not given and has no default, or one that the machine decides."""
        value = self.given.get(key)
        return self.default(key) if value is None else value

    def default(self, key: str) -> str:
        """Return the default of a setting in this version; a version that lacks it has the default of the newest."""
        setting = release(self.version).setting_of(key) or release(NEWEST).setting_of(key)
        return "" if setting is None or setting.machine else setting.default or ""

    def int(self, key: str) -> Number:
        """Return a setting as a number. Errors: BadBrokerConfig if its value is not a number."""
        value = self.text(key)
        try:
            return int(value)
        except ValueError:
            raise BadBrokerConfig(
                Text("{source}: {key}={value} is not a number", source=self.source or "settings", key=key, value=value)
            ) from None

    def bool(self, key: str) -> Truth:
        """Return a setting as Boolean.parseBoolean reads it."""
        return self.text(key).lower() == "true"

    def paths(self, key: str) -> list[Path]:
        """Return the paths of a setting, each once, split at `,` (MixAll#MULTI_PATH_SPLITTER); empty without one.

        A store is read without the blanks around a path. For a broker (`filled`) they count, except those around the
        whole list, and before 4.9.2 a comma is a character of the path like any other.
        Source: CommitLog#<init>, MultiPathMappedFileQueue#getPaths, #getReadonlyPaths (RocketMQ 4.9.2 to 5.5.1)
        """
        value = self.given.get(key, "")
        if not self.complete:
            named = [path.strip() for path in value.split(",")]
        elif key == READ_ONLY_PATHS or self.has_several_paths(key):
            named = java_split(java_trim(value), ",")
        else:
            named = [value]
        return list(dict.fromkeys(Path(path) for path in named if path))

    @property
    def relative_paths(self) -> list[str]:
        """The settings with a path that begins in the working directory of the broker."""
        keys = (ROOT_PATH, LOG_PATH, "storePathDLedgerCommitLog")
        given = {key: self.given.get(key, "").split(",") for key in keys}
        return [key for key in keys if any(path.strip() and not path.strip().startswith("/") for path in given[key])]

    @property
    def plugins(self) -> list[str]:
        """The classes of messageStorePlugIn, in the order in which a broker makes them. Blanks are a part of a name."""
        text = self.given.get(PLUGIN, "")
        return java_split(text, ",")[::-1] if java_trim(text) else []

    def has_several_paths(self, key: str) -> Truth:
        """Return whether a broker takes the setting for a list of paths: it has a comma."""
        return "," in self.given.get(key, "") and release(self.version).setting_of(READ_ONLY_PATHS) is not None

    @property
    def directories(self) -> list[Path]:
        """The directories for logs that the settings name and that exist."""
        named = [*self.paths("storePathCommitLog"), *self.paths("storePathDLedgerCommitLog")]
        return [path for path in named if path.is_dir()]

    def changed(self, settings: Mapping[str, str]) -> BrokerConfig:
        """Return the same configuration with `settings` added or replaced."""
        return self._like(given={**self.own, **settings})

    def with_values(self, settings: Mapping[str, str]) -> BrokerConfig:
        """Return the settings of a broker (`filled`) with other values."""
        same = copy.copy(self)
        same.given = {**self.given, **settings}
        return same

    def in_role(self, role: str) -> BrokerConfig:
        """Return the same configuration of a broker in this role; "" leaves it to the settings."""
        return self._like(named_role=role)

    def with_roots(self, roots: Sequence[Path]) -> BrokerConfig:
        """Return the same configuration of a broker to which these directories outside of its store belong, too."""
        same = copy.copy(self)
        same.roots = (*self.roots, *roots)
        return same

    def _like(self, **changes: Any) -> BrokerConfig:
        own = {"given": self.own, "source": self.source, "named_role": self.named_role}
        return BrokerConfig(**{**own, "file": self.file, "version": self.version, "roots": self.roots, **changes})

    def file_sizes(self) -> dict[str, str]:
        """Return the given settings that are sizes of store files."""
        return {k: v for k, v in self.given.items() if k in FILE_SIZES}

    def given_int(self, key: str) -> Number | None:
        """Return a setting as a number, without default: None if it is not given, or no size that a file can have.

        A broker (`filled`) keeps such a size, which fits no file: 1 stands for it.
        """
        size = self.int(key) if key in self.given else None
        if size is None or size > 0 or key not in FILE_SIZES:
            return size
        return 1 if self.complete else None

    @property
    def role(self) -> str:
        """The broker's role: "master", "slave", "controller", "dledger-group", "single" or "unknown"."""
        if self.named_role or not self.given:
            return self.named_role or "unknown"
        if self.bool("enableDLegerCommitLog"):
            peers = [p for p in self.text("dLegerPeers").split(";") if p.strip()]
            return "dledger-group" if len(peers) > 1 else "single"
        if self.bool("enableControllerMode"):
            return "controller"
        if self.text("brokerRole") == "SLAVE" or self.given.get("brokerId", "0").strip() not in ("", "0"):
            return "slave"
        if "brokerRole" in self.given or "brokerId" in self.given:
            return "master"
        return "unknown"
