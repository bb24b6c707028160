"""The layering of rmqstore, checked in its source: which files may import, write, print and exit; no import cycles."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from rmqstore.checks.problems import codes
from rmqstore.checks.problems.problem import Area
from rmqstore.checks.problems.table import PROBLEMS
from tests.garbage import not_collected

pytestmark = pytest.mark.xdist_group("layers")  # one process parses all sources
Nodes = tuple[ast.AST, ...]
ROOT = Path(__file__).parent.parent / "rmqstore"
SOURCES = sorted(ROOT.rglob("*.py"))

LAYERS = {
    "errors": 0,
    "formats": 1,
    "files": 2,
    "scan": 3,
    "messages": 4,
    "checks": 5,
    "brokers": 5,
    "append": 6,
    "repair": 7,
    "views": 8,
    "": 8,  # rmqstore/__init__.py
    "cli": 9,
    "spark": 9,
    "json_reference": 9,
    "manual": 9,
    "translations": 9,
    "__main__": 9,
}
# manual.py writes man/ and translations.py zh.po, both in this repository. spark/hadoop.py and
# spark/jobs/parquet_files.py write the output of a job, which is never inside a store.
WRITERS = (
    "repair/journal/disk.py",
    "append/",
    "cli/printing/output.py",
    "manual.py",
    "translations.py",
    "spark/hadoop.py",
    "spark/jobs/parquet_files.py",
    "files/rocksdb/links.py",
)
LOCKERS = ("files/in_use/lock.py",)

OS_WRITES = {
    *("write", "writev", "pwrite", "pwritev", "truncate", "ftruncate", "posix_fallocate", "sendfile", "splice"),
    *("rename", "renames", "replace", "remove", "unlink", "removedirs", "rmdir", "mkdir", "makedirs", "mkfifo"),
    *("mknod", "link", "symlink", "utime", "chmod", "fchmod", "lchmod", "chown", "fchown", "lchown"),
    *("copy_file_range", "setxattr", "removexattr", "fdopen"),
}
OPEN_FLAGS = {"O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC", "O_APPEND", "O_EXCL", "O_TMPFILE"}
METHOD_WRITES = {
    *("write_text", "write_bytes", "touch", "unlink", "rmdir", "mkdir", "symlink_to", "hardlink_to", "rename"),
    *("chmod", "lchmod", "tofile", "memmap"),
}
SHUTIL_READS = {"disk_usage", "which", "get_terminal_size"}
WRITING_MODULES = {"mmap", "tempfile"}


def package_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return "" if parts == ("__init__",) else parts[0]


def imported_packages(path: Path, nodes: Nodes) -> Iterator[tuple[int, str]]:
    """Yield line and top-level package of every import of rmqstore, also in functions and under TYPE_CHECKING."""
    package = ("rmqstore", *path.relative_to(ROOT).with_suffix("").parts)
    package = package[:-1]
    for node in nodes:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module or "") if part)
            # `from rmqstore import errors` imports a package, `from rmqstore import apply` a name of rmqstore itself.
            names = [f"{module}.{alias.name}" if module == "rmqstore" else module for alias in node.names]
        else:
            continue
        for name in names:
            head, _, rest = name.partition(".")
            if head == "rmqstore":
                first = rest.partition(".")[0]
                yield node.lineno, first if first in LAYERS else ""


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


def maps_memory_only(nodes: Nodes) -> bool:
    """Return whether all calls of mmap map anonymous memory (file descriptor -1)."""
    calls = [n for n in nodes if isinstance(n, ast.Call) and callee(n) == ("mmap", "mmap")]
    return bool(calls) and all(call.args and ast.unparse(call.args[0]) == "-1" for call in calls)


def writes(nodes: Nodes) -> Iterator[tuple[int, str]]:
    """Yield line and description of everything that can write to a disk."""
    for node in nodes:
        if isinstance(node, ast.Import):
            names = [alias.name.partition(".")[0] for alias in node.names]
            names = [name for name in names if name != "mmap" or not maps_memory_only(nodes)]
            yield from ((node.lineno, f"import {name}") for name in names if name in WRITING_MODULES)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from ((node.lineno, words) for words in imported_writers(node))
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os":
            if node.attr in OPEN_FLAGS or node.attr in OS_WRITES:
                yield node.lineno, f"os.{node.attr}"
        elif isinstance(node, ast.Call) and (words := writing_call(node)):
            yield node.lineno, words


def imported_writers(node: ast.ImportFrom) -> Iterator[str]:
    names = [alias.name for alias in node.names]
    if node.module in WRITING_MODULES:
        yield f"from {node.module} import …"
    elif node.module == "os":
        yield from (f"from os import {name}" for name in {*OS_WRITES, *OPEN_FLAGS, "open"} & set(names))
    elif node.module == "shutil":
        yield from (f"from shutil import {name}" for name in set(names) - SHUTIL_READS)


def writing_call(node: ast.Call) -> str:
    """Describe a call that can write to a disk; return "" for others, and for `os.*`, which `writes` finds itself."""
    owner, name = callee(node)
    if owner == "shutil" and name not in SHUTIL_READS:
        return f"shutil.{name}"
    if owner == "os":
        return ""
    if name == "open" and owner in ("", "io", "gzip", "bz2", "lzma"):
        return "open for writing" if opens_for_writing(argument(node, 1, "mode")) else ""
    if name == "open" and is_mode(argument(node, 0, "mode")) and opens_for_writing(argument(node, 0, "mode")):
        return ".open for writing"
    if owner and name in METHOD_WRITES:
        return f".{name}()"
    replaces = owner not in ("", "dataclasses") and name == "replace" and len(node.args) == 1 and not node.keywords
    return ".replace(target)" if replaces else ""


def locks(nodes: Nodes) -> Iterator[int]:
    """Yield the lines that take a lock (F_GETLK only queries it)."""
    for node in nodes:
        if isinstance(node, ast.Attribute) and node.attr in ("lockf", "flock", "F_SETLK", "F_SETLKW", "LOCK_EX"):
            yield node.lineno


def exits_and_prints(nodes: Nodes) -> Iterator[tuple[int, str]]:
    for node in nodes:
        if isinstance(node, ast.Call):
            owner, name = callee(node)
            if (
                (owner, name) == ("", "print")
                or (owner, name) == ("click", "echo")
                or (owner, name) == ("click", "secho")
            ):
                yield node.lineno, "print"
            if (owner, name) in (("sys", "exit"), ("os", "_exit"), ("", "exit"), ("", "quit")):
                yield node.lineno, "exit"
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "sys":
            if node.attr in ("stdout", "stderr", "__stdout__", "__stderr__"):
                yield node.lineno, "print"
        elif isinstance(node, ast.Name) and node.id == "SystemExit":
            yield node.lineno, "exit"


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


def test_every_package_has_a_layer() -> None:
    assert {package_of(path) for path in SOURCES} <= LAYERS.keys()


def test_imports_go_down_only() -> None:
    wrong = []
    for path in SOURCES:
        own = package_of(path)
        for line, other in imported_packages(path, nodes_of(path)):
            if own != other and LAYERS[other] > LAYERS[own]:
                wrong.append(f"{where(path)}:{line} imports {other or 'rmqstore itself'}")
    assert wrong == []


def test_packages_of_one_layer_have_no_import_cycle() -> None:
    edges: dict[str, set[str]] = {}
    for path in SOURCES:
        own = package_of(path)
        for _, other in imported_packages(path, nodes_of(path)):
            if own != other and LAYERS[other] == LAYERS[own]:
                edges.setdefault(own, set()).add(other)

    def reaches(start: str, goal: str, seen: frozenset[str] = frozenset()) -> bool:
        return any(
            name == goal or (name not in seen and reaches(name, goal, seen | {name})) for name in edges.get(start, ())
        )

    assert [name or "rmqstore itself" for name in edges if reaches(name, name)] == []


def test_packages_import_each_other_in_one_direction() -> None:
    """This includes sub-packages: `repair.plan` does not import `repair.journal`. CycleError contains the cycle."""
    modules = {"rmqstore." + where(path).removesuffix(".py").replace("/", ".") for path in SOURCES}
    edges: dict[str, set[str]] = {}
    for path in SOURCES:
        own = ".".join(("rmqstore", *path.relative_to(ROOT).parent.parts))
        for node in nodes_of(path):
            if path.stem == "__init__" or own == "rmqstore" or not isinstance(node, ast.ImportFrom) or not node.module:
                continue
            for module in {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)} & modules:
                other = module.rpartition(".")[0]
                if other not in ("rmqstore", own):
                    edges.setdefault(own, set()).add(other)
    assert len(list(TopologicalSorter(edges).static_order())) > 30


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


def test_repair_renames_and_unlinks_only_through_its_disk() -> None:
    wrong = []
    for path in SOURCES:
        if package_of(path) == "repair" and where(path) not in WRITERS:
            for node in nodes_of(path):
                if isinstance(node, ast.Call) and callee(node)[1] in ("rename", "unlink"):
                    assert isinstance(node.func, ast.Attribute)
                    if not ast.unparse(node.func.value).endswith("disk"):
                        wrong.append(f"{where(path)}:{node.lineno}")
    assert wrong == []


def test_only_a_writer_takes_the_lock() -> None:
    wrong = [
        f"{where(path)}:{line}"
        for path in SOURCES
        if not where(path).startswith((*LOCKERS, "append/"))
        for line in locks(nodes_of(path))
    ]
    assert wrong == []


def test_only_the_output_prints() -> None:
    wrong = [
        f"{where(path)}:{line}"
        for path in SOURCES
        if where(path) != "cli/printing/output.py"
        for line, what in exits_and_prints(nodes_of(path))
        if what == "print"
    ]
    assert wrong == []


def test_only_the_command_line_exits() -> None:
    wrong = [
        f"{where(path)}:{line}"
        for path in SOURCES
        if package_of(path) not in ("cli", "__main__")
        for line, what in exits_and_prints(nodes_of(path))
        if what == "exit"
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "source",
    [
        "open(p, 'w')",
        "open(p, mode)",
        "p.open('ab')",
        "p.open(mode='r+b')",
        "p.open(mode)",
        "os.open(p, os.O_RDWR)",
        "os.open(p, os.O_WRONLY | os.O_CREAT)",
        "os.pwrite(fd, b'', 0)",
        "from os import rename",
        "f = os.replace",
        "p.write_bytes(b'')",
        "p.replace(target)",
        "p.rename(target)",
        "a.b.unlink()",
        "shutil.rmtree(p)",
        "from shutil import copytree",
        "import mmap",
        "import mmap\nmmap.mmap(fd, 10)",
        "import mmap\nmmap.mmap(-1, 10), mmap.mmap(fd, 10)",
        "import tempfile",
        "array.tofile(f)",
        "np.memmap(p)",
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
        "os.open(p, os.O_RDONLY | os.O_CLOEXEC)",
        "os.pread(fd, 1, 0)",
        "import mmap\nmmap.mmap(-1, 10)",
        "text.replace('a', 'b')",
        "dataclasses.replace(plan)",
        "replace(plan, store=1)",
        "moment.replace(tzinfo=None)",
        "shutil.disk_usage(p)",
    ],
)
def test_reading_is_not_reported_as_writing(source: str) -> None:
    assert list(writes(nodes_in(source))) == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from rmqstore.cli.printing import output", ["cli"]),
        ("import rmqstore.formats.layout", ["formats"]),
        ("from rmqstore import errors", ["errors"]),
        ("from rmqstore import apply", [""]),
        ("from ..scan import tiling", ["scan"]),
        ("def f():\n    from rmqstore.spark import jobs", ["spark"]),
        ("if TYPE_CHECKING:\n    from rmqstore.views import info", ["views"]),
        ("import os", []),
    ],
)
def test_imports_are_found_anywhere_in_a_file(source: str, expected: list[str]) -> None:
    found = imported_packages(ROOT / "repair" / "plan.py", nodes_in(source))
    assert [name for _, name in found] == expected


def imported_files(nodes: Nodes, modules: set[str]) -> Iterator[str]:
    """Yield the modules of rmqstore that a file imports, also in functions and under TYPE_CHECKING."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)} & modules


