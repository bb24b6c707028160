"""The command tree. A command's module is imported only when the command runs, so that `--help` is instant.

A new command is a module here with one `click.Command` in it, and a row in `COMMANDS`. All errors end here: one line on
stderr, an exit code that `rmqstore --help` lists, and with --json the error object on stdout.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import importlib
import os
import shlex
import signal
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

from rmqstore import __version__
from rmqstore.cli import lang
from rmqstore.cli.printing.output import flush_stdout, guard_descriptors, swallow_stdout, tell_error, warn
from rmqstore.cli.shared.help_pages import Context, lang_option, paged
from rmqstore.cli.shared.interrupts import Ended, interruptible
from rmqstore.cli.shared.settings import closest, language_of_settings
from rmqstore.errors import NotReadable, RmqStoreError, UsageError, about, reason
from rmqstore.texts import Text

READING = Text("Read a store")
CHANGING = Text("Change a store (print the plan; write nothing without --apply)")
MAKING = Text("Make a new store (--dry-run writes nothing)")
COPYING = Text("Back up, restore, replicate")
REPAIRS = Text("Undo or finish a repair")
SENDING = Text("Return messages (--dry-run sends none)")
MANY_STORES = Text("Many stores")

# command -> (module, section, short help); the order is that of `rmqstore --help`
COMMANDS: dict[str, tuple[str, str, str]] = {
    "info": ("info", READING, Text("Show kind, files, topics and offsets of a store.")),
    "verify": ("verify", READING, Text("Find all problems, and forecast the next broker start.")),
    "doctor": ("doctor", READING, Text("Show the state of a store on one page, and what to do.")),
    "dump": ("dump", READING, Text("Print records as a table, NDJSON, CSV or hex.")),
    "get": ("get", READING, Text("Show one message completely.")),
    "find": ("find", READING, Text("Find messages, and show whether consumers get them.")),
    "lost": ("lost", READING, Text("List the messages that are lost or damaged.")),
    "pending": ("pending", READING, Text("Show what waits: delayed, half, in flight, unread.")),
    "du": ("du", READING, Text("Show messages and bytes per topic, queue, tag or day.")),
    "report": ("report", READING, Text("Write an HTML page: problems, map, usage, lag.")),
    "bundle": ("bundle", READING, Text("Copy a store without names and bodies, to share it.")),
    "export": ("export", READING, Text("Write messages to NDJSON, CSV, Parquet or Arrow.")),
    "send": ("send", SENDING, Text("Send messages to a running cluster.")),
    "sql": ("sql", READING, Text("Query one or more stores with SQL (DuckDB).")),
    "compare": ("compare", READING, Text("Find where two replicas differ.")),
    "recover": ("recover", CHANGING, Text("Repair a store, losing as little as possible.")),
    "rebuild": ("rebuild", CHANGING, Text("Rebuild queues, index or checkpoint from the log.")),
    "offsets": ("offsets", CHANGING, Text("Show or change the progress of consumer groups.")),
    "expire": ("expire", CHANGING, Text("Delete expired files, as the broker's clean-up does.")),
    "journals": ("journals", CHANGING, Text("List the journals of repairs; remove old ones.")),
    "migrate-to-dledger": ("migrate", CHANGING, Text("Convert a plain store to DLedger.")),
    "migrate-to-commitlog": ("migrate", MAKING, Text("Make a plain store from a DLedger store.")),
    "import": ("import_", MAKING, Text("Make a store from exported messages.")),
    "backup": ("backup", COPYING, Text("Add a snapshot of a (live) store to a repository.")),
    "receive": ("receive", COPYING, Text("Follow a live master into a repository.")),
    "snapshots": ("backup", COPYING, Text("List, check or forget the snapshots in a repository.")),
    "restore": ("restore", COPYING, Text("Build a store from a snapshot, at any point in time.")),
    "seed": ("restore", COPYING, Text("Make a new replica from a live master.")),
    "carve": ("carve", COPYING, Text("Put stores together again from a disk whose files are gone.")),
    "undo": ("undo", REPAIRS, Text("Undo a repair, byte for byte.")),
    "resume": ("undo", REPAIRS, Text("Continue an interrupted repair.")),
    "fleet": ("fleet", MANY_STORES, Text("Show the results of many hosts in one table.")),
    "pipeline": ("pipeline", MANY_STORES, Text("Run a job on many or very large stores, with Spark.")),
    "examples": ("examples", MANY_STORES, Text("Write units, alert rules, a dashboard and playbooks.")),
}

MEANT = {
    "search": ("find", ""),
    "grep": ("find", Text("--grep REGEX searches bodies and properties")),
    "trace": ("find", ""),
    "show": ("dump", ""),
    "list": ("dump", ""),
    "cat": ("dump", ""),
    "ls": ("info", ""),
    "check": ("verify", ""),
    "fsck": ("verify", ""),
    "test": ("verify", ""),
    "repair": ("recover", ""),
    "fix": ("recover", ""),
    "resend": ("send", ""),
    "produce": ("send", ""),
    "replay": ("send", ""),
    "clean": ("expire", ""),
    "diff": ("compare", ""),
    "usage": ("du", ""),
    "lag": ("offsets", ""),
    "backlog": ("pending", ""),
    "unread": ("pending", ""),
    "delayed": ("pending", ""),
    "progress": ("offsets", ""),
    "reset": ("offsets", Text("--set GROUP TOPIC --to TIME moves a group")),
    "follow": ("receive", ""),
    "replicate": ("receive", ""),
    "undelete": ("carve", ""),
    "rollback": ("undo", ""),
    "revert": ("undo", ""),
    "continue": ("resume", ""),
    "migrate": ("migrate-to-dledger", Text("or `rmqstore migrate-to-commitlog`")),
    "spark": ("pipeline", ""),
    "dashboard": ("fleet", ""),
    "overview": ("fleet", ""),
}
"""Word that users try -> the command that does it, and a hint."""


class _PipeClosed(Exception):
    """The reader of stdout has closed it; the command ends quietly."""


class CommandGroup(click.Group):
    """Loads a command when it is called, and turns all errors into exit codes."""

    context_class = Context

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """Return --help, which is paged."""
        return paged(super().get_help_option(ctx))

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"rmqstore.cli.{COMMANDS[cmd_name][0]}")
        return next(c for c in vars(module).values() if isinstance(c, click.Command) and c.name == cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise UsageError(Text("no such command: {args!r}", args=args[0]), _meant(args[0]))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, COMMANDS))
        for section in (READING, CHANGING, MAKING, COPYING, SENDING, REPAIRS, MANY_STORES):
            with formatter.section(section):
                formatter.write_dl([(n.ljust(width), text) for n, (_, own, text) in COMMANDS.items() if own == section])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as e:  # click would exit with 1
            raise _PipeClosed from e

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> NoReturn:
        words = list(sys.argv[1:] if args is None else args)
        as_json = "--json" in words
        code = 0
        guard_descriptors()
        lang.use(lang.asked(words) or language_of_settings() or lang.of_locale())
        if not lang.is_english():
            from rmqstore.cli.shared.click_texts import keep_templates

            keep_templates()
        try:
            code = self._run(words, prog_name or "rmqstore", complete_var, as_json, **extra)
            try:
                flush_stdout()
            except BrokenPipeError:
                raise
            except OSError as e:
                swallow_stdout()
                code = code or self._system_error(e, as_json=False)
        except (_PipeClosed, BrokenPipeError):
            swallow_stdout()
        sys.exit(code)

    def _run(self, words: list[str], prog_name: str, complete_var: str | None, as_json: bool, **extra: Any) -> int:
        command = f"rmqstore {words[0]}" if words and words[0] in COMMANDS else "rmqstore"
        try:
            with interruptible():
                answer = super().main(words, prog_name, complete_var, standalone_mode=False, **extra)
            return answer if isinstance(answer, int) else 0
        except RmqStoreError as e:
            advice = e.advice
            if advice == UsageError.advice:
                advice = Text("see `{where} --help`", where=command)
            return _tell(e.exit_code, e.code, e.message, advice, as_json)
        except click.ClickException as e:
            from rmqstore.cli.shared.click_texts import message_of

            if not isinstance(e, click.UsageError):
                return _tell(e.exit_code, "usage", message_of(e), "", as_json)
            where = e.ctx.command_path if e.ctx else command
            return _tell(2, "usage", message_of(e), Text("see `{where} --help`", where=where), as_json)
        except (click.Abort, KeyboardInterrupt) as e:
            cause = e.__cause__ if isinstance(e, click.Abort) else e
            end = cause if isinstance(cause, Ended) else Ended(signal.SIGINT)
            return _tell(end.exit_code, "interrupted", end.message, Text("no output was left half-written"), as_json)
        except _PipeClosed:
            raise
        except OSError as e:
            return self._system_error(e, as_json)
        except Exception as e:  # noqa: BLE001  # every other exception is a bug
            return _bug(e, as_json)

    def _system_error(self, e: OSError, as_json: bool) -> int:
        from rmqstore.files.disk import is_full, read_only

        what = about(e.filename, e) if e.filename else reason(e)
        if isinstance(e, BrokenPipeError):
            raise _PipeClosed from e
        if e.errno == errno.ELOOP:
            link = Text("{path} is a symbolic link: it points to itself, or would have to be written through")
            what = link.format(path=e.filename)
            return _tell(3, "not-readable", what, Text("replace the link with the file itself"), as_json)
        if e.errno in (errno.EACCES, errno.EPERM) and isinstance(e.filename, str | bytes | os.PathLike):
            owner, advice = _who_may(Path(os.fsdecode(e.filename)))
            return _tell(3, "not-readable", what + owner, advice, as_json)
        if e.errno in (errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR, errno.EISDIR):
            user = Text("check the path, and run as the user that runs the broker")
            return _tell(3, "not-readable", what, user, as_json)
        if e.errno == errno.EROFS and isinstance(e.filename, str | bytes | os.PathLike):
            return _tell(5, "read-only", *read_only(Path(os.fsdecode(e.filename))), as_json)
        if is_full(e) or e.errno == errno.EROFS:
            return _tell(5, "no-space", what, Text("free space, or write the output elsewhere"), as_json)
        if e.errno is None:
            return _bug(e, as_json)
        disk = Text("the disk or the operating system reported an error; see dmesg")
        return _tell(4, "could-not-check", what, disk, as_json)


def end_process(code: int) -> NoReturn:
    """End the process without freeing its objects one by one, as the interpreter would: that takes 20 ms."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # it is closed
            stream.flush()
    os._exit(code)


