"""The cases: which command runs on which store, and which baseline it is compared with."""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import BinaryIO

from benchmarks import baselines
from benchmarks.generate import generate
from benchmarks.measure import Series, run
from benchmarks.parts import EPOCH, Made, Options
from rmqstore.formats import message

START_ROUNDS = 15  # these runs are so short that more of them cost almost no time


@dataclass(slots=True)
class Case:
    """One command to measure.

    `baseline` is the name of the case to compare with. `prepare` is called before and after each run, and is not timed.
    `trouble` is the reason for missing figures, or empty. `seen` is the number of messages that the process reports.
    `rounds` is 0 for the number of rounds given by the user.
    """

    store: str
    name: str
    command: list[str]
    bytes: int = 0
    messages: int = 0
    baseline: str = ""
    prepare: Callable[[], object] = lambda: None
    series: Series = field(default_factory=Series)
    anonymous: int = 0
    trouble: str = ""
    exit_code: int = 0
    seen: int | None = None
    rounds: int = 0

    @property
    def words(self) -> list[str]:
        """The arguments of `rmqstore`; empty for a baseline."""
        return self.command[self.command.index("rmqstore") + 1 :] if "rmqstore" in self.command else []

    @property
    def mine(self) -> bool:
        """Whether this is a case of rmqstore and not of a baseline."""
        return self.name.startswith("rmqstore")

    def failed(self, exit_code: int) -> bool:
        """Return whether a run failed. Exit codes 1 and 4 of rmqstore are results: findings, or an incomplete check."""
        return exit_code not in ((0, 1, 4) if self.mine else (0,))


def remove(*paths: Path) -> None:
    """Remove files and folders; of a symbolic link, remove only the link."""
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def view(store: Path, where: Path, *parts: str) -> Path:
    """Create a store of symbolic links to some parts of `store`, so that files written into its root are separate."""
    where.mkdir(parents=True)
    for part in parts:
        (where / part).symlink_to(store / part, target_is_directory=True)
    return where


def linked(store: Path, where: Path) -> Path:
    """Create a store with hard links to the commitlog files of `store`; writing commands refuse symbolic links."""
    (where / "commitlog").mkdir(parents=True)
    for file in (store / "commitlog").iterdir():
        os.link(file, where / "commitlog" / file.name)
    shutil.copy(store / "checkpoint", where / "checkpoint")
    return where


def one_core(command: list[str]) -> list[str]:
    """Return the command pinned to one core, including a JVM's compiler and collector; unchanged without taskset."""
    taskset = shutil.which("taskset")
    return [taskset, "-c", str(max(os.sched_getaffinity(0))), *command] if taskset else command


def simulate_crash(root: Path, left: list[Path]) -> None:
    """Create `abort` and remove the files in `left`, so that the next load does an abnormal recovery."""
    remove(*left)
    (root / "abort").touch()


def unavailable(python: str, words: list[str], work: Path) -> str:
    """Return why a command of rmqstore cannot run; an empty string if it can."""
    ran = run([python, "-m", "rmqstore", *words, "--help"], work / "probe")
    reason = ran.complaint or ran.last_line or f"exit {ran.exit_code}"
    return "" if ran.exit_code == 0 else f"not available ({reason.partition(': ')[2][:60] or reason[:60]})"


def store_cases(name: str, store: Path, made: Made, work: Path, args: argparse.Namespace) -> Iterator[Case]:
    """Yield the cases of rmqstore on one store."""
    ours = [args.python, "-m", "rmqstore"]
    size = (made.wrote, made.messages)
    log = str(store / "commitlog")
    load, rebuild, dump = (f"broker {args.broker} {t}" for t in ("load", "load, queues rebuilt", "dumpCompactionLog"))
    alone = [*ours, "verify", log, "--json", "--jobs", "1"]
    yield Case(name, "rmqstore verify commitlog, one core", one_core(alone), *size, baseline=f"{load}, one core")
    yield Case(name, "rmqstore verify commitlog, jobs 1", alone, *size, baseline=load)
    yield Case(name, "rmqstore verify commitlog, jobs all", alone[:-2], *size, baseline=load)
    yield Case(name, "rmqstore verify store", [*ours, "verify", str(store), "--json"], *size, baseline=load)
    yield Case(name, "rmqstore dump ndjson", [*ours, "dump", log, "--format", "ndjson"], *size, baseline=dump)
    bare = linked(store, work / "bare")
    made_new = [bare / "consumequeue", bare / ".rmqstore", bare / "lock"]
    sizes = work / "broker.conf"  # a store without consume queues does not show the size of their files
    sizes.write_text("mappedFileSizeConsumeQueue=6000000\n")
    command = [*ours, "rebuild", str(bare), "cq", "--config", str(sizes)]
    again = partial(remove, *made_new)
    plan = one_core([*command, "--jobs", "1"])
    yield Case(name, "rmqstore rebuild cq, plan, one core", plan, *size, baseline=f"{rebuild}, one core", prepare=again)
    yield Case(name, "rmqstore rebuild cq, plan", command, *size, baseline=rebuild, prepare=again)
    yield Case(name, "rmqstore rebuild cq --apply", [*command, "--apply"], *size, baseline=rebuild, prepare=again)
    yield from damage_cases(name, store, made, work, ours, sizes)
    yield from record_cases(name, store, made, work, ours)


