"""`rmqstore pipeline`: the jobs of rmqstore.spark on the command line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqstore.cli.printing.output import Output, Progress
from rmqstore.cli.printing.quantities import Size, Time, bytes_text, many
from rmqstore.cli.printing.table_output import write_rows
from rmqstore.cli.shared.options import SINCE, command, config_option, gathered
from rmqstore.errors import UsageError

if TYPE_CHECKING:
    from rmqstore.spark.jobs.jobs import JobResult

JOBS = ("export", "verify", "crosscheck", "rebuild", "du", "compare", "sql")
_NEEDS_OUTPUT = ("export", "rebuild")
_ROWS = 1000
_FINDINGS = 20
_TOP = 10


@dataclass(frozen=True, slots=True)
class Session:
    """The Spark session to open."""

    master: str | None
    settings: tuple[str, ...]
    py_files: str | None

    def spark_settings(self) -> dict[str, str]:
        """Errors: UsageError for a setting that is not KEY=VALUE."""
        given = dict(_pair(text) for text in self.settings)
        return given | ({"spark.submit.pyFiles": self.py_files} if self.py_files else {})


@dataclass(frozen=True, slots=True)
class JobOptions:
    """Options of the jobs."""

    body: str | None
    topics: tuple[str, ...]
    since: int | None
    until: int | None
    quick: bool
    broker: str | None
    split_size: int | None
    fillers: bool


@command(
    "pipeline",
    store=False,
    examples=(
        "rmqstore pipeline verify /data/broker-*/store --json",
        "rmqstore pipeline export /data/rocketmq/store --output /lake/messages --body plain",
        'rmqstore pipeline sql "select topic, count(*) from messages group by topic" /data/rocketmq/store',
    ),
)
@click.argument("job", type=click.Choice(JOBS), metavar="JOB")
@click.argument("stores", nargs=-1, metavar="STORE...")
@click.option("--master", metavar="URL", help="Spark master: spark://…, yarn or k8s://… (default: local[*], embedded).")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Spark setting (may be repeated).")
@click.option("--py-files", metavar="FILES", help="Zip with rmqstore, for executors without it.")
@click.option(
    "-o",
    "--output",
    "target",
    metavar="DIR",
    help="Output directory of export and rebuild; directory for the rows of sql and crosscheck as Parquet.",
)
@config_option("broker.conf for all stores.")
@click.option(
    "--body", type=click.Choice(["plain", "raw"]), help="Include bodies: decompressed (plain), or as stored (raw)."
)
@click.option("--topic", "topics", multiple=True, metavar="NAME", help="export, du: only this topic (may be repeated).")
@click.option("--since", type=Time(), help="export, du: " + SINCE)
@click.option("--until", type=Time(), help="export, du: only messages stored before this time.")
@click.option("--quick", is_flag=True, help="verify, crosscheck: do not check body CRCs.")
@click.option("--broker", metavar="VERSION", help="verify: broker version whose start-up to forecast.")
@click.option("--split-size", type=Size(), metavar="SIZE", help="Bytes per task (default: 64M; export: 256M).")
@click.option(
    "--fillers",
    is_flag=True,
    help="export, du, sql: include records that repairs put in the place of lost messages.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
@gathered("session", Session)
@gathered("asked", JobOptions)
def pipeline(
    out: Output,
    job: str,
    stores: tuple[str, ...],
    session: Session,
    target: str | None,
    broker_conf: Path | None,
    asked: JobOptions,
) -> int:
    """Run a job on many stores, or on very large ones, with Spark.

    JOB is export, verify, rebuild, du, compare or sql, with the same results as the local commands, or crosscheck,
    which compares the log with the consume queues. STORE is a path, a quoted glob, or @FILE with one path per line;
    executors read the same paths from a shared file system. Without --master, the job runs on this machine. sql takes
    its query before the stores; its views are messages, consumequeue, indexfile, dledger, consumer_offsets,
    pop and findings. compare compares the first store with each of the others, and names the stores that can heal a
    damaged one.
    """
    query, stores = _query(job, stores)
    if not stores:
        raise UsageError(f"{job} needs at least one STORE", f"rmqstore pipeline {job} STORE")
    if job in _NEEDS_OUTPUT and target is None:
        raise UsageError(f"{job} needs --output DIR", f"rmqstore pipeline {job} STORE --output DIR")
    from rmqstore.spark.session import open_session

    with out.progress(job, None, "B") as progress:
        spark = open_session(session.master, session.spark_settings())
        try:
            work = _Work(out, spark, list(stores), broker_conf, progress)
            if job == "sql":
                return work.sql(query, asked, target)
            result = work.run(job, target or "", asked)
        finally:
            progress.hide()
            spark.stop()
    if out.as_json:
        out.report(result.to_json())
    else:
        out.lines(_text(result))
    return result.exit_code


def _query(job: str, words: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """(the query of sql, "" for other jobs; the stores)."""
    if job != "sql":
        return "", words
    if not words or not words[0].strip():
        raise UsageError("sql needs a query", 'rmqstore pipeline sql "select …" STORE')
    return words[0], words[1:]


def _pair(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not sign or not key:
        raise UsageError(f"--set {text} is not KEY=VALUE", "--set spark.executor.memory=4g")
    return key, value


class _Work:
    """One job in one session."""

    def __init__(self, out: Output, spark: Any, stores: list[str], config: Path | None, progress: Progress) -> None:
        self.out = out
        self.spark = spark
        self.stores = stores
        self.config = config
        self.progress = progress

    def run(self, job: str, target: str, asked: JobOptions) -> JobResult:
        """Run a job other than sql."""
        from rmqstore.checks.verify import VerifyOptions
        from rmqstore.spark.jobs import jobs
        from rmqstore.spark.jobs.jobs import WHOLE_BELOW, Tasks
        from rmqstore.views.dump.selection import Selection

        where: dict[str, Any] = {"config": self.config, "progress": self.progress}
        split = asked.split_size
        # --split-size applies to small stores, too
        tasks = None if split is None else Tasks(min(split, WHOLE_BELOW), split)
        if job in ("verify", "crosscheck"):
            options = VerifyOptions(quick=asked.quick, broker=asked.broker or "", split_size=split)
            run = jobs.verify if job == "verify" else jobs.crosscheck
            result = run(self.spark, self.stores, options=options, tasks=tasks, **where)
            if job == "crosscheck" and target:
                from rmqstore.spark.jobs.crosscheck import crosscheck_rows

                crosscheck_rows(self.spark, self.stores, config=self.config).write.parquet(target)
            return result
        if job == "du":
            topics = frozenset(asked.topics)
            wanted = Selection(topics=topics, since=asked.since, until=asked.until, fillers=asked.fillers)
            return jobs.du(
                self.spark,
                self.stores,
                selection=wanted,
                split_size=split,
                tasks=tasks,
                **where,
            )
        if job == "compare":
            from rmqstore.spark.jobs.compare import compare

            return compare(self.spark, self.stores, split_size=split, **where)
        if job == "rebuild":
            from rmqstore.spark.jobs.rebuild import rebuild

            return rebuild(self.spark, self.stores, Path(target), split_size=split, **where)
        from rmqstore.spark.jobs.export import ExportJob, export

        wished = ExportJob(asked.body or "", asked.topics, asked.since, asked.until, asked.fillers)
        if split is not None:
            wished = replace(wished, split_bytes=split)
        return export(self.spark, self.stores, target, wished, **where)

    def sql(self, query: str, asked: JobOptions, target: str | None) -> int:
        """Write the rows of a query as a table, as one JSON object, or as Parquet; return the exit code."""
        from rmqstore.spark.jobs.views import sql

        frame, lost = sql(
            self.spark,
            query,
            self.stores,
            config=self.config,
            body=asked.body or "",
            fillers=asked.fillers,
            progress=self.progress,
        )
        for store in lost:
            self.out.note(f"warning: {store['error']}")
        code = 4 if lost else 0
        if target:
            frame.write.parquet(target)
            self.out.note(f"rows written to {target}")
            return code
        rows = [list(row) for row in frame.limit(_ROWS + 1).collect()]
        more = len(rows) > _ROWS
        shown = [dict(zip(frame.columns, map(_plain, row), strict=True)) for row in rows[:_ROWS]]
        if self.out.as_json:
            head: dict[str, Any] = {"schema": "rmqstore.pipeline.sql/1", "columns": frame.columns, "rows": shown}
            self.out.report(head | {"more": more, "stores": lost})
        else:
            write_rows(replace(self.out, format="table"), shown, tuple(frame.columns))
            if not shown:
                self.out.note("note: the query returned no rows")
            if more:
                self.out.note(f"note: only the first {_ROWS:,} rows; --output DIR writes all of them as Parquet")
        return code


def _plain(value: Any) -> Any:
    """Return a cell converted for JSON; bytes as hex."""
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)


def _text(result: JobResult) -> Iterator[str]:
    for store in result.stores:
        if "error" in store:
            yield f"{store['store']}: not read: {store['error']}"
            continue
        yield from _STORE_TEXT[result.job](store)
        for text in store.get("unchecked") or ():
            yield f"  not checked: {text}"
    for damaged in result.more.get("heal", ()):
        yield from _heal_text(damaged)
    if result.job == "export":
        more = result.more
        yield f"{more['output']}: {many(more['written'], 'segment')} written of {more['segments']:,}"
    yield f"{many(len(result.stores), 'store')}, {result.seconds:.1f} s"


def _verify_text(store: dict[str, Any]) -> Iterator[str]:
    from rmqstore.checks.problems.table import PROBLEMS, Severity

    found = any(PROBLEMS[code].severity >= Severity.WARNING for code in store["counts"])
    state = "clean" if store["clean"] else "problems" if found else "not completely checked"
    yield f"{store['store']}: {state}, {many(store['messages'], 'message')}"
    if store.get("verdict"):
        yield f"  {store['verdict']}"
    for code, n in store["counts"].items():
        yield f"  {code}: {n:,}"
    for finding in [f for f in store["findings"] if f["severity"] != "note"][:_FINDINGS]:
        yield f"    {finding['code']} {finding['queue']} {finding['file']} at {finding['offset']:,}"


def _du_text(store: dict[str, Any]) -> Iterator[str]:
    yield f"{store['store']}: {many(store['messages'], 'message')}, {bytes_text(store['bytes'])}"
    for row in store["by"]["topic"][:_TOP]:
        yield f"  {row['topic']}: {many(row['messages'], 'message')}, {bytes_text(row['bytes'])}"
    if store["damaged_spans"]:
        yield f"  {many(store['damaged_spans'], 'damaged span')} skipped"


def _export_text(store: dict[str, Any]) -> Iterator[str]:
    yield f"{store['store']}: {many(store['messages'], 'message')} exported"
    if store["damaged_messages"]:
        yield f"  {many(store['damaged_messages'], 'message')} of them with a wrong CRC (crc_ok is false)"
    if store["damaged_spans"]:
        lost = f"{many(store['damaged_spans'], 'damaged span')} ({bytes_text(store['damaged_bytes'])}) skipped"
        yield f"  {lost}; `rmqstore pipeline verify` shows why"
        for log, start, stop, why in store["spans"][:_TOP]:
            yield f"    {log} {start:,} to {stop:,}: {why}"


def _rebuild_text(store: dict[str, Any]) -> Iterator[str]:
    yield f"{store['store']}: {many(store['queues'], 'queue')}, {many(store['files'], 'file')} in {store['output']}"
    for note in store["notes"]:
        yield f"  {note}"


_COMPARE_WORDS = {
    "damaged_in_other": "damaged here",
    "damaged_in_store": "damaged in the first store",
    "changed": "different content",
}


def _compare_text(store: dict[str, Any]) -> Iterator[str]:
    yield f"{store['store']}: {store['relation']} ({many(store['equal_messages'], 'equal message')})"
    if store["first_divergence"] is not None:
        yield f"  first difference: {store['first_divergence']['log']}, offset {store['first_divergence']['offset']:,}"
        for name, words in _COMPARE_WORDS.items():
            if store[name]["messages"]:
                yield f"  {words}: {many(store[name]['messages'], 'message')}"
        yield f"  only in this store: {many(store['only_in_other']['messages'], 'message')}"
        yield f"  missing in this store: {many(store['only_in_store']['messages'], 'message')}"


def _heal_text(damaged: dict[str, Any]) -> Iterator[str]:
    yield f"{damaged['store']}: {many(damaged['places'], 'damaged place')} in the log"
    for offer in damaged["replicas"]:
        yield f"  {offer['replica']} has {offer['places']:,} of them, {bytes_text(offer['bytes'])}: {offer['command']}"
    for replica, reason in damaged["refused"].items():
        yield f"  {replica} cannot help: {reason}"


_STORE_TEXT = {
    "verify": _verify_text,
    "crosscheck": _verify_text,
    "du": _du_text,
    "export": _export_text,
    "rebuild": _rebuild_text,
    "compare": _compare_text,
}
