"""Random trees of files, and random valid plans for them, for Hypothesis."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from hypothesis import strategies as st

from rmqstore.documents.content import Content, Equivalent, Literal, Parts, Zeros, fingerprint
from rmqstore.documents.plan import Plan
from rmqstore.documents.steps import (
    Create,
    Discard,
    Extend,
    MakeDirectory,
    Overwrite,
    RemoveEmptyDirectory,
    Rename,
    SetAside,
    Span,
    Step,
)
from rmqstore.files.files import LOCAL
from rmqstore.repair.overlay import Overlay
from rmqstore.repair.plan.plan_builder import fingerprint_entry
from rmqstore.repair.replica.healed_store import FileContent
from tests.repair.trees import OLD, discard, lazily, overwrite, pattern, truncate

FOLDERS = ("commitlog", "consumequeue/A/0", "consumequeue/B/1", "index")


@st.composite
def trees(draw: st.DrawFn) -> dict[str, bytes]:
    """Generate names and bytes of a few sparse, empty and random files."""
    names = draw(st.lists(st.tuples(st.sampled_from(FOLDERS), st.integers(0, 5)), min_size=1, max_size=7, unique=True))
    data = st.binary(max_size=200) | st.integers(0, 9000).map(bytes) | st.integers(1, 9000).map(pattern)
    return {f"{folder}/{number:020}": draw(data) for folder, number in names}


def build(store: Path, tree: dict[str, bytes]) -> None:
    for folder in (*FOLDERS, "consumequeue/Empty/0"):
        (store / folder).mkdir(parents=True)
    for number, (name, data) in enumerate(tree.items()):
        (store / name).write_bytes(data)
        (store / name).chmod(0o600 + number)
        os.utime(store / name, ns=(OLD, OLD + number))
    for folder, _, _ in os.walk(store, topdown=False):
        os.utime(folder, ns=(OLD, OLD + len(folder)))


def draw_content(draw: st.DrawFn, store: Path, size: int) -> Content:
    """Generate a content of any kind; "replica" and "healed" are read from a file beside the store."""
    kind = draw(st.sampled_from(["zeros", "literal", "lazy", "parts", "equivalent", "replica", "healed"]))
    if kind == "zeros":
        return Zeros(size)
    data = pattern(size, draw(st.integers(0, 9)))
    match kind:
        case "lazy":
            return lazily(data, 777)
        case "literal":
            return Literal(data)
        case "equivalent":
            return Equivalent(Literal(data), "0" * 64)
        case "parts":
            return Parts((Literal(data[: size // 2]), Zeros(size - size // 2)))
    at = draw(st.integers(0, 70_000))
    path = replica_file(store, data, at)
    if kind == "replica":
        return FileContent(LOCAL, path, at, size)
    change = Overwrite(path.name, at, Literal(data), fingerprint(b"")) if size else None
    path.write_bytes(bytes(at + size))
    return FileContent(Overlay(LOCAL, [change] if change else [], path.parent), path, at, size)


def replica_file(store: Path, data: bytes, at: int) -> Path:
    """Write a sparse file with `data` at a position, and other bytes after it."""
    folder = store.parent / "replica"
    folder.mkdir(exist_ok=True)
    path = folder / f"{len(list(folder.iterdir()))}"
    with path.open("wb") as file:
        file.seek(at)
        file.write(data + b"after")
    return path


def draw_plan(draw: st.DrawFn, store: Path, tree: dict[str, bytes]) -> Plan:
    steps: list[Step] = []
    spans: list[Span] = []
    for name, data in tree.items():
        size = len(data)
        choice = draw(st.sampled_from(["keep", "overwrite", "cut", "both", "extend", "discard", "replace"]))
        limit = size
        if choice in ("cut", "both") and size:
            limit = draw(st.integers(0, size - 1))
            steps.append(truncate(store, name, limit))
        if choice in ("overwrite", "both"):
            cuts = sorted(draw(st.lists(st.integers(0, limit), max_size=6, unique=True)))
            for at, stop in zip(cuts[::2], cuts[1::2], strict=False):
                steps.append(overwrite(store, name, at, draw_content(draw, store, stop - at)))
                spans.append(Span(name, at, stop - at, f"{len(spans)}.bin"))
        if choice == "extend":
            more = draw(st.integers(1, 5000))
            steps.append(Extend(name, size, size + more, draw_content(draw, store, draw(st.integers(0, more)))))
        if choice in ("discard", "replace"):
            steps.append(discard(store, name))
        if choice == "replace":
            steps.append(Create(name, 500, draw_content(draw, store, draw(st.integers(0, 500))), name))
    steps, spans = draw_names(draw, store, tree, steps, spans)
    if draw(st.booleans()):
        steps += [RemoveEmptyDirectory("consumequeue/Empty/0"), RemoveEmptyDirectory("consumequeue/Empty")]
    if draw(st.booleans()):
        steps += [MakeDirectory("timer"), MakeDirectory("timer/log", "index"), Create("timer/log/0", 9, Literal(b"t"))]
    return Plan(str(store), tuple(draw(st.permutations(steps))), spans=tuple(spans))


def draw_names(
    draw: st.DrawFn, store: Path, tree: dict[str, bytes], steps: list[Step], spans: list[Span]
) -> tuple[list[Step], list[Span]]:
    """Rename some files of one folder to each other's names or to free ones; other steps use the new names."""
    folder = draw(st.sampled_from(FOLDERS))
    gone = {step.path for step in steps if isinstance(step, Discard)}
    names = [name for name in tree if name.startswith(f"{folder}/") and name not in gone]
    if not names or draw(st.booleans()):
        return steps, spans
    then = draw(st.permutations([*names, f"{folder}/{9:020}"]))
    moved = {old: new for old, new in zip(names, then, strict=False) if old != new}
    steps = [
        step if isinstance(step, Create) else replace(step, path=moved.get(step.path, step.path)) for step in steps
    ]
    for old, new in moved.items():
        steps += [SetAside(old, fingerprint_entry(store / old), "test"), Rename(new, old, "test")]
    return steps, [replace(span, path=moved.get(span.path, span.path)) for span in spans]
