"""`rmqstore send` to whole brokers, with kills of the command and of the broker in between."""

from __future__ import annotations

import base64
import json
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from tests.command import run, run_json
from tests.real_broker.java import java_classes
from tests.real_broker.whole_broker import WholeBroker
from tests.stores import copy_store

MESSAGES = 5_000
TOPIC = "Sent"


def words_for(version: str, broker: WholeBroker) -> list[str]:
    """The jars of the oracle take the place of the installation's lib/."""
    home = java_classes(version).libraries[0].parent.parent
    return ["--namesrv", broker.name_server, "--rocketmq-home", str(home), "--wait", "20"]


def made_store(path: Path, count: int) -> Path:
    with rmqstore.open_writable(path, create=True) as writer:
        for n in range(count):
            writer.put(
                rmqstore.NewMessage(
                    TOPIC,
                    f"body {n}".encode() * (1 + n % 50 * 20),
                    tags=f"tag{n % 3}",
                    keys=[f"key{n}"],
                    properties={"colour": f"c{n}", "UNIQ_KEY": f"{n:032X}"},
                    queue_id=n % 4,
                )
            )
    return path


def rows_of(store: Path, topic: str, file: Path) -> list[dict[str, Any]]:
    assert run("export", str(store), "--topic", topic, "--decode", "-o", str(file)).exit_code == 0
    return [json.loads(line) for line in file.read_text().splitlines()]


def journal_lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]


def tried_twice(journal: Path) -> set[int]:
    """Numbers of the messages that were handed to the client more than once."""
    tries: Counter[int] = Counter()
    for line in journal_lines(journal):
        tries.update(number for number, _ in line.get("try", []))
        if "unsent" in line:
            tries[line["unsent"]] -= 1
    return {number for number, count in tries.items() if count > 1}


