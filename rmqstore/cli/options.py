"""What every command has in common, written once: STORE, -c, --json or --format, -o, filters, --jobs, how to talk.

    @command("info", report=True, examples=(...,))
    def info(out: Output, store: Path, config: BrokerConfig) -> int: ...

The function gets `out` instead of the options about output, `config` instead of `-c`, `filters` instead of those
about topics, queues and times, and returns the exit code.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec

import click

from rmqstore.cli.output import Output
from rmqstore.cli.quantities import Size, Time
from rmqstore.errors import UsageError

P = ParamSpec("P")
VERSIONS = "4.3 … 5.4"


class Command(click.Command):
    """A command that shows its examples at the end of its help, each on a line of its own."""

    examples: tuple[str, ...] = ()

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples:
                    formatter.write(f"  {line}\n")


def command(
    name: str,
    *,
    examples: tuple[str, ...],
    store: bool = True,
    report: bool = False,
    formats: tuple[str, ...] = (),
    filters: bool = False,
    work: bool = False,
    broker: bool = False,
) -> Callable[[Callable[..., int]], click.Command]:
    """A click command with the conventions asked for.

    `store` STORE and -c; `report` --json; `formats` --format with these choices; `filters` --topic, --queue, --since,
    --until; `work` --jobs and --max-rate; `broker` --broker.
    """

    def decorate(function: Callable[..., int]) -> click.Command:
        @functools.wraps(function)
        def call(**values: Any) -> int:
            config_path = values.pop("config", None)
            _refuse_empty(values, "since", "until", "--since", "--until")
            _refuse_empty(values, "start", "stop", "--from", "--to")
            out = Output.from_options(values, as_json=values.pop("as_json", False), formats=bool(formats))
            if filters:
                from rmqstore.cli.filters import Filters

                values["filters"] = Filters(**{name: values.pop(name) for name in Filters.__slots__})
            if store:
                from rmqstore.files.broker_config import BrokerConfig

                values["config"] = BrokerConfig.read(config_path) if config_path else BrokerConfig()
                out.keep_out_of(values["store"])
            return function(out=out, **values)

        result = click.command(name, cls=Command)(call)
        assert isinstance(result, Command)
        result.examples = examples
        shared = _shared(store, report, formats, filters, work, broker)
        own = result.params
        arguments = [p for p in own if isinstance(p, click.Argument)]
        options = [p for p in own if not isinstance(p, click.Argument)]
        result.params = [p for p in shared if isinstance(p, click.Argument)] + arguments + options
        result.params += [p for p in shared if not isinstance(p, click.Argument)]
        return result

    return decorate


def _refuse_empty(values: Mapping[str, Any], low: str, high: str, *options: str) -> None:
    """A range that nothing can be in is a mistake, and not an empty answer."""
    first, behind = values.get(low), values.get(high)
    if isinstance(first, int) and isinstance(behind, int) and first >= behind:
        raise UsageError(f"nothing is between {options[0]} and {options[1]}", "give the earlier one first")


def _shared(
    store: bool, report: bool, formats: tuple[str, ...], filters: bool, work: bool, broker: bool
) -> list[click.Parameter]:
    out: list[click.Parameter] = []
    file = click.Path(path_type=Path, dir_okay=False)
    if store:
        # whether it can be read is not for click to say: that would be wrong usage, exit code 2
        out.append(click.Argument(["store"], type=click.Path(path_type=Path, readable=False), metavar="STORE"))
    if filters:
        out += [
            _option("--topic", "topics", multiple=True, metavar="NAME", help="Only this topic (may be repeated)."),
            _option(
                "--queue",
                "queues",
                multiple=True,
                metavar="ID",
                help="Only this queue: a queue id, or TOPIC/ID (may be repeated).",
            ),
            _option("--since", type=Time(), help="Stored at or after: epoch ms, ISO-8601, -2h, today."),
            _option("--until", type=Time(), help="Stored before."),
        ]
    if broker:
        out.append(
            _option("--broker", metavar="VERSION", help=f"Whose start to forecast ({VERSIONS}; default: the newest).")
        )
    if store:
        out.append(_option("-c", "--config", type=file, metavar="FILE", help="broker.conf: paths, sizes, DLedger."))
    if work:
        out += [
            _option("--jobs", type=click.IntRange(1), metavar="N", help="Processes (default: all cores)."),
            _option("--max-rate", type=Size(), metavar="SIZE", help="Read at most so much per second, such as 50M."),
        ]
    if report:
        out.append(_option("--json", "as_json", is_flag=True, help="One JSON object instead of text."))
    if formats:
        out.append(
            _option(
                "--format",
                "format",
                type=click.Choice(formats),
                help="Default: a table on a terminal, NDJSON otherwise.",
            )
        )
    if report or formats:
        out += [
            _option("-o", "--output", type=file, metavar="FILE", help="Write there instead of stdout, all or nothing."),
            _option("--string-ints", is_flag=True, help="64-bit numbers as JSON strings."),
        ]
    out += [
        _option("-q", "--quiet", is_flag=True, help="No warnings, no progress on stderr."),
        _option("-v", "--verbose", count=True, help="More to read."),
        _option(
            "--progress",
            type=click.Choice(["auto", "bar", "json", "none"]),
            default="auto",
            help="Progress on stderr (auto: a bar on a terminal).",
        ),
        _option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", help="Colours."),
    ]
    return out


def _option(*names: str, **options: Any) -> click.Option:
    return click.Option(list(names), **options)


@dataclass(frozen=True, slots=True)
class Applying:
    """What is to become of a plan: carried out or only shown, saved in `plan_out`, or taken from `plan_file`."""

    apply_it: bool
    plan_out: Path | None
    force: str | None
    journal: Path | None
    stopped: bool = False
    plan_file: Path | None = None

    @property
    def how(self) -> dict[str, Any]:
        """What `journal.apply` needs of it."""
        return {"journal_dir": self.journal, "force_digest": self.force, "stopped": self.stopped}


def broker_is_stopped(function: Callable[..., int]) -> Callable[..., int]:
    """The option with which the operator vouches for what rmqstore may not see."""
    words = "The broker is stopped: change the store although other users' processes cannot be looked into."
    return click.option("--broker-is-stopped", "stopped", is_flag=True, help=words)(function)


def applying(*, takes_plan: bool = False) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """The options of a command whose plan can be applied, as one value `applying`; `takes_plan` adds --plan."""
    file = click.Path(path_type=Path, dir_okay=False)
    folder = click.Path(path_type=Path, file_okay=False)
    digest = "Apply a plan that needs a decision; the plan names its digest."
    options: list[Callable[..., Any]] = [
        click.option("--apply", "apply_it", is_flag=True, help="Carry the plan out; without it nothing is written."),
        click.option("--plan-out", type=file, metavar="FILE", help="Save the plan."),
        click.option("--plan", "plan_file", type=file, metavar="FILE", help="Take this plan, made by --plan-out."),
        click.option("--force", metavar="DIGEST", help=digest),
        click.option("--journal", type=folder, metavar="DIR", help="Keep the way back there."),
    ]
    if not takes_plan:
        del options[2]
    options.append(broker_is_stopped)

    def decorate(function: Callable[..., int]) -> Callable[..., int]:
        @functools.wraps(function)
        def call(**values: Any) -> int:
            own = {name: values.pop(name) for name in Applying.__slots__ if name in values}
            return function(applying=Applying(**own), **values)

        for option in reversed(options):
            call = option(call)
        return call

    return decorate
