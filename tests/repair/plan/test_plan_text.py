"""The text of a plan: its description, a summary of its steps, its loss."""

from __future__ import annotations

from rmqstore.documents.content import Zeros
from rmqstore.documents.plan import Loss, Plan
from rmqstore.documents.steps import Create, Discard, MakeDirectory, Step
from rmqstore.repair.plan.plan_text import describe
from tests.repair.plans import HASH, full


def test_description_begins_with_the_loss() -> None:
    lines = describe(full())
    assert lines[:4] == [
        "Lost: 3 messages of 2 topics, 500 bytes.",
        "  A/0: 1 message",
        "  A/1: 1 message",
        "  B/0: 1 message",
    ]
    assert lines[4:] == [
        "Note: a note",
        "Needs a decision: too much",
        f"  --force {full().digest} accepts it",
        "Cures: CL-BODY-CRC",
        "9 steps in /store:",
        "  move commitlog/stray into quarantine (in the way)",
        "  remove empty directory consumequeue/E/",
        "  make directory consumequeue/N/",
        "  create index/1: 400 bytes (new)",
        "  create /disk2/cl/0: 5 bytes",
        "  overwrite commitlog/0 at 10: 3 bytes (why)",
        "  overwrite commitlog/0 at 13: 7 bytes with zeros",
        "  truncate consumequeue/T/0/0 from 100 to 20 bytes",
        "  extend consumequeue/T/0/1 from 100 to 200 bytes",
        "Saved to lost+found: 1 damaged span, 3 bytes",
    ]


def test_a_grouped_description_counts_the_parts_of_the_store() -> None:
    queues = (Create(f"consumequeue/T/{n % 3}/{n:020}", 20, Zeros(20), None, "rebuilt") for n in range(12))
    index: tuple[Step, ...] = (Discard("index/1", HASH), Create("index/1", 20, Zeros(20), None, "rebuilt"))
    steps: tuple[Step, ...] = (*queues, *index, Discard("abort", HASH))
    lines = describe(Plan("/store", steps), grouped=True)
    assert lines == [
        "No data will be lost.",
        "15 steps in /store (-v lists them):",
        "  move 1 other file into quarantine",
        "  rebuild 3 consume queues",
        "  rebuild 1 index file",
    ]


def test_description_of_a_large_plan_is_summed_up() -> None:
    steps = tuple(Create(f"consumequeue/T/{n % 3}/{n:020}", 20, Zeros(20), None, "rebuilt") for n in range(1000))
    lines = describe(Plan("/store", steps), limit=3)
    assert lines == [
        "No data will be lost.",
        "1,000 steps in /store:",
        "  create x 334 in consumequeue/T/0/: 6,680 bytes (rebuilt)",
        "  create x 333 in consumequeue/T/1/: 6,660 bytes (rebuilt)",
        "  create x 333 in consumequeue/T/2/: 6,660 bytes (rebuilt)",
    ]


def test_description_of_steps_in_many_directories_is_summed_up_per_part_of_the_store() -> None:
    made = (MakeDirectory(f"consumequeue/T{n}") for n in range(9))
    files = (Create(f"consumequeue/T{n}/0/{0:020}", 20, Zeros(20), None, "new") for n in range(900))
    steps: tuple[Step, ...] = (*made, *files)
    lines = describe(Plan("/store", steps), limit=3)
    assert lines[1:] == [
        "909 steps in /store:",
        "  create x 900 in consumequeue/: 18,000 bytes (new)",
        "  make-directory x 9 in consumequeue/",
    ]


def test_description_of_more_kinds_of_steps_than_are_shown_is_cut() -> None:
    steps = tuple(Create(f"index/{n}", 20, Zeros(20), None, f"why {n}") for n in range(4))
    lines = describe(Plan("/store", steps), limit=2)
    assert lines[2:] == [
        "  create x 1 in index/: 20 bytes (why 0)",
        "  create x 1 in index/: 20 bytes (why 1)",
        "  … and 2 more steps in 2 more kinds",
    ]


def test_description_of_many_lost_queues_is_cut() -> None:
    loss = Loss(210, 1, {f"T/{n}": n for n in range(1, 31)})
    lines = describe(Plan("/store", (), loss=loss))
    assert lines[0] == "Lost: 210 messages of 1 topic, 1 byte."
    assert lines[1] == "  T/30: 30 messages" and lines[21] == "  … and 10 more queues"
    assert lines[22:] == ["Nothing to do."]


def test_summaries_hold_no_contents() -> None:
    assert full().summaries()[0] == {"do": "overwrite", "path": "commitlog/0", "at": 10, "length": 3, "why": "why"}
    assert full().summaries()[6] == {"do": "make-directory", "path": "consumequeue/N", "why": ""}


def test_loss_is_reported_with_what_the_planner_adds() -> None:
    assert full().loss.to_json() == {
        "messages": 3,
        "bytes": 500,
        "queues": {"A/0": 1, "A/1": 1, "B/0": 1},
        "visible_fillers": 1,
        "groups": {"G": 1},
    }
