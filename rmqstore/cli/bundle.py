"""`rmqstore bundle`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqstore.cli.printing.output import Output
from rmqstore.cli.printing.quantities import OFFSET, bytes_text, fitted, many, table_line, title, wrapped
from rmqstore.cli.shared.options import FILE, command, named_roots
from rmqstore.cli.shared.reading import note_live
from rmqstore.errors import OutputExists, UsageError
from rmqstore.texts import Placed, Text, first_few, joined

if TYPE_CHECKING:
    from rmqstore.files.broker_config import BrokerConfig

_ASK = 1 << 30


@command(
    "bundle",
    examples=(
        "rmqstore bundle /data/rocketmq/store -o store.tar.gz",
        "rmqstore bundle /data/rocketmq/store --around 180887 -o damage.tar.gz",
        "rmqstore bundle /data/rocketmq/store --topic Order -o order.tar.gz",
    ),
)
@click.option(
    "-o",
    "--output",
    required=True,
    type=FILE,
    metavar="FILE",
    help="Write the archive (tar.gz) to FILE, which must not exist.",
)
@click.option("--around", type=OFFSET, metavar="OFFSET", help="Only the log file with this offset, and its neighbours.")
@click.option("--topic", metavar="NAME", help="Only the queues of this topic, and the log files with its messages.")
@click.option("--whole", is_flag=True, help="The whole store, even if it is larger than 1 GiB.")
@click.option("--json", "as_json", is_flag=True, help="Print the manifest as one JSON object instead of text.")
@named_roots
def bundle(out: Output, store: Path, config: BrokerConfig, around: int | None, topic: str | None, whole: bool) -> int:
    """Make an anonymous copy of a store that can be shared, as for a bug report.

    Files keep their lengths, records their offsets, and all damage remains: verify finds the same problems. Bodies are
    replaced by noise with a correct CRC (damaged bodies stay damaged). Topics, groups, tags, keys, ids, hosts and
    values of properties are replaced by other texts of the same length, consistently; the secret behind that is
    discarded. RocketMQ's own names, times, sizes and offsets stay. RocksDB directories are left out. manifest.json in
    the archive lists its contents.
    """
    from rmqstore.files.store import open_store
    from rmqstore.views.bundle.bundle import Scope, make_bundle

    assert out.path is not None
    if (around is not None) + (topic is not None) + whole > 1:
        raise UsageError(Text("--around, --topic and --whole exclude each other"), Text("give one of them"))
    if out.is_file:
        raise OutputExists(Text("{path} already exists", path=out.path))
    opened = open_store(store, config)
    size = opened.log_bytes
    if size > _ASK and around is None and topic is None and not whole:
        raise UsageError(
            Text("the log of {store} has {size}", store=store, size=bytes_text(size)),
            Text("give --around OFFSET or --topic NAME, or --whole for all of it"),
        )
    note_live(out, opened, Text("what it writes from now on may be incomplete in the bundle"))
    with out.progress("bundle", size) as progress, out.stream() as file:
        made = make_bundle(opened, Scope(around, topic), file, progress.add)
    answer = Output(as_json=out.as_json, quiet=out.quiet, color=out.color)
    if out.as_json:
        answer.report(made.to_json())
    elif not out.quiet:
        answer.lines(_text(made.to_json(), str(out.path), bytes_text(out.path.stat().st_size), out.width))
    return 0


def _text(manifest: dict[str, Any], path: str, size: str, width: int) -> Iterator[str]:
    yield Placed("{path}: {size}", path=path, size=size)
    yield ""
    yield table_line(map(title, (Text("part"), Text("files"), Text("bytes"))), (20, -8, -16))
    for part in manifest["parts"]:
        yield table_line([part["part"], f"{part['files']:,}", f"{part['bytes']:,}"], (20, -8, -16))
    yield ""
    counts = manifest["replaced"]
    names, others, hosts = (counts[name] for name in ("topics_and_groups", "other_texts", "hosts"))
    replaced = Text("{names:,} names of topics and groups, {texts} and {hosts}; bodies are noise")
    texts = replaced.format(names=names, texts=many(others, "other text"), hosts=many(hosts, "host"))
    paragraphs = [(title(Text("Replaced:")), texts), (title(Text("Kept:")), joined(manifest["kept"], "; "))]
    for one in manifest["left_out"]:
        shown = first_few(one["names"], 3, one["files"])
        paragraphs.append((title(Text("Left out:")), Placed("{shown} ({why})", shown=shown, why=one["why"])))
    for name, text in paragraphs:
        yield from wrapped(text, width, fitted(name, 10), " " * 10)
    yield ""
    around = manifest["scope"]["kind"] == "around" and manifest["parts"]
    unpacked = f"store/{manifest['parts'][0]['part']}" if around else "store"
    look = Text("Look at it before you share it: tar xzf {path} && rmqstore verify {unpacked}")
    yield look.format(path=shlex.quote(path), unpacked=shlex.quote(unpacked))
