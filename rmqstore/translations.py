"""Collects the English texts for people from the source, and brings the catalogues in line with them.

`python -m rmqstore.translations [FILE…]` takes over translations from FILEs, adds new texts to rmqstore/cli/lang/zh.po,
removes those that the code no longer has, and lists the texts without a translation. Tests compare the catalogue with
the source.

A text is a constant or an f-string of several words, with `+` between its parts. Values are holes; alternatives inside
a text (`"a" if x else "b"`) make several texts. What is not for people is recognized by its place: docstrings other
than help, arguments of `re` and SQL functions, keywords such as `style`.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from pathlib import Path
from typing import NamedTuple, cast

from rmqstore.cli.lang import AsIs, catalogue
from rmqstore.cli.lang.catalogue import CATALOGUE
from rmqstore.cli.lang.forms import HOLE, bare, numbered, pieces
from rmqstore.cli.printing.output import warn
from rmqstore.cli.printing.verify_text import FACT_WORDS

ROOT = Path(__file__).parent
_NOT_FOR_PEOPLE = """
manual.py json_reference.py translations.py texts.py cli/lang scan/loops formats/layout.py
messages/schema.py brokers/record.py
"""
_SILENT_CALLS = """
compile sub search match fullmatch findall finditer split execute sql query where strftime encode decode getenv
import_module namedtuple dtype AssertionError NotImplementedError TypeError KeyError AttributeError getattr
setattr startswith endswith removeprefix removesuffix partition rpartition Literal TypeVar ParamSpec cast Struct
environ isin translate Popen debug Text Placed Template Field Layout Record ArrowColumn _fail StructType DDL
"""
_LOG_LINES = {"Obstacle": 2, "StartRefusal": 1, "StartFails": 1, "_refused": 1}
"""Arguments that are lines of the broker's log, which stay as the broker writes them: their first position."""
_STARTS = ("brokers/load", "brokers/plain_start", "brokers/walk", "brokers/dledger", "brokers/queues")
_SILENT_NAMES = re.compile(r"^(_?STYLE|_SUFFIXES|COMMANDS|style|log_?line|_?[A-Z_]+_TEXT)$")
_SILENT_KEYWORDS = {
    "style",
    "metavar",
    "name",
    "pattern",
    "regex",
    "encoding",
    "examples",
    "desc",
    "key",
    "code",
    "cls",
}
_LABEL_CALLS = {"_row", "_wrapped", "row", "Styled", "append", "section", "title", "heading", "HtmlTable", "_columns"}
_CODE = re.compile(
    r"^(SELECT|CREATE|INSERT|COPY|SET|PRAGMA|WITH|FROM|ATTACH)\b|(?<!REPO)::|^\W*$|^<[/!]?\w+|/\*"
    r"|^rmqstore |^chmod |^chown "
    r'|"\w+": |^java\.|^load exception'
    r"|^\w+ (string|int|long|binary|boolean|timestamp)\b"
)
_NAME = re.compile(r"[-_./=*<>\d" + HOLE + r"]|^$")
"""What makes a single word a name."""
_LABEL = re.compile(rf"^ *[a-z]+ {{2,}}|^[A-Z][a-z]+: {HOLE}|^[A-Z][a-z]+: $")
"""A line that begins with a word for people: in a column of its own, or before a colon."""
_MOST = 8  # texts that one expression may make
_HELP = {"command", "group", "pass_context"}
CLICK = """
Usage
Options
Commands
Arguments
Show this message and exit.
Show the version and exit.
default: @
Missing argument @.
Missing option @.
Missing parameter: @
No such option: @
No such option @
Did you mean @?
(Possible options: @)
Did you mean one of: @?
(Did you mean one of: @?)
Invalid value for @: @
Invalid value: @
@ is not in the range @.
@ is not one of @.
@ is not a valid @.
Option @ requires an argument.
Option @ does not take a value.
Got unexpected extra argument (@)
Got unexpected extra arguments (@)
File @ does not exist.
Path @ does not exist.
Directory @ does not exist.
File @ is a directory.
Directory @ is a file.
Path @ is a file.
File @ is not readable.
Path @ is not readable.
File @ is not writable.
required
integer
integer range
file
directory
path
float
"""
"""Texts of click that this command line can show; @ is a value."""
SYSTEM = """
No such file or directory
Permission denied
No space left on device
Read-only file system
Is a directory
Not a directory
Input/output error
Operation not permitted
File exists
Disk quota exceeded
Too many levels of symbolic links
File name too long
Structure needs cleaning
Cannot allocate memory
Too many open files
Stale file handle
Bad address
Broken pipe
"""
"""Texts of the operating system for errors of files."""
WORDS = """
error
warning
note
never
none
yes
no
time
size
offset
duration
message
log
configuration
queues
index
other
timer
compaction
each
properties
topic
body
header
a BLANK
a plan
nothing
present
"""
"""Words that are values in other texts."""
Parts = list[str]


