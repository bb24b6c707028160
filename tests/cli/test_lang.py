"""Messages in Chinese: the catalogue contains every text, and no output of a command stays English."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqstore import translations
from rmqstore.cli import lang
from rmqstore.cli.lang import catalogue, chinese, forms, lookup
from rmqstore.cli.lang.extract import extract
from rmqstore.formats.text import columns
from tests.cases.case import case_names, make, options, read_case
from tests.cli.test_report_page import broken
from tests.command import command_names, run
from tests.garbage import not_collected
from tests.stores import copy_store, unpack

ENGLISH = re.compile(r"(?:(?<![\w/.])[a-z][a-z'’]*[,;:]? ){3,}[a-z'’]{2,}", re.IGNORECASE)
"""Four words in a row."""
pytestmark = pytest.mark.xdist_group("texts")  # one process parses all sources
KEPT = re.compile(r"{\w+[^}]*}|`[^`]*`|(?<![\w-])--[a-z][a-z-]+")
"""What a translation has like its template: values, commands, options."""
QUOTED = re.compile(r"`[^`]*`|(?<=： )?rmqstore .*|(?:'[^']*')|\"[^\"]*\"|(?:broker log|译) {3,}.*|Corruption: .*")
"""Commands, quoted text, lines of the broker's log, and what RocksDB says."""


@pytest.fixture(autouse=True)
def _english_afterwards() -> Iterator[None]:
    yield
    lang.use("en")


@pytest.fixture(scope="module")
def texts() -> dict[str, translations.SourceText]:
    with not_collected():
        return translations.texts()


@pytest.fixture(scope="module")
def marking(texts: dict[str, translations.SourceText]) -> chinese.Translator:
    """A translator that translates each English word to 译."""
    every = {text: _marked(text) for output in texts.values() for text in (output.english, output.plural) if text}
    for entry in catalogue.read(catalogue.TEXTS):  # for templates that code puts into an f-string
        every.update({sentence: _marked(sentence) for sentence, _ in chinese.sentences_of(entry)})
    counted = {text for output in texts.values() if output.plural for text in (output.english, output.plural)}
    return chinese.Translator(every, counted)


