"""`rmqstore seed`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqstore.cli.printing.output import Output, refuse_inside
from rmqstore.cli.restore import check_target, result_lines, result_of
from rmqstore.cli.shared.options import WorkOptions, broker_option, command
from rmqstore.texts import Text

if TYPE_CHECKING:
    from rmqstore.files.broker_config import BrokerConfig


@command(
    "seed",
    report=True,
    work=True,
    examples=(
        "rmqstore seed /data/rocketmq/store /data/new-slave --role slave -c /etc/rocketmq/broker.conf",
        "rmqstore seed /data/rocketmq/store /mnt/node2/store --role controller --max-rate 100M",
        "rmqstore seed /data/rocketmq/store /mnt/node3/store --role dledger --id n2",
    ),
)
@click.argument("target", type=click.Path(path_type=Path), metavar="DIR")
@click.option(
    "--role",
    type=click.Choice(["slave", "controller", "dledger"]),
    required=True,
    help="What the new broker will be.",
)
@click.option("--id", "self_id", metavar="ID", help="With --role dledger: dLegerSelfId of the new broker, such as n2.")
@broker_option
def seed(
    out: Output,
    store: Path,
    config: BrokerConfig,
    target: Path,
    role: str,
    self_id: str | None,
    work: WorkOptions,
) -> int:
    """Make a new replica from a live master, so that it need not get the whole log from it.

    STORE is only read. DIR must not exist; it gets the log up to now, with consume queues, index, checkpoint and
    configuration, and without brokerIdentity. A broker that starts on it as a slave, or in the same controller or
    DLedger group, goes on from there. As `rmqstore backup` and `rmqstore restore` in one step: the log is verified
    while it is copied, and the new store before it gets its name. Exit code 0: done; 1: done, and the log is damaged as
    it is in STORE.
    """
    from rmqstore.backup.restore import SeedOptions
    from rmqstore.backup.restore import seed as run
    from rmqstore.files.store import open_store

    refuse_inside(target, store)
    check_target(target)
    opened = open_store(store, config)
    with out.progress("seed", opened.log_bytes) as progress:
        options = SeedOptions(role, self_id or "", work.max_rate, work.broker or "", work.jobs, progress.add)
        done = run(opened, target, options)
    if out.as_json:
        document = {"schema": "rmqstore.seed/1", "store": str(store), "output": str(target), "role": role}
        out.report(document | result_of(done))
    else:
        out.lines(
            result_lines(done, target, Text("Seeded {target} from {store}", target=target, store=store)), wrap=True
        )
    return done.exit_code
