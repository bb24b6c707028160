"""`rmqstore report` and `verify --html`: the content of the page, hostile names, and its look in a browser."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from rmqstore.checks.problems.report import Finding, Findings, Report
from rmqstore.cli.html.store_page import page
from rmqstore.formats.bodies import decompress
from rmqstore.formats.message import build_message
from rmqstore.views.reports import CELLS, ROWS, Lag, MapPart, MapRow, StoreReport
from rmqstore.views.usage import Table, Usage
from tests.cli.test_lost import damaged
from tests.command import run, run_json
from tests.damage import zero
from tests.stores import copy_store, unpack
from tests.views.decoder import Record, find_records

STORE = "5.4.0-clean"


class _Reader(HTMLParser):
    """Collects the text and the tags of a page, and fails if they are not balanced."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, (tag, self.open)
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] != "style":
            self.text.append(data)


def read(text: str) -> _Reader:
    reader = _Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    assert not reader.tags & {"script", "link", "img", "iframe", "object"}
    assert not any(name.startswith("on") or "://" in (value or "") for name, value in reader.attributes)
    assert "url(" not in text and "@import" not in text
    return reader


def made(store: Path, target: Path, exit_code: int) -> str:
    result = run("report", str(store), "-o", str(target), "--utc")
    assert result.exit_code == exit_code, result.output
    assert result.stdout == ""
    return target.read_text("utf-8")


def broken(tmp_path: Path) -> Path:
    store = copy_store(STORE, tmp_path)
    damaged(store)
    (store / "abort").touch()
    zero(store / "checkpoint", 0, 40)
    return store


@pytest.mark.quick_rows(3)
@pytest.mark.parametrize(
    "name", [STORE, "5.4.0-dledger", "5.1.4-dledger-mixed", "5.4.0-rocksdb", "4.9.7-killed", "5.4.0-formats"]
)
def test_the_page_of_a_sound_store_says_what_verify_says(name: str, tmp_path: Path) -> None:
    verified = run_json("verify", str(unpack(name)), exit_code=0)
    text = made(unpack(name), tmp_path / "x.html", 0)
    output = " ".join(" ".join(read(text).text).split())
    assert str(verified["verdict"]) in output
    used = run_json("du", str(unpack(name)), exit_code=0)
    assert f"{used['messages']:,} messages" in output
    assert "No problems were found." in output or verified["counts"]
    assert 5_000 < len(text) < 200_000


def test_the_page_of_a_damaged_store_has_findings_cures_and_forecasts(tmp_path: Path) -> None:
    store = broken(tmp_path)
    verified = run_json("verify", str(store), exit_code=1)
    text = made(store, tmp_path / "x.html", 1)
    output = " ".join(" ".join(read(text).text).split())
    assert str(verified["verdict"]) in output
    counts, findings = verified["counts"], verified["findings"]
    assert isinstance(counts, dict) and isinstance(findings, list)
    for code, count in counts.items():
        assert f"{code} × {count}:" in output
    for finding in findings:
        assert f"{finding['offset']:,}" in output
    assert f"rmqstore recover {store}" in output
    brokers = verified["brokers"]
    assert isinstance(brokers, list) and brokers
    for row in brokers:
        assert (
            f"{row['words']}" in output and f'<td class="n" data-label="messages lost">{row["messages_lost"]:,}' in text
        )
    assert output.count(f"rmqstore recover {store}") == 2, "once for its problems, and once at their end"


def test_a_version_that_does_not_start_loses_no_number_of_messages(tmp_path: Path) -> None:
    store = copy_store("4.9.7-clean", tmp_path)
    last = max((store / "commitlog").iterdir())
    (store / "commitlog" / f"{int(last.name) + last.stat().st_size:020d}").touch()
    text = made(store, tmp_path / "x.html", 1)
    assert 'class="verdict error"' in text, "the version that wrote the store does not start"
    rows = re.findall(r'data-label="starts">(yes|no)</td><td class="n" data-label="messages lost">(.*?)</td>', text)
    assert {lost for starts, lost in rows if starts == "no"} == {"–"}
    assert {lost for starts, lost in rows if starts == "yes"} == {"0"}


