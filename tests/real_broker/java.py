"""The released classes of RocketMQ, ready to run: jars from Maven, and our Java sources compiled against them.

    RMQ_LIBS                 a directory with VERSION/lib/*.jar to use instead of the cache
    RMQSTORE_REQUIRE_BROKER  1: a test that cannot run without Java or Maven fails instead of being skipped

Everything is cached in ~/.cache/rmqstore/oracle/VERSION (or below XDG_CACHE_HOME). Each part is created under another
name and then renamed, under a lock, so that several test processes can start with an empty cache.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).resolve().parent.parent / "oracle"
LOGGING = SOURCES / "logging"

_OPENED = ("java.nio", "java.lang", "java.util", "sun.nio.ch", "jdk.internal.ref")
_DOWNLOAD_SECONDS = 900
_OLDEST_JAVA = 11
_OTHER_MODULES = {"5.5.1": "5.5.0"}
"""Releases of which Maven Central lacks modules (name server, client, tools …), and the release that these are from."""


class BrokerUnavailable(Exception):
    """The real RocketMQ cannot run here; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class JavaClasses:
    """A RocketMQ release and our classes compiled against it."""

    version: str
    jar: Path
    """Our own classes."""
    libraries: tuple[Path, ...]
    archive: Path
    """Class data archive (AppCDS) of the oracle; may be missing, Java then starts without it."""

    def command(
        self, main: str, *, log: Path, home: Path, heap: str = "512m", options: tuple[str, ...] = ()
    ) -> list[str]:
        """Return the command line that runs `main`; RocketMQ's logs go to `log`, its other files to `home`.

        Those include the libraries that RocksDB unpacks into Java's directory for temporary files, 13 MB each: a JVM
        that is killed leaves them there.
        """
        return [
            "java",
            f"-Xmx{heap}",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-XX:+IgnoreUnrecognizedVMOptions",
            *(word for package in _OPENED for word in ("--add-opens", f"java.base/{package}=ALL-UNNAMED")),
            "-Dfile.encoding=UTF-8",
            "-Drocketmq.client.logUseSlf4j=true",
            f"-Duser.home={home}",
            f"-Djava.io.tmpdir={home}",
            f"-Drmqstore.log={log}",
            f"-Dlogback.configurationFile={LOGGING / 'logback.xml'}",
            f"-Drmq.logback.configurationFile={LOGGING / 'rmq.logback.xml'}",
            *options,
            "-cp",
            os.pathsep.join(str(path) for path in (self.jar, *self.libraries)),
            main,
        ]


def java_classes(version: str) -> JavaClasses:
    """Fetch and compile the classes of a version, cached. Errors: BrokerUnavailable with the reason."""
    made = _made(version)
    if isinstance(made, BrokerUnavailable):
        raise made
    return made


@functools.cache
def _made(version: str) -> JavaClasses | BrokerUnavailable:
    """Cache the error, too: otherwise, without a network, every test would wait for Maven again."""
    try:
        java = _java_version()
        home = _cache() / version
        home.mkdir(parents=True, exist_ok=True)
        with _locked(home / ".lock"):
            libraries = tuple(sorted(_libraries(version, home).glob("*.jar")))
            jar = _compiled(version, home, libraries)
    except BrokerUnavailable as missing:
        return missing
    except OSError as error:
        return BrokerUnavailable(f"the jars of RocketMQ {version} cannot be kept: {error}")
    return JavaClasses(version, jar, libraries, home / f"{jar.stem}-{hashlib.sha256(java).hexdigest()[:12]}.jsa")


def _java_version() -> bytes:
    """Return the output of `java -version`."""
    for tool in ("java", "javac"):
        if shutil.which(tool) is None:
            raise BrokerUnavailable(f"no {tool} on PATH (RocketMQ needs a JDK, {_OLDEST_JAVA} or newer)")
    text = subprocess.run(["java", "-version"], capture_output=True, check=False).stderr
    number = re.search(rb'version "(\d+)', text)
    if number is None or int(number[1]) < _OLDEST_JAVA:  # Java 8 calls itself 1.8
        raise BrokerUnavailable(f"java on PATH is not {_OLDEST_JAVA} or newer: {text.decode(errors='replace')[:80]}")
    return text


