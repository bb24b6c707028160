"""What Spark's exceptions mean: their real reason in one line, and advice.

A Java exception comes with its causes, a failed task with the traceback of its Python process: the last line of the
innermost one tells what happened.
"""

from __future__ import annotations

import re
import socket
from typing import Any

from rmqstore.errors import RmqStoreError
from rmqstore.texts import Text

_PACKAGE = re.compile(r"^(?:[a-z_$][\w$]*\.)+(?=[A-Z])")
_RAISED = re.compile(r"^[A-Za-z_][\w.]*(?::|$)")
_MARK = "Traceback (most recent call last):"
_PORT = 7077
_CONNECT_TIMEOUT = 10.0


class SparkFailed(RmqStoreError):
    """Spark ended a job."""

    code = "spark-failed"
    exit_code = 4
    advice = Text("the job can be run again; Spark's own lines on stderr tell more")


def reason_of(error: BaseException) -> str:
    """Return the innermost reason of an exception of Spark, without names of Java packages."""
    lines = [line.strip() for line in str(error).splitlines()]
    found = _of_traceback(lines) or _of_causes(lines)
    if not found:
        found = next((line for line in lines if line), type(error).__name__)
    return _PACKAGE.sub("", found)


def _of_traceback(lines: list[str]) -> str:
    """Return the line that ends the last Python traceback; empty without one."""
    starts = [i for i, line in enumerate(lines) if line.endswith(_MARK)]
    if not starts:
        return ""
    inside = lines[starts[-1] + 1 :]
    stop = next((i for i, line in enumerate(inside) if not line or line.startswith("at ")), len(inside))
    return next((line for line in reversed(inside[:stop]) if _RAISED.match(line)), "")


def _of_causes(lines: list[str]) -> str:
    """Return the last cause of a Java exception, else what Py4J tells about it; empty without one."""
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    raised = [line.removeprefix(": ") for line in lines if line.startswith(": ")]
    program = [cause for cause in (*raised, *causes) if "Cannot run program" in cause]  # its cause is only a number
    return (program or causes or raised or [""])[-1]


def advice_for(reason: str) -> str:
    """Return what to do about the reason of a failed job."""
    if "No module named 'rmqstore'" in reason:
        return Text("executors lack rmqstore: send it with --py-files, or install it there")
    if "No module named 'rmqstore." in reason:
        return Text("executors have another version of rmqstore: give them this one")
    if "No module named" in reason:
        return Text("executors lack this library: install it there, or send an archive with --conf spark.archives=…")
    if "Cannot run program" in reason:
        return Text("executors lack this interpreter: name theirs with PYSPARK_PYTHON")
    return SparkFailed.advice


def is_of_spark(error: BaseException) -> bool:
    """Return whether an exception is one of PySpark or Py4J."""
    return any(cls.__module__.split(".")[0] in ("pyspark", "py4j") for cls in type(error).__mro__)


def failed(error: BaseException) -> SparkFailed:
    """Return the error of a job for the user."""
    reason = reason_of(error)
    return SparkFailed(Text("Spark ended the job: {why}", why=reason), advice_for(reason))


def unreachable(master: str) -> str:
    """Return why no host of a master `spark://HOST:PORT,…` accepts a connection; empty if one does, or for others."""
    if not master.startswith("spark://"):
        return ""
    why = ""
    for place in master.removeprefix("spark://").split(","):
        host, _, port = place.rpartition(":")
        try:
            socket.create_connection((host or place, int(port) if host else _PORT), _CONNECT_TIMEOUT).close()
        except (OSError, ValueError, OverflowError) as error:
            why = getattr(error, "strerror", None) or str(error)
        else:
            return ""
    return why


def unknown_settings(spark: Any, keys: list[str]) -> list[str]:
    """Return the settings that Spark ignores: those it does not define, except for prefixes where all names count."""
    known = _known(spark)
    return [key for key in keys if not key.startswith(_OPEN_PREFIXES) and not (known is None or known(key))]


# Source: SparkConf.isExecutorStartupConf and docs/configuration.md of Spark 4.0; what other modules define
_OPEN_PREFIXES = (
    *("spark.hadoop.", "spark.executorEnv.", "spark.yarn.", "spark.kubernetes.", "spark.metrics.conf."),
    *("spark.sql.catalog.", "spark.hive.", "spark.ui.", "spark.rpc.", "spark.ssl.", "spark.network."),
    *("spark.shuffle.", "spark.driver.resource.", "spark.executor.resource.", "spark.task.resource.", "spark.files."),
    *("spark.io.", "spark.history.", "spark.deploy.", "spark.worker.", "spark.master", "spark.app.", "spark.jars"),
)


def _known(spark: Any) -> Any:
    """Return a function that tells whether Spark defines a setting; None if it cannot be asked."""
    try:
        entries = spark.sparkContext._jvm.org.apache.spark.internal.config.ConfigEntry
        if entries.findEntry("spark.executor.memory") is None:
            return None
    except Exception:  # noqa: BLE001  # an internal class, which another version may not have
        return None
    return lambda key: entries.findEntry(key) is not None
