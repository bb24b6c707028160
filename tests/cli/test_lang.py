"""Messages in Chinese: the catalogue contains every text, and no output of a command stays English."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqstore.cli import lang
from rmqstore.cli.lang import catalogue, lookup
from rmqstore.cli.lang.extract import extract
from rmqstore.cli.printing.quantities import wrapped
from rmqstore.cli.printing.verify_text import fact
from rmqstore.errors import about
from rmqstore.formats.text import columns
from rmqstore.texts import Text, joined
from tests.cases.case import case_names, make, options, read_case
from tests.cli.test_report_page import broken
from tests.command import command_names, run
from tests.stores import copy_store, unpack

ENGLISH = re.compile(r"(?:(?<![\w/.])[a-z][a-z'’]*[,;:]? ){3,}[a-z'’]{2,}", re.IGNORECASE)
"""Four words in a row."""
WORD = re.compile(r"[A-Za-z][A-Za-z'’]+")
KEPT = re.compile(r"{\w+[^}]*}|`[^`]*`|(?<![\w-])--[a-z][a-z-]+")
"""What a translation has like its template: values, commands, options."""
QUOTED = re.compile(r"`[^`]*`|(?<=： )?rmqstore .*|(?:'[^']*')|\"[^\"]*\"|(?:broker log|译) {3,}.*|Corruption: .*")
"""Commands, quoted text, lines of the broker's log, and what RocksDB says."""


@pytest.fixture(autouse=True)
def _english_afterwards() -> Iterator[None]:
    yield
    lang.use("en")


@pytest.fixture
def every_text_translated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Translate every text to 译, so that output in English shows a text without a template."""
    marked = {entry.english: _marked(entry.english) for entry in catalogue.read()}
    monkeypatch.setattr(lookup, "_texts", lambda: marked)
    monkeypatch.setenv("COLUMNS", "1000")  # so that no line is wrapped


def _marked(template: str) -> str:
    """Return a template with 译 for its words."""
    return "".join(
        part if part.startswith("{") else "译" if WORD.search(part) else part
        for part in re.split(r"({\w+[^}]*})", template)
    )


# --- the catalogue ---------------------------------------------------------------------------------------------------


def test_every_template_has_a_translation() -> None:
    assert [entry.english for entry in catalogue.read() if not entry.chinese] == []


def test_a_text_in_an_error_is_translated_inside_another_text() -> None:
    lang.use("zh")
    error = ValueError(Text("messageDelayLevel: {part!r} is not a delay", part="1x"))
    for text in (Text("{path} is damaged: {error}", path="x", error=error), about("broker.conf", error)):
        assert "不是延迟" in lang.translated(text)


def test_the_catalogue_has_the_templates_of_the_source() -> None:
    found = set()
    for path in Path("rmqstore").rglob("*.py"):
        with path.open("rb") as file:
            for _, _, templates, _ in extract(file, ["Text", "Template"], (), {}):
                found.add(templates if isinstance(templates, str) else templates[0])
    have = {entry.english for entry in catalogue.read()}
    assert found == have, "run make texts"


def test_templates_keep_their_values_and_commands() -> None:
    wrong = []
    for entry in catalogue.read():
        kept = [set(KEPT.findall(text)) for text in (entry.english, entry.chinese)]
        wrong += [entry] if kept[0] != kept[1] else []
    assert wrong == []


def test_catalogue_with_wrapped_lines_is_read(tmp_path: Path) -> None:
    path = tmp_path / "wrapped.po"
    path.write_text(
        '#: place\nmsgid ""\n"one \\"a\\" \\n"\n"two"\nmsgstr "一"\n"二"\n', "utf-8"
    )  # as editors wrap lines
    assert list(catalogue.read(path)) == [catalogue.CatalogEntry('one "a" \ntwo', "", "一二")]


def test_every_fact_has_a_translation() -> None:
    have = {entry.english for entry in catalogue.read()}
    missing = set()
    for path in Path("rmqstore/checks").rglob("*.py"):
        names = {name for node in _with_facts(ast.parse(path.read_text("utf-8"))) for name in _keys(node)}
        missing |= {text for name in names - {"run"} if (text := fact(name, 1).template) not in have}
    assert missing == set()


def _with_facts(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the calls and assignments with facts of a finding."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=func):
                found = ast.unparse(func).endswith(("Finding", "_add"))
            case ast.AnnAssign(annotation=annotation):
                found = "dict[str, Fact]" in ast.unparse(annotation)
            case ast.Assign(targets=[target]) | ast.AugAssign(target=target):
                found = ast.unparse(target).startswith(("facts", "about"))
            case _:
                found = False
        if found:
            yield node


def _keys(node: ast.AST) -> Iterator[str]:
    for one in ast.walk(node):
        keys: list[ast.expr | None] = []
        if isinstance(one, ast.Dict):
            keys = [*one.keys]
        elif isinstance(one, ast.Subscript) and isinstance(one.ctx, ast.Store):
            keys = [one.slice]
        yield from (key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str))


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
    assert done.stdout.strip() == "[]"


# --- texts in Chinese -------------------------------------------------------------------------------------------------


def test_chinese_paragraph_fits_the_width() -> None:
    lang.use("zh")
    sentence = Text("No data will be lost.")
    lines = wrapped(joined([sentence] * 9, ""), 30, "  ", "    ")
    assert max(map(columns, lines)) <= 30
    assert "".join(line.strip() for line in lines) == "不会丢失任何数据。" * 9
    assert [line for line in lines if line.strip()[0] in "，。"] == []
    assert list(map(lang.translated, lines)) == lines  # they are not translated again


def test_brackets_and_punctuation_stay_with_their_word_at_the_end_of_a_line() -> None:
    lang.use("zh")
    lines = wrapped(lang.AsIs("会在此处截断日志（`CRC check failed`），并删除"), 18, "", "")
    assert lines == ["会在此处截断日志", "（`CRC check failed`），", "并删除"]


def test_strings_that_are_no_texts_are_shown_as_they_are() -> None:
    lang.use("zh")
    assert lang.translated("No data will be lost.") == "No data will be lost."
    assert lang.translated(Text("No data will be lost.")) == "不会丢失任何数据。"


def test_unpacked_store_is_verified_in_chinese() -> None:
    answer = run("verify", str(unpack("5.4.0-clean")), "--lang", "zh")
    assert "这个存储目录没有问题。" in answer.output
    assert "下一步：无需操作。" in answer.output


def test_the_span_of_the_messages_is_in_chinese() -> None:
    assert "UTC（6 秒）" in run("info", str(unpack("5.4.0-killed")), "--utc", "--lang", "zh").stdout


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
        if page != pages[2]:  # it quotes the journal, which is English
            assert _english_left(re.sub(r"<[^>]*>", "\n", shown)) == []
        labels = re.findall(r'data-label="([^"]*)"', text)
        assert labels and not [
            label for label in labels if label not in ("译", "RocketMQ", "topic", "key", "keys", "译译")
        ]
