"""`sql` returns the rows of `dump`, reports what it skipped, and can read only the stores and write nothing."""

from __future__ import annotations

import base64
import csv
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqstore.formats.configuration import parse_config_object
from tests.command import run
from tests.rocksdb_rows import need_rocksdict, without_extra
from tests.spark.stores import NAMES, damaged_copy
from tests.stores import copy_store, unpack
from tests.terminal import printed_in_a_terminal
from tests.untouched import assert_untouched

pytest.importorskip("duckdb", reason="the extra `sql` is not installed: duckdb is missing")
pytest.importorskip("pyarrow", reason="the extra `sql` is not installed: pyarrow is missing")

PLAIN, CLEAN, MIXED, DLEDGER = "5.4.0-killed", "5.4.0-clean", "5.4.0-dledger-mixed", "4.9.7-dledger"
# columns with the same values in `dump` and `sql`
SAME = (
    *("file", "offset", "size", "magic", "body_crc", "queue_id", "flag", "queue_offset", "physical_offset", "sys_flag"),
    *("born_timestamp", "born_host", "store_timestamp", "store_host", "reconsume_times"),
    *("prepared_transaction_offset", "body_length", "topic", "crc_ok", "properties", "msg_id"),
)


def ask(*words: str, exit_code: int = 0) -> list[dict[str, Any]]:
    result = run("sql", *words, "--format", "ndjson")
    assert result.exit_code == exit_code, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def dumped(*words: str, exit_code: int = 0) -> list[dict[str, Any]]:
    result = run("dump", *words, "--format", "ndjson")
    assert result.exit_code == exit_code, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def refused(*words: str) -> str:
    """Run a refused query, and return the line on stderr."""
    result = run("sql", *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    return result.stderr


@pytest.mark.quick_rows(3)
@pytest.mark.parametrize("name", NAMES)
def test_messages_are_those_of_dump(name: str) -> None:
    store = str(unpack(name))
    found, expected = ask(store, "select * from messages"), dumped(store, "--body", "base64")
    assert len(found) == len(expected) > 0
    for row, other in zip(found, expected, strict=True):
        assert {n: row[n] for n in SAME} == {n: other[n] for n in SAME}
        assert row["store"] == store
        assert base64.b64decode(row["body"]) == base64.b64decode(other["body_base64"])


@pytest.mark.parametrize("name", [PLAIN, MIXED, DLEDGER])
def test_damage_is_skipped_and_reported_as_by_dump(name: str, tmp_path: Path) -> None:
    store = str(damaged_copy(name, tmp_path))
    query = 'select "offset", crc_ok, topic from messages'
    shown, told = run("dump", store, "--format", "ndjson"), run("sql", store, query, "--format", "ndjson")
    assert shown.exit_code == told.exit_code == 1
    assert told.stderr == shown.stderr
    assert told.stderr.startswith("warning: 1 damaged place (")
    assert told.stderr.endswith("warning: 2 messages have a wrong CRC\n")
    rows = [json.loads(line) for line in shown.stdout.splitlines()]
    expected = [{n: r[n] for n in ("offset", "crc_ok", "topic")} for r in rows]
    assert [json.loads(line) for line in told.stdout.splitlines()] == expected
    assert [r["crc_ok"] for r in expected].count(False) == 2


def test_filters_that_duckdb_passes_on_keep_the_same_rows() -> None:
    store = str(unpack(PLAIN))
    rows = dumped(store)
    middle = sorted(r["store_timestamp"] for r in rows)[len(rows) // 2]
    wanted: dict[str, Callable[[dict[str, Any]], bool]] = {
        "topic = 'Order_11'": lambda r: r["topic"] == "Order_11",
        "topic in ('Order_11', 'crc_ok') and queue_id > 1": lambda r: r["topic"] == "Order_11" and r["queue_id"] > 1,
        f"store_timestamp >= {middle}": lambda r: r["store_timestamp"] >= middle,
        f"epoch_ms(store_time) < {middle}": lambda r: r["store_timestamp"] < middle,
        "properties['KEYS'] is null": lambda r: "KEYS" not in r["properties"],
        "crc_ok and topic like '%_11'": lambda r: r["topic"].endswith("_11"),
    }
    for words, keep in wanted.items():
        expected = [r["offset"] for r in rows if keep(r)]
        assert 0 < len(expected) < len(rows)
        assert [r["offset"] for r in ask(store, f'select "offset" from messages where {words}')] == expected


def test_a_view_may_be_read_twice_and_columns_of_one_name_get_numbers() -> None:
    store = str(unpack(PLAIN))
    query = 'select a."offset", b."offset" from messages a join messages b using ("offset") order by 1'
    offsets = [r["offset"] for r in dumped(store)]
    assert ask(store, query) == [{"offset": o, "offset_1": o} for o in offsets]


def test_consumequeue_indexfile_and_dledger_are_those_of_dump() -> None:
    store = str(unpack(MIXED))
    keys: tuple[str, ...] = ("topic", "queue_id", "queue_offset", "commitlog_offset", "size", "tags_code")
    units = [tuple(r[k] for k in keys) for r in dumped(store, "--what", "consumequeue")]
    assert units
    assert [tuple(r[k] for k in keys) for r in ask(store, "from consumequeue")] == units
    keys = ("file", "unit", "slot", "key_hash", "phy_offset", "time_diff", "prev_index")
    plain = str(unpack(PLAIN))
    units = [tuple(r[k] for k in keys) for r in dumped(plain, "--what", "index") if "unit" in r]
    assert units
    assert [tuple(r[k] for k in keys) for r in ask(plain, "from indexfile")] == units
    entries = dumped(store, "--what", "dledger")
    found = ask(store, 'select entry_index, entry_term, "offset" from dledger')
    assert [(r["entry_index"], r["entry_term"], r["offset"]) for r in found] == [
        (r["index"], r["term"], r["message"]["offset"]) for r in entries
    ]


def test_consumer_offsets_are_those_of_the_file() -> None:
    store = unpack(MIXED)
    table: Any = parse_config_object((store / "config" / "consumerOffset.json").read_bytes())["offsetTable"]
    expected = {
        (*reversed(name.split("@")), int(queue), offset)
        for name, queues in table.items()
        for queue, offset in queues.items()
    }
    rows = ask(str(store), "from consumer_offsets")
    assert {(r["group"], r["topic"], r["queue_id"], r["offset"]) for r in rows} == expected
    assert len(rows) == len(expected) > 0


def test_findings_are_those_of_verify(tmp_path: Path) -> None:
    store = str(damaged_copy(PLAIN, tmp_path))
    report = json.loads(run("verify", store, "--json").stdout)
    rows = ask(store, 'select code, severity, "offset", facts from findings')
    assert [(r["code"], r["severity"], r["offset"], json.loads(r["facts"])) for r in rows] == [
        (f["code"], f["severity"], f["offset"], f["facts"]) for f in report["findings"]
    ]
    assert rows


def test_rows_and_warnings_of_several_stores_are_distinguished(tmp_path: Path) -> None:
    damaged = str(damaged_copy(MIXED, tmp_path))
    stores = (str(unpack(PLAIN)), damaged)
    query = "select store, count(*) n from messages group by store order by store"
    expected = {stores[0]: len(dumped(stores[0])), damaged: len(dumped(damaged, exit_code=1))}
    assert {r["store"]: r["n"] for r in ask(*stores, query, exit_code=1)} == expected
    told = run("sql", *stores, query).stderr
    assert told.startswith(f"{damaged}:\nwarning: ")
    assert stores[0] not in told


def test_the_columns_are_those_of_the_pipeline() -> None:
    from rmqstore.views.tables import MessageOptions, message_columns, offsets_schema, pop_schema

    options = MessageOptions(body="plain", properties=True)
    names = [r["column_name"] for r in ask(str(unpack(PLAIN)), "describe messages")]
    assert names == [c.name for c in message_columns(options)]
    spark = pytest.importorskip("pyspark") and __import__("rmqstore.spark.views", fromlist=["_OFFSETS"])
    assert offsets_schema().names == [column.split()[0] for column in spark._OFFSETS.split(", ")]
    assert pop_schema().names == [column.split()[0] for column in spark._POP.split(", ")]


def test_what_is_not_named_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    from rmqstore.views import stores, tables

    crc: list[bool] = []
    scan: Any = vars(stores)["scan_file"]

    def watched(*words: Any, **named: Any) -> Any:
        crc.append(named["options"].crc)
        return scan(*words, **named)

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("decoded without need")

    store = str(unpack(PLAIN))
    with monkeypatch.context() as patch:
        patch.setattr(stores, "scan_file", watched)
        patch.setattr(tables, "bodies_of", never)
        patch.setattr(tables, "PropertyArrays", never)
        count = ask(store, "select count(*) n from messages where topic = 'Order_11' and size > 0")
        assert set(crc) == {False}
        ask(store, "select crc_ok from messages limit 1")
        assert crc[-1] is True
    assert count == [{"n": sum(r["topic"] == "Order_11" for r in dumped(store))}]


def test_a_query_can_neither_write_nor_read_other_files(tmp_path: Path) -> None:
    store = copy_store(PLAIN, tmp_path)
    secret = tmp_path / "secret.csv"
    secret.write_text("a,b\n1,2\n", "utf-8")
    target = tmp_path / "target"
    with assert_untouched(store):
        for query, words in {
            f"select * from '{secret}'": "disabled by configuration",
            f"select * from read_csv('{secret}')": "disabled by configuration",
            f"select * from read_text('{secret}')": "disabled by configuration",
            f"select * from glob('{tmp_path}/*')": "disabled by configuration",
            "select * from store": "does not exist",  # `store` is a variable of this process
            f"copy messages to '{target}'": "COPY is not a query",
            f"copy (select 1) to '{target}'": "COPY is not a query",
            f"attach '{target}'": "ATTACH is not a query",
            f"export database '{target}'": "EXPORT is not a query",
            "set enable_external_access = true": "SET is not a query",
            "create table t as select 1": "CREATE is not a query",
            "load httpfs": "LOAD is not a query",
            "pragma version": "PRAGMA is not a query",
            "select 1; select 2": "2 statements",
        }.items():
            assert words in refused(str(store), query), query
        explained = run("sql", str(store), f"explain analyze copy (select 1) to '{target}'")
        assert explained.exit_code == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(["secret.csv", store.name])


def test_errors_are_one_line_with_exit_code_2() -> None:
    store = str(unpack(PLAIN))
    assert 'syntax error at or near "selec"' in refused(store, "selec")
    assert 'Referenced column "nosuch" not found' in refused(store, "select nosuch from messages")
    assert "Table with name nosuch does not exist" in refused(store, "select * from nosuch")
    assert "0 statements" in refused(store, "")
    assert 'write "offset" in double quotes' in refused(store, "select offset, size from messages")
    assert "Could not convert" in refused(store, "select topic::int from messages")
    assert "cannot be written to stdout" in refused(store, "from messages", "--format", "parquet")
    assert run("sql", f"{store}-nosuch", "select 1").exit_code == 3


def test_an_unreadable_file_is_an_error_of_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    from rmqstore.views import stores

    def broken(*_: Any, **__: Any) -> Any:
        raise PermissionError(13, "Permission denied", "00000000000000000000")

    monkeypatch.setattr(stores, "scan_file", broken)
    result = run("sql", str(unpack(PLAIN)), "from messages")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "Permission denied" in result.stderr


@pytest.mark.parametrize(("pip", "command"), [(True, "{} -m pip install"), (False, "uv pip install --python {}")])
def test_without_duckdb_the_error_says_how_to_install_it(
    pip: bool, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object() if pip else None)
    monkeypatch.delitem(sys.modules, "rmqstore.views.sql", raising=False)
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert refused(str(unpack(PLAIN)), "select 1") == (
        f"error: sql needs duckdb and pyarrow — {command.format(sys.executable)} 'duckdb>=1.1' 'pyarrow>=16'\n"
    )


def test_formats(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    store = str(unpack(PLAIN))
    query = 'select topic, "offset", properties, body, sum(size) over () total from messages order by 2 limit 3'
    rows = ask(store, query)
    assert all(type(r["total"]) is int for r in rows)
    target = tmp_path / "out.parquet"
    assert run("sql", store, query, "-o", str(target)).exit_code == 0
    table = pq.read_table(target)
    assert table.column("offset").to_pylist() == [r["offset"] for r in rows]
    assert [base64.b64encode(b).decode() for b in table.column("body").to_pylist()] == [r["body"] for r in rows]
    again = run("sql", store, query, "-o", str(target))
    assert again.exit_code == run("dump", store, "-o", str(target), "--format", "ndjson").exit_code
    assert "already exists" in again.stderr
    assert run("sql", store, query, "-o", str(target), "--overwrite").exit_code == 0
    as_csv = list(csv.DictReader(run("sql", store, query, "--format", "csv").stdout.splitlines()))
    assert [json.loads(r["properties"]) for r in as_csv] == [r["properties"] for r in rows]
    lines = run("sql", store, query, "--format", "table").stdout.splitlines()
    assert lines[0].split() == ["topic", "offset", "properties", "body", "total"]
    assert len(lines) == 4
    inside = tmp_path / "store"
    copy = copy_store(PLAIN, inside)
    assert "lies inside the store" in refused(str(copy), query, "-o", str(copy / "x.csv"))


def test_queues_in_a_rocksdb_that_cannot_be_read_are_not_reported_as_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    without_extra(monkeypatch)
    result = run("sql", str(unpack("5.4.0-rocksdb")), "select count(*) n from consumequeue", "--format", "ndjson")
    assert result.exit_code == 4
    assert "consumequeue/ is a RocksDB that cannot be read: needs the package rocksdict" in result.stderr


def test_consume_queues_in_a_rocksdb_are_read() -> None:
    need_rocksdict()
    query = "select topic, count(*) n, max(queue_offset) last from consumequeue where topic = 'Order_11' group by 1"
    assert ask(str(unpack("5.4.0-rocksdb")), query) == [{"topic": "Order_11", "n": 61, "last": 18}]


def test_consumer_offsets_in_a_rocksdb_are_read() -> None:
    need_rocksdict()
    query = 'select topic, queue_id, "offset" from consumer_offsets where "group" = \'CG_part_11\' order by 2'
    offsets = dict(enumerate([13, 18, 13, 16]))
    assert ask(str(unpack("5.4.0-rocksdb")), query) == [
        {"topic": "Order_11", "queue_id": queue_id, "offset": offset} for queue_id, offset in offsets.items()
    ]


def test_unreadable_consumer_offsets_are_not_reported_as_empty(tmp_path: Path) -> None:
    store = copy_store(PLAIN, tmp_path)
    for path in (store / "config").glob("consumerOffset.json*"):
        path.unlink()
    result = run("sql", str(store), "select count(*) n from consumer_offsets", "--format", "ndjson")
    assert result.exit_code == 4
    assert "there is no readable consumerOffset.json" in result.stderr


def test_an_error_of_the_database_is_marked_as_its_own_in_chinese(store: Path) -> None:
    result = run("sql", str(store), "selec 1", "--lang", "zh")
    assert result.exit_code == 2
    assert result.stderr.startswith('错误：sql：数据库 DuckDB 的原文（英文）：syntax error at or near "selec"')
    assert run("sql", str(store), "selec 1").stderr.startswith("error: sql: DuckDB: syntax error")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_file_of_the_user_is_a_table(kind: str, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet as pq

    table = pa.table({"order_id": ["ord11_308", "nope"], "price": [5, 7]})
    path = tmp_path / f"paid.{kind}"
    (pyarrow.csv.write_csv if kind == "csv" else pq.write_table)(table, path)
    query = "select p.price, m.topic from paid p left join messages m on m.keys = p.order_id order by price"
    found = ask(str(unpack(CLEAN)), query, "--table", f"paid={path}")
    assert found == [{"price": 5, "topic": "log-15445"}, {"price": 7, "topic": None}]


@pytest.mark.parametrize(
    ("given", "code", "words"),
    [
        ("messages={csv}", 2, "that name is taken"),
        ("a b={csv}", 2, "is not NAME=FILE"),
        ("paid={csv}.json", 2, "is neither *.csv nor *.parquet"),
        ("paid={csv}.none.csv", 3, "No such file"),
        ("paid={pipe}", 3, "is not a file"),
        ("paid={broken}", 2, "cannot be read"),
    ],
)
def test_a_table_that_cannot_be_one_is_refused(given: str, code: int, words: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x\n1\n")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and nothing else")
    os.mkfifo(tmp_path / "pipe.csv")
    places = {"csv": tmp_path / "a.csv", "pipe": tmp_path / "pipe.csv", "broken": tmp_path / "broken.parquet"}
    result = run("sql", str(unpack(PLAIN)), "select 1", "--table", given.format(**places))
    assert result.exit_code == code and words in result.stderr and "Traceback" not in result.stderr


def test_a_query_reads_no_other_file_and_is_told_how(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x\n1\n")
    result = run("sql", str(unpack(PLAIN)), f"from '{tmp_path}/a.csv'", "--table", f"a={tmp_path}/a.csv")
    assert result.exit_code == 2 and "--table NAME=FILE" in result.stderr


def test_stdin_holds_the_query_if_no_argument_does() -> None:
    store = str(unpack(PLAIN))
    result = run(
        "sql", store, str(unpack(CLEAN)), "--format", "ndjson", stdin="select count(distinct store) n from messages;\n"
    )
    assert json.loads(result.stdout) == {"n": 2}
    result = run("sql", store, stdin=" \n")
    assert result.exit_code == 2 and "there is no query" in result.stderr
    assert run("sql", "select 1").exit_code == 2


def test_the_prompt_answers_goes_on_after_errors_and_keeps_its_history(tmp_path: Path) -> None:
    lines = "select count(*) n\nfrom messages;\nselec 1;\nselect 7 * 6 as answer\n\n\\q\n"
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    code, printed = printed_in_a_terminal(
        "sql", str(unpack(CLEAN)), lines=50, columns=100, environment=environment, typed=lines.encode()
    )
    text = printed.decode()
    assert "553" in text and "syntax error" in text and "42" in text and "Traceback" not in text
    assert code == 0
    history = tmp_path / "rmqstore" / "sql" / "history"
    assert history.stat().st_mode & 0o077 == 0
    assert "select count(*) n" in history.read_text()
