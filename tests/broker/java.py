"""The released classes of RocketMQ, ready to run: jars through Maven, our Java sources compiled against them.

    RMQ_LIBS                 a directory with VERSION/lib/*.jar to use instead of the cache
    RMQSTORE_REQUIRE_BROKER  1: a test that cannot run for want of Java or Maven fails instead of being skipped

All is kept in ~/.cache/rmqstore/oracle/VERSION (or below XDG_CACHE_HOME).
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).resolve().parent.parent / "oracle"
LOGGING = SOURCES / "logging"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "rmqstore" / "oracle"

_OPENED = ("java.nio", "java.lang", "java.util", "sun.nio.ch", "jdk.internal.ref")
_DOWNLOAD_SECONDS = 900


class BrokerUnavailable(Exception):
    """The real RocketMQ cannot run here; the text says what is missing."""


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
        """The command line that runs `main`; what it logs goes to `log`, what it wants to keep to `home`."""
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
            f"-Drmqstore.log={log}",
            f"-Dlogback.configurationFile={LOGGING / 'logback.xml'}",
            f"-Drmq.logback.configurationFile={LOGGING / 'rmq.logback.xml'}",
            *options,
            "-cp",
            os.pathsep.join(str(path) for path in (self.jar, *self.libraries)),
            main,
        ]


@functools.cache
def java_classes(version: str) -> JavaClasses:
    """Fetches, compiles and remembers; raises BrokerUnavailable with the reason where that cannot be done."""
    for tool in ("java", "javac"):
        if shutil.which(tool) is None:
            raise BrokerUnavailable(f"no {tool} on PATH (RocketMQ {version} needs a JDK, 11 or newer)")
    home = CACHE / version
    home.mkdir(parents=True, exist_ok=True)
    with _locked(home / ".lock"):
        libraries = tuple(sorted(_libraries(version, home).glob("*.jar")))
        jar = _compiled(version, home, libraries)
    java = subprocess.run(["java", "-version"], capture_output=True, check=True).stderr
    archive = home / f"{jar.stem}-{hashlib.sha256(java).hexdigest()[:12]}.jsa"
    return JavaClasses(version, jar, libraries, archive)


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
    building = Path(tempfile.mkdtemp(prefix=".lib-", dir=home))
    command = ["mvn", "-q", "-B", "-f", str(SOURCES / "pom.xml"), f"-Drocketmq.version={version}"]
    command += ["dependency:copy-dependencies", f"-DoutputDirectory={building}"]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=_DOWNLOAD_SECONDS)
    except subprocess.CalledProcessError as error:
        shutil.rmtree(building)
        said = " ".join((error.stdout + error.stderr).split())[:200]
        raise BrokerUnavailable(f"Maven could not fetch RocketMQ {version}: {said}") from error
    except subprocess.TimeoutExpired as error:
        shutil.rmtree(building)
        raise BrokerUnavailable(f"Maven did not fetch RocketMQ {version} in {_DOWNLOAD_SECONDS} s") from error
    building.rename(lib)
    return lib


def _compiled(version: str, home: Path, libraries: tuple[Path, ...]) -> Path:
    """A jar of our sources, named by their digest. A jar and not a folder: AppCDS takes only jars."""
    sources = sorted(SOURCES.rglob("*.java"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
    jar = home / f"oracle-{digest}.jar"
    if jar.exists():
        return jar
    with tempfile.TemporaryDirectory(dir=home) as folder:
        classes = Path(folder) / "classes"
        command = ["javac", "-nowarn", "-encoding", "UTF-8", "-d", str(classes), "-cp"]
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
    """One of several test processes fetches and compiles; the others wait and find it done."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
