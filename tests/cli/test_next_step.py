"""The commands that reports and plans recommend: pasted unchanged, they do what was announced."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from rmqstore.checks.problems.report import Finding, next_command
from tests.cases.case import make, read_case
from tests.command import run, run_json
from tests.damage import close_to_owner, cut, flip
from tests.stores import copy_store, unpack, write_broker_conf


def commands(text: str, after: str) -> list[list[str]]:
    """Return the words of the commands after the text `after` in a report."""
    return [shlex.split(line.partition(after)[2]) for line in text.splitlines() if after in line]


def test_no_command_is_the_help_and_wrong_usage() -> None:
    result = run()
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Usage: rmqstore [OPTIONS] COMMAND" in result.stderr
    assert "\n  verify " in result.stderr


def test_the_next_command_keeps_the_broker_conf(store: Path, tmp_path: Path) -> None:
    """broker.conf contains the role of the store and the path of its log."""
    log = tmp_path / "the log"
    shutil.move(store / "commitlog", log)
    flip(log / "00000000000000327680", 4000)
    own = write_broker_conf("5.4.0-clean", store, storePathCommitLog=str(log), brokerRole="SLAVE", brokerId="1")
    config = own.rename(tmp_path / "broker 1.conf")
    text = run("verify", str(store), "-c", str(config)).stdout
    assert "CL-BODY-CRC" in text
    (following,) = commands(text, "Next: ")
    assert following == ["rmqstore", "recover", str(store), "-c", str(config)]
    assert following in commands(text, "cure: ")
    plan = json.loads(run(*following[1:], "--json").stdout)
    assert (plan["role"], plan["strategy"]) == ("slave", "truncate")
    report = run_json("verify", str(store), "-c", str(config), exit_code=1)
    assert isinstance(report["findings"], list)
    assert {shlex.join(following)} == {f["next"] for f in report["findings"] if f["code"] == "CL-BODY-CRC"}
    run("verify", str(store), "-c", str(config), "--findings-out", str(tmp_path / "found"))
    assert shlex.join(following) in {json.loads(line)["next"] for line in (tmp_path / "found").open()}


def test_every_kind_of_cure_names_the_broker_conf() -> None:
    assert next_command(Finding("CL-BODY-CRC", "commitlog"), "s", "b.conf") == "rmqstore recover s -c b.conf"
    only = next_command(Finding("CL-MISSING-FILE", "commitlog"), "s", "b.conf")
    assert only == "rmqstore recover s -c b.conf --accept-fillers"
    asked = next_command(Finding("CFG-OFFSET-BEYOND", "config"), "s", "b.conf")
    assert asked == "rmqstore recover s -c b.conf --only CFG-OFFSET-BEYOND"


def test_a_field_that_nothing_proves_has_no_cure() -> None:
    proved = Finding("CL-SYSFLAG", "commitlog", facts={"expected": "0x1"})
    assert next_command(proved, "s") == "rmqstore recover s"
    assert next_command(Finding("CL-SYSFLAG", "commitlog"), "s") is None


@pytest.mark.parametrize(
    ("name", "option"), [("CL-MISSING-FILE", "--accept-fillers"), ("CL-CONTRADICTED", "--only CL-CONTRADICTED")]
)
def test_the_last_command_has_the_option_without_which_nothing_is_planned(
    name: str, option: str, tmp_path: Path
) -> None:
    store = make(read_case(name), tmp_path)
    (following,) = commands(run("verify", str(store)).stdout, "Next: ")
    assert following == ["rmqstore", "recover", str(store), *option.split()]
    plan = json.loads(run(*following[1:], "--json").stdout)
    assert name in plan["cures"]
    assert plan["steps"]


def test_what_cannot_be_cured_is_not_called_repairable(tmp_path: Path) -> None:
    store = make(read_case("CL-SYSFLAG--unproved"), tmp_path)
    text = run("verify", str(store)).stdout
    assert commands(text, "cure: ") == []
    assert "explains why these problems cannot be repaired from this store" in " ".join(text.split())


def test_the_way_back_can_be_pasted_from_odd_paths(tmp_path: Path) -> None:
    place = tmp_path / "it's $HOME"
    place.mkdir()
    store = copy_store("5.4.0-clean", place)
    config = store / "config" / "topics.json"
    before = config.read_bytes()
    cut(config, 0)
    applied = run("recover", str(store), "--apply")
    assert applied.exit_code == 0, applied.output
    assert config.read_bytes() == before
    (back,) = commands(applied.stdout, "To undo: ")
    assert run(*back[1:]).exit_code == 0
    assert config.read_bytes() == b""


def test_a_plan_that_needs_a_decision_ends_with_the_whole_option(store: Path) -> None:
    shutil.rmtree(store / "consumequeue")
    last = run("recover", str(store)).stdout.splitlines()[-1]
    assert last.startswith("Nothing was written. To apply the plan, add --apply --force ")
    words = last.partition("add ")[2].split()
    assert run("recover", str(store), "--apply").exit_code == 5
    assert run("recover", str(store), *words).exit_code == 0


def test_a_log_that_is_elsewhere_is_not_called_a_start_without_loss(store: Path) -> None:
    shutil.rmtree(store / "commitlog")
    text = run("verify", str(store)).stdout
    assert " ".join(text.split()).startswith(
        "RocketMQ 5.4.0 would start empty: the log contains none of the 553 messages in the consume queues."
    )
    assert "storePathCommitLog" in text
    assert "next start   deletes 21 files" in text
    (following,) = commands(text, "Next: ")
    plan = run(*following[1:])
    assert plan.exit_code == 1
    assert "pass broker.conf with -c" in plan.stdout


def test_what_no_plan_cures_still_has_a_next_command(store: Path) -> None:
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        cut(store / "config" / name, 0)
        (store / "config" / name).write_bytes(bytes(600))
    (following,) = commands(run("verify", str(store)).stdout, "Next: ")
    plan = run(*following[1:])
    assert plan.exit_code == 1
    assert "-> write a new file" in plan.stdout


def test_times_of_the_checkpoint_are_readable(store: Path) -> None:
    with (store / "checkpoint").open("r+b") as file:
        file.write((1_900_000_000_000).to_bytes(8, "big"))
    assert "physic_msg_timestamp, value 2030-03-17 17:46:40" in run("verify", str(store)).stdout


def test_a_sound_store_has_nothing_next() -> None:
    assert run("verify", str(unpack("5.4.0-clean"))).stdout.endswith("Next: nothing to do.\n")


def test_a_store_without_index_says_so_and_the_command_makes_it(store: Path) -> None:
    shutil.rmtree(store / "index")
    report = run_json("verify", str(store), exit_code=0)
    assert "index/ has no file" in str(report["notes"])
    assert run("rebuild", str(store), "index", "--apply").exit_code == 0
    assert "index/ has no file" not in str(run_json("verify", str(store), exit_code=0)["notes"])


def test_a_refused_rebuild_says_what_can_be_rebuilt() -> None:
    result = run("rebuild", str(unpack("5.4.0-clean")), "dledger-index")
    assert (result.exit_code, result.stderr) == (
        5,
        "error: this store has no DLedger entries — rebuild cq, index or checkpoint\n",
    )


@pytest.mark.parametrize("part", ["commitlog", "commitlog/00000000000000327680", "../5.4.0-clean/commitlog"])
def test_verify_of_a_part_recommends_recover_of_the_whole_store(
    part: str, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flip(store / "commitlog" / "00000000000000327680", 4000)
    monkeypatch.chdir(store)
    assert run("recover", part).exit_code == 5
    text = run("verify", part, "--findings-out", str(tmp_path / "found")).stdout
    (following,) = commands(text, "Next: ")
    assert [following] == commands(text, "cure: ")
    assert [following] == [shlex.split(json.loads(line)["next"]) for line in (tmp_path / "found").open()]
    plan = run(*following[1:])
    assert plan.exit_code == 1
    assert "Cures: CL-BODY-CRC" in plan.stdout


def test_a_verify_cut_short_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    store = str(unpack("5.4.0-clean"))
    first = run("verify", store, "--max-duration", "1ms")
    assert first.exit_code == 4
    assert "ahead of the log" not in first.stdout
    (following,) = commands(first.stdout, "Next: ")
    assert following == ["rmqstore", "verify", store, "--resume"]
    assert run(*following[1:]).exit_code == 4  # the two parts were never checked together


def test_the_next_command_gives_the_broker_its_rights_again(store: Path) -> None:
    close_to_owner(store, store / "checkpoint")
    text = run("verify", str(store)).stdout
    verdict = " ".join(text.partition("\n\n")[0].split())
    assert " may not write 1 file of it. 1 problem found." in verdict
    (following,) = commands(text, "Next: ")
    assert [following] == commands(text, "cure: ")
    subprocess.run(following, check=True)
    assert run("verify", str(store)).exit_code == 0


def test_a_part_without_its_store_does_not_suggest_a_command_that_is_refused(tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path / "store")
    name = "00000000000000000000"
    flip(store / "commitlog" / name, 90)
    part = tmp_path / "copy" / name
    part.parent.mkdir()
    (store / "commitlog" / name).rename(part)
    finding = run_json("verify", str(part), exit_code=1)["findings"][0]  # type: ignore[index]
    assert finding["next"] == "rmqstore recover STORE"
    text = run("verify", str(part)).stdout
    assert "STORE is the whole store that this belongs to" in " ".join(text.split())
    assert f"recover {part}" not in text


def test_an_archive_must_be_unpacked_first(tmp_path: Path) -> None:
    path = tmp_path / "store.tar"
    path.write_bytes(bytes(10_240))
    done = run("info", str(path))
    assert (done.exit_code, done.stderr.strip().partition(" — ")[2]) == (3, "unpack it first")


def test_undo_of_a_store_names_the_command_that_lists_its_journals(tmp_path: Path) -> None:
    done = run("undo", str(copy_store("5.4.0-clean", tmp_path)))
    assert done.exit_code == 3
    assert "`rmqstore journals STORE` lists them" in done.stderr
