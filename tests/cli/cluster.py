"""A program in the place of java that answers `rmqstore send` as a cluster would."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.command import run_json

_JAVA = '''#!{python}
"""Speaks the protocol of Sender.java; {folder} has its orders, and gets what it received."""
import json, os, struct, sys
from pathlib import Path

folder = Path({folder!r})
orders = json.loads((folder / "orders.json").read_text())
stdin, got = sys.stdin.buffer, (folder / "got.ndjson").open("a")


def number(form):
    return struct.unpack(form, stdin.read(struct.calcsize(form)))[0]


def text():
    return stdin.read(number(">i")).decode()


def tell(*words):
    print(*words, sep="\\t", flush=True)


head = text(), text(), text(), number(">i")
(folder / "head.json").write_text(json.dumps(head))
if "fails" in orders:
    tell("FAILED", orders["fails"])
    sys.exit(1)
tell("READY")
count = 0
while (request := stdin.read(1)) in (b"T", b"M"):
    if request == b"T":
        topic = text()
        tell("T", topic, orders.get("queues", {{}}).get(topic, 4), "no route")
        continue
    n, topic, queue, flag, pairs = number(">q"), text(), number(">i"), number(">i"), number(">i")
    properties = {{}}
    for _ in range(pairs):
        name = text()
        properties[name] = text()
    body = stdin.read(number(">i")).hex()
    row = dict(number=n, topic=topic, queue_id=queue, flag=flag, properties=properties, body=body)
    print(json.dumps(row), file=got, flush=True)
    count += 1
    if count == orders.get("dies"):
        print("java.lang.OutOfMemoryError", file=sys.stderr, flush=True)
        os._exit(3)
    answer = orders.get("answers", {{}}).get(properties.get("KEYS"), "S")
    tell(answer, n, *(["7", "ID", "SEND_OK"] if answer == "S" else ["CODE 13 because"]))
'''


class Cluster:
    """A directory with a java, a RocketMQ installation, and the messages that it received."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("lib", "bin", "conf"):
            (folder / name).mkdir(parents=True)
        (folder / "lib" / "rocketmq-client-5.4.0.jar").touch()
        self.java = folder / "bin" / "java"
        for path, text in (
            (self.java, _JAVA.format(python=sys.executable, folder=str(folder))),
            (folder / "bin" / "javac", "#!/bin/sh\nexit 0\n"),
        ):
            path.write_text(text)
            path.chmod(0o755)
        self.order()

    def order(self, **orders: Any) -> None:
        """Say how the client answers from now on, and forget what it received."""
        (self.folder / "orders.json").write_text(json.dumps(orders))
        (self.folder / "got.ndjson").write_text("")

    @property
    def got(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "got.ndjson").read_text().splitlines()]

    @property
    def words(self) -> list[str]:
        return ["--namesrv", "127.0.0.1:1", "--rocketmq-home", str(self.folder), "--java", str(self.java)]

    def send(self, source: Path, *words: str, exit_code: int = 0) -> Mapping[str, Any]:
        return run_json("send", str(source), *self.words, *words, exit_code=exit_code)