def _cache() -> Path:
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rmqstore" / "oracle"
    except RuntimeError as error:  # a user in a container, without HOME and without an entry in passwd
        raise BrokerUnavailable(f"no directory for RocketMQ's jars (XDG_CACHE_HOME): {error}") from error


def _libraries(version: str, home: Path) -> Path:
    if "RMQ_LIBS" in os.environ:
        given = Path(os.environ["RMQ_LIBS"]) / version / "lib"
        if not any(given.glob("*.jar")):
            raise BrokerUnavailable(f"RMQ_LIBS names a directory without {version}/lib/*.jar")
        return given
    lib = home / "lib"
    if lib.exists():
        return lib
    if shutil.which("mvn") is None:
        raise BrokerUnavailable(f"no mvn on PATH (Maven fetches the jars of RocketMQ {version})")
    failed, run = home / ".failed", os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    if failed.exists() and failed.read_text("utf-8").startswith(f"{run}\n"):  # another worker of this run has tried
        raise BrokerUnavailable(failed.read_text("utf-8").partition("\n")[2])
    building = Path(tempfile.mkdtemp(prefix=".lib-", dir=home))
    try:
        with _locked(home.parent / ".maven.lock"):  # Maven's own repository does not support two processes
            _fetch(version, building)
    except BrokerUnavailable as missing:
        shutil.rmtree(building)
        failed.write_text(f"{run}\n{missing}", "utf-8")
        raise
    building.rename(lib)
    return lib


def _fetch(version: str, target: Path) -> None:
    """Let Maven copy the jars of a release, and try a failed download once more."""
    command = ["mvn", "-q", "-B", "-f", str(SOURCES / "pom.xml"), f"-Drocketmq.version={version}"]
    command += [f"-Drocketmq.others={_OTHER_MODULES.get(version, version)}"]
    command += ["dependency:copy-dependencies", f"-DoutputDirectory={target}"]
    output = ""
    for again in ([], ["-U"]):  # without -U, Maven caches a failed download for a day
        try:
            subprocess.run(
                [*command, *again],
                check=True,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_DOWNLOAD_SECONDS,
            )
            return
        except subprocess.CalledProcessError as error:
            output = " ".join((error.stdout + error.stderr).split())[:200]
        except subprocess.TimeoutExpired as error:
            raise BrokerUnavailable(f"Maven did not fetch RocketMQ {version} in {_DOWNLOAD_SECONDS} s") from error
    raise BrokerUnavailable(f"Maven could not fetch RocketMQ {version}: {output}")


def _compiled(version: str, home: Path, libraries: tuple[Path, ...]) -> Path:
    """Compile our sources into a jar named by their digest (AppCDS supports only jars, not folders)."""
    sources = sorted(SOURCES.rglob("*.java"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
    jar = home / f"oracle-{digest}.jar"
    if jar.exists():
        return jar
    with tempfile.TemporaryDirectory(dir=home) as folder:
        classes = Path(folder) / "classes"
        command = ["javac", "-nowarn", "--release", str(_OLDEST_JAVA), "-encoding", "UTF-8", "-d", str(classes), "-cp"]
        command += [os.pathsep.join(map(str, libraries)), *map(str, sources)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"tests/oracle does not compile against RocketMQ {version}:\n{done.stderr}")
        building = Path(folder) / jar.name
        with zipfile.ZipFile(building, "w") as out:
            for path in sorted(classes.rglob("*.class")):
                out.write(path, path.relative_to(classes))
        building.rename(jar)
    return jar


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock: one of several test processes fetches and compiles, and the others wait for it."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
