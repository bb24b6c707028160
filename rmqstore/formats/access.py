"""Rows of config/users/ and config/acls/: who may use the broker (5.3.0 and newer). Passwords are never kept.

A key of users/ is a user's name, one of acls/ a subject (`User:NAME`); the values are JSON, in which fastjson writes an
enum as its number. Source: LocalAuthenticationMetadataProvider, LocalAuthorizationMetadataProvider, User, Acl, Policy,
PolicyEntry, Resource#getResourceKey (RocketMQ 5.5.1)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from rmqstore.formats.configuration import ConfigJsonError, JsonValue, parse_config_object

USERS, ACLS = "users", "acls"
SUBJECT = "User:"


class UserType(IntEnum):
    """UserType."""

    Super = 1
    Normal = 2


class UserStatus(IntEnum):
    """UserStatus."""

    enable = 1
    disable = 2


class PolicyType(IntEnum):
    """PolicyType."""

    Custom = 1
    Default = 2


class Permission(IntEnum):
    """Decision: the effect of a policy."""

    Allow = 1
    Deny = 2


class Action(IntEnum):
    """Action."""

    Unknown = 0
    All = 1
    Any = 2
    Pub = 3
    Sub = 4
    Create = 5
    Update = 6
    Delete = 7
    Get = 8
    List = 9


class ResourceType(IntEnum):
    """ResourceType."""

    Unknown = 0
    Any = 1
    Cluster = 2
    Namespace = 3
    Topic = 4
    Group = 5


class ResourcePattern(IntEnum):
    """ResourcePattern."""

    ANY = 1
    LITERAL = 2
    PREFIXED = 3


@dataclass(frozen=True, slots=True)
class AclUser:
    """A user. `type` and `status` are names of `UserType` and `UserStatus`; "" for a value that the row lacks."""

    username: str
    type: str
    status: str


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """What a subject may do. `resource`: TYPE:NAME, where NAME may be or end with `*`; or `*` for all resources."""

    policy: str
    resource: str
    actions: tuple[str, ...]
    source_ips: tuple[str, ...]
    decision: str


@dataclass(frozen=True, slots=True)
class Acl:
    """The policies of a subject, one entry after the other."""

    subject: str
    entries: tuple[PolicyEntry, ...]

    @property
    def username(self) -> str:
        """The user's name."""
        return self.subject.removeprefix(SUBJECT)


class _NotWritten(ValueError):
    """A value that no broker writes."""


def parse_user(key: bytes, value: bytes) -> AclUser | None:
    """Return the user of a row; None if the row has another form, or another user's value."""
    table = _table(value)
    try:
        name = key.decode()
        if table is None or table.get("username") != name:
            return None
        return AclUser(name, _name(UserType, table.get("userType")), _name(UserStatus, table.get("userStatus")))
    except (_NotWritten, UnicodeDecodeError):
        return None


def parse_acl(key: bytes, value: bytes) -> Acl | None:
    """Return the policies of a row; None if the row has another form, or another subject's value."""
    table = _table(value)
    try:
        subject = key.decode()
        if table is None or SUBJECT + _text(_object(table.get("subject")).get("username")) != subject:
            return None
        policies = [_object(policy) for policy in _array(table.get("policies"))]
        return Acl(subject, tuple(_entry(p, _object(e)) for p in policies for e in _array(p.get("entries"))))
    except (_NotWritten, UnicodeDecodeError):
        return None


def _entry(policy: Mapping[str, JsonValue], entry: Mapping[str, JsonValue]) -> PolicyEntry:
    environment = entry.get("environment")
    ips = () if environment is None else tuple(map(_text, _array(_object(environment).get("sourceIps"))))
    return PolicyEntry(
        _name(PolicyType, policy.get("policyType")),
        _resource(_object(entry.get("resource"))),
        tuple(_name(Action, one) for one in _array(entry.get("actions"))),
        ips,
        _name(Permission, entry.get("decision")),
    )


def _resource(table: Mapping[str, JsonValue]) -> str:
    kind = _name(ResourceType, table.get("resourceType"))
    if kind == ResourceType.Any.name:
        return "*"
    pattern = _name(ResourcePattern, table.get("resourcePattern"))
    name = "" if pattern == ResourcePattern.ANY.name else _text(table.get("resourceName"))
    return f"{kind}:{name}{'' if pattern == ResourcePattern.LITERAL.name else '*'}"


def _table(value: bytes) -> dict[str, JsonValue] | None:
    try:
        return parse_config_object(value)
    except ConfigJsonError:
        return None


def _name(kind: type[IntEnum], value: JsonValue) -> str:
    """Return the name of an enum's value, which fastjson reads from its number and from its name."""
    if value is None:
        return ""
    for one in kind:
        if (type(value) is int and value == one) or (isinstance(value, str) and value.upper() == one.name.upper()):
            return one.name
    raise _NotWritten


def _text(value: JsonValue) -> str:
    if not isinstance(value, str):
        raise _NotWritten
    return value


def _object(value: JsonValue) -> Mapping[str, JsonValue]:
    if not isinstance(value, dict):
        raise _NotWritten
    return value


def _array(value: JsonValue) -> list[JsonValue]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise _NotWritten
    return value
