"""The Spark jobs have the same results as the local commands, on sound and on damaged stores."""

from __future__ import annotations

import json
import os
import pickle
import shlex
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import StreamingQueryException

from rmqstore.checks.examine import verify as verify_here
from rmqstore.checks.options import VerifyOptions
from rmqstore.cli.pipeline import _text
from rmqstore.errors import OutputExists, UsageError
from rmqstore.files.broker_config import BrokerConfig
from rmqstore.files.store import open_store
from rmqstore.spark import jobs
from rmqstore.spark.compare import compare
from rmqstore.spark.export import STATE, ExportJob, _entry, export, segments_of
from rmqstore.spark.output_files import Folder, PieceResult, move_files, write_partitions
from rmqstore.spark.rebuild import _assumed, rebuild
from rmqstore.spark.views import crosscheck_rows, load, sql
from rmqstore.views.compare import compare as compare_here
from rmqstore.views.dump.messages import Skipped
from rmqstore.views.stores import StoreRef
from rmqstore.views.tables import ReadOptions
from rmqstore.views.usage import usage
from tests import damage
from tests.command import run_json
from tests.damage import overwrite
from tests.planning import log_of
from tests.repair.salvaging import rows
from tests.spark.stores import (
    NAMES,
    conf_file,
    damaged_copy,
    first_log_file,
    local_rows,
    read_export,
    settings_of,
    without_queues,
)
from tests.stores import copy_store, unpack
from tests.untouched import file_bytes

STORE = "5.4.0-killed"

WHOLE, SPLIT = 256 << 20, 0


def local_report(store: Path) -> dict[str, Any]:
    report = verify_here(open_store(store), VerifyOptions(jobs=1, ranges=True)).to_json()
    return {k: v for k, v in report.items() if k not in ("schema", "seconds", "store")}


def same_report(answer: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in answer.items() if k not in ("store", "messages")}


@pytest.mark.parametrize(
    ("whole_below", "split_size", "more"),
    [
        pytest.param(WHOLE, None, ["5.4.0-formats"], marks=pytest.mark.slow),
        pytest.param(SPLIT, 65_536, ["5.4.0-formats"], marks=pytest.mark.slow),
        (SPLIT, 65_536, []),
    ],
)
def test_verify_is_equal_to_the_local_one(
    spark: Any, whole_below: int, split_size: int | None, more: list[str], tmp_path: Path
) -> None:
    stores = [damaged_copy("5.4.0-killed", tmp_path), damaged_copy("5.4.0-dledger-mixed", tmp_path)]
    stores += [unpack(name) for name in more]
    expected = [local_report(store) for store in stores]
    assert sum(len(report["counts"]) for report in expected) > 4
    options = VerifyOptions(split_size=split_size)
    found = jobs.verify(spark, stores, options=options, tasks=jobs.Tasks(whole_below, 1 << 18))
    for answer, report in zip(found.stores, expected, strict=True):
        # findings at the same place may come in another order
        mine, its = same_report(answer), dict(report)
        assert sorted(map(json.dumps, mine.pop("findings"))) == sorted(map(json.dumps, its.pop("findings")))
        assert mine == its
    assert found.exit_code == 1
    assert [s["store"] for s in found.stores] == [str(s) for s in stores]


@pytest.mark.slow  # verify finds the same, and another test covers the output of both
def test_crosscheck_is_equal_to_the_local_findings(spark: Any, tmp_path: Path) -> None:
    store = damaged_copy("5.4.0-killed", tmp_path)
    report = local_report(store)
    found = jobs.crosscheck(spark, [store], tasks=jobs.Tasks(SPLIT), options=VerifyOptions(split_size=65_536))
    wanted = {code: n for code, n in report["counts"].items() if code.startswith(("CQ-", "BCQ-"))}
    assert found.stores[0]["counts"] == wanted
    assert wanted
    assert [f["code"] for f in found.stores[0]["findings"]] == [
        f["code"] for f in report["findings"] if f["code"] in wanted
    ]
    assert found.exit_code == 1


