"""`make release` sets the version wherever users read it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from distribution import release
from tests.stores import ROOT


def test_a_release_sets_the_version_and_dates_the_changelog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("rmqstore/__init__.py", "README.md", "README.zh-CN.md", "CHANGELOG.md")
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    monkeypatch.setattr(release, "ROOT", tmp_path)
    release.set_version("9.8.7")
    texts = {name: (tmp_path / name).read_text("utf-8") for name in names}
    assert '__version__ = "9.8.7"' in texts["rmqstore/__init__.py"]
    assert "tar -xzf rmqstore-9.8.7-linux-x86_64.tar.gz" in texts["README.md"]
    assert "rc1" not in texts["README.md"] + texts["README.zh-CN.md"]
    assert "## [Unreleased]\n\n## [9.8.7] - 20" in texts["CHANGELOG.md"]
