"""`rmqstore find`: results by id and index equal those of a full scan; the status of a message; expired messages."""

from __future__ import annotations

import json
import re
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from rmqstore.cli.find import _readers
from rmqstore.cli.printing.quantities import columns, time_text
from rmqstore.files.store import open_store
from rmqstore.formats.bodies import decompress
from rmqstore.views.search import Question, search
from rmqstore.views.stories import Stories
from tests.cli.test_lost import damaged
from tests.command import run, run_json
from tests.damage import flip, garble, zero
from tests.stores import CLASS_STORES, STORES, copy_store, unpack
from tests.views.decoder import Record, find_records

STORE = "5.4.0-clean"
WITH_LOG = tuple(name for name in STORES if name not in CLASS_STORES)


def found(store: Path, *words: str, exit_code: int = 0) -> Mapping[str, Any]:
    answer = run_json("find", str(store), *words, exit_code=exit_code)
    assert answer["schema"] == "rmqstore.find/1"
    return answer


def offsets(answer: Mapping[str, Any]) -> list[int]:
    return [message["offset"] for message in answer["messages"]]


def keys_of(record: Record) -> Iterator[str]:
    yield from filter(None, record.properties.get("KEYS", "").split(" "))
    if record.properties.get("UNIQ_KEY"):
        yield record.properties["UNIQ_KEY"]


def by_key(records: list[Record]) -> dict[str, list[int]]:
    out: dict[str, list[int]] = {}
    for record in records:
        for key in set(keys_of(record)):
            out.setdefault(key, []).append(record.position)
    return out


def some(keys: dict[str, list[int]], count: int) -> list[str]:
    """Choose keys evenly spread, including those with the most messages."""
    keys = {key: places for key, places in keys.items() if key.isprintable()}  # damaged keys may not be text
    ordered = sorted(keys, key=lambda key: (zlib.crc32(key.encode()), key))
    return sorted(keys, key=lambda key: -len(keys[key]))[:2] + ordered[:count]


def index_files(store: Path) -> list[Path]:
    return [path for path in sorted((store / "index").iterdir()) if path.stat().st_size]


def drop_index(store: Path) -> None:
    shutil.rmtree(store / "index", ignore_errors=True)


def zero_slots(store: Path) -> None:
    for path in index_files(store)[1:]:
        zero(path, 40, 200)


def break_chains(store: Path) -> None:
    for path in index_files(store):
        garble(path, 40 + 4 * 100, 400)


def damage_log(store: Path) -> None:
    for folder in (store / "commitlog", *store.glob("dledger-*/data")):
        for path in sorted(folder.iterdir())[1:4] if folder.is_dir() else ():
            garble(path, 5_000, 3_000)
            garble(path, 30_000, 700)


def no_change(store: Path) -> None:
    pass


FEW = (STORE, "4.9.7-dledger-killed", "5.1.4-dledger-mixed", "5.4.0-slave", "5.4.0-rocksdb")
CHANGES = [(name, change) for change in (no_change, damage_log) for name in WITH_LOG]
CHANGES += [(name, change) for change in (drop_index, zero_slots, break_chains) for name in FEW]


@pytest.mark.quick_rows(3)
@pytest.mark.parametrize(("name", "change"), CHANGES, ids=lambda v: v if isinstance(v, str) else v.__name__)
def test_keys_and_ids_give_what_a_full_scan_gives(name: str, change: Callable[[Path], None], tmp_path: Path) -> None:
    store = unpack(name) if change is no_change else copy_store(name, tmp_path)
    if change is not no_change and change is not drop_index and not (store / "index").is_dir():
        pytest.skip("this store has no index to damage")
    change(store)
    keys = by_key(list(find_records(store)))
    for key in some(keys, 4):
        answer = found(store, key, *(["--read-log"] if change is zero_slots else []))
        expected = keys[key]
        if answer["searched"] == "time":  # copies stored much later are not searched for, as the output says
            assert set(offsets(answer)) <= set(expected) and offsets(answer)
        else:
            assert offsets(answer) == expected, key


