"""A repository in object storage to which somebody else writes: no name, size or content leads anywhere."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from urllib.parse import quote
from urllib.request import Request, urlopen

import pytest

from rmqstore.backup import s3
from rmqstore.backup.repository import Repository
from rmqstore.backup.s3 import S3Storage
from rmqstore.backup.storage import is_object
from rmqstore.errors import UsageError
from tests.backup.s3_server import BUCKET, KEY, gateway, s3_server
from tests.command import run
from tests.hostile.test_repositories import FORGED
from tests.stores import unpack

pytest.importorskip("pyarrow.fs")
pytestmark = [
    pytest.mark.xdist_group("s3"),
    pytest.mark.skipif(gateway() is not None, reason="this server takes no request without a signature"),
]
STORE = str(unpack("5.4.0-clean"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    with s3_server(tmp_path_factory.mktemp("server")) as env:
        yield env


@pytest.fixture
def repository(server: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a repository with one snapshot."""
    for name, value in server.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(s3, "_PAUSE", 0.01)
    address = f"s3://{BUCKET}/{uuid.uuid4().hex}"
    assert run("backup", STORE, address, "--name", "a").exit_code == 0
    return address


def put(repository: str, key: str, data: bytes) -> None:
    """Write an object under any key, as an attacker does: without the checks of `S3Storage` and of pyarrow."""
    path = f"{repository.removeprefix('s3://')}/{key}"
    place = f"{os.environ['AWS_ENDPOINT_URL']}/{quote(path).replace('.', '%2E')}"
    known = f"AWS4-HMAC-SHA256 Credential={KEY}/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
    headers = {"Content-Type": "binary/octet-stream", "Authorization": known}
    with urlopen(Request(place, data, headers, method="PUT")) as answer:
        assert answer.status == 200


def manifest_key(repository: str) -> str:
    [entry] = [one for one in S3Storage(repository).objects("a/snapshots") if one.key.endswith("Z.json")]
    return entry.key


def in_one_line(*words: str, code: int) -> str:
    result = run(*words)
    assert (result.exit_code, len(result.stderr.splitlines())) == (code, 1), result.output
    return result.stderr


ON_S3 = (
    "a path up",
    "an absolute path",
    "an exbibyte of zeros",
    "an object of another store",
    "a size with 5,000 digits",
)


def test_forged_manifests_are_damaged(repository: str, tmp_path: Path) -> None:
    key = manifest_key(repository)
    sound = S3Storage(repository).read(key)
    assert sound is not None
    for name in ON_S3:
        document = json.loads(sound)
        FORGED[name](document)
        put(repository, key, json.dumps(document).encode())
        for words in (["restore", f"{repository}::a", str(tmp_path / "new")], ["info", f"{repository}::a"]):
            assert "is damaged" in in_one_line(*words, code=4), name
    assert list(tmp_path.iterdir()) == []


def test_a_manifest_without_end_is_not_read(repository: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqstore.backup.storage.MAX_SMALL", 1 << 10)
    monkeypatch.setattr(S3Storage.read, "__defaults__", (1 << 10,))
    put(repository, manifest_key(repository), b" " * (1 << 11))
    assert "no version of rmqstore wrote it" in in_one_line("info", f"{repository}::a", code=4)


NAMES = ("a/log/x\x1b[2J", "a/log/-rf ..", "b c/snapshots/20260101T000000Z.json", "a/log/x.part")


def test_names_of_other_programs_are_no_objects(repository: str) -> None:
    before = {one.key for one in S3Storage(repository).objects("a")}
    for name in NAMES:
        put(repository, name, b"x")
    storage = S3Storage(repository)
    assert {one.key for one in storage.objects("a")} == before
    assert Repository.open(storage).names() == ["a"]
    assert run("snapshots", f"{repository}::a", "--forget", "--keep", "1s").exit_code == 0
    assert run("backup", STORE, repository, "--name", "a").exit_code == 0
    assert run("verify", f"{repository}::a").exit_code == 0


@pytest.mark.parametrize("key", ["a/log/../../b", "a//etc/passwd", "a/./x", "a/config/\n", "/a", "a/", "a/\0", "é/x"])
def test_keys_that_lead_elsewhere_are_no_objects(key: str) -> None:
    assert is_object("a/log/commitlog/00000000000000000000.tail-4096")
    assert not is_object(key)
    with pytest.raises(UsageError):
        S3Storage(f"s3://{BUCKET}")._path(key)


@pytest.mark.parametrize("data", [b"", b"\x1b]0;pwned\x07" * 10_000, b"{}", b"[" * 5000], ids=range(4))
def test_a_forged_lock_is_one_line_without_its_controls(repository: str, data: bytes) -> None:
    put(repository, "a/lock", data)
    said = in_one_line("backup", STORE, repository, "--name", "a", code=5)
    assert "another process is writing" in said
    assert "\x1b" not in said and len(said) < 8000


CHANGES: dict[str, Callable[[bytes], bytes]] = {
    "gone": lambda _: b"",
    "shrunk": lambda data: data[: len(data) // 2],
    "grown": lambda data: data + b"\xff" * 5000,
    "other bytes": lambda data: bytes(len(data)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_objects_that_change_after_they_were_listed(
    repository: str, tmp_path: Path, change: Callable[[bytes], bytes]
) -> None:
    storage = S3Storage(repository)
    key = min(one.key for one in storage.objects("a/log"))
    whole = storage.read(key)
    assert whole is not None
    changed: list[str] = []
    real = S3Storage.read_into

    def read_into(self: S3Storage, asked: str, buffer: memoryview, at: int) -> int:
        if asked == key and not changed:
            changed.append(key)
            put(repository, key, change(whole))
        return real(self, asked, buffer, at)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(S3Storage, "read_into", read_into)
        result = run("restore", f"{repository}::a", str(tmp_path / "new"))
    assert changed == [key]
    grown = change(whole).startswith(whole)
    assert result.exit_code == (0 if grown else 4), result.output
    assert grown or len(result.stderr.splitlines()) == 1
    assert (tmp_path / "new").exists() is grown
    assert run("snapshots", repository, "--check").exit_code == 1
