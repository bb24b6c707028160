"""A repository in S3-compatible object storage, through pyarrow (extra `arrow`).

Endpoint, region and credentials come from the usual environment variables and files: AWS_ENDPOINT_URL_S3 or
AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID and so on. They are in no address, so that none gets into a log.

No half answer is trusted. A connection that ends in the head of an answer leaves the client with the fields that came
before, and without a body: a size of 0, no time, an empty page of a list, no bytes. What may be such an answer is asked
for again.

An object appears when its upload is complete. S3 has no exclusive creation that every service supports, so the lock is
an object that its holder renews: after three minutes without, by the clock of the server, it counts as left by a
process that was killed. A process that has lost its lock makes no snapshot.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import threading
import time
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, TypeVar
from urllib.parse import urlsplit

from rmqstore.backup.storage import ObjectWriter, Storage, StoredObject, check_key, is_object
from rmqstore.errors import (
    CouldNotCheck,
    NoSpace,
    NotReadable,
    OutputExists,
    Refused,
    RmqStoreError,
    UsageError,
    install_command,
)
from rmqstore.texts import Text

_RENEW, _STALE = 60, 180  # seconds
_LOCK_LIMIT = 4096  # bytes of a lock that are read
_OPEN = 32  # objects that stay open for reading
_AHEAD, _BLOCK = 4, 4 << 20  # blocks that are requested before they are needed, and their size in bytes
_IN_FLIGHT = 64 << 20  # bytes of parts that are uploaded at the same time
_LONG = 1 << 20  # bytes of a read that is part of a scan, and no look-up
_TRIES = 5  # attempts of a request by the client
_REPEATS = 3  # attempts of an operation: the client does not repeat all that may pass
_CUTS = 8  # attempts after cut answers, which the client does not repeat at all
_PAUSE, _LONGEST = 0.5, 5  # seconds before the second attempt, doubled each time, and at most
T = TypeVar("T")
_SECRETS = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ACCESS_KEY_ID")


class S3Storage(Storage):
    """Objects below `s3://BUCKET/PREFIX`. Errors: UsageError for an address without a bucket, or with credentials."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        if parts.scheme != "s3" or not parts.netloc or parts.query or parts.fragment:
            raise UsageError(Text("{address} is not an address", address=address), Text("write s3://BUCKET/PREFIX"))
        if "@" in parts.netloc or ":" in parts.netloc:
            raise UsageError(
                Text("an address has no credentials and no endpoint in it"),
                Text("set AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID and so on"),
            )
        self._base = "/".join([parts.netloc, *(part for part in parts.path.split("/") if part)])
        self._fs: Any = None
        self._open: OrderedDict[str, list[Any]] = OrderedDict()  # key → files that no thread reads now
        self._ahead = _ReadAhead(self._fetched)
        self._locks: dict[str, str] = {}  # key → what this process has written there

    def __reduce__(self) -> tuple[type[S3Storage], tuple[str]]:
        return S3Storage, (self.address,)

    @property
    def address(self) -> str:
        return f"s3://{self._base}"

    @property
    def _system(self) -> Any:
        if self._fs is None:
            self._fs = _connected()
        return self._fs

    def _path(self, key: str) -> str:
        return f"{self._base}/{check_key(key)}"

    def _info(self, path: str) -> Any:
        def whole() -> Any:
            info = self._system.get_file_info(path)
            if info.is_file and not (info.mtime_ns or 0) > 0:
                raise _cut(f"s3://{path}")
            if info.is_file and not info.size:  # really empty if a list says so, too
                listed = self._list(path.rpartition("/")[0])
                if not any(one.path == path and one.is_file and not one.size for one in listed):
                    raise _cut(f"s3://{path}")
            return info

        return _repeated(self.address, whole)

    def _list(self, path: str, *, recursive: bool = False) -> Any:
        from pyarrow.fs import FileSelector

        return self._system.get_file_info(FileSelector(path, allow_not_found=True, recursive=recursive))

    def _listed(self, path: str, *, recursive: bool = False) -> list[Any]:
        """List twice: a cut answer is taken for the last page, and what it leaves out is in the other list."""
        lists = [_repeated(self.address, lambda: self._list(path, recursive=recursive)) for _ in range(2)]
        found = {info.path: info for one in lists for info in one}
        return [found[name] for name in sorted(found)]

    def exists(self) -> bool:
        from pyarrow.fs import FileType

        bucket = self._base.partition("/")[0]
        if self._info(bucket).type is FileType.NotFound:
            raise NotReadable(
                Text("s3://{bucket}: no such bucket", bucket=bucket), Text("create the bucket, or check the endpoint")
            )
        return bool(self._listed(self._base))

    def create(self, key: str, data: bytes) -> None:
        if self.size(key) is not None:
            raise OutputExists(Text("{address}/{key} already exists", address=self.address, key=key))
        self.replace(key, data)

    def replace(self, key: str, data: bytes) -> None:
        def put() -> None:
            with self._system.open_output_stream(self._path(key)) as stream:
                stream.write(data)
            if self.size(key) != len(data):
                raise _cut(f"{self.address}/{key}")

        self._open.pop(key, None)
        _repeated(f"{self.address}/{key}", put)

    def writer(self, key: str) -> ObjectWriter:
        self._open.pop(key, None)
        stream = _repeated(f"{self.address}/{key}", lambda: self._system.open_output_stream(self._path(key)))
        return S3Writer(self, key, stream)

    def size(self, key: str) -> int | None:
        info = self._info(self._path(key))
        return int(info.size) if info.is_file else None

    def read_into(self, key: str, buffer: memoryview, at: int) -> int:
        data = self._ahead.read(key, len(buffer), at)
        buffer[: len(data)] = data
        return len(data)

    def _fetched(self, key: str, size: int, at: int) -> bytes:
        return _repeated(f"{self.address}/{key}", lambda: self._read(key, size, at))

    def _read(self, key: str, size: int, at: int) -> bytes:
        idle = self._open.setdefault(key, [])
        if len(self._open) > _OPEN:
            self._open.popitem(last=False)
        file = idle.pop() if idle else self._opened(key)
        data = _read_whole(file, max(0, min(size, file.size() - at)), at)
        if data is None:
            raise _cut(f"{self.address}/{key}")
        idle.append(file)
        return data

    def _opened(self, key: str) -> Any:
        file = self._system.open_input_file(self._path(key))
        if not file.size() and self.size(key):
            raise _cut(f"{self.address}/{key}")
        return file

    def objects(self, prefix: str) -> Iterator[StoredObject]:
        for info in self._listed(self._path(prefix), recursive=True):
            key = info.path.removeprefix(f"{self._base}/")
            if info.is_file and is_object(key):
                yield StoredObject(key, int(info.size))

    def folders(self) -> list[str]:
        from pyarrow.fs import FileType

        found = self._listed(self._base)
        return sorted(info.base_name for info in found if info.type is FileType.Directory)

    def delete(self, key: str) -> None:
        self._open.pop(key, None)

        def remove() -> None:
            with suppress(FileNotFoundError):
                self._system.delete_file(self._path(key))

        _repeated(f"{self.address}/{key}", remove)

    def clean(self, prefix: str) -> None:
        """Do nothing: an interrupted upload leaves no object."""

    @contextmanager
    def locked(self, key: str) -> Iterator[None]:
        if (age := self._age(key)) is not None and age < _STALE:
            place, holder = f"{self.address}/{key.rpartition('/')[0]}", self._holder(key)
            raise Refused(
                Text("another process is writing to {place}: {holder}", place=place, holder=holder),
                Text("wait until that backup has ended; if it was killed, wait {stale} minutes", stale=_STALE // 60),
            )
        mine = json.dumps({"token": uuid.uuid4().hex, "host": socket.gethostname(), "pid": os.getpid()})
        self.replace(key, mine.encode())
        self._locks[key] = mine
        self.check_lock(key)
        ended = threading.Event()

        def renew() -> None:
            other = S3Storage(self.address)  # a file system of its own: the main one may be in a long upload
            while not ended.wait(_RENEW):
                with suppress(RmqStoreError):
                    if other._holder(key) == mine:
                        other.replace(key, mine.encode())

        thread = threading.Thread(target=renew, name="renew-lock", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            with suppress(RmqStoreError):
                if self._holder(key) == self._locks.pop(key):
                    self.delete(key)

    def check_lock(self, key: str) -> None:
        if self._holder(key) != self._locks[key]:
            raise Refused(
                Text("another process has begun to write to {address}", address=self.address),
                Text("wait until it has ended, then run the command again"),
            )

    def _age(self, key: str) -> float | None:
        """Return the seconds since an object was written, by the clock of the server; None without the object."""
        info = self._info(self._path(key))
        if not info.is_file:
            return None
        clock = f"{key}.clock"
        self.replace(clock, b"now")
        now = self._info(self._path(clock))
        self.delete(clock)
        return float((now.mtime - info.mtime).total_seconds())

    def _holder(self, key: str) -> str:
        self._open.pop(key, None)
        size = self.size(key) or 0
        return self.read_range(key, 0, min(size, _LOCK_LIMIT)).decode("utf-8", "replace")


class _ReadAhead:
    """Reads objects through `fetch` (key, size, position). It requests the next blocks of an object that is scanned.

    So the requests overlap with each other and with what is done with the bytes: one connection is slow.
    """

    def __init__(self, fetch: Callable[[str, int, int], bytes]) -> None:
        self._fetch = fetch
        self._next = "", 0  # where the last long read ended
        self._key = ""
        self._blocks: deque[tuple[int, Future[bytes]]] = deque()  # adjacent ones of this object, by their positions
        self._pool: ThreadPoolExecutor | None = None

    def read(self, key: str, size: int, at: int) -> bytes | memoryview:
        """Return bytes of an object; fewer at its end, or if the rest is in another block. Errors: as `fetch`."""
        if size >= _LONG:
            self._scan(key, at)
        requested = self._requested(key, size, at)
        data = self._fetch(key, size, at) if requested is None else requested
        if size >= _LONG:
            self._next = key, at + len(data)
        return data

    def _scan(self, key: str, at: int) -> None:
        """Forget the blocks before a position; request those that follow if the scan of an object goes on there."""
        blocks = self._blocks
        while blocks and not (key == self._key and blocks[0][0] <= at < blocks[0][0] + _BLOCK):
            blocks.popleft()[1].cancel()
        if blocks or (key, at) == self._next:
            self._pool = self._pool or ThreadPoolExecutor(_AHEAD, "read-ahead")
            self._key = key
            while len(blocks) < _AHEAD:
                start = blocks[-1][0] + _BLOCK if blocks else at
                blocks.append((start, self._pool.submit(self._fetch, key, _BLOCK, start)))

    def _requested(self, key: str, size: int, at: int) -> memoryview | None:
        for start, block in self._blocks if key == self._key else ():
            if start <= at < start + _BLOCK:
                try:
                    return memoryview(block.result())[at - start :][:size]
                except RmqStoreError:
                    self._blocks.clear()  # another read tries it again
                    raise
        return None


class S3Writer(ObjectWriter):
    """Uploads one object in parts."""

    def __init__(self, storage: S3Storage, key: str, stream: Any) -> None:
        self._storage = storage
        self._key = key
        self._stream = stream
        self._size = 0

    def write(self, data: bytes) -> None:
        with _explained(f"{self._storage.address}/{self._key}"):
            self._stream.write(data)
            if self._size // _IN_FLIGHT != (self._size + len(data)) // _IN_FLIGHT:
                self._stream.flush()  # waits for the parts on their way, whose memory has no other limit
        self._size += len(data)

    def finish(self) -> None:
        where = f"{self._storage.address}/{self._key}"
        failed: RmqStoreError | None = None
        try:
            with _explained(where):
                self._stream.close()
        except CouldNotCheck as error:  # perhaps only the answer was lost
            failed = error
        if self._storage.size(self._key) != self._size:
            raise failed or CouldNotCheck(
                Text("{where} does not have the {size:,} bytes that were uploaded", where=where, size=self._size),
                Text("run it again"),
            )

    def abandon(self) -> None:
        with suppress(OSError, RmqStoreError):  # pyarrow completes an upload when its stream is closed
            self._stream.close()
        with suppress(RmqStoreError):
            self._storage.delete(self._key)


def _connected() -> Any:
    """Return the file system that the environment describes. Errors: CouldNotCheck without pyarrow."""
    try:
        from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem
    except ImportError as error:
        raise CouldNotCheck(
            Text("object storage needs the package pyarrow"),
            Text("to install it, run `{install_command}`", install_command=install_command("arrow")),
        ) from error
    given: dict[str, Any] = {"retry_strategy": AwsStandardS3RetryStrategy(max_attempts=_TRIES)}
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if endpoint:
        parts = urlsplit(endpoint if "://" in endpoint else f"https://{endpoint}")
        given |= {"endpoint_override": parts.netloc, "scheme": parts.scheme}
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if region or endpoint:
        given["region"] = region or "us-east-1"
    with _explained(endpoint or "s3"):
        return S3FileSystem(request_timeout=60, connect_timeout=10, **given)


def _read_whole(file: Any, size: int, at: int) -> bytes | None:
    """Read a range of an open object; None if its bytes have not come.

    pyarrow returns what was in the memory before if an answer has no body, and says that it has read all. So the end of
    the memory is random before: bytes that are still there twice, other ones each time, did not come.
    """
    if not size:
        return b""
    for _ in range(2):
        buffer, mark = bytearray(size), os.urandom(min(size, 16))
        buffer[-len(mark) :] = mark
        file.seek(at)
        if file.readinto(buffer) != size:
            return None
        if not buffer.endswith(mark):
            return bytes(buffer)
    return None


class _CutAnswer(CouldNotCheck):
    """An answer of the server ended too early."""


def _cut(where: str) -> _CutAnswer:
    return _CutAnswer(
        Text("{where}: the answer of the server was cut", where=where),
        Text("check AWS_ENDPOINT_URL and the network, then run it again"),
    )


def _repeated(where: str, action: Callable[[], T]) -> T:
    """Do what may be done again: after an error that may pass, wait and try it again. Errors: as `_explained`."""
    pause, failed, cut = _PAUSE, 0, 0
    while True:
        try:
            with _explained(where):
                return action()
        except CouldNotCheck as error:
            failed, cut = (failed, cut + 1) if isinstance(error, _CutAnswer) else (failed + 1, cut)
            if failed >= _REPEATS or cut >= _CUTS:
                raise
        time.sleep(min(pause, _LONGEST))
        pause *= 2


@contextmanager
def _explained(where: str) -> Iterator[None]:
    """Turn errors of pyarrow into those of this project, without credentials."""
    try:
        yield
    except OSError as error:
        text = " ".join(str(error).split())
        for name in _SECRETS:
            if (secret := os.environ.get(name)) and len(secret) > 3:
                text = text.replace(secret, "…")
        text = text[:300]
        if isinstance(error, FileNotFoundError):
            raise NotReadable(
                Text("{where}: no such object", where=where), Text("`rmqstore snapshots --check` shows what is missing")
            ) from None
        if error.errno in (errno.ENOSPC, errno.EDQUOT) or "QuotaExceeded" in text or "XMinioStorageFull" in text:
            raise NoSpace(f"{where}: {text}", Text("free space, then run the command again")) from None
        if isinstance(error, PermissionError) or "ACCESS_DENIED" in text or "AccessDenied" in text:
            raise NotReadable(f"{where}: {text}", Text("check AWS_ACCESS_KEY_ID and what it may do")) from None
        raise CouldNotCheck(
            f"{where}: {text}", Text("check AWS_ENDPOINT_URL and the network, then run it again")
        ) from None
