"""Run the local commands and the Spark jobs on the same stores, and bring their results into a comparable form."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

ROOT = Path(__file__).resolve().parent.parent
JOBS = ("verify", "crosscheck", "du", "export", "rebuild", "compare")
QUEUES = ("consumequeue", "batchconsumequeue")


@dataclass(frozen=True, slots=True)
class Stores:
    """A sound store, a damaged copy of it, and a view of the sound one without consume queues."""

    sound: Path
    damaged: Path
    bare: Path
    conf: Path  # a broker.conf with the size of consume queue files, which `bare` cannot show

    @property
    def both(self) -> tuple[Path, Path]:
        """The stores on which all jobs run, except compare and rebuild."""
        return self.sound, self.damaged


@dataclass(slots=True)
class Answers:
    """Results of all jobs, in a comparable form, and the seconds that each job took; both by job."""

    results: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def take(self, job: str, ask: Callable[[], Any]) -> None:
        """Run `ask`, and keep its result and its duration as those of `job`."""
        began = time.perf_counter()
        self.results[job] = ask()
        self.seconds[job] = time.perf_counter() - began


def linked(store: Path, target: Path, copied: tuple[str, ...]) -> Path:
    """Create a store in `target` that links to all parts of `store`, except its consume queues.

    The directories in `copied` are copied, so that they can be changed; consume queues that are not in it are left out.
    """
    target.mkdir(parents=True)
    for entry in store.iterdir():
        if entry.name in copied:
            shutil.copytree(entry, target / entry.name)
        elif entry.name == "checkpoint":
            shutil.copy(entry, target / entry.name)
        elif entry.name not in (*QUEUES, ".rmqstore", "lock"):
            (target / entry.name).symlink_to(entry)
    return target


# --- the local side --------------------------------------------------------------------------------------------------


def _command(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a local command; if it refuses a loss of damaged messages (exit code 5), run it again with `--force`."""
    command = [sys.executable, "-m", "rmqstore", *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, env=environment
    )
    digest = re.search(r"--force ([0-9a-f]+)", done.stderr)
    if done.returncode == 5 and digest and "--force" not in words:
        return _command(*words, "--force", digest[1])
    if done.returncode not in (0, 1, 4):
        raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}: {done.stderr.strip()}")
    return done


def _json(*words: str | Path) -> dict[str, Any]:
    done = _command(*words, "--json")
    return {**json.loads(done.stdout), "exit": done.returncode}


def local_answers(stores: Stores, work: Path) -> Answers:
    """Run the local commands, and return their results."""
    out = Answers()
    reports: list[dict[str, Any]] = []
    out.take("verify", lambda: reports.extend(_json("verify", s) for s in stores.both))
    out.results["verify"] = [_report(r) for r in reports]
    out.results["crosscheck"] = [_cross(r) for r in reports]
    out.take("du", lambda: [_usage(_json("du", s)) for s in stores.both])
    out.take("export", lambda: [_local_export(s, work / "local.parquet") for s in stores.both])
    out.take("rebuild", lambda: [_local_rebuild(s, work / "copy", stores.conf) for s in (stores.bare, stores.damaged)])
    out.take("compare", lambda: _comparison(_json("compare", stores.sound, stores.damaged)))
    return out


def _local_export(store: Path, target: Path) -> Any:
    import pyarrow.parquet as pq

    code = _command("export", store, "--positions", "-o", target, "-q").returncode
    rows = _rows(pq.ParquetFile(target).iter_batches(20_000))
    target.unlink()
    return {"exit": code, "rows": rows}


def _local_rebuild(store: Path, copy: Path, conf: Path) -> dict[str, str]:
    linked(store, copy, QUEUES)
    _command("rebuild", copy, "cq", "--apply", "-c", conf)
    found = _tree(copy)
    shutil.rmtree(copy)
    return found


