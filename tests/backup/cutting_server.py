"""A small S3 server in memory that cuts its answers at a chosen byte, with the most important fields at their end."""

from __future__ import annotations

import contextlib
import hashlib
import socketserver
import threading
from collections.abc import Callable, Iterator
from io import BufferedIOBase
from urllib.parse import parse_qs, unquote, urlsplit

_DATE = b"Sat, 28 Nov 2026 10:00:00 GMT"
_LISTED_DATE = "2026-11-28T10:00:00.000Z"
Cut = Callable[[str, int], int | None]
"""(method and kind of a request, bytes of its answer) → the number of bytes that are sent, None for all."""


class CuttingServer:
    """Objects of one bucket; `cut` decides about each answer, `answers` has the kinds and sizes of those sent."""

    def __init__(self, page: int = 2) -> None:
        self.objects: dict[str, bytes] = {}
        self.parts: dict[int, bytes] = {}
        self.page = page
        self.cut: Cut = lambda kind, size: None
        self.answers: list[tuple[str, int]] = []

    def kind(self, method: str, target: str) -> str:
        query = parse_qs(urlsplit(target).query, keep_blank_values=True)
        if "list-type" in query:
            return "LIST"
        if method == "POST":
            return "BEGIN" if "uploads" in query else "COMPLETE"
        return method

    def answer(self, method: str, target: str, fields: dict[str, str], body: bytes) -> bytes:
        """Do what a request wants; return the whole answer."""
        parts, kind = urlsplit(target), self.kind(method, target)
        query = parse_qs(parts.query, keep_blank_values=True)
        key = unquote(parts.path).strip("/").partition("/")[2]
        if kind == "LIST":
            return _whole(200, self._list(query), b"application/xml")
        if kind == "BEGIN":
            self.parts = {}
            return _whole(200, b"<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>")
        if kind == "COMPLETE":
            self.objects[key] = b"".join(self.parts[number] for number in sorted(self.parts))
            return _whole(200, b"<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>")
        if kind == "PUT":
            if "partNumber" in query:
                self.parts[int(query["partNumber"][0])] = body
            else:
                self.objects[key] = body
            return _whole(200, b"", tag=hashlib.md5(body).hexdigest())
        if kind == "DELETE":
            self.objects.pop(key, None)
            return b"HTTP/1.1 204 No Content\r\nServer: small\r\n\r\n"
        if not key:
            return _whole(200, b"")
        if key not in self.objects:
            missing = b"<Error><Code>NoSuchKey</Code><Message>none</Message></Error>"
            return _whole(404, b"" if kind == "HEAD" else missing)
        data = self.objects[key]
        tag = hashlib.md5(data).hexdigest()
        if kind == "HEAD":
            return _whole(200, data, tag=tag).removesuffix(data) if data else _whole(200, data, tag=tag)
        if "range" in fields:
            first, _, last = fields["range"].removeprefix("bytes=").partition("-")
            low, high = int(first), min(int(last or len(data)), len(data) - 1)
            return _whole(206, data[low : high + 1], tag=tag, span=f"bytes {low}-{high}/{len(data)}")
        return _whole(200, data, tag=tag)

    def _list(self, query: dict[str, list[str]]) -> bytes:
        prefix, delimiter = query.get("prefix", [""])[0], query.get("delimiter", [""])[0]
        after = query.get("continuation-token", [""])[0]
        entries: dict[str, str] = {}
        for key in sorted(self.objects):
            rest = key.removeprefix(prefix)
            if not key.startswith(prefix):
                continue
            if delimiter and delimiter in rest:
                name = prefix + rest.partition(delimiter)[0] + delimiter
                entries[name] = f"<CommonPrefixes><Prefix>{name}</Prefix></CommonPrefixes>"
            else:
                size = f"<Size>{len(self.objects[key])}</Size><LastModified>{_LISTED_DATE}</LastModified>"
                entries[key] = f"<Contents><Key>{key}</Key>{size}</Contents>"
        names = [name for name in sorted(entries) if name > after]
        here, more = names[: self.page], len(names) > self.page
        token = f"<NextContinuationToken>{here[-1]}</NextContinuationToken>" if more else ""
        rows = "".join(entries[name] for name in here)
        flag = f"<IsTruncated>{str(more).lower()}</IsTruncated>"
        return f"<?xml version='1.0'?><ListBucketResult>{rows}{token}{flag}</ListBucketResult>".encode()

    @contextlib.contextmanager
    def listening(self) -> Iterator[int]:
        """Listen on a free port; yield it."""
        owner = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                with contextlib.suppress(OSError, ValueError):
                    while self._one():
                        pass

            def _one(self) -> bool:
                line = self.rfile.readline().decode("latin-1").split()
                if len(line) != 3:
                    return False
                fields: dict[str, str] = {}
                while (row := self.rfile.readline().decode("latin-1").strip()) != "":
                    name, _, value = row.partition(":")
                    fields[name.lower()] = value.strip()
                if "100-continue" in fields.get("expect", "").lower():
                    self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                body = self.rfile.read(int(fields.get("content-length", 0)))
                if fields.get("transfer-encoding", "").lower() == "chunked":
                    body = _chunked(self.rfile)
                if "aws-chunked" in fields.get("content-encoding", ""):
                    body = _decoded(body)
                answer = owner.answer(line[0], line[1], fields, body)
                kind = owner.kind(line[0], line[1])
                owner.answers.append((kind, len(answer)))
                keep = owner.cut(kind, len(answer))
                self.wfile.write(answer[:keep])
                return keep is None

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address = daemon_threads = True

        with Server(("127.0.0.1", 0), Handler) as server:
            thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
            thread.start()
            try:
                yield int(server.server_address[1])
            finally:
                server.shutdown()
                thread.join()


def _whole(status: int, body: bytes, kind: bytes = b"text/plain", tag: str = "", span: str = "") -> bytes:
    head = [b"HTTP/1.1 %d Answer" % status, b"Content-Type: " + kind]
    if span:
        head.append(b"Content-Range: " + span.encode())
    if tag:
        head.append(b'ETag: "' + tag.encode() + b'"')
    head += [b"Last-Modified: " + _DATE, b"Content-Length: %d" % len(body)]
    return b"\r\n".join(head) + b"\r\n\r\n" + body


def _chunked(reader: BufferedIOBase) -> bytes:
    out = b""
    while size := int(reader.readline().split(b";")[0], 16):
        out += reader.read(size)
        reader.readline()
    while reader.readline().strip():
        pass
    return out


def _decoded(body: bytes) -> bytes:
    """Return the content of a body that the client has sent in chunks with a checksum."""
    out = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        length = int(size.split(b";")[0], 16)
        if not length:
            break
        out, body = out + body[:length], body[length + 2 :]
    return out