@pytest.mark.parametrize("name", [STORE, "5.1.4-dledger-mixed", "5.4.0-rocksdb", "4.9.7-killed"])
def test_offset_message_ids_are_answered_without_index_and_log(name: str) -> None:
    store = unpack(name)
    records = list(find_records(store))
    for record in records[:: len(records) // 4]:
        answer = found(store, record.msg_id)
        assert offsets(answer) == [record.position]
        assert (answer["searched"], answer["log_read"]) == ("offset", [])


def test_a_key_that_the_index_knows_needs_no_log() -> None:
    answer = found(unpack(STORE), "ord11_42")
    assert answer["searched"] == "index"
    # the end of a transaction has no key; it is the last record, after the last indexed one
    assert sum(span["stop"] - span["start"] for span in answer["log_read"]) < 70_000


@pytest.mark.quick_rows(2)
@pytest.mark.parametrize("name", [STORE, "5.4.0-dledger", "4.9.7-clean", "5.1.4-formats"])
def test_grep_finds_bodies_as_they_were_sent_and_properties(name: str) -> None:
    store = unpack(name)
    for pattern in ("repeat", "^region=华东1$", '"id":7\\d', "no such text"):
        wanted = re.compile(pattern, re.MULTILINE)
        expected = []
        for record in find_records(store):
            body = decompress(record.sys_flag, record.body).decode("utf-8", "surrogateescape")
            lines = "\n".join(f"{name}={value}" for name, value in record.properties.items())
            if wanted.search(body) or wanted.search(lines):
                expected.append(record.position)
        answer = found(store, "--grep", pattern, exit_code=0 if expected else 1)
        assert offsets(answer) == expected
        assert answer["searched"] == "log"


def test_topic_and_time_narrow_the_answer() -> None:
    store = unpack(STORE)
    records = [r for r in find_records(store) if "tx11_0" in keys_of(r)]
    assert offsets(found(store, "tx11_0", "--topic", "Order_11")) == [
        r.position for r in records if r.topic == "Order_11"
    ]
    middle = records[-1].store_timestamp
    late = [r.position for r in records if r.store_timestamp >= middle]
    assert offsets(found(store, "tx11_0", "--since", str(middle))) == late
    assert offsets(found(store, "tx11_0", "--until", str(middle))) == [
        r.position for r in records if r.position not in late
    ]


@pytest.mark.parametrize("name", [STORE, "5.4.0-dledger"])
def test_a_unique_id_is_found_by_its_time_without_an_index(name: str, tmp_path: Path) -> None:
    store = copy_store(name, tmp_path)
    drop_index(store)
    record = next(r for r in find_records(store) if r.topic == "Order_11" and r.queue_offset == 7)
    answer = found(store, record.properties["UNIQ_KEY"])
    assert answer["searched"] == "time"
    assert record.position in offsets(answer)


def test_find_reads_the_log_for_messages_in_no_index_and_says_so() -> None:
    result = run("find", str(unpack(STORE)), "no-such-key")
    assert result.exit_code == 1
    assert "reading the log" in result.stderr
    assert result.stdout.splitlines()[0] == "no-such-key: never arrived, as far as this store tells"
    result = run("find", str(unpack(STORE)), "no-such-key", "--index-only")
    assert result.exit_code == 1
    assert "the log was not searched for no-such-key" in result.stderr
    assert result.stdout == "no-such-key: not found by id or index; the log was not searched\n"


# --- the answer ------------------------------------------------------------------------------------------------------


def first_line(store: Path, *words: str) -> str:
    return run("find", str(store), *words, "--utc").stdout.splitlines()[0]


def test_the_first_line_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    store = unpack(STORE)
    assert first_line(store, "tx11_0") == "tx11_0: arrived, committed, read past by CG_part_11"
    assert first_line(store, "tx11_1") == "tx11_1: rolled back: consumers do not get it"
    assert first_line(store, "tx11_2").startswith("tx11_2: given up by the broker, because the producer never decided")
    assert first_line(store, "ord11_42") == "ord11_42: arrived, sent back by CG_part_11 (1 time)"
    assert first_line(store, "ord11_90000") == "ord11_90000: arrived, read past by CG_part_11"
    assert re.fullmatch(
        r"ord11_90006: arrived, due since [-0-9]+ [:.0-9]+ UTC, not delivered yet", first_line(store, "ord11_90006")
    )
    dead = next(r for r in find_records(store) if r.topic == "%DLQ%CG_dlq_11")
    told = r"\w+: arrived, given up by CG_dlq_11 at [-0-9]+ [:.0-9]+ UTC after 1 retry: a dead letter"
    assert re.fullmatch(told, first_line(store, dead.msg_id))


def test_each_of_several_texts_is_answered() -> None:
    told = run("find", str(unpack(STORE)), "ord11_42", "tx11_0", "no-such-key").stdout
    first = [line.partition(":")[0] for line in told.splitlines() if not line.startswith(" ") and line]
    assert sorted(first) == ["no-such-key", "ord11_42", "tx11_0"]


def test_find_shows_each_message_once_in_the_order_of_time() -> None:
    lines = run("find", str(unpack(STORE)), "ord11_42", "--utc").stdout.splitlines()
    words = [line[2:15].strip() for line in lines[1:] if line[2:3].strip()]
    assert words == ["sent", "stored", "delayed", "retried", "record", "queue entry", "index", "consumers"]
    answer = found(unpack(STORE), "ord11_42")
    (told,) = answer["answers"]
    assert told["texts"] == ["ord11_42"]
    assert (told["state"], told["sent_back_by"]) == ("arrived", ["CG_part_11"])
    assert told["offsets"] == [message["offset"] for message in answer["messages"]]


def test_a_message_that_was_due_before_the_last_one_was_stored_is_overdue(store: Path) -> None:
    (waiting,) = found(store, "ord11_90006")["messages"]
    path = next((store / "consumequeue" / waiting["topic"] / str(waiting["queue_id"])).iterdir())
    at = 20 * waiting["queue_offset"] + 12
    raw = bytearray(path.read_bytes())
    raw[at : at + 8] = (waiting["store_timestamp"] + 1000).to_bytes(8, "big")
    path.write_bytes(raw)
    assert "but overdue: it was due at" in run("find", str(store), "ord11_90006").stdout.replace("\n ", "")
    assert found(store, "ord11_90006")["answers"][0]["state"] == "overdue"


@pytest.mark.parametrize(
    ("ending", "due", "words"),
    [
        ("waiting", 4_102_444_800_000, "the next retry due at "),
        ("waiting", 1000, "the next retry overdue since "),
        ("overdue", 4_102_444_800_000, "the next retry overdue since "),
    ],
)
def test_a_group_that_waits_for_a_retry_has_not_read_past_the_message(ending: str, due: int, words: str) -> None:
    store = open_store(unpack(STORE))
    (story,) = Stories(store).of(search(store, Question(("ord11_42",))).sorted())
    story.ending, story.due = ending, due
    assert list(_readers(story)) == ["sent back by CG_part_11 (1 time)", words + time_text(due, exact=True)]


def test_groups_that_have_not_come_to_it_are_named(store: Path) -> None:
    offsets_of = '{"Order_11@CG_a": {"0": 40}, "Order_11@CG_b": {"0": 40}, "Order_11@CG_c": {"0": 1}}'
    (store / "config" / "consumerOffset.json").write_text('{"offsetTable": ' + offsets_of + "}")
    assert first_line(store, "tx11_0") == "tx11_0: arrived, committed, read past by CG_a and CG_b, not by CG_c"


@pytest.mark.quick_rows(2)
@pytest.mark.parametrize("name", [STORE, "5.4.0-dledger", "5.4.0-rocksdb"])
def test_a_lost_message_is_lost_before_and_after_its_repair(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    store = copy_store(name, tmp_path)
    kept, gone, _ = damaged(store)
    assert first_line(store, gone.properties["UNIQ_KEY"]).endswith("LOST: its record is damaged")
    assert first_line(store, gone.properties["KEYS"].split()[0]).endswith("LOST: its record is damaged")
    run("recover", str(store), "--apply", "--accept-fillers")
    (journal,) = (store / ".rmqstore").iterdir()
    place = f"{gone.topic}/{gone.queue_id}/{gone.queue_offset}"
    for text in (gone.properties["UNIQ_KEY"], gone.properties["KEYS"].split()[0], place, gone.msg_id):
        answer = found(store, text, exit_code=1)
        assert (answer["messages"], [row["state"] for row in answer["answers"]]) == ([], ["lost"]), text
        (row,) = answer["lost"]
        assert (row["cause"], row["repair"]) == ("filler", journal.name)
        assert (row["topic"], row["queue_id"], row["queue_offset"]) == (gone.topic, gone.queue_id, gone.queue_offset)
        told = run("find", str(store), text).stdout.replace("\n  ", " ")
        assert f"{text}: LOST: replaced by a filler in repair {journal.name}" in told
    (row,) = found(store, kept.properties["UNIQ_KEY"], exit_code=1)["lost"]
    assert (row["unique_key"], row["body"]) == (kept.properties["UNIQ_KEY"], "damaged")
    shutil.rmtree(store / ".rmqstore")
    told = run("find", str(store), kept.properties["UNIQ_KEY"]).stdout
    assert "LOST: an earlier repair put a filler in its place" in told.replace("\n  ", " ")


def test_damage_is_counted_once_and_a_missing_file_is_no_damage(store: Path) -> None:
    damaged(store)
    (store / "commitlog" / f"{131072:020}").unlink()
    result = run("find", str(store), "no-such-key", "other")
    assert "no-such-key: not found, but not all of the log can be read" in result.stdout
    assert "1 damaged place and 1 gap of missing files" in result.stderr
    assert result.stderr.count("the file is missing") == 1


# --- the status of a message -----------------------------------------------------------------------------------------


def relations(message: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(row["relation"], row["topic"]) for row in message["related"]]


@pytest.mark.parametrize("name", ["4.9.7-clean", "5.1.4-clean", STORE, "5.4.0-dledger"])
def test_transactions_are_followed_to_commit_and_rollback(name: str) -> None:
    store = unpack(name)
    half, real = found(store, "tx11_0")["messages"][:2]  # on 5.1.4, there is also a retry
    assert (half["outcome"], real["topic"]) == ("committed", "Order_11")
    assert ("real", "Order_11") in relations(half)
    assert ("half", "RMQ_SYS_TRANS_HALF_TOPIC") in relations(real)
    (half,) = found(store, "tx11_1")["messages"]
    assert half["outcome"] == "rolled-back"
    assert relations(half) == [("op", "RMQ_SYS_TRANS_OP_HALF_TOPIC")]
    outcomes = [m["outcome"] for m in found(store, "tx11_2")["messages"]]
    assert outcomes.count("checked-too-often") == len(outcomes) - 1 and outcomes[-1] is None


def test_a_delayed_message_is_followed_to_its_real_topic() -> None:
    delayed, real = found(unpack(STORE), "ord11_90000")["messages"]
    assert (delayed["topic"], delayed["outcome"], real["topic"]) == ("SCHEDULE_TOPIC_XXXX", "delivered", "Order_11")
    assert delayed["due"] == delayed["store_timestamp"] + 1000
    (waiting,) = found(unpack(STORE), "ord11_90006")["messages"]
    assert waiting["outcome"] == "waiting"
    assert waiting["due"] == waiting["store_timestamp"] + 2 * 3600 * 1000


def test_a_timer_message_is_followed_to_its_real_topic() -> None:
    store = unpack("5.4.0-formats")
    timed, real = found(store, "ord11_70000")["messages"]
    assert (timed["topic"], timed["outcome"]) == ("rmq_sys_wheel_timer", "delivered")
    assert timed["due"] == int(timed["properties"]["TIMER_OUT_MS"])
    assert relations(timed) == [("real", real["topic"])]
    assert ("timer", "rmq_sys_wheel_timer") in relations(real)


def test_retries_and_dead_letters_lead_back_to_their_original() -> None:
    store = unpack(STORE)
    retried = next(r for r in find_records(store) if r.topic == "%RETRY%CG_part_11")
    message = next(m for m in found(store, retried.msg_id)["messages"] if m["offset"] == retried.position)
    origin = next(r for r in find_records(store) if r.msg_id == retried.properties["ORIGIN_MESSAGE_ID"])
    assert ("original", origin.position) in [(row["relation"], row["offset"]) for row in message["related"]]
    dead = next(r for r in find_records(store) if r.topic.startswith("%DLQ%"))
    origin = next(r for r in find_records(store) if r.msg_id == dead.properties["ORIGIN_MESSAGE_ID"])
    (message,) = found(store, dead.msg_id)["messages"]
    assert ("original", origin.position) in [(row["relation"], row["offset"]) for row in message["related"]]


def test_find_lists_the_offset_of_each_group_that_consumed_the_message() -> None:
    store = unpack(STORE)
    text = (store / "config" / "consumerOffset.json").read_text()
    message = found(store, "ord11_42")["messages"][0]
    table = re.search(r'"Order_11@CG_part_11":\{([^}]*)\}', text)
    assert table is not None
    at = int(dict(re.findall(r"(\d+):(\d+)", table[1]))[str(message["queue_id"])])
    assert message["consumers"] == [{"group": "CG_part_11", "offset": at, "consumed": at > message["queue_offset"]}]


def test_a_group_that_has_not_come_so_far_has_not_consumed_the_message(store: Path) -> None:
    path = store / "config" / "consumerOffset.json"
    path.write_text('{"offsetTable": {"Order_11@CG_new": {"0": 1, "1": 1, "2": 4, "3": 1}, "Other@CG": {"2": 9}}}')
    message = found(store, "ord11_42")["messages"][0]
    assert (message["queue_id"], message["queue_offset"]) == (2, 4)
    assert message["consumers"] == [{"group": "CG_new", "offset": 4, "consumed": False}]


def test_progress_comes_from_the_backup_where_the_file_is_broken(store: Path) -> None:
    path = store / "config" / "consumerOffset.json"
    shutil.copy(path, f"{path}.bak")
    path.write_bytes(bytes(100))
    assert found(store, "ord11_42")["messages"][0]["consumers"][0]["group"] == "CG_part_11"


@pytest.mark.parametrize("name", [STORE, "5.4.0-dledger", "5.1.4-dledger-mixed", "5.4.0-rocksdb", "5.1.4-formats"])
def test_every_message_of_a_sound_store_has_its_queue_entry_and_index(name: str) -> None:
    store = unpack(name)
    records = [r for r in find_records(store) if r.topic == "Order_11" and r.properties.get("UNIQ_KEY")]
    for record in records[:: len(records) // 4]:
        message = next(m for m in found(store, record.msg_id)["messages"] if m["offset"] == record.position)
        assert message["record"] == "sound"
        assert message["queue_entry"]["state"] == "present"
        assert message["queue_entry"]["tag_matches"] in (True, None)
        assert message["index"]["state"] == "present"


def test_find_names_missing_and_wrong_queue_entries(store: Path) -> None:
    record = next(r for r in find_records(store) if (r.topic, r.queue_offset) == ("Order_11", 5))
    path = next((store / "consumequeue" / "Order_11" / str(record.queue_id)).iterdir())
    zero(path, 5 * 20, 20)
    result = run("find", str(store), record.msg_id)
    assert "queue entry  missing: consumers do not get this message" in result.stdout
    flip(path, 6 * 20 + 7)
    other = next(
        r for r in find_records(store) if (r.topic, r.queue_id, r.queue_offset) == ("Order_11", record.queue_id, 6)
    )
    result = run("find", str(store), other.msg_id)
    assert f"queue entry  wrong: it points to log offset {other.position ^ 1:,}" in result.stdout
    answer = found(store, f"Order_11/{record.queue_id}/5")
    assert offsets(answer) == [record.position]
    assert answer["searched"] == "log"


@pytest.mark.parametrize("command", ["find", "get"])
def test_a_queue_entry_that_points_to_a_record_of_another_place_is_named(command: str, store: Path) -> None:
    queues = store / "consumequeue"
    shutil.rmtree(queues / "SCHEDULE_TOPIC_XXXX" / "0")
    shutil.copytree(queues / "log-15445" / "1", queues / "SCHEDULE_TOPIC_XXXX" / "0")
    words = "the queue entry at {} points to a record that names another place: log-15445/1 offset 11"
    assert (
        words.format("SCHEDULE_TOPIC_XXXX/0 offset 11") in run(command, str(store), "SCHEDULE_TOPIC_XXXX/0/11").stderr
    )
    assert "another place" not in run(command, str(store), "log-15445/1/11").stderr


def test_a_destroyed_record_is_known_by_its_index_entry(store: Path) -> None:
    record = next(r for r in find_records(store) if "ord11_42" in keys_of(r))
    name = f"{record.position // 65536 * 65536:020}"
    zero(store / "commitlog" / name, record.position % 65536, record.size)
    answer = found(store, "ord11_42")
    trace = {"offset": record.position, "topic": "Order_11", "key": "ord11_42", "state": "damaged"}
    assert answer["traces"] == [trace]
    assert record.position not in offsets(answer)
    (store / "commitlog" / f"{0:020}").unlink()
    answer = found(store, "ord11_90006", exit_code=1)
    assert [t["state"] for t in answer["traces"]] == ["expired"]


def test_bodies_are_shown_only_when_asked_for_and_control_characters_never() -> None:
    store = unpack(STORE)
    message = found(store, "tx11_0")["messages"][0]
    assert not {"body", "body_base64", "body_hex"} & message.keys()
    assert "transaction commit" not in run("find", str(store), "tx11_0").stdout
    assert found(store, "tx11_0", "--body", "text")["messages"][0]["body"].startswith("transaction commit")
    assert "transaction commit" in run("find", str(store), "tx11_0", "--body", "text").stdout


def test_wrong_usage() -> None:
    store = str(unpack(STORE))
    for words, text in (
        ((), "nothing to search for"),
        (("--grep", "("), "--grep (: "),
        (("a", "--read-log", "--index-only"), "exclude each other"),
        (("--grep", "a", "--index-only"), "--grep needs the log"),
    ):
        result = run("find", store, *words)
        assert result.exit_code == 2, result.output
        assert text in result.stderr


def test_find_says_that_the_limit_cut_the_list() -> None:
    result = run("find", str(unpack(STORE)), "--grep", "TAGS=", "--limit", "3", "--json")
    answer = json.loads(result.stdout)
    assert (len(answer["messages"]), answer["more"]) == (3, True)
    assert "only the first 3 messages" in result.stderr


def test_find_in_a_part_of_a_store_says_nothing_that_needs_the_whole_store() -> None:
    store = unpack(STORE)
    message = found(store / "commitlog", "ord11_42")["messages"][0]
    assert message["record"] == "sound"
    assert (message["queue_entry"]["state"], message["index"]["state"]) == ("not-here", "not-here")
    assert message["consumers"] is None
    assert "do not get" not in run("find", str(store / "commitlog"), "ord11_42").stdout
    for part in ("index", "config", "consumequeue/Order_11/0"):
        assert run("find", str(store / part), "ord11_42").exit_code == 3


def test_a_store_without_a_log_is_refused_with_advice(store: Path) -> None:
    shutil.rmtree(store / "commitlog")
    result = run("find", str(store), "ord11_42")
    assert result.exit_code == 3
    assert "has no log — if broker.conf sets storePathCommitLog, name this file with -c" in result.stderr


@pytest.mark.parametrize("width", [80, 120])
def test_the_text_fits_the_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    for key in ("tx11_0", "tx11_2", "ord11_42", "ord11_90000", "ord11_90007"):
        lines = run("find", str(unpack(STORE)), key, "--utc").stdout.splitlines()
        assert max(map(columns, lines)) <= width
    assert {"  queue entry  present, tag matches", "  index        present (2 keys, unique id)"} <= {*lines}


@pytest.mark.parametrize("words", [(), ("--index-only",), ("--read-log",)])
def test_a_place_in_a_light_queue_is_not_searched_in_the_log(words: tuple[str, ...]) -> None:
    result = run("find", str(unpack("5.5.1-lmq")), "%LMQ%nobody/0/77", *words)
    assert result.stdout == "%LMQ%nobody/0/77: not found by id or index; the log was not searched\n"
    assert result.stderr == "note: the log was not searched for %LMQ%nobody/0/77\n"
    assert result.exit_code == 1


def test_other_texts_beside_a_light_queue_are_searched_in_the_log() -> None:
    result = run("find", str(unpack("5.5.1-lmq")), "%LMQ%nobody/0/77", "no-such-key")
    assert "note: no-such-key not found by id or index: reading the log\n" in result.stderr
    assert "note: the log was not searched for %LMQ%nobody/0/77\n" in result.stderr
    assert "no-such-key: never arrived, as far as this store tells" in result.stdout
