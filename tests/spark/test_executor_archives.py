"""Executors whose machines have only Java get an interpreter in an archive, as in docs/pipeline.md."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from rmqstore.checks.examine import verify
from rmqstore.checks.options import VerifyOptions
from rmqstore.files.store import open_store
from tests.distribution.conftest import built
from tests.spark.cluster import DEADLINE, job, running
from tests.spark.test_cluster import SETTINGS
from tests.stores import ROOT, unpack

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("needs_spark")]

MORE = [word for key, value in SETTINGS.items() for word in ("--conf", f"{key}={value}")]
QUERY = "select topic, count(*) n from messages group by topic order by n desc"


def check_jobs(folder: Path, archive: Path, python: str) -> None:
    """Run a job of RDDs and one of data sources, with an archive that is given by a relative path."""
    store = unpack("5.4.0-killed")
    expected = verify(open_store(store), VerifyOptions(jobs=1))
    with running(folder) as cluster:
        how = ["--master", cluster.master, "--conf", f"spark.archives={archive.name}#env", *MORE, "--json"]
        rmqstore = [sys.executable, "-m", "rmqstore", "pipeline"]
        done = job([*rmqstore, "verify", store, "--split-size", "64K", *how], archive.parent, Path(python))
        assert done.returncode == expected.exit_code, done.stderr[-3000:]
        [answer] = json.loads(done.stdout)["stores"]
        assert answer["counts"] == dict(expected.findings.counts)
        assert answer["messages"] == 929
        (archive.parent / "env").mkdir()  # sources are planned on the driver's machine, with the same path
        subprocess.run(["tar", "-xzf", archive, "-C", archive.parent / "env"], check=True, timeout=DEADLINE)
        done = job([*rmqstore, "sql", store, QUERY, *how], archive.parent, Path(python))
        assert done.returncode == 0, done.stderr[-3000:]
        assert sum(row["n"] for row in json.loads(done.stdout)["rows"]) == 929


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the driver needs the version of the tarball's interpreter")
def test_the_full_tarball_is_the_archive(tmp_path: Path) -> None:
    archive = built(f"rmqstore-*-full-linux-{platform.machine()}.tar.gz")
    (tmp_path / archive.name).symlink_to(archive)
    inside = archive.name.removesuffix(".tar.gz")
    check_jobs(tmp_path, tmp_path / archive.name, f"./env/{inside}/bin/python3.11")


def test_a_packed_virtual_environment_is_the_archive(tmp_path: Path) -> None:
    pytest.importorskip("venv_pack", reason="venv-pack is not installed")
    home = tmp_path / "made"
    subprocess.run([sys.executable, "-m", "venv", "--copies", str(home)], check=True, timeout=DEADLINE)
    words = ["install", "--quiet", f"{ROOT}[arrow]"]
    done = subprocess.run([home / "bin" / "pip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"pip cannot install what executors need: {done.stderr.strip()[-200:]}")
    archive = tmp_path / "env.tar.gz"
    packed = [sys.executable, "-m", "venv_pack", "-q", "-p", str(home), "-o", str(archive)]
    subprocess.run(packed, check=True, timeout=DEADLINE)
    home.rename(tmp_path / "elsewhere")
    check_jobs(tmp_path, archive, "./env/bin/python")
