"""The settings of a broker as text, for `info --settings`."""

from __future__ import annotations

from collections.abc import Iterator

from rmqstore.cli.lang import AsIs
from rmqstore.cli.printing.quantities import columns, fitted, wrapped
from rmqstore.files.broker_config import shown_value
from rmqstore.files.effective_settings import EffectiveSetting, Origin
from rmqstore.texts import Placed, Text, joined
from rmqstore.views.settings import Settings

_KEY = 40


def settings_text(shown: Settings, width: int) -> Iterator[str]:
    """Yield the lines: what the file sets and does not set, then what the broker computes, then the defaults."""
    file = shown.config or Text("without broker.conf")
    brokers = joined(shown.versions, last=" and ")
    yield Text("{store} — settings of RocketMQ {versions}, {file}", store=shown.store, versions=brokers, file=file)
    yield from _ignored(shown, width)
    if len(shown.versions) > 1:
        yield from _differences(shown)
        return
    (settings,) = shown.by_version
    for origin, title in (
        (Origin.FILE, Text("Set by broker.conf")),
        (Origin.DERIVED, Text("Computed by the broker")),
        (Origin.DEFAULT, Text("Defaults of this version")),
    ):
        rows = [settings[name] for name in shown.names if settings[name].origin is origin]
        if rows:
            yield ""
            yield Placed("{title} ({count})", title=title, count=len(rows))
            yield from (_row(one) for one in rows)


def _ignored(shown: Settings, width: int) -> Iterator[str]:
    for version, lines in zip(shown.versions, shown.unread, strict=True):
        if lines:
            yield ""
            yield Text("Without the effect that it seems to have, in RocketMQ {version}", version=version)
        for line in lines:
            hint = Text("; write {line}", line=line.write) if line.write else ""
            words = Text("line {number}: {what}{hint}", number=line.number, what=line.words(version), hint=hint)
            yield from (Placed("  {text}", text=text) for text in wrapped(words, max(20, width - 2)))


def _row(one: EffectiveSetting) -> str:
    key, where = AsIs(fitted(one.setting.key, max(_KEY, columns(one.setting.key)))), _where(one)
    row = Placed("  {key} {value}", key=key, value=_value(one))
    return Placed("{row}  {where}", row=row, where=where) if where else row


def _where(one: EffectiveSetting) -> str:
    if one.line and one.why:
        return Text("{why}, not line {number}", why=one.why, number=one.line)
    return Text("line {number}", number=one.line) if one.line else one.why


def _differences(shown: Settings) -> Iterator[str]:
    """Yield the settings with another value, and then those that only some of the versions have."""
    names = [name for name in shown.names if shown.differs(name)]
    changed = [name for name in names if None not in shown.of(name)]
    yield ""
    yield Text(
        "Another value ({count:,}; {same:,} are the same)", count=len(changed), same=len(shown.names) - len(names)
    )
    for name in changed:
        yield AsIs(f"  {name[1]}")
        for version, one in zip(shown.versions, shown.of(name), strict=True):
            assert one is not None
            yield Placed("    {version:<8} {value}  {origin}", version=version, value=_value(one), origin=_origin(one))
    for version, settings in zip(shown.versions, shown.by_version, strict=True):
        only = [settings[name] for name in names if name in settings and name not in changed]
        if only:
            yield ""
            yield Text("Not in every version, but in RocketMQ {version} ({count:,})", version=version, count=len(only))
            yield from (_row(one) for one in only)


def _origin(one: EffectiveSetting) -> str:
    if one.origin is Origin.FILE:
        return Text("line {number}", number=one.line)
    return one.why or Text("default")


def _value(one: EffectiveSetting) -> str:
    return AsIs("null" if one.value is None else shown_value(one.value))
