"""Real JSON output of every command on sound and damaged real stores, as pairs (file name of the schema, object)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqstore.json_reference import schema_of
from tests import damage
from tests.cli.cluster import Cluster
from tests.command import run
from tests.receiving.fake_master import FakeMaster, log_of

Document = tuple[str, Any]


def documents(name: str, *words: str | Path) -> Iterator[Document]:
    """Run `rmqstore WORDS…`, and yield the objects that it prints: one, or one per line."""
    result = run(*map(str, words))
    assert result.exit_code in (0, 1, 2, 3, 4, 5), f"{words}: {result.exit_code} {result.output}\n{result.exception!r}"
    for line in result.stdout.splitlines():
        document = json.loads(line)
        yield "error" if set(document) == {"error"} else name, document


def schema_problems(found: Iterable[Document]) -> tuple[set[str], list[str]]:
    """Return the names of the schemas that were used, and the places where output violates them."""
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed (the extra test)")
    names: set[str] = set()
    out: dict[str, None] = {}
    validators: dict[str, Any] = {}
    seen: set[tuple[str, object]] = set()
    for name, document in found:
        names.add(name)
        kind = name, _shape(document)
        if kind in seen:  # many rows have the same shape, and a schema constrains no value except that of `schema`
            continue
        seen.add(kind)
        if name not in validators:
            validators[name] = jsonschema.Draft202012Validator(schema_of(name))
        for error in validators[name].iter_errors(document):
            for one in error.context or [error]:
                out[f"{name} {re.sub('[0-9]+', 'N', one.json_path)}: {one.message[:200]}"] = None
    return names, list(out)


def _shape(value: object) -> object:
    """Return the names and types in a document, and the value of `schema`."""
    if isinstance(value, dict):
        return frozenset((key, one if key == "schema" else _shape(one)) for key, one in value.items())
    if isinstance(value, list):
        return list, frozenset(map(_shape, value))
    return type(value)


def damaged(store: Path) -> Path:
    """Damage the logs, queues, index, configuration and checkpoint of a copied store."""
    for log in [*store.glob("commitlog/*"), *store.glob("dledger-*/data/*")]:
        damage.garble(log, 3000, 500)
        damage.flip(log, 9000)
    for queue in sorted(store.glob("consumequeue/*/*/*"))[:3]:
        damage.garble(queue, 40, 20)
    for index in store.glob("index/*"):
        damage.zero(index, 40, 2000)
    (store / "config" / "topics.json").write_text("{")
    damage.garble(store / "checkpoint", 0, 24)
    if (store / "commitlog").is_dir():
        (store / "commitlog" / "notes.txt").write_text("x")
    return store


def reading(store: Path, other: Path, folder: Path) -> Iterator[Document]:
    """Yield the output of commands that change nothing."""
    for command in ("info", "verify", "lost", "du", "journals", "pending", "doctor"):
        yield from documents(command, command, store, "--json")
    yield from documents("verify", "verify", store, "--quick", "--broker", "4.9.7", "--json")
    yield from documents("lost-rows", "lost", store, "--format", "ndjson")
    yield from documents("lost-stale", "lost", store, "--stale", "--json")
    yield from documents("lost-stale-rows", "lost", store, "--stale", "--format", "ndjson")
    findings = folder / "findings.ndjson"
    run("verify", str(store), "--findings-out", str(findings))
    yield from (("verify-findings", json.loads(line)) for line in findings.read_text().splitlines())
    yield from documents("du", "du", store, "--by", "topic", "--by", "hour", "--json")
    yield from documents("du", "du", store, "--files", "--json")
    from rmqstore.cli import dump

    for what in (*dump.MESSAGES, *dump.UNITS, *dump.SMALL):
        row = f"dump-{'messages' if what == 'commitlog' else what}"
        yield from documents(row, "dump", store, "--what", what, "--format", "ndjson")
    for body in ("text", "json", "hex", "base64"):
        yield from documents("dump-messages", "dump", store, "--body", body, "--format", "ndjson", "--limit", "60")
    yield from documents("dump-positions", "dump", store, "--positions", "--format", "ndjson")
    for more in ((), ("--no-body",), ("--text", "--decode", "--offsets")):
        yield from documents("export", "export", store, "--format", "ndjson", *more)
    rows = [row for _, row in documents("", "dump", store, "--format", "ndjson", "--limit", "40")]
    rows += [row for _, row in documents("", "dump", store, "--reverse", "--format", "ndjson", "--limit", "40")]
    for row in rows[::20]:
        yield from documents("get", "get", store, str(row["offset"]), "--json")
        yield from documents("find", "find", store, row["unique_key"] or str(row["offset"]), "--json")
    yield from documents("get", "get", store, "0/0/99", "--json")
    yield from documents("find", "find", store, "NOTHING", "--json")
    yield from documents("find", "find", store, "--grep", ".", "--limit", "300", "--body", "text", "--json")
    yield from documents("bundle", "bundle", store, "-o", folder / f"{store.name}.tar.gz", "--json")
    yield from documents("compare", "compare", store, other, "--json")
    for number, side in enumerate((store, other)):
        mark = folder / f"{store.name}-{number}.fingerprint"
        yield from documents("fingerprint", "compare", side, "--fingerprint-out", mark, "--json")
        yield "fingerprint", json.loads(mark.read_text())
        yield from documents("compare", "compare", store, "--against", mark, "--json")


def making(store: Path, folder: Path) -> Iterator[Document]:
    """Yield the output of commands that create something new."""
    kept = folder / "messages.ndjson"
    run("export", str(store), "-o", str(kept))
    yield from documents("import", "import", kept, "-o", folder / "imported", "--dry-run", "--json")
    yield from documents("import", "import", kept, "-o", folder / "imported", "--json")
    cluster = Cluster(folder / "rocketmq")
    cluster.order(answers={"k1": "R"}, queues={"Pay_11_Topic": 0})
    for mode in (("--dry-run",), ("--journal", folder / "send.journal")):
        yield from documents("send", "send", store, *cluster.words, *mode, "--json")
    for more in (("--dry-run",), ()):
        words = ("migrate-to-commitlog", store, "--output", folder / "plain", *more, "--json")
        yield from documents("migrate-to-commitlog", *words)
    yield from documents("seed", "seed", store, folder / "seeded", "--role", "slave", "--json")
    repository = folder / "repository"
    yield from documents("backup", "backup", store, repository, "--name", "a", "--json")
    yield from documents("snapshots", "snapshots", repository, "--check", "--json")
    for log in (log_of(50), bytearray()):
        with FakeMaster(log) as master:
            words = (master.address, folder / "received", "--name", f"of-{len(log)}", "--until-caught-up")
            yield from documents("receive", "receive", *words, "--json")
    for more in (("--dry-run",), ()):
        yield from documents("restore", "restore", f"{repository}::a", folder / "restored", *more, "--json")


def changing(store: Path, folder: Path) -> Iterator[Document]:
    """Yield the output of commands that change a store: plan, apply, undo."""
    plan = folder / "plan.json"
    for command in (
        ("recover",),
        ("recover", "--strategy", "truncate"),
        ("rebuild", "cq"),
        ("rebuild", "index"),
        ("expire",),
        ("migrate-to-dledger", "--self-id", "n0"),
    ):
        words = (command[0], store, *command[1:])
        plan.unlink(missing_ok=True)
        yield from documents(command[0], *words, "--plan-out", plan, "--json")
        if plan.exists():
            yield "plan", json.loads(plan.read_text())
            made = json.loads(plan.read_text())
            force = ("--force", made["digest"]) if made["brakes"] else ()
            for name, answer in documents(command[0], *words, "--apply", *force, "--json"):
                yield name, answer
                if answer.get("journal"):
                    yield from documents("info", "info", store, "--json")
                    yield from documents("lost", "lost", store, "--journal", answer["journal"], "--json")
                    yield from documents("journals", "journals", store, "--prune", "--keep-last", "0", "--json")
                    yield from documents("resume", "resume", answer["journal"], "--json")
                    yield from documents("undo", "undo", answer["journal"], "--json")