def test_the_join_shows_missing_dangling_and_wrong_units(spark: Any, tmp_path: Path) -> None:
    sound = unpack("5.4.0-clean")
    store = copy_store("5.4.0-clean", tmp_path)
    queue = next(q for q in open_store(store).consume_queues() if q.queue.files and q.label == "Order_11/0")
    path = queue.queue.files[0].path
    raw = bytearray(path.read_bytes())
    raw[0:20] = bytes(20)  # no unit
    raw[20:40] = raw[40:60]  # another message's unit
    end = next(at for at in range(40, len(raw), 20) if not any(raw[at : at + 20]))
    raw[end : end + 20] = raw[40:60]  # a unit that no message asks for
    path.write_bytes(raw)
    rows = crosscheck_rows(spark, [sound, store])
    found = {(r["store"], r["status"], r["queue_offset"]) for r in rows.collect()}
    assert found == {(str(store), "missing", 0), (str(store), "wrong", 1), (str(store), "dangling", end // 20)}


def test_du_is_equal_to_the_local_one(spark: Any, tmp_path: Path) -> None:
    stores = [unpack(name) for name in NAMES] + [damaged_copy("5.4.0-killed", tmp_path)]
    expected = [usage(open_store(store)).to_json(str(store)) for store in stores]
    for whole_below in (WHOLE, SPLIT):
        found = jobs.du(spark, stores, split_size=65_536, tasks=jobs.Tasks(whole_below, 1 << 17))
        for answer, own in zip(found.stores, expected, strict=True):
            assert {k: answer[k] for k in ("store", "messages", "bytes", "fillers", "by", "distinct")} == {
                k: v for k, v in own.items() if k != "schema"
            }
        assert found.more["total"]["messages"] == sum(own["messages"] for own in expected)
        assert found.exit_code == 1  # damage was skipped


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("name", ["5.4.0-dledger-mixed", "5.4.0-formats"])
def test_rebuilt_queues_equal_those_of_the_local_rebuild(spark: Any, name: str, tmp_path: Path) -> None:
    from rmqstore.checks.examine import examine
    from rmqstore.repair.journal.journal import apply
    from rmqstore.repair.rebuild_parts import plan_rebuild

    conf = conf_file(name, tmp_path)
    gone, damaged = without_queues(name, tmp_path, "gone"), damaged_copy(name, tmp_path)
    found = rebuild(spark, [gone, damaged], tmp_path / "out", config=conf, split_size=65_536)
    assert found.exit_code == 0
    for number, store in enumerate((gone, damaged)):
        opened = open_store(store, BrokerConfig(settings_of(name)))
        queues = ("consumequeue", "batchconsumequeue")
        before = file_bytes(store, *queues)
        plan = plan_rebuild(opened, examine(opened, VerifyOptions(jobs=1)), "cq")
        apply(plan)
        after = file_bytes(store, *queues)
        assert after != before
        assert file_bytes(tmp_path / "out" / f"{number:04d}", *queues) == after
    assert not [note for store in found.stores for note in store["notes"] if "assumed" in note]
    with pytest.raises(OutputExists):
        rebuild(spark, [gone], tmp_path / "out", config=conf)


def test_a_rebuild_says_which_file_size_it_assumes(tmp_path: Path) -> None:
    gone, there = without_queues("5.4.0-killed", tmp_path, "gone"), unpack("5.4.0-killed")
    assert ["6,000,000 is assumed" in note for note in _assumed(StoreRef(gone, "s"), frozenset())] == [True]
    assert _assumed(StoreRef(there, "s"), frozenset()) == []


def spark_jobs(spark: Any) -> set[int]:
    return set(spark.sparkContext.statusTracker().getJobIdsForGroup(None))


def test_export_has_every_message_once_and_can_be_run_again(spark: Any, store: Path, tmp_path: Path) -> None:
    out = tmp_path / "lake"
    how = ExportJob(body="raw", segment_bytes=1 << 19, batch_bytes=1 << 19, split_bytes=1 << 17)
    before = spark_jobs(spark)
    first = export(spark, [store], out, how)
    assert len(spark_jobs(spark) - before) == 3  # one for each segment: the log is read once
    expected = local_rows(store)
    wanted = sorted((r["offset"], r["topic"], r["keys"], r["body_length"]) for r in expected)

    def rows() -> list[tuple[Any, ...]]:
        frame = read_export(spark, out)
        return sorted((r["offset"], r["topic"], r["keys"], len(r["body"])) for r in frame.collect())

    assert rows() == wanted
    assert first.stores[0]["messages"] == len(wanted)
    assert first.more["segments"] == first.more["written"] == 3
    assert {p.name for p in out.iterdir() if p.name.startswith("topic=")} >= {"topic=Order_11", "topic=Pay_11_Topic"}
    assert export(spark, [store], out, how).more["written"] == 0
    parts: dict[Path, list[int]] = {}
    for file in sorted(out.rglob("*.parquet")):
        parts.setdefault(file.parent, []).extend(pq.ParquetFile(file).read(["offset"])["offset"].to_pylist())
    assert sum(map(len, parts.values())) == len(wanted)
    assert all(offsets == sorted(offsets) for offsets in parts.values())
    # an entry without counts, as earlier versions wrote it
    state = sorted((out / STATE).glob("*.json"))
    [(name, entry)] = json.loads(state[0].read_text()).items()
    Folder(spark, str(out)).write_json(f"{STATE}/{state[0].name}", {name: {"signature": entry["signature"]}})
    assert export(spark, [store], out, how).more["written"] == 1
    # a kill between the write of a segment and its mark, one in the middle of a write, and one between the moves
    state = sorted((out / STATE).glob("*.json"))
    [name] = json.loads(state[-1].read_text())
    state[-1].unlink()
    left = next(out.glob(f"topic=*/day=*/segment={name}/*.parquet"))
    shutil.copy(left, left.with_name("part-99999-0.zstd.parquet"))
    other = out / "topic=Gone" / left.parent.relative_to(out / left.parts[len(out.parts)])
    shutil.copytree(left.parent, other)
    Folder(spark, str(out)).write_json(".spark-staging-of-a-killed-run/x", {})
    again = export(spark, [store], out, how)
    assert again.more["written"] == 1
    assert rows() == wanted
    assert not list(out.glob(".spark-staging*"))
    assert not list(other.glob("*.parquet"))
    # with other options, everything is exported again, and nothing twice
    assert export(spark, [store], out, replace(how, topics=("Order_11",))).more["written"] == 3
    assert rows() == [row for row in wanted if row[1] == "Order_11"]
    with pytest.raises(OutputExists):
        export(spark, [store], tmp_path)
    with pytest.raises(UsageError):
        export(spark, [store], store / "lake")


@pytest.mark.slow
def test_export_to_a_remote_file_system_has_the_same_rows(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark itself writes to such a target."""
    store, how = damaged_copy("5.4.0-formats", tmp_path), ExportJob(body="plain", segment_bytes=1 << 19)
    here = export(spark, [store], tmp_path / "mounted", how)
    monkeypatch.setattr(Folder, "local", None)
    found = export(spark, [store], tmp_path / "remote", how)
    assert found.stores == here.stores
    assert found.stores[0]["messages"] == len(local_rows(store))
    assert found.stores[0]["damaged_messages"]
    assert found.stores[0]["damaged_spans"]
    mounted, remote = (read_export(spark, tmp_path / name) for name in ("mounted", "remote"))
    assert sorted(mounted.columns) == sorted(remote.columns)
    columns = [name for name in mounted.columns if name != "properties"]  # Spark does not compare maps
    assert dict(mounted.dtypes) == dict(remote.dtypes)
    assert mounted.select(columns).exceptAll(remote.select(columns)).count() == 0
    assert remote.select(columns).exceptAll(mounted.select(columns)).count() == 0
    maps = [{r["offset"]: r["properties"] for r in frame.collect()} for frame in (mounted, remote)]
    assert maps[0] == maps[1]


@pytest.mark.parametrize("topic", ["%RETRY%a/b", "x=y", "a:b*c?d", "中文 topic", ""])
def test_a_topic_can_be_read_back_from_the_directory_of_an_export(spark: Any, tmp_path: Path, topic: str) -> None:
    names = {"topic": topic, "day": "2026-11-23", "segment": "s"}
    batch = pa.record_batch({"crc_ok": [True], "n": [7], **{name: [value] for name, value in names.items()}})
    [written] = write_partitions([batch], tmp_path / "staging", "part-0")
    move_files(tmp_path / "lake", [written])
    [row] = read_export(spark, tmp_path / "lake").collect()
    assert (row["topic"] or "", row["day"], row["segment"], row["n"]) == (topic, "2026-11-23", "s", 7)


def test_rows_are_written_to_their_partitions_in_any_order(tmp_path: Path) -> None:
    def batch(topics: str, days: str, first: int) -> Any:
        numbers = range(first, first + len(topics))
        return pa.record_batch({"n": numbers, "topic": [*topics], "day": [*days], "segment": ["s"] * len(topics)})

    files = list(write_partitions([batch("aabab", "11112", 0), batch("baa", "111", 5)], tmp_path, "part-0"))
    found = {file.parts[-4:-2]: pq.ParquetFile(file).read()["n"].to_pylist() for file in files}
    assert found == {("topic=a", "day=1"): [0, 1, 3, 6, 7], ("topic=b", "day=1"): [2, 5], ("topic=b", "day=2"): [4]}


@pytest.mark.slow  # the next test has the same without Spark
def test_an_export_reports_damaged_spans_and_messages(spark: Any, tmp_path: Path) -> None:
    store, out = damaged_copy("5.4.0-killed", tmp_path), tmp_path / "lake"
    damage = Skipped()
    usage(open_store(store), damage=damage)
    wrong = sum(not row["crc_ok"] for row in local_rows(store))
    assert damage.count
    assert wrong
    how = ExportJob(segment_bytes=1 << 19, split_bytes=1 << 16)
    for written in (3, 0):  # the second run writes nothing, and reports the same
        found = export(spark, [store], out, how)
        assert (found.exit_code, found.more["written"]) == (1, written)
        told = found.stores[0]
        assert (told["damaged_spans"], told["damaged_bytes"]) == (damage.count, damage.bytes)
        assert [tuple(span) for span in told["spans"]] == damage.spans
        assert told["damaged_messages"] == wrong
        assert told["messages"] == len(local_rows(store))
        assert told["clean"] is False
    assert [x for x in _text(found) if "damaged span" in x]


def entries(store: Path, job: ExportJob) -> list[dict[str, Any]]:
    """The list entry of each segment of an export, read without Spark."""
    out = []
    for segment in segments_of(StoreRef(store, "s"), open_store(store), job):
        reports = []
        for piece in segment.pieces:
            report = PieceResult(live=segment.live)
            rows = list(report.read(piece, ReadOptions()))
            assert report.messages == sum(batch.num_rows for batch in rows)
            reports.append(pickle.loads(pickle.dumps(report)))
        out.append(_entry(segment, iter(reports)))
    return out


@pytest.mark.quick_rows(2)
@pytest.mark.parametrize("split", [1 << 12, 1 << 16, 1 << 28])
@pytest.mark.parametrize("name", ["5.4.0-killed", "5.4.0-dledger-mixed"])
def test_damage_is_counted_as_by_du_however_the_log_is_cut(name: str, split: int, tmp_path: Path) -> None:
    store = damaged_copy(name, tmp_path)
    damage = Skipped()
    usage(open_store(store), damage=damage)
    found = entries(store, ExportJob(segment_bytes=1 << 19, split_bytes=split))
    assert len(found) > 1
    assert sum(e["damaged_spans"] for e in found) == damage.count > 0
    assert sum(e["damaged_bytes"] for e in found) == damage.bytes
    assert [tuple(span) for e in found for span in e["spans"]] == damage.spans
    assert sum(e["messages"] for e in found) == len(local_rows(store))
    assert sum(e["damaged_messages"] for e in found) == sum(not row["crc_ok"] for row in local_rows(store)) > 0


def test_zeros_count_as_damage_only_where_records_follow(store: Path) -> None:
    queue = log_of(store)
    first, second, *later = queue.files
    row = [r for r in local_rows(store) if r["file"] == first.name][-1]
    overwrite(first.path, row["offset"], bytes(first.file_size - row["offset"]))  # a page that was never written
    whole, cut = ExportJob(split_bytes=1 << 16), ExportJob(split_bytes=1 << 16, segment_bytes=1)
    spans = [["commitlog", row["offset"], second.start, "zero"]]
    assert [e["spans"] for e in entries(store, whole)] == [spans]
    assert [e["spans"] for e in entries(store, cut)] == [spans, *([] for _ in queue.files[1:])]
    second.path.unlink()
    assert [e["spans"][-1][:3] for e in entries(store, cut)[:2]] == [
        ["commitlog", row["offset"], second.start],
        ["commitlog", second.start, second.stop],
    ]
    for file in later:
        file.path.unlink()
    assert [e["spans"] for e in entries(store, cut)] == [[]]


def test_the_report_on_a_piece_is_small_however_many_records_are_damaged(store: Path) -> None:
    first, second = open_store(store).commitlog.files[:2]  # type: ignore[union-attr]
    records = sum(row["file"] == second.name for row in local_rows(store))
    shutil.copy(second.path, first.path)  # every record was written for another position
    [segment, *_] = segments_of(StoreRef(store, "s"), open_store(store), ExportJob(segment_bytes=1))
    [piece] = segment.pieces
    report = PieceResult(live=False)
    assert not list(report.read(piece, ReadOptions()))
    assert len(report.head) == 1
    assert (report.rest.count, len(report.rest.spans)) == (records - 1, min(records - 1, 100))


def test_replicas_are_compared_as_locally(spark: Any, tmp_path: Path) -> None:
    first, second = unpack("5.4.0-dledger3-n0"), unpack("5.4.0-dledger3-n2")
    other = damaged_copy("5.4.0-dledger3-n0", tmp_path)
    found = compare(spark, [first, second, other], split_size=65_536)
    for answer, path in zip(found.stores, (second, other), strict=True):
        expected = compare_here(open_store(first), open_store(path), jobs=1).to_json()
        for name in expected.keys() - {"schema", "store", "other"}:
            assert answer[name] == expected[name], name
    assert found.exit_code == 1
    assert found.stores[0]["only_in_store"]["messages"] == 101
    assert found.stores[1]["damaged_in_other"]["messages"] > 0


def test_a_fleet_is_told_who_can_heal_whom(spark: Any, tmp_path: Path) -> None:
    leader, foreign = unpack("5.4.0-dledger3-n1"), unpack("5.4.0-dledger")
    damaged = damaged_copy("5.4.0-dledger3-n0", tmp_path)
    behind = copy_store("5.4.0-dledger3-n2", tmp_path)
    entry = rows(behind)[20]
    damage.garble(entry.path, entry.at, entry.size)
    result = compare(spark, [leader, damaged, behind, foreign])
    found = {one["store"]: one for one in result.more["heal"]}
    assert found.keys() == {str(damaged), str(behind)}
    for store, others in ((damaged, (leader, behind)), (behind, (leader, damaged))):
        told = found[str(store)]
        assert {offer["replica"] for offer in told["replicas"]} == {str(other) for other in others}
        assert told["replicas"][0]["places"] == told["places"]
        assert [*told["refused"]] == [str(foreign)]
        assert "is not a replica" in told["refused"][str(foreign)]
        plan = run_json(*shlex.split(told["replicas"][0]["command"])[1:], "--role", "single", exit_code=1)
        assert plan["facts"]["restored"]["bytes"] == told["replicas"][0]["bytes"]  # type: ignore[index]
    text = "\n".join(_text(result))
    assert f"{behind}: 1 damaged place in the log" in text
    assert f"  {leader} has 1 of them, {entry.size + 48:,} B: rmqstore recover {behind} --replica {leader}" in text


def test_sql_sees_all_views(spark: Any) -> None:
    store = unpack("5.4.0-killed")
    topics, lost = sql(spark, "select topic, count(*) n from messages group by topic", [store, "/nowhere"])
    expected: dict[str, int] = {}
    for row in local_rows(store):
        expected[row["topic"]] = expected.get(row["topic"], 0) + 1
    assert {r["topic"]: r["n"] for r in topics.collect()} == expected
    assert [s["store"] for s in lost] == ["/nowhere"]
    behind = "select count(*) n from messages m left anti join consumequeue c using (topic, queue_id, queue_offset)"
    assert sql(spark, behind, [store])[0].first()["n"] > 0
    groups = "select distinct `group` from consumer_offsets"
    assert len(sql(spark, groups, [unpack("5.4.0-dledger-mixed")])[0].collect()) == 4
    assert [r["code"] for r in sql(spark, "select code from findings", [store])[0].collect()] == ["CQ-BEHIND"]
    assert sql(spark, "select count(*) n from indexfile", [store])[0].first()["n"] > 0
    entries = sql(spark, "select max(entry_index) n from dledger", [unpack("5.4.0-dledger")])[0].first()["n"]
    assert entries == len(local_rows(unpack("5.4.0-dledger"))) - 1
    with pytest.raises(UsageError):
        sql(spark, "select nothing_like_it from messages", [store])


def test_many_stores_come_from_a_table_of_paths(spark: Any) -> None:
    paths = [("a", str(unpack("5.4.0-killed"))), ("b", str(unpack("5.4.0-clean")))]
    table = spark.createDataFrame(paths, "store string, path string")
    frame = load(spark, "commitlog", table, columns="store")
    counts = {r["store"]: r["count"] for r in frame.groupBy("store").count().collect()}
    assert counts == {"a": len(local_rows(unpack("5.4.0-killed"))), "b": len(local_rows(unpack("5.4.0-clean")))}


def test_a_stream_delivers_what_a_growing_store_gets(spark: Any, store: Path, tmp_path: Path) -> None:
    expected = local_rows(store)
    files = sorted((store / "commitlog").iterdir())
    later = tmp_path / "later"
    later.mkdir()
    for file in files[len(files) // 2 :]:
        file.rename(later / file.name)
    out, state = str(tmp_path / "out"), str(tmp_path / "state")

    def start() -> Any:
        frame = spark.readStream.format("rmqstore.commitlog").option("columns", "offset,topic").load(str(store))
        query = frame.writeStream.format("parquet").option("path", out).option("checkpointLocation", state)
        return query.trigger(availableNow=True).start()

    def run() -> list[int]:
        deadline = time.monotonic() + 600
        while True:
            try:
                assert start().awaitTermination(900)
            except StreamingQueryException as error:
                # Spark gives a Python worker 10 seconds to start; on a busy machine the stream goes on where it was
                if "failed to connect back" not in str(error) or time.monotonic() > deadline:
                    raise
            else:
                return sorted(r["offset"] for r in spark.read.parquet(out).collect())

    half = run()
    assert half == [r["offset"] for r in expected if r["file"] < files[len(files) // 2].name]
    for file in later.iterdir():
        file.rename(store / "commitlog" / file.name)
    assert run() == [r["offset"] for r in expected]


def test_findings_are_rows_and_damage_fails_no_job(spark: Any, tmp_path: Path) -> None:
    store = damaged_copy("5.4.0-killed", tmp_path)
    rows = spark.read.format("rmqstore.findings").load(str(store)).collect()
    expected = local_report(store)
    assert sorted(r["code"] for r in rows) == sorted(f["code"] for f in expected["findings"])
    assert spark.read.format("rmqstore.commitlog").load(str(store)).count() == len(local_rows(store))


def test_a_file_that_cannot_be_opened_is_said(spark: Any, tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root can read every file")
    store = copy_store("5.4.0-killed", tmp_path)
    first_log_file(store).chmod(0)
    found = jobs.du(spark, [store])
    assert found.exit_code == 3
    assert "not readable" in found.stores[0]["error"]


def test_stores_that_are_none_do_not_end_a_job(spark: Any) -> None:
    found = jobs.verify(spark, [unpack("5.4.0-clean"), "/nowhere"])
    assert found.exit_code == 4
    assert "no such file" in found.stores[1]["error"]
    assert jobs.verify(spark, ["/nowhere"]).exit_code == 3


def test_spark_finds_the_sources_by_itself(spark: Any) -> None:
    fresh = spark.newSession()  # nothing is registered in it

    def columns(name: str) -> list[str]:
        return list(fresh.read.format(f"rmqstore.{name}").load(str(unpack("5.4.0-dledger-mixed"))).columns)

    for name, some in (
        ("commitlog", "physical_offset"),
        ("consumequeue", "commitlog_offset"),
        ("dledger", "entry_term"),
        ("index", "slot"),
        ("findings", "remedy"),
    ):
        assert some in columns(name)
    with pytest.raises(Exception, match="DATA_SOURCE_NOT_FOUND"):
        columns("dispatched")  # no module of its own, so it has to be registered


@pytest.mark.usefixtures("spark")
def test_fillers_are_included_only_when_asked_for(tmp_path: Path) -> None:
    from tests.cli.test_fillers import repaired

    store, _ = repaired("5.4.0-clean", tmp_path)
    local = run_json("du", str(store), exit_code=0)["messages"]
    assert isinstance(local, int)

    def counted(*more: str) -> list[int]:
        used = run_json("pipeline", "du", str(store), *more, exit_code=0)
        query = run_json("pipeline", "sql", str(store), "select count(*) n from messages", *more, exit_code=0)
        target = tmp_path / f"out{len(more)}"
        run_json("pipeline", "export", str(store), "--output", str(target), *more, exit_code=0)
        written = sum(pq.read_metadata(path).num_rows for path in target.rglob("*.parquet"))
        return [used["stores"][0]["messages"], query["rows"][0]["n"], written]  # type: ignore[index]

    assert counted() == [local] * 3
    assert counted("--fillers") == [local + 2] * 3
