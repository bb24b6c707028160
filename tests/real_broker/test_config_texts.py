"""The table of what each version's JSON reader accepts (`formats/configuration.py`), against the real readers."""

from __future__ import annotations

import base64
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqstore.files.config import wrong_type
from rmqstore.formats.configuration import ConfigJsonError, object_of, parse_config_text, reader_of
from tests.real_broker.java import BrokerUnavailable, java_classes
from tests.real_broker.oracle import archive_option

PLAIN = {
    "topics.json": (
        b'{"dataVersion":{"counter":3,"timestamp":5},"unknown":[1,{"y":2},"a"],"topicConfigTable":{"A":{"topicName":"A"'
        b',"perm":6,"order":false,"attributes":{"queue.type":"BatchCQ"}},"B":{"topicName":"B","perm":6}}}'
    ),
    "delayOffset.json": b'{"dataVersion":{"counter":3},"offsetTable":{1:18,3:4}}',
    "consumerOffset.json": b'{"offsetTable":{"A@G":{0:7,1:8},"B@G":{0:9}}}',
}
INSERTED = (
    b"/* c */",
    b"// c\n",
    b",",
    b"\0",
    b" ",
    b"\f",
    b"\v",
    b"\b",
    b"\xef\xbb\xbf",
    b"}",
    b"x",
    b"# c\n",
    b"\x1a",
)
TOKEN = re.compile(rb'"[^"]*"|[{}\[\],:]|[^{}\[\],:"\s]+')


def texts() -> Iterator[tuple[str, bytes]]:
    """Yield each file with each insertion between all its tokens, cut at its end, and with other spellings."""
    for name, text in PLAIN.items():
        yield name, text
        for piece in INSERTED:
            for at in [m.start() for m in TOKEN.finditer(text)] + [len(text)]:
                yield name, text[:at] + piece + text[at:]
        for cut in range(1, 12):
            yield name, text[:-cut]
            yield name, text[:-cut] + bytes(cut)
        yield name, text + bytes(512)
        yield name, text + text
        yield name, text + b"\n" + text[-30:]
        yield name, text.replace(b'"', b"'")
        yield name, re.sub(rb'"(\w+)":', rb"\1:", text)
        yield name, re.sub(rb'"(\w+)":', rb"-\1:", text)
        yield name, b""
        yield name, bytes(400)
        yield name, b"null"


@pytest.mark.parametrize("version", ["4.9.7", "5.1.4", "5.4.0", "5.5.1"])
def test_a_text_that_counts_as_read_is_read_by_the_real_reader(version: str, tmp_path: Path) -> None:
    """The opposite need not be true: a reader may accept a comment at one place and reject it at another."""
    try:
        classes = java_classes(version)
    except BrokerUnavailable as missing:
        if os.environ.get("RMQSTORE_REQUIRE_BROKER") == "1":
            raise
        pytest.skip(str(missing))
    asked = list(texts())
    lines = "".join(f"{name}\t{base64.b64encode(text).decode()}\n" for name, text in asked)
    command = classes.command("ConfigTexts", log=tmp_path / "log", home=tmp_path, options=archive_option(classes))
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=True)
    real = [line == "read true" for line in done.stdout.splitlines() if line.startswith("read ")]
    assert len(real) == len(asked)
    ours = [_reads(name, text, version) for name, text in asked]
    assert [row for row, own, other in zip(asked, ours, real, strict=True) if own and not other] == []
    assert sum(ours) > len(asked) / 6
    assert all(ours[k] and real[k] for k, (name, text) in enumerate(asked) if text == PLAIN[name])


def _reads(name: str, text: bytes, version: str) -> bool:
    try:
        parsed = parse_config_text(text)
        return parsed.rejected_by(reader_of(version)) is None and not wrong_type(name, object_of(parsed.value))
    except ConfigJsonError:
        return False