class SourceText(NamedTuple):
    """A text of the catalogue: `plural` is its English plural, `place` FILE:LINE, `whole` what it is a part of."""

    english: str
    plural: str
    place: str
    whole: str


def texts(root: Path = ROOT) -> dict[str, SourceText]:
    """Return all texts, by their English, in the order of the source."""
    out: dict[str, SourceText] = {}
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix()
        if not name.startswith(tuple(_NOT_FOR_PEOPLE.split())):
            for one in _Source(name, ast.parse(path.read_text("utf-8"))).collect():
                if one.plural or one.english not in out:  # a text may be counted in one place and not in another
                    out[one.english] = one
    for where, outside in (("cli/printing/output.py", WORDS), ("click", CLICK), ("strerror", SYSTEM)):
        for text in outside.strip().replace("@", HOLE).splitlines():
            for form in pieces(text):
                out.setdefault(numbered(form), SourceText(numbered(form), "", where, ""))
    plurals = {one.plural for one in out.values() if one.plural}
    return {english: one for english, one in out.items() if english not in plurals}


class _Source:
    """The texts of one file."""

    def __init__(self, name: str, tree: ast.Module) -> None:
        self.name = name
        self.tree = _Inlined().visit(tree)
        self.found: list[SourceText] = []

    def collect(self) -> list[SourceText]:
        """Collect the texts."""
        self._visit(self.tree)
        return self.found

    def _visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef | ast.Module):
            self._block(node)
        elif isinstance(node, ast.Call):
            self._call(node)
        elif isinstance(node, ast.expr) and _is_text(node):
            self._text(node)
        elif isinstance(node, ast.Dict):
            self._dict(node)
        elif isinstance(node, ast.Assign) and self.name.startswith("checks/") and _is_fact(node):
            key = cast(ast.Constant, cast(ast.Subscript, node.targets[0]).slice)
            self._fact(str(key.value), key)
            self._visit(node.value)
        elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Dict):
            self._visit(node.value)
        elif isinstance(node, ast.Compare | ast.Subscript | ast.Assert):
            for child in ast.walk(node):
                if isinstance(child, ast.Call):
                    self._call(child)
        elif isinstance(node, ast.AnnAssign):
            if node.value is not None:
                self._visit(node.value)
        elif isinstance(node, ast.Assign) and _is_silent(node, self.name):
            return
        elif isinstance(node, ast.Assign) and self.name.startswith("cli/") and _is_label(node):
            self._labels(node.value)
        else:
            for child in ast.iter_child_nodes(node):
                self._visit(child)

    def _block(self, node: ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef | ast.Module) -> None:
        body = node.body
        if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
            if not isinstance(node, ast.Module) and _HELP & {_called(d) for d in node.decorator_list}:
                for paragraph in str(ast.get_docstring(node)).split("\n\n"):
                    self._add([" ".join(paragraph.split())], body[0])
            body = body[1:]
        for decorator in getattr(node, "decorator_list", ()):
            self._visit(decorator)
        if isinstance(node, ast.FunctionDef):
            for default in [*node.args.defaults, *node.args.kw_defaults]:
                if default is not None:
                    self._visit(default)
        for statement in body:
            if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
                self._visit(statement)

    def _call(self, node: ast.Call) -> None:
        called = _called(node)
        if called == "many":
            self._many(node)
            return
        silent = called in _SILENT_CALLS.split() or (called == "replace" and len(node.args) == 2 and not node.keywords)
        for i, argument in enumerate(node.args):
            if i == 0 and called in _LABEL_CALLS and self.name.startswith("cli/"):
                self._labels(argument)
            elif i < _LOG_LINES.get(called, 99) and (not silent or not _is_text(argument)):
                self._visit(argument)
        for keyword in node.keywords:
            if keyword.arg == "help" or (keyword.arg in ("title", "unit", "what") and self.name.startswith("c")):
                self._labels(keyword.value)
            elif not silent and keyword.arg not in _SILENT_KEYWORDS:
                self._visit(keyword.value)
        if called in ("join", "format") or not isinstance(getattr(node.func, "value", None), ast.Constant):
            self._visit(node.func)

    def _many(self, node: ast.Call) -> None:
        self._visit(node.args[0])
        plurals = node.args[2] if len(node.args) > 2 else None
        for one in _constants(node.args[1]):
            other = next(_constants(plurals), "") if plurals is not None else one + "s"
            self._say(f"{HOLE} {one}", node, f"{HOLE} {one}", f"{HOLE} {other}")

    def _dict(self, node: ast.Dict) -> None:
        facts = self.name.startswith("checks/")
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                if facts and re.fullmatch(r"[a-z_]+", key.value):
                    self._fact(key.value, key)
                elif " " in key.value:
                    self._visit(key)
            elif key is not None:
                self._visit(key)
            if (
                self.name.startswith("cli/")
                and not isinstance(value, ast.Tuple)
                and not re.search(r"rmqstore\.\w+/1", ast.unparse(node))
            ):
                self._labels(value)
            else:
                self._visit(value)

    def _fact(self, name: str, node: ast.AST) -> None:
        self._say(f"{FACT_WORDS.get(name) or name.replace('_', ' ')} {HOLE}", node, "a fact of a finding")

    def _labels(self, node: ast.AST) -> None:
        """A place where also single words are for people."""
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str):
                self._add([node.value], node, single=True)
        elif isinstance(node, ast.Tuple | ast.List):
            for element in node.elts:
                self._labels(element)
        elif isinstance(node, ast.IfExp) and not _is_text(node):
            self._labels(node.body)
            self._labels(node.orelse)
            self._visit(node.test)
        elif isinstance(node, ast.Dict):
            for value in node.values:
                self._labels(value)
        else:
            self._visit(node)

    def _text(self, node: ast.expr) -> None:
        for parts in _alternatives(node):
            self._add(parts, node)
        for inner in _inner(node):
            self._visit(inner)

    def _add(self, parts: Parts, node: ast.AST, single: bool = False) -> None:
        text = "".join(parts)
        text = text.replace("{}", HOLE)
        if _CODE.search(text):
            return
        for block in text.split("\n\n"):
            lines = block.split("\n") if "\b" in block or not single else [block]
            for line in lines:
                label = single or _LABEL.search(line)
                for form in pieces(line.replace("\b", "")):
                    if "$(" not in form and (" " in form or (label and not _NAME.search(form))):
                        self._say(form, node, text)

    def _say(self, form: str, node: ast.AST, whole: str, plural: str = "") -> None:
        place = f"{self.name}:{getattr(node, 'lineno', 0)}"
        form = form if plural else bare(form)
        more = "" if form == bare(whole) else " ".join(whole.replace(HOLE, "{}").split())
        self.found.append(SourceText(numbered(form), numbered(plural), place, more))


