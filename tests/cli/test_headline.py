"""The first lines of `verify`: the damage, the consequences of a broker start, and losses of earlier repairs."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cases.case import make, read_case
from tests.command import run, run_json
from tests.damage import flip, zero
from tests.loops import loops as loops
from tests.stores import copy_store, unpack
from tests.views.decoder import read_folder


def _headline(store: Path) -> str:
    return " ".join(run("verify", str(store)).stdout.partition("\n\n")[0].split())


def _damage_bodies(store: Path, count: int) -> None:
    records = (r for r in read_folder(store / "commitlog") if len(r.body) > 100)
    for record in itertools.islice(records, count):
        flip(store / "commitlog" / f"{0:020d}", record.position + 100)


def test_headline_names_damage_that_a_start_does_not_touch(tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    _damage_bodies(store, 4)
    assert _headline(store) == "4 messages are damaged; RocketMQ 5.4.0 would start and cut nothing. 4 problems found."


def test_headline_names_one_damaged_message_and_one_lost_page(tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    _damage_bodies(store, 1)
    hole = list(read_folder(store / "commitlog"))[225]
    zero(store / "commitlog" / f"{hole.position // 65_536 * 65_536:020d}", hole.position % 65_536, hole.size)
    verdict = run_json("verify", str(store), exit_code=1)["verdict"]
    assert verdict == "1 message and 1 stretch of the log are damaged; RocketMQ 5.4.0 would start and cut nothing"


def test_headline_and_log_line_count_the_same_damaged_messages(tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    _damage_bodies(store, 2)
    record = next(r for r in read_folder(store / "commitlog") if r.position > 65_536 and r.properties)
    flip(store / "commitlog" / f"{65_536:020d}", record.position + record.size - 65_536 - 3, 7)  # not valid UTF-8
    assert _headline(store).startswith("3 messages are damaged; ")
    assert "550 good messages and 3 damaged in 8 files" in run("verify", str(store)).stdout


def test_a_page_of_zeros_over_several_dledger_entries_is_not_one_message(tmp_path: Path) -> None:
    store = copy_store("5.4.0-dledger", tmp_path)
    zero(store / "dledger-n0" / "data" / f"{65_536:020d}", 4096, 4096)  # the end of an entry, and four more
    assert _headline(store).startswith("1 stretch of the log is damaged; ")
    loss = run_json("recover", str(store), exit_code=1)["loss"]
    assert isinstance(loss, dict)
    assert loss["messages"] == 4


def test_headline_does_not_say_that_nothing_is_lost_over_a_tail_that_may_have_been_a_message(tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    *_, last = read_folder(store / "commitlog")
    file = sorted((store / "commitlog").iterdir())[-1]
    flip(file, last.position - int(file.name) + 4, 6)  # the magic
    expected = "The last bytes of the log are not a record; RocketMQ 5.4.0 would start and cut nothing, but "
    assert _headline(store).startswith(expected)


def test_headline_of_a_start_that_cuts_the_log_leads_with_the_cut(tmp_path: Path) -> None:
    store = copy_store("4.9.7-clean", tmp_path)
    record = list(read_folder(store / "commitlog"))[560]
    file = store / "commitlog" / f"{record.position // 65_536 * 65_536:020d}"
    flip(file, record.position % 65_536 + 100)
    (store / "abort").touch()
    assert _headline(store).startswith("RocketMQ 5.4.0 would start and lose ")


@pytest.mark.quick_rows
@pytest.mark.parametrize(("name", "count"), [("CL-BODY-CRC--garbled", 1), ("CL-MISSING-FILE", 70)])
def test_fillers_of_a_repair_are_named_until_it_is_undone(name: str, count: int, tmp_path: Path) -> None:
    case = read_case(name)
    assert case.recover is not None
    store = make(case, tmp_path)
    repaired = run_json("recover", str(store), *case.recover.options, "--apply", exit_code=0)
    repair = Path(str(repaired["journal"])).name
    report = run_json("verify", str(store), exit_code=0)
    words = f"{count} filler{'s' if count > 1 else ''} of the repair {repair}"
    assert report["fillers"] == [{"repair": repair, "count": count}]
    assert f"{words} replace{'' if count > 1 else 's'} lost messages" in _list(report["notes"])
    assert _headline(store) == (
        f"RocketMQ 5.4.0 would start and lose nothing. The log holds {words} in place of lost messages. "
        "Nothing else is wrong with this store."
    )
    run_json("undo", str(repaired["journal"]), exit_code=0)
    assert run_json("verify", str(store), exit_code=1)["fillers"] == []


def test_fillers_are_known_by_their_mark_where_the_journal_is_gone(tmp_path: Path) -> None:
    case = read_case("CL-MISSING-FILE")
    assert case.recover is not None
    store = make(case, tmp_path)
    run_json("recover", str(store), *case.recover.options, "--apply", exit_code=0)
    shutil.rmtree(store / ".rmqstore")
    report = run_json("verify", str(store), exit_code=0)
    assert report["fillers"] == [{"repair": None, "count": 70}]
    assert "70 fillers of a repair whose journal is missing replace lost messages" in _list(report["notes"])


def test_sound_store_has_no_fillers() -> None:
    assert run_json("verify", str(unpack("5.4.0-clean")), exit_code=0)["fillers"] == []


def _list(value: object) -> list[Any]:
    assert isinstance(value, list)
    return value