def _meant(word: str) -> str:
    """Advice for an unknown command: one with this meaning, else one with a similar name."""
    command, how = MEANT.get(word.lower(), ("", ""))
    if not command:
        close = closest(word.lower(), [*COMMANDS, *MEANT])
        command, how = MEANT.get(close, (close, ""))
    if not command:
        return Text("see `rmqstore --help` for all commands")
    words = Text("did you mean `rmqstore {command}`? ({how})") if how else Text("did you mean `rmqstore {command}`?")
    return words.format(command=command, how=how)


def _who_may(path: Path) -> tuple[str, str]:
    """Return the owner of a path without permission, to append to the error, and advice."""
    import pwd

    try:
        status = path.stat()
    except OSError:  # its directory refuses access
        return "", NotReadable.advice
    if status.st_uid == os.geteuid():
        return Text(" (yours, mode {mode:04o})", mode=status.st_mode & 0o7777), f"chmod u+rwX {shlex.quote(str(path))}"
    try:
        owner = pwd.getpwuid(status.st_uid).pw_name
    except KeyError:
        owner = Text("user {id}", id=status.st_uid)
    advice = Text("run as root") if not status.st_uid else Text("run as {owner} or as root", owner=owner)
    if not status.st_mode & stat.S_IRUSR:
        advice = Text("as {owner}: chmod u+rwX {path}", owner=owner, path=shlex.quote(str(path)))
    return Text(" (it is {owner}'s, mode {mode:04o})", owner=owner, mode=status.st_mode & 0o7777), advice


