"""A damaged DLedger header that looks like a BLANK: the forecast counts what the real broker no longer serves.

DLedger takes -1 in place of an entry's magic for the end of the file. The entries after it are gone for DLedger;
consumers still get their messages through consume queue units, as long as these stay.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rmqstore.formats import dledger
from tests import damage
from tests.command import run_json
from tests.real_broker.reading import Sounds, messages
from tests.repair.salvaging import rows
from tests.stores import copy_store, meta

STORES = (
    "4.9.7-dledger",
    "5.1.4-dledger",
    "5.4.0-dledger",
    "5.4.0-dledger3-n1",
    "5.4.0-dledger-mixed",
    "5.5.1-dledger",
)


@pytest.mark.parametrize("queues", [True, False])
@pytest.mark.quick_rows(3)
@pytest.mark.parametrize("name", STORES)
def test_every_message_that_is_not_served_is_counted(name: str, queues: bool, tmp_path: Path, sounds: Sounds) -> None:
    version, settings = meta(name).version, meta(name).oracle_args
    cell = version, False
    for back in (1, 2):
        store = copy_store(name, tmp_path / str(back))
        entries = [row for row in rows(store) if "dledger-n" in row.path.parts[-3]]
        path = sorted({row.path for row in entries})[-back]
        here = [row for row in entries if row.path == path]
        hit = here[len(here) // 3]
        damage.overwrite(path, hit.at - dledger.ENTRY.size, b"\xff" * 8)
        if not queues:
            shutil.rmtree(store / "consumequeue")
        was = messages(sounds.read(name, settings, [cell])[cell])
        now = messages(sounds.servers.read(store, settings, [cell])[cell])
        report = run_json("verify", str(store), "--broker", version, exit_code=1)
        forecast = report["broker"]
        assert isinstance(forecast, dict)
        gone = {was[place].commitlog_offset for place in was.keys() - now.keys()} - {hit.offset}
        after = sum(row.offset > hit.offset for row in here)
        lost, kept = forecast["messages_lost"], forecast["outside_dledger"]
        assert forecast["commitlog_stop"] == hit.at - dledger.ENTRY.size + int(path.name)
        assert kept == (after if queues else 0)
        assert lost >= (0 if queues else after)
        left = f"leave {len(gone) - lost:,} messages" if len(gone) > lost else "would start"
        assert left in str(report["verdict"]), (len(gone), lost)
        answer = run_json("lost", str(store), "--broker", version, exit_code=int(lost > 0))
        listed = answer["messages"]
        assert isinstance(listed, list)
        assert [row["cause"] for row in listed].count("cut") == lost
