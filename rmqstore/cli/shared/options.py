"""What commands share: STORE, -c, --json or --format, -o, filters, --jobs, verbosity, colours, shell completion.

    @command("info", report=True, examples=(...,))
    def info(out: Output, store: Path, config: BrokerConfig) -> int: ...

Options reach the function as a few values: `out` (output), `config` (-c), `filters` (topics, queues, times), `work`
(--jobs, --max-rate, --broker). `@gathered` does the same for options of one command. The function returns the exit
code.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ParamSpec

import click
from click.core import ParameterSource

from rmqstore.cli.printing.output import Output, warn
from rmqstore.cli.printing.quantities import SIZE, TIME, UTC_KEY
from rmqstore.cli.shared.completion import add_completion
from rmqstore.cli.shared.filters import FilterOptions
from rmqstore.cli.shared.help_pages import LANG, Context, kept, paged
from rmqstore.cli.shared.settings import config_of, defaults
from rmqstore.errors import UsageError
from rmqstore.files import pace
from rmqstore.files.disk import StorePath, real_path
from rmqstore.files.versions import exact_version
from rmqstore.texts import Text, many

if TYPE_CHECKING:
    from rmqstore.checks.options import VerifyOptions
    from rmqstore.files.broker_config import BrokerConfig
    from rmqstore.scan.window import ScanOptions
    from rmqstore.scan.workers import Workers


P = ParamSpec("P")
PLANNING = {
    *("strategy", "role", "only", "accept_fillers", "allow_shift", "merge_neighbours", "accept_odds"),
    *("replicas", "extend", "heal_fillers"),
    *("topics", "queues", "reserved", "any_hour"),
}
"""Parameters of all commands that decide what a plan does."""
SINCE = Text(
    "Only messages stored at or after this time: 2026-11-21T08:00, -2h, today, 'yesterday 10:00', epoch s or ms."
)
UNTIL = Text(
    "Only messages stored before this time. Of a log over 64 MiB, only the part from one minute "
    "before --since to one minute after --until is read; the minute covers a clock that was set "
    "back."
)
VERSIONS = Text("4.3 … 5.5.1; default: the newest that can have written the store, at least 5.4.0")
ALONE = 32 << 20  # bytes of logs up to which a single process is faster than several
FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)
PATH = click.Path(path_type=Path)
SOURCE = click.Path(path_type=Path, readable=False)
"""A store or a file to read: that it cannot be read is not wrong usage (exit code 2), as click says."""
BODY = click.Choice(["text", "json", "hex", "base64"])
_BROKER_CONF = Text("broker.conf with the paths, file sizes and DLedger settings.")
RATE = Text("Read at most this much per second, such as 50M; all processes together.")
_ONE_OBJECT = Text("Print one JSON object instead of text.")


def config_option(words: str = _BROKER_CONF) -> Callable[[Callable[P, int]], Callable[P, int]]:
    """Return the option -c, as `broker_conf`, of a command without the one argument STORE."""
    return click.option("-c", "--config", "broker_conf", type=FILE, metavar="FILE", help=words)


def json_option(function: Callable[P, int]) -> Callable[P, int]:
    """Return the option --json of a command whose -o is not where it writes its answer."""
    return click.option("--json", "as_json", is_flag=True, help=_ONE_OBJECT)(function)


@dataclass(frozen=True, slots=True)
class WorkOptions:
    """--jobs (None: one process per core), --max-rate (bytes per second, 0: no limit), --broker (None: newest)."""

    jobs: int | None
    max_rate: int = 0
    broker: str | None = None

    def processes(self, size: int) -> int:
        """Processes to read `size` bytes of logs with: only one if they are few."""
        from rmqstore.scan.workers import jobs_or_default

        return jobs_or_default(self.jobs) if size > ALONE else 1

    def workers(self, size: int, progress: Callable[[int], None]) -> Workers:
        """Return the processes that read `size` bytes of logs."""
        from rmqstore.scan.workers import Workers, jobs_or_default

        return Workers(jobs_or_default(self.jobs, size), progress=progress)

    def scanning(self, live: bool, **more: Any) -> ScanOptions:
        """Return how to read a log; `live`: a broker is writing to it."""
        from rmqstore.scan.window import ScanOptions

        return ScanOptions(drop_cache=live, **more)

    def verifying(self, progress: Callable[[int], None] | None = None, **more: Any) -> VerifyOptions:
        """Return options of `verify` with these values."""
        from rmqstore.checks.options import VerifyOptions

        return VerifyOptions(jobs=self.jobs, broker=self.broker or "", progress=progress, **more)


class Command(click.Command):
    """A command whose help ends with examples, one per line."""

    examples: tuple[str, ...] = ()
    renamed: Mapping[str, str] = MappingProxyType({})
    """Old spellings of options, with the new ones."""
    context_class = Context

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """Return --help, which is paged."""
        return paged(super().get_help_option(ctx))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take defaults from the environment and the settings file."""
        ctx.default_map = defaults({p.name for p in self.params if p.name})
        return super().parse_args(ctx, self._in_new_spelling(args))

    def _in_new_spelling(self, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        out = []
        for word in args[:end]:
            old, sign, value = word.partition("=")
            new = self.renamed.get(old, old)
            if new != old:
                warn(Text("note: {old} is now {new}; the next release refuses the old spelling", old=old, new=new))
            out.append(f"{new}{sign}{value}")
        return out + args[end:]

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        if self.examples:
            with formatter.section(Text("Examples")):
                for line in self.examples:
                    formatter.write(f"  {line}\n")


_MOST_WARNINGS = 20  # lines of broker.conf that are named
_FINDS_LINES = ("verify",)  # lines of broker.conf without effect are findings


def command(
    name: str,
    *,
    examples: tuple[str, ...],
    store: bool = True,
    report: bool = False,
    formats: tuple[str, ...] = (),
    filters: bool = False,
    work: bool = False,
) -> Callable[[Callable[..., int]], click.Command]:
    """Make a click command with shared options.

    `store` STORE and -c; `report` --json; `formats` --format with these choices; `filters` --topic, --queue, --since,
    --until; `work` --jobs and --max-rate.
    """

    def decorate(function: Callable[..., int]) -> click.Command:
        @functools.wraps(function)
        def call(**values: Any) -> int:
            config_path = values.pop("config", None)
            _refuse_empty(values, "since", "until", "--since", "--until")
            _refuse_empty(values, "start", "stop", "--from", "--to")
            out = Output.from_options(values, formats)
            if filters:
                _gather(values, "filters", FilterOptions)
            if work:
                _gather(values, "work", WorkOptions)
            if formats:
                out.refuse_existing()
            if store:
                if config_path is None and (config_path := config_of(values["store"])) is not None:
                    out.note(Text("note: using -c {path} from the settings file", path=config_path))
                version = values["work"].broker if work else None
                told = name in _FINDS_LINES or values.get("settings", False)
                values["config"] = read_config(out, config_path, version, tells=not told)
                _warn_of_another_store(out, values["store"], values["config"])
                out.keep_out_of(values["store"])
            with pace.at_most(values["work"].max_rate if work else 0):
                return function(out=out, **values)

        result = click.command(name, cls=Command)(call)
        assert isinstance(result, Command)
        result.examples = examples
        if store:
            path = click.Path(path_type=StorePath, readable=False)
            result.params.insert(0, click.Argument(["store"], type=path, metavar="STORE"))
        result.params += _shared(store, report, formats, filters, work)
        result.params.sort(key=lambda parameter: not isinstance(parameter, click.Argument))
        for parameter in result.params:
            add_completion(name, parameter)
        return result

    return decorate


def renamed(**options: str) -> Callable[[click.Command], click.Command]:
    """Let old spellings of options work, with a note: `renamed(id="--self-id")` for --id."""

    def decorate(command: click.Command) -> click.Command:
        assert isinstance(command, Command)
        command.renamed = {f"--{old}": new for old, new in options.items()}
        return command

    return decorate


def queue_option(function: Callable[..., int]) -> Callable[..., int]:
    """Return the option --queue, as `queues`, of a command without the other filters."""
    words = Text("Only this queue: a queue id, or TOPIC/ID (may be repeated).")
    return click.option("--queue", "queues", multiple=True, metavar="ID", help=words)(function)


def broker_option(function: Callable[..., int]) -> Callable[..., int]:
    """Return the option --broker, which becomes a part of `work`."""
    words = Text("Broker version whose start-up to forecast ({versions}).", versions=VERSIONS)
    return click.option("--broker", metavar="VERSION", help=kept(words))(function)


def text_filters(function: Callable[..., int]) -> Callable[..., int]:
    """Return the options --tag and --key, which become a part of `filters`."""
    words = Text("Only messages with this key (may be repeated).")
    function = click.option("--key", "keys", multiple=True, metavar="KEY", help=words)(function)
    words = Text("Only messages with these TAGS (may be repeated).")
    return click.option("--tag", "tags", multiple=True, metavar="TAG", help=words)(function)


def gathered(name: str, kind: type | str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Pass the options that are fields of the dataclass `kind` as one argument `name`.

    A dataclass of another package is named by `MODULE:CLASS`: it is imported when the command runs, not for its help.
    """

    def decorate(function: Callable[..., int]) -> Callable[..., int]:
        @functools.wraps(function)
        def call(**values: Any) -> int:
            _gather(values, name, kind)
            return function(**values)

        return call

    return decorate


def _gather(values: dict[str, Any], name: str, kind: type | str) -> None:
    """Replace the values that are fields of a dataclass by one instance of it; its defaults take the place of None."""
    if isinstance(kind, str):
        module, _, own = kind.partition(":")
        kind = getattr(importlib.import_module(module), own)
    made: Any = kind
    found = [(field, values.pop(field.name)) for field in fields(made) if field.name in values]
    values[name] = made(**{f.name: value for f, value in found if value is not None or f.default is MISSING})


def read_config(out: Output, path: Path | None, version: str | None = None, *, tells: bool = True) -> BrokerConfig:
    """Read a broker.conf, if there is a path, as a broker of this version does; `tells`: warn of lines without effect.

    Errors: as `BrokerConfig.read`.
    """
    from rmqstore.files.broker_config import BrokerConfig

    if path is None:
        return BrokerConfig()
    exact = ""
    if version:
        with contextlib.suppress(UsageError):  # the command itself refuses an unknown version
            exact = exact_version(version)
    config = BrokerConfig.read(path, exact)
    unread = config.unread if tells else []
    for line in unread[:_MOST_WARNINGS]:
        hint = Text("; write {line}", line=line.write) if line.write else ""
        words = Text("warning: {path}, line {number}: {what}{hint}")
        out.note(words.format(path=path, number=line.number, what=line.words(config.version), hint=hint))
    if (more := len(unread) - _MOST_WARNINGS) > 0:
        lines = Text("warning: {path}: {lines} without effect; `rmqstore info STORE --settings` lists all of them")
        out.note(lines.format(path=path, lines=many(more, "more line")))
    return config


def _warn_of_another_store(out: Output, store: Path, config: BrokerConfig) -> None:
    """Warn of a broker.conf whose storePathRootDir is not this store: it may have other file sizes and paths."""
    root = config.given.get("storePathRootDir", "").strip()
    if not root:
        return
    home, path = real_path(Path(root)), real_path(store)
    if home != path and home not in path.parents:
        words = Text("warning: {source} is the configuration of {root}, not of {store}")
        out.note(words.format(source=config.source, root=root, store=store))


def _refuse_empty(values: Mapping[str, Any], low: str, high: str, *options: str) -> None:
    """Errors: UsageError for a range that contains nothing."""
    first, behind = values.get(low), values.get(high)
    if isinstance(first, int) and isinstance(behind, int) and first >= behind:
        raise UsageError(
            Text("{low} must be less than {high}", low=options[0], high=options[1]), Text("give the smaller one first")
        )


def _shared(store: bool, report: bool, formats: tuple[str, ...], filters: bool, work: bool) -> list[click.Parameter]:
    out: list[click.Parameter] = []
    if filters:
        out += _filter_options()
    if store:
        out.append(_option("-c", "--config", type=FILE, metavar="FILE", help=_BROKER_CONF))
    if work:
        out += [
            _option("--jobs", type=click.IntRange(1), metavar="N", help="Number of processes (default: one per core)."),
            _option("--max-rate", type=SIZE, metavar="SIZE", help=RATE),
        ]
    if report:
        out.append(_option("--json", "as_json", is_flag=True, help=_ONE_OBJECT))
    as_table = "table" in formats
    if formats:
        otherwise = Text("a table on a terminal, NDJSON otherwise") if as_table else Text("NDJSON on stdout")
        words = Text("Output format (default: by the name of FILE; {otherwise}).", otherwise=otherwise)
        out.append(_option("--format", type=click.Choice(formats), help=kept(words)))
    if report or formats:
        words = Text("Write to FILE (atomically) instead of stdout.")
        out.append(_option("-o", "--output", type=FILE, metavar="FILE", help=words))
    if formats:
        words = Text("Write times in ISO 8601 (UTC) to NDJSON and CSV, not in ms since 1970; no import reads them.")
        out.append(_option("--iso", is_flag=True, help=words))
        out.append(_option("--overwrite", is_flag=True, help="Replace FILE if it exists."))
    if report or as_table:
        out += [
            _option("--string-ints", is_flag=True, help="Write 64-bit numbers as JSON strings."),
            _option("--no-pager", is_flag=True, help="Print text longer than the screen without a pager."),
        ]
    return out + _talk_options()


def _filter_options() -> list[click.Parameter]:
    return [
        _option("--topic", "topics", multiple=True, metavar="NAME", help="Only this topic (may be repeated)."),
        _option(
            "--queue",
            "queues",
            multiple=True,
            metavar="ID",
            help="Only this queue: a queue id, or TOPIC/ID (may be repeated).",
        ),
        _option("--since", type=TIME, help=SINCE),
        _option("--until", type=TIME, help=UNTIL),
    ]


def _talk_options() -> list[click.Parameter]:
    return [
        _option("-q", "--quiet", is_flag=True, help="Print no warnings and no progress."),
        _option("-v", "--verbose", count=True, help="Show more detail."),
        _option(
            "--progress",
            type=click.Choice(["auto", "bar", "json", "none"]),
            default="auto",
            help="How to show progress on stderr (auto: a bar on a terminal).",
        ),
        _option(
            "--utc",
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_in_utc,
            help="Read and show times in UTC.",
        ),
        _option(
            "--color", type=click.Choice(["auto", "always", "never"]), default="auto", help="Whether to use colours."
        ),
        _option("--lang", **LANG),
    ]


def _in_utc(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    """Store --utc where times are parsed; the option is eager, so that it comes before them."""
    ctx.meta[UTC_KEY] = value


def _option(*names: str, **options: Any) -> click.Option:
    return click.Option(list(names), **options)


@dataclass(frozen=True, slots=True)
class Applying:
    """What to do with a plan: apply it or only show it, save it in `plan_out`, or read it from `plan_file`."""

    apply_it: bool
    plan_out: Path | None
    force: str | None
    journal: Path | None
    plan_file: Path | None = None
    stopped: bool = False
    roots: tuple[Path, ...] = ()
    """Directories outside of STORE that may be changed: --root, and those of broker.conf."""
    safe: bool = False
    """Apply the plan only if it loses nothing and needs no decision."""

    @property
    def how(self) -> dict[str, Any]:
        """The keyword arguments of `journal.apply`."""
        return {
            "journal_dir": self.journal,
            "force_digest": self.force,
            "stopped": self.stopped,
            "roots": self.roots,
        }


def broker_is_stopped(function: Callable[..., int]) -> Callable[..., int]:
    """Return the option --broker-is-stopped, for what rmqstore may not see."""
    words = Text("Confirm that the broker is stopped, where rmqstore cannot look into processes of other users.")
    return click.option("--broker-is-stopped", "stopped", is_flag=True, help=words)(function)


def root_option(function: Callable[..., int]) -> Callable[..., int]:
    """Return the option --root, for what only a journal or a link in the store names."""
    words = Text(
        "Directory outside of STORE that belongs to this broker (may be repeated). Those of broker.conf (-c) need no "
        "--root."
    )
    return click.option("--root", "roots", type=FOLDER, metavar="DIR", multiple=True, help=words)(function)


def named_roots(function: Callable[..., int]) -> Callable[..., int]:
    """Return the option --root, which becomes a part of `config`."""

    @root_option
    @functools.wraps(function)
    def call(**values: Any) -> int:
        values["config"] = values["config"].with_roots(values.pop("roots"))
        return function(**values)

    return call


def refuse_typed(names: Collection[str], beside: str, advice: str) -> None:
    """Errors: UsageError for an option with one of these parameter names on the command line, `beside` another one."""
    context = click.get_current_context()
    for parameter in context.command.params:
        typed = context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
        if typed and parameter.name in names:
            raise UsageError(
                Text("{option} and {other} exclude each other", option=beside, other=parameter.opts[0]), advice
            )


def applying() -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Return the options of a command whose plan can be applied, as one value `applying`."""
    digest = Text("Apply a plan that needs a decision. The printed plan shows its digest.")
    options: list[Callable[..., Any]] = [
        click.option(
            "--apply", "apply_it", is_flag=True, help="Apply the plan. Without this option nothing is written."
        ),
        click.option("--plan-out", type=FILE, metavar="FILE", help="Save the plan as JSON."),
        click.option("--plan", "plan_file", type=FILE, metavar="FILE", help="Use this plan, saved by --plan-out."),
        click.option("--force", metavar="DIGEST", help=digest),
        click.option(
            "--journal",
            type=FOLDER,
            metavar="DIR",
            help="Directory for the undo journal; created if missing (default: STORE/.rmqstore).",
        ),
        root_option,
        broker_is_stopped,
    ]

    def decorate(function: Callable[..., int]) -> Callable[..., int]:
        @functools.wraps(function)
        def call(**values: Any) -> int:
            if values["plan_file"] is not None:
                refuse_typed(PLANNING, "--plan", Text("the plan decides what is done"))
            values["config"] = values["config"].with_roots(values["roots"])
            values["roots"] = (*values["roots"], *values["config"].directories)
            _gather(values, "applying", Applying)
            return function(**values)

        for option in reversed(options):
            call = option(call)
        return call

    return decorate


def topic_map(texts: tuple[str, ...]) -> dict[str, str]:
    """Return new names of topics by their old ones. Errors: UsageError."""
    found: dict[str, str] = {}
    for text in texts:
        old, equals, new = text.partition("=")
        if not equals or not old or not new:
            raise UsageError(Text("--topic-map {text!r} is not OLD=NEW", text=text), "--topic-map Order=Order_copy")
        found[old] = new
    return found