def record_cases(name: str, store: Path, made: Made, work: Path, ours: list[str]) -> Iterator[Case]:
    """Yield the cases of a store with one damaged record: a plan, which measures its result, costs little more."""
    broken = work / "damaged-record"
    shutil.copytree(store, broken)
    damage_body(min((broken / "commitlog").iterdir()), 1000)
    verify = "rmqstore verify store, one damaged record"
    for label, word in ((verify, "verify"), ("rmqstore recover, plan, one damaged record", "recover")):
        command = one_core([*ours, word, str(broken), "--json", "--jobs", "1"])
        yield Case(name, label, command, made.wrote, made.messages, baseline=verify if word == "recover" else "")


def damage_cases(name: str, store: Path, made: Made, work: Path, ours: list[str], config: Path) -> Iterator[Case]:
    """Yield the cases of a log without consume queues in which one record has a wrong QUEUEOFFSET: cost is linear."""
    for way, offset in (("sound", None), ("too low", 1), ("too high", 1 << 20)):
        broken = work / f"queue-offset-{way.replace(' ', '-')}"
        shutil.copytree(store / "commitlog", broken / "commitlog")
        if offset is not None:
            set_queue_offset(min((broken / "commitlog").iterdir()), 1000, offset)
        for word, part in (("verify", ()), ("rebuild", ("cq",))):
            label = f"rmqstore {word}, no queues, QUEUEOFFSETs"
            command = [*ours, word, str(broken), *part, "--config", str(config), "--json", "--jobs", "1"]
            like = f"{label} sound" if offset is not None else ""
            yield Case(name, f"{label} {way}", one_core(command), made.wrote, made.messages, baseline=like)


def set_queue_offset(path: Path, number: int, value: int) -> None:
    """Overwrite QUEUEOFFSET of a record of a commitlog file, counted from 0."""
    with path.open("r+b") as file:
        file.seek(start_of(file, number) + message.HEAD.at("queue_offset"))
        file.write(value.to_bytes(8, "big"))


def damage_body(path: Path, number: int) -> None:
    """Change the first byte of the body of a record of a commitlog file, counted from 0."""
    with path.open("r+b") as file:
        at = start_of(file, number) + message.HEAD.size
        file.seek(at)
        first = file.read(1)
        file.seek(at)
        file.write(bytes([first[0] ^ 1]))


def start_of(file: BinaryIO, number: int) -> int:
    """Return the position of a record of an open commitlog file, counted from 0."""
    at = 0
    for _ in range(number):
        file.seek(at)
        at += int.from_bytes(file.read(4), "big")
    return at


def baseline_cases(
    name: str, store: Path, made: Made, work: Path, args: argparse.Namespace, notes: list[str], tools: Path
) -> Iterator[Case]:
    """Yield the cases of the broker, mqadmin and the C loop on one store."""
    size = (made.wrote, made.messages)
    files = sorted(str(f) for f in (store / "commitlog").iterdir())
    try:
        program, crc = baselines.limit(tools)
        for way in ("mmap", "read"):
            yield Case(name, f"C {way}, CRC of {crc}", [str(program), way, *files], *size)
    except baselines.Missing as why:
        notes.append(f"C loop: {why}")
    if args.no_java:
        notes.append("broker: left out (--no-java)")
        return
    try:
        java = baselines.broker(args.broker, tools)
    except baselines.Missing as why:
        notes.append(f"broker: {why}")
        return
    settings = [
        "commitLogRecoverMaxNum=1000000",
        "messageIndexEnable=false",
        f"mappedFileSizeCommitLog={args.file_size}",
    ]
    for what, parts in (("load", ("commitlog", "consumequeue")), ("load, queues rebuilt", ("commitlog",))):
        root = view(store, work / f"broker-{len(parts)}", *parts)  # no comma in the name: it separates paths
        left = [root / "checkpoint", root / "rocksdbstore", *([] if len(parts) > 1 else [root / "consumequeue"])]
        command = java.command("Bench", "load", str(root), *settings)
        again = partial(simulate_crash, root, left)
        yield Case(name, f"broker {args.broker} {what}", command, *size, prepare=again)
        yield Case(name, f"broker {args.broker} {what}, one core", one_core(command), *size, prepare=again)
    if len(files) > 1:
        notes.append("dumpCompactionLog reads one file: its row is for the first file only")
    share = min(1.0, args.file_size / made.wrote)
    yield Case(
        name,
        f"broker {args.broker} dumpCompactionLog",
        java.command("org.apache.rocketmq.tools.command.MQAdminStartup", "dumpCompactionLog", "-f", files[0]),
        int(made.wrote * share),
        int(made.messages * share),
    )


