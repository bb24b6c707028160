"""Texts keep their template, and are strings in English."""

from __future__ import annotations

import pickle
import re

import orjson
import pytest

from rmqstore.cli.lang import catalogue, lookup
from rmqstore.texts import Joined, Placed, Text, joined, many

CUT = Text("would cut {messages} of {queue}", messages=many(1225, "message"), queue="Order/0")
ALL = [
    CUT,
    Text("no {braces} to fill"),
    many(1, "entry", "entries"),
    joined((CUT, "a"), last=" and "),
    Placed("  {name:<8}{cut}", name=Text("log"), cut=CUT),
]


@pytest.fixture
def chinese(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {
        "would cut {messages} of {queue}": "会从 {queue} 截去 {messages}",
        "{count:,} message": "{count:,} 条消息",
        "{count:,} entry": "{count:,} 个条目",
        "log": "日志",
    }
    monkeypatch.setattr(lookup, "_texts", lambda: texts)


def test_a_text_is_its_english_string() -> None:
    assert CUT == "would cut 1,225 messages of Order/0"
    assert hash(CUT) == hash(str(CUT))
    assert orjson.dumps({"text": CUT}) == b'{"text":"would cut 1,225 messages of Order/0"}'
    assert list(map(str, ALL)) == [
        "would cut 1,225 messages of Order/0",
        "no {braces} to fill",
        "1 entry",
        "would cut 1,225 messages of Order/0 and a",
        "  log     would cut 1,225 messages of Order/0",
    ]


@pytest.mark.usefixtures("chinese")
def test_texts_are_translated_with_their_values() -> None:
    assert [lookup.in_chinese(text) for text in ALL] == [
        "会从 Order/0 截去 1,225 条消息",
        "no {braces} to fill",
        "1 个条目",
        "会从 Order/0 截去 1,225 条消息和 a",
        "  日志    会从 Order/0 截去 1,225 条消息",
    ]


@pytest.mark.usefixtures("chinese")
@pytest.mark.parametrize("text", ALL, ids=lambda text: type(text).__name__)
def test_a_text_survives_another_process(text: str) -> None:
    again = pickle.loads(pickle.dumps(text))
    assert again == text
    assert type(again) is type(text)
    assert lookup.in_chinese(again) == lookup.in_chinese(text)


@pytest.mark.usefixtures("chinese")
def test_texts_are_added_without_losing_their_templates() -> None:
    for text in (CUT + ".", "- " + CUT, Text("") + CUT):
        assert isinstance(text, Joined)
        assert "截去" in lookup.in_chinese(text)
    assert Text("{count} of {queue}").format(count=3, queue=CUT).values["queue"] is CUT


def test_chinese_sentences_have_no_space_between_them() -> None:
    first = Text("The clean-up would remove no file of the log now.")
    second = Text("It removes none before {until}.", until="04:00")
    words = lookup.in_chinese(joined([first, second], " "))
    assert "。" in words[:-1]
    assert "。 " not in words


_MEASURES = {"bytes", "hours", "minutes", "seconds", "days"}
"""Units of sizes, limits and times, of which there is never one."""
_NEVER_ONE = {
    "Up to {several} files share a row.",
    "note: only the first {rows:,} rows; --output DIR writes all of them as Parquet",
    "{label}: the view findings has only the first {count:,} findings",
    "{name}: a broker takes {rounds} of {batch} files, {apart} apart",
    "{need} of {nodes} nodes",
    "{path} has {length} bytes, but {slots} slots and {units} units need {size}",
    "{problems} of {count} kinds found.",
    "{reason}; {nodes} nodes decide by majority",
    "{slots:,} slots and {units:,} units",
    "{log} offsets {start:,} to {stop:,}",  # the name of a log
    # the source has another text for one of them
    "the log contains none of the {units:,} messages in the consume queues",
    "the {messages:,} messages of {queues} all have queue offset 0, as written with duplicationEnable=true: consumers "
    "get one message of such a queue, even after this repair; `rmqstore export` returns all of them",
    "{count:,} deleted topics",
    "{count:,} log files get their right names",
}


def test_no_text_says_one_messages() -> None:
    """What is counted is a value made with `many`, so that one thing is not called "1 units"."""
    entries = list(catalogue.read())
    pairs = ((entry.english.split(), entry.plural.split()) for entry in entries if entry.plural)
    things = {b for one, several in pairs for a, b in zip(one, several, strict=False) if b in (f"{a}s", f"{a[:-1]}ies")}
    assert {"messages", "units", "entries"} <= things
    words = "|".join(sorted(things - _MEASURES))
    counted = re.compile(rf"\{{\w+(:,)?\}} (more |lost |good |damaged |log |queue |deleted )?({words})\b")
    found = {entry.english for entry in entries if not entry.plural and counted.search(entry.english)}
    assert found == _NEVER_ONE