class _Inlined(ast.NodeTransformer):
    """Puts words that a variable chooses from (`them = "it" if one else "them"`) into the texts that use it."""

    def __init__(self) -> None:
        self.words: dict[str, ast.IfExp] = {}

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Collect the words of a function, then visit its texts."""
        outer, self.words = self.words, dict(self.words)
        for inner in ast.walk(node):
            if isinstance(inner, ast.Assign) and isinstance(inner.value, ast.IfExp) and _is_words(inner.value):
                self.words |= {name.id: inner.value for name in inner.targets if isinstance(name, ast.Name)}
        self.generic_visit(node)
        self.words = outer
        return node

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.AST:
        """Replace a variable by its words."""
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.format_spec is None:
            node.value = self.words.get(node.value.id, node.value)
        return node


def _is_words(node: ast.IfExp) -> bool:
    return all(
        isinstance(one, ast.Constant) and isinstance(one.value, str) and " " not in one.value
        for one in (node.body, node.orelse)
    )


def _called(node: ast.AST) -> str:
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _is_label(node: ast.Assign) -> bool:
    """Return whether a name says that its values are words for people."""
    names = [target.id.lower() for target in node.targets if isinstance(target, ast.Name)]
    return any(re.search(r"title|words|kinds|faults|head|labels|_flags|_transaction", name) for name in names)


def _is_silent(node: ast.Assign, name: str) -> bool:
    """Return whether a name says that its value is not for people."""
    names = [target.id for target in node.targets if isinstance(target, ast.Name)]
    return any(_SILENT_NAMES.search(n) or (name.startswith(_STARTS) and n in ("text", "line")) for n in names)


def _is_fact(node: ast.Assign) -> bool:
    target = node.targets[0]
    return (
        isinstance(target, ast.Subscript)
        and isinstance(target.slice, ast.Constant)
        and (isinstance(target.slice.value, str))
    )


def _constants(node: ast.expr | None) -> Iterator[str]:
    if isinstance(node, ast.IfExp):
        yield from _constants(node.body)
        yield from _constants(node.orelse)
    elif isinstance(node, ast.expr) and _is_text(node):
        yield from ("".join(parts) for parts in _alternatives(node))


def _is_text(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str)
    if isinstance(node, ast.IfExp):
        return _is_text(node.body) and _is_text(node.orelse)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _is_text(node.left) or _is_text(node.right)
    return isinstance(node, ast.JoinedStr)


def _alternatives(node: ast.expr) -> list[Parts]:
    """Return all texts that an expression can be, with holes for values."""
    if isinstance(node, ast.Constant):
        return [[str(node.value)]]
    if isinstance(node, ast.IfExp) and _is_text(node):
        return [*_alternatives(node.body), *_alternatives(node.orelse)]
    if isinstance(node, ast.BinOp) and _is_text(node):
        return _joined([node.left, node.right])
    if isinstance(node, ast.JoinedStr):
        return _joined(node.values)
    if isinstance(node, ast.FormattedValue) and node.format_spec is None and _is_text(node.value):
        return _alternatives(node.value)
    return [[HOLE]]


def _joined(nodes: list[ast.expr]) -> list[Parts]:
    each = [_alternatives(node) for node in nodes]
    while _size(each) > _MOST:
        most = max(range(len(each)), key=lambda i: len(each[i]))
        each[most] = [[HOLE]]
    return [[part for parts in chosen for part in parts] for chosen in product(*each)]


def _size(each: list[list[Parts]]) -> int:
    return prod(map(len, each))


def _inner(node: ast.expr) -> Iterator[ast.expr]:
    """Yield the expressions inside a text; alternatives that became a hole are texts of their own."""
    nodes: list[ast.expr] = []
    if isinstance(node, ast.JoinedStr):
        nodes = list(node.values)
    elif isinstance(node, ast.BinOp):
        nodes = [node.left, node.right]
    elif isinstance(node, ast.IfExp):
        yield node.test
        nodes = [node.body, node.orelse]
    elif isinstance(node, ast.FormattedValue):
        nodes = [node.value]
    elif not isinstance(node, ast.Constant):
        yield node
    whole = isinstance(node, ast.JoinedStr | ast.BinOp) and _size(list(map(_alternatives, nodes))) > _MOST
    for each in nodes:
        if whole and isinstance(each, ast.FormattedValue | ast.IfExp) and len(_alternatives(each)) > 1:
            yield each.value if isinstance(each, ast.FormattedValue) else each
        else:
            yield from _inner(each)


def updated(path: Path = CATALOGUE, more: Sequence[Path] = ()) -> list[str]:
    """Bring a catalogue in line with the source; return the texts without a translation.

    `more`: further catalogues, whose translations are taken over.
    """
    files = [*([path] if path.exists() else []), *more]
    have = {entry.english: entry.chinese for file in files for entry in catalogue.read(file) if entry.chinese}
    entries = []
    for one in texts().values():
        chinese = have.get(one.english, "")
        comments = [f"#: {one.place.partition(':')[0]}"]
        if one.whole and not chinese:
            comments.insert(0, f"#. in: {one.whole}")
        entries.append(catalogue.CatalogEntry(one.english, one.plural, chinese, tuple(comments)))
    path.write_text(catalogue.written(entries), "utf-8")
    return [entry.english for entry in entries if not entry.chinese]


def main() -> None:
    """Update the catalogue, and list what has no translation."""
    for english in updated(more=[Path(word) for word in sys.argv[1:]]):
        warn(AsIs(english))


if __name__ == "__main__":
    main()
