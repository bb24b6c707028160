"""`recover --safe` before each start of a real broker: the commands of the unit and init container of `examples`."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqstore.cli.examples import SOURCE
from tests.damage import flip, zero
from tests.real_broker.whole_broker import WholeBroker
from tests.stores import copy_store, meta
from tests.untouched import assert_untouched

NewBroker = Callable[..., WholeBroker]
NAME = "5.4.0-clean"


def documented(store: Path, conf: Path, what: str) -> list[str]:
    """Return the command of a file of `rmqstore examples`, for this store."""
    if what == "systemd":
        page = (SOURCE / "systemd" / "rocketmq-broker.service.d" / "rmqstore.conf").read_text("utf-8")
        (line,) = re.findall(r"^ExecStartPre=(.*)$", page, re.MULTILINE)
        words = shlex.split(line)
    else:
        page = (SOURCE / "kubernetes" / "broker.yml").read_text("utf-8")
        (line,) = re.findall(r"^ +args: \[(.*--safe.*)\]$", page, re.MULTILINE)
        words = ["rmqstore", *re.findall(r'"([^"]*)"', line)]
    program = f"{shlex.quote(sys.executable)} -m rmqstore"
    places = {"/data/rocketmq/store": str(store), "/etc/rocketmq/broker.conf": str(conf)}
    places |= {"/conf/broker.conf": str(conf)}
    if words[0] == "rmqstore":
        return [*shlex.split(program), *(str(store) if w == "/store" else places.get(w, w) for w in words[1:])]
    script = words[2].replace("exec /usr/local/bin/rmqstore", f"exec {program}")
    for old, new in places.items():
        script = script.replace(old, new)
    return [*words[:2], script]


def before_start(store: Path, what: str) -> int:
    conf = store.parent / "broker.conf"
    conf.write_text(f"storePathRootDir={store}\n" + "".join(f"{k}={v}\n" for k, v in SIZES.items()))
    return subprocess.run(documented(store, conf, what), timeout=120, check=False).returncode


SIZES = {key: value for key, value in meta(NAME).broker_conf.items() if key.startswith("mappedFileSize")}


@pytest.mark.slow
@pytest.mark.parametrize("what", ["systemd", "kubernetes"])
def test_a_broker_starts_after_the_documented_command(what: str, tmp_path: Path, whole_broker: NewBroker) -> None:
    store, made = copy_store(NAME, tmp_path), meta(NAME)
    second = sorted((store / "commitlog").iterdir())[1]
    flip(second, 4096 + 200)
    (store / "commitlog" / "notes.txt").write_text("with this file the broker ends with exit code 253")
    (store / "abort").touch()
    assert before_start(store, what) == 0
    with whole_broker(made.version, store, made.broker_conf) as broker:
        sent = broker.produce("Order_11", 8)
        if what == "systemd":  # the other one says that the broker is stopped, and the lock says that it is not
            assert before_start(store, what) == 5
        assert before_start(store, "kubernetes") == 5
        broker.kill()
    assert (store / "abort").exists()
    assert before_start(store, what) == 0
    with whole_broker(made.version, store, made.broker_conf) as broker:
        read = {(m.queue_id, m.queue_offset) for m in broker.read("Order_11")}
    assert read >= {(m.queue_id, m.queue_offset) for m in sent}


def test_a_store_that_would_lose_messages_is_left_as_it_is(tmp_path: Path) -> None:
    store = copy_store(NAME, tmp_path)
    zero(sorted((store / "commitlog").iterdir())[1], 4096, 4096)
    (store / "abort").touch()
    with assert_untouched(store):
        assert before_start(store, "systemd") == 1
