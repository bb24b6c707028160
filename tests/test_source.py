"""Rules of the source that ruff and import-linter (pyproject.toml) cannot express."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqstore.checks.problems import codes
from rmqstore.checks.problems.problem import Area
from rmqstore.checks.problems.table import PROBLEMS
from tests.garbage import not_collected

pytestmark = pytest.mark.xdist_group("source")  # one process parses all sources
Nodes = tuple[ast.AST, ...]
ROOT = Path(__file__).parent.parent / "rmqstore"
SOURCES = sorted(ROOT.rglob("*.py"))
WRITERS = (
    "backup/storage.py",
    "repair/journal/disk.py",
    "receiving/spool.py",
    "append/",
    "cli/printing/output.py",
    "files/private.py",
    "files/trees.py",
    "manual.py",
    "spark/output_files.py",
    "files/rocksdb/links.py",
)
READERS = {
    "append/": "reopens files that it writes",
    "backup/": "the files of a repository, and the store that a restore builds",
    "carving/": "devices and images, which are no files of a store, and the state of a carving",
    "scan/native.py": "rmqstore's own library",
    "brokers/outlook.py": "how full a file system is",
    "cli/": "paths that the user names, outputs, settings, and the state of --resume",
    "documents/": "journals of repairs and the paths of plans, which are on this machine",
    "errors.py": "how this program was installed",
    "files/beneath.py": "entries beneath allowed directories, without following links",
    "files/broker_config.py": "broker.conf, which -c names",
    "files/broker_settings.py": "a table of this package",
    "files/disk.py": "resolves links of paths",
    "files/files.py": "LocalFiles itself",
    "files/reading.py": "what LocalFiles is made of",
    "files/lock.py": "the lock",
    "files/private.py": "outputs, and what interrupted runs left of them",
    "files/trees.py": "directories that are built, and what interrupted runs left of them",
    "files/walk.py": "owners and inodes on this machine, and files that are opened without following a link",
    "files/users.py": "the processes of this machine that use a store",
    "files/rocksdb/links.py": "links to a database that `Files.local` has brought to this machine",
    "checks/beside/host.py": "limits of this machine, and only where `Files.on_this_machine`",
    "checks/beside/permissions.py": "owners and modes, and only where `Files.on_this_machine`",
    "checks/since_last.py": "the file that --since-last names",
    "receiving/": "the spool of `receive`, which is on this machine",
    "repair/importing.py": "the copy of a store in the folder of a journal",
    "repair/journal/": "compares and changes the files of this machine",
    "repair/plan/plan_builder.py": "what a plan expects, as the journal finds it: never through a link",
    "repair/migrate_to_commitlog.py": "the new store",
    "repair/rebuild/rocksdb.py": "a new database in a temporary directory",
    "repair/replica/": "the path or broker.conf of a replica that --replica names",
    "views/fleet.py": "results of commands, which the user names",
    "spark/": "outputs of jobs, and Spark's own files",
    "views/fingerprint.py": "a file that compare --fingerprint-out has written",
    "views/reports.py": "journals of repairs",
    "views/sql.py": "files that sql --table names",
    "views/stores.py": "globs and lists of stores that the user names",
    **dict.fromkeys(("json_reference.py", "manual.py"), "files of this package"),
}
"""Why a file, or the files below a directory, read without `Store.files`."""
FUNCTION_READS = {
    "os": {"access", "listdir", "lstat", "open", "pread", "preadv", "readlink", "scandir", "stat", "statvfs", "walk"},
    "os.path": {"exists", "getmtime", "getsize", "isdir", "isfile", "islink", "lexists", "realpath", "samefile"},
    "glob": {"glob", "iglob"},
}
METHOD_READS = {
    *("glob", "is_dir", "is_file", "is_symlink", "iterdir", "lstat", "read_bytes", "read_text", "readlink", "resolve"),
    *("exists", "rglob", "samefile", "stat"),
}
LOW_LEVEL = {"rmqstore.files.reading"}
METHOD_WRITES = {
    *("write_text", "write_bytes", "touch", "unlink", "rmdir", "mkdir", "symlink_to", "hardlink_to", "rename"),
    *("chmod", "lchmod", "tofile"),
}


def callee(node: ast.Call) -> tuple[str, str]:
    """Return ("os", "write") for `os.write(…)`, ("", "open") for `open(…)`, ("?", "touch") for `a.b.touch()`."""
    if isinstance(node.func, ast.Name):
        return "", node.func.id
    if isinstance(node.func, ast.Attribute):
        owner = node.func.value
        return (owner.id if isinstance(owner, ast.Name) else "?"), node.func.attr
    return "?", "?"


def argument(node: ast.Call, position: int, keyword: str) -> ast.expr | None:
    named = [given.value for given in node.keywords if given.arg == keyword]
    return named[0] if named else (node.args[position] if len(node.args) > position else None)


def opens_for_writing(mode: ast.expr | None) -> bool:
    if mode is None:
        return False
    return not (isinstance(mode, ast.Constant) and isinstance(mode.value, str) and not set(mode.value) & set("wax+"))


def is_mode(first: ast.expr | None) -> bool:
    """Return whether an argument is a file mode, as in `path.open(mode)`, or not, as in `MappedFileQueue.open(…)`."""
    if isinstance(first, ast.Constant) and isinstance(first.value, str):
        return set(first.value) <= set("rwaxbt+") and len(first.value) <= 4
    return isinstance(first, ast.Name) and "mode" in first.id


def writes(nodes: Nodes) -> Iterator[tuple[int, str]]:
    """Yield line and name of the methods that write to a disk; ruff bans the functions of modules."""
    for node in nodes:
        if isinstance(node, ast.Call) and (words := writing_call(node)):
            yield node.lineno, words


def writing_call(node: ast.Call) -> str:
    """Describe a call that can write to a disk; return "" for others, and for functions of `os` and `shutil`."""
    owner, name = callee(node)
    if owner in ("os", "shutil"):
        return ""
    if name == "open" and owner in ("", "io", "gzip", "bz2", "lzma"):
        return "open for writing" if opens_for_writing(argument(node, 1, "mode")) else ""
    if name == "open" and is_mode(argument(node, 0, "mode")) and opens_for_writing(argument(node, 0, "mode")):
        return ".open for writing"
    if owner and name in METHOD_WRITES:
        return f".{name}()"
    replaces = owner not in ("", "dataclasses") and name == "replace" and len(node.args) == 1 and not node.keywords
    return ".replace(target)" if replaces else ""


def reads_past_files(nodes: Nodes) -> Iterator[tuple[int, str]]:
    """Yield line and words of what opens, lists or examines files without a `Files`, or through LOCAL by name."""
    for node in nodes:
        if isinstance(node, ast.Call):
            yield from ((node.lineno, words) for words in reading_call(node))
        elif isinstance(node, ast.ImportFrom) and node.module in LOW_LEVEL:
            yield node.lineno, node.module


def reading_call(node: ast.Call) -> Iterator[str]:
    if any(isinstance(given, ast.Name) and given.id == "LOCAL" for given in node.args):
        yield "passes LOCAL"
    if isinstance(node.func, ast.Name) and node.func.id in ("open", "read_given"):
        yield node.func.id
    if not isinstance(node.func, ast.Attribute):
        return
    owner, name = ast.unparse(node.func.value), node.func.attr
    if owner == "LOCAL" or name in FUNCTION_READS.get(owner, ()):
        yield f"{owner}.{name}"
    elif owner in FUNCTION_READS:
        return
    elif name == "open" and is_mode(argument(node, 0, "mode")):
        yield f"{owner}.open"
    elif name in METHOD_READS and owner != "self" and not re.search(r"(^|[._])files$", owner):
        yield f"{owner}.{name}"  # the methods of `Files` are called on nothing else than what is named files


def where(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def nodes_in(source: str) -> Nodes:
    """Parse a source, and return all nodes of its syntax tree."""
    with not_collected():
        return tuple(ast.walk(ast.parse(source)))


@functools.cache
def nodes_of(path: Path) -> Nodes:
    return nodes_in(path.read_text("utf-8"))


@pytest.fixture(scope="module", autouse=True)
def _clear_the_cache() -> Iterator[None]:
    yield
    nodes_of.cache_clear()


def test_only_the_listed_files_write() -> None:
    wrong = [
        f"{where(path)}:{line} {words}"
        for path in SOURCES
        if not where(path).startswith(WRITERS)
        for line, words in writes(nodes_of(path))
        # `Disk`, through which the journal writes, has methods with these names.
        if not (where(path).startswith("repair/") and words in (".rename()", ".unlink()"))
    ]
    assert wrong == []


def test_what_reads_a_store_reads_through_its_files() -> None:
    found = {(where(path), line, words) for path in SOURCES for line, words in reads_past_files(nodes_of(path))}
    wrong = [f"{name}:{line} {words}" for name, line, words in sorted(found) if not name.startswith(tuple(READERS))]
    assert wrong == []
    unused = [prefix for prefix in READERS if not any(name.startswith(prefix) for name, _, _ in found)]
    assert unused == [], "exceptions that nothing needs any more"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("path.stat()", "path.stat"),
        ("(root / name).exists()", "root / name.exists"),
        ("os.path.lexists(p)", "os.path.lexists"),
        ("open(p)", "open"),
        ("read_given(p, 64)", "read_given"),
        ("p.open('rb')", "p.open"),
        ("config_object(LOCAL, path)", "passes LOCAL"),
        ("LOCAL.list(d)", "LOCAL.list"),
        ("from rmqstore.files.reading import open_regular", "rmqstore.files.reading"),
    ],
)
def test_reads_past_files_are_found(source: str, words: str) -> None:
    assert [found for _, found in reads_past_files(nodes_in(source))] == [words]


@pytest.mark.parametrize("source", ["store.files.stat(p)", "files.exists(p)", "file.files.open(p)", "file.open()"])
def test_reads_through_files_are_allowed(source: str) -> None:
    assert list(reads_past_files(nodes_in(source))) == []


def test_repair_renames_and_unlinks_only_through_its_disk() -> None:
    wrong = []
    for path in SOURCES:
        if where(path).startswith("repair/") and where(path) not in WRITERS:
            for node in nodes_of(path):
                if isinstance(node, ast.Call) and callee(node)[1] in ("rename", "unlink"):
                    assert isinstance(node.func, ast.Attribute)
                    if not ast.unparse(node.func.value).endswith("disk"):
                        wrong.append(f"{where(path)}:{node.lineno}")
    assert wrong == []


@pytest.mark.parametrize(
    "source",
    [
        "open(p, 'w')",
        "open(p, mode)",
        "p.open('ab')",
        "p.open(mode='r+b')",
        "p.open(mode)",
        "p.write_bytes(b'')",
        "p.replace(target)",
        "p.rename(target)",
        "a.b.unlink()",
        "array.tofile(f)",
    ],
)
def test_writing_is_recognized(source: str) -> None:
    assert list(writes(nodes_in(source)))


@pytest.mark.parametrize(
    "source",
    [
        "open(p)",
        "open(p, 'rb')",
        "p.open('rb')",
        "MappedFileQueue.open('index', paths)",
        "Store.open(path)",
        "text.replace('a', 'b')",
        "dataclasses.replace(plan)",
        "replace(plan, store=1)",
        "moment.replace(tzinfo=None)",
    ],
)
def test_reading_is_not_reported_as_writing(source: str) -> None:
    assert list(writes(nodes_in(source))) == []


def _templates(nodes: Nodes) -> Iterator[ast.Constant]:
    """Yield the texts with a placeholder, except those that `.format` fills in."""
    filled = {id(node.value) for node in nodes if isinstance(node, ast.Attribute) and node.attr == "format"}
    for node in nodes:
        if isinstance(node, ast.Expr):
            filled.add(id(node.value))  # a docstring
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in filled:
            text = node.value
            braces = "" if "-exec" in text else text.replace(":{}", "")  # a command of find has its own
            if "{}" in braces and len(text) > 2 and not text.startswith('"'):
                yield node


def test_no_template_is_used_without_its_values() -> None:
    found = [f"{path}:{node.lineno}" for path in SOURCES for node in _templates(nodes_of(path))]
    assert found == []
    assert len(list(_templates(nodes_in("raise Refused('{} has 5 bytes')")))) == 1


def test_only_codes_py_contains_problem_codes_as_strings() -> None:
    """All other code uses the names in `checks/problems/codes.py`, which the type checker checks."""
    spelled = [
        f"{where(path)}:{node.lineno} {node.value}"
        for path in SOURCES
        if where(path) != "checks/problems/codes.py"
        for node in nodes_of(path)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in PROBLEMS
    ]
    assert spelled == []
    assert {value for name, value in vars(codes).items() if name.isupper()} == PROBLEMS.keys()


def test_no_code_tests_the_prefix_of_a_problem_code() -> None:
    """Use `PROBLEMS[code].area` to get the part of the store that a code belongs to."""
    prefixes = {f"{area.value}-" for area in Area}
    spelled = [
        f"{where(path)}:{node.lineno} {node.value}"
        for path in SOURCES
        for node in nodes_of(path)
        if isinstance(node, ast.Constant) and node.value in prefixes
    ]
    assert spelled == []


def test_no_class_name_has_two_meanings() -> None:
    places: dict[str, list[str]] = {}
    for path in SOURCES:
        for node in nodes_of(path):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name.lstrip("_"), []).append(f"{where(path)}:{node.lineno}")
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
