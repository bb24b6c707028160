"""`rmqstore examples`."""

from __future__ import annotations

from pathlib import Path

import click

from rmqstore import __version__
from rmqstore.cli.printing.output import Output
from rmqstore.cli.printing.quantities import many
from rmqstore.cli.shared.options import PATH, command
from rmqstore.files.trees import write_readable
from rmqstore.texts import Text

SOURCE = Path(__file__).parents[1] / "examples"


@command(
    "examples",
    store=False,
    report=True,
    examples=(
        "rmqstore examples rmqstore-examples",
        "rmqstore examples rmqstore-examples --json",
        "rmqstore examples rmqstore-examples -q && less rmqstore-examples/README.md",
    ),
)
@click.argument("target", type=PATH, metavar="DIR")
def examples(out: Output, target: Path) -> int:
    """Write example files to the new directory DIR.

    Units and a timer for systemd, a line for cron, alert rules for Prometheus, a dashboard for Grafana, a play for
    Ansible, a script for ssh, manifests for Kubernetes. README.md says what each is for. Every user can read the files.
    """
    out.check()
    version = __version__.encode()
    files = {str(path.relative_to(SOURCE)): path for path in sorted(SOURCE.rglob("*")) if path.is_file()}
    contents = {name: path.read_bytes().replace(b"VERSION", version) for name, path in files.items()}
    write_readable(target, contents, out.note_removed)
    written = [str(target / name) for name in files]
    summary = Text("{files} written", files=many(len(files), "example", "examples"))
    lines = [] if out.quiet else [str(summary), *(f"  {name}" for name in written)]
    out.answer({"schema": "rmqstore.examples/1", "files": written}, lines)
    return 0