def cycles(imports: dict[str, set[str]]) -> list[str]:
    """Return the files that import themselves indirectly."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        todo = [start]
        while todo:
            for name in imports.get(todo.pop(), set()) - seen:
                seen.add(name)
                todo.append(name)
        return seen

    return sorted(name for name in imports if name in reached(name))


def test_no_file_is_in_an_import_cycle() -> None:
    names = {".".join(("rmqstore", *path.relative_to(ROOT).with_suffix("").parts)): path for path in SOURCES}
    modules = {name.removesuffix(".__init__"): path for name, path in names.items() if path.parent != ROOT}
    modules |= {name: path for name, path in names.items() if path.parent == ROOT and path.name != "__init__.py"}
    assert cycles({name: set(imported_files(nodes_of(path), set(modules))) for name, path in modules.items()}) == []


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        ({"a": "import b", "b": "import c", "c": "x = 1"}, []),
        ({"a": "import b", "b": "def f():\n    import a"}, ["a", "b"]),
        ({"a": "from b import x", "b": "if TYPE_CHECKING:\n    from a import y", "c": "import a"}, ["a", "b"]),
    ],
)
def test_import_cycles_are_found(sources: dict[str, str], expected: list[str]) -> None:
    found = {name: set(imported_files(nodes_in(source), set(sources))) for name, source in sources.items()}
    assert cycles(found) == expected


def _templates(nodes: Nodes) -> Iterator[ast.Constant]:
    """Yield the texts with a placeholder, except those that `.format` fills in and the reason of an Obstacle."""
    filled = {id(node.value) for node in nodes if isinstance(node, ast.Attribute) and node.attr == "format"}
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Obstacle":
            filled |= {id(part) for part in ast.walk(node.args[1])}
        elif isinstance(node, ast.FunctionDef) and node.name == "_misfit":
            filled |= {id(part) for part in ast.walk(node)}
        elif isinstance(node, ast.Expr):
            filled.add(id(node.value))  # a docstring
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in filled:
            text = node.value
            if "{}" in text.replace(":{}", "") and len(text) > 2 and not text.startswith('"'):
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
