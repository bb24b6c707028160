"""`rmqstore send`, with a program in the place of java that answers as a cluster would.

`tests/real_broker/test_send.py` sends to real brokers.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.cluster import Cluster
from tests.command import run
from tests.stores import copy_store


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path / "rocketmq")


def row(number: int, topic: str = "Order", **more: Any) -> dict[str, Any]:
    properties = {"KEYS": f"k{number}", "TAGS": "paid", "UNIQ_KEY": f"U{number}", "colour": "red", **more}
    return {
        "topic": topic,
        "queue_id": number % 3,
        "queue_offset": number,
        "store_timestamp": 1000 + number,
        "born_timestamp": 900,
        "store_host": "10.0.0.1:10911",
        "born_host": "10.0.0.2:999",
        "tags": "paid",
        "keys": f"k{number}",
        "unique_key": f"U{number}",
        "flag": 5,
        "sys_flag": 0,
        "reconsume_times": 0,
        "prepared_transaction_offset": 0,
        "properties": properties,
        "body": f"body {number}",
    }


def exported(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    return path


def test_messages_keep_keys_tags_and_properties_and_tell_their_origin(cluster: Cluster, tmp_path: Path) -> None:
    source = exported(tmp_path / "a.ndjson", [row(1, WAIT="true", TRAN_MSG="true", __SHARDINGKEY="s")])
    answer = cluster.send(source, "--journal", str(tmp_path / "j"))
    assert (answer["messages"], answer["sent"]) == (1, 1)
    [got] = cluster.got
    assert (got["topic"], got["queue_id"], got["flag"], bytes.fromhex(got["body"])) == ("Order", 1, 5, b"body 1")
    assert got["properties"] == {
        "KEYS": "k1",
        "TAGS": "paid",
        "UNIQ_KEY": "U1",
        "colour": "red",
        "__SHARDINGKEY": "s",
        "rmqstore_store": str(source),
        "rmqstore_queue": "Order/1/1",
        "rmqstore_store_time": "1001",
    }


def test_a_store_is_sent_as_its_export_is(cluster: Cluster, tmp_path: Path) -> None:
    store = copy_store("4.9.7-clean", tmp_path)
    answer = cluster.send(store, "--journal", str(tmp_path / "j1"))
    from_store = cluster.got
    assert answer["sent"] == answer["messages"] == len(from_store) > 400
    assert all(one["properties"]["rmqstore_id"] and one["properties"]["rmqstore_offset"] for one in from_store)
    assert answer["left_out"].keys() >= {"delayed", "half", "retry", "dead letter", "system"}
    for suffix in ("ndjson", "csv", "parquet"):
        if suffix == "parquet":
            pytest.importorskip("pyarrow")
        file = tmp_path / f"export.{suffix}"
        assert run("export", str(store), "--offsets", "-o", str(file)).exit_code == 0
        cluster.order()
        assert cluster.send(file, "--journal", str(tmp_path / f"j-{suffix}"))["sent"] == answer["sent"]
        for one, other in zip(cluster.got, from_store, strict=True):
            one["properties"]["rmqstore_store"] = str(store)
            assert {**one, "number": 0} == {**other, "number": 0}


def test_filters_select_from_stores_and_exports_alike(cluster: Cluster, store: Path, tmp_path: Path) -> None:
    file = tmp_path / "export.ndjson"
    run("export", str(store), "-o", str(file))
    stamps = sorted(json.loads(line)["store_timestamp"] for line in file.read_text().splitlines())
    middle = str(stamps[len(stamps) // 2])
    for words in (
        ("--topic", "Order_11"),
        ("--queue", "Order_11/1"),
        ("--since", middle),
        ("--topic", "Order_11", "--until", middle),
        ("--tag", "TagA"),
        ("--key", "ord11_42"),
    ):
        counts = {cluster.send(source, *words, "--dry-run", exit_code=0)["messages"] for source in (store, file)}
        assert len(counts) == 1 and counts != {0}, words


def test_a_second_run_sends_only_what_was_not_acknowledged(cluster: Cluster, tmp_path: Path) -> None:
    source = exported(tmp_path / "a.ndjson", [row(n) for n in range(10)])
    journal = ("--journal", str(tmp_path / "j"))
    cluster.order(answers={"k3": "R", "k5": "U"})
    first = cluster.send(source, *journal, exit_code=1)
    assert (first["sent"], first["refused"], first["unknown"]) == (8, 1, 1)
    assert {(one["number"], one["state"], one["reason"]) for one in first["problems"]} == {
        (4, "refused", "CODE 13 because"),
        (6, "unknown", "CODE 13 because"),
    }
    dry = cluster.send(source, *journal, "--dry-run")
    assert (dry["messages"], dry["sent_before"], dry["sent"]) == (10, 8, 0)
    cluster.order()
    second = cluster.send(source, *journal)
    assert (second["sent"], second["sent_before"], second["sent_again"]) == (2, 8, 1)
    assert [one["properties"]["KEYS"] for one in cluster.got] == ["k3", "k5"]
    cluster.order()
    assert cluster.send(source, *journal)["sent_before"] == 10
    assert cluster.got == []


def test_what_was_handed_over_when_the_client_died_is_unknown(cluster: Cluster, tmp_path: Path) -> None:
    source = exported(tmp_path / "a.ndjson", [row(n) for n in range(300)])
    journal = ("--journal", str(tmp_path / "j"))
    cluster.order(dies=100)
    first = cluster.send(source, *journal, exit_code=1)
    assert "java.lang.OutOfMemoryError" in first["ended"]
    assert first["sent"] == 99
    assert first["unknown"] >= 1
    cluster.order()
    second = cluster.send(source, *journal)
    assert second["sent"] == 201
    assert second["sent_again"] == first["unknown"]


def test_sending_stops_when_the_cluster_is_away(cluster: Cluster, tmp_path: Path) -> None:
    source = exported(tmp_path / "a.ndjson", [row(n) for n in range(1000)])
    journal = ("--journal", str(tmp_path / "j"))
    cluster.order(answers={"k200": "N"})
    first = cluster.send(source, *journal, exit_code=4)
    assert first["sent"] < 1000
    assert first["unsent"] >= 1
    assert first["ended"] == "CODE 13 because"
    cluster.order(queues={"Order": -1})
    assert cluster.send(source, *journal, exit_code=4)["ended"] == "no route"
    assert cluster.send(source, *journal, "--dry-run", exit_code=4)["topics"]["Order"]["exists"] is None
    cluster.order()
    second = cluster.send(source, *journal)
    assert (second["sent"], second["sent_again"]) == (1000 - first["sent"], 0)


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_command_goes_on(cluster: Cluster, tmp_path: Path, signal_number: int) -> None:
    source = exported(tmp_path / "a.ndjson", [row(n) for n in range(2000)])
    journal = tmp_path / "j"
    words = ["send", str(source), *cluster.words, "--journal", str(journal)]
    process = subprocess.Popen([sys.executable, "-m", "rmqstore", *words, "--rate", "500"], cwd=Path.cwd())
    end = time.monotonic() + 120
    while len(cluster.got) < 150 and time.monotonic() < end:
        time.sleep(0.05)
    assert process.poll() is None
    process.send_signal(signal_number)
    code = process.wait(60)
    assert code == (130 if signal_number == signal.SIGINT else -signal.SIGKILL)
    with journal.open("ab") as file:
        file.write(b'{"sent":1')  # a line that a kill cut off
    answer = cluster.send(source, "--journal", str(journal))
    assert answer["sent"] + answer["sent_before"] == 2000
    received = [one["properties"]["KEYS"] for one in cluster.got]
    assert set(received) == {f"k{n}" for n in range(2000)}
    assert len(received) - 2000 <= answer["sent_again"] <= 128
    assert answer["sent_again"] == 0 or signal_number == signal.SIGKILL


def test_other_kinds_are_sent_only_when_asked_for(cluster: Cluster, tmp_path: Path) -> None:
    rows = [
        row(0, "SCHEDULE_TOPIC_XXXX", REAL_TOPIC="Order", REAL_QID="1", DELAY="3"),
        row(1, "rmq_sys_wheel_timer", REAL_TOPIC="Order", REAL_QID="1", TIMER_OUT_MS="1800000000000"),
        row(1, "rmq_sys_wheel_timer", REAL_TOPIC="Order", TIMER_OUT_MS="1800000000000", TIMER_ROLL_TIMES="1"),
        row(2, "RMQ_SYS_TRANS_HALF_TOPIC", REAL_TOPIC="Order", REAL_QID="0", TRAN_MSG="true"),
        row(3, "%DLQ%Group", RETRY_TOPIC="Pay", ORIGIN_MESSAGE_ID="X"),
        row(4, "%RETRY%Group", RETRY_TOPIC="Pay"),
        row(5, "RMQ_SYS_TRANS_OP_HALF_TOPIC"),
        row(6, "SCHEDULE_TOPIC_XXXX", REAL_TOPIC="%RETRY%Group", DELAY="3"),
        {**row(7), "filler": True},
        row(8),
    ]
    source = exported(tmp_path / "a.ndjson", rows)

    def sent(*words: str) -> list[tuple[str, str, Any]]:
        cluster.order()
        cluster.send(source, *words, "--journal", str(tmp_path / f"j{len(list(tmp_path.iterdir()))}"))
        delays = ("DELAY", "TIMER_DELIVER_MS")
        return [
            (
                m["properties"]["KEYS"],
                m["topic"],
                next((m["properties"][d] for d in delays if d in m["properties"]), None),
            )
            for m in cluster.got
        ]

    assert sent() == [("k8", "Order", None)]
    assert sent("--delayed") == [("k0", "Order", "3"), ("k8", "Order", None)]
    assert sent("--timed") == [("k1", "Order", "1800000000000"), ("k8", "Order", None)]
    assert sent("--half") == [("k2", "Order", None), ("k8", "Order", None)]
    assert sent("--dead-letters", "Group") == [("k3", "Pay", None)]
    assert sent("--topic", "%DLQ%Group", "--topic-map", "Pay=Pay2") == [("k3", "Pay2", None)]
    assert sent("--topic-map", "Order=New", "--topic-map", "%RETRY%Group=Again") == [
        ("k4", "Again", None),
        ("k8", "New", None),
    ]
    left = cluster.send(source, "--dry-run")["left_out"]
    assert left == {"delayed": 1, "timed": 2, "half": 1, "dead letter": 1, "retry": 1, "system": 1, "filler": 1} | {
        "delayed": 2
    }


def test_only_what_a_list_of_lost_names(cluster: Cluster, tmp_path: Path) -> None:
    source = exported(tmp_path / "a.ndjson", [row(n) for n in range(20)])
    places = [{"topic": "Order", "queue_id": n % 3, "queue_offset": n} for n in (3, 7, 99)]
    (tmp_path / "lost.ndjson").write_text("".join(json.dumps(one) + "\n" for one in places))
    (tmp_path / "lost.csv").write_text("topic,queue_id,queue_offset\nOrder,0,3\nOrder,1,7\nOrder,,\n")
    for name in ("lost.ndjson", "lost.csv"):
        cluster.order()
        words = ("--list", str(tmp_path / name), "--journal", str(tmp_path / f"{name}.journal"))
        answer = cluster.send(source, *words, exit_code=1)
        assert (answer["sent"], answer["not_in_source"]) == (2, 1)
        assert [one["properties"]["KEYS"] for one in cluster.got] == ["k3", "k7"]


def test_what_a_broker_lost_is_sent_from_a_copy(cluster: Cluster, tmp_path: Path) -> None:
    copy = copy_store("5.4.0-clean", tmp_path)
    store = tmp_path / "damaged"
    shutil.copytree(copy, store)
    log = min((store / "commitlog").iterdir())
    data = bytearray(log.read_bytes())
    data[200:20_000] = bytes(19_800)
    log.write_bytes(data)
    listed = tmp_path / "lost.csv"
    assert run("lost", str(store), "--format", "csv", "-o", str(listed)).exit_code == 1
    with listed.open() as file:
        lost = {(one["topic"], one["queue_id"], one["queue_offset"]) for one in csv.DictReader(file)}
    words = ("--list", str(listed), "--journal", str(tmp_path / "j"))
    answer = run("send", str(copy), *cluster.words, *words, "--json")
    found = json.loads(answer.stdout)
    sent = {tuple(one["properties"]["rmqstore_queue"].split("/")) for one in cluster.got}
    assert found["sent"] == len(sent) > 10
    assert sent <= lost
    assert len(lost) == found["sent"] + sum(found["left_out"].values()) + found["not_in_source"]
    assert found["not_in_source"] == 0


def test_dry_run_tells_which_topics_exist(cluster: Cluster, tmp_path: Path) -> None:
    source = exported(tmp_path / "a.ndjson", [row(1), row(2, "Pay"), row(3, "Pay")])
    cluster.order(queues={"Pay": 0})
    answer = cluster.send(source, "--dry-run", exit_code=1)
    assert answer["topics"] == {
        "Order": {"messages": 1, "sent": 0, "exists": True, "queues": 4},
        "Pay": {"messages": 2, "sent": 0, "exists": False, "queues": 0},
    }
    assert cluster.got == []
    text = run("send", str(source), *cluster.words, "--dry-run").stdout
    assert "NO SUCH TOPIC" in text
    answer = cluster.send(source, "--journal", str(tmp_path / "j"), exit_code=1)  # a topic is not created
    assert (answer["sent"], answer["refused"]) == (1, 2)


def test_keys_of_acl_go_to_the_client_and_not_to_its_command_line(cluster: Cluster, tmp_path: Path) -> None:
    source = exported(tmp_path / "a.ndjson", [row(1)])
    (cluster.folder / "conf" / "tools.yml").write_text('accessKey: rocketmq2\nsecretKey: "12345678"\n')
    cluster.send(source, "--dry-run")
    assert json.loads((cluster.folder / "head.json").read_text()) == ["127.0.0.1:1", "rocketmq2", "12345678", 30000]
    empty = tmp_path / "acl.conf"
    empty.write_text("nothing: here\n")
    assert run("send", str(source), *cluster.words, "--dry-run", "--acl", str(empty)).exit_code == 2


def test_a_journal_of_something_else_is_refused_and_not_changed(cluster: Cluster, tmp_path: Path) -> None:
    source = exported(tmp_path / "a.ndjson", [row(1), row(2)])
    journal = tmp_path / "j"
    cluster.send(source, "--journal", str(journal))
    other = exported(tmp_path / "b.ndjson", [row(1)])
    before = journal.read_bytes()
    assert run("send", str(other), *cluster.words, "--journal", str(journal)).exit_code == 5
    exported(source, [row(2), row(1)])  # not the messages that the journal tells of
    assert run("send", str(source), *cluster.words, "--journal", str(journal)).exit_code == 5
    assert journal.read_bytes() == before
    os.mkfifo(tmp_path / "pipe")
    for words in (("--journal", str(tmp_path / "pipe")), ("--journal", str(tmp_path / "pipe"), "--dry-run")):
        assert run("send", str(source), *cluster.words, *words).exit_code == 5
    for content in (b"notes", b"notes\n", before + b"garbage\n", before + b'{"sent":[]}\n'):
        journal.write_bytes(content)
        result = run("send", str(source), *cluster.words, "--journal", str(journal))
        assert result.exit_code == 5, content
        assert journal.read_bytes() == content


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"topic": "a\tb\nc"}, 1),
        ({"topic": "x" * 300}, 1),
        ({"properties": {"KEYS": "a\tb\nc", "TAGS": "\x7f"}}, 0),
        ({"queue_id": -(2**31)}, 0),
        ({"queue_offset": 1.5}, 3),
        ({"topic": ["x"]}, 3),
        ({"properties": {"a": 1}}, 3),
        ({"sys_flag": 1, "body": "x"}, 1),
        ({"queue_id": None}, 3),
    ],
)
def test_hostile_rows_are_refused_or_sent(cluster: Cluster, tmp_path: Path, change: dict[str, Any], code: int) -> None:
    source = exported(tmp_path / "a.ndjson", [{**row(1), **change}, row(2)])
    result = run("send", str(source), *cluster.words, "--journal", str(tmp_path / "j"))
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.stderr
    assert len(cluster.got) == (0 if code == 3 else 1 if code == 1 else 2)
    listed = tmp_path / "list.csv"
    listed.write_bytes(b'topic,queue_id,queue_offset\n"a,\x00\n"b"c,1\n')
    result = run("send", str(source), *cluster.words, "--dry-run", "--list", str(listed))
    assert result.exit_code in (1, 3)


def test_two_commands_cannot_share_a_journal(cluster: Cluster, tmp_path: Path) -> None:
    import fcntl

    source = exported(tmp_path / "a.ndjson", [row(1)])
    journal = tmp_path / "j"
    with journal.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        result = run("send", str(source), *cluster.words, "--journal", str(journal))
    assert result.exit_code == 5
    assert "in use" in result.stderr


def test_wrong_input_ends_with_one_line(cluster: Cluster, store: Path, tmp_path: Path) -> None:
    journal = ("--journal", str(tmp_path / "j"))
    other_journal = ("--journal", str(tmp_path / "j2"))
    bad = tmp_path / "bad.ndjson"
    bad.write_text('{"topic": 1}\n')
    for code, words in (
        (2, (str(store), *cluster.words)),  # without a journal
        (2, (str(store), *cluster.words, "--journal", str(store / "j"))),
        (2, (str(store), *cluster.words, *journal, "--dead-letters", "G", "--topic", "T")),
        (2, (str(store), *cluster.words, *journal, "--topic-map", "x")),
        (3, (str(tmp_path / "none.ndjson"), *cluster.words, *journal)),
        (3, (str(bad), *cluster.words, *other_journal)),
        (2, (str(tmp_path / "none.txt"), *cluster.words, *journal)),
        (3, (str(store), *cluster.words, *journal, "--list", str(tmp_path / "none"))),
        (3, (str(store), *cluster.words, *journal, "--rocketmq-home", str(tmp_path))),
        (2, (str(store), *cluster.words, *journal, "--java", str(tmp_path / "java"))),
    ):
        result = run("send", *words)
        assert result.exit_code == code, (words, result.output)
        assert "Traceback" not in result.stderr
        assert cluster.got == []
    cluster.order(fails="no name server")
    result = run("send", str(store), *cluster.words, *journal)
    assert result.exit_code == 4
    assert "no name server" in result.stderr


def batch(number: int, count: int, *bodies: str) -> dict[str, Any]:
    """A row of a batch record: `count` is what its property says."""
    body = b""
    for one in bodies:
        properties = f"KEYS\x01k-{one}\x02UNIQ_KEY\x01U-{one}\x02WAIT\x01true\x02".encode()
        size = 22 + len(one) + len(properties)
        body += (
            struct.pack(">5i", size, 0, 0, 3, len(one)) + one.encode() + struct.pack(">h", len(properties)) + properties
        )
    more = {"INNER_NUM": str(count), "INNER_BASE": str(number)}
    return {**row(number, "Batches", **more), "sys_flag": 192, "body": body.decode()}


def test_a_batch_record_is_sent_message_by_message(cluster: Cluster, tmp_path: Path) -> None:
    source = exported(tmp_path / "a.ndjson", [batch(10, 3, "a", "bb", "c"), row(1)])
    journal = ("--journal", str(tmp_path / "j"))
    cluster.order(answers={"k-bb": "U"})
    answer = cluster.send(source, *journal, exit_code=1)
    assert (answer["messages"], answer["sent"], answer["unknown"]) == (4, 3, 1)
    assert [one["number"] for one in cluster.got] == [1, 2, 3, 4]
    first, second, third, last = cluster.got
    assert [bytes.fromhex(one["body"]) for one in (first, second, third)] == [b"a", b"bb", b"c"]
    assert {one["flag"] for one in (first, second, third)} == {3}
    assert second["properties"]["UNIQ_KEY"] == "U-bb"
    assert not second["properties"].keys() & {"INNER_NUM", "INNER_BASE", "WAIT", "colour"}
    assert third["properties"]["rmqstore_queue"] == "Batches/1/12"
    assert last["properties"]["KEYS"] == "k1"
    cluster.order()
    again = cluster.send(source, *journal)
    assert (again["sent"], again["sent_before"], again["sent_again"]) == (1, 3, 1)
    assert [one["properties"]["KEYS"] for one in cluster.got] == ["k-bb"]


def test_a_snapshot_is_sent_like_its_store(cluster: Cluster, tmp_path: Path) -> None:
    store, repository = copy_store("5.4.0-dledger-mixed", tmp_path), tmp_path / "repo"
    assert run("backup", str(store), str(repository), "--name", "a").exit_code == 0
    words = ("--topic", "Order_11", "--journal")
    cluster.send(store, *words, str(tmp_path / "j1"))
    sent = cluster.got
    cluster.order()
    answer = cluster.send(Path(f"{repository}::a"), *words, str(tmp_path / "j2"))
    again = cluster.got
    assert answer["sent"] == len(sent) > 0
    for one in (*sent, *again):
        del one["properties"]["rmqstore_store"]
    assert again == sent


def test_a_broken_batch_and_a_damaged_body_are_refused(cluster: Cluster, tmp_path: Path) -> None:
    broken = {**batch(1, 1, "a"), "body": "not a batch of messages"}
    rows = [broken, batch(2, 2, "a"), {**row(2), "sys_flag": 1}, row(3)]
    source = exported(tmp_path / "a.ndjson", rows)
    answer = cluster.send(source, "--journal", str(tmp_path / "j"), exit_code=1)
    assert (answer["sent"], answer["refused"]) == (1, 3)
    assert "batch" in answer["problems"][0]["reason"]
    assert "INNER_NUM" in answer["problems"][1]["reason"]
    assert "zlib" in answer["problems"][2]["reason"]


def test_the_clients_files_are_removed(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    cluster.send(exported(tmp_path / "a.ndjson", [row(1)]), "--journal", str(tmp_path / "j"))
    assert list((tmp_path / "temporary").iterdir()) == []
