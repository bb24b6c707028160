"""Commands in the advice of errors work when they are pasted into a shell."""

from __future__ import annotations

import shlex
import sys
import tomllib

import pytest

from rmqstore.errors import EXTRAS, install_command
from tests.stores import ROOT


def test_extras_are_those_of_the_distribution() -> None:
    optional = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {name: list(packages) for name, packages in EXTRAS.items()} == {name: optional[name] for name in EXTRAS}
    assert set(optional) - set(EXTRAS) == {"docs", "test", "dev"}


@pytest.mark.parametrize(
    ("pip", "start"), [(True, [sys.executable, "-m", "pip"]), (False, ["uv", "pip", "install", "--python"])]
)
def test_the_command_names_the_packages_quoted_for_a_shell(
    pip: bool, start: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object() if pip else None)
    command = install_command("rocksdb")
    assert command.endswith(" 'rocksdict>=0.3.24'")
    assert shlex.split(command)[: len(start)] == start