@pytest.fixture
def every_text_translated(marking: chinese.Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Translate every text to 译, so that output in English shows a text that extractor or translator missed."""
    monkeypatch.setattr(chinese, "translator", lambda: marking)
    templates = [entry.english for entry in catalogue.read(catalogue.TEXTS)]
    monkeypatch.setattr(lookup, "_texts", lambda: {text: _marked_template(text) for text in templates})
    monkeypatch.setenv("COLUMNS", "1000")  # so that no line is wrapped


def _marked(english: str) -> str:
    literals, holes = forms.parsed(english)
    parts = ["译" if forms.WORD.search(part) else part for part in literals]
    return parts[0] + "".join(f"{{{hole}}}{part}" for hole, part in zip(holes, parts[1:], strict=True))


def _marked_template(template: str) -> str:
    """Return a template of `rmqstore.texts` with 译 for its words."""
    return "".join(
        part if part.startswith("{") else "译" if forms.WORD.search(part) else part
        for part in re.split(r"({\w+[^}]*})", template)
    )


# --- the catalogue ---------------------------------------------------------------------------------------------------


def test_every_text_has_a_translation(texts: dict[str, translations.SourceText]) -> None:
    have = {entry.english for entry in catalogue.read() if entry.chinese}
    missing = [f"{output.place}: {text}" for text, output in texts.items() if text not in have]
    assert not missing, f"{len(missing)} texts without Chinese:\n" + "\n".join(missing)


def test_every_template_has_a_translation() -> None:
    assert [entry.english for entry in catalogue.read(catalogue.TEXTS) if not entry.chinese] == []


def test_the_catalogue_has_the_templates_of_the_source() -> None:
    found = set()
    for path in Path("rmqstore").rglob("*.py"):
        with path.open("rb") as file:
            for _, _, templates, _ in extract(file, ["Text", "Template"], (), {}):
                found.add(templates if isinstance(templates, str) else templates[0])
    have = {entry.english for entry in catalogue.read(catalogue.TEXTS)}
    assert found == have, "run make texts"


def test_templates_keep_their_values_and_commands() -> None:
    wrong = []
    for entry in catalogue.read(catalogue.TEXTS):
        kept = [set(KEPT.findall(text)) for text in (entry.english, entry.chinese)]
        wrong += [entry] if kept[0] != kept[1] else []
    assert wrong == []


def test_every_translation_belongs_to_a_text(texts: dict[str, translations.SourceText]) -> None:
    entries = list(catalogue.read())
    assert [e.english for e in entries if e.english not in texts] == [], "run python -m rmqstore.translations"
    assert [e.english for e in entries if e.plural != texts[e.english].plural] == []


def test_translations_have_the_values_of_their_text() -> None:
    def values(text: str) -> list[int]:
        return sorted(forms.parsed(text)[1])

    assert [e for e in catalogue.read() if values(e.chinese) != values(e.english)] == []


def test_translations_keep_commands_and_options() -> None:
    wrong = []
    for entry in catalogue.read():
        words = re.findall(r"`[^`]*`|(?<![\w-])--[a-z][a-z-]+", entry.english)
        wrong += [(word, entry.chinese) for word in words if word not in entry.chinese]
    assert wrong == []


def test_catalogue_is_read_as_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "zh.po"
    entries = [
        catalogue.CatalogEntry('a "b" \\ c\nd', "", "甲\n乙"),
        catalogue.CatalogEntry("{0} file", "{0} files", "{0} 个文件"),
    ]
    path.write_text(catalogue.written(entries), "utf-8")
    assert list(catalogue.read(path)) == entries
    path.write_text('#: place\nmsgid ""\n"one "\n"two"\nmsgstr "一"\n"二"\n', "utf-8")  # editors wrap lines like this
    assert list(catalogue.read(path)) == [catalogue.CatalogEntry("one two", "", "一二")]


# --- output of commands ----------------------------------------------------------------------------------------------


def _english_left(output: str) -> list[str]:
    return [line for line in output.splitlines() if ENGLISH.search(QUOTED.sub(" ", line))]


@pytest.mark.usefixtures("every_text_translated")
@pytest.mark.parametrize("command", ["", *sorted(command_names())])
def test_help_has_no_english_left(command: str) -> None:
    result = run("--lang", "zh", *command.split(), "--help")
    assert result.exit_code == 0
    assert _english_left(result.stdout.partition("译：\n  rmqstore")[0]) == []


@pytest.mark.usefixtures("every_text_translated")
@pytest.mark.quick_rows(4)
@pytest.mark.parametrize("name", case_names())
def test_findings_and_plans_have_no_english_left(name: str, tmp_path: Path) -> None:
    case = read_case(name)
    store = make(case, tmp_path)
    own = options(case, store)
    verify = ("verify", str(store), *own, *case.verify.options)
    recover = ("recover", str(store), *own, *(case.recover.options if case.recover else ()))
    for words in (verify, recover, ("info", str(store)), ("lost", str(store), *own)):
        english, answer = run(*words, "--lang", "en"), run(*words, "--lang", "zh")
        assert answer.exit_code == english.exit_code
        assert _english_left(answer.output) == [], words


@pytest.mark.usefixtures("every_text_translated")
@pytest.mark.parametrize(
    "words",
    [
        ("info", "STORE", "-v"),
        ("du", "STORE"),
        ("du", "STORE", "--files"),
        ("du", "STORE", "--plot"),
        ("lost", "STORE"),
        ("expire", "STORE"),
        ("journals", "STORE"),
        ("rebuild", "STORE", "index"),
        ("compare", "STORE", "STORE"),
        ("migrate-to-dledger", "STORE", "--self-id", "n0"),
        ("find", "STORE", "no-such-key"),
        ("get", "STORE", "0"),
        ("dump", "STORE", "--positions", "--format", "table"),
        ("verify", "STORE", "--quick", "--topic", "none"),
        ("verify",),
        ("verify", "STORE/missing"),
        ("verify", "STORE", "--bogus"),
        ("verify", "STORE", "--jobs", "x"),
        ("verify", "STORE", "--jobs", "0"),
        ("dump", "STORE", "--since", "someday"),
        ("dump", "STORE", "--format", "xml"),
        ("recover", "STORE", "--force", "abc"),
        ("undo", "STORE"),
        ("verfy", "STORE"),
        ("get", "STORE", "999999999"),
    ],
    ids=" ".join,
)
def test_answers_and_errors_have_no_english_left(words: tuple[str, ...], tmp_path: Path) -> None:
    store = copy_store("5.1.4-killed", tmp_path)
    words = tuple(word.replace("STORE", str(store)) for word in words)
    english, answer = run("--lang", "en", *words), run("--lang", "zh", *words)
    assert answer.exit_code == english.exit_code
    assert answer.exit_code != 70
    assert _english_left(answer.output) == []


@pytest.mark.parametrize("command", ["verify", "info", "du", "lost", "recover"])
def test_json_is_the_same_in_every_language(command: str, tmp_path: Path) -> None:
    store = copy_store("5.1.4-killed", tmp_path)
    english, answer = (run(command, str(store), "--json", "--lang", name).stdout for name in ("en", "zh"))
    assert re.sub(r'"seconds": ?[\d.]+', "", answer) == re.sub(r'"seconds": ?[\d.]+', "", english)


def test_error_object_stays_english() -> None:
    assert run("verify", "/nowhere", "--json", "--lang", "zh").stdout == run("verify", "/nowhere", "--json").stdout


# --- the language ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_TW.utf8"}, "zh"),
        ({"LANG": "zh_CN.GBK"}, "en"),
        ({"LANG": "zh_CN"}, "en"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "C"}, "en"),
        ({"LANG": "en_US.UTF-8", "LC_MESSAGES": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "de_DE.UTF-8"}, "en"),
    ],
)
def test_locale_says_the_language(environment: dict[str, str], expected: str) -> None:
    assert lang.of_locale(environment) == expected


def test_command_line_environment_and_settings_say_the_language(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "rmqstore.toml"
    settings.write_text('lang = "zh"\n')
    monkeypatch.setenv("RMQSTORE_SETTINGS", str(settings))
    monkeypatch.delenv("RMQSTORE_LANG")
    assert "用法" in run("info", "--help").output
    monkeypatch.setenv("RMQSTORE_LANG", "en")
    assert "Usage" in run("info", "--help").output
    assert "用法" in run("info", "--help", "--lang", "zh").output
    assert "用法" in run("--lang=zh", "info", "--help").output
    assert run("info", "--lang", "fr", str(tmp_path)).exit_code == 2


def test_english_imports_no_catalogue() -> None:
    code = (
        "import sys; from rmqstore.cli.main import cli\n"
        "try: cli.main(['info', '/nowhere'])\n"
        "except SystemExit: pass\n"
        "print([m for m in sys.modules if m.startswith('rmqstore.cli.lang.')])"
    )
    env = {**os.environ, "RMQSTORE_LANG": "en"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    assert done.stdout.strip() == "['rmqstore.cli.lang.as_is']"


# --- the translator --------------------------------------------------------------------------------------------------

SMALL = {
    "{0} message": "{0} 条消息",
    "{0} messages": "{0} 条消息",
    "Lost": "丢失",
    "{0} of {1}": "{1}中的 {0}",
    "the record at {0} is damaged": "位于 {0} 的记录已损坏",
    "Nothing was written": "没有写入任何内容",
    "damaged": "损坏",
}


@pytest.mark.parametrize(
    ("english", "expected"),
    [
        ("Nothing was written.", "没有写入任何内容。"),
        ("Lost: 3 messages.", "丢失：3 条消息。"),
        ("  the record at /data/a b is damaged", "  位于 /data/a b 的记录已损坏"),
        ("the record at 1,024 is damaged; Nothing was written", "位于 1,024 的记录已损坏；没有写入任何内容"),
        ("Nothing was written. Lost: 1 message.", "没有写入任何内容。丢失：1 条消息。"),
        ("Next: rmqstore verify damaged", "Next: rmqstore verify damaged"),
        ("`rmqstore verify damaged` (damaged)", "`rmqstore verify damaged`（损坏）"),
        ("Order/0 damaged.txt", "Order/0 damaged.txt"),
        ("whatever this says of it", "whatever this says of it"),
        (", ", "，"),
    ],
)
def test_sentences_are_translated_and_names_are_not(english: str, expected: str) -> None:
    assert chinese.Translator(SMALL, {"{0} message", "{0} messages"}).line(english) == expected


def test_columns_stay_below_each_other() -> None:
    translator = chinese.Translator(SMALL, {"{0} messages"})
    assert translator.line("Lost             3 messages") == "丢失             3 条消息"


def test_chinese_paragraph_fits_the_width() -> None:
    translator = chinese.Translator(SMALL)
    lines = translator.wrapped("Nothing was written. " * 9, 30, "  ", "    ")
    assert max(map(columns, lines)) <= 30
    assert "".join(line.strip() for line in lines) == "没有写入任何内容。" * 9
    assert [line for line in lines if line.strip()[0] in "，。"] == []
    assert [translator.line(line) for line in lines] == lines  # they are not translated again


def test_brackets_and_punctuation_stay_with_their_word_at_the_end_of_a_line() -> None:
    text = "会在此处截断日志（`CRC check failed`），并删除"
    lines = chinese.Translator({}).wrapped(lang.AsIs(text), 18, "", "")
    assert lines == ["会在此处截断日志", "（`CRC check failed`），", "并删除"]


def test_bodies_and_properties_are_shown_as_they_are() -> None:
    lang.use("zh")
    assert lang.translated(lang.AsIs("No data will be lost.")) == "No data will be lost."
    assert lang.translated("No data will be lost.") == "不会丢失任何数据。"


def test_unpacked_store_is_verified_in_chinese() -> None:
    answer = run("verify", str(unpack("5.4.0-clean")), "--lang", "zh")
    assert "这个存储目录没有问题。" in answer.output
    assert "下一步：无需操作。" in answer.output


@pytest.mark.usefixtures("every_text_translated")
def test_pages_have_no_english_left(tmp_path: Path) -> None:
    store = broken(tmp_path)
    pages = [tmp_path / f"{n}.html" for n in range(3)]
    words = ("--lang", "zh", "--utc")
    assert run("report", str(store), "-o", str(pages[0]), *words).exit_code == 1
    assert run("recover", str(store), "--apply").exit_code == 0
    (journal,) = (store / ".rmqstore").iterdir()
    assert run("report", str(store), "-o", str(pages[1]), *words).exit_code == 0
    assert run("report", str(store), "--incident", str(journal), "-o", str(pages[2]), *words).exit_code == 0
    for page in pages:
        text = page.read_text("utf-8")
        assert '<html lang="zh-CN">' in text
        shown = re.sub(r"<style>.*?</style>|<pre>.*?</pre>|<code>.*?</code>", "", text, flags=re.DOTALL)
        assert _english_left(re.sub(r"<[^>]*>", "\n", shown)) == []
        labels = re.findall(r'data-label="([^"]*)"', text)
        assert labels and not [label for label in labels if label not in ("译", "RocketMQ", "译译")]
