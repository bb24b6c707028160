"""Releases that wrote none of the fixtures: the forecast for them is what their classes do, also after damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqstore.brokers.rules import rules_for
from tests.real_broker.oracle_server import OracleServers
from tests.real_broker.random_damage import damage_any_file
from tests.real_broker.starts import compare_forecast
from tests.seeds import seeds
from tests.stores import VERSIONS, copy_store, meta

RELEASES = ("4.3.0", "4.5.2", "4.8.0", "5.0.0", "5.2.0", "5.3.3")
KINDS = ("clean", "killed", "dledger", "dledger-mixed")
ROUNDS = 3


def _rows() -> list[tuple[str, str]]:
    """Return each release with stores of the oldest fixtures of its major version."""
    oldest = {version: next(v for v in VERSIONS if v[0] == version[0]) for version in RELEASES}
    rows = [(version, f"{oldest[version]}-{kind}") for version in RELEASES for kind in KINDS]
    return [row for row in rows if rules_for(row[0]).dledger or "dledger" not in row[1]]


def _in_4_3(setting: str) -> str:
    return setting.replace("mapped", "maped")


@pytest.mark.slow
@pytest.mark.parametrize(("version", "name"), _rows())
def test_the_forecast_for_a_sound_and_a_damaged_store_is_what_the_release_does(
    version: str, name: str, tmp_path: Path, oracle_servers: OracleServers
) -> None:
    assert rules_for(version).evidence == "by source"
    server = oracle_servers.of(version)
    settings = {_in_4_3(key) if version == "4.3.0" else key: value for key, value in meta(name).oracle_args.items()}
    for seed in (None, *seeds(ROUNDS)):
        store = copy_store(name, tmp_path / str(seed))
        said = [] if seed is None else damage_any_file(store, seed)
        abort = seed is None or bool(seed % 2)
        (store / "abort").unlink(missing_ok=True)
        if abort:
            (store / "abort").touch()
        real = server.answer(server.ask(store, settings, abort=abort))
        try:
            compare_forecast(name, store, version, real)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, {said}") from error
