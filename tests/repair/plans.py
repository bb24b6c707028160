"""A plan with a step of every kind, for the tests of plans."""

from __future__ import annotations

from rmqstore.documents.content import Literal, Parts, Zeros
from rmqstore.documents.plan import Loss, Plan
from rmqstore.documents.steps import (
    Create,
    Discard,
    Extend,
    MakeDirectory,
    Overwrite,
    RemoveEmptyDirectory,
    Span,
    Step,
    Truncate,
)

HASH = "sha256:" + "ab" * 32


def all_steps() -> tuple[Step, ...]:
    return (
        Overwrite("commitlog/0", 10, Literal(b"abc"), HASH, "why"),
        Overwrite("commitlog/0", 13, Zeros(7), "blake2b:" + "01" * 32),
        Truncate("consumequeue/T/0/0", 100, 20, HASH),
        Extend("consumequeue/T/0/1", 100, 200, Literal(b"x")),
        Create("index/1", 400, Parts((Literal(b"head"), Zeros(10), Literal(b"tail"))), "index/0", "new"),
        Discard("commitlog/stray", HASH, "in the way", 17),
        MakeDirectory("consumequeue/N"),
        RemoveEmptyDirectory("consumequeue/E"),
    )


def full() -> Plan:
    return Plan(
        "/store",
        (*all_steps(), Create("/disk2/cl/0", 5, Zeros(5))),
        loss=Loss(3, 500, {"A/0": 1, "A/1": 1, "B/0": 1}, {"visible_fillers": 1, "groups": {"G": 1}}),
        cures=("CL-BODY-CRC",),
        notes=("a note",),
        decisions=("too much",),
        spans=(Span("commitlog/0", 10, 3, "10.bin", "damaged"),),
        roots=("/disk2/cl",),
        facts={"strategy": "salvage", "nested": {"list": [1, 2.5, None, True]}},
    )