def append_cases(work: Path, args: argparse.Namespace, notes: list[str], tools: Path) -> Iterator[Case]:
    """Yield the append cases of rmqstore and the broker: one thread each, into a new store on the same disk."""
    java: baselines.Broker | None = None
    if not args.no_java:
        try:
            java = baselines.broker(args.broker, tools)
        except baselines.Missing as why:
            notes.append(f"putMessage: {why}")
    for body in (256, 1024):
        for flush, count in (("async", 200_000), ("sync", 3_000)):
            root = work / f"put-{body}-{flush}"
            words = (str(root), str(body), str(count), flush)
            again = partial(remove, root)
            real = f"broker {args.broker} put {body} B {flush}"
            ours = [args.python, "-m", "benchmarks.append", "--inside", *words]
            yield Case("append", f"rmqstore put {body} B {flush}", ours, messages=count, baseline=real, prepare=again)
            if java is not None:
                yield Case("append", real, java.command("Bench", "put", *words), messages=count, prepare=again)


def start_cases(store: Path, work: Path, args: argparse.Namespace) -> Iterator[Case]:
    """Yield the cases that measure the start: --help, info, and info of a large sparse store."""
    ours = [args.python, "-m", "rmqstore"]
    yield Case("start", "python -c pass", [args.python, "-c", "pass"], rounds=START_ROUNDS)
    yield Case("start", "rmqstore --help", [*ours, "--help"], rounds=START_ROUNDS)
    yield Case("start", "rmqstore info", [*ours, "info", str(store)], rounds=START_ROUNDS)
    sparse = sparse_store(work / "sparse", args.sparse_files)
    yield Case(
        "start", f"rmqstore info, {args.sparse_files} GiB sparse", [*ours, "info", str(sparse)], rounds=args.repeat
    )


def queue_cases(work: Path, args: argparse.Namespace) -> Iterator[Case]:
    """Yield the cases of equally large stores with few and with many queues: cost and memory per queue."""
    ours = [args.python, "-m", "rmqstore"]
    first = ""
    for topics in (20, 2000):
        store = work / f"{topics * 10}-queues"
        made = generate(Options(store, 64 << 20, body="64", topics=topics, queues=10, cq_file_size=2000))
        name = f"rmqstore verify store, {topics * 10:,} queues"
        command = one_core([*ours, "verify", str(store), "--json", "--jobs", "1"])
        yield Case("queues", name, command, made.wrote, made.messages, baseline=first, rounds=args.repeat)
        first = first or name


def cut_cases(work: Path, args: argparse.Namespace) -> Iterator[Case]:
    """Yield the repairs of a short and of a long log whose first file was cut, with all queues missing: linear cost."""
    ours, first = [args.python, "-m", "rmqstore"], ""
    for size in (1 << 20, 12 << 20):
        store = work / f"cut-{size}"
        made = generate(Options(store, size, body="64", file_size=size // 2, cq_file_size=600_000))
        remove(store / "consumequeue")
        os.truncate(min((store / "commitlog").iterdir()), size // 20)
        name = f"rmqstore recover, plan, {size >> 20} MiB, first file cut"
        command = one_core([*ours, "recover", str(store), "--json", "--jobs", "1"])
        yield Case("cut", name, command, made.wrote, made.messages, baseline=first, rounds=args.repeat)
        first = first or name


def sparse_store(root: Path, files: int) -> Path:
    """Create a store of sparse 1 GiB commitlog files with one record each, and return its root."""
    folder = root / "commitlog"
    folder.mkdir(parents=True)
    for number in range(files):
        start = number << 30
        stamp = EPOCH + number * 60_000
        record = message.build_message(
            topic="Order_0", body=b"sparse", queue_offset=number, physical_offset=start, store_timestamp=stamp
        )
        with (folder / f"{start:020d}").open("wb") as file:
            file.write(record)
            file.truncate(1 << 30)
    return root
