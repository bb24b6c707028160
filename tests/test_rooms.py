"""How much a reader of a module must assume: the lines of all modules that it imports, late imports included.

A registry names modules that it does not import; imports for type checkers do not count. docs/architecture.md shows the
rooms, and lists the registries.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import rmqstore

ROOT = Path(rmqstore.__file__).parent
MOST = {
    "cli.dump": 20_000,
    "cli.du": 20_000,
    "cli.info": 20_000,
    "cli.journals": 14_000,
    "cli.backup": 24_000,
    "brokers.simulate": 15_500,
    "cli.get": 20_000,
    "checks.verify": 26_000,
    "cli.verify": 36_700,
    "repair.recover": 40_300,
    "cli.recover": 56_000,
}
"""Lines that a reader of a module must assume at most."""


@cache
def modules() -> dict[str, Path]:
    names = {path: ".".join(("rmqstore", *path.relative_to(ROOT).with_suffix("").parts)) for path in ROOT.rglob("*.py")}
    return {name.removesuffix(".__init__"): path for path, name in names.items()}


def imports(tree: ast.AST) -> Iterator[str]:
    """Yield what a module imports when it runs, at its top or in its functions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for other in node.orelse:
                yield from imports(other)
            continue
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        yield from imports(node)


@cache
def imported(name: str) -> frozenset[str]:
    tree = ast.parse(modules()[name].read_text("utf-8"))
    return frozenset(found for found in imports(tree) if found in modules() and found != name)


@cache
def lines(name: str) -> int:
    return len(modules()[name].read_text("utf-8").splitlines())


def reach(name: str) -> frozenset[str]:
    found, todo = {name}, [name]
    while todo:
        new = imported(todo.pop()) - found
        found |= new
        todo += new
    return frozenset(found)


@pytest.mark.parametrize("name", MOST)
def test_a_reader_of_a_module_need_not_assume_more(name: str) -> None:
    assert sum(map(lines, reach(f"rmqstore.{name}"))) <= MOST[name]


def test_late_imports_count_and_those_for_type_checkers_do_not() -> None:
    text = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from a.b import c\ndef f():\n    from d import e\n"
    assert list(imports(ast.parse(text))) == ["typing", "typing.TYPE_CHECKING", "d", "d.e"]


def test_modules_that_registries_name_exist() -> None:
    """A registry is a table of names: nothing else tells that a module of it was renamed."""
    packages = {path.name for path in ROOT.iterdir() if path.is_dir()}
    named = re.compile(rf"(rmqstore\.(?:{'|'.join(sorted(packages))})(?:\.\w+)+)(?::(\w+))?")
    found = [
        (name, match[1])
        for name, path in modules().items()
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and (match := named.fullmatch(node.value))
    ]
    assert len(found) > 20
    assert [one for one in found if one[1] not in modules()] == []
