"""`rmqstore pipeline`: the jobs of rmqstore.spark on the command line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqstore.cli.printing.output import Output
from rmqstore.cli.printing.quantities import SIZE, TIME, bytes_text, many
from rmqstore.cli.printing.table_output import write_rows
from rmqstore.cli.shared.help_pages import kept
from rmqstore.cli.shared.options import SINCE, command, config_option, gathered, json_option, renamed
from rmqstore.errors import UsageError
from rmqstore.texts import Placed, Text, joined

if TYPE_CHECKING:
    from rmqstore.spark.jobs import JobResult

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


@renamed(set="--conf")
@command(
    "pipeline",
    store=False,
    examples=(
        "rmqstore pipeline verify /data/broker-*/store --json",
        "rmqstore pipeline export /data/rocketmq/store --output /lake/messages --body plain",
        'rmqstore pipeline sql /data/rocketmq/store "select topic, count(*) from messages group by topic"',
    ),
)
@click.argument("job", type=click.Choice(JOBS), metavar="JOB")
@click.argument("stores", nargs=-1, metavar="STORE...")
@click.option("--master", metavar="URL", help="Spark master: spark://…, yarn or k8s://… (default: local[*], embedded).")
@click.option("--conf", "settings", multiple=True, metavar="KEY=VALUE", help="Spark setting (may be repeated).")
@click.option("--py-files", metavar="FILES", help="Zip with rmqstore, for executors without it.")
@click.option(
    "-o",
    "--output",
    "target",
    metavar="DIR",
    help="Output directory of export and rebuild; directory for the rows of sql and crosscheck as Parquet.",
)
@config_option(Text("broker.conf for all stores."))
@click.option(
    "--body", type=click.Choice(["plain", "raw"]), help="Include bodies: decompressed (plain), or as stored (raw)."
)
@click.option("--topic", "topics", multiple=True, metavar="NAME", help="export, du: only this topic (may be repeated).")
@click.option("--since", type=TIME, help=kept(Text("export, du: {since}", since=SINCE)))
@click.option("--until", type=TIME, help="export, du: only messages stored before this time.")
@click.option("--quick", is_flag=True, help="verify, crosscheck: do not check body CRCs.")
@click.option("--broker", metavar="VERSION", help="verify: broker version whose start-up to forecast.")
@click.option(
    "--split-size",
    type=SIZE,
    metavar="SIZE",
    help="Bytes per task (default: 128M; verify, crosscheck, du: 64M; export: 256M).",
)
@click.option(
    "--fillers", is_flag=True, help="export, du, sql: include records that repairs put in the place of lost messages."
)
@json_option
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
    its query after the stores; its views are messages, consumequeue, indexfile, dledger, consumer_offsets,
    pop and findings. compare compares the first store with each of the others, and names the stores that can heal a
    damaged one.
    """
    query, stores = _query(out, job, stores)
    if not stores:
        raise UsageError(Text("{job} needs at least one STORE", job=job), f"rmqstore pipeline {job} STORE")
    if job in _NEEDS_OUTPUT and target is None:
        raise UsageError(Text("{job} needs --output DIR", job=job), f"rmqstore pipeline {job} STORE --output DIR")
    from rmqstore.spark.failures import failed, is_of_spark, unknown_settings
    from rmqstore.spark.session import session_for

    with out.progress(job, None, "B") as progress, session_for(session.master, session.spark_settings()) as spark:
        try:
            for key in unknown_settings(spark, [key for key, _ in map(_pair, session.settings)]):
                out.note(
                    Text(
                        "note: --conf {key} has no effect: Spark {version} has no such setting",
                        key=key,
                        version=spark.version,
                    )
                )
            where: dict[str, Any] = {"config": broker_conf, "progress": progress}
            if job == "sql":
                from rmqstore.spark.views import sql

                frame, lost = sql(spark, query, list(stores), body=asked.body or "", fillers=asked.fillers, **where)
                return _write_sql(out, frame, lost, target)
            result = _run(spark, job, list(stores), where, target, asked)
        except Exception as error:
            if is_of_spark(error):
                raise failed(error) from None
            raise
        finally:
            progress.hide()
    out.answer(result.to_json(), _text(result), wrap=False)
    return result.exit_code


