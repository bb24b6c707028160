"""`verify` of every store that a broker left, with and without its broker.conf: nothing is wrong, or as expected."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmqstore.checks.problems.problem import Severity
from rmqstore.checks.problems.table import PROBLEMS
from tests.command import run
from tests.rocksdb_rows import need_rocksdict
from tests.stores import BROKER_STORES, FINDINGS, copy_store, meta, unpack, write_broker_conf

need_rocksdict()
OWN = [name for name in BROKER_STORES if meta(name).version == "5.5.1"]


@pytest.mark.quick_rows(30)
@pytest.mark.parametrize("configured", [False, True], ids=["no conf", "conf"])
@pytest.mark.parametrize("name", [*OWN, *(name for name in BROKER_STORES if name not in OWN)])
def test_a_sound_store_has_no_problem(name: str, configured: bool, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path) if configured else unpack(name)
    conf = ("-c", str(write_broker_conf(name, store))) if configured else ()
    done = run("verify", str(store), *conf, "--json")
    report = json.loads(done.stdout)
    found = {code: count for code, count in report["counts"].items() if PROBLEMS[code].severity > Severity.NOTE}
    assert (found, report["unchecked"]) == (FINDINGS.get(name, {}), [])
    assert done.exit_code == bool(found)
    assert report["broker"]["starts"] is True
    assert report["broker"]["version"] == (meta(name).version if meta(name).version > "5.4" else "5.4.0")
