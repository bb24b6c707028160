"""Compile the baselines of rmqstore: a harness around the real RocketMQ classes, and a loop in C."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from rmqstore.formats import message

HERE = Path(__file__).resolve().parent
OPENED = ("java.nio", "sun.nio.ch", "java.lang", "java.util", "jdk.internal.ref")


class Missing(Exception):
    """A baseline cannot be compiled on this machine; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Broker:
    """The compiled harness around the message store of one RocketMQ version."""

    version: str
    classpath: str
    home: Path

    def command(self, main: str, *arguments: str, heap: str = "2g") -> list[str]:
        """Return the java command for a main class, with logging switched off."""
        opened = [part for name in OPENED for part in ("--add-opens", f"java.base/{name}=ALL-UNNAMED")]
        log = HERE / "java" / "quiet.logback.xml"
        return [
            "java",
            f"-Xmx{heap}",
            *opened,
            f"-Duser.home={self.home}",
            f"-Drmq.logback.configurationFile={log}",
            "-cp",
            self.classpath,
            main,
            *arguments,
        ]


def jars(version: str) -> Path:
    """Find the folder with the jars of a RocketMQ release, in $RMQ_LIBS or in one of the two caches.

    Errors: Missing
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    bases = [Path(os.environ["RMQ_LIBS"])] if "RMQ_LIBS" in os.environ else []
    bases += [cache / "rmqstore" / "oracle", cache / "rmqjars"]
    for base in bases:
        for folder in (base / version / "lib", base / version, base):
            if any(folder.glob(f"rocketmq-store-{version}.jar")):
                return folder
    raise Missing(f"no jars of RocketMQ {version}: run tests/real_broker once, or set RMQ_LIBS")


def broker(version: str, work: Path) -> Broker:
    """Compile the harness against the jars of a version, into `work`.

    Errors: Missing
    """
    for tool in ("java", "javac"):
        if not shutil.which(tool):
            raise Missing(f"no {tool} on the PATH")
    lib = jars(version)
    classes = work / "classes"
    classes.mkdir(parents=True, exist_ok=True)
    source = HERE / "java" / "Bench.java"
    build = subprocess.run(
        ["javac", "-nowarn", "-encoding", "UTF-8", "-cp", f"{lib}/*", "-d", classes, source],
        capture_output=True,
        text=True,
        check=False,
    )
    if build.returncode:
        raise Missing(f"javac failed: {build.stderr.strip().splitlines()[-1:]}")
    return Broker(version, f"{classes}{os.pathsep}{lib}/*", work / "home")


def macros() -> list[str]:
    """Return the layout of a message record as C macros, so that it is defined only in `rmqstore.formats`."""
    head = message.HEAD
    values = {
        "AT_SIZE": head.at("size"),
        "AT_MAGIC": head.at("magic"),
        "AT_BODY_CRC": head.at("body_crc"),
        "AT_PHYSICAL_OFFSET": head.at("physical_offset"),
        "AT_SYS_FLAG": head.at("sys_flag"),
        "AT_BODY_LENGTH": head.at("body_length"),
        "HEAD_SIZE": head.size,
        "HOST_MORE": message.head(True, False).size - head.size,
        "MIN_SIZE": message.MIN_SIZE,
        "BLANK_SIZE": message.BLANK_SIZE,
        "MAGIC_V1": f"{message.MAGIC_V1_U32}u",
        "MAGIC_V2": f"{message.MAGIC_V2_U32}u",
        "BLANK_MAGIC": f"{message.BLANK_MAGIC_U32}u",
        "BORN_V6": message.BORN_HOST_V6,
        "STORE_V6": message.STORE_HOST_V6,
    }
    return [f"-D{name}={value}" for name, value in values.items()]


def limit(work: Path) -> tuple[Path, str]:
    """Compile the C loop, and return the program and the name of its CRC library: ISA-L if installed, else zlib.

    Errors: Missing
    """
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        raise Missing("no C compiler on the PATH")
    work.mkdir(parents=True, exist_ok=True)
    program = work / "limit"
    complaint = ""
    for name, options in (("ISA-L", ["-DUSE_ISAL"]), ("zlib", [])):
        library = "-lisal" if options else "-lz"
        build = subprocess.run(
            [compiler, "-O3", "-march=native", *macros(), *options, HERE / "limit.c", "-o", program, library],
            capture_output=True,
            text=True,
            check=False,
        )
        if build.returncode == 0:
            return program, name
        complaint = build.stderr.strip().splitlines()[-1] if build.stderr.strip() else "no reason given"
    raise Missing(f"{compiler} failed: {complaint}")
