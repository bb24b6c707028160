"""A storage that fails, or dies like a killed process, at a chosen operation; a process that dies at a system call."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rmqstore.backup.storage import LocalStorage, LocalWriter, ObjectWriter


class Killed(BaseException):
    """The process was killed: no handler of an Exception runs, and nothing is written any more."""


class DyingStorage(LocalStorage):
    """Fails at the operation with this number, counted from 0; if the process was killed, at all later ones too."""

    def __init__(self, directory: Path, at: int, fail: Callable[[], BaseException]) -> None:
        super().__init__(directory)
        self.left = at
        self.fail = fail
        self.dead = False

    def step(self) -> None:
        """Count a changing operation."""
        if self.dead:
            raise self.fail()
        self.left -= 1
        if self.left == -1:
            error = self.fail()
            self.dead = isinstance(error, Killed)
            raise error

    def create(self, key: str, data: bytes) -> None:
        with self.writer(key) as writer:
            writer.write(data)
            writer.finish()

    def replace(self, key: str, data: bytes) -> None:
        self.step()
        super().replace(key, data)

    def writer(self, key: str) -> ObjectWriter:  # type: ignore[override]
        self.step()
        return DyingWriter(self, super().writer(key))

    def delete(self, key: str) -> None:
        self.step()
        super().delete(key)


class DyingWriter(ObjectWriter):
    """A writer whose file stays as it is when the process is killed."""

    def __init__(self, storage: DyingStorage, writer: LocalWriter) -> None:
        self.storage = storage
        self.inner = writer

    def write(self, data: bytes) -> None:
        self.storage.step()
        self.inner.write(data)

    def finish(self) -> None:
        self.storage.step()
        self.inner.finish()
        self.storage.step()

    def abandon(self) -> None:
        if not self.storage.dead:
            self.inner.abandon()


_CHANGING = "mkdir", "write", "pwrite", "ftruncate", "fsync", "link", "rename", "replace", "unlink", "rmdir", "utime"


@contextmanager
def killed_at_call(at: int) -> Iterator[list[str]]:
    """Die at the system call with this number that changes files, counted from 0; yield the names of all such calls.

    Nothing is changed after that, whatever handlers of exceptions try.
    """
    calls: list[str] = []

    def dying(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*given: Any, **more: Any) -> Any:
            if name != "open" or given[1] & (os.O_CREAT | os.O_TRUNC):
                calls.append(name)
                if len(calls) > at:
                    raise Killed
            return call(*given, **more)

        return called

    with pytest.MonkeyPatch.context() as patch:
        for name in ("open", *_CHANGING):
            patch.setattr(os, name, dying(name, getattr(os, name)))
        yield calls
