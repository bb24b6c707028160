"""An S3 server on this machine: versitygw if there is one, otherwise moto, which the extra `test` installs.

versitygw is stricter; RMQSTORE_BUILD_S3=1 builds it once with Go.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

GATEWAY = "github.com/versity/versitygw/cmd/versitygw@latest"
CACHE = Path.home() / ".cache" / "rmqstore" / "go"
KEY, SECRET = "rmqstore-test-key", "rmqstore-test-secret"
BUCKET = "backups"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def gateway() -> Path | None:
    """Return the path of versitygw if this machine has it."""
    found = Path(shutil.which("versitygw") or CACHE / "versitygw")
    return found if found.exists() else None


def command(port: int, folder: Path) -> list[str]:
    """Return the command line of a server; skips the test without one."""
    if gateway() is None and os.environ.get("RMQSTORE_BUILD_S3") and shutil.which("go"):
        CACHE.mkdir(parents=True, exist_ok=True)
        subprocess.run(["go", "install", GATEWAY], env={**os.environ, "GOBIN": str(CACHE)}, check=True, timeout=900)
    if found := gateway():
        return [str(found), "--port", f"127.0.0.1:{port}", "posix", str(folder)]
    if importlib.util.find_spec("moto") and importlib.util.find_spec("flask"):
        return [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    pytest.skip("no S3 server: moto with flask and flask-cors, or versitygw")


@contextlib.contextmanager
def s3_server(home: Path) -> Iterator[Mapping[str, str]]:
    """Run a server with an empty bucket; yield the environment variables that lead to it."""
    folder = home / "s3"
    folder.mkdir()
    port = free_port()
    words = command(port, folder)
    env = {**os.environ, "ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET}
    given = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    with (home / "s3.log").open("wb") as log, subprocess.Popen(words, env=env, stdout=log, stderr=log) as process:
        try:
            _wait(port, process)
            _make_bucket(port)
            yield given
        finally:
            process.terminate()
            process.wait(30)


def _wait(port: int, process: subprocess.Popen[bytes]) -> None:
    for _ in range(300):
        assert process.poll() is None, "the S3 server ended"
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5).close()
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError("the S3 server does not answer")


def _make_bucket(port: int) -> None:
    from pyarrow.fs import S3FileSystem

    system = S3FileSystem(
        access_key=KEY,
        secret_key=SECRET,
        endpoint_override=f"127.0.0.1:{port}",
        scheme="http",
        region="us-east-1",
        allow_bucket_creation=True,
    )
    system.create_dir(BUCKET)