def killed_run(words: list[str], journal: Path, kill: Callable[[subprocess.Popen[bytes]], None], after: int) -> int:
    """Start a run, call `kill` when it has got some more acknowledgements, and return the exit code."""
    before = len(journal_lines(journal))
    process = subprocess.Popen(
        [sys.executable, "-m", "rmqstore", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    end = time.monotonic() + 240
    while len(journal_lines(journal)) < before + after and process.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
    kill(process)
    return process.wait(240)


def _killing(broker: WholeBroker) -> Callable[[object], None]:
    return lambda _: broker.kill()


@pytest.mark.slow
@pytest.mark.other_processes
@pytest.mark.parametrize("version", ["4.9.7", "5.4.0", "5.5.1"])
def test_kills_lose_nothing_and_send_nothing_twice_unsaid(
    version: str, tmp_path: Path, whole_broker: Callable[..., WholeBroker]
) -> None:
    source = made_store(tmp_path / "source", MESSAGES)
    journal, target = tmp_path / "journal", tmp_path / "target"
    chance = random.Random(version)
    names = whole_broker(version, tmp_path / "unused")
    names.start_name_server()
    broker = whole_broker(version, target, namesrvAddr=names.name_server)
    broker.start()
    try:
        broker.produce(TOPIC, 1)  # creates it
        words = ["send", str(source), *words_for(version, names), "--journal", str(journal), "--rate", "4000"]
        for _ in range(3):
            code = killed_run(words, journal, lambda p: p.send_signal(signal.SIGKILL), chance.randrange(100, 1500))
            assert code == -signal.SIGKILL
        for _ in range(2):
            code = killed_run(words, journal, _killing(broker), chance.randrange(100, 1500))
            assert code in (1, 4)  # some messages are unknown, or it only waited in vain
            broker = whole_broker(version, target, namesrvAddr=names.name_server)
            broker.start()
        answer: Mapping[str, Any] = run_json(*words, exit_code=0)
        assert answer["sent"] + answer["sent_before"] == MESSAGES
        assert answer["refused"] == answer["unknown"] == answer["unsent"] == 0
        again: Mapping[str, Any] = run_json(*words, exit_code=0)
        assert (again["sent"], again["sent_before"]) == (0, MESSAGES)
        time.sleep(1)
    finally:
        broker.stop()
        names.kill()
    received = [row for row in rows_of(target, TOPIC, tmp_path / "sent.ndjson") if row["tags"] != "after"]
    numbers = Counter(int(row["properties"]["rmqstore_offset"]) for row in received)
    wanted = {row["offset"]: row for row in _with_offsets(source, tmp_path)}
    assert numbers.keys() == wanted.keys()  # none is lost
    twice = {number for number, count in numbers.items() if count > 1}
    assert twice <= tried_twice(journal)
    assert len(twice) <= 5 * 128
    for row in received:
        own = wanted[int(row["properties"]["rmqstore_offset"])]
        for name in ("body_base64", "tags", "keys", "unique_key"):
            assert row[name] == own[name]
        assert row["properties"]["colour"] == own["properties"]["colour"]
        assert row["properties"]["rmqstore_id"] == own["msg_id"]
        assert row["properties"]["rmqstore_store_time"] == str(own["store_timestamp"])


def _with_offsets(source: Path, folder: Path) -> list[dict[str, Any]]:
    file = folder / "source.ndjson"
    assert run("export", str(source), "--offsets", "--decode", "-o", str(file)).exit_code == 0
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.other_processes
@pytest.mark.parametrize("version", ["4.9.7", "5.4.0", "5.5.1"])
def test_order_delays_dead_letters_and_refusals(
    version: str, tmp_path: Path, whole_broker: Callable[..., WholeBroker]
) -> None:
    """Messages of a queue keep their order; delayed ones are delayed again; too large ones have the broker's reason."""
    source = copy_store("4.9.7-clean", tmp_path)
    target = tmp_path / "target"
    journal = ("--journal", str(tmp_path / "journal"))
    rows = [row for row in _with_offsets(source, tmp_path) if row["topic"] == "Order_11"]
    with whole_broker(version, target, maxMessageSize="4000") as broker:
        words = ["send", str(source), *words_for(version, broker)]
        before: Mapping[str, Any] = run_json(*words, "--dry-run", exit_code=1)
        assert not before["topics"]["Order_11"]["exists"]
        broker.produce("Order_11", 1)
        assert run_json(*words, "--dry-run", exit_code=1)["topics"]["Order_11"]["exists"]  # type: ignore[index]
        large = made_store(tmp_path / "large", 50)
        map_it = ("--topic-map", f"{TOPIC}=Order_11", "--journal", str(tmp_path / "large.journal"))
        refused: Mapping[str, Any] = run_json("send", str(large), *words[2:], *map_it, exit_code=1)
        assert refused["refused"] > 0
        assert refused["sent"] + refused["refused"] == 50
        assert "CODE 13" in refused["problems"][0]["reason"]
        only = ("--topic", "Order_11", "--topic", "SCHEDULE_TOPIC_XXXX", "--topic", "RMQ_SYS_TRANS_HALF_TOPIC")
        words += [*only, "--topic-map", "Pay_11_Topic=Order_11", "--topic-map", "log-15445=Order_11"]
        answer: Mapping[str, Any] = run_json(*words, "--delayed", "--half", *journal, exit_code=1)
        assert answer["sent"] == answer["messages"] - answer["refused"]
    sent = [row for row in rows_of(target, "Order_11", tmp_path / "a.ndjson") if "rmqstore_queue" in row["properties"]]
    sent = [row for row in sent if row["properties"]["rmqstore_queue"].startswith("Order_11/")]
    for queue_id in range(4):
        queue = [row for row in sent if row["queue_id"] == queue_id]
        offsets = [int(row["properties"]["rmqstore_offset"]) for row in sorted(queue, key=lambda r: r["queue_offset"])]
        assert offsets == sorted(offsets)
    refused_rows = answer["messages"] - answer["sent"]
    assert len(rows) - refused_rows <= len(sent) <= len(rows)
    delayed = rows_of(target, "SCHEDULE_TOPIC_XXXX", tmp_path / "b.ndjson")
    assert any(row["properties"].get("rmqstore_queue", "").startswith("SCHEDULE_TOPIC_XXXX/") for row in delayed)


@pytest.mark.slow
@pytest.mark.other_processes
@pytest.mark.parametrize("version", ["4.9.7", "5.4.0", "5.5.1"])
def test_batches_are_split_and_dead_letters_go_to_their_topic(
    version: str, tmp_path: Path, whole_broker: Callable[..., WholeBroker]
) -> None:
    source = copy_store("5.4.0-formats", tmp_path)
    letters, target = tmp_path / "letters", tmp_path / "target"
    with rmqstore.open_writable(letters, create=True) as writer:
        for n in range(10):
            properties = {"RETRY_TOPIC": TOPIC, "UNIQ_KEY": f"{n:032X}", "RECONSUME_TIMES": "16"}
            writer.put(rmqstore.NewMessage("%DLQ%Group", f"dead {n}".encode(), properties=properties))
    with whole_broker(version, target) as broker:
        broker.produce(TOPIC, 1)
        words = [
            *words_for(version, broker),
            "--topic-map",
            f"BatchCq_11={TOPIC}",
            "--journal",
            str(tmp_path / "batches"),
        ]
        sent: Any = run_json("send", str(source), *words, "--topic", "BatchCq_11", exit_code=0)
        words = [*words_for(version, broker), "--journal", str(tmp_path / "letters.journal")]
        dead: Any = run_json("send", str(letters), *words, "--dead-letters", "Group", exit_code=0)
    received = rows_of(target, TOPIC, tmp_path / "sent.ndjson")
    bodies = {base64.b64decode(row["body_base64"]).decode(): row for row in received if row["tags"] != "after"}
    assert sent["messages"] == sent["sent"] == 49
    assert dead["sent"] == 10
    assert len(received) == len(bodies) + 1 == 49 + 10 + 1
    for body, row in bodies.items():
        part = re.fullmatch(r"inner batch (\d+) (\d+)", body)
        assert part is None or row["keys"] == f"bk{part[1]}_{part[2]}"


@pytest.mark.slow
@pytest.mark.other_processes
@pytest.mark.parametrize("version", ["5.4.0", "5.5.1"])
def test_timed_messages_are_delivered_when_they_are_due(
    version: str, tmp_path: Path, whole_broker: Callable[..., WholeBroker]
) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    with whole_broker(version, target, timerWheelEnable="true") as broker:
        broker.produce(TOPIC, 1)
        now = int(time.time() * 1000)
        due = {"past": now - 60_000, "soon": now + 90_000, "later": now + 3_600_000}
        with rmqstore.open_writable(source, create=True) as writer:
            for n, (key, at) in enumerate(due.items()):
                properties = {"REAL_TOPIC": TOPIC, "REAL_QID": "0", "TIMER_OUT_MS": str(at), "UNIQ_KEY": f"{n:032X}"}
                writer.put(rmqstore.NewMessage("rmq_sys_wheel_timer", key.encode(), keys=[key], properties=properties))
        words = ["send", str(source), *words_for(version, broker), "--journal", str(tmp_path / "journal")]
        none: Any = run_json(*words, exit_code=0)
        assert (none["messages"], none["left_out"]) == (0, {"timed": 3})
        sent: Any = run_json(*words, "--timed", exit_code=0)
        assert sent["sent"] == 3
        time.sleep(max(0.0, due["soon"] / 1000 + 8 - time.time()))
    stored = {row["keys"]: row["store_timestamp"] for row in rows_of(target, TOPIC, tmp_path / "sent.ndjson")}
    assert stored.keys() - {"after0"} == {"past", "soon"}
    assert due["soon"] - 1_000 <= stored["soon"]
    assert stored["past"] <= stored["soon"]
    (waiting,) = (
        row for row in rows_of(target, "rmq_sys_wheel_timer", tmp_path / "t.ndjson") if row["keys"] == "later"
    )
    assert abs(int(waiting["properties"]["TIMER_OUT_MS"]) - due["later"]) <= 1_000


@pytest.mark.slow
@pytest.mark.other_processes
@pytest.mark.parametrize("version", ["4.9.7", "5.4.0", "5.5.1"])
def test_a_name_server_without_brokers_says_nothing_about_topics(
    version: str, tmp_path: Path, whole_broker: Callable[..., WholeBroker]
) -> None:
    """Its brokers have not registered yet, so that no message may count as refused."""
    source, names = made_store(tmp_path / "source", 3), whole_broker(version, tmp_path / "unused")
    names.start_name_server()
    words = ["send", str(source), *words_for(version, names), "--wait", "1", "--journal", str(tmp_path / "journal")]
    for more in (("--dry-run",), ()):
        answer: Any = run_json(*words, *more, exit_code=4)
        assert answer["ended"] == "no broker has registered with the name server"
        assert answer["topics"][TOPIC]["exists"] is None
        assert answer["refused"] == answer["unknown"] == answer["sent"] == 0


_USER = '{"username": "rocketmq2", "password": "12345678"}'
_PROVIDERS = "org.apache.rocketmq.auth.authentication.provider"
_ACCOUNTS = "accounts:\n- accessKey: rocketmq2\n  secretKey: 12345678\n  whiteRemoteAddress:\n  admin: true\n"


@pytest.mark.slow
@pytest.mark.other_processes
@pytest.mark.parametrize("version", ["4.9.7", "5.4.0", "5.5.1"])
def test_acl_refuses_wrong_keys_and_accepts_right_ones(
    version: str, tmp_path: Path, whole_broker: Callable[..., WholeBroker]
) -> None:
    source, target = made_store(tmp_path / "source", 20), tmp_path / "target"
    with whole_broker(version, target) as broker:
        broker.produce(TOPIC, 1)  # creates it
    own = {"aclEnable": "true"}  # conf/plain_acl.yml, 4.x
    if version.startswith("5"):
        own = {
            "authenticationEnabled": "true",
            "authenticationProvider": f"{_PROVIDERS}.DefaultAuthenticationProvider",
            "authenticationMetadataProvider": f"{_PROVIDERS}.LocalAuthenticationMetadataProvider",
            "initAuthenticationUser": _USER,
            "authConfigPath": str(tmp_path / "auth"),
        }
    broker = whole_broker(version, target, **own)
    (broker.home / "conf" / "plain_acl.yml").write_text(_ACCOUNTS)
    with broker:  # a broker of 5.x registers with the name server some seconds after it serves requests
        words = ["send", str(source), *words_for(version, broker), "--journal", str(tmp_path / "journal")]
        answers: dict[str, Any] = {}
        for secret, exit_code in (("wrong678", 1), ("12345678", 0)):
            keys = tmp_path / secret
            keys.write_text(f"accessKey=rocketmq2\nsecretKey={secret}\n")
            answers[secret] = run_json(*words, "--acl", str(keys), exit_code=exit_code)
    wrong, right = answers["wrong678"], answers["12345678"]
    assert (wrong["refused"], wrong["sent"]) == (20, 0)
    assert {"CODE" in one["reason"] for one in wrong["problems"]} == {True}  # the broker's, not that of a missing topic
    assert (right["refused"], right["sent"]) == (0, 20)
