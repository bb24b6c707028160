"""Every setting of a broker with its effective value, where it comes from, and what differs between versions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rmqstore.files.broker_config import BrokerConfig, UnreadLine
from rmqstore.files.broker_settings import release
from rmqstore.files.effective_settings import EffectiveSetting, effective_settings

SCHEMA = "rmqstore.settings/1"
_Name = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of several versions that read the same file, and the lines that have no effect in each of them."""

    store: str
    config: str
    versions: tuple[str, ...]
    by_version: tuple[dict[_Name, EffectiveSetting], ...]
    unread: tuple[tuple[UnreadLine, ...], ...]

    @property
    def names(self) -> list[_Name]:
        """Class and key of every setting that one of the versions has."""
        return sorted(set().union(*self.by_version))

    def of(self, name: _Name) -> list[EffectiveSetting | None]:
        """Return a setting in each version; None if the version lacks it."""
        return [settings.get(name) for settings in self.by_version]

    def differs(self, name: _Name) -> bool:
        """Return whether a setting has not the same value in all versions."""
        first, *others = (None if one is None else (one.value,) for one in self.of(name))
        return any(other != first for other in others)

    def to_json(self) -> dict[str, Any]:
        """Return the settings as JSON values."""
        rows = []
        for name in self.names:
            found = [(version, one) for version, one in zip(self.versions, self.of(name), strict=True) if one]
            values = [
                {
                    "version": version,
                    "type": one.setting.kind,
                    "value": one.value,
                    "default": one.setting.default,
                    "origin": one.origin.value,
                    "line": one.line or None,
                    "why": one.why or None,
                }
                for version, one in found
            ]
            rows.append({"class": name[0], "key": name[1], "differs": self.differs(name), "values": values})
        return {
            "schema": SCHEMA,
            "store": self.store,
            "config": self.config or None,
            "versions": list(self.versions),
            "without_jar": {v: list(modules) for v in self.versions if (modules := release(v).without_jar)},
            "settings": rows,
            "ignored": [
                _ignored(version, line)
                for version, lines in zip(self.versions, self.unread, strict=True)
                for line in lines
            ],
        }


def _ignored(version: str, line: UnreadLine) -> dict[str, Any]:
    return {
        "version": version,
        "line": line.number,
        "key": line.key,
        "value": line.value,
        "reason": line.why.value,
        "effect": line.words(version),
        "set": line.write or None,
    }


def settings_of(store: str, config: BrokerConfig, versions: Sequence[str]) -> Settings:
    """Return the settings of brokers of these versions that get the broker.conf `config`."""
    read = [config.read_by(version) for version in versions]
    by_version = tuple({(s.setting.owner, s.setting.key): s for s in effective_settings(one)} for one in read)
    return Settings(store, config.source, tuple(versions), by_version, tuple(tuple(one.unread) for one in read))
