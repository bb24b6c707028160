"""Plans as values: conversion to JSON and back, the digest, the order of steps, and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqstore.documents.content import (
    CHUNK,
    Content,
    ContentReader,
    Literal,
    Parts,
    Reencoded,
    Zeros,
    chunks,
    content_digest,
    content_from_json,
    content_parts_json,
    content_to_json,
    fingerprint,
)
from rmqstore.documents.plan import Plan, plan_from_json
from rmqstore.documents.steps import (
    Create,
    Discard,
    Extend,
    MakeDirectory,
    Overwrite,
    RemoveEmptyDirectory,
    Step,
    Truncate,
)
from rmqstore.errors import BrokenPlan, PlanStale, UsageError
from rmqstore.files.beneath import read_range
from rmqstore.repair.plan.plan_builder import PlanBuilder
from rmqstore.repair.recovery import LogAfter, Recovery
from tests.command import run_json
from tests.repair.plans import HASH, full
from tests.repair.trees import lazily, pattern
from tests.seeds import examples
from tests.stores import copy_store

parts = st.lists(st.binary(max_size=300).map(Literal) | st.integers(0, 200_000).map(Zeros), max_size=5)


def test_plan_survives_json_in_both_forms() -> None:
    plan = full()
    assert plan_from_json(json.dumps(plan.to_json())) == plan
    streamed = "".join(plan.iter_json())
    again = plan_from_json(streamed.encode())
    assert again.digest == plan.digest and again.loss == plan.loss and again.facts == plan.facts
    assert json.loads(streamed).keys() == plan.to_json().keys()


def test_lazy_content_is_written_out_and_read_back_with_the_same_digest() -> None:
    data = pattern(70_000) + bytes(300_000) + pattern(5)
    lazy = Plan("/store", (Create("a", len(data), lazily(data, 65_536)),))
    again = plan_from_json("".join(lazy.iter_json()))
    step = again.steps[0]
    assert isinstance(step, Create) and b"".join(chunks(step.content)) == data
    assert again.digest == lazy.digest == Plan("/store", (Create("a", len(data), Literal(data)),)).digest
    assert len("".join(lazy.iter_json())) < 110_000  # runs of zeros are written as a count


@given(parts, st.integers(1, 100_000))
@settings(max_examples=examples(60), deadline=None)
def test_content_is_the_same_in_every_form(given_parts: list[Literal | Zeros], take: int) -> None:
    data = b"".join(part.data if isinstance(part, Literal) else bytes(part.size) for part in given_parts)
    forms: list[Content] = [Parts(tuple(given_parts)), Literal(data), lazily(data, take)]
    forms.append(content_from_json(json.loads(json.dumps(content_to_json(forms[0])))))
    forms.append(content_from_json({"parts": list(content_parts_json(forms[2]))}))
    for form in forms:
        assert form.size == len(data)
        assert b"".join(chunks(form)) == data
        assert content_digest(form) == content_digest(forms[0])
        reader = ContentReader(form)
        assert reader.take(take) + reader.take(len(data)) == data


def test_digest_distinguishes_contents_that_differ_only_in_zeros() -> None:
    contents: list[Content] = [Zeros(0), Zeros(65536), Zeros(65537), Zeros(131072), Literal(b"\0" * 65535 + b"\1")]
    assert len({content_digest(content) for content in contents}) == len(contents)


def test_digest_of_a_terabyte_of_zeros_is_fast() -> None:
    assert len(content_digest(Parts((Literal(b"x"), Zeros(1 << 40), Literal(b"y"))))) == 64


def test_chunks_are_at_most_one_mebibyte() -> None:
    content = Parts((Literal(bytes(3 * CHUNK + 5)), Zeros(2 * CHUNK + 1)))
    assert max(map(len, chunks(content))) == CHUNK
    assert sum(map(len, chunks(content))) == content.size


@pytest.mark.parametrize("data", [b"x" * 9, b"x" * 11])
def test_lazy_content_of_another_size_is_stale(data: bytes) -> None:
    with pytest.raises(PlanStale):
        list(Reencoded(10, lambda: iter([data])).pieces())


def test_fingerprint_has_the_requested_kind() -> None:
    assert fingerprint(b"abc") == "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert fingerprint([b"a", b"bc"], "blake2b:") == (
        "blake2b:bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319"
    )


def test_digest_changes_with_every_part_of_a_step() -> None:
    base = Overwrite("a", 10, Literal(b"abc"), HASH, "why")
    others = [
        base,
        Overwrite("b", 10, Literal(b"abc"), HASH),
        Overwrite("a", 11, Literal(b"abc"), HASH),
        Overwrite("a", 10, Literal(b"abd"), HASH),
        Overwrite("a", 10, Literal(b"abc"), "sha256:" + "00" * 32),
    ]
    assert len({Plan("/s", (step,)).digest for step in others}) == 5
    assert Plan("/s", (base,)).digest == Plan("/t", (Overwrite("a", 10, Literal(b"abc"), HASH),)).digest
    assert Plan("/s", (base,), decisions=("x",)).digest != Plan("/s", (base,)).digest


BAD_PATHS = ["", ".", "..", "../x", "a/../../x", "a/../b", "/etc/passwd", "a//b", "a/", "./a", "a\0b", "//x", "\ud800"]
BAD_PATHS += ["lock", ".rmqstore", ".rmqstore/x", "/store/a", "/store", "/disk2", "/disk2/clx/0", "/disk2/cl/../x"]
BAD_PATHS += ["/disk2/cl", "/disk2/cl/lock", "commitlog/.rmqstore/x"]


@pytest.mark.parametrize("path", BAD_PATHS)
def test_path_that_leaves_the_store_is_refused(path: str) -> None:
    document = full().to_json()
    del document["digest"]
    steps: list[dict[str, Any]] = [
        {"do": "discard", "path": path, "expect": HASH},
        {"do": "overwrite", "path": path, "at": 0, "content": {"zeros": 1}, "expect": HASH},
        {"do": "create", "path": "x", "size": 1, "content": {"zeros": 1}, "like": path},
    ]
    for step in steps:
        with pytest.raises(UsageError, match="plan:"):
            plan_from_json({**document, "steps": [step]})
    with pytest.raises(UsageError, match="plan:"):
        plan_from_json({**document, "spans": [{"path": path, "at": 0, "length": 1, "name": "x"}]})


def good(**changes: Any) -> dict[str, Any]:
    step = {"do": "overwrite", "path": "a", "at": 0, "content": {"zeros": 4}, "expect": HASH}
    return {"schema": "rmqstore.plan/1", "store": "/store", "steps": [{**step, **changes}]}


_SIZES: list[object] = [{}, {"zeros": -1}, {"zeros": 1 << 60}, {"zeros": True}, {"base64": "*"}, 7]
_FORMS: list[object] = [{"hex": "0"}, {"parts": 1}, {"parts": [{"parts": []}]}, {"base64": "é"}, []]
_WHOLES: list[object] = [{"parts": [{"zeros": 1 << 34}] * 9}, {"zeros": 1, "hex": ""}, {"staged": {}}]
HOSTILE: list[object] = [
    *(good(at=value) for value in (-1, True, 1.0, "1", None, 1 << 70)),
    *(good(expect=value) for value in ("", "md5:00", HASH + "0", HASH.upper(), 5, None)),
    *(good(content=value) for value in (*_SIZES, *_FORMS, *_WHOLES)),
    *(good(do=value) for value in ("rename", "", 1, None, "Overwrite")),
    *(good(path=value) for value in (1, None, ["a"])),
    good(length=5),
    good(surprise=1),
    good(content={"zeros": 0}),
    {**good(), "schema": "rmqstore.plan/2"},
    {**good(), "schema": None},
    {**good(), "store": "relative"},
    {**good(), "store": "/"},
    {**good(), "store": "/a/../b"},
    {**good(), "store": 1},
    {**good(), "roots": ["relative"]},
    {**good(), "roots": "/disk2"},
    {**good(), "steps": {}},
    {**good(), "steps": [1]},
    {**good(), "loss": []},
    {**good(), "loss": {"messages": "1"}},
    {**good(), "loss": {"queues": {"A/0": "x"}}},
    {**good(), "facts": []},
    {**good(), "cures": [1]},
    {**good(), "unknown": 1},
    {**good(), "digest": "0" * 16},
    {**good(), "digest": 5},
    *(
        {**good(), "spans": [{"path": "a", "at": 0, "length": 1, "name": name}]}
        for name in ("", "../x", "a/b", ".x", 5)
    ),
    {**good(), "spans": [{"path": "a", "at": 0, "length": 1, "name": "x"}] * 2},
    {**good(), "spans": [{"path": "a", "at": 0, "length": 0, "name": "x"}]},
    [],
    None,
    5,
]


@pytest.mark.parametrize("document", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_plan_is_a_usage_error(document: object) -> None:
    plan_from_json(good())
    with pytest.raises(UsageError, match="plan:") as caught:
        plan_from_json(json.dumps(document))
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "NaN", '{"schema": NaN}', "\xff", "nul", b"\xff\xfe{"])
def test_text_that_is_no_json_is_a_usage_error(text: str | bytes) -> None:
    with pytest.raises(UsageError, match="plan:"):
        plan_from_json(text)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


@given(st.data())
@settings(max_examples=examples(100), deadline=None)
def test_plan_with_any_value_replaced_is_read_or_refused(data: st.DataObject) -> None:
    document: Any = json.loads(json.dumps(full().to_json()))
    del document["digest"]
    at = document
    while True:
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        if not keys:
            return
        key = data.draw(st.sampled_from(keys))
        if isinstance(at[key], dict | list) and at[key] and data.draw(st.booleans()):
            at = at[key]
            continue
        at[key] = data.draw(json_values)
        break
    try:
        plan_from_json(json.dumps(document))
    except UsageError as error:
        assert error.message.startswith("plan:")


def test_plan_for_another_store_is_refused(tmp_path: Path) -> None:
    text = json.dumps(Plan(str(tmp_path), (MakeDirectory("x"),)).to_json())
    assert plan_from_json(text, store=tmp_path).steps == (MakeDirectory("x"),)
    with pytest.raises(UsageError, match="was made for"):
        plan_from_json(text, store=tmp_path / "other")


def test_plan_with_a_root_that_is_not_the_stores_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "disk2"
    text = json.dumps(Plan(str(tmp_path / "s"), (Create(f"{root}/0", 1, Zeros(1)),), roots=(str(root),)).to_json())
    assert plan_from_json(text, store=tmp_path / "s", roots=[root]).roots == (str(root),)
    with pytest.raises(UsageError, match="is not a data path"):
        plan_from_json(text, store=tmp_path / "s", roots=[tmp_path / "disk3"])


CLASHES: list[tuple[Step, ...]] = [
    (Overwrite("a", 0, Zeros(10), HASH), Overwrite("a", 9, Zeros(5), HASH)),
    (Overwrite("a", 0, Zeros(10), HASH), Truncate("a", 20, 9, HASH)),
    (Overwrite("a", 95, Zeros(10), HASH), Extend("a", 100, 200)),
    (Truncate("a", 20, 9, HASH), Extend("a", 20, 30)),
    (Overwrite("a", 0, Zeros(1), HASH), Discard("a", HASH)),
    (Overwrite("a", 0, Zeros(1), HASH), Create("a", 1, Zeros(1))),
    (Create("a", 1, Zeros(1)), Create("a", 1, Zeros(1))),
    (Create("a", 1, Zeros(1)), MakeDirectory("a")),
    (Discard("a", HASH), RemoveEmptyDirectory("a")),
    (Discard("a", HASH), Discard("a/b", HASH)),
    (Discard("a", HASH), Create("a/b", 1, Zeros(1))),
    (Discard("a", HASH), MakeDirectory("a"), Overwrite("a/b/c", 0, Zeros(1), HASH)),
    (Create("a", 1, Zeros(1)), MakeDirectory("a/b")),
    (RemoveEmptyDirectory("a"), Overwrite("a/b", 0, Zeros(1), HASH)),
    (Truncate("a", 5, 5, HASH),),
    (Extend("a", 5, 5),),
    (Extend("a", 5, 6, Zeros(2)),),
    (Create("a", 1, Zeros(2)),),
]


@pytest.mark.parametrize("steps", CLASHES, ids=range(len(CLASHES)))
def test_conflicting_steps_are_refused(steps: tuple[Step, ...]) -> None:
    with pytest.raises(BrokenPlan, match="plan:"):
        Plan("/store", steps)


@pytest.mark.parametrize(
    ("steps", "order"),
    [
        ((Overwrite("a", 0, Zeros(9), HASH), Truncate("a", 20, 9, HASH)), [0, 1]),
        ((Discard("a", HASH), MakeDirectory("a"), Create("a/b", 1, Zeros(1))), [0, 1, 2]),
        ((Discard("a/b", HASH), RemoveEmptyDirectory("a"), Create("a", 1, Zeros(1))), [0, 1, 2]),
        ((Create("a", 1, Zeros(1)), Discard("a", HASH)), [1, 0]),
    ],
    ids=["shortened behind what is written", "a directory for a file", "a file for a directory", "another file"],
)
def test_steps_that_only_look_like_a_clash_make_room_for_each_other(steps: tuple[Step, ...], order: list[int]) -> None:
    assert Plan("/store", steps).ordered() == order


def test_order_frees_names_first_and_writes_into_directories_last() -> None:
    steps = (
        Overwrite("z", 0, Zeros(1), HASH),
        Create("n/m/f", 1, Zeros(1)),
        MakeDirectory("n/m"),
        RemoveEmptyDirectory("e"),
        MakeDirectory("n"),
        RemoveEmptyDirectory("e/f"),
        Discard("y", HASH),
    )
    assert Plan("/store", steps).ordered() == [6, 5, 3, 4, 2, 1, 0]


def test_a_planner_that_contradicts_itself_is_a_bug_and_not_wrong_usage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def clash(case: Recovery, draft: PlanBuilder, _: LogAfter) -> None:
        draft.discard(case.store.root / "checkpoint", "first")
        draft.steps.append(Overwrite("checkpoint", 0, Zeros(8), HASH))

    monkeypatch.setattr("rmqstore.repair.recover.DERIVED", (clash,))
    answer = run_json("recover", str(copy_store("5.4.0-clean", tmp_path)), exit_code=70)
    error = answer["error"]
    assert isinstance(error, dict)
    assert (error["code"], error["message"]) == ("bug", "plan: checkpoint is changed and also created or discarded")
    assert "report" in error["advice"]


@pytest.mark.parametrize(
    ("at", "length", "found"), [(0, 5, b"bytes"), (4, 1, b"s"), (3, 10, b"es"), (5, 1, b""), (2, 0, b"")]
)
def test_a_range_of_a_file_is_read_up_to_its_last_byte(at: int, length: int, found: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"bytes")
    assert b"".join(read_range(tmp_path / "file", at, length)) == found
