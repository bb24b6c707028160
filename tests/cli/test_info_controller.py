"""info of a store of controller mode: identity, epochs and role."""

from __future__ import annotations

from pathlib import Path

from tests.command import run, run_json
from tests.stores import copy_store, unpack

_MASTER = "5.4.0-controller-master"


def test_identity_and_epochs_of_a_controller_store_are_shown() -> None:
    answer = run_json("info", str(unpack(_MASTER)), exit_code=0)
    assert (answer["kind"], answer["role"]) == ("plain", "controller")
    assert answer["controller"] == {
        "cluster": "DefaultCluster",
        "broker_name": "broker-11",
        "broker_id": 2,
        "registered": True,
        "epochs": [[1, 0], [5, 101667]],
    }
    lines = run("info", str(unpack(_MASTER))).stdout.splitlines()
    assert lines[0].endswith("plain store, of a broker in controller mode")
    at = lines.index("Controller      broker broker-11 of cluster DefaultCluster, id 2, registered")
    assert [line.strip() for line in lines[at + 1 : at + 3]] == ["epoch 1 from offset 0", "epoch 5 from offset 101,667"]


def test_a_lost_identity_and_lost_epochs_are_named(tmp_path: Path) -> None:
    store = copy_store(_MASTER, tmp_path)
    (store / "brokerIdentity").unlink()
    (store / "epochFileCheckpoint").write_text("damaged\n")
    (store / "epochFileCheckpoint.bak").unlink()
    answer = run_json("info", str(store), exit_code=0)
    assert answer["controller"] == {
        "cluster": None,
        "broker_name": None,
        "broker_id": None,
        "registered": False,
        "epochs": [],
    }
    lines = [line.strip() for line in run("info", str(store)).stdout.splitlines()]
    at = lines.index("Controller      no identity: the controller gives this broker a new id")
    assert lines[at + 1] == "no epochs"


def test_a_plain_store_has_no_controller() -> None:
    answer = run_json("info", str(unpack("5.4.0-clean")), exit_code=0)
    assert (answer["controller"], answer["role"]) == (None, "unknown")