def _tree(root: Path) -> dict[str, str]:
    """Return the SHA-256 of each consume queue file, by relative path."""
    files = (p for folder in QUEUES for p in sorted((root / folder).rglob("*")) if p.is_file())
    return {str(p.relative_to(root)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


# --- Spark -----------------------------------------------------------------------------------------------------------


def spark_answers(spark: Any, stores: Stores, work: Path, split: int) -> Answers:
    """Run the Spark jobs with splits of `split` bytes, and return their results in the form of `local_answers`."""
    from rmqstore.checks.options import VerifyOptions
    from rmqstore.spark import jobs
    from rmqstore.spark.compare import compare

    out = Answers()
    how: dict[str, Any] = {"tasks": jobs.Tasks(0, split)}
    options = VerifyOptions(split_size=split)
    # A job returns the exit code of its worst store: run it on one store at a time, to compare each store's exit code.
    out.take("verify", lambda: [_report(_one(jobs.verify(spark, [s], options=options, **how))) for s in stores.both])
    out.take(
        "crosscheck", lambda: [_cross(_one(jobs.crosscheck(spark, [s], options=options, **how))) for s in stores.both]
    )
    out.take("du", lambda: [_usage(_one(jobs.du(spark, [s], split_size=split, **how))) for s in stores.both])
    out.take("export", lambda: [_spark_export(spark, s, work / "lake", split) for s in stores.both])
    out.take("rebuild", lambda: _spark_rebuild(spark, stores, work / "built", split))
    out.take("compare", lambda: _comparison(_one(compare(spark, [stores.sound, stores.damaged], split_size=split))))
    return out


def _one(result: Any) -> dict[str, Any]:
    (store,) = result.stores
    return {**store, "exit": result.exit_code}


def _spark_export(spark: Any, store: Path, lake: Path, split: int) -> Any:
    import pyarrow as pa
    import pyarrow.dataset as ds

    from rmqstore.spark.export import ExportJob, export

    code = export(spark, [store], lake, ExportJob(body="raw", split_bytes=split)).exit_code
    parts = ds.partitioning(
        pa.schema([("topic", pa.string()), ("day", pa.string()), ("segment", pa.string())]), flavor="hive"
    )
    files = ds.dataset(str(lake), format="parquet", partitioning=parts, exclude_invalid_files=False)
    rows = _rows(files.to_batches(batch_size=20_000))
    shutil.rmtree(lake)
    return {"exit": code, "rows": rows}


def _spark_rebuild(spark: Any, stores: Stores, target: Path, split: int) -> list[dict[str, str]]:
    from rmqstore.spark.rebuild import rebuild

    rebuild(spark, [stores.bare, stores.damaged], target, config=stores.conf, split_size=split)
    found = [_tree(target / f"{number:04d}") for number in range(2)]
    shutil.rmtree(target)
    return found


# --- the comparable form ---------------------------------------------------------------------------------------------


def _sorted(findings: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(f, sort_keys=True) for f in findings)  # the order of findings at one offset may differ


def _report(report: dict[str, Any]) -> dict[str, Any]:
    left = ("schema", "seconds", "store", "clean", "messages")
    return {k: v for k, v in report.items() if k not in left} | {"findings": _sorted(report["findings"])}


def _cross(report: dict[str, Any]) -> dict[str, Any]:
    counts = {c: n for c, n in report["counts"].items() if c.startswith(("CQ-", "BCQ-"))}
    return {"counts": counts, "findings": _sorted([f for f in report["findings"] if f["code"] in counts])}


def _usage(answer: dict[str, Any]) -> dict[str, Any]:
    return {k: answer[k] for k in ("messages", "bytes", "by", "distinct", "exit")}


def _comparison(answer: dict[str, Any]) -> dict[str, Any]:
    names = (
        "equal",
        "relation",
        "common",
        "equal_messages",
        "first_divergence",
        "queues",
        "moved",
        "changed",
        "damaged_in_store",
        "damaged_in_other",
        "damaged_in_both",
        "only_in_store",
        "only_in_other",
        "exit",
    )
    return {name: answer[name] for name in names}


_NUMBERS = ("queue_id", "queue_offset", "flag", "sys_flag", "born_timestamp", "store_timestamp", "reconsume_times")
_TEXTS = ("topic", "born_host", "store_host", "tags", "keys", "unique_key", "msg_id")


def _rows(batches: Iterator[Any]) -> dict[str, Any]:
    """Return the columns of an export without damaged messages, in log order; bodies become CRC-32 and length."""
    import pyarrow as pa

    parts = [_part(batch) for batch in batches if batch.num_rows]
    table = pa.concat_tables(parts).sort_by("offset").combine_chunks() if parts else pa.table({})
    return {name: table.column(name) for name in table.column_names}


def _part(batch: Any) -> Any:
    import pyarrow as pa

    if "crc_ok" in batch.schema.names:  # Spark also exports damaged messages, and marks them in this column
        batch = batch.filter(batch.column("crc_ok"))
    bodies = batch.column("body").to_pylist()
    properties = [orjson.dumps(dict(pairs)).decode() for pairs in batch.column("properties").to_pylist()]
    columns = {name: batch.column(name).cast(pa.int64()) for name in ("offset", "size", *_NUMBERS)}
    columns |= {name: batch.column(name).cast(pa.string()) for name in _TEXTS}
    columns["properties"] = pa.array(properties, pa.string())
    columns["body"] = pa.array([zlib.crc32(b) << 32 | len(b) for b in bodies], pa.uint64())
    return pa.table(columns)


def differences(local: Answers, spark: Answers) -> list[str]:
    """Return one line for each job whose local result differs from Spark's."""
    return [
        f"{job}: local {_short(local.results[job], spark.results[job])}, "
        f"Spark {_short(spark.results[job], local.results[job])}"
        for job in JOBS
        if local.results[job] != spark.results[job]
    ]


def _short(one: Any, other: Any) -> str:
    """Format the first value in `one` that differs from `other`, with the path of keys that leads to it."""
    path = ""
    while isinstance(one, dict | list) and type(one) is type(other):
        if isinstance(one, dict):
            key = next((k for k in one if k not in other or one[k] != other[k]), None)
        else:
            key = next((i for i, v in enumerate(one) if i >= len(other) or v != other[i]), None)
        if key is None or (isinstance(one, dict) and key not in other) or (isinstance(one, list) and key >= len(other)):
            break
        one, other = one[key], other[key]
        path += f"{key}: "
    return path + repr(one)[:300]