def _tell(code: int, word: str, message: str, advice: str, as_json: bool) -> int:
    tell_error(word, message, advice, as_json)
    return code


def _bug(e: BaseException, as_json: bool) -> int:
    import traceback

    warn(lang.AsIs("".join(traceback.format_exception(e)).rstrip()))
    advice = Text(
        "this is a bug in rmqstore: please report it with the lines above; the store was not changed by reading"
    )
    tell_error("bug", f"{type(e).__name__}: {e}", advice, as_json)
    return 70


EPILOG = """\b
Examples:
  rmqstore info /data/rocketmq/store
  rmqstore verify /data/rocketmq/store -c /etc/rocketmq/broker.conf
  rmqstore dump /data/rocketmq/store --topic Order --since -2h --format ndjson

\b
Shell completion (or zsh_source, fish_source):
  eval "$(_RMQSTORE_COMPLETE=bash_source rmqstore)"

\b
Exit codes: 0 no problems, 1 problems found, 2 wrong usage, 3 not a store,
4 not everything was checked, 5 refused, 6 apply stopped half-way,
70 a bug in rmqstore, 130 interrupted (143 by SIGTERM, 129 by SIGHUP).
"""


@click.group(
    cls=CommandGroup,
    epilog=EPILOG,
    subcommand_metavar="COMMAND [ARGS]...",
    invoke_without_command=True,  # to print the help; click would print it as an error message
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="rmqstore")
@lang_option
@click.pass_context
def cli(ctx: click.Context) -> int | None:
    """Work on the store directory of an Apache RocketMQ broker, without the broker: show its contents, find problems,
    forecast what the next broker start would do, and repair it.

    STORE is a broker's storePathRootDir, a part of it (commitlog/, consumequeue/TOPIC/0/, index/, dledger-n0/), or one
    file. For reading commands it can also be REPO::NAME, the log of a snapshot. Commands that read never change a
    store, and work beside a running broker.
    """
    if ctx.invoked_subcommand is None:
        warn(ctx.get_help())
        return 2
    return None
