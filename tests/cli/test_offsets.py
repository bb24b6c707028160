"""`rmqstore offsets`: shows the progress of groups, and changes it in JSON files and in every form of RocksDB."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmqstore.checks.beside.config import ConsumerOffsets
from rmqstore.files.config import Committed
from rmqstore.files.store import open_store
from rmqstore.repair.journal.journal import undo
from rmqstore.views.store_view import open as open_view
from tests.command import run, run_json
from tests.planning import counts_of, report_of
from tests.rocksdb_rows import need_rocksdict
from tests.stores import copy_store, unpack
from tests.untouched import content

TOPIC, GROUP = "Order_11", "CG_part_11"
JSON_STORES = ("4.9.7-clean", "5.1.4-clean", "5.4.0-clean", "5.5.1-clean")
STORES = (*JSON_STORES, "5.4.0-rocksdb", "5.5.1-config-v2")


def rows(store: Path) -> set[Committed]:
    offsets = ConsumerOffsets.read(open_store(store))
    assert offsets.unreadable == ""
    return set(offsets.rows())


def need(name: str) -> None:
    if name not in JSON_STORES:
        need_rocksdict()


def ask(store: Path, *words: str, exit_code: int = 0) -> dict[str, Any]:
    return dict(run_json("offsets", str(store), *words, exit_code=exit_code))


def changed(store: Path, *words: str) -> dict[str, Any]:
    """Plan, then apply a change; both describe the same."""
    planned = ask(store, *words, exit_code=1)
    applied = ask(store, *words, "--apply")
    assert (planned["applied"], applied["applied"]) == (False, True)
    assert planned["changes"] == applied["changes"]
    return applied


@pytest.mark.parametrize("name", STORES)
def test_the_list_has_every_offset_with_its_lag(name: str) -> None:
    need(name)
    store = unpack(name)
    answer = ask(store)
    assert {(r["group"], r["topic"], r["queue_id"], r["offset"]) for r in answer["offsets"]} == {
        (one.group, one.topic, one.queue_id, one.offset) for one in rows(store)
    }
    queues = report_of(store).queues
    for row in answer["offsets"]:
        state = queues.get(f"{row['topic']}/{row['queue_id']}")
        if state is not None:
            assert row["lag"] == state.max - row["offset"]
            assert (row["next_timestamp"] is None) == (row["lag"] == 0)


def test_a_group_that_the_store_does_not_know_needs_an_option(store: Path) -> None:
    words = ("--set", "brand-new", TOPIC, "--to", "earliest")
    assert run("offsets", str(store), *words).exit_code == 2
    changed(store, *words, "--new-group")
    assert Committed(TOPIC, "brand-new", 0, 0) in rows(store)
    changed(store, "--set", "brand-new", TOPIC, "--to", "latest")


def test_queues_narrow_the_list() -> None:
    found = ask(unpack("5.4.0-clean"), "--group", GROUP, "--queue", "1", "--queue", "Pay_11_Topic/0")["offsets"]
    names = {(r["topic"], r["queue_id"]) for r in found}
    assert (TOPIC, 1) in names and all(number == 1 or name == "Pay_11_Topic" for name, number in names)


def test_filters_narrow_the_list() -> None:
    found = ask(unpack("5.4.0-clean"), "--group", GROUP, "--topic", TOPIC)["offsets"]
    assert [(r["group"], r["topic"], r["queue_id"]) for r in found] == [(GROUP, TOPIC, n) for n in range(4)]


@pytest.mark.parametrize("name", STORES)
def test_a_group_is_set_to_the_earliest_message_and_back(name: str, tmp_path: Path) -> None:
    need(name)
    store = copy_store(name, tmp_path)
    before, old = content(store), rows(store)
    own = {one for one in old if (one.topic, one.group) == (TOPIC, GROUP)}
    answer = changed(store, "--set", GROUP, TOPIC, "--to", "earliest")
    assert {(c["queue_id"], c["old"], c["new"], c["again"], c["skipped"]) for c in answer["changes"]} == {
        (one.queue_id, one.offset, 0, one.offset, 0) for one in own
    }
    assert rows(store) == (old - own) | {one._replace(offset=0) for one in own}
    counts = counts_of(store)
    assert set(counts) <= {"CFG-UNSTORED-TOPICS"}
    undo(Path(answer["journal"]))
    assert content(store) == before


@pytest.mark.parametrize("name", STORES)
def test_a_new_group_gets_the_offsets_of_another(name: str, tmp_path: Path) -> None:
    need(name)
    store = copy_store(name, tmp_path)
    before, old = content(store), rows(store)
    answer = changed(store, "--clone", GROUP, "CG_new")
    copied = {one._replace(group="CG_new") for one in old if one.group == GROUP and not one.topic.startswith("%RETRY%")}
    assert copied
    assert rows(store) == old | copied
    again = run("offsets", str(store), "--clone", GROUP, "CG_new")
    assert (again.exit_code, "has offsets already" in again.stderr) == (5, True)
    undo(Path(answer["journal"]))
    assert content(store) == before


def test_a_time_means_the_first_message_stored_then_or_later(store: Path) -> None:

    def stored(queue_offset: int) -> int:
        message = open_view(store).queue(TOPIC, 2)[queue_offset]
        assert message is not None
        return message.store_timestamp

    time = stored(20)
    answer = changed(store, "--set", GROUP, TOPIC, "--queue", "2", "--to", str(time))
    [change] = answer["changes"]
    assert change["new"] <= 20
    assert stored(change["new"] - 1) < time == stored(change["new"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--set", GROUP, TOPIC), "belong together"),
        (("--to", "earliest"), "belong together"),
        (("--queue", "x"), "is not a queue"),
        (("--set", "CG_part_1", TOPIC, "--to", "latest"), "did you mean CG_part_11? Or add --new-group"),
        (("--set", GROUP, TOPIC, "--to", "latest", "--queue", "Pay_11_Topic/0"), "is not of the topic Order_11"),
        (("--max",), "--max needs --from"),
        (("--set", GROUP, TOPIC, "--to", "earliest", "--restore-bak"), "exclude each other"),
        (("--set", GROUP, TOPIC, "--to", "100000"), "is outside of Order_11/0"),
        (("--set", GROUP, TOPIC, "--to", "whenever"), "--to 'whenever' is not a time"),
        (("--set", GROUP, "nosuch", "--to", "latest"), "no queue nosuch"),
        (("--set", GROUP, TOPIC, "--to", "latest", "--queue", "9"), "no queue Order_11/9"),
        (("--clone", "nobody", "new"), "nobody has no offsets"),
    ],
)
def test_wrong_usage_is_one_line(words: tuple[str, ...], said: str) -> None:
    done = run("offsets", str(unpack("5.4.0-clean")), *words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr


def test_the_greater_offset_wins_and_none_is_beyond_its_queue(tmp_path: Path) -> None:
    store, other = copy_store("5.4.0-clean", tmp_path / "a"), copy_store("5.4.0-clean", tmp_path / "b")
    (store / "config" / "consumerOffset.json").write_text('{"offsetTable":{"Order_11@A":{0:5,1:7},"Order_11@B":{0:3}}}')
    (other / "config" / "consumerOffset.json").write_text(
        '{"offsetTable":{"Order_11@A":{0:9,1:2},"Order_11@C":{2:100000},"gone@A":{0:4}}}'
    )
    answer = changed(store, "--from", str(other), "--max")
    end = report_of(store).queues["Order_11/2"].max
    assert rows(store) == {
        Committed("Order_11", "A", 0, 9),
        Committed("Order_11", "A", 1, 7),
        Committed("Order_11", "B", 0, 3),
        Committed("Order_11", "C", 2, end),
    }
    assert [(c["group"], c["old"], c["new"], c["skipped"]) for c in answer["changes"]] == [
        ("A", 5, 9, 4),
        ("C", None, end, 0),
    ]


def test_without_max_the_other_store_decides(tmp_path: Path) -> None:
    store, other = copy_store("5.4.0-clean", tmp_path / "a"), copy_store("5.4.0-clean", tmp_path / "b")
    (store / "config" / "consumerOffset.json").write_text('{"offsetTable":{"Order_11@A":{0:9}}}')
    (other / "config" / "consumerOffset.json").write_text('{"offsetTable":{"Order_11@A":{0:2}}}')
    changed(store, "--from", str(other))
    assert rows(store) == {Committed("Order_11", "A", 0, 2)}


def test_the_backup_file_is_restored(store: Path) -> None:
    path = store / "config" / "consumerOffset.json"
    path.with_name(f"{path.name}.bak").write_text('{"offsetTable":{"Order_11@A":{0:2}}}')
    path.write_text("broken {")
    run_json("offsets", str(store), "--restore-bak", "--apply", exit_code=0)
    assert rows(store) == {Committed("Order_11", "A", 0, 2)}


def test_light_queues_have_one_offset_per_group(store: Path, tmp_path: Path) -> None:
    light = store / "config" / "lmqConsumerOffset.json"
    light.write_text('{"offsetTable":{"Order_11@A":{0:4}},"lmqOffsetTable":{"%LMQ%x@A":2}}')
    other = copy_store("5.4.0-clean", tmp_path / "b")
    (other / "config" / "lmqConsumerOffset.json").write_text('{"offsetTable":{"Order_11@A":{0:6}},"lmqOffsetTable":{}}')
    changed(store, "--from", str(other), "--max")
    assert Committed("Order_11", "A", 0, 6) in rows(store)
    assert Committed("%LMQ%x", "A", 0, 2) in rows(store)


def test_a_saved_plan_is_applied_and_a_stale_one_refused(store: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    run_json("offsets", str(store), "--set", GROUP, TOPIC, "--to", "earliest", "--plan-out", str(plan), exit_code=1)
    before = content(store)
    run_json("offsets", str(store), "--plan", str(plan), "--apply", exit_code=0)
    assert content(store) != before
    done = run("offsets", str(store), "--plan", str(plan), "--apply")
    assert done.exit_code == 5


def test_unreadable_offsets_are_not_changed(store: Path) -> None:
    for path in (store / "config").glob("consumerOffset.json*"):
        path.write_text("{")
    before = content(store)
    done = run("offsets", str(store), "--set", GROUP, TOPIC, "--to", "latest", "--apply")
    assert (done.exit_code, "cannot be read" in done.stderr) == (3, True)
    assert run("offsets", str(store)).exit_code == 4
    assert content(store) == before


def test_a_store_without_offsets_gets_a_file(store: Path) -> None:
    for path in (store / "config").glob("consumerOffset.json*"):
        path.unlink()
    answer = changed(store, "--set", GROUP, TOPIC, "--to", "latest")
    assert {one.group for one in rows(store)} == {GROUP}
    assert [change["old"] for change in answer["changes"]] == [None] * 4


def test_pop_progress_is_in_the_list() -> None:
    found = ask(unpack("5.5.1-pop"), "--topic", "PopRaw_11")["offsets"]
    states: dict[str, int] = {}
    for row in found:
        for state, count in row["pop"].items():
            states[state] = states.get(state, 0) + count
    assert states == {"acknowledged": 20, "returned": 20, "invisible": 20}
    chinese = run(
        "offsets", str(unpack("5.5.1-pop")), "--topic", "PopRaw_11", "--format", "table", "--lang", "zh"
    ).stdout
    assert "已确认" in chinese
    assert "acknowledged" not in chinese


def test_a_group_without_offsets_is_pointed_out(store: Path) -> None:
    """A group that is spelled wrong would otherwise look like a change."""
    known, unknown = (
        run("offsets", str(store), "--set", name, "Order_11", "--to", "10", "--new-group")
        for name in ("CG_part_11", "No")
    )
    assert "has no offset there yet" not in known.output
    assert "No has no offset there yet" in unknown.output


def test_a_change_shows_the_first_message_that_is_delivered_again_or_skipped() -> None:
    store = str(unpack("4.9.7-clean"))
    shown = run("offsets", store, "--set", "CG_tag_11", "Pay_11_Topic", "--to", "latest", "--queue", "1").stdout
    skipped = run_json("find", store, "Pay_11_Topic/1/31", exit_code=0)["messages"][0]["unique_key"]  # type: ignore[index]
    assert f"31 -> 34, 3 skipped; first one: {skipped}, stored " in shown
    shown = run("offsets", store, "--set", "CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "--to", "19").stdout
    assert "20 -> 19, 1 again; next message: without a key, stored " in shown


def test_a_group_without_offsets_is_answered_with_those_that_have_some(store: Path) -> None:
    result = run("offsets", str(store), "--group", "nosuch")
    assert result.exit_code == 0
    assert result.stderr.startswith("note: no such offsets; groups: CG_tag_11, CG_dlq_11, CG_part_11")
    (store / "config" / "consumerOffset.json").write_text('{"offsetTable": {}}')
    assert run("offsets", str(store)).stderr == "note: no group has offsets here\n"


def test_unread_messages_that_are_gone_with_the_first_log_file_are_counted(tmp_path: Path) -> None:
    store = copy_store("5.4.0-clean", tmp_path)
    ask(store, "--set", "CG_tag_11", "Pay_11_Topic", "--queue", "0", "--to", "earliest", "--apply")
    assert {row["unread_gone"] for row in ask(store)["offsets"]} == {0}
    (store / "commitlog" / f"{0:020}").unlink()
    gone = {
        (r["group"], r["topic"], r["queue_id"]): r["unread_gone"] for r in ask(store)["offsets"] if r["unread_gone"]
    }
    assert gone == {("CG_tag_11", "Pay_11_Topic", 0): 3}
    verified: Any = run_json("verify", str(store), exit_code=0)
    assert verified["account"]["unread_gone"] == {"CG_tag_11": 3}


@pytest.mark.parametrize("name", STORES)
def test_offsets_go_to_a_file_and_come_back(name: str, tmp_path: Path) -> None:
    need(name)
    store, file = copy_store(name, tmp_path), tmp_path / "consumerOffset.json"
    before = rows(store)
    answer = ask(store, "--write-json", str(file))
    assert (answer["count"], answer["groups"]) == (len(before), len({one.group for one in before}))
    plain = copy_store("5.4.0-clean", tmp_path / "plain")
    for path in (plain / "config").glob("*onsumerOffset.json*"):
        path.unlink()
    (plain / "config" / file.name).write_bytes(file.read_bytes())
    assert rows(plain) == before, "a broker with JSON files reads them"
    topic, group, *_ = next(one for one in sorted(before) if one.offset)
    changed(store, "--set", group, topic, "--to", "earliest")
    assert rows(store) != before
    changed(store, "--from", str(file))
    assert rows(store) == before


def test_offsets_of_light_queues_go_to_a_file(store: Path, tmp_path: Path) -> None:
    table = '{"lmqOffsetTable":{"%LMQ%a@g":7},"offsetTable":{"Order_11@g":{0:3}}}'
    (store / "config" / "lmqConsumerOffset.json").write_text(table)
    before, file = rows(store), tmp_path / "lmqConsumerOffset.json"
    ask(store, "--write-json", str(file))
    for path in (store / "config").glob("*onsumerOffset.json*"):
        path.unlink()
    (store / "config" / file.name).write_bytes(file.read_bytes())
    assert rows(store) == before >= {Committed("%LMQ%a", "g", 0, 7), Committed("Order_11", "g", 0, 3)}


def test_a_part_of_the_offsets_goes_to_a_file(tmp_path: Path) -> None:
    store, file = unpack("5.4.0-clean"), tmp_path / "offsets.json"
    assert run("offsets", str(store), "--group", GROUP, "--topic", TOPIC, "--write-json", str(file)).exit_code == 0
    assert file.read_text().split() == [
        "{",
        '"offsetTable":{',
        f'"{TOPIC}@{GROUP}":{{',
        *(
            f"{n}:{one.offset}{',' * (n < 3)}"
            for n, one in enumerate(sorted(r for r in rows(store) if r[:2] == (TOPIC, GROUP)))
        ),
        "}",
        "}",
        "}",
    ]


def test_a_negative_offset_of_a_file_is_none(store: Path, tmp_path: Path) -> None:
    file = tmp_path / "consumerOffset.json"
    file.write_text(f'{{"offsetTable":{{"{TOPIC}@{GROUP}":{{0:-5,1:2}}}}}}')
    changes = ask(store, "--from", str(file), exit_code=1)["changes"]
    assert [(one["queue_id"], one["new"]) for one in changes] == [(1, 2)]


@pytest.mark.parametrize("content_of", [b"", b"{", b"[]", b"{}", b'{"offsetTable":{"a@b":{"x":1}}}', b"\x00" * 100])
def test_a_file_without_offsets_is_refused(content_of: bytes, tmp_path: Path) -> None:
    file = tmp_path / "consumerOffset.json"
    file.write_bytes(content_of)
    result = run("offsets", str(unpack("5.4.0-clean")), "--from", str(file))
    assert (result.exit_code, result.stdout) == (5, "")
    assert "it is not a consumerOffset.json" in result.stderr


def test_offsets_that_cannot_be_read_are_not_written(store: Path, tmp_path: Path) -> None:
    (store / "config" / "consumerOffset.json").write_text("{")
    (store / "config" / "consumerOffset.json.bak").unlink(missing_ok=True)
    file = tmp_path / "offsets.json"
    assert run("offsets", str(store), "--write-json", str(file)).exit_code == 4
    assert not file.exists()
