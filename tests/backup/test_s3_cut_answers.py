"""An answer of object storage that ends at any of its bytes: the right result, or an error, and never half of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rmqstore.backup import s3
from rmqstore.backup.s3 import S3Storage
from rmqstore.errors import CouldNotCheck, NotReadable, OutputExists
from tests.backup.cutting_server import CuttingServer

pytest.importorskip("pyarrow.fs")
pytestmark = pytest.mark.xdist_group("s3")

DATA = bytes(range(48, 88))
OBJECTS = {
    "base/a/log/1": DATA,
    "base/a/log/2": b"",
    "base/a/log/3": DATA[:7],
    "base/a/snapshots/20260101.json": b"{}",
    "base/a/snapshots/20260102.json": b"{}",
}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[CuttingServer]:
    found = CuttingServer()
    with found.listening() as port:
        for name, value in {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_EC2_METADATA_DISABLED": "true",
        }.items():
            monkeypatch.setenv(name, value)
        for name, count in (("_TRIES", 1), ("_REPEATS", 2), ("_CUTS", 2), ("_PAUSE", 0)):
            monkeypatch.setattr(s3, name, count)
        yield found


def listed(storage: S3Storage) -> object:
    return sorted((one.key, one.size) for one in storage.objects("a"))


def created(storage: S3Storage) -> object:
    try:
        storage.create("a/log/3", b"another")
    except OutputExists:
        return "exists"
    return "replaced"


def put(storage: S3Storage) -> None:
    storage.replace("a/log/9", DATA)


def uploaded(storage: S3Storage) -> None:
    writer = storage.writer("a/log/9")
    writer.write(DATA)
    writer.finish()


READS: dict[str, tuple[Callable[[S3Storage], object], object]] = {
    "size": (lambda storage: storage.size("a/log/1"), len(DATA)),
    "size-0": (lambda storage: storage.size("a/log/2"), 0),
    "size-none": (lambda storage: storage.size("a/log/8"), None),
    "read": (lambda storage: storage.read("a/log/1"), DATA),
    "range": (lambda storage: storage.read_range("a/log/1", 5, 20), DATA[5:25]),
    "create": (created, "exists"),
    "exists": (lambda storage: storage.exists(), True),
    "folders": (lambda storage: storage.folders(), ["a"]),
    "list": (listed, sorted((key.removeprefix("base/"), len(data)) for key, data in OBJECTS.items())),
}


def _kinds(server: CuttingServer, work: Callable[[S3Storage], object]) -> list[tuple[str, int]]:
    """Return the answers that an operation needs, the largest of each kind."""
    server.answers.clear()
    work(S3Storage("s3://bucket/base"))
    return [*dict(sorted(server.answers)).items()]


def _once(kind: str, at: int) -> Callable[[str, int], int | None]:
    left = [1]

    def cut(found: str, size: int) -> int | None:
        if found != kind or not left[0]:
            return None
        left[0] -= 1
        return min(at, size - 1)

    return cut


@pytest.mark.parametrize("name", READS)
def test_a_read_is_right_if_one_answer_was_cut_at_any_byte(name: str, server: CuttingServer) -> None:
    work, right = READS[name]
    server.objects = dict(OBJECTS)
    for kind, size in _kinds(server, work):
        for at in range(size):
            server.cut = _once(kind, at)
            assert work(S3Storage("s3://bucket/base")) == right, (kind, at)
            server.cut = lambda kind, size: None
    assert server.objects == OBJECTS


@pytest.mark.parametrize("name", [name for name in READS if name not in ("exists", "folders", "list")])
def test_a_read_ends_with_an_error_if_every_answer_is_cut(name: str, server: CuttingServer) -> None:
    work, right = READS[name]
    server.objects = dict(OBJECTS)
    errors = 0
    for kind, size in _kinds(server, work):
        for at in range(0, size, 3):
            server.cut = lambda found, size, kind=kind, at=at: min(at, size - 1) if found == kind else None  # type: ignore[misc]
            try:
                assert work(S3Storage("s3://bucket/base")) == right, (kind, at)
            except (CouldNotCheck, NotReadable) as error:
                errors += 1
                assert "\n" not in error.message
            server.cut = lambda kind, size: None
    assert errors > 10
    assert server.objects == OBJECTS


@pytest.mark.parametrize("every", [False, True], ids=["one", "every"])
@pytest.mark.parametrize("work", [put, uploaded])
def test_an_object_is_whole_if_its_upload_ended_well(work: Any, every: bool, server: CuttingServer) -> None:
    server.objects = dict(OBJECTS)
    for kind, size in _kinds(server, work):
        for at in range(0, size, 1 + 2 * every):
            server.objects = dict(OBJECTS)
            one = _once(kind, at)
            all_of = lambda found, size, kind=kind, at=at: min(at, size - 1) if found == kind else None  # noqa: E731
            server.cut = all_of if every else one
            try:
                work(S3Storage("s3://bucket/base"))
            except (CouldNotCheck, NotReadable) as error:
                assert "\n" not in error.message
            else:
                assert server.objects["base/a/log/9"] == DATA, (kind, at)
            server.cut = lambda kind, size: None


def test_what_was_deleted_is_gone(server: CuttingServer) -> None:
    server.objects = dict(OBJECTS)
    for kind, size in _kinds(server, lambda storage: storage.delete("a/log/1")):
        for at in range(size):
            server.objects = dict(OBJECTS)
            server.cut = _once(kind, at)
            S3Storage("s3://bucket/base").delete("a/log/1")
            assert "base/a/log/1" not in server.objects, (kind, at)
            assert server.objects.items() >= {k: v for k, v in OBJECTS.items() if k != "base/a/log/1"}.items()
            server.cut = lambda kind, size: None