def test_no_green_banner_over_lost_messages(tmp_path: Path) -> None:
    store = broken(tmp_path)
    assert run("recover", str(store), "--apply").exit_code == 0
    text = made(store, tmp_path / "x.html", 0)
    assert 'class="verdict warning"' in text and "could not be kept in earlier repairs" in text
    assert 'class="verdict ok"' in made(unpack(STORE), tmp_path / "y.html", 0)


def test_the_map_shows_damage_zeros_fillers_and_missing_files_where_they_are(tmp_path: Path) -> None:
    store = broken(tmp_path)
    first, second, third = (r.position for r in damaged_records(store))
    text = made(store, tmp_path / "a.html", 1)
    spans = [tuple(int(n.replace(",", "")) for n in m) for m in re.findall(r"damaged: ([\d,]+) to ([\d,]+)", text)]
    for position in (first, second, third):
        assert any(start <= position < stop for start, stop in spans), position
    assert all(stop - start <= 5 * 65536 // CELLS + 1000 for start, stop in spans)
    assert run("recover", str(store), "--apply").exit_code == 0
    text = made(store, tmp_path / "b.html", 0)
    assert "damaged: " not in text and text.count("filler of a repair: ") == 2
    (store / "commitlog" / f"{2 * 65536:020}").unlink()
    text = made(store, tmp_path / "c.html", 1)
    assert "missing file: 131,072 to 196,608" in text


def damaged_records(store: Path) -> list[Record]:
    """Return the three records that `damaged` has damaged."""
    good = {r.position for r in find_records(store) if r.crc_fits}
    return [r for r in find_records(unpack(STORE)) if r.position not in good]


def test_the_lag_of_each_group_is_the_number_of_messages_left(store: Path, tmp_path: Path) -> None:
    text = '{"offsetTable": {"Order_11@CG_a": {"0": 2, "1": 41, "2": 41, "3": 44}, "Pay_11_Topic@CG_b": {"0": 33}}}'
    (store / "config" / "consumerOffset.json").write_text(text)
    queues = run_json("info", str(store), exit_code=0)["queues"]
    assert isinstance(queues, dict)
    pay = sum(queues[f"Pay_11_Topic/{i}"]["max"] for i in (1, 2, 3))
    cell = r'<td class="{}" data-label="[a-z ]+">(.*?)</td>'
    row = cell.format("long").replace(".*?", "CG_.") + cell.format("long") + cell.format("n")
    rows = re.findall(row, made(store, tmp_path / "x.html", 0))
    assert rows == [("CG_b", "Pay_11_Topic", str(pay)), ("CG_a", "Order_11", str(queues["Order_11/0"]["max"] - 2))]


def test_what_earlier_repairs_lost_is_listed(tmp_path: Path) -> None:
    store = broken(tmp_path)
    run("recover", str(store), "--apply", "--accept-fillers")
    (journal,) = (store / ".rmqstore").iterdir()
    lost: Any = run_json("lost", str(store), exit_code=1)["messages"]
    rows = [row for row in lost if not row["mended"]]
    assert rows
    page = made(store, tmp_path / "after.html", 0)
    assert f"Lost in the repair {journal.name}" in page
    for row in rows:
        place = f'{row["topic"]}/{row["queue_id"]}</td><td class="n" data-label="offset">{row["queue_offset"]:,}</td>'
        assert place in page
        assert row["unique_key"] is None or row["unique_key"] in page


def test_no_body_is_on_the_page(tmp_path: Path) -> None:
    store = broken(tmp_path)
    text = made(store, tmp_path / "x.html", 1)
    for record in find_records(unpack(STORE)):
        body = decompress(record.sys_flag, record.body).decode("utf-8", "replace")
        assert len(body) < 12 or body[:40] not in text


def test_nothing_of_a_store_is_markup_or_a_control_character(tmp_path: Path) -> None:
    name = "<script>alert('1')</script>&amp;\"\x1b]0;x\x07"
    store = tmp_path / "<b>store"
    (store / "commitlog").mkdir(parents=True)
    record = build_message(topic=name, body=b"x", store_timestamp=1795245022000, born_timestamp=1795245022000)
    (store / "commitlog" / f"{0:020}").write_bytes(record.ljust(65536, b"\0"))
    text = made(store, tmp_path / "x.html", 1)
    output = "".join(read(text).text)
    assert "<script>alert('1')</script>&amp;\"·]0;x·" in output
    assert "<b>store" in output
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", text)


def test_no_store_makes_a_page_of_more_than_two_megabytes() -> None:
    findings = Findings()
    for n in range(50_000):
        findings.add(Finding("CL-BODY-CRC", "commitlog", f"{n:020}", n, n, {"topic": "T" * 5000, "queue_id": n}))
    report = Report("/s", "plain", findings, verdict="v" * 50_000, unchecked=["u" * 10_000] * 1000)
    table: Table = {f"{'topic' * 50}{n}": [n, n * n] for n in range(20_000)}
    hours: Table = {f"{2000 + n // 8640}-01-{n // 24 % 28 + 1:02}T{n % 24:02}:00Z": [1, n] for n in range(60_000)}
    kinds = ("records", "damaged")
    cells = tuple(MapPart(kinds[n % 2], n * 10**12, (n + 1) * 10**12) for n in range(CELLS))
    rows = [MapRow("commitlog", f"{n:020}", 0, CELLS * 10**12, 500, cells) for n in range(ROWS)]
    lags = [Lag(f"{'group' * 50}{n}", "t" * 127, n) for n in range(10_000)]
    found = StoreReport(report, [], rows, Usage(10**9, 10**15, {"topic": table, "hour": hours}), lags=lags)
    text = "".join(page(found))
    read(text)
    assert len(text.encode()) < 2_000_000


def test_verify_makes_the_same_page(tmp_path: Path) -> None:
    store = broken(tmp_path)
    text = made(store, tmp_path / "x.html", 1)
    result = run("verify", str(store), "--html", str(tmp_path / "y.html"), "--json", "--utc")
    assert result.exit_code == 1

    def lasting(page: str) -> str:
        return re.sub(r"<dt>examined</dt><dd>.*?</dd>", "", page)

    assert lasting((tmp_path / "y.html").read_text("utf-8")) == lasting(text)


def test_a_page_is_never_written_over_or_into_the_store(tmp_path: Path) -> None:
    store, target = copy_store(STORE, tmp_path), tmp_path / "x.html"
    target.write_text("mine")
    for words in (("report", str(store), "-o", str(target)), ("verify", str(store), "--html", str(target))):
        result = run(*words)
        assert result.exit_code == 5 and "exists" in result.stderr
    assert target.read_text() == "mine"
    assert run("report", str(store), "-o", str(store / "x.html")).exit_code == 2
    assert run("verify", str(store), "--html", str(store / "x.html")).exit_code == 2
    assert run("report", str(store)).exit_code == 2
    assert not (store / "x.html").exists()


# --- in a browser ----------------------------------------------------------------------------------------------------

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
_MEASURE = """<!doctype html><body style="margin:0">
<iframe src="page.html" style="border:0;width:{width}px;height:900px"></iframe>
<script>onload=()=>{{const d=document.querySelector("iframe").contentDocument.documentElement;
document.body.append("scroll width "+d.scrollWidth+", background "+
getComputedStyle(d.querySelector("body")).backgroundColor)}}</script>"""


@pytest.mark.quick_rows
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here (Debian's package chromium)")
@pytest.mark.parametrize("width", [360, 1600])
@pytest.mark.parametrize(("dark", "background"), [(False, "rgb(255, 255, 255)"), (True, "rgb(17, 18, 20)")])
def test_the_page_fits_a_telephone_and_a_wide_screen_in_both_schemes(
    width: int, dark: bool, background: str, tmp_path: Path
) -> None:
    made(broken(tmp_path), tmp_path / "page.html", 1)
    (tmp_path / "measure.html").write_text(_MEASURE.format(width=width))
    assert CHROMIUM is not None
    options = [
        *("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--allow-file-access-from-files"),
        *(f"--user-data-dir={tmp_path}/profile", f"--blink-settings=preferredColorScheme={0 if dark else 1}"),
        *("--virtual-time-budget=5000", "--dump-dom", f"--window-size={max(width, 500)},900"),
    ]
    done = subprocess.run(
        [CHROMIUM, *options, f"file://{tmp_path}/measure.html"], capture_output=True, text=True, timeout=120, check=True
    )
    measured = re.search(r"scroll width (\d+), background (rgb\([\d, ]+\))", done.stdout)
    assert measured is not None, done.stdout[-500:]
    assert int(measured[1]) == width
    assert measured[2] == background
