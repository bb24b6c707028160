"""An index file that was named in another time zone: the real classes miss messages, as `verify` notes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from rmqstore.checks.beside.host import host_notes
from rmqstore.files.store import open_store
from rmqstore.formats import index
from tests.real_broker.oracle import KeyQuery, Oracle
from tests.stores import copy_store, meta, sent

_LATEST = (1 << 63) - 1


@pytest.mark.slow
@pytest.mark.parametrize("version", ["4.9.7", "5.1.4", "5.4.0", "5.5.1"])
def test_a_query_by_time_misses_messages_of_a_file_that_was_named_in_a_zone_further_west(
    version: str, tmp_path: Path, oracle: Callable[[str], Oracle]
) -> None:
    name = f"{version}-clean"
    store = copy_store(name, tmp_path)
    last = max((store / "index").iterdir())
    begin = int(index.HEADER.array(last.read_bytes()[: index.HEADER.size])[0]["begin_timestamp"])
    keyed = [(one.topic, one.keys.split()[0]) for one in sent(name) if one.keys][-3:]
    queries = [KeyQuery(topic, key, begin, _LATEST) for topic, key in keyed]
    found = oracle(version).load(store, meta(name).oracle_args, keys=queries).by_key
    assert [len(offsets) for offsets in found] == [1, 1, 1]
    west = datetime.strptime(last.name[:14], "%Y%m%d%H%M%S") - timedelta(hours=8)
    last.rename(last.with_name(f"{west:%Y%m%d%H%M%S}{last.name[14:]}"))
    assert any("UTC-08:00" in note for note in host_notes(open_store(store), 0))
    found = oracle(version).load(store, meta(name).oracle_args, keys=queries).by_key
    assert [len(offsets) for offsets in found] == [0, 0, 0]