def _query(out: Output, job: str, words: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """(the query of sql, "" for other jobs; the stores)."""
    if job != "sql":
        return "", words
    if len(words) > 1 and " " in words[0] and " " not in words[-1] and not Path(words[0]).exists():
        out.note(Text("note: the query of `pipeline sql` is after the stores now"))
        return words[0], words[1:]
    if len(words) < 2 or not words[-1].strip():
        raise UsageError(Text("sql needs stores and a query"), 'rmqstore pipeline sql STORE "select …"')
    return words[-1], words[:-1]


def _pair(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not sign or not key:
        raise UsageError(Text("--conf {text} is not KEY=VALUE", text=text), "--conf spark.executor.memory=4g")
    return key, value


def _run(
    spark: Any, job: str, stores: list[str], where: dict[str, Any], target: str | None, asked: JobOptions
) -> JobResult:
    """Run a job other than sql; `where`: broker.conf and progress."""
    from rmqstore.checks.options import VerifyOptions
    from rmqstore.spark import jobs
    from rmqstore.spark.jobs import WHOLE_BELOW, Tasks
    from rmqstore.views.dump.selection import Selection

    split = asked.split_size
    # --split-size applies to small stores, too
    tasks = None if split is None else Tasks(min(split, WHOLE_BELOW), split)
    if job in ("verify", "crosscheck"):
        options = VerifyOptions(quick=asked.quick, broker=asked.broker or "", split_size=split)
        run = jobs.verify if job == "verify" else jobs.crosscheck
        result = run(spark, stores, options=options, tasks=tasks, **where)
        if job == "crosscheck" and target:
            from rmqstore.spark.views import crosscheck_rows

            crosscheck_rows(spark, stores, config=where["config"], split_size=split).write.parquet(target)
        return result
    if job == "du":
        topics = frozenset(asked.topics)
        wanted = Selection(topics=topics, since=asked.since, until=asked.until, fillers=asked.fillers)
        return jobs.du(spark, stores, selection=wanted, split_size=split, tasks=tasks, **where)
    if job == "compare":
        from rmqstore.spark.compare import compare

        return compare(spark, stores, split_size=split, **where)
    assert target is not None
    if job == "rebuild":
        from rmqstore.spark.rebuild import rebuild

        return rebuild(spark, stores, Path(target), split_size=split, **where)
    from rmqstore.spark.export import ExportJob, export

    wished = ExportJob(asked.body or "", asked.topics, asked.since, asked.until, asked.fillers)
    if split is not None:
        wished = replace(wished, split_bytes=split)
    return export(spark, stores, target, wished, **where)


def _write_sql(out: Output, frame: Any, lost: list[dict[str, Any]], target: str | None) -> int:
    """Write the rows of a query as a table, as one JSON object, or as Parquet; return the exit code."""
    for store in lost:
        out.note(Text("warning: {words}", words=store["error"]))
    code = 4 if lost else 0
    if target:
        frame.write.parquet(target)
        out.note(Text("rows written to {target}", target=target))
        return code
    rows = [list(row) for row in frame.limit(_ROWS + 1).collect()]
    more = len(rows) > _ROWS
    shown = [dict(zip(frame.columns, map(_plain, row), strict=True)) for row in rows[:_ROWS]]
    if out.as_json:
        head: dict[str, Any] = {"schema": "rmqstore.pipeline.sql/1", "columns": frame.columns, "rows": shown}
        out.report(head | {"more": more, "stores": lost})
    else:
        write_rows(replace(out, format="table"), shown, tuple(frame.columns))
        if not shown:
            out.note(Text("note: the query returned no rows"))
        if more:
            words = Text("note: only the first {rows:,} rows; --output DIR writes all of them as Parquet")
            out.note(words.format(rows=_ROWS))
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
            yield Text("{store}: not read: {error}", store=store["store"], error=store["error"])
            continue
        yield from _STORE_TEXT[result.job](store)
        for text in store.get("unchecked") or ():
            yield Text("  not checked: {text}", text=text)
    for damaged in result.more.get("heal", ()):
        yield from _heal_text(damaged)
    if result.job == "export":
        output, written, count = result.more["output"], result.more["written"], result.more["segments"]
        segments = many(written, "segment")
        yield Text("{output}: {segments} written of {all:,}", output=output, segments=segments, all=count)
    yield Placed("{stores}, {seconds:.1f} s", stores=many(len(result.stores), "store"), seconds=result.seconds)


def _verify_text(store: dict[str, Any]) -> Iterator[str]:
    from rmqstore.checks.problems.table import PROBLEMS, Severity

    found = any(PROBLEMS[code].severity >= Severity.WARNING for code in store["counts"])
    state = Text("clean") if store["clean"] else Text("problems") if found else Text("not completely checked")
    yield joined((Placed("{store}: {state}", store=store["store"], state=state), many(store["messages"], "message")))
    if store.get("verdict"):
        yield Placed("  {verdict}", verdict=store["verdict"])
    for code, n in store["counts"].items():
        yield f"  {code}: {n:,}"
    for finding in [f for f in store["findings"] if f["severity"] != "note"][:_FINDINGS]:
        names = ("code", "queue", "file", "offset")
        yield Text("    {code} {queue} {file} at {offset:,}", **{name: finding[name] for name in names})


def _du_text(store: dict[str, Any]) -> Iterator[str]:
    yield _sizes(store["store"], store)
    for row in store["by"]["topic"][:_TOP]:
        yield Placed("  {sizes}", sizes=_sizes(row["topic"], row))
    if store["damaged_spans"]:
        yield Text("  {spans} skipped", spans=many(store["damaged_spans"], "damaged span"))


def _sizes(name: str, row: dict[str, Any]) -> Text:
    count, size = many(row["messages"], "message"), bytes_text(row["bytes"])
    return Placed("{name}: {messages}, {bytes}", name=name, messages=count, bytes=size)


def _export_text(store: dict[str, Any]) -> Iterator[str]:
    yield Text("{store}: {messages} exported", store=store["store"], messages=many(store["messages"], "message"))
    if store["damaged_messages"]:
        wrong = many(store["damaged_messages"], "message")
        yield Text("  {messages} of them with a wrong CRC (crc_ok is false)", messages=wrong)
    if store["damaged_spans"]:
        spans, size = many(store["damaged_spans"], "damaged span"), bytes_text(store["damaged_bytes"])
        lost = Text("{spans} ({bytes}) skipped", spans=spans, bytes=size)
        yield Text("  {lost}; `rmqstore pipeline verify` shows why", lost=lost)
        for log, start, stop, why in store["spans"][:_TOP]:
            yield Text("    {log} {start:,} to {stop:,}: {why}", log=log, start=start, stop=stop, why=why)


def _rebuild_text(store: dict[str, Any]) -> Iterator[str]:
    name, queues, files = store["store"], many(store["queues"], "queue"), many(store["files"], "file")
    yield Text("{store}: {queues}, {files} in {output}", store=name, queues=queues, files=files, output=store["output"])
    for note in store["notes"]:
        yield Placed("  {note}", note=note)


_COMPARE_WORDS = {
    "damaged_in_other": Text("damaged here"),
    "damaged_in_store": Text("damaged in the first store"),
    "changed": Text("different content"),
}


def _compare_text(store: dict[str, Any]) -> Iterator[str]:
    name, relation, equal = store["store"], store["relation"], many(store["equal_messages"], "equal message")
    yield Placed("{store}: {relation} ({messages})", store=name, relation=relation, messages=equal)
    if (first := store["first_divergence"]) is not None:
        yield Text("  first difference: {log}, offset {offset:,}", log=first["log"], offset=first["offset"])
        for name, words in _COMPARE_WORDS.items():
            if store[name]["messages"]:
                yield Placed("  {words}: {messages}", words=words, messages=many(store[name]["messages"], "message"))
        yield Text("  only in this store: {messages}", messages=many(store["only_in_other"]["messages"], "message"))
        yield Text("  missing in this store: {messages}", messages=many(store["only_in_store"]["messages"], "message"))


def _heal_text(damaged: dict[str, Any]) -> Iterator[str]:
    yield Text("{store}: {places} in the log", store=damaged["store"], places=many(damaged["places"], "damaged place"))
    for offer in damaged["replicas"]:
        words = Text("  {replica} has {places:,} of them, {bytes}: {command}")
        yield words.format(**{**offer, "bytes": bytes_text(offer["bytes"])})
    for replica, reason in damaged["refused"].items():
        yield Text("  {replica} cannot help: {reason}", replica=replica, reason=reason)


_STORE_TEXT = {
    "verify": _verify_text,
    "crosscheck": _verify_text,
    "du": _du_text,
    "export": _export_text,
    "rebuild": _rebuild_text,
    "compare": _compare_text,
}
